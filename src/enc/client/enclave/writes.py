"""All writes of a client, one method each, shared by the blocking and the async client."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from enc.client.enclave.commit_builder import CommitBuilder
from enc.client.link.enclave_reader import EnclaveReader
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import Content, content_text
from enc.core.primitives.types import Commit, Tags
from enc.core.rules.dialect import Dialect, StateOrRoles, TypedContent

R = TypeVar("R")
"""A Receipt, or a coroutine that returns one."""

Id = bytes | str
"""32 bytes, or 64 hex digits."""
TagList = Iterable[Sequence[str]]
SALT_BYTES = 16
"""Random bytes in the content that sets a slot."""


def as_hex(id_: Id, what: str) -> str:
    """Return 64 hex digits; raise MisuseError for anything that is not an id."""
    return as_bytes(id_, what).hex()


def as_bytes(id_: Id, what: str) -> bytes:
    try:
        raw = bytes.fromhex(id_) if isinstance(id_, str) else bytes(memoryview(id_))
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != 32:
        raise MisuseError(f"{what}: expected 32 bytes, or 64 hex digits")
    return raw


def as_type(type_: str) -> str:
    """Return an event's type; raise MisuseError for anything that is not text."""
    if not isinstance(type_, str):
        raise MisuseError(f"type: expected the name of an event type, such as 'message', not {type_!r}")
    return type_


def as_tags(tags: TagList) -> Tags:
    """Return tags as a commit has them; raise MisuseError for anything but lists of strings."""
    try:
        listed = [(tag, tuple(tag)) for tag in tags]
    except TypeError:
        listed = [("", ())]
    if any(isinstance(tag, str) or not all(isinstance(text, str) for text in texts) for tag, texts in listed):
        raise MisuseError("tags: expected lists of strings, such as [['r', id]]")
    return tuple(texts for _, texts in listed)


def operation(type_: str, **fields: Any) -> dict[str, Any]:
    """Return one operation of an `ac_bundle`: Move (its `from` as `from_`), Grant, Revoke,
    Transfer, Gate.

    In an enclave of version 1: Move, Force_Move, Grant, Revoke or Revoke_Self.
    """
    plain = {name.removesuffix("_"): value for name, value in fields.items()}
    if "target" in plain:
        plain["target"] = as_hex(plain["target"], "target")
    return {"type": type_, **plain}


class Writes(ABC, Generic[R]):
    _reader: EnclaveReader

    @abstractmethod
    def send(self, commit: Commit) -> R:
        """Send a commit from `prepare`.

        Sent again, also after a restart, it does not become a second event.
        """

    @abstractmethod
    def _write(self, parts: CommitBuilder) -> R:
        """Write a commit in the enclave's dialect."""

    @abstractmethod
    def _write_checked(self, type_: str, content: str, tags: Tags) -> R:
        """Write an event whose content satisfies its schema."""

    def prepare(self, type: str, content: Content, *, tags: TagList = ()) -> Commit:
        """Sign a commit without sending it. It may be sent for ten minutes, any number of times."""
        return self._reader.session.prepare(as_type(type), content_text(content), as_tags(tags))

    def commit(self, type: str, content: Content, *, tags: TagList = (), check: bool = False) -> R:
        """Write an event of a type that the manifest declares.

        With `check`, raises MisuseError and sends nothing if the content violates the type's schema
        in the manifest, or if there is none.
        """
        parts = as_type(type), content_text(content), as_tags(tags)
        return self._write_checked(*parts) if check else self._write(lambda dialect: parts)

    def _write_access(self, build: Callable[[Dialect], TypedContent]) -> R:
        """Write an access-control event."""

        def builder(dialect: Dialect) -> tuple[str, str, Tags]:
            type_, content = build(dialect)
            return type_, content_text(content), ()

        return self._write(builder)

    def update(self, event: Id, content: Content, *, tags: TagList = (), check: bool = False) -> R:
        """Replace an event's content. The old content is erased; that it existed stays provable.

        `check`: as with `commit`, by the schema of the event's type.
        """
        return self.commit("Update", content, tags=[("r", as_hex(event, "event")), *tags], check=check)

    def delete(self, event: Id, *, reason: Literal["author", "moderator"] = "author", note: str | None = None) -> R:
        """Delete an event permanently. Its content is erased."""
        content = {"reason": reason} if note is None else {"reason": reason, "note": note}
        return self.commit("Delete", content, tags=[("r", as_hex(event, "event"))])

    def move(self, target: Id, from_: StateOrRoles, to: StateOrRoles, *, force: bool = False) -> R:
        """Change an identity's State; `from_` is the State that it must have now.

        In an enclave of version 1, all roles at once: names in a list, or a bitmask; `force` makes
        it a Force_Move.
        """
        who = as_hex(target, "target")
        return self._write_access(lambda dialect: dialect.move(who, from_, to, force=force))

    def grant(self, target: Id, trait: str, *, endpoint: str | None = None) -> R:
        """Give an identity a trait or a role.

        With `endpoint`, the URL to which its events are pushed.
        """
        who = as_hex(target, "target")
        return self._write_access(lambda dialect: dialect.grant(who, trait, endpoint))

    def revoke(self, target: Id, trait: str) -> R:
        """Take a trait or a role away from an identity."""
        who = as_hex(target, "target")
        return self._write_access(lambda dialect: dialect.revoke(who, trait))

    def revoke_self(self, trait: str) -> R:
        """Give up a trait or a role of your own."""
        me = self._reader.identity.public.hex()
        return self._write_access(lambda dialect: dialect.revoke_self(me, trait))

    def transfer(self, target: Id, trait: str) -> R:
        """Pass on a trait that you hold; in an enclave of version 1, Owner."""
        who = as_hex(target, "target")
        return self._write_access(lambda dialect: dialect.transfer(who, trait))

    def gate(self, alias: str, *, open: bool) -> R:
        """Open or close a gate of the manifest."""
        return self._write_access(lambda dialect: dialect.gate(alias, "open" if open else "closed"))

    def shared(self, key: str, value: Any) -> R:
        """Set a shared slot; None unsets it."""
        return self._write_access(_slot("Shared", key, value))

    def own(self, key: str, value: Any) -> R:
        """Set a slot of your own; None unsets it."""
        return self._write_access(_slot("Own", key, value))

    def ac_bundle(self, operations: Sequence[Mapping[str, Any]]) -> R:
        """Write several operations (see `operation`), all or none."""
        listed = [dict(operation) for operation in operations]
        return self._write_access(
            lambda dialect: ("AC_Bundle", {"operations": [dialect.operation(each) for each in listed]})
        )

    def pause(self) -> R:
        """Reject commits until `resume`."""
        return self.commit("Pause", "")

    def resume(self) -> R:
        return self.commit("Resume", "")

    def terminate(self) -> R:
        """Terminate the enclave permanently."""
        return self.commit("Terminate", "")


def _slot(type_: Literal["Shared", "Own"], key: str, value: Any) -> Callable[[Dialect], TypedContent]:
    """Return the content that sets a slot.

    The state shows the content's hash, or hashes over it, also to people who may not read the slot.
    The salt keeps them from guessing the value.
    """
    salt = secrets.token_hex(SALT_BYTES)

    def content(dialect: Dialect) -> TypedContent:
        type_now, fields = dialect.slot(type_, key, value)
        return type_now, {**fields, "salt": salt}

    return content
