"""An enclave's sequencers in order, each proved by the Migrate that names it.

A peaceful Migrate is the last event of the old sequencer; a forced one is the first event of the
new sequencer. So a history gives the signer of every seq; any other signature is not the enclave's.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from enc.client.errors import TooManyMoves
from enc.core.errors import InvalidProof, PeerError
from enc.core.log.commit import version_of
from enc.core.log.event import check_event
from enc.core.primitives.types import Event
from enc.core.rules.content import parse_migrate

MAX_MOVES = 64
"""Most Migrates of one enclave that a client remembers."""
MAX_CONTENT = 16_384
"""Most characters of a Migrate's content; the three fields need 250."""


class Migration(Struct, frozen=True):
    """One Migrate. `size`: bundles of the log when the old sequencer's term ended, once proved."""

    event: Event
    new_sequencer: bytes
    size: int | None = None

    @property
    def is_forced(self) -> bool:
        """Whether the new node finalised the Migrate itself."""
        return self.event.sequencer == self.new_sequencer

    @property
    def from_seq(self) -> int:
        """The first seq that the new sequencer signs."""
        return self.event.seq + (not self.is_forced)


class Term(Struct, frozen=True):
    """A sequencer (None: unknown) and the seq of its first event."""

    sequencer: bytes | None
    from_seq: int


class History(Struct, frozen=True):
    """`first`: the sequencer before all moves. Without moves only the current one is known."""

    first: bytes | None = None
    moves: tuple[Migration, ...] = ()

    def terms(self) -> Iterator[Term]:
        yield Term(self.first, 0)
        for move in self.moves:
            yield Term(move.new_sequencer, move.from_seq)

    @property
    def sequencer(self) -> bytes | None:
        """The current sequencer."""
        return self.moves[-1].new_sequencer if self.moves else self.first

    @property
    def reach(self) -> int:
        """The seq of the last known move; -1 without one."""
        return self.moves[-1].event.seq if self.moves else -1

    def moves_to(self, key: bytes) -> tuple[Migration, ...]:
        """Return the moves up to the last one that made `key` the sequencer; none if none did."""
        ends = [i for i, move in enumerate(self.moves, 1) if move.new_sequencer == key]
        return self.moves[: ends[-1]] if ends else ()

    def keys(self) -> Iterator[bytes]:
        """Yield the known sequencers."""
        return (term.sequencer for term in self.terms() if term.sequencer is not None)

    def knows(self, key: bytes) -> bool:
        return any(term.sequencer == key for term in self.terms())

    def at(self, seq: int) -> bytes | None:
        """Return the key that signs the event with this seq; None if unknown."""
        key = self.first
        for move in self.moves:
            if move.from_seq > seq:
                break
            key = move.new_sequencer
        return key

    def departure(self, key: bytes) -> Migration | None:
        """Return the move that ended the last term of `key`; None if it is the sequencer."""
        keys = [term.sequencer for term in self.terms()]
        last = max((i for i, each in enumerate(keys) if each == key), default=len(keys))
        return self.moves[last] if last < len(self.moves) else None

    def superseded(self, key: bytes, seq: int) -> Migration | None:
        """Return the latest move up to `seq` that replaced `key`, if `key` was the sequencer
        before.
        """
        before = [move for move in self.moves if move.from_seq <= seq]
        was = any(term.sequencer == key for term in self.terms() if term.from_seq <= seq)
        return before[-1] if was and self.at(seq) != key else None

    def holds(self, other: "History") -> bool:
        """Whether this history contains every move of the other."""
        return {move.event.id for move in other.moves} <= {move.event.id for move in self.moves}

    def sizes(self) -> dict[bytes, int]:
        """Return the proved sizes, by id of the Migrate."""
        return {move.event.id: move.size for move in self.moves if move.size is not None}

    def sized(self, sizes: dict[bytes, int]) -> "History":
        moves = (replace(move, size=sizes.get(move.event.id, move.size)) for move in self.moves)
        return History(self.first, tuple(moves))


def move_of(event: Event, before: bytes | None, enclave: bytes) -> Migration:
    """Check a Migrate that ends the term of `before`, in full, and return it as a Move."""
    try:
        check_event(event, version_of(event))
        if event.type != "Migrate" or event.enclave != enclave:
            raise InvalidProof("not a Migrate of this enclave")
        if len(event.content or "") > MAX_CONTENT:
            raise InvalidProof(f"the content has more than {MAX_CONTENT} characters")
        migrate = parse_migrate(event)
        if migrate.prev_seq != event.seq - 1:
            raise InvalidProof("prev_seq: not the seq of the event before it")
        if before is not None and event.sequencer not in (before, migrate.new_sequencer):
            raise InvalidProof("finalised neither by the old sequencer nor by the new one")
    except PeerError as e:
        raise InvalidProof(f"Migrate {event.seq}: {e.message}") from None
    return Migration(event, migrate.new_sequencer)


def history_of(first: bytes | None, migrates: Sequence[Event], enclave: bytes) -> History:
    """Return the history that a log's Migrates give, in their order.

    Raises InvalidProof if one contradicts the others, and TooManyMoves, without checking any, if
    there are more than MAX_MOVES.
    """
    if len(migrates) > MAX_MOVES:
        message = f"the enclave has {len(migrates)} Migrates; a client follows at most {MAX_MOVES}"
        raise TooManyMoves(message, moves=len(migrates))
    moves, before, last = list[Migration](), first, -1
    for event in migrates:
        move = move_of(event, before, enclave)
        if event.seq <= last:
            raise InvalidProof(f"Migrate {event.seq}: not after the previous Migrate")
        if move.new_sequencer != before:  # a Migrate to the current sequencer changes nothing
            moves.append(move)
        before, last = move.new_sequencer, event.seq
    if moves and not moves[0].is_forced:  # then its signer is `first`, if that is known
        first = moves[0].event.sequencer
    return History(first, tuple(moves))
