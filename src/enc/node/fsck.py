"""fsck: derive everything that a node's store holds from its logs again, and name the first difference.

Of the store only the log is believed, and of the log only what proves itself. Each enclave's events are replayed from
the first (enc.core.replay: hashes, signatures, ids, order, rights, causes of erasure), and what the replay makes is
compared with what the store holds, as it is made:

 - each event by seq, by id, by commit hash and as a target; its status; that a content is gone which an Update or a
   Delete took away
 - what a Query finds: by type, author and tag, and by the type that read rights are judged by
 - each node of the sparse tree and of the log, each closed bundle, each head with both its signatures
 - the state that the node would go on from, and that the node's clock has shown the times it gave
 - of a purged enclave, that nothing is left but its tombstone
 - over the whole store, what each identity has used

A store in SQLite is also held to its rows, column by column (enc.node.store.sqlite_check).

Nothing is written. Memory does not grow with the log: tree nodes and targets are read back from the store once they
were compared. What does grow is some 400 bytes for each event that was updated or deleted, the commit hashes of an hour
of the log, and a count for each identity. The node must stand still meanwhile: what it writes during the check would be
taken for a difference.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec
from msgspec import Struct

from enc.core.content import revised_id
from enc.core.enclave import ClosedBundle, EnclaveState, Transition, seal
from enc.core.errors import EncError, InvalidProof, ReplayFailed, Unavailable
from enc.core.event import target_of, wire_event
from enc.core.filter import MAX_LIMIT, Filter, Range
from enc.core.hashing import content_hash, log_leaf
from enc.core.memory import EnclaveMemory
from enc.core.merkle_log import Edge
from enc.core.policy import Effects, ReadScope
from enc.core.replay import Replay
from enc.core.state_key import DELETED
from enc.core.tree_head import check_bound_head
from enc.core.types import Event, Target
from enc.node.store.base import Item, Readable, Store
from enc.node.store.sqlite import SqliteStore
from enc.node.store.sqlite_check import WRONG, Finding, Line, Rows, check_integrity, check_whole, identities, rows_of

PAGE = 250
"""Events that are read at once, with their contents."""
BLOCK = 4000
"""Events that are searched for at once: more than a store would rather walk along than look up by an index."""
BLOCK_SEARCHES = 16_000
"""Searches that are gathered at most."""
CACHED = 65_536
"""Tree nodes that are kept in memory after they were read."""
EVERYTHING = Readable(b"", ReadScope({}, "all"), lambda event, subject: True)

Progress = Callable[[int], None]
"""Told how many more events were checked."""


class Difference(EncError):
    """Something stored is not what the log gives. `enclave` is empty where it belongs to no enclave."""

    def __init__(self, enclave: bytes, seq: int | None, what: str) -> None:
        where = f"enclave {enclave.hex()}" if enclave else "store"
        super().__init__(f"{where}: {what}" if seq is None else f"{where}: seq {seq}: {what}")
        self.enclave, self.seq, self.what = enclave, seq, what


class Report(Struct, frozen=True):
    """What a check of many enclaves found."""

    enclaves: int
    events: int
    """Those that were checked; of an enclave with a difference, about those before it."""
    differences: list[Difference]
    """The first of each enclave, and those of the store as a whole."""


class _Used(Struct):
    """What an identity has used, as far as the logs still tell: an erased content has lost its size."""

    enclaves: int = 0
    events: int = 0
    bytes: int = 0
    is_erased: bool = False


class _Tally(Struct):
    """What is counted over all enclaves."""

    used: dict[bytes, _Used] = {}
    purged: int = 0
    is_complete: bool = True
    """Whether every log was replayed to its end."""


def check_enclave(store: Store, enclave: bytes, seq_pub: bytes, progress: Progress) -> None:
    """Raise the first Difference between an enclave's log and what the store of the node `seq_pub` holds of it.

    Whether SQLite's file is sound, and what belongs to no single enclave, only check_store asks.
    """
    _check(store, enclave, seq_pub, progress, _Tally())


def check_store(store: Store, seq_pub: bytes, enclaves: Iterable[bytes] | None, progress: Progress) -> Report:
    """Check these enclaves; or, given None, all of them and what is counted over all.

    A difference in one enclave does not end the check of the others. Unavailable: the store cannot be asked at all.
    """
    checked, events, tally = 0, 0, _Tally()

    def count(more: int) -> None:
        nonlocal events
        events += more
        progress(more)

    found = [Difference(b"", None, what) for what in _damage(store)]
    is_sound = not found
    for enclave in _all(store, is_sound) if enclaves is None else enclaves:
        checked += 1
        try:
            _check(store, enclave, seq_pub, count, tally)
        except Difference as e:
            found.append(e)
    if enclaves is None and is_sound:
        tally.is_complete = not found
        found += [Difference(b"", None, what) for what in _check_counts(store, checked, tally)]
    return Report(checked, events, found)


def _check(store: Store, enclave: bytes, seq_pub: bytes, progress: Progress, tally: _Tally) -> None:
    check = _Check(store, enclave, seq_pub, progress, tally)
    try:
        check.run()
    except Difference:
        raise
    except ReplayFailed as e:
        raise Difference(enclave, e.seq, f"{e.code}: {e.cause.message}") from e
    except Exception as e:  # whatever a damaged row makes its reader raise
        raise Difference(enclave, check.at, f"cannot be read: {type(e).__name__}: {e}") from e


# Over all enclaves


def _damage(store: Store) -> Iterator[str]:
    if isinstance(store, SqliteStore):
        yield from check_integrity(store)


def _all(store: Store, is_sound: bool) -> list[bytes]:
    """All enclaves; of a damaged file, none where not even they can be listed."""
    try:
        return list(store.enclaves())
    except Unavailable:
        if is_sound:
            raise
        return []


def _check_counts(store: Store, enclaves: int, tally: _Tally) -> Iterator[str]:
    try:
        if store.count() != enclaves - tally.purged:
            yield f"the number of enclaves: {WRONG}"
        if isinstance(store, SqliteStore):
            yield from check_whole(store)
        yield from _check_usage(store, tally)
    except Exception as e:  # as above
        yield f"cannot be read: {type(e).__name__}: {e}"


def _check_usage(store: Store, tally: _Tally) -> Iterator[str]:
    """Nobody has used less than the logs tell, nor more, unless something is gone that could have told."""
    everybody = {*tally.used, *(identities(store) if isinstance(store, SqliteStore) else ())}
    for identity in sorted(everybody):
        used, stored = tally.used.get(identity, _Used()), store.usage(identity)
        # A purge gives back the enclave, not its events; an erased content took its size along.
        tells_all = {
            "enclaves": tally.is_complete,
            "events": tally.is_complete and not tally.purged,
            "bytes": tally.is_complete and not tally.purged and not used.is_erased,
        }
        for name, tells in tells_all.items():
            more = getattr(stored, name) - getattr(used, name)
            if more < 0 or (tells and more):
                yield f"usage of {identity.hex()}: {name}: {WRONG}"


# One enclave


class _Behind(EnclaveMemory):
    """What lies behind the replayed state: the store itself, each part compared when the replay makes it."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes) -> None:
        super().__init__()
        self._store, self._enclave, self._seq_pub = store, enclave, seq_pub
        self._cache: dict[bytes, bytes] = {}
        self._sequencer = b""
        self._log = Edge()
        self.rows: Rows | None = None
        self.adopted = -1
        """The first seq of the latest bundle whose head this node signed though it did not close it."""

    def read_node(self, node_hash: bytes) -> bytes:
        if node_hash not in self._cache:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            self._cache[node_hash] = self._store.read_node(self._enclave, node_hash)
        return self._cache[node_hash]

    def read_hash(self, level: int, index: int) -> bytes:
        return self._store.read_hash(self._enclave, level, index)

    def target(self, event_id: bytes) -> Target | None:
        return self._store.target(self._enclave, event_id)

    def put(self, event: Event | None, transition: Transition) -> None:
        """Compare what a step adds; a sealing step has no event."""
        seq = transition.state.seq
        for node_hash, record in transition.tree_nodes.items():
            self._same(seq, f"tree node {node_hash.hex()}", _stored(self.read_node, node_hash), record)
        for (level, i), log_hash in transition.log_nodes.items():
            self._same(seq, f"log node {level}, {i}", _stored(self.read_hash, level, i), log_hash)
        for bundle in transition.closed:
            self._check_bundle(bundle)
            self._check_head(bundle, self._signers(bundle, event))
        if self.rows is not None:
            self.rows.take_nodes(transition.tree_nodes)
        if event is not None:
            self._sequencer = event.sequencer

    def _same(self, seq: int, what: str, stored: Any, derived: Any) -> None:
        if stored != derived:
            raise Difference(self._enclave, seq, f"{what}: {'missing' if stored is None else WRONG}")

    def _check_bundle(self, bundle: ClosedBundle) -> None:
        first, last = bundle.first_seq, bundle.first_seq + bundle.count - 1
        self._same(first, f"bundle {bundle.index}", self._store.bundle(self._enclave, bundle.index), bundle)
        for seq in (first, last):
            self._same(seq, "the bundle that holds it", self._store.bundle_of(self._enclave, seq), bundle)

    def _signers(self, bundle: ClosedBundle, event: Event | None) -> list[bytes]:
        """Who closed the bundle: the sequencer that filled it, or the one whose event came too late for it."""
        if event is None:
            return [self._sequencer]
        holds_event = event.seq < bundle.first_seq + bundle.count
        return [event.sequencer] if holds_event else [self._sequencer, event.sequencer]

    def _check_head(self, bundle: ClosedBundle, signers: list[bytes]) -> None:
        """A head is signed by who closed the bundle, or by this node if it took the log over later."""
        self._log = self._log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
        size, root, seq = self._log.size, self._log.root(), bundle.first_seq
        head = self._store.head(self._enclave, size)
        if head is None:
            raise Difference(self._enclave, seq, f"head of size {size}: missing")
        self._same(seq, f"head of size {size}", (head.ts, head.r), (size, root))
        for key in dict.fromkeys([*signers, self._seq_pub]):
            try:
                check_bound_head(head, key, self._enclave)
            except InvalidProof as e:
                failure = e
            else:
                self.adopted = self.adopted if key in signers else seq
                return
        raise Difference(self._enclave, seq, f"head of size {size}: {failure.message}")


