"""Parts of a version 2 manifest: traits, first members, and the entries of its table of rights."""

from msgspec import Struct

from enc.core.rules.policy_types import EventKind, Subject

OUTSIDER = "OUTSIDER"
CONTEXTS = frozenset(["Public", "Self", "Sender"])


class Trait(Struct, frozen=True):
    bit: int
    rank: int


class InitialMember(Struct, frozen=True):
    """An identity to which the manifest itself gives a State and traits."""

    identity: bytes
    state: str
    traits: tuple[str, ...]


class RuleEntry(Struct, frozen=True, kw_only=True):
    """One row of the table: on matching events it gives `ops` to `columns`, and denies `denies`.
    None matches all."""

    event: str
    columns: frozenset[str]
    ops: frozenset[str]
    denies: frozenset[str] = frozenset()
    alias: str | None = None
    from_state: str | None = None
    to_state: str | None = None
    preserve: bool = False
    key: str | None = None
    traits: frozenset[str] | None = None
    scope: frozenset[str] | None = None

    @property
    def kinds(self) -> frozenset[EventKind]:
        """The kinds of events of its type that the entry matches, as Subject.kind; {None} for
        all."""
        if self.traits is not None:
            return self.traits
        return frozenset([Subject(self.event, self.from_state, self.to_state, self.key).kind])
