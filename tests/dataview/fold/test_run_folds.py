"""Folding on the driver and on executors gives the same result, however rows are split. Without
Spark.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from enc.dataview.fold import run_folds
from enc.dataview.fold.content_fold import REVISIONS, Row, revised_id
from enc.dataview.fold.run_folds import (
    _BATCH,
    _BATCH_BYTES,
    REGISTRY,
    FoldRow,
    KnownState,
    _record_batches,
    fold_on_driver,
)
from enc.dataview.rows.raw_rows import RowOrigin, raw_batch
from enc.dataview.rows.schema import EVENTS, arrow_schema
from enc.dataview.rows.verify import verify_batch
from tests.core.registry_world import TEAM, House, node_entry
from tests.core.registry_world import Registry as RegistryLog
from tests.core.world import about
from tests.dataview.flow import AT
from tests.dataview.logs import Log, log_of
from tests.dataview.plain_fold import Tables
from tests.dataview.random_logs import random_log

SIZE = 7
_MORE = [("kind", pa.string()), ("data", pa.string()), ("_of", pa.string()), ("_registry", pa.bool_())]
SCHEMA = pa.schema([*arrow_schema(EVENTS), *(pa.field(*each) for each in _MORE)])


def events_of(logs: Iterable[Log], part: slice) -> pa.Table:
    batches = [
        verify_batch(raw_batch(log.wire[part], RowOrigin("node:n", None, log.enc_v), AT), check=False) for log in logs
    ]
    return pa.Table.from_batches(batches).select(EVENTS.fieldNames())


def batches(rows: Iterable[dict[str, Any]], *order: str) -> Iterator[pa.RecordBatch]:
    """Return rows as Spark delivers them: sorted, and split anywhere."""
    found = sorted(rows, key=lambda row: [row[name] for name in order])
    for i in range(0, len(found), SIZE):
        yield pa.RecordBatch.from_pylist(found[i : i + SIZE], schema=SCHEMA)


def fold_spread(events: pa.Table, known: list[Row]) -> list[FoldRow]:
    """Fold like the executors."""
    rows = [{**row, "seq": -1} for row in known] + events.to_pylist()
    control = list(made(run_folds._fold_control(batches(filter(run_folds._is_control, rows), "enclave", "seq"))))
    registries = {enclave for table, enclave, _ in control if table == REGISTRY}
    rest = [row for row in rows if not run_folds._is_control(row)]
    for row in rest:
        row["_of"], row["_registry"] = _target(row), row["enclave"] in registries
    contents = made(run_folds._fold_contents(batches(rest, "enclave", "_of", "seq")))
    return [*(row for row in control if row[0] != REGISTRY), *contents]


def _target(row: dict[str, Any]) -> str:
    if row.get("kind"):
        return str(msgspec.json.decode(row["data"])["id"])
    return (revised_id(row["tags"]) or "") if row["type"] in REVISIONS else row["id"]


def made(found: Iterable[pa.RecordBatch]) -> Iterator[FoldRow]:
    return ((row["table"], row["enclave"], row["data"]) for batch in found for row in batch.to_pylist())


def known_of(found: Iterable[FoldRow]) -> list[Row]:
    """Return the known rows for the next batch."""
    rows = list[Row]()
    for table, enclave, data in found:
        if table == "fold":
            state = msgspec.json.encode(KnownState(True, data)).decode()
            rows.append({"enclave": enclave, "kind": "state", "data": state})
        if table == "content_status":
            rows.append({"enclave": enclave, "kind": "content", "data": data})
    return rows


def registry_log() -> Log:
    """Return a log with replaced and deleted entries, whose contents stay in a registry."""
    registry = RegistryLog()
    first = registry.send("node", "Reg_Node", node_entry("node"))
    registry.send("node", "Delete", {"reason": "author"}, tags=about(first))
    note = registry.send("alice", "note", "a")
    registry.send("alice", "Update", "b", tags=about(note))
    registry.register("alice", House({**TEAM}))
    return log_of(registry)


@pytest.mark.parametrize("seed", range(6))
def test_both_ways_come_to_the_same(seed: int) -> None:
    logs = [random_log(seed, 60, kind).log() for kind in ("club", "personal", "v1")]
    logs.append(registry_log())
    first, second = events_of(logs, slice(0, 30)), events_of(logs, slice(30, 60))
    begun = fold_on_driver(first, [])
    assert sorted(fold_spread(first, [])) == sorted(begun)
    known = known_of(begun)
    gone_on = fold_on_driver(second, known)
    assert sorted(fold_spread(second, known)) == sorted(gone_on)
    check(logs[:3], [*begun, *gone_on])
    assert {"fold", "enclaves", "access", "content_status", "erasures"} <= {table for table, _, _ in begun + gone_on}


def check(logs: list[Log], found: Iterable[FoldRow]) -> None:
    """Both batches together give what plain Python computes from the whole logs; later rows replace
    earlier ones.
    """
    keys = {"content_status": ("id",), "access": ("identity", "from_seq"), "enclaves": ()}
    rows, enclaves = dict[Any, dict[str, Any]](), {log.enclave for log in logs}
    for table, enclave, data in found:
        if table in keys and enclave in enclaves:
            row = {**msgspec.json.decode(data), "enclave": enclave}
            rows[table, enclave, *(row[name] for name in keys[table])] = row
    plain = Tables([log.wire for log in logs])
    for table in keys:
        expected = plain.rows(table)
        here = [{name: row[name] for name in expected[0]} for place, row in rows.items() if place[0] == table]
        assert ordered(here) == ordered(expected), table


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        row.update(traits=sorted(row["traits"])) if "traits" in row else None
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


def test_what_a_registry_s_entries_said_stays() -> None:
    log = registry_log()
    found = fold_spread(events_of([log], slice(None)), [])
    assert not [row for row in found if row[0] == "erasures"]
    assert all(msgspec.json.decode(data)["content"] for table, _, data in found if table == "content_status")


def test_a_history_is_read_in_order_and_never_whole() -> None:
    """The result of one content is yielded before thousands of others are read."""
    log, read = random_log(3, 60, "club").log(), 0
    rows = [row for row in events_of([log], slice(None)).to_pylist() if not run_folds._is_control(row)]
    row = next(row for row in rows if row["type"] not in REVISIONS)

    def many() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for n in range(1000):
            read += SIZE
            here = [{**row, "id": f"{n:04d}{i}", "_of": f"{n:04d}{i}", "_registry": False} for i in range(SIZE)]
            yield pa.RecordBatch.from_pylist(here, schema=SCHEMA)

    first = next(iter(run_folds._fold_contents(many())))
    assert first.num_rows <= read < 2 * run_folds._BATCH


def test_what_a_task_hands_over_at_once_is_bounded_by_rows_and_by_bytes() -> None:
    large, small = ("t", "e", "x" * (_BATCH_BYTES // 2)), ("t", "e", "x")
    assert [batch.num_rows for batch in _record_batches(iter([large] * 5))] == [2, 2, 1]
    assert [batch.num_rows for batch in _record_batches(iter([small] * (2 * _BATCH + 1)))] == [_BATCH, _BATCH, 1]
    assert list(_record_batches(iter(()))) == []
