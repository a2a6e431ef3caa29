"""The node's statement, and what its operator starts, stops and reads by the control socket."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.client import Client, Identity
from enc.core.errors import InvalidQuery, MisuseError, Unavailable
from enc.core.registry.evacuation import check_evacuation, parse_evacuation
from enc.node.evacuation import report
from enc.node.evacuation.owners import owners
from enc.node.evacuation.statement import EvacuationStatement
from enc.testing.clock import Clock
from tests.core.world import person, pub
from tests.node.evacuation.leaving import NEW, OLD, group, pair, perform
from tests.node.moving import migrate_commit, move
from tests.node.served import DEV, Served

URL = "https://new.example"


def start(node: Served, to: str = URL, **params: Any) -> Any:
    return perform(node, "evacuate", to=to, to_key=NEW.public.hex(), source="https://old.example", **params)


def results(node: Served) -> dict[str, str]:
    return {each.enclave: each.result for each in perform(node, "evacuation")["enclaves"]}


@pytest.fixture
def old(tmp_path: Path) -> Any:
    with Served(replace(DEV, data=str(tmp_path)), key=OLD) as node:
        yield node


def test_the_node_states_it_in_its_info(old: Served) -> None:
    assert old.get("/info").json()["evacuation"] is None
    started = start(old, deadline=old.clock.now + 1000)
    shown = old.get("/info").json()["evacuation"]
    assert shown == started
    found = parse_evacuation(old.get("/info").content.partition(b'"evacuation":')[2].partition(b"}")[0] + b"}")
    check_evacuation(found, OLD.public)
    assert (found.to, found.to_key, found.since) == (URL, NEW.public, old.clock.now)
    assert perform(old, "stop-evacuation") == {"stopped": True}
    assert perform(old, "stop-evacuation") == {"stopped": False}
    assert old.get("/info").json()["evacuation"] is None


def test_a_restart_keeps_the_statement(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "evacuation.json"
    first = EvacuationStatement(path, OLD, lambda: clock.now)
    stated = first.start(URL, NEW.public, "https://old.example")
    again = EvacuationStatement(path, OLD, lambda: clock.now)
    assert (again.current, again.source) == (stated, "https://old.example")
    clock.tick(1000)
    assert again.start(URL + "/b", NEW.public, "https://old.example").since == stated.since
    assert again.start(URL, person("carol").public, "https://old.example").since == clock.now
    assert EvacuationStatement(path, person("carol"), lambda: clock.now).current is None  # not its own
    path.write_bytes(b"{")
    assert EvacuationStatement(path, OLD, lambda: clock.now).current is None


def test_a_statement_whose_file_cannot_be_removed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = EvacuationStatement(tmp_path / "evacuation.json", OLD, lambda: 1000)
    stated = statement.start(URL, NEW.public, "https://old.example")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        with pytest.raises(Unavailable, match="cannot be removed: Read-only"):
            statement.stop()
    assert statement.current == stated  # as after a restart
    assert statement.stop()


def test_what_cannot_be_stated(old: Served) -> None:
    for wrong in ("new.example", "https://new.example/ x"):
        with pytest.raises(MisuseError, match=f"^--to {wrong}: endpoint: "):
            start(old, wrong)
    with pytest.raises(MisuseError, match="in the past"):
        start(old, deadline=1)
    with pytest.raises(InvalidQuery, match="to_key"):
        perform(old, "evacuate", to=URL, to_key="12", source=URL)
    with pytest.raises(MisuseError, match="the node itself"):
        perform(old, "evacuate", to=URL, to_key=OLD.public.hex(), source=URL)
    with pytest.raises(MisuseError, match="--source"):
        perform(old, "evacuate", to=URL, to_key=NEW.public.hex())
    assert old.get("/info").json()["evacuation"] is None


def test_a_url_that_the_node_must_not_call_is_named(tmp_path: Path) -> None:
    with Served(replace(DEV, dev=False, data=str(tmp_path)), key=OLD) as node:
        with pytest.raises(MisuseError, match=r"^--to http://new.example: .*; endpoints.allow_private permits http"):
            start(node, "http://new.example")
        with pytest.raises(MisuseError, match=r"^--source http://old.example: .*; endpoints.allow_private permits"):
            perform(node, "evacuate", to=URL, to_key=NEW.public.hex(), source="http://old.example")


def test_a_restored_node_is_not_evacuated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from enc.testing.memory_store import MemoryStore

    monkeypatch.setattr(MemoryStore, "restored", lambda self: "a backup")
    with Served(replace(DEV, data=str(tmp_path)), key=OLD) as node, pytest.raises(MisuseError, match="restored"):
        start(node)


def test_the_report_names_each_enclave_once(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        moved, elsewhere, ended, left = (group(nodes.old, 1) for _ in range(4))
        move(moved, nodes.new)
        with Served(replace(DEV, data=str(tmp_path)), clock=nodes.old.clock, key=person("carol")) as third:
            nodes.old.submit(migrate_commit(elsewhere, third))
        ended.send("alice", "Terminate")
        perform(nodes.old, "evacuate", to=nodes.new.url, to_key=NEW.public.hex(), source=nodes.old.url)
        found = results(nodes.old)
        assert found.pop(left.id.hex()) in ("cold", "copying", "warm")
        wanted = {moved: "moved", elsewhere: "elsewhere", ended: "terminated"}
        assert found == {enclave.id.hex(): result for enclave, result in wanted.items()}
        first = perform(nodes.old, "evacuation", limit=3)
        rest = perform(nodes.old, "evacuation", after=first["enclaves"][-1].enclave)
        assert (len(first["enclaves"]), first["more"], len(rest["enclaves"]), rest["more"]) == (3, True, 1, False)


def test_a_page_of_the_report_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other operations, such as a ban, wait meanwhile."""
    monkeypatch.setattr(report, "PAGE_S", 0.0)
    with pair(tmp_path) as nodes:
        ids, after = sorted(group(nodes.old, 1).id.hex() for _ in range(3)), ""
        for expected in ids:
            page = perform(nodes.old, "evacuation", after=after)
            assert ([each.enclave for each in page["enclaves"]], page["more"]) == ([expected], True)
            after = expected
        page = perform(nodes.old, "evacuation", after=after)
        assert (page["enclaves"], page["more"]) == ([], False)


