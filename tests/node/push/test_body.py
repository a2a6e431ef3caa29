"""The body of a batch on the wire: the stored bytes of its events are joined and never encoded again."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode

from enc.core.log.event import check_event, parse_event, wire_event
from enc.core.primitives.types import Event
from enc.node.push.body import BatchFilter, render
from enc.node.store.events import RawEvent
from enc.node.store.push_interface import BatchNotice, EventRange, PushBatch
from enc.node.store.sqlite import event_slices
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.node.store_host import Host, live

Json = dict[str, Any]


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Host:
    return Host(store)


def batch(*parts: EventRange | BatchNotice, push_seq: int = 7) -> PushBatch:
    runs = tuple(part for part in parts if isinstance(part, EventRange))
    return PushBatch(push_seq, 0, runs, tuple(part for part in parts if isinstance(part, BatchNotice)))


def body_of(host: Host, *parts: EventRange | BatchNotice, admits: BatchFilter | None = None) -> Json:
    found: Json = decode(render(host.store, batch(*parts), admits or BatchFilter()))
    return found


def pushed(enclave: bytes, events: list[Event]) -> Json:
    return {"enclave": enclave.hex(), "events": [decode(encode(wire_event(event))) for event in events]}


def test_events_are_the_wire_s_own(host: Host) -> None:
    """Events that were updated, erased or deleted; with tags, slots and a Manifest."""
    enclave, events = live(host)
    assert {event.content is None for event in events} == {True, False}
    assert body_of(host, EventRange(enclave, 0, len(events))) == {
        "push_seq": 7,
        "push": {"enclaves": [pushed(enclave, events)]},
    }
    for wire in body_of(host, EventRange(enclave, 0, len(events)))["push"]["enclaves"][0]["events"]:
        check_event(parse_event(encode(wire)), 2)


def test_the_bytes_of_a_stored_event_are_used_as_they_are(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.create()
    event = host.send(enclave, "alice", "message", 'a "quoted" \\ text, \u00e9\u4e16 \u2028 and \x00', ("r", "\u00e9"))
    (item,) = store.items(enclave, 1, 1)
    whole = item.head + item.rest + b"}"
    expected = b'{"push_seq":7,"push":{"enclaves":[{"enclave":"%b","events":[%b]}]}}' % (
        enclave.hex().encode(),
        whole,
    )
    assert render(store, batch(EventRange(enclave, 1, 1))) == expected
    assert parse_event(whole) == event
    store.close()


def test_runs_of_one_enclave_stand_together_and_enclaves_apart(host: Host) -> None:
    one, events = live(host)
    other = host.create("bob", meta={"n": 2})
    found = body_of(host, EventRange(one, 1, 2), EventRange(one, 4, 1), EventRange(other, 0, 1))
    assert found["push"]["enclaves"] == [
        pushed(one, [events[1], events[2], events[4]]),
        pushed(other, host.store.events(other, 0, 1)),
    ]


def test_a_run_ends_where_it_says(host: Host) -> None:
    enclave, events = live(host)
    assert body_of(host, EventRange(enclave, 2, 1))["push"]["enclaves"] == [pushed(enclave, events[2:3])]
    last = len(events) - 1
    assert body_of(host, EventRange(enclave, last, 5))["push"]["enclaves"] == [pushed(enclave, events[last:])]


def test_a_notice_names_the_latest_and_the_counters(host: Host) -> None:
    enclave, events = live(host)
    for event in events:
        assert body_of(host, BatchNotice(enclave, event.seq, {"message": 2, event.type: 9})) == {
            "push_seq": 7,
            "notify": {
                "enclaves": [
                    {
                        "enclave": enclave.hex(),
                        "seq": event.seq,
                        "event_id": event.id.hex(),
                        "type": event.type,
                        "timestamp": event.timestamp,
                        "type_seq": {"message": 2, event.type: 9},
                    }
                ]
            },
        }


def test_events_and_notices_in_one_body(host: Host) -> None:
    one, _ = live(host)
    other = host.create("bob", meta={"n": 2})
    found = body_of(
        host, EventRange(one, 1, 1), BatchNotice(one, 2, {"message": 2}), BatchNotice(other, 0, {"Manifest": 1})
    )
    assert list(found) == ["push_seq", "push", "notify"]
    assert [notice["enclave"] for notice in found["notify"]["enclaves"]] == [one.hex(), other.hex()]


def test_an_enclave_that_is_not_here_has_nothing_to_say(host: Host) -> None:
    gone, (here, events) = bytes(32), live(host)
    assert render(host.store, batch()) == b'{"push_seq":7}'
    assert render(host.store, batch(EventRange(gone, 0, 3), BatchNotice(gone, 0, {"x": 1}))) == b'{"push_seq":7}'
    assert body_of(host, EventRange(gone, 0, 3), EventRange(here, 0, 1))["push"]["enclaves"] == [
        pushed(here, events[:1])
    ]


def test_a_purged_enclave_has_nothing_to_say(host: Host) -> None:
    enclave, _ = live(host)
    host.send(enclave, "alice", "Terminate")
    assert "push" in body_of(host, EventRange(enclave, 0, 3))
    host.store.purge(enclave, 1)  # one row of many, and no more rows are read
    assert render(host.store, batch(EventRange(enclave, 0, 3), BatchNotice(enclave, 1, {"x": 1}))) == b'{"push_seq":7}'


class _Odd(BatchFilter):
    """Admits every second event, and of the counters only those of messages."""

    def shows_event(self, enclave: bytes, item: RawEvent) -> bool:
        return item.seq % 2 == 1

    def shown_counts(self, enclave: bytes, item: RawEvent, type_seq: Any) -> Any:
        return {type_: n for type_, n in type_seq.items() if type_ == "message"}


def test_what_is_withheld_leaves_no_trace(host: Host) -> None:
    enclave, events = live(host)
    found = body_of(host, EventRange(enclave, 0, 4), admits=_Odd())
    assert found["push"]["enclaves"] == [pushed(enclave, [events[1], events[3]])]
    assert render(host.store, batch(EventRange(enclave, 0, 1), EventRange(enclave, 2, 1)), _Odd()) == b'{"push_seq":7}'
    counters = body_of(host, BatchNotice(enclave, 2, {"message": 2, "Update": 1}), admits=_Odd())
    assert counters["notify"]["enclaves"][0]["type_seq"] == {"message": 2}
    assert body_of(host, BatchNotice(enclave, 2, {"Update": 1}), admits=_Odd()) == {"push_seq": 7}


def test_what_rights_are_judged_by_comes_with_each_event(host: Host) -> None:
    """The subject of an Update or a Delete is the target's type; a deleted event keeps its own."""
    enclave, events = live(host)
    items = host.store.items(enclave, 0, 100)
    assert [item.author for item in items] == [event.from_ for event in events]
    assert [item.type for item in items] == [event.type for event in events]
    subjects = {"Update": "message", "Delete": "message"}
    assert [item.subject for item in items] == [subjects.get(event.type, event.type) for event in events]
    assert [parse_event(item.event) for item in items] == events


def test_no_items_beyond_the_log_and_none_of_another_s(host: Host) -> None:
    enclave, events = live(host)
    for n in range(3):
        host.create("bob", meta={"n": n})
    for first in (len(events), 1 << 40, 1 << 41, 1 << 50):
        assert host.store.items(enclave, first, 5) == []
    assert host.store.items(enclave, 0, 0) == []
    for count in (1 << 40, 1 << 41, 1 << 42):
        assert [item.seq for item in host.store.items(enclave, 2, count)] == [event.seq for event in events[2:]]


def test_items_are_found_by_their_keys(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    with closing(sqlite3.connect(tmp_path / "enc.db")) as db:
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {event_slices._STORED}", (0, 0))]
    assert [line.split(" USING ")[1].split(" (")[0] for line in plan] == ["INTEGER PRIMARY KEY"] * 2
