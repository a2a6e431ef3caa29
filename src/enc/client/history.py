"""Who signs what: an enclave's sequencers one after the other, each proved by the Migrate that names it.

A peaceful Migrate is the last event of the sequencer before; a forced one is the first of the sequencer after. So a
history says of every place of the log whose signature stands there, and everything else is not of the enclave.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from enc.client.errors import TooManyMoves
from enc.core.commit import version_of
from enc.core.content import parse_migrate
from enc.core.errors import InvalidProof, PeerError
from enc.core.event import check_event
from enc.core.types import Event

MAX_MOVES = 64
"""Migrates of one enclave that a client remembers."""
MAX_CONTENT = 16 << 10
"""Characters of a Migrate's content: three fields need 250."""


class Move(Struct, frozen=True):
    """One Migrate: `size` is how many bundles the log had when the sequencer before was done, once that is proved."""

    event: Event
    new_sequencer: bytes
    size: int | None = None

    @property
    def is_forced(self) -> bool:
        """Finalised by the node that takes over."""
        return self.event.sequencer == self.new_sequencer

    @property
    def from_seq(self) -> int:
        """The first event that the new sequencer signs."""
        return self.event.seq + (not self.is_forced)


class Term(Struct, frozen=True):
    """A sequencer and its first event; None: who it was is not known."""

    sequencer: bytes | None
    from_seq: int


class History(Struct, frozen=True):
    """`first` is the sequencer before all moves. Without moves nothing is known but the present one."""

    first: bytes | None = None
    moves: tuple[Move, ...] = ()

    def terms(self) -> Iterator[Term]:
        yield Term(self.first, 0)
        for move in self.moves:
            yield Term(move.new_sequencer, move.from_seq)

    @property
    def sequencer(self) -> bytes | None:
        """The present one."""
        return self.moves[-1].new_sequencer if self.moves else self.first

    @property
    def reach(self) -> int:
        """The seq of the last move that is known."""
        return self.moves[-1].event.seq if self.moves else -1

    def knows(self, key: bytes) -> bool:
        return any(term.sequencer == key for term in self.terms())

    def at(self, seq: int) -> bytes | None:
        """Whose signature an event in this place has."""
        key = self.first
        for move in self.moves:
            if move.from_seq > seq:
                break
            key = move.new_sequencer
        return key

    def departure(self, key: bytes) -> Move | None:
        """The move by which `key` ceased to be the sequencer for the last time; None if it is."""
        keys = [term.sequencer for term in self.terms()]
        last = max((i for i, each in enumerate(keys) if each == key), default=len(keys))
        return self.moves[last] if last < len(self.moves) else None

    def superseded(self, key: bytes, seq: int) -> Move | None:
        """The latest move, at or before a place, after which `key` is not the sequencer there; if it ever was."""
        before = [move for move in self.moves if move.from_seq <= seq]
        was = any(term.sequencer == key for term in self.terms() if term.from_seq <= seq)
        return before[-1] if was and before and self.at(seq) != key else None

    def holds(self, other: "History") -> bool:
        """Every move of another history is one of this."""
        return {move.event.id for move in other.moves} <= {move.event.id for move in self.moves}

    def after(self, other: "History") -> tuple[Move, ...]:
        """The moves later than all that another history knows."""
        return tuple(move for move in self.moves if move.event.seq > other.reach)

    def sizes(self) -> dict[bytes, int]:
        """Those that are proved, by the Migrates' ids."""
        return {move.event.id: move.size for move in self.moves if move.size is not None}

    def sized(self, sizes: dict[bytes, int]) -> "History":
        moves = (replace(move, size=sizes.get(move.event.id, move.size)) for move in self.moves)
        return History(self.first, tuple(moves))


def move_of(event: Event, before: bytes | None, enclave: bytes) -> Move:
    """A Migrate that hands over from `before`: checked in full, and finalised by one of the two that may."""
    try:
        check_event(event, version_of(event))
        if event.type != "Migrate" or event.enclave != enclave:
            raise InvalidProof("no Migrate of this enclave")
        if len(event.content or "") > MAX_CONTENT:
            raise InvalidProof(f"its content is over {MAX_CONTENT} characters")
        migrate = parse_migrate(event)
        if migrate.prev_seq != event.seq - 1:
            raise InvalidProof("prev_seq: not the event before it")
        if before is not None and event.sequencer not in (before, migrate.new_sequencer):
            raise InvalidProof("finalised neither by the sequencer before nor by the one that it names")
    except PeerError as e:
        raise InvalidProof(f"Migrate {event.seq}: {e.message}") from None
    return Move(event, migrate.new_sequencer)


def history_of(first: bytes | None, migrates: Sequence[Event], enclave: bytes) -> History:
    """The history that a log's Migrates give, one after the other; InvalidProof where one does not fit the others, and
    TooManyMoves, unlooked at, where there are more than anybody should have to keep."""
    if len(migrates) > MAX_MOVES:
        message = f"the enclave has {len(migrates)} Migrates, and a client follows at most {MAX_MOVES}"
        raise TooManyMoves(message, moves=len(migrates))
    moves, before, last = list[Move](), first, -1
    for event in migrates:
        move = move_of(event, before, enclave)
        if event.seq <= last:
            raise InvalidProof(f"Migrate {event.seq}: not after the one before it")
        if move.new_sequencer != before:  # who names itself goes on as before
            moves.append(move)
        before, last = move.new_sequencer, event.seq
    if first is None and moves and not moves[0].is_forced:
        first = moves[0].event.sequencer
    return History(first, tuple(moves))
