"""The manifests of a fleet: a group in version 2, and a circle of members in version 1."""

from typing import Any

from enc.bench.plan import Plan
from enc.core.primitives.encoding import compact_json

Json = dict[str, Any]


def _rule(event: str, operator: str | list[str], ops: str, **more: Any) -> Json:
    return {"event": event, "operator": operator, "ops": ops.split(), **more}


def _path(from_: str, to: str, operator: str, **more: Any) -> Json:
    return _rule("Move", operator, "C", **{"from": from_, "to": to, **more})


def _grant(event: str, operator: str, trait: str) -> Json:
    return {"event": event, "operator": [operator], "scope": ["MEMBER"], "trait": [trait]}


_GROUP: Json = {
    "enc_v": 2,
    "states": ["PENDING", "MEMBER", "BLOCKED"],
    "traits": ["owner(0)", "admin(1)", "muted(2)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [
        _path("OUTSIDER", "PENDING", "Self", alias="applications", gate={"operator": ["owner", "admin"]}),
        _path("OUTSIDER", "MEMBER", "admin"),
        _path("PENDING", "MEMBER", "admin"),
        _path("MEMBER", "OUTSIDER", "Self"),
        _path("MEMBER", "OUTSIDER", "admin"),
        _path("MEMBER", "BLOCKED", "admin"),
        _path("BLOCKED", "OUTSIDER", "admin"),
    ],
    "grants": [
        *(_grant(event, "admin", "muted") for event in ("Grant", "Revoke")),
        *(_grant(event, "owner", "admin") for event in ("Grant", "Revoke")),
    ],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [_rule("Shared", "admin", "C U D", key="topic"), _rule("Own", "MEMBER", "C U D", key="profile")],
    "lifecycle": [_rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
    "customs": [
        _rule("message", "MEMBER", "C"),
        _rule("message", "Sender", "U D"),
        _rule("message", "admin", "D"),
        _rule("message", "muted", "_C _U"),
        _rule("message", ["OUTSIDER", "PENDING", "BLOCKED"], "_U _D"),
        _rule("reaction", "MEMBER", "C"),
        _rule("reaction", "muted", "_C"),
        _rule("notice", "admin", "C D"),
    ],
}


def _row(event: str, role: str, ops: str, *targets: str) -> Json:
    row = {"event": event, "role": role, "ops": list(ops)}
    return {**row, "target_roles": list(targets)} if targets else row


_SCHEMA: list[Json] = [
    _row("Grant", "Owner", "C", "Admin", "Member"),
    _row("Grant", "Admin", "C", "Member"),
    _row("Revoke", "Owner", "C", "Admin", "Member"),
    _row("Revoke", "Admin", "C", "Member"),
    _row("Revoke_Self", "Member", "C", "Member"),
    _row("Move", "Owner", "C", "Admin", "Member"),
    *(_row(event, "Owner", "C") for event in ("Pause", "Resume", "Terminate")),
    _row("message", "Member", "CR"),
    _row("message", "Self", "UD"),
    _row("message", "Admin", "D"),
    _row("reaction", "Member", "CR"),
    _row("notice", "Admin", "C"),
]


def manifest_of(plan: Plan, owner: bytes) -> str:
    """Return the content of an enclave's Manifest. Its `meta` makes the enclave's id unique."""
    frame: Json = {
        "meta": {"description": f"enclave {plan.number} of fleet {plan.seed}"},
        "bundle": {"size": plan.bundle_size, "timeout": plan.bundle_timeout},
    }
    if plan.enc_v == 1:
        roles = {role: [owner.hex()] for role in ("Owner", "Admin", "Member")}
        rbac = {"use_temp": "none", "schema": _SCHEMA, "initial_state": roles}
        return compact_json({"enc_v": 1, "RBAC": rbac, **frame})
    first = {"identity": owner.hex(), "state": "MEMBER", "traits": ["owner", "admin"]}
    return compact_json({**_GROUP, "init": [first], **frame})
