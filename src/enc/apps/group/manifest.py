"""The Manifest of a group: its rights (docs/group.md), and the check that an enclave is a group."""

import json
from collections.abc import Mapping
from typing import Any

from enc.apps.group.errors import NotAGroup

BUNDLE = {"size": 256, "timeout": 5000}
AUTO_JOIN, APPLICATIONS = "auto_join", "applications"
GATES = (APPLICATIONS, AUTO_JOIN)

RULES: Mapping[str, Any] = json.loads(
    """{
 "enc_v": 2,
 "states": ["PENDING", "MEMBER", "BLOCKED"],
 "traits": ["owner(0)", "admin(1)", "muted(2)", "dataview(3)"],
 "readers": [{"type": "MEMBER", "reads": "*", "retention": "snapshot"}],
 "moves": [
  {"event": "Move", "from": "OUTSIDER", "to": "PENDING", "operator": "Self", "ops": ["C"],
   "alias": "applications", "gate": {"operator": ["owner", "admin"]}},
  {"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "Self", "ops": ["C"],
   "alias": "auto_join", "gate": {"operator": ["owner"]}},
  {"event": "Move", "from": "OUTSIDER", "to": "MEMBER", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "OUTSIDER", "to": "BLOCKED", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "PENDING", "to": "MEMBER", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "PENDING", "to": "OUTSIDER", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "PENDING", "to": "OUTSIDER", "operator": "Self", "ops": ["C"]},
  {"event": "Move", "from": "MEMBER", "to": "OUTSIDER", "operator": "Self", "ops": ["C"]},
  {"event": "Move", "from": "MEMBER", "to": "OUTSIDER", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "MEMBER", "to": "BLOCKED", "operator": "admin", "ops": ["C"]},
  {"event": "Move", "from": "BLOCKED", "to": "OUTSIDER", "operator": "admin", "ops": ["C"]}],
 "grants": [
  {"event": "Grant", "operator": ["admin"], "scope": ["MEMBER"], "trait": ["muted"]},
  {"event": "Revoke", "operator": ["admin"], "scope": ["MEMBER"], "trait": ["muted"]},
  {"event": "Grant", "operator": ["owner"], "scope": ["MEMBER"], "trait": ["admin"]},
  {"event": "Revoke", "operator": ["owner", "Self"], "scope": ["MEMBER"], "trait": ["admin"]},
  {"event": "Grant", "operator": ["owner"], "scope": ["OUTSIDER", "MEMBER"], "trait": ["dataview"]},
  {"event": "Revoke", "operator": ["owner"], "scope": ["OUTSIDER", "MEMBER"], "trait": ["dataview"]}],
 "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
 "slots": [
  {"event": "Shared", "operator": "admin", "ops": ["C", "U", "D"], "key": "topic"},
  {"event": "Own", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "profile"}],
 "lifecycle": [
  {"event": "Pause", "operator": "owner", "ops": ["C"]}, {"event": "Resume", "operator": "owner", "ops": ["C"]},
  {"event": "Terminate", "operator": "owner", "ops": ["C"]}, {"event": "Migrate", "operator": "owner", "ops": ["C"]}],
 "customs": [
  {"event": "message", "operator": "MEMBER", "ops": ["C"]},
  {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
  {"event": "message", "operator": "admin", "ops": ["D"]},
  {"event": "message", "operator": "muted", "ops": ["_C", "_U"]},
  {"event": "message", "operator": "BLOCKED", "ops": ["_U", "_D"]},
  {"event": "message", "operator": ["OUTSIDER", "PENDING"], "ops": ["_U"]},
  {"event": "message", "operator": "dataview", "ops": ["P"]},
  {"event": "reaction", "operator": "MEMBER", "ops": ["C"]},
  {"event": "reaction", "operator": "Sender", "ops": ["D"]},
  {"event": "reaction", "operator": "muted", "ops": ["_C"]},
  {"event": "reaction", "operator": "BLOCKED", "ops": ["_D"]},
  {"event": "notice", "operator": "admin", "ops": ["C", "D"]},
  {"event": "notice", "operator": "Sender", "ops": ["U"]},
  {"event": "notice", "operator": ["OUTSIDER", "PENDING", "BLOCKED"], "ops": ["_U"]},
  {"event": "rotate", "operator": "admin", "ops": ["C"]}]
}"""
)
"""Everything but `init`, `meta` and `bundle`."""


def group_manifest(
    owner: bytes, *, meta: Mapping[str, Any] | None = None, bundle: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Return the manifest of a new group, whose owner is its first member and admin.

    Without `meta`, two groups of one owner would have the same manifest and so the same enclave id.
    """
    first = {"identity": owner.hex(), "state": "MEMBER", "traits": ["owner", "admin"]}
    return {**RULES, "meta": dict(meta or {}), "bundle": dict(bundle or BUNDLE), "init": [first]}


def check_group(manifest: Mapping[str, Any]) -> None:
    """Raise NotAGroup unless the rules are exactly those of a group.

    Under other rules, people might become members in ways that clients do not expect, or read
    without being members.
    """
    for name, rules in RULES.items():
        if manifest.get(name) != rules:
            raise NotAGroup(f"not a group: {name}: differs from that of a group's manifest")
    unknown = manifest.keys() - RULES.keys() - {"meta", "bundle", "init"}
    if unknown:
        raise NotAGroup(f"not a group: its manifest also has {', '.join(sorted(unknown))}")
    init = manifest.get("init")
    first = init[0] if isinstance(init, list) and len(init) == 1 and isinstance(init[0], dict) else {}
    if first.get("state") != "MEMBER" or first.get("traits") != ["owner", "admin"]:
        raise NotAGroup("not a group: `init` must name exactly one owner")
