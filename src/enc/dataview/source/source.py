"""`spark.read.format("enc")` and `spark.readStream.format("enc")`: events of enclaves as raw rows.

    spark.dataSource.register(EncSource)
    spark.read.format("enc").option("node", url).option("enclave", hex).load()

Nothing is verified here: see `verify`. It works in any SparkSession. With the option `pushdown`, the
node evaluates a batch's conditions on `type`, `author`, `timestamp` and `seq`, and a condition on
`enclave` selects which enclaves are read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from enc.core.log.filter import MAX_AUTHORS, MAX_TYPES
from enc.core.primitives.encoding import MAX_INT
from enc.dataview.source.node_reader import Span, client_for, enclave_for, enclaves_of, read_span, tip
from enc.dataview.source.options import SourceOptions, parse_options
from enc.dataview.source.stream import EncStreamReader


class EncSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "enc"

    def schema(self) -> StructType:
        return parse_options(self.options).output_mode.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        return PushdownReader(options) if options.pushdown else EncReader(options)

    def streamReader(self, schema: StructType) -> EncStreamReader:
        return EncStreamReader(parse_options(self.options))


class SpanPartition(InputPartition):
    """A task's span of seqs, and the filters pushed down to the node."""

    def __init__(self, span: Span, pushed: Mapping[str, Any] | None = None) -> None:
        self.span, self.pushed = span, dict(pushed or {})


class EncReader(DataSourceReader):
    """Reads everything that exists when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._pushed: dict[str, Any] = {}
        self._only: frozenset[str] | None = None

    def partitions(self) -> Sequence[InputPartition]:
        client = client_for(self._options)
        found: list[InputPartition] = []
        for enclave in enclaves_of(self._options, client):
            if self._only is not None and enclave not in self._only:
                continue
            end = tip(enclave_for(self._options, client, enclave), self._options)
            start = end.next if self._options.starting_seq == "latest" else self._options.starting_seq
            bounds = self._pushed.get("seq", {})
            first, last = max(start, bounds.get("start_at", 0)), min(end.next, bounds.get("end_before", MAX_INT))
            spans = split_span(Span(enclave, first, last, end.enc_v), self._options.per_partition)
            found += [SpanPartition(span, self._pushed) for span in spans]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. If there is none, Spark calls this once without one."""
        if not isinstance(partition, SpanPartition):
            return iter(())
        return self._options.output_mode.convert(read_span(self._options, partition.span, partition.pushed))


class PushdownReader(EncReader):
    """Pushes a query's filters down to the node.

    Spark refuses such a reader unless `spark.sql.python.filterPushdown.enabled` is true, and then
    applies the filters of a DataFrame's first query to all queries of this DataFrame. So a reader
    does this only on request.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Push filters down to the node. Spark evaluates all of them again: the node's filtering is
        not trusted.
        """
        for each in filters:
            if isinstance(each, EqualTo | In) and each.attribute == ("enclave",):
                wanted = frozenset([each.value] if isinstance(each, EqualTo) else each.value)
                self._only = wanted if self._only is None else self._only & wanted
            else:
                self._pushed = push_filter(self._pushed, each, self._options)
        return filters


def split_span(span: Span, size: int) -> Iterator[Span]:
    """Split the span into parts of at most `size` seqs."""
    for start in range(span.start, span.end, size):
        yield Span(span.enclave, start, min(start + size, span.end), span.enc_v)


# Filters

_RANGES: Mapping[type[Filter], tuple[str, int]] = {
    GreaterThan: ("start_at", 1),
    GreaterThanOrEqual: ("start_at", 0),
    LessThan: ("end_before", 0),
    LessThanOrEqual: ("end_before", 1),
}
"""Which bound of a range each filter sets, and its offset from the value."""


def push_filter(pushed: dict[str, Any], filter_: Filter, options: SourceOptions) -> dict[str, Any]:
    """Add a condition to the pushed-down filters. A condition that a node cannot evaluate changes
    nothing.
    """
    attribute = getattr(filter_, "attribute", ())
    if attribute in (("seq",), ("timestamp",)):
        return _in_range(pushed, attribute[0], filter_)
    if attribute == ("type",) and not options.types:
        return _listed(pushed, "type", filter_, MAX_TYPES)
    if attribute == ("author",) and not options.authors:
        return _listed(pushed, "from", filter_, MAX_AUTHORS)
    return pushed


def _listed(pushed: dict[str, Any], name: str, filter_: Filter, most: int) -> dict[str, Any]:
    if not isinstance(filter_, EqualTo | In):
        return pushed
    values = [filter_.value] if isinstance(filter_, EqualTo) else list(filter_.value)
    if name in pushed:
        values = [value for value in pushed[name] if value in values]
    fits = all(_is_askable(name, value) for value in values)
    return {**pushed, name: values} if fits and 0 < len(values) <= most else pushed


def _is_askable(name: str, value: object) -> bool:
    """Return True if the value may be sent: a node rejects an author that is not a key."""
    if not isinstance(value, str):
        return False
    return name != "from" or (len(value) == 64 and not set(value) - set("0123456789abcdef"))


def _in_range(pushed: dict[str, Any], name: str, filter_: Filter) -> dict[str, Any]:
    value = getattr(filter_, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        return pushed
    bounds = dict(pushed.get(name, {}))
    if isinstance(filter_, EqualTo):
        new = {"start_at": value, "end_before": value + 1}
    elif type(filter_) in _RANGES:
        bound, off = _RANGES[type(filter_)]
        new = {bound: value + off}
    else:
        return pushed
    for bound, number in new.items():
        tighter = max if bound == "start_at" else min
        bounds[bound] = min(max(tighter(bounds.get(bound, number), number), 0), MAX_INT)
    return {**pushed, name: bounds}
