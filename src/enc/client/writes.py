"""Everything a client can write, one obvious call each; said once for the blocking and the awaiting face."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from enc.client.link import EnclaveReader
from enc.client.saying import CommitBuilder
from enc.core.dialect import Dialect, StateOrRoles, TypedContent
from enc.core.encoding import compact_json
from enc.core.errors import MisuseError
from enc.core.types import Commit, Tags

R = TypeVar("R")
"""A Receipt, or the promise of one."""

Id = bytes | str
"""32 bytes, or 64 hex digits."""
Content = str | Mapping[str, Any] | Sequence[Any]
"""Text as it is; anything else is written as compact JSON."""
TagList = Iterable[Sequence[str]]


def as_hex(id_: Id, what: str) -> str:
    """64 hex digits; MisuseError if it is no id."""
    return as_bytes(id_, what).hex()


def as_bytes(id_: Id, what: str) -> bytes:
    try:
        raw = bytes.fromhex(id_) if isinstance(id_, str) else bytes(memoryview(id_))
    except (ValueError, TypeError):
        raw = b""
    if len(raw) != 32:
        raise MisuseError(f"{what}: expected 32 bytes, or 64 hex digits")
    return raw


def as_tags(tags: TagList) -> Tags:
    listed = list(tags)
    if any(isinstance(tag, str) for tag in listed) or any(not isinstance(text, str) for tag in listed for text in tag):
        raise MisuseError("tags: expected lists of strings, such as [['r', id]]")
    return tuple(tuple(tag) for tag in listed)


def operation(type_: str, **fields: Any) -> dict[str, Any]:
    """One operation of an `ac_bundle`: Move (its `from` as `from_`), Grant, Revoke, Transfer or Gate.

    In an enclave of version 1: Move, Force_Move, Grant, Revoke or Revoke_Self.
    """
    plain = {name.removesuffix("_"): value for name, value in fields.items()}
    if "target" in plain:
        plain["target"] = as_hex(plain["target"], "target")
    return {"type": type_, **plain}


def _text(content: Content) -> str:
    return content if isinstance(content, str) else compact_json(content)


class Writes(ABC, Generic[R]):
    _reader: EnclaveReader

    @abstractmethod
    def send(self, commit: Commit) -> R:
        """Send a commit that `prepare` made. Sent again, also after a restart, it becomes no second event."""

    @abstractmethod
    def _write(self, said: CommitBuilder) -> R:
        """Write what is said, in the enclave's dialect."""

    def prepare(self, type: str, content: Content, *, tags: TagList = ()) -> Commit:
        """Sign a commit without sending it. It may be sent within ten minutes, as often as it takes."""
        return self._reader.session.prepare(type, _text(content), as_tags(tags))

    def commit(self, type: str, content: Content, *, tags: TagList = ()) -> R:
        """Write an event of a type that the manifest names."""
        said = type, _text(content), as_tags(tags)
        return self._write(lambda dialect: said)

    def _say(self, build: Callable[[Dialect], TypedContent]) -> R:
        """Write an event about who is what."""

        def saying(dialect: Dialect) -> tuple[str, str, Tags]:
            type_, content = build(dialect)
            return type_, _text(content), ()

        return self._write(saying)

    def update(self, event: Id, content: Content, *, tags: TagList = ()) -> R:
        """Replace an event's content. The old one is erased; that there was one stays provable."""
        return self.commit("Update", content, tags=[("r", as_hex(event, "event")), *tags])

    def delete(self, event: Id, *, reason: Literal["author", "moderator"] = "author", note: str | None = None) -> R:
        """Take an event away for good. Its content is erased."""
        content = {"reason": reason} if note is None else {"reason": reason, "note": note}
        return self.commit("Delete", content, tags=[("r", as_hex(event, "event"))])

    def move(self, target: Id, from_: StateOrRoles, to: StateOrRoles, *, force: bool = False) -> R:
        """Change somebody's State; `from_` is what it must be now.

        In an enclave of version 1, all roles at once: names in a list, or a bitmask; `force` makes it a Force_Move.
        """
        who = as_hex(target, "target")
        return self._say(lambda dialect: dialect.move(who, from_, to, force=force))

    def grant(self, target: Id, trait: str, *, endpoint: str | None = None) -> R:
        """Give somebody a trait, or a role; with `endpoint`, where its holder is pushed to."""
        who = as_hex(target, "target")
        return self._say(lambda dialect: dialect.grant(who, trait, endpoint))

    def revoke(self, target: Id, trait: str) -> R:
        """Take a trait, or a role, away."""
        who = as_hex(target, "target")
        return self._say(lambda dialect: dialect.revoke(who, trait))

    def revoke_self(self, trait: str) -> R:
        """Give up a trait, or a role, of your own."""
        me = self._reader.identity.public.hex()
        return self._say(lambda dialect: dialect.revoke_self(me, trait))

    def transfer(self, target: Id, trait: str) -> R:
        """Pass on a trait that you hold; in an enclave of version 1, Owner."""
        who = as_hex(target, "target")
        return self._say(lambda dialect: dialect.transfer(who, trait))

    def gate(self, alias: str, *, open: bool) -> R:
        """Open or close a gate of the manifest."""
        return self._say(lambda dialect: dialect.gate(alias, "open" if open else "closed"))

    def shared(self, key: str, value: Any) -> R:
        """Set a slot that all share; None unsets it."""
        return self._say(lambda dialect: dialect.slot("Shared", key, value))

    def own(self, key: str, value: Any) -> R:
        """Set a slot of your own; None unsets it."""
        return self._say(lambda dialect: dialect.slot("Own", key, value))

    def ac_bundle(self, operations: Sequence[Mapping[str, Any]]) -> R:
        """Several operations (see `operation`), all or none."""
        listed = [dict(operation) for operation in operations]
        return self._say(lambda dialect: ("AC_Bundle", {"operations": [dialect.operation(each) for each in listed]}))

    def pause(self) -> R:
        """Take no commits until `resume`."""
        return self.commit("Pause", "")

    def resume(self) -> R:
        return self.commit("Resume", "")

    def terminate(self) -> R:
        """End the enclave for good."""
        return self.commit("Terminate", "")
