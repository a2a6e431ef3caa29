"""Parses a version 1 Manifest into a Policy; an error names the path of the fault
(docs/protocol.md, 21.3 and 21.4)."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import unhex
from enc.core.primitives.signing import check_public_key
from enc.core.rules.content import check_endpoint
from enc.core.rules.manifest_common import check_meta, check_template, quoted, read_bundle, refuse
from enc.core.rules.v1.access import PolicyV1
from enc.core.rules.v1.manifest_parts import (
    FIRST_CUSTOM,
    MAX_ROLES,
    OPS,
    RESERVED,
    WITH_TARGETS,
    Assignment,
    SchemaEntry,
)


def read_manifest_v1(manifest: dict[str, Any]) -> PolicyV1:
    rbac = manifest.get("RBAC")
    if not isinstance(rbac, dict):
        refuse("RBAC", "expected an object")
    check_template(manifest, rbac)
    entries = _entries(rbac.get("schema"))
    roles = _roles(entries)
    check_meta(manifest)
    return PolicyV1(
        manifest=manifest,
        roles=roles,
        rows=tuple(_row(entry, roles) for entry in entries),
        initial=tuple(_initial_state(rbac.get("initial_state"), roles)),
        bundle=read_bundle(manifest),
        registry=manifest.get("registry") is True,
    )


# Schema


class _Entry(Struct, frozen=True):
    """An entry of the schema as parsed, before its roles have bits."""

    event: str
    role: str
    ops: frozenset[str]
    target_roles: list[str]


def _entries(schema: Any) -> list[_Entry]:
    if not isinstance(schema, list):
        refuse("RBAC.schema", "expected a list")
    return [_entry(entry, f"RBAC.schema[{i}]") for i, entry in enumerate(schema)]


def _entry(entry: Any, path: str) -> _Entry:
    if not isinstance(entry, dict):
        refuse(path, "expected an object")
    event, role = _name(entry, "event", path), _name(entry, "role", path)
    ops = _ops(entry.get("ops"), f"{path}.ops")
    if event in WITH_TARGETS and "C" in ops and "target_roles" not in entry:
        refuse(f"{path}.target_roles", f"missing; an entry with C on {event} must list the roles concerned")
    return _Entry(event, role, ops, _target_roles(entry.get("target_roles", []), f"{path}.target_roles"))


def _name(entry: dict[str, Any], field: str, path: str) -> str:
    name = entry.get(field)
    if not isinstance(name, str) or not name:
        refuse(f"{path}.{field}", "expected a name")
    return name


def _ops(ops: Any, path: str) -> frozenset[str]:
    if not isinstance(ops, list):
        refuse(path, "expected a list")
    for op in ops:
        if not isinstance(op, str) or op not in OPS:
            refuse(path, f"unknown op {quoted(op)}")
    return frozenset(ops)


def _target_roles(names: Any, path: str) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        refuse(path, "expected a list of names")
    for name in names:
        if name in RESERVED:
            refuse(path, f"{name} is reserved")
    return list(dict.fromkeys(names))


def _roles(entries: list[_Entry]) -> dict[str, int]:
    """Return the custom roles with their bits, in the order in which the schema first names them:
    `role`, then targets."""
    names = dict.fromkeys(name for entry in entries for name in (entry.role, *entry.target_roles))
    custom = [name for name in names if name not in RESERVED]
    if len(custom) > MAX_ROLES:
        refuse("RBAC.schema", f"names more than {MAX_ROLES} roles")
    return {name: 1 << FIRST_CUSTOM + i for i, name in enumerate(custom)}


def _row(entry: _Entry, roles: dict[str, int]) -> SchemaEntry:
    role = RESERVED[entry.role] if entry.role in RESERVED else roles[entry.role]
    return SchemaEntry(entry.event, role, entry.ops, sum(roles[name] for name in entry.target_roles))


# Initial state


def _initial_state(state: Any, roles: dict[str, int]) -> Iterator[Assignment]:
    if not isinstance(state, dict):
        refuse("RBAC.initial_state", "expected an object")
    for role, members in state.items():
        if role != "Owner" and role not in roles:
            refuse("RBAC.initial_state", f"{quoted(role)} is not an assignable role of the schema")
        yield from _members(members, role, f"RBAC.initial_state.{role[:60]}")
    if len(state.get("Owner", [])) != 1:
        refuse("RBAC.initial_state.Owner", "expected exactly one identity")


def _members(members: Any, role: str, path: str) -> Iterator[Assignment]:
    if not isinstance(members, list):
        refuse(path, "expected a list")
    seen: set[bytes] = set()
    for i, member in enumerate(members):
        found = _member(member, role, f"{path}[{i}]")
        if found.identity in seen:
            refuse(f"{path}[{i}]", "listed twice under this role")
        seen.add(found.identity)
        yield found


def _member(member: Any, role: str, path: str) -> Assignment:
    """Parse an identity in hex, or an object of identity and endpoint."""
    if not isinstance(member, dict):
        return Assignment(_identity(member, path), role)
    identity = _identity(member.get("identity"), f"{path}.identity")
    check_endpoint(member.get("endpoint"), f"{path}.endpoint", InvalidCommit)
    return Assignment(identity, role, member["endpoint"])


def _identity(text: Any, path: str) -> bytes:
    identity = unhex(text, 32, path)
    check_public_key(identity, path)
    return identity
