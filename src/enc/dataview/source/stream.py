"""The stream over enclaves: its offsets, how much a batch reads, and where it ends.

An offset is `{enclave: next seq}`. It never decreases, and an enclave in it stays. An enclave whose
node does not answer stays at its offset, while the others proceed.
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
from enc.core.errors import EncError, MisuseError
from enc.dataview.source.node_reader import (
    STEP,
    Span,
    Tip,
    client_for,
    enclave_for,
    enclaves_of,
    end_of_next_event,
    read_span,
    tip,
)
from enc.dataview.source.notice_board import NoticeBoard
from enc.dataview.source.options import SourceOptions

TASKS = 4
"""A batch is read by at least this many tasks, if it has that many spans."""
LONG_BACKLOG = 1_000_000
"""Unread seqs above which the position of the log's next event is looked up."""
MAX_SPANS = 1_000
"""Most spans of one enclave in a batch."""
TIP_THREADS = 8
"""Nodes that are asked for their newest event concurrently."""

Offset = dict[str, int]
logger = logging.getLogger("enc.dataview")


class SpanGroupPartition(InputPartition):
    """The spans that one task reads, one after the other."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.spans = list(spans)


class EncStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs on the driver, except `read`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._target: Mapping[str, Tip] | None = None
        """With AvailableNow: the tips when the query began."""
        self._versions: dict[str, int] = {}
        self._watcher: _TipWatcher | None = None

    def __getstate__(self) -> dict[str, object]:
        """Return the state for executors: what `read` needs, without the watcher."""
        return {**self.__dict__, "_watch": None, "_target": None}

    def initialOffset(self) -> Offset:
        """Return the offset of a new stream. `latest` is resolved here, once: a restart uses the
        stored offset.
        """
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
        left = {enclave: _remaining(known[enclave], found) for enclave, found in tips.items()}
        taken = share_fairly(left, None if isinstance(limit, ReadAllAvailable) else _row_limit(limit, self._options))
        until = {enclave: seq + taken.get(enclave, 0) for enclave, seq in known.items()}
        for enclave in (each for each, much in left.items() if much > LONG_BACKLOG):
            until[enclave] = max(until[enclave], min(self._next(enclave, known[enclave]), tips[enclave].next))
        return until

    def _next(self, enclave: str, start: int) -> int:
        """Return the end of the first event from `start` on, for a log that claims to be very long.

        This skips missing events at once, and a node that claims any length does not delay the
        stream.
        """
        client = client_for(self._options)
        try:
            return end_of_next_event(enclave_for(self._options, client, enclave), self._options, start)
        except EncError as e:
            logger.warning("%s: cannot read its next event: %s", enclave, e.message)
            return start

    def _begin(self) -> int:
        """The first seq of an enclave that is added to a running stream."""
        return 0 if self._options.starting_seq == "latest" else self._options.starting_seq

    def reportLatestOffset(self) -> Offset | None:
        return (
            None if self._watcher is None else {enclave: found.next for enclave, found in self._watcher.known.items()}
        )

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._tips({})

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        spans: list[Span] = []
        for enclave, until in end.items():
            begin = start.get(enclave, self._begin())
            size = max(self._options.per_partition, (until - begin) // MAX_SPANS)
            for first in range(begin, until, size):
                spans.append(Span(enclave, first, min(first + size, until), self._versions.get(enclave)))
        return [SpanGroupPartition(few) for few in group_spans(spans, self._options.per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. If there is none, Spark calls this once without one."""
        if not isinstance(partition, SpanGroupPartition):
            return iter(())
        rows = (batch for span in partition.spans for batch in read_span(self._options, span))
        return self._options.output_mode.convert(rows)

    def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.close()

    def _tips(self, start: Offset) -> Mapping[str, Tip]:
        if self._watcher is None:
            self._watcher = _TipWatcher(self._options, time.monotonic)
        tips = self._watcher.tips(start)
        self._versions |= {enclave: found.enc_v for enclave, found in tips.items() if found.enc_v is not None}
        return tips


def _remaining(start: int, found: Tip) -> int:
    left = max(found.next - start, 0)
    return left if found.is_proved else min(left, STEP)


def _row_limit(limit: ReadLimit, options: SourceOptions) -> int:
    return limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_events


def group_spans(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """Group small spans into tasks of at most `most` seqs, with at least TASKS tasks if possible."""
    size = max(1, min(most, sum(span.end - span.start for span in spans) // TASKS))
    found, room = list[list[Span]](), 0
    for span in spans:
        if room <= 0:
            found.append([])
            room = size
        found[-1].append(span)
        room -= span.end - span.start
    return found


def share_fairly(left: Mapping[str, int], most: int | None) -> dict[str, int]:
    """Divide `most` among the enclaves as evenly as possible, leaving nothing over while one needs
    more.
    """
    if most is None or sum(left.values()) <= most:
        return dict(left)
    found: dict[str, int] = {}
    hungry = sorted(left, key=lambda enclave: left[enclave])
    for place, enclave in enumerate(hungry):
        share = -(-most // (len(hungry) - place))
        found[enclave] = min(left[enclave], share)
        most -= found[enclave]
    return found


class _TipWatcher:
    """Tracks the tips of logs. With a notice board, nodes are asked only periodically or when it
    has news.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options, self._clock = options, clock
        self._board = None if options.notices is None else NoticeBoard(options.notices)
        self._pool = ThreadPoolExecutor(TIP_THREADS, thread_name_prefix="enc-tip")
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
            self._ask_noticed(start, self._board)
        return dict(self.known)

    def _ask_all(self) -> None:
        client = client_for(self._options)
        try:
            self._enclaves = enclaves_of(self._options, client)
        except MisuseError:  # more enclaves than the source may read
            raise
        except EncError as e:
            if not self._enclaves:
                raise
            logger.warning("cannot list the enclaves from the registry: %s", e.message)
        self._ask(client, self._enclaves)

    def _ask(self, client: Client, enclaves: Sequence[str]) -> None:
        found = self._pool.map(lambda enclave: self._tip(client, enclave), enclaves)
        for enclave, each in zip(enclaves, found, strict=True):
            if each is not None:
                self.known[enclave] = each

    def _ask_noticed(self, start: Offset, board: NoticeBoard) -> None:
        """Ask only for the enclaves whose notice is newer than the known tip."""
        notices = board.seqs()
        news = [
            enclave
            for enclave in self._enclaves
            if enclave in notices and notices[enclave] >= self.known.get(enclave, Tip(0, None, True)).next
        ]
        if news:
            self._ask(client_for(self._options), news)

    def _tip(self, client: Client, enclave: str) -> Tip | None:
        """Return the tip; None if the node does not answer or its answer is invalid: the known tip
        stays.
        """
        try:
            return tip(enclave_for(self._options, client, enclave), self._options)
        except EncError as e:
            logger.warning("%s: cannot read its newest event: %s", enclave, e.message)
            return None
