"""The operator's orders to withhold contents, at a served node: what they change, and what they reject."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.errors import EncError, EnclaveNotFound, EventNotFound, MisuseError, ReadOnly
from enc.core.log.event import erase, withheld_by, withhold
from enc.core.log.withheld import sign_withheld
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event
from enc.node.ops.withholding import MAX_NOTE
from enc.node.store.damage import DamagedData
from enc.node.store.withheld_store import WithheldContent
from enc.runtime.unix_sockets.frame_server import Peer
from enc.testing.memory_store import MemoryStore
from tests.core.registry_world import REGISTRY, node_entry
from tests.core.world import START, person
from tests.node.imports.import_orders import moved
from tests.node.moving import archive_of, done, log_of, move
from tests.node.served import NODE, SMALL, Enclave, Json, Served

ROOT = Peer(1, 0)


class Stage:
    """A node with one enclave, in which `text` is event 1."""

    def __init__(self, node: Served, enclave: Enclave) -> None:
        self.node, self.enclave = node, enclave

    def ask(self, name: str, **params: Any) -> Any:
        return self.node.node.operations.perform(name, params, ROOT)

    def failure(self, name: str, **params: Any) -> EncError:
        with pytest.raises(EncError) as caught:
            self.ask(name, **params)
        return caught.value

    def withhold(self, seq: int = 1, reason: str = "court_order", **params: Any) -> Json:
        found: Json = self.ask("withhold", event=self.place(seq), reason=reason, **params)
        return found

    def place(self, seq: int = 1) -> str:
        return f"{self.enclave.id.hex()}/{seq}"

    def event(self, seq: int = 1) -> Event:
        (event,) = self.node.store.events(self.enclave.id, seq, 1)
        return event


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Served() as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "unlawful")
        yield Stage(node, enclave)


def test_the_node_states_reason_and_time_and_keeps_the_content_aside(stage: Stage) -> None:
    found = stage.withhold(note="case 12/34")
    event = stage.event()
    assert event.content is None
    statement = withheld_by(event, [NODE.public])
    assert statement is not None
    assert (statement.reason, statement.ts) == ("court_order", stage.node.clock.now)
    assert found == {
        "enclave": stage.enclave.id.hex(),
        "seq": 1,
        "id": event.id.hex(),
        "reason": "court_order",
        "since": statement.ts,
        "node": NODE.public.hex(),
        "content": "kept",
        "note": "case 12/34",
    }
    assert stage.ask("withheld") == [found]
    assert stage.ask("withheld", skip=1) == []


def test_queries_and_exports_show_the_statement(stage: Stage) -> None:
    stage.withhold()
    event = stage.event()
    (item,) = stage.enclave.ask("alice", "Query", filter={"type": "message"})["events"]
    assert item["event"]["content"] is None
    assert item["event"]["withheld"]["reason"] == "court_order"
    assert log_of(stage.enclave)[1] == event


def test_it_is_shown_again(stage: Stage) -> None:
    before = stage.event()
    stage.withhold()
    stage.ask("unwithhold", event=before.id.hex())
    assert stage.event() == before
    assert stage.ask("withheld") == []


def test_an_event_is_named_by_its_id_or_its_place(stage: Stage) -> None:
    by_id = stage.ask("withhold", event=stage.event().id.hex(), reason="abuse")
    assert stage.ask("unwithhold", event=stage.place()) == {key: by_id[key] for key in ("enclave", "seq", "id")}


@pytest.mark.parametrize(
    ("params", "kind", "why"),
    [
        ({"event": "7"}, MisuseError, "neither an event's id (64 hex digits) nor ENCLAVE/SEQ"),
        ({"event": "00" * 32}, EventNotFound, "no enclave on this node has the event 00"),
        ({"event": f"{'00' * 32}/1"}, EventNotFound, "this node has no enclave 00"),
        ({"reason": "boredom"}, MisuseError, "reason: 'boredom' is not one of illegal, court_order"),
        ({"note": "x" * (MAX_NOTE + 1)}, MisuseError, "note: over 1000 characters"),
    ],
)
def test_wrong_parameters(stage: Stage, params: Json, kind: type[EncError], why: str) -> None:
    error = stage.failure("withhold", **{"event": stage.place(), "reason": "abuse", **params})
    assert isinstance(error, kind)
    assert why in error.message
    assert stage.event().content == "unlawful"


def test_only_content_events_and_updates_can_be_withheld(stage: Stage) -> None:
    error = stage.failure("withhold", event=stage.place(0), reason="abuse")
    assert "event 0 is a Manifest" in error.message
    assert f"enc node suspend {stage.enclave.id.hex()}" in error.message
    stage.enclave.send("bob", "Update", "also unlawful", ("r", stage.event().id.hex()))
    assert stage.withhold(2)["content"] == "kept"


def test_an_entry_of_a_registry_cannot_be_withheld(stage: Stage) -> None:
    registry = stage.node.create(REGISTRY)
    registry.send("node", "Reg_Node", compact_json(node_entry("node")))
    error = stage.failure("withhold", event=f"{registry.id.hex()}/1", reason="abuse")
    assert "is a Reg_Node" in error.message


def test_an_erased_content_cannot_be_withheld(stage: Stage) -> None:
    stage.enclave.send("bob", "Delete", {"reason": "author"}, ("r", stage.event().id.hex()))
    assert "erased already" in stage.failure("withhold", event=stage.place(), reason="abuse").message
    assert "not withheld" in stage.failure("unwithhold", event=stage.place()).message


def test_the_reason_may_change_and_the_time_stays(stage: Stage) -> None:
    since = stage.withhold(note="first")["since"]
    assert "withheld already, since" in stage.failure("withhold", event=stage.place(), reason="court_order").message
    stage.node.clock.tick(5000)
    found = stage.withhold(reason="copyright")
    assert (found["reason"], found["since"], found["note"], found["content"]) == ("copyright", since, "first", "kept")
    stage.ask("unwithhold", event=stage.place())
    assert stage.event().content == "unlawful"


def test_a_destroyed_content_does_not_come_back(stage: Stage) -> None:
    stage.withhold()
    assert stage.withhold(destroy=True)["content"] == "destroyed"
    assert "was destroyed" in stage.failure("unwithhold", event=stage.place()).message
    assert (
        "withheld already" in stage.failure("withhold", event=stage.place(), reason="court_order", destroy=True).message
    )
    assert withheld_by(stage.event(), [NODE.public]) is not None


def test_a_content_kept_aside_that_was_changed_is_not_shown(stage: Stage) -> None:
    stage.withhold()
    store = stage.node.store
    assert isinstance(store, MemoryStore)
    store._all[stage.enclave.id].withheld[1] = WithheldContent("lawful", "")
    error = stage.failure("unwithhold", event=stage.place())
    assert isinstance(error, DamagedData)
    assert "enc node fsck" in error.message


def test_a_purged_enclave_has_no_contents(stage: Stage) -> None:
    event_id = stage.event().id.hex()
    stage.withhold()
    stage.enclave.send("alice", "Terminate", "")
    stage.node.node.sequencer.call(lambda: stage.node.store.purge(stage.enclave.id)).result()
    assert isinstance(stage.failure("withhold", event=stage.place(), reason="abuse"), EnclaveNotFound)
    assert "is purged" in stage.failure("unwithhold", event=event_id).message
    assert stage.ask("withheld") == []


class RestoredStore(MemoryStore):
    def restored(self) -> str:
        return "a copy"


def test_a_restored_node_states_nothing() -> None:
    with Served(store=RestoredStore()) as node, pytest.raises(ReadOnly):
        node.node.operations.perform("withhold", {"event": "00" * 32, "reason": "abuse"}, ROOT)


# Moves


def test_the_statement_moves_with_the_log_and_the_next_node_has_no_copy(stage: Stage) -> None:
    stage.withhold()
    with Served(key=person("node2")) as other:
        there = Stage(other, move(stage.enclave, other))
        assert there.event() == stage.event()
        (found,) = there.ask("withheld")
        assert (found["content"], found["node"]) == ("absent", NODE.public.hex())
        for name, params in (("unwithhold", {}), ("withhold", {"reason": "abuse"})):
            assert "this node has no copy" in there.failure(name, event=there.place(), **params).message
        assert log_of(there.enclave)[1] == stage.event()


def by(name: str, event: Event) -> Event:
    return withhold(event, sign_withheld(person(name), event.enclave, event.id, "abuse", START))


def test_an_import_keeps_the_statement_of_the_old_node() -> None:
    made = moved()
    events = [*made.events[:6], by("node2", made.events[6]), *made.events[7:]]
    with Served() as node:
        done(node, events[-1], archive=archive_of(events))
        assert node.store.events(made.state.enclave, 6, 100) == events[6:]


def test_an_import_drops_a_statement_that_nobody_signed() -> None:
    """Beside a content that is erased anyway, a statement need not count."""
    made = moved()
    signed = by("node2", made.events[7])
    assert signed.withheld is not None
    forged = replace(signed, withheld=replace(signed.withheld, reason="illegal"))
    events = [*made.events[:7], forged, *made.events[8:]]
    with Served() as node:
        done(node, events[-1], archive=archive_of(events))
        assert node.store.events(made.state.enclave, 7, 1) == [erase(forged)]
