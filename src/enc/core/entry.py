"""What a version 2 manifest is made of: traits, first members, and the rows of its table of rights."""

from typing import Any

from msgspec import Struct

from enc.core.policy import Subject

OUTSIDER = "OUTSIDER"
CONTEXTS = frozenset(["Public", "Self", "Sender"])


class Trait(Struct, frozen=True):
    bit: int
    rank: int


class Member(Struct, frozen=True):
    """An identity that the manifest itself puts in place."""

    identity: bytes
    state: str
    traits: tuple[str, ...]


class Entry(Struct, frozen=True, kw_only=True):
    """One row: on matching events it gives `ops`, and denies `denies`, to `columns`. None selects everything."""

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

    def matches(self, subject: Subject) -> bool:
        return (
            self.event in (subject.type, "*")
            and self.from_state in (None, subject.from_state)
            and self.to_state in (None, subject.to_state)
            and self.key in (None, subject.key)
            and (self.traits is None or subject.trait in self.traits)
        )

    @property
    def kinds(self) -> frozenset[Any]:
        """What of its type the entry selects; {None} where it is all."""
        if self.traits is not None:
            return self.traits
        selected = self.key or (self.from_state and (self.from_state, self.to_state))
        return frozenset([selected or None])