class _Check:
    """The check of one enclave."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes, progress: Progress, tally: _Tally) -> None:
        self._store, self._enclave, self._seq_pub = store, enclave, seq_pub
        self._progress, self._tally = progress, tally
        self._behind = _Behind(store, enclave, seq_pub)
        self._replay = Replay(enclave, self._behind)
        self._searches = _Searches()
        self._stored: dict[bytes, bytes] = {}
        self._derived: dict[bytes, bytes] = {}
        """Statuses of events that are not active, by id: as they are stored, and as the log gives them."""
        self.at: int | None = None
        """The seq that is looked at."""

    def run(self) -> None:
        state = self._store.load(self._enclave)
        if state is None:
            raise self._difference(None, "no such enclave is stored")
        rows: AbstractContextManager[Rows | None] = nullcontext()
        if isinstance(self._store, SqliteStore):
            rows = rows_of(self._store, self._enclave)
        with rows as self._behind.rows:
            if self._store.is_purged(self._enclave):
                self._check_tombstone(state, self._behind.rows)
            else:
                self._check_log(self._behind.rows)
                self._finish(state, self._behind.rows)

    def _difference(self, seq: int | None, what: str) -> Difference:
        return Difference(self._enclave, seq, what)

    def _expect_none(self, findings: Iterator[Finding]) -> None:
        for seq, what in findings:
            raise self._difference(seq, what)

    def _check_log(self, rows: Rows | None) -> None:
        while page := self._read():
            lines = [self._check_event(event) for event in page]
            if rows is not None:
                self._expect_none(rows.check_page(lines))
            if self._store.ids(self._enclave, page[0].seq, len(page)) != [event.id for event in page]:
                raise self._difference(page[0].seq, f"ids from there on: {WRONG}")
            self._check_items(lines)
            self._searches.add(lines)
            if self._searches.is_full:
                self._search()
            self._progress(len(lines))
        self._search()

    def _read(self) -> list[Event]:
        self.at = self._replay.events
        try:
            return self._store.events(self._enclave, self.at, PAGE)
        except Exception:  # so that the event that cannot be read is named, and not the page
            return self._store.events(self._enclave, self.at, 1)

    # One event

    def _check_event(self, event: Event) -> Line:
        seq = self.at = self._replay.events
        if event.seq != seq:
            raise self._difference(seq, "the event is missing" if event.seq > seq else "another event stands there")
        if event.content is not None and content_hash(event.content) != event.content_hash:
            raise self._difference(seq, "content: not the one that was signed")
        transition, effects = self._replay.take(event)
        status = self._check_lookups(event)
        self._check_erased(event, effects)
        if status is not None:
            self._stored[event.id] = status
        for old in effects.supersedes:
            self._derived[old] = event.id
        if event.type == "Delete":
            self._derived[revised_id(event)] = DELETED
        self._count(event)
        found = self._store.event(self._enclave, revised_id(event)) if event.type in ("Update", "Delete") else None
        target = found.event if found else None
        subject = transition.state.policy.subject(event, target_of(target) if target else None).type
        return Line(event, subject, status, target)

    def _check_lookups(self, event: Event) -> bytes | None:
        """The event is found by its id, by its commit's hash and as a target. Gives its stored status."""
        found = self._store.event(self._enclave, event.id)
        if found is None or found.event != event:
            raise self._difference(event.seq, "not found by its id")
        if self._store.committed(self._enclave, event.hash, event.exp) != event:
            raise self._difference(event.seq, "not found by its commit's hash")
        if self._store.target(self._enclave, event.id) != target_of(event):
            raise self._difference(event.seq, "not found as a target")
        return DELETED if found.status == "deleted" else found.updated_by

    def _check_erased(self, event: Event, effects: Effects) -> None:
        for gone in effects.erases:
            found = self._store.event(self._enclave, gone)
            if found is not None and found.event.content is not None:
                raise self._difference(found.event.seq, f"content: still there though event {event.seq} took it away")

    def _count(self, event: Event) -> None:
        used = self._tally.used.setdefault(event.from_, _Used())
        used.enclaves += event.type == "Manifest"
        used.events += 1
        used.bytes += len((event.content or "").encode())
        used.is_erased |= event.content is None

    # Searches

    def _check_items(self, lines: list[Line]) -> None:
        """A search shows each event of the page that is not deleted, as it is and with its status."""
        live = [line for line in lines if line.status != DELETED]
        here = Range(lines[0].event.seq, lines[-1].event.seq)
        items = self._check_found(_By(), here, [line.event.seq for line in live])
        for item, line in zip(items, live, strict=True):
            wire = msgspec.json.decode(msgspec.json.encode(wire_event(line.event)))
            found = msgspec.json.decode(item.json)
            if (item.updated_by, found) != (line.status, _item(wire, line.status)):
                raise self._difference(item.seq, f"a search by seq: {WRONG}")

    def _search(self) -> None:
        """Each search that an event of the block answers to finds it, and no other of the block."""
        for search, expected in self._searches.seqs.items():
            self._check_found(search, self._searches.here, expected)
        self._searches = _Searches()

    def _check_found(self, search: "_By", here: Range, expected: list[int]) -> list[Item]:
        try:
            items = list(self._store.find(self._enclave, search.filter(here), search.readable()))
        except Exception as e:
            raise self._difference(None, f"a search by {search.by} fails: {type(e).__name__}: {e}") from e
        found = [item.seq for item in items]
        if found != expected:
            seq = min(set(found) ^ set(expected), default=None)
            what = "finds it though it must not" if seq in found else "does not find it"
            raise self._difference(seq, f"a search by {search.by} {'mixes up the order' if seq is None else what}")
        return items

    # The end

    def _finish(self, stored: EnclaveState, rows: Rows | None) -> None:
        if self._replay.events <= stored.seq:
            raise self._difference(self._replay.events, "the event is missing")
        state = self._replay.finish()
        # Whether the clock closed the last bundle no event tells, but the floor that was kept does (section 8.4).
        step = seal(state, stored.floor, self._behind)
        if step is not None:
            self._behind.put(None, step)
            state = step.state
        for name in EnclaveState.__struct_fields__:
            if getattr(stored, name) != getattr(state, name):
                raise self._difference(state.seq, f"state: {name}: {WRONG}")
        self._check_statuses()
        self._check_nothing_beyond(state)
        self._check_node(state)
        if rows is not None:
            self._expect_none(rows.finish(state))

    def _check_statuses(self) -> None:
        wrong = [
            found.event.seq
            for event_id in self._stored.keys() | self._derived.keys()
            if self._stored.get(event_id) != self._derived.get(event_id)
            and (found := self._store.event(self._enclave, event_id)) is not None
        ]
        if wrong:
            raise self._difference(min(wrong), f"status: {WRONG}")

    def _check_nothing_beyond(self, state: EnclaveState) -> None:
        """Bundles and heads end where the log does, and no event of the open bundle counts as closed."""
        size, store, enclave = state.log.size, self._store, self._enclave
        if store.bundle(enclave, size) is not None:
            raise self._difference(state.seq, f"bundle {size}: must not be there")
        if store.head(enclave, size + 1) is not None:
            raise self._difference(state.seq, f"head of size {size + 1}: must not be there")
        if store.head(enclave) != (store.head(enclave, size) if size else None):
            raise self._difference(state.seq, f"latest head: not that of size {size}")
        for seq in (state.bundle.first_seq, state.seq) if state.bundle else ():
            if store.bundle_of(enclave, seq) is not None:
                raise self._difference(seq, "the bundle that holds it: still open, but stored as closed")

    def _check_node(self, state: EnclaveState) -> None:
        """The log is, was or will be this node's, and this node's clock has shown the times that it gave."""
        takes_over = [first for key, first in self._replay.sequencers if key == self._seq_pub]
        if state.sequencer == self._seq_pub:
            takes_over.append(state.seq + 1)
        if not takes_over:
            raise self._difference(None, "this node's key has no part in the log")
        if max(takes_over) < self._behind.adopted:
            raise self._difference(self._behind.adopted, "head: signed by this node, which did not take the log over")
        if self._replay.sequencers == [(self._seq_pub, 0)] and state.floor > self._store.clock():
            raise self._difference(state.seq, "the node's clock: behind the times that it gave")

    def _check_tombstone(self, state: EnclaveState, rows: Rows | None) -> None:
        """A purged enclave is known to have been terminated, and nothing else."""
        store, enclave = self._store, self._enclave
        self._tally.purged += 1
        if state.lifecycle != "terminated":
            raise self._difference(None, "purged, but not terminated")
        if store.events(enclave, 0, 1) or any(store.find(enclave, Filter(), EVERYTHING)):
            raise self._difference(None, "purged, but events are found")
        if store.bundle(enclave, 0) or store.head(enclave):
            raise self._difference(None, "purged, but bundles are found")
        if rows is not None:
            self._expect_none(rows.check_tombstone())


