"""format("enc"): a node's events as raw rows, in a batch and in a stream, each exactly once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, LessThanOrEqual, StringStartsWith
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from enc.client import Enclave, Notice, Unreachable
from enc.client.clients.unverified import UnverifiedPage
from enc.core.errors import MisuseError, Unavailable
from enc.core.log.event import check_event, parse_event
from enc.core.log.filter import MAX_LIMIT, parse_filter
from enc.dataview.rows.schema import VERIFIED
from enc.dataview.rows.verify import verify_batch
from enc.dataview.source import node_reader, stream
from enc.dataview.source.node_reader import Span, Tip, read_span, tip
from enc.dataview.source.notice_board import NoticeBoard
from enc.dataview.source.options import SourceOptions, parse_options
from enc.dataview.source.source import EncSource, PushdownReader, SpanPartition, push_filter, split_span
from enc.dataview.source.stream import EncStreamReader, share_fairly
from enc.node.read import request_handlers
from tests.core.world import person
from tests.dataview.served import create_enclave, key_file, serving, write
from tests.node.served import Served

HEX = "ab" * 32


@pytest.fixture(scope="module")
def node() -> Iterator[Served]:
    with serving() as node:
        yield node


@pytest.fixture(scope="module")
def enclave(node: Served) -> Enclave:
    """Return an enclave with thirty posts and five notes, after the Manifest."""
    enclave = create_enclave(node, "source", 30)
    write(enclave, 5, "note")
    return enclave


@pytest.fixture
def read(spark: SparkSession, node: Served) -> Any:
    spark.dataSource.register(EncSource)

    def load(enclaves: str, **options: object) -> DataFrame:
        reader = spark.read.format("enc").option("node", node.url).option("enclaves", enclaves)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return load


def options(node: Served, *enclaves: Enclave, **more: object) -> SourceOptions:
    given = {"node": node.url, "enclaves": ",".join(each.hex for each in enclaves), **more}
    return parse_options({name: str(value) for name, value in given.items()})


# In a batch


def test_all_events_are_rows_and_prove_themselves(read: Any, enclave: Enclave, node: Served) -> None:
    rows = read(enclave.hex).orderBy("seq").collect()
    assert [row.seq for row in rows] == list(range(36))
    assert {row.type for row in rows} == {"Manifest", "post", "note"}
    assert {(row.enclave, row.origin, row.enc_v) for row in rows} == {(enclave.hex, f"node:{node.url}", 2)}
    for row in rows:
        check_event(parse_event(row.event), 2)


def test_many_enclaves_in_many_parts_are_read_once(read: Any, enclave: Enclave, node: Served) -> None:
    other = create_enclave(node, "other", 3)
    rows = read(f"{enclave.hex},{other.hex}", eventsPerPartition=7)
    assert rows.rdd.getNumPartitions() == 6 + 1
    found = sorted((row.enclave, row.seq) for row in rows.collect())
    assert found == sorted([(enclave.hex, seq) for seq in range(36)] + [(other.hex, seq) for seq in range(4)])


@pytest.mark.parametrize(
    ("condition", "seqs"),
    [
        ("type = 'note'", [31, 32, 33, 34, 35]),
        ("type in ('Manifest', 'note') and seq < 33", [0, 31, 32]),
        ("seq between 5 and 7", [5, 6, 7]),
        ("seq > 33 and type = 'note'", [34, 35]),
        ("author = '00'", []),
        ("seq = -5", []),
        ("type like 'no%' and seq >= 34", [34, 35]),
        ("timestamp < 5", []),
    ],
)
def test_conditions_hold_whether_the_node_is_asked_or_not(
    read: Any, enclave: Enclave, condition: str, seqs: list[int]
) -> None:
    for pushdown in ("true", "false"):
        assert sorted(row.seq for row in read(enclave.hex, pushdown=pushdown).where(condition).collect()) == seqs


def test_through_spark_the_node_is_asked_for_what_is_wanted_and_no_more(
    read: Any, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sorted(read(enclave.hex).collect(), key=lambda row: row.seq)
    alice, middle = person("alice").public.hex(), rows[20].timestamp
    asked = list[dict[str, Any]]()

    def parse(wire: dict[str, Any]) -> Any:
        asked.append(wire)
        return parse_filter(wire)

    monkeypatch.setattr(request_handlers, "parse_filter", parse)
    everything = {"start_at": 0, "end_before": 36}
    wanted: list[tuple[str, Callable[[Any], bool], dict[str, Any]]] = [
        ("type = 'note'", lambda row: row.type == "note", {"type": ["note"]}),
        (f"author = '{alice}'", lambda row: row.author == alice, {"from": [alice]}),
        (f"timestamp >= {middle}", lambda row: row.timestamp >= middle, {"timestamp": {"start_at": middle}}),
        (f"timestamp < {middle}", lambda row: row.timestamp < middle, {"timestamp": {"end_before": middle}}),
        ("seq between 5 and 7", lambda row: 5 <= row.seq <= 7, {"seq": {"start_at": 5, "end_before": 8}}),
    ]
    for condition, holds, wire in wanted:
        asked.clear()
        found = read(enclave.hex, pushdown="true").where(condition).collect()
        assert sorted(row.seq for row in found) == [row.seq for row in rows if holds(row)]
        [page] = [each for each in asked if "reverse" not in each]
        assert page == {"limit": MAX_LIMIT, "seq": everything, **wire}, condition


def test_a_second_query_of_a_dataframe_has_no_filters_of_the_first(read: Any, enclave: Enclave) -> None:
    rows = read(enclave.hex)
    assert rows.where("type = 'note'").count() == 5
    assert rows.count() == 36


def test_a_condition_on_the_enclave_says_who_is_asked(node: Served, enclave: Enclave) -> None:
    other = create_enclave(node, "unasked")
    reader = PushdownReader(options(node, enclave, other))
    list(reader.pushFilters([EqualTo(("enclave",), other.hex)]))
    assert {part.span.enclave for part in reader.partitions() if isinstance(part, SpanPartition)} == {other.hex}


@pytest.mark.parametrize(
    ("filters", "asked"),
    [
        ([EqualTo(("type",), "a")], {"type": ["a"]}),
        ([In(("type",), ("a", "b")), In(("type",), ("b", "c"))], {"type": ["b"]}),
        ([In(("type",), tuple(map(str, range(21))))], {}),
        ([EqualTo(("author",), HEX)], {"from": [HEX]}),
        ([EqualTo(("author",), "AB")], {}),
        ([GreaterThan(("seq",), 4), LessThanOrEqual(("seq",), 9)], {"seq": {"start_at": 5, "end_before": 10}}),
        ([EqualTo(("timestamp",), 7)], {"timestamp": {"start_at": 7, "end_before": 8}}),
        ([GreaterThan(("seq",), 4), GreaterThan(("seq",), 2)], {"seq": {"start_at": 5}}),
        ([StringStartsWith(("type",), "a"), EqualTo(("origin",), "x")], {}),
    ],
)
def test_what_a_node_can_look_for_it_is_asked_for(filters: list[Filter], asked: dict[str, Any]) -> None:
    given = parse_options({"node": "http://x", "enclave": HEX})
    found: dict[str, Any] = {}
    for each in filters:
        found = push_filter(found, each, given)
    assert found == asked


def test_it_verifies_as_it_reads_if_it_is_told_to(node: Served, enclave: Enclave) -> None:
    source = EncSource({"node": node.url, "enclave": enclave.hex, "verify": "full"})
    assert source.schema() == VERIFIED
    reader = source.reader(VERIFIED)
    batches: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [(row["seq"], row["code"]) for row in rows] == [(seq, None) for seq in range(36)]
    streamed = source.streamReader(VERIFIED)
    (part,) = streamed.partitions({}, {enclave.hex: 2})
    assert [row["code"] for batch in streamed.read(part) for row in batch.to_pylist()] == [None, None]


def test_pushed_filters_reach_the_node(node: Served, enclave: Enclave) -> None:
    span = Span(enclave.hex, 0, 36, 2)
    batches = list(read_span(options(node, enclave), span, {"type": ["note"], "seq": {"start_at": 33}}))
    assert [row["seq"] for batch in batches for row in batch.to_pylist()] == [33, 34, 35]


def test_what_only_a_member_may_read_needs_the_members_key(read: Any, node: Served, tmp_path: Path) -> None:
    mine = create_enclave(node, "mine", 2)
    private = node.create({**_PRIVATE, "init": [_owner()]})
    private.send("alice", "private", "hush")
    assert read(private.id.hex()).count() == 0
    assert read(private.id.hex(), keyFile=key_file(tmp_path, "alice")).count() == 2
    assert read(mine.hex, keyFile=key_file(tmp_path, "bob")).count() == 3


_PRIVATE = {
    "enc_v": 2,
    "states": ["OWNER"],
    "readers": [{"type": "OWNER", "reads": "*"}],
    "customs": [{"event": "private", "operator": "OWNER", "ops": ["C"]}],
    "bundle": {"size": 256, "timeout": 5000},
}


def _owner() -> dict[str, object]:
    return {"identity": person("alice").public.hex(), "state": "OWNER", "traits": []}


def test_a_starting_seq_leaves_out_what_is_before(read: Any, enclave: Enclave) -> None:
    assert read(enclave.hex, startingSeq=34).count() == 2
    assert read(enclave.hex, startingSeq="latest").count() == 0


# Options


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({}, "node"),
        ({"node": "http://x"}, "exactly one"),
        ({"node": "http://x", "enclave": "xyz"}, "enclave"),
        ({"node": "http://x", "enclave": HEX, "identity": HEX}, "exactly one"),
        ({"node": "http://x", "identity": HEX}, "registry"),
        ({"registry": "http://x", "identity": HEX}, "registryEnclave"),
        ({"node": "http://x", "enclave": HEX, "sartingSeq": "4"}, "no such option"),
        ({"node": "http://x", "enclave": HEX, "startingSeq": "-1"}, "startingSeq"),
        ({"node": "http://x", "enclave": HEX, "maxEventsPerTrigger": "0"}, "maxEventsPerTrigger"),
        ({"node": "http://x", "enclave": HEX, "timeout": "long"}, "timeout"),
        ({"node": "http://x", "enclave": HEX, "onUnreachable": "ignore"}, "onUnreachable"),
        ({"node": "http://x", "enclave": HEX, "type": ",".join("abcdefghijklmnopqrstu")}, "type"),
        ({"node": "http://x", "enclave": HEX, "Enclave": HEX}, "twice"),
    ],
)
def test_an_option_that_is_wrong_is_named(given: dict[str, str], part: str) -> None:
    with pytest.raises(MisuseError, match=part):
        parse_options(given)


def test_spark_tells_what_is_wrong_with_an_option(read: Any, enclave: Enclave) -> None:
    with pytest.raises(PySparkException, match="no such option"):
        read(enclave.hex, stratingSeq=3).count()


# Untrustworthy and unreachable nodes


def test_a_node_that_is_not_there_fails_the_batch_or_is_marked() -> None:
    gone = {"node": "http://127.0.0.1:9", "enclave": HEX, "patience": "0", "timeout": "1"}
    with pytest.raises(Unreachable, match="cannot reach"):
        list(read_span(parse_options(gone), Span(HEX, 3, 9)))
    (batch,) = read_span(parse_options({**gone, "onUnreachable": "mark"}), Span(HEX, 3, 9))
    (row,) = verify_batch(batch).to_pylist()
    assert (row["enclave"], row["seq"], row["code"]) == (HEX, None, "UNREACHABLE")
    assert json.loads(row["event"])["unread"] == {"from": 3, "until": 9}


class Liar:
    """Pages that a lying node could return."""

    def __init__(self, *pages: list[bytes]) -> None:
        self.pages, self.asked = list(pages), list[dict[str, Any]]()

    def __call__(self, enclave: Enclave, wire: dict[str, Any]) -> UnverifiedPage:
        self.asked.append(wire)
        return UnverifiedPage(self.pages.pop(0), bool(self.pages))

    def replace_node(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the node's answers from now on."""
        monkeypatch.setattr(Enclave, "unverified_page", lambda enclave, wire: self(enclave, wire))


