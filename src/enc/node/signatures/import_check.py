"""Checks the signatures of an imported log on every core, with processes that live as long as the
import.

Slices are submitted ahead: while the processes check the next ones, the node replays the one
before.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from enc.core.log.event import check_signed_event
from enc.core.primitives import hashing
from enc.core.primitives.types import Event
from enc.node.signatures.pool import SignaturePool
from enc.node.signatures.worker import RECORD

FEW = 4096
"""Number of events that are checked faster than processes would start."""
PART = 1024
"""Signatures per request: large enough that a process is seldom idle."""


class CheckedSlice:
    """A slice of a log whose signatures are being checked. `check` is check_event with the results;
    call `wait` first.
    """

    def __init__(self, events: Sequence[Event], verdicts: Sequence["Future[bytes]"]) -> None:
        self.events = events
        self._verdicts = verdicts
        self._by_author: set[int] = set()
        self._by_sequencer: set[int] = set()
        """id() of the events with valid signatures."""

    def wait(self) -> None:
        found = b"".join([part.result() for part in self._verdicts])
        self._by_author, self._by_sequencer = self._signed(found[::2]), self._signed(found[1::2])

    def _signed(self, verdicts: bytes) -> set[int]:
        if verdicts == b"\x01" * len(self.events):  # the usual case
            return set(map(id, self.events))
        return {id(event) for event, verdict in zip(self.events, verdicts, strict=True) if verdict == 1}

    def check(self, event: Event, enc_v: int) -> None:
        by_author, by_sequencer = id(event) in self._by_author, id(event) in self._by_sequencer
        check_signed_event(event, enc_v, by_author=by_author, by_sequencer=by_sequencer)


class ImportSignaturePool:
    """A pool with one process per core in `cores`; none for a log of few `events`."""

    def __init__(self, cores: Iterable[int], events: int, part: int = PART) -> None:
        cores, self._part = set(cores), part
        self._free: SimpleQueue[SignaturePool] = SimpleQueue()
        self._all = [SignaturePool(1, cores, part) for _ in cores] if events > FEW else [SignaturePool(0)]
        for verifiers in self._all:
            self._free.put(verifiers)
        self._pool = ThreadPoolExecutor(len(self._all), thread_name_prefix="checkers")

    def submit(self, events: Sequence[Event]) -> CheckedSlice:
        records = list[bytes]()
        for event in events:
            digest = hashing.event_hash(event.timestamp, event.seq, event.sequencer, event.sig)
            records.append(RECORD.pack(event.alg == "ecdsa", event.from_, event.hash, event.sig))  # by its author
            records.append(RECORD.pack(False, event.sequencer, digest, event.seq_sig))  # by its sequencer
        parts = [b"".join(records[i : i + self._part]) for i in range(0, len(records), self._part)]
        return CheckedSlice(events, [self._pool.submit(self._check, part) for part in parts])

    def _check(self, records: bytes) -> bytes:
        verifiers = self._free.get()
        try:
            return verifiers.check_records(records)
        finally:
            self._free.put(verifiers)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        for verifiers in self._all:
            verifiers.end()
        for verifiers in self._all:
            verifiers.close()
