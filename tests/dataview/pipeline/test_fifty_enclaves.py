"""Fifty enclaves, one with garbage and one whose node lies: the others are complete, the culprits
named.
"""

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from enc.core.log.event import finalize, wire_event
from enc.dataview.rows.raw_rows import RowOrigin, raw_batch
from tests.core.world import person
from tests.dataview.flow import AT, SILVER, Flow
from tests.dataview.logs import Log
from tests.dataview.random_logs import RandomLog, random_log

GARBAGE, LIAR = 13, 31


def lies(made: RandomLog) -> list[bytes]:
    """Return a log with one altered event, one signed by a stranger, and one fork."""
    world = made.world
    wire = made.log().wire
    commit = world.commit("alice", "public", "what never was")
    fork = finalize(commit, person("node"), world.events[2].timestamp, 2)
    stranger = finalize(commit, person("node3"), world.state.min_timestamp, len(wire))
    at = wire[1].index(b'"hash":"') + 8
    altered = wire[1][:at] + (b"0" if wire[1][at : at + 1] != b"0" else b"1") + wire[1][at + 1 :]
    more = [msgspec.json.encode(wire_event(event)) for event in (fork, stranger)]
    return [wire[0], altered, *wire[2:], *more]


def test_fifty_enclaves(spark: SparkSession, flow: Flow) -> None:
    made = [random_log(100 + i, 8, ("club", "personal", "v1")[i % 3]) for i in range(50)]
    logs = [each.log() for each in made]
    sent = [log.wire for log in logs]
    sent[GARBAGE] = [b"{}", b"\xff\xfe", b'{"enclave":"zz"}', b"[" * 5000]
    sent[LIAR] = lies(made[LIAR])
    batches = [
        raw_batch(lines, RowOrigin(f"node:n{i}", logs[i].enclave, logs[i].enc_v), AT) for i, lines in enumerate(sent)
    ]
    flow.feed(spark.createDataFrame(pa.Table.from_batches(batches)))
    honest: list[Log] = [log for i, log in enumerate(logs) if i not in (GARBAGE, LIAR)]
    culprits = {row["origin"] for row in flow.rows("quarantine")}
    assert culprits == {f"node:n{GARBAGE}", f"node:n{LIAR}"}
    codes = {row["code"] for row in flow.rows("quarantine") if row["origin"] == f"node:n{LIAR}"}
    assert {"INVALID_HASH", "FORK", "FOREIGN_SEQUENCER"} <= codes
    assert all(row["enclave"] for row in flow.rows("quarantine") if row["origin"] == f"node:n{LIAR}")
    skipped = {logs[GARBAGE].enclave, logs[LIAR].enclave}
    flow.check(honest, [*SILVER, "timeline"], without=skipped)
