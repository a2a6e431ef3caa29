"""Checks one enclave: its log from the first event to the last, or its tombstone."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

from enc.core.log.filter import Filter
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.node.fsck.difference import Difference
from enc.node.fsck.ending import FinalStateCheck
from enc.node.fsck.events import EventCheck
from enc.node.fsck.searches import EVERYTHING, SearchCheck
from enc.node.fsck.trees import TreeCheck
from enc.node.fsck.usage import UsageTally
from enc.node.store.sqlite.check import RowCheck, StoreFinding, open_row_check
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store

FsckProgress = Callable[[int], None]
"""Called with the number of further events that were checked."""


class EnclaveCheck:
    """The check of one enclave. `run` it once; it raises the first Difference."""

    def __init__(self, store: Store, enclave: bytes, seq_pub: bytes, progress: FsckProgress, tally: UsageTally) -> None:
        self._store, self._enclave = store, enclave
        self._progress, self._tally = progress, tally
        self._trees = TreeCheck(store, enclave, seq_pub)
        replay = Replay(enclave, self._trees)
        self._events = EventCheck(store, enclave, replay, tally)
        self._searches = SearchCheck(store, enclave)
        self._ending = FinalStateCheck(store, enclave, seq_pub, replay, self._trees)

    @property
    def at(self) -> int | None:
        """The seq that is being checked."""
        return self._events.at

    def run(self) -> None:
        is_ordered = self._is_purged_by_order()
        state = None if is_ordered else self._load_if_tree_is_whole()
        rows: AbstractContextManager[RowCheck | None] = nullcontext()
        if isinstance(self._store, SqliteStore):
            rows = open_row_check(self._store, self._enclave)
        with rows as self._trees.rows:
            if self._store.is_purged(self._enclave):
                self._check_tombstone(None if is_ordered else state or self._load(), self._trees.rows)
            else:
                self._check_log(self._trees.rows)
                self._check_end(state or self._load(), self._trees.rows)

    def _is_purged_by_order(self) -> bool:
        return self._store.restrictions.find("purge", self._enclave.hex()) is not None

    def _load_if_tree_is_whole(self) -> EnclaveState | None:
        """Return the stored state, or None if a node of its tree is missing. Checking the log then
        finds the event that needs the node.
        """
        try:
            return self._load()
        except KeyError:
            return None

    def _load(self) -> EnclaveState:
        state = self._store.load(self._enclave)
        if state is None:
            raise self._difference("the store has no such enclave")
        return state

    def _difference(self, what: str) -> Difference:
        return Difference(self._enclave, None, what)

    def _expect_none(self, findings: Iterator[StoreFinding]) -> None:
        for seq, what in findings:
            raise Difference(self._enclave, seq, what)

    def _check_log(self, rows: RowCheck | None) -> None:
        while page := self._events.read():
            lines = [self._events.check(event) for event in page]
            if rows is not None:
                self._expect_none(rows.check_page(lines))
            self._events.check_ids(page)
            self._searches.check_items(lines)
            self._searches.add(lines)
            self._progress(len(lines))
        if self.at == 0:
            raise Difference(self._enclave, 0, "the event is missing")
        self._searches.finish()

    def _check_end(self, stored: EnclaveState, rows: RowCheck | None) -> None:
        state = self._ending.check_state(stored)
        self._events.check_statuses()
        self._events.check_endpoints()
        self._ending.check_nothing_beyond(state)
        self._ending.check_node(state)
        self._trees.check_records(state.seq)
        if rows is not None:
            self._expect_none(rows.finish(state, len(self._trees.records)))

    def _check_tombstone(self, state: EnclaveState | None, rows: RowCheck | None) -> None:
        """Check a purged enclave: it is marked as terminated, or without a state if its operator purged
        it, and nothing else is left.
        """
        store, enclave = self._store, self._enclave
        self._tally.purged += 1
        if state is None and store.manifest(enclave) is not None:
            raise self._difference("purged by order, but a state is left")
        if state is not None and state.lifecycle != "terminated":
            raise self._difference("purged, but not terminated")
        if store.events(enclave, 0, 1) or any(store.find(enclave, Filter(), EVERYTHING)):
            raise self._difference("purged, but events are found")
        if store.bundle(enclave, 0) or store.head(enclave):
            raise self._difference("purged, but bundles are found")
        if store.endpoints(enclave):
            raise self._difference("purged, but endpoints are found")
        if rows is not None:
            self._expect_none(rows.check_tombstone())
