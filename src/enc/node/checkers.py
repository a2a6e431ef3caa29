"""Signatures of a log that is taken in, checked on every core by processes that live as long as that takes.

Slices are asked for ahead: while the processes check the next ones, the node replays the one before.
"""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue

from enc.core import hashing
from enc.core.event import check_signed_event
from enc.core.types import Event
from enc.node.verifier import RECORD
from enc.node.verifiers import SignaturePool

FEW = 4096
"""Events that are checked before processes would have started."""
PART = 1024
"""Signatures that a process is asked for at once: it is seldom idle for want of the next."""


class CheckedSlice:
    """A slice of a log whose signatures are being checked. `check` is check_event, and waits for the verdict."""

    def __init__(self, events: Sequence[Event], verdicts: Sequence["Future[bytes]"]) -> None:
        self.events = events
        self._verdicts = verdicts
        self._by_author: set[int] = set()
        self._by_sequencer: set[int] = set()
        """id() of the events that are signed."""

    def wait(self) -> None:
        found = b"".join([part.result() for part in self._verdicts])
        self._by_author, self._by_sequencer = self._signed(found[::2]), self._signed(found[1::2])

    def _signed(self, verdicts: bytes) -> set[int]:
        if verdicts == b"\x01" * len(self.events):  # as a rule
            return set(map(id, self.events))
        return {id(event) for event, verdict in zip(self.events, verdicts, strict=True) if verdict == 1}

    def check(self, event: Event, enc_v: int) -> None:
        by_author, by_sequencer = id(event) in self._by_author, id(event) in self._by_sequencer
        check_signed_event(event, enc_v, by_author=by_author, by_sequencer=by_sequencer)


class ImportSignaturePool:
    """One process for each core that is named; of a log of few `events`, which is checked sooner, none."""

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