def _event(seq: int) -> bytes:
    fields = {"enclave": HEX, "seq": seq, "id": "x", "type": "t", "from": "f", "timestamp": 1}
    return msgspec.json.encode(fields)


def test_a_node_that_repeats_itself_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch, node: Served, enclave: Enclave
) -> None:
    liar = Liar([_event(5)], [_event(5)], [_event(5)])
    liar.replace_node(monkeypatch)
    rows = [row for batch in read_span(options(node, enclave), Span(HEX, 0, 100)) for row in batch.to_pylist()]
    assert len(rows) == len(liar.asked) == 2
    assert [wire["seq"]["start_at"] for wire in liar.asked] == [0, 6]


def test_garbage_is_a_row_with_the_enclave_that_was_asked(
    monkeypatch: pytest.MonkeyPatch, node: Served, enclave: Enclave
) -> None:
    Liar([_event(0), b'"garbage"'], [_event(9)]).replace_node(monkeypatch)
    rows = [row for batch in read_span(options(node, enclave), Span(HEX, 0, 100)) for row in batch.to_pylist()]
    assert [(row["enclave"], row["seq"]) for row in rows] == [(HEX, 0), (HEX, None)]


def test_a_newest_event_that_does_not_check_takes_a_stream_only_a_step_on(
    monkeypatch: pytest.MonkeyPatch, node: Served, enclave: Enclave
) -> None:
    monkeypatch.setattr(Enclave, "unverified_page", lambda *_: Liar([_event(1 << 50)])(enclave, {}))
    assert tip(enclave, options(node, enclave)) == Tip((1 << 50) + 1, None, False)
    reader = EncStreamReader(options(node, enclave))
    assert reader.latestOffset({enclave.hex: 3}, ReadAllAvailable()) == {enclave.hex: 3 + node_reader.STEP}


