"""The stream over enclaves: offsets, how much is taken at once, and where it ends.

An offset is `{enclave: next seq}`. It never falls, and an enclave that is in it stays. One whose node does not answer
stands still, and the others go on.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from enc.client import Client
from enc.core.errors import EncError
from enc.dataview.notify import NoticeBoard
from enc.dataview.options import Options
from enc.dataview.reading import STEP, Span, Tip, after, client_for, enclave_for, enclaves_of, read_span, tip

TASKS = 4
"""A batch is read by at least so many tasks, if it has so many spans."""
FAR = 1_000_000
"""Seqs that are left of a log, above which it is looked where its next event is."""
MAX_SPANS = 1_000
"""Of one enclave in a batch."""
ASKERS = 8
"""Nodes that are asked for their newest event at the same time."""

Offset = dict[str, int]
logger = logging.getLogger("enc.dataview")


class SpansOfBatch(InputPartition):
    """What one task reads, one enclave after the other."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = list(spans)


class EncStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver, but for `read`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: Mapping[str, Tip] | None = None
        """With AvailableNow: what was there when the query began."""
        self._versions: dict[str, int] = {}
        self._watch: _Watch | None = None

    def __getstate__(self) -> dict[str, object]:
        """Executors get what `read` needs; who watches stays here."""
        return {**self.__dict__, "_watch": None, "_target": None}

    def initialOffset(self) -> Offset:
        """Of a stream that begins. `latest` is fixed here, once: a restart goes on from what is kept."""
        tips = self._tips({})
        return {enclave: self._first(found) for enclave, found in tips.items()}

    def _first(self, found: Tip) -> int:
        starting = self._options.starting_seq
        return found.next if starting == "latest" else starting

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_events)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        tips = self._target if self._target is not None else self._tips(start)
        known = {**{enclave: self._begin() for enclave in tips}, **start}
        left = {enclave: _left(known[enclave], found) for enclave, found in tips.items()}
        taken = shared(left, None if isinstance(limit, ReadAllAvailable) else _most(limit, self._options))
        until = {enclave: seq + taken.get(enclave, 0) for enclave, seq in known.items()}
        for enclave in (each for each, much in left.items() if much > FAR):
            until[enclave] = max(until[enclave], min(self._next(enclave, known[enclave]), tips[enclave].next))
        return until

    def _next(self, enclave: str, start: int) -> int:
        """The end of the first event from `start` on, for a log that says it is very long: nobody goes through what it
        does not have step by step, and whoever names any number holds up nobody for long.
        """
        client = client_for(self._options)
        try:
            return after(enclave_for(self._options, client, enclave), self._options, start)
        except EncError as e:
            logger.warning("%s: its next event is not to be had: %s", enclave, e.message)
            return start

    def _begin(self) -> int:
        """Where an enclave begins that comes to a running stream."""
        return 0 if self._options.starting_seq == "latest" else self._options.starting_seq

    def reportLatestOffset(self) -> Offset | None:
        return None if self._watch is None else {enclave: found.next for enclave, found in self._watch.known.items()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._tips({})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        spans: list[Span] = []
        for enclave, until in end.items():
            begin = start.get(enclave, self._begin())
            size = max(self._options.per_partition, (until - begin) // MAX_SPANS)
            for first in range(begin, until, size):
                spans.append(Span(enclave, first, min(first + size, until), self._versions.get(enclave)))
        return [SpansOfBatch(few) for few in packed(spans, self._options.per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Spark asks once without a partition where there is none."""
        if not isinstance(partition, SpansOfBatch):
            return iter(())
        rows = (batch for span in partition.spans for batch in read_span(self._options, span))
        return self._options.yielding.of(rows)

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()

    def _tips(self, start: Offset) -> Mapping[str, Tip]:
        if self._watch is None:
            self._watch = _Watch(self._options, time.monotonic)
        tips = self._watch.tips(start)
        self._versions |= {enclave: found.enc_v for enclave, found in tips.items() if found.enc_v is not None}
        return tips


def _left(start: int, found: Tip) -> int:
    left = max(found.next - start, 0)
    return left if found.is_proved else min(left, STEP)


def _most(limit: ReadLimit, options: Options) -> int:
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_events


def packed(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """Small spans together, as many as one task may read, but some for every core that may be there."""
    size = max(1, min(most, sum(span.end - span.start for span in spans) // TASKS))
    found, room = list[list[Span]](), 0
    for span in spans:
        if room <= 0:
            found.append([])
            room = size
        found[-1].append(span)
        room -= span.end - span.start
    return found


def shared(left: Mapping[str, int], most: int | None) -> dict[str, int]:
    """How much of what is left each may have: as even as can be, and nothing is left over while anybody wants more."""
    if most is None or sum(left.values()) <= most:
        return dict(left)
    found: dict[str, int] = {}
    hungry = sorted(left, key=lambda enclave: left[enclave])
    for place, enclave in enumerate(hungry):
        share = -(-most // (len(hungry) - place))
        found[enclave] = min(left[enclave], share)
        most -= found[enclave]
    return found


class _Watch:
    """Who knows how far each log goes. With a notice board, nodes are asked only when it is time, or it says so."""

    def __init__(self, options: Options, clock: Callable[[], float]) -> None:
        self._options, self._clock = options, clock
        self._board = None if options.notices is None else NoticeBoard(options.notices)
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="enc-tip")
        self._due = 0.0
        self._enclaves: tuple[str, ...] = ()
        self.known: dict[str, Tip] = {}

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def tips(self, start: Offset) -> Mapping[str, Tip]:
        if self._board is None or self._clock() >= self._due:
            self._ask_all()
            self._due = self._clock() + self._options.poll_s
        else:
            self._hear(start, self._board)
        return dict(self.known)

    def _ask_all(self) -> None:
        client = client_for(self._options)
        try:
            self._enclaves = enclaves_of(self._options, client)
        except EncError as e:
            if not self._enclaves:
                raise
            logger.warning("the registry does not say which enclaves there are: %s", e.message)
        self._ask(client, self._enclaves)

    def _ask(self, client: Client, enclaves: Sequence[str]) -> None:
        found = self._pool.map(lambda enclave: self._tip(client, enclave), enclaves)
        for enclave, each in zip(enclaves, found, strict=True):
            if each is not None:
                self.known[enclave] = each

    def _hear(self, start: Offset, board: NoticeBoard) -> None:
        """Only of those that a notice says more of than is known is anything asked."""
        told = board.seqs()
        news = [
            enclave
            for enclave in self._enclaves
            if enclave in told and told[enclave] >= self.known.get(enclave, Tip(0, None, True)).next
        ]
        if news:
            self._ask(client_for(self._options), news)

    def _tip(self, client: Client, enclave: str) -> Tip | None:
        """None: it does not answer, or not with what can be; what was known stays."""
        try:
            return tip(enclave_for(self._options, client, enclave), self._options)
        except EncError as e:
            logger.warning("%s: its newest event is not to be had: %s", enclave, e.message)
            return None
