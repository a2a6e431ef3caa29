"""Withheld contents, in every store: a statement takes the content's place, which is kept aside."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from enc.core.errors import EventNotFound
from enc.core.log.event import erase, parse_event, withhold
from enc.core.log.filter import Filter
from enc.core.log.withheld import sign_withheld
from enc.core.primitives.types import Event, Withheld
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.node.store.withheld_store import WithheldContent, WithheldEvent
from tests.core.world import START, World, person
from tests.node.imports.import_orders import world
from tests.node.moving import take_in
from tests.node.store_host import EVERYTHING, NODE, Host, seqs

TEXT = "ünlawful \ud7ff\U0001f600\0"


def order(host: Host, event: Event, *, keep: bool = True, reason: str = "court_order") -> Withheld:
    statement = sign_withheld(NODE, event.enclave, event.id, reason, host.now)
    host.store.withhold(event.enclave, event.id, statement, "case 12", keep=keep)
    return statement


def said(host: Host, text: str = TEXT, *tags: tuple[str, ...]) -> Event:
    return host.send(host.create(), "alice", "message", text, *tags)


def is_clean(store: Store) -> bool:
    return check_store(store, NODE.public, None, lambda count: None).differences == []


def test_every_read_shows_the_statement(host: Host) -> None:
    event = said(host)
    shown = withhold(event, order(host, event))
    store, place = host.store, (event.enclave, event.seq, 1)
    found = store.event(event.enclave, event.id)
    assert found is not None
    assert (found.event, found.status) == (shown, "active")
    assert store.events(*place) == [store.committed(event.enclave, event.hash, event.exp)] == [shown]
    assert [parse_event(item.event) for item in store.items(*place)] == [shown]
    items = [item for item in store.find(event.enclave, Filter(), EVERYTHING) if item.seq == event.seq]
    assert [parse_event(item.event) for item in items] == [shown]
    assert store.committed_among([event]) == {event.hash: shown}
    assert seqs(store, event.enclave, type="message") == [event.seq]
    assert is_clean(store)


def test_it_comes_back_as_it_was(host: Host) -> None:
    event = said(host, TEXT, ("auto-delete", str(START + 90_000)))
    size = host.store.size(event.enclave)
    order(host, event)
    assert host.store.withheld_content(event.enclave, event.id) == WithheldContent(TEXT, "case 12")
    assert host.store.size(event.enclave) == size
    host.store.unwithhold(event.enclave, event.id)
    assert host.store.events(event.enclave, event.seq, 1) == [event]
    assert host.store.withheld_content(event.enclave, event.id) is None
    assert host.store.withheld_events(0, 10) == []
    assert host.store.size(event.enclave) == size
    assert host.store.expired(START + 90_000, 10) == [(event.enclave, event.id)]
    assert is_clean(host.store)


@pytest.mark.parametrize("is_aside", [True, False])
def test_a_destroyed_content_is_nowhere(host: Host, is_aside: bool) -> None:
    event = said(host, "x" * 5000, ("auto-delete", str(START + 90_000)))
    size = host.store.size(event.enclave)
    if is_aside:
        order(host, event, reason="abuse")
    statement = order(host, event, keep=False)
    own = WithheldContent(None, "case 12")
    assert host.store.withheld_events(0, 10) == [WithheldEvent(event.enclave, event.seq, event.id, statement, own)]
    assert size - host.store.size(event.enclave) in (5000, 5000 - len('null,"content_hash":""') - 64 + 2)
    assert host.store.expired(START + 90_000, 10) == []
    assert is_clean(host.store)


def test_the_file_does_not_have_a_destroyed_content(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    event = said(host, "unlawful" * 1000)
    order(host, event)
    order(host, event, keep=False)
    store.close()
    assert b"unlawful" not in (tmp_path / "enc.db").read_bytes()


def test_another_statement_keeps_what_is_aside(host: Host) -> None:
    event = said(host)
    order(host, event)
    statement = order(host, event, reason="abuse")
    assert host.store.events(event.enclave, event.seq, 1) == [withhold(event, statement)]
    host.store.unwithhold(event.enclave, event.id)
    assert host.store.events(event.enclave, event.seq, 1) == [event]


@pytest.mark.parametrize("type_", ["Update", "Delete"])
def test_an_update_or_a_delete_erases_what_is_aside(host: Host, type_: str) -> None:
    event = said(host)
    order(host, event)
    content = "two" if type_ == "Update" else {"reason": "author"}
    host.send(event.enclave, "alice", type_, content, ("r", event.id.hex()))
    assert host.store.withheld_content(event.enclave, event.id) is None
    assert host.store.events(event.enclave, event.seq, 1) == [erase(event)]
    assert host.store.withheld_events(0, 10) == []
    assert is_clean(host.store)


def test_its_time_erases_what_is_aside_also_of_an_update(host: Host) -> None:
    event = said(host, TEXT, ("auto-delete", str(START + 90_000)))
    update = host.send(event.enclave, "alice", "Update", "two", ("r", event.id.hex()))
    order(host, update)
    due = host.store.expired(START + 90_000, 10)
    assert due == [(event.enclave, update.id)]
    host.store.erase(due)
    assert host.store.withheld_content(event.enclave, update.id) is None
    assert host.store.events(event.enclave, update.seq, 1) == [erase(update)]
    assert host.store.expired(START + 90_000, 10) == []


def test_a_purge_deletes_what_is_aside(host: Host) -> None:
    event = said(host)
    order(host, event)
    host.send(event.enclave, "alice", "Terminate")
    while not host.store.purge(event.enclave, 1):
        pass
    assert host.store.withheld_events(0, 10) == []
    assert host.store.enclave_of(event.id) is None
    if isinstance(host.store, SqliteStore):
        assert host.store.database.rows("SELECT * FROM withheld_contents") == []
    assert is_clean(host.store)


def test_what_does_not_exist_cannot_be_withheld(host: Host) -> None:
    event = said(host)
    with pytest.raises(EventNotFound):
        order(host, replace(event, id=bytes(32)))
    with pytest.raises(EventNotFound):
        host.store.unwithhold(bytes(32), event.id)
    assert host.store.withheld_content(bytes(32), event.id) is None


def test_an_event_s_enclave_is_found_by_its_id(host: Host) -> None:
    first, second = said(host), host.send(host.create(meta={"n": 2}), "alice", "message", "two")
    assert [host.store.enclave_of(each.id) for each in (first, second)] == [first.enclave, second.enclave]
    assert host.store.enclave_of(bytes(32)) is None


def test_the_list_is_read_in_parts(host: Host) -> None:
    enclave = host.create()
    events = [host.send(enclave, "alice", "message", str(i)) for i in range(3)]
    for event in events:
        order(host, event)
    parts = [host.store.withheld_events(skip, 2) for skip in (0, 2, 3)]
    assert [[each.seq for each in part] for part in parts] == [[1, 2], [3], []]


# Imports


def taken_over() -> World:
    made = world()
    made.send("alice", "Migrate", made.migrate("node"))
    return made


def held(store: Store, made: World, events: Sequence[Event] | None = None) -> None:
    """Import the log, again if the store has it."""
    take_in(store, events or made.events, "dave", store.load(made.state.enclave))


@pytest.mark.parametrize("keep", [True, False])
def test_an_import_that_brings_the_content_back_is_withheld_again(store: Store, keep: bool) -> None:
    host, made = Host(store), taken_over()
    held(store, made)
    event = made.events[6]
    statement = order(host, event, keep=keep)
    held(store, made)
    assert store.events(event.enclave, 6, 1) == [withhold(event, statement)]
    own = WithheldContent("four" if keep else None, "case 12")
    assert store.withheld_events(0, 10) == [WithheldEvent(event.enclave, 6, event.id, statement, own)]
    while not store.delete_orphans(1 << 50):
        pass
    assert is_clean(store)
    if keep:
        store.unwithhold(event.enclave, event.id)
        assert store.events(event.enclave, 6, 1) == [event]


def test_an_import_of_the_own_export_keeps_what_is_aside(store: Store) -> None:
    host, made = Host(store), taken_over()
    held(store, made)
    event = made.events[6]
    order(host, event)
    held(store, made, store.events(event.enclave, 0, 100))
    store.unwithhold(event.enclave, event.id)
    assert store.events(event.enclave, 6, 1) == [event]


def test_an_import_in_which_the_event_was_deleted_erases_what_is_aside(store: Store) -> None:
    host, made = Host(store), taken_over()
    held(store, made)
    event = made.events[6]
    order(host, event)
    made.send("bob", "Delete", {"reason": "author"}, tags=(("r", event.id.hex()),), node="node")
    held(store, made)
    assert store.events(event.enclave, 6, 1) == [erase(event)]
    assert store.withheld_events(0, 10) == []
    assert is_clean(store)


def test_a_statement_of_another_node_arrives_with_the_log(store: Store) -> None:
    made = taken_over()
    event = made.events[6]
    statement = sign_withheld(person("node2"), event.enclave, event.id, "abuse", START)
    events = [*made.events[:6], withhold(event, statement), *made.events[7:]]
    held(store, made, events)
    assert store.events(event.enclave, 0, 100)[6] == withhold(event, statement)
    assert store.withheld_events(0, 10) == [WithheldEvent(event.enclave, 6, event.id, statement, None)]
    assert is_clean(store)