def test_a_log_that_says_it_is_endless_is_through_after_the_events_that_it_has(
    monkeypatch: pytest.MonkeyPatch, node: Served, enclave: Enclave
) -> None:
    """Its newest event is signed with an arbitrary seq. Nothing is lost, and the stream does not
    count up to it.
    """
    reader, end = EncStreamReader(options(node, enclave)), 1 << 50
    reader._target = {enclave.hex: Tip(end, 2, True)}
    liar = Liar([_event(1 << 49)], [_event(end + 7)], [])
    liar.replace_node(monkeypatch)
    offsets = [{enclave.hex: 36}]
    for _ in range(2):
        offsets.append(reader.latestOffset(offsets[-1], ReadMaxRows(10)))
    assert [offset[enclave.hex] for offset in offsets] == [36, (1 << 49) + 1, end]
    assert [wire["seq"] for wire in liar.asked] == [{"start_at": 36}, {"start_at": (1 << 49) + 1}]
    assert reader.latestOffset({enclave.hex: 36}, ReadMaxRows(10)) == {enclave.hex: 46}, "it has no more"
    parts = [part for part in reader.partitions(*offsets[:2]) if isinstance(part, stream.SpanGroupPartition)]
    spans = [span for part in parts for span in part.spans]
    assert len(spans) <= stream.MAX_SPANS + 1
    bounds = [spans[0].start, *(span.end for span in spans)]
    assert [span.start for span in spans] == bounds[:-1]
    assert (bounds[0], bounds[-1]) == (36, (1 << 49) + 1)


