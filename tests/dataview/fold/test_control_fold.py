"""The fold over control events, against plain Python on random valid logs."""

from typing import Any

import msgspec
import pytest

from enc.core.log.event import finalize
from enc.core.primitives.types import Event
from enc.dataview.fold.control_fold import CONTROL, FoldResult, FoldState, fold
from tests.core.world import GROUP, World, give, move, person, pub
from tests.dataview.logs import Log, log_of
from tests.dataview.plain_fold import EnclaveFold
from tests.dataview.random_logs import random_log

KINDS = ["club", "personal", "v1"]


def control(log: Log) -> list[Event]:
    return [event for event in log.events if event.type in CONTROL[log.enc_v]]


def whole(folded: FoldResult, enclave: str, table: dict[Any, dict[str, Any]], *without: str) -> list[dict[str, Any]]:
    rows = [{"enclave": enclave, **row} for row in table.values()]
    return [{name: value for name, value in row.items() if name not in without} for row in rows]


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for row in rows:
        row.update(traits=sorted(row["traits"]) if "traits" in row else None)
    return sorted(rows, key=lambda row: [str(row.get(n)) for n in ("identity", "kind", "owner", "key", "from_seq")])


def check(log: Log, folded: FoldResult, plain: EnclaveFold) -> None:
    assert folded.refused == []
    access = whole(folded, log.enclave, folded.access, "bitmask")
    assert ordered(access) == ordered(plain.access())
    slots = [row for row in whole(folded, log.enclave, folded.slots, "content_hash") if row["value"] is not None]
    assert ordered(slots) == ordered(plain.slots())
    assert folded.enclave is not None
    assert {k: v for k, v in {"enclave": log.enclave, **folded.enclave}.items() if k != "meta"} == plain.enclaves()[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_random_logs(seed: int, kind: str) -> None:
    log = random_log(seed, 80, kind).log()
    plain = EnclaveFold(msgspec.json.decode(line) for line in log.wire)
    check(log, fold(FoldState(), control(log)), plain)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_between_batches_is_all_that_is_needed(kind: str) -> None:
    """Event by event, with the state written down and read again in between, as the pipeline does."""
    log = random_log(99, 80, kind).log()
    state, together = FoldState(), FoldResult(FoldState())
    for event in control(log):
        folded = fold(msgspec.json.decode(msgspec.json.encode(state), type=FoldState), [event])
        state = folded.state
        together.access.update(folded.access)
        together.slots.update(folded.slots)
        together.enclave = folded.enclave
    check(log, together, EnclaveFold(msgspec.json.decode(line) for line in log.wire))


def test_the_logs_have_everything() -> None:
    """Ensures that the comparison covers enough."""
    logs = [random_log(seed, 80, kind).log() for seed in range(12) for kind in KINDS]
    seen = {(log.enc_v, event.type) for log in logs for event in log.events}
    for enc_v, types in CONTROL.items():
        assert {type_ for v, type_ in seen if v == enc_v} >= types | {"Update", "Delete", "public"}


def forged(world: World, name: str, type_: str, content: Any) -> Event:
    """Return an event signed by a node that ignores the rules."""
    return finalize(world.commit(name, type_, content), person("node"), world.state.min_timestamp, world.state.seq + 1)


def test_what_the_rules_refuse_changes_nothing_and_is_named() -> None:
    world = World(GROUP)
    event = forged(world, "mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))
    bad = forged(world, "mallory", "Grant", give("mallory", "owner"))
    folded = fold(FoldState(), [*control(log_of(world)), bad])
    assert [identity for identity, _ in folded.access] == [pub("alice")]
    assert folded.refused[0]["code"] == "UNAUTHORIZED"
    assert folded.refused[0]["id"] == bad.id.hex()
    assert folded.enclave
    assert folded.enclave["refused"] == 1
    assert fold(FoldState(), [*control(log_of(world)), event]).refused == []


def test_where_events_are_missing_a_refusal_is_no_evidence() -> None:
    world = World(GROUP)
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    world.send("alice", "Grant", give("bob", "admin"))
    world.send("bob", "Move", move("carol", "OUTSIDER", "MEMBER"))
    first, _, _, last = world.events
    folded = fold(FoldState(), [first, last], complete=False)
    assert folded.refused == []
    assert folded.enclave
    assert folded.enclave["refused"] == 1


@pytest.mark.parametrize("type_", ["Move", "Shared", "Pause"])
def test_after_terminate_nothing_counts(type_: str) -> None:
    world = World(GROUP)
    contents = {
        "Move": move("bob", "OUTSIDER", "MEMBER"),
        "Shared": {"key": "topic", "value": 1},
        "Pause": {},
    }
    world.send("alice", "Terminate", {})
    event = forged(world, "alice", type_, contents[type_])
    folded = fold(FoldState(), [*control(log_of(world)), event])
    assert [row["code"] for row in folded.refused] == ["ENCLAVE_TERMINATED"]
    assert folded.enclave
    assert folded.enclave["lifecycle"] == "terminated"


def test_without_a_manifest_slots_and_lifecycle_are_folded_by_what_events_say() -> None:
    world = World(GROUP)
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    world.send("alice", "Shared", {"key": "topic", "value": "x"})
    world.send("alice", "Pause", {})
    folded = fold(FoldState(), world.events[1:], 2, complete=False)
    assert folded.access == {}
    assert [row["value"] for row in folded.slots.values()] == ['"x"']
    assert folded.enclave
    assert folded.enclave["lifecycle"] == "paused"
    assert folded.enclave["manifest"] is None


def test_a_forced_migrate_starts_with_itself() -> None:
    world = World(GROUP)
    world.send("alice", "Shared", {"key": "topic", "value": "x"})
    world.send("alice", "Migrate", world.migrate("node2"), node="node2", takeover=True)
    folded = fold(FoldState(), world.events)
    assert folded.enclave
    assert folded.enclave["sequencers"] == [
        {"sequencer": pub("node"), "from_seq": 0},
        {"sequencer": pub("node2"), "from_seq": 2},
    ]
