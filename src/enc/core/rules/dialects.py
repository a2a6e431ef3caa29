"""The dialects of both versions (docs/protocol.md, sections 14 and 21.6)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import PREDEFINED, PREDEFINED_V1, REGISTRY_TYPES, Commit
from enc.core.rules.ac_bundle import operations_of
from enc.core.rules.content import AC_OPERATIONS, check_operation, content_object
from enc.core.rules.dialect import Dialect, RolesUnknownError, StateOrRoles, TypedContent
from enc.core.rules.v1.content import ANY_BITS, OPERATIONS, is_bitmask, read_identity, read_operation, wire_bitmask
from enc.core.rules.v1.manifest_parts import OWNER

READ_BY_RULES = (PREDEFINED | PREDEFINED_V1 | REGISTRY_TYPES) - {"Update"}
"""Types of either version whose contents the rules read."""


def dialect_of(enc_v: int) -> Dialect:
    """Return the dialect of a version. A Policy has its own, which also knows the Manifest."""
    return DialectV1() if enc_v == 1 else DialectV2()


def _operations(commit: Commit, types: frozenset[str]) -> list[tuple[str, dict[str, Any], str]]:
    """Return the operations of an AC_Bundle, or the commit as one operation."""
    if commit.type == "AC_Bundle":
        return list(operations_of(commit, types))
    return [(commit.type, content_object(commit), "content")]


def _urls(commit: Commit, type_: str, types: frozenset[str]) -> list[str]:
    """Return the endpoints of operations of a type."""
    if commit.type not in (type_, "AC_Bundle"):
        return []
    try:
        found = [each.get("endpoint") for name, each, _ in _operations(commit, types) if name == type_]
    except InvalidCommit:
        return []
    return [url for url in found if isinstance(url, str)]


class DialectV2(Struct, frozen=True):
    """States, traits, gates and slots."""

    enc_v = 2
    predefined = PREDEFINED
    access_types: ClassVar[tuple[str, ...]] = ("Move", "Grant", "Revoke", "Transfer", "AC_Bundle")

    def alg(self, wanted: Alg) -> Alg:
        return wanted

    def move(self, target: str, from_: StateOrRoles, to: StateOrRoles, *, force: bool) -> TypedContent:
        if force:
            raise MisuseError("force: only enclaves of version 1 have Force_Move")
        if not isinstance(from_, str) or not isinstance(to, str):
            raise MisuseError("from, to: expected the names of two States in a version 2 enclave")
        return "Move", {"target": target, "from": from_, "to": to}

    def grant(self, target: str, trait: str, endpoint: str | None) -> TypedContent:
        content = {"target": target, "trait": trait}
        return "Grant", content if endpoint is None else {**content, "endpoint": endpoint}

    def revoke(self, target: str, trait: str) -> TypedContent:
        return "Revoke", {"target": target, "trait": trait}

    def revoke_self(self, actor: str, trait: str) -> TypedContent:
        return self.revoke(actor, trait)

    def transfer(self, target: str, trait: str) -> TypedContent:
        return "Transfer", {"target": target, "trait": trait}

    def gate(self, alias: str, state: str) -> TypedContent:
        return "Gate", {"alias": alias, "state": state}

    def slot(self, type_: str, key: str, value: Any) -> TypedContent:
        return type_, {"key": key, "value": value}

    def operation(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return dict(fields)

    def affected_identities(self, commit: Commit) -> Iterator[bytes]:
        yield commit.from_
        for type_, operation, path in _operations(commit, AC_OPERATIONS):
            check_operation(type_, operation, path)
            if type_ != "Gate":
                yield bytes.fromhex(operation["target"])

    def endpoints(self, commit: Commit) -> list[str]:
        return _urls(commit, "Grant", AC_OPERATIONS)


class DialectV1(Struct, frozen=True):
    """Roles. `roles` are the custom ones with their bits; None if the Manifest is not known."""

    roles: Mapping[str, int] | None = None

    enc_v = 1
    predefined = PREDEFINED_V1
    access_types: ClassVar[tuple[str, ...]] = (*sorted(OPERATIONS), "Transfer_Owner", "AC_Bundle")

    def alg(self, wanted: Alg) -> Alg:
        """Return schnorr, the only algorithm of version 1."""
        return "schnorr"

    def move(self, target: str, from_: StateOrRoles, to: StateOrRoles, *, force: bool) -> TypedContent:
        content = {"identity": target, "from": self._bitmask(from_), "to": self._bitmask(to)}
        return "Force_Move" if force else "Move", content

    def grant(self, target: str, trait: str, endpoint: str | None) -> TypedContent:
        content = {"identity": target, "role": trait}
        return ("Grant", content) if endpoint is None else ("Grant_Push", {**content, "endpoint": endpoint})

    def revoke(self, target: str, trait: str) -> TypedContent:
        return "Revoke", {"identity": target, "role": trait}

    def revoke_self(self, actor: str, trait: str) -> TypedContent:
        return "Revoke_Self", {"role": trait}

    def transfer(self, target: str, trait: str) -> TypedContent:
        if trait != "Owner":
            raise MisuseError("trait: a version 1 enclave can transfer Owner only")
        return "Transfer_Owner", {"new_owner": target}

    def gate(self, alias: str, state: str) -> TypedContent:
        raise MisuseError("enclaves of version 1 have no gates")

    def slot(self, type_: str, key: str, value: Any) -> TypedContent:
        raise MisuseError("enclaves of version 1 have no slots")

    def operation(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        names = {"target": "identity", "trait": "role"}
        operation = {names.get(name, name): value for name, value in fields.items()}
        for field in operation.keys() & {"from", "to"}:
            operation[field] = self._bitmask(operation[field])
        if operation.get("type") == "Grant" and "endpoint" in operation:
            operation["type"] = "Grant_Push"
        return operation

    def _bitmask(self, roles: StateOrRoles) -> str:
        """Return a bitmask as the wire spells it, from a bitmask or from role names; without names,
        `0x0`."""
        if isinstance(roles, str) and is_bitmask(roles):
            return roles
        if not isinstance(roles, Collection) or not all(isinstance(name, str) for name in roles):
            raise MisuseError('expected names of roles, or a bitmask as text, such as "0x100000000"')
        if self.roles is None:
            raise RolesUnknownError
        bits = {"Owner": OWNER, **self.roles}
        found = 0
        for name in _names(roles, bits):
            if name not in bits:
                raise MisuseError(f"{name[:60]}: not a role of this enclave; its roles are {', '.join(bits)[:500]}")
            found |= bits[name]
        return wire_bitmask(found)

    def affected_identities(self, commit: Commit) -> Iterator[bytes]:
        if commit.type == "Transfer_Owner":
            yield from (commit.from_, read_identity(content_object(commit), "new_owner", "content"))
            return
        for type_, operation, path in _operations(commit, OPERATIONS):
            yield read_operation(type_, operation, path, actor=commit.from_, bits=ANY_BITS).identity

    def endpoints(self, commit: Commit) -> list[str]:
        return _urls(commit, "Grant_Push", OPERATIONS)


def _names(roles: StateOrRoles, known: Mapping[str, int]) -> Sequence[str]:
    """Return the names in `roles`. A known role's name is not split, even if it contains commas."""
    if not isinstance(roles, str):
        return roles
    return [roles] if roles in known else [name.strip() for name in roles.split(",")] if roles else []