# As a stream


def test_offsets_are_the_next_seqs_and_the_limit_is_shared_out(node: Served, enclave: Enclave) -> None:
    small = create_enclave(node, "small", 2)
    reader = EncStreamReader(options(node, enclave, small, maxEventsPerTrigger=10))
    start = reader.initialOffset()
    assert start == {enclave.hex: 0, small.hex: 0}
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    then = reader.latestOffset(start, ReadMaxRows(10))
    assert then == {enclave.hex: 7, small.hex: 3}
    assert reader.latestOffset(then, ReadAllAvailable()) == {enclave.hex: 36, small.hex: 3}
    parts = [part for part in reader.partitions(start, then) if isinstance(part, stream.SpanGroupPartition)]
    spans = [span for part in parts for span in part.spans]
    assert [(span.start, span.end, span.enc_v) for span in spans] == [(0, 7, 2), (0, 3, 2)]
    assert reader.partitions(then, then) == []
    reader.stop()


def test_small_spans_share_a_task() -> None:
    spans = [Span(f"{n}", 0, 10) for n in range(40)]
    parts = stream.group_spans(spans, 1000)
    assert [len(part) for part in parts] == [10, 10, 10, 10]
    assert [span for part in parts for span in part] == spans
    assert [len(part) for part in stream.group_spans(spans, 25)] == [3] * 13 + [1]
    assert stream.group_spans([], 10) == []


@pytest.mark.parametrize(
    ("left", "most", "taken"),
    [
        ({"a": 5, "b": 5}, None, {"a": 5, "b": 5}),
        ({"a": 5, "b": 100}, 20, {"a": 5, "b": 15}),
        ({"a": 50, "b": 100}, 20, {"a": 10, "b": 10}),
        ({"a": 50, "b": 100, "c": 0}, 3, {"a": 2, "b": 1, "c": 0}),
        ({"a": 9}, 1, {"a": 1}),
    ],
)
def test_a_limit_is_shared_evenly_and_used_up(left: dict[str, int], most: int | None, taken: dict[str, int]) -> None:
    assert share_fairly(left, most) == taken