def test_copies_are_ordered_and_the_report_says_how_far_they_are(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        enclave = group(nodes.old)
        nodes.evacuate()
        orders = nodes.old.node.copy_orders
        nodes.old.run(orders.round)
        nodes.new.until(lambda: nodes.new.node.warm_copies.counts["warm"] == 1)
        nodes.old.run(orders.round)
        assert results(nodes.old) == {enclave.id.hex(): "warm"}
        enclave.send("bob", "message", "more")
        (found,) = perform(nodes.old, "evacuation")["enclaves"]
        assert (found.behind, found.owners) == (1, [pub("alice")])
        perform(nodes.old, "stop-evacuation")
        nodes.old.run(orders.round)
        assert nodes.new.node.warm_copies.counts["warm"] == 0


def test_the_report_says_why_there_are_no_copies(tmp_path: Path) -> None:
    with pair(tmp_path, ahead_from=()) as nodes:
        enclave = group(nodes.old)
        nodes.evacuate()
        nodes.old.run(nodes.old.node.copy_orders.round)
        problem = perform(nodes.old, "evacuation")["problem"]
        assert problem.startswith(f"the destination {nodes.new.url}: it refuses: UNAUTHORIZED: ")
        assert "imports.ahead_from" in problem
        assert results(nodes.old) == {enclave.id.hex(): "cold"}


def test_a_destination_with_another_key_makes_no_copies(tmp_path: Path) -> None:
    with pair(tmp_path) as nodes:
        group(nodes.old)
        nodes.old.node.statement.start(nodes.new.url, person("carol").public, nodes.old.url)
        nodes.old.run(nodes.old.node.copy_orders.round)
        assert "to_key: the order is for the node" in perform(nodes.old, "evacuation")["problem"]


def test_owners_are_found_by_the_log(old: Served) -> None:
    enclave = group(old)
    state = old.store.load(enclave.id)
    assert state is not None
    assert owners(old.store, state) == [person("alice").public]
    enclave.send("alice", "Transfer", {"target": pub("bob"), "trait": "owner"})
    state = old.store.load(enclave.id)
    assert state is not None
    assert owners(old.store, state) == [person("bob").public]


def test_clients_show_what_the_node_signed_and_nothing_else(old: Served) -> None:
    start(old)
    with Client(old.url, Identity.new(), pins=None) as client:
        assert client.evacuations == {}
        client.seq_pub()
        assert client.evacuations[OLD.public].to == URL
    good = old.node.statement.current
    assert good is not None
    for wrong in (replace(good, to="https://evil.example"), replace(good, node=NEW.public)):
        old.node.statement.current = wrong
        with Client(old.url, Identity.new(), pins=None) as client:
            client.seq_pub()
            assert client.evacuations == {}