class _By(Struct, frozen=True):
    """A search by one value of one field."""

    type: str | None = None
    author: bytes | None = None
    tag: tuple[str, str | None] | None = None
    subject: str | None = None
    """The type that read rights are judged by."""

    @property
    def by(self) -> str:
        names = {"type": self.type, "author": self.author, "tag": self.tag, "read rights": self.subject}
        return next((name for name, value in names.items() if value is not None), "seq")

    def filter(self, here: Range) -> Filter:
        return Filter(
            seqs=here,
            types=None if self.type is None else frozenset([self.type]),
            authors=None if self.author is None else frozenset([self.author]),
            tags=()
            if self.tag is None
            else ((self.tag[0], None if self.tag[1] is None else frozenset([self.tag[1]])),),
            limit=MAX_LIMIT,
        )

    def readable(self) -> Readable:
        if self.subject is None:
            return EVERYTHING
        return Readable(b"", ReadScope({self.subject: "all"}, "none"), lambda event, subject: False)


class _Searches:
    """What each search must find among the events of a block; of an event that is deleted, nothing."""

    def __init__(self) -> None:
        self.seqs: defaultdict[_By, list[int]] = defaultdict(list)
        self.here = Range(0, -1)

    @property
    def is_full(self) -> bool:
        return self.here.high - self.here.low >= BLOCK or len(self.seqs) >= BLOCK_SEARCHES

    def add(self, lines: list[Line]) -> None:
        first, last = lines[0].event.seq, lines[-1].event.seq
        self.here = Range(self.here.low if self.seqs else first, last)
        for line in lines:
            event, seqs = line.event, [] if line.status == DELETED else [line.event.seq]
            for by in (_By(type=event.type), _By(author=event.from_), _By(subject=line.subject)):
                self.seqs[by] += seqs
            for pair in {(tag[0], value) for tag in event.tags for value in (None, *tag[1:2])}:
                self.seqs[_By(tag=pair)] += seqs


def _stored(read: Callable[..., bytes], *args: Any) -> bytes | None:
    """What `read` gives, or None where there is nothing."""
    try:
        return read(*args)
    except KeyError:
        return None


def _item(event: Any, updated_by: bytes | None) -> dict[str, Any]:
    """What a search must give."""
    if updated_by is None:
        return {"event": event, "status": "active"}
    return {"event": event, "status": "updated", "updated_by": updated_by.hex()}