def test_with_available_now_what_comes_later_waits(node: Served) -> None:
    enclave = create_enclave(node, "now", 2)
    reader = EncStreamReader(options(node, enclave))
    reader.prepareForTriggerAvailableNow()
    write(enclave, 3)
    end = reader.latestOffset({enclave.hex: 0}, ReadAllAvailable())
    assert end == reader.latestOffset(end, ReadAllAvailable()) == {enclave.hex: 3}
    reader.stop()


def test_latest_begins_with_what_comes_and_an_enclave_that_is_silent_stands_still(node: Served) -> None:
    enclave = create_enclave(node, "latest", 2)
    given = options(node, enclave, startingSeq="latest", patience=0)
    reader = EncStreamReader(given)
    start = reader.initialOffset()
    assert start == {enclave.hex: 3}
    write(enclave, 1)
    assert reader.latestOffset({**start, HEX: 7}, ReadAllAvailable()) == {enclave.hex: 4, HEX: 7}
    reader.stop()


def test_one_node_that_does_not_answer_holds_up_no_other(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = create_enclave(node, "good", 1), create_enclave(node, "bad", 1)

    def troubled(enclave: Enclave, given: SourceOptions) -> Tip:
        if enclave.hex == bad.hex:
            raise Unavailable("not now")
        return tip(enclave, given)

    monkeypatch.setattr(stream, "tip", troubled)
    reader = EncStreamReader(options(node, good, bad))
    assert reader.latestOffset({good.hex: 0, bad.hex: 0}, ReadAllAvailable()) == {good.hex: 2, bad.hex: 0}
    reader.stop()


def _drain(frame: DataFrame, checkpoint: Path) -> list[list[int]]:
    """Return the seqs of each micro-batch, until everything available is read."""
    seen: list[list[int]] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: seen.append(sorted(row.seq for row in batch.collect())))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    return seen


def test_a_stream_goes_on_where_it_stopped_and_repeats_nothing(
    spark: SparkSession, node: Served, tmp_path: Path
) -> None:
    spark.dataSource.register(EncSource)
    enclave = create_enclave(node, "stream", 8)
    reader = spark.readStream.format("enc").option("node", node.url).option("enclave", enclave.hex)
    frame = reader.option("maxEventsPerTrigger", 6).load()
    assert _drain(frame, tmp_path) == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    write(enclave, 3)
    assert _drain(frame, tmp_path) == [[9, 10, 11]]


def test_reading_a_span_again_gives_the_same_rows(node: Served, enclave: Enclave) -> None:
    def rows() -> list[dict[str, Any]]:
        found = [row for b in read_span(options(node, enclave), Span(enclave.hex, 3, 20, 2)) for row in b.to_pylist()]
        return [{**row, "received_at": None} for row in found]

    assert rows() == rows()
    assert [row["seq"] for row in rows()] == list(range(3, 20))


# Notices


def test_a_notice_makes_a_stream_ask_for_just_that_enclave(
    node: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = create_enclave(node, "one", 1), create_enclave(node, "two", 1)
    asked: list[str] = []

    def counted(enclave: Enclave, given: SourceOptions) -> Tip:
        asked.append(enclave.hex)
        return tip(enclave, given)

    monkeypatch.setattr(stream, "tip", counted)
    reader = EncStreamReader(options(node, one, two, notices=tmp_path))
    start = reader.latestOffset({}, ReadAllAvailable())
    assert sorted(asked) == sorted([one.hex, two.hex])
    asked.clear()
    write(one, 2)
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert asked == []
    NoticeBoard(tmp_path).put(Notice(one.id, 3, bytes(32), "post", 0, {}))
    assert reader.latestOffset(start, ReadAllAvailable()) == {**start, one.hex: 4}
    assert asked == [one.hex]
    reader.stop()


def test_a_board_keeps_the_newest_and_survives_rubbish(tmp_path: Path) -> None:
    board = NoticeBoard(tmp_path)
    for seq in (5, 9, 7):
        board.put(Notice(bytes(32), seq, bytes(32), "t", 0, {}))
    (tmp_path / HEX).write_text("rubbish")
    (tmp_path / ".draft").write_text("4")
    assert NoticeBoard(tmp_path).seqs() == {bytes(32).hex(): 9}


def test_a_span_is_split_into_half_open_parts() -> None:
    assert [(part.start, part.end) for part in split_span(Span(HEX, 3, 10), 3)] == [(3, 6), (6, 9), (9, 10)]
    assert list(split_span(Span(HEX, 3, 3), 3)) == []
