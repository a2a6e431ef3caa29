"""Version 1 in the small world: short forms of its schemas and contents, and the schemas of the
document."""

from typing import Any

from tests.core.world import Json, pub

OWNER = 1 << 1
ENDPOINT = "https://example.org/push"


def row(event: str, role: str, ops: str, *targets: str, **more: Any) -> Json:
    """row("Grant", "Owner", "C", "Admin", "Member"): an entry of a schema; `ops` are single
    letters."""
    return {
        "event": event,
        "role": role,
        "ops": list(ops),
        **({"target_roles": list(targets)} if targets else {}),
        **more,
    }


def initial(**people: str) -> dict[str, list[Any]]:
    """initial(olga="Owner", bob="Admin Member"): each name with its roles."""
    state: dict[str, list[Any]] = {}
    for name, roles in people.items():
        for role in roles.split():
            state.setdefault(role, []).append(pub(name))
    return state


def manifest(schema: list[Json], state: dict[str, list[Any]], **more: Any) -> Json:
    rbac = {"use_temp": "none", "schema": schema, "initial_state": state}
    return {"enc_v": 1, "RBAC": rbac, "meta": {"description": "a test"}, **more}


def has(name: str, role: str, **more: Any) -> Json:
    """Return the content of a Grant, Grant_Push or Revoke."""
    return {"role": role, "identity": pub(name), **more}


def change(name: str, from_: int, to: int) -> Json:
    """Return the content of a Move or Force_Move."""
    return {"identity": pub(name), "from": hex(from_), "to": hex(to)}


def bundle(*operations: tuple[str, Json]) -> Json:
    """Return the content of an AC_Bundle."""
    return {"operations": [{"type": type_, **content} for type_, content in operations]}


# The schemas that the version 1 document defines

EXAMPLE = [
    row("Grant", "Owner", "C", "Admin", "Member"),
    row("Grant", "Admin", "C", "Member"),
    row("Grant", "Member", "R"),
    row("Revoke", "Owner", "C", "Admin", "Member"),
    row("Revoke", "Admin", "C", "Member"),
    row("Revoke", "Member", "R"),
    row("Revoke_Self", "Member", "C", "Member"),
    row("Terminate", "Owner", "C"),
    row("Terminate", "Member", "R"),
    row("Chat_Message", "Member", "CR"),
    row("Chat_Message", "Self", "UD"),
]
"""The Manifest's example (section 7 of the document)."""

REGISTRY = [
    row("*", "Any", "R"),
    row("*", "DataView", "P"),
    *(
        entry
        for type_ in ("Reg_Node", "Reg_Enclave", "Reg_Identity")
        for entry in (row(type_, "Any", "C"), row(type_, "Self", "UD"))
    ),
    row("Grant_Push", "Owner", "C", "DataView"),
    row("Revoke", "Owner", "C", "DataView"),
    *(row(type_, "Owner", "C") for type_ in ("Transfer_Owner", "Pause", "Resume", "Terminate")),
]
"""The Registry's (section 8), without the rules that a registry has besides."""

PERSONAL_V1 = [
    row("public", "Owner", "CUD"),
    row("public", "Any", "R"),
    row("public", "DataView", "P"),
    row("private", "Owner", "CRUD"),
    row("inbox", "Any", "C"),
    row("inbox", "Owner", "RD"),
    row("inbox", "DataView", "P"),
    *(row(type_, "Owner", "C", "DataView") for type_ in ("Grant", "Grant_Push", "Revoke")),
    *(row(type_, "Owner", "C") for type_ in ("Transfer_Owner", "Terminate", "Pause", "Resume")),
]
"""The personal enclave's (Appendix A)."""
