"""The whole pipeline, batch by batch, against plain Python on random logs."""

import json

import msgspec
from pyspark.sql import SparkSession

from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.primitives.types import Event
from enc.dataview.lake.driver_rows import DriverLimits
from enc.dataview.rows.schema import RAW
from tests.core.world import GROUP, START, World, give, move, person
from tests.dataview.flow import COMPARED, Flow, rows_of, rows_of_logs
from tests.dataview.logs import log_of
from tests.dataview.random_logs import random_log


def test_random_logs(spark: SparkSession, flow: Flow) -> None:
    """Events in order, repeated, and out of order: one enclave's second half comes first, some of another come twice.

    The second batch is larger than the driver collects by itself.
    """
    kinds = ["club", "personal", "v1", "club"]
    logs = [random_log(seed, 50, kind).log(erased=seed == 2) for seed, kind in enumerate(kinds)]
    first, second = slice(0, 25), slice(25, 50)
    a, b, c, late = logs
    flow.feed(rows_of_logs(spark, [(a, first), (a, slice(3, 6)), (b, first), (c, first), (late, second)]))
    flow.limits = DriverLimits(max_rows=20, max_listed_values=1)
    flow.feed(rows_of_logs(spark, [(a, slice(10, 50)), (b, second), (c, second), (late, first)]))
    flow.check(logs, COMPARED)
    assert flow.rows("quarantine") == []
    assert len(flow.rows("raw_events")) == 200 + 3 + 15
    assert len(flow.rows("events")) == 200


def line(event: Event) -> bytes:
    return msgspec.json.encode(wire_event(event))


def test_what_may_not_stand_is_refused_by_name(spark: SparkSession, flow: Flow) -> None:
    """Garbage, an altered content, a fork, a foreign signature, a forged takeover, and a rule
    violation.
    """
    world = World(GROUP)
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    said = world.send("bob", "message", "hello")
    late = world.commit("alice", "message", "another")
    fork = finalize(late, person("node"), said.timestamp, said.seq)
    foreign = finalize(late, person("node2"), said.timestamp, said.seq + 1)
    migrate = build_commit(
        person("mallory"), world.state.enclave, "Migrate", json.dumps(world.migrate("node2")), START + 60_000
    )
    taken = finalize(migrate, person("node2"), said.timestamp, said.seq + 2)
    grab = finalize(world.commit("mallory", "Grant", give("mallory", "owner")), person("node"), said.timestamp, 3)
    altered = line(said).replace(b"hello", b"HELLO")
    good = [line(event) for event in world.events]
    flow.feed(rows_of(spark, [*good, b"garbage", altered]))
    flow.feed(rows_of(spark, [line(fork), line(foreign), line(taken), line(grab), good[2]]))
    found = {(row["seq"], row["code"]) for row in flow.rows("quarantine")}
    assert {code for seq, code in found if seq is None} == {"INVALID_COMMIT"}
    assert {(2, "INVALID_HASH"), (2, "FORK"), (3, "FOREIGN_SEQUENCER"), (4, "FOREIGN_SEQUENCER")} <= found
    assert (3, "UNAUTHORIZED") in found
    assert [row["seq"] for row in flow.rows("events", "seq")] == [0, 1, 2, 3]
    flow.check([log_of(world)], ["access", "members", "content_status"])
    assert flow.rows("enclaves")[0]["refused"] == 1
    assert set(RAW.fieldNames()) == set(flow.rows("raw_events")[0])
