"""A node without sockets, and clients of it."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedError

from enc.client import ClientSettings, TimedOut, Unreachable
from enc.client.verify.pins import MemoryPins
from enc.core.errors import EventPending, MisuseError, Unauthorized
from enc.testing import Clock, Identities, LocalNetwork, LocalNode, local_node
from enc.testing.clock import START

ADA, BOB = Identities()["ada"], Identities()["bob"]


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a socket was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "bind", refuse)


def test_a_client_writes_and_reads() -> None:
    with local_node() as node, node.client(ADA) as ada, node.client(BOB) as bob:
        notes = ada.create("notes")
        notes.commit("note", "hello")
        assert [item.content for item in notes.query(type="note")] == ["hello"]
        with pytest.raises(Unauthorized):
            list(bob.enclave(notes.id).query())


def test_an_async_client_writes_reads_and_subscribes() -> None:
    async def run() -> list[str]:
        async with node.async_client(ADA) as client:
            notes = await client.create("notes")
            await notes.commit("note", "one")
            found = []
            async with notes.subscribe(type="note") as news:
                async for item in news:
                    found.append(item.content or "")
                    if len(found) == 2:
                        return found
                    await notes.commit("note", "two")
        return found

    with local_node() as node:
        assert asyncio.run(run()) == ["one", "two"]


def test_a_subscription_receives_stored_and_live_events() -> None:
    with local_node() as node, node.client(ADA) as ada:
        notes = ada.create("notes")
        notes.commit("note", "one")
        with notes.subscribe(type="note") as news:
            assert next(news).content == "one"
            notes.commit("note", "two")
            assert next(news).content == "two"


def test_only_the_test_advances_the_clock_of_nodes_and_clients() -> None:
    with local_node(network=LocalNetwork(Clock(START + 5))) as node, node.client(ADA) as ada:
        notes = ada.create("notes")
        note = notes.commit("note", "one")
        assert note.timestamp == START + 5
        with pytest.raises(EventPending):
            notes.proof(note.id, wait=False)
        node.tick(10_000)
        assert notes.proof(note.id, wait=False).status == "active"
        node.tick(30 * 86_400_000)
        assert notes.commit("note", "two").timestamp == START + 10_005 + 30 * 86_400_000


@pytest.mark.parametrize("ms", [1.5, -1, "1000"])
def test_the_clock_advances_by_whole_milliseconds(node: LocalNode, ms: Any) -> None:
    with pytest.raises(MisuseError, match="tick: expected milliseconds as an integer of at least 0, not "):
        node.tick(ms)
    assert node.network.now() == START
    assert node.network.monotonic() == Clock().monotonic


def test_a_client_that_waits_takes_no_time() -> None:
    with local_node() as node, node.client(ADA) as ada:
        notes = ada.create("notes")
        assert notes.proof(notes.commit("note", "one").id).status == "active"
        assert node.network.now() > START


def test_a_node_that_is_closed_cannot_be_reached() -> None:
    with local_node() as node, node.client(ADA, patience=100) as ada:
        notes = ada.create("notes")
        before = node.network.now()
        node.close()
        with pytest.raises(Unreachable):
            notes.commit("note", "one")
        assert node.network.now() - before > 90_000
        with pytest.raises((Unreachable, TimedOut)), notes.subscribe() as news:
            next(news)


def test_closing_a_node_ends_its_thread() -> None:
    with local_node() as node:
        pass
    node.close()
    assert not [each for each in threading.enumerate() if each.name == "enc-node.test"]


def test_a_folder_keeps_the_store(tmp_path: Path) -> None:
    with local_node(folder=tmp_path / "node") as node, node.client(ADA) as ada:
        ada.create("notes")
    assert (tmp_path / "node" / "enc.db").stat().st_size > 0


def test_a_folder_opens_again_as_the_same_node(tmp_path: Path) -> None:
    with local_node(folder=tmp_path / "node") as node, node.client(ADA) as ada:
        notes, key = ada.create("notes"), node.identity.public
        notes.commit("note", "one")
        node.tick(86_400_000)
        notes.commit("note", "two")
        registry, then = node.registry, node.network.now()
    assert (tmp_path / "node" / "node.key").stat().st_mode & 0o777 == 0o600
    with local_node(folder=tmp_path / "node") as node, node.client(ADA) as ada:
        assert node.identity.public == key
        assert node.network.now() == then
        notes = ada.enclave(notes.id)
        notes.commit("note", "three")
        assert [item.content for item in notes.query(type="note")] == ["one", "two", "three"]
        assert node.registry == registry


def test_an_enclave_moves_and_a_registry_finds_it(tmp_path: Path) -> None:
    with local_node("registry.test") as home, local_node("b.test", network=home.network) as new:
        registry, network = home.registry, home.network
        new.register(registry)
        with local_node("a.test", network=network) as old, old.client(ADA, registry=registry) as ada:
            old.register(registry)
            team = ada.create("team")
            team.register(app="test")
            team.commit("message", "one")
            team.migrate(new.url, tmp_path / "move")
        with network.client(None, ADA, registry=registry) as ada:
            team = ada.enclave(team.id)
            team.commit("message", "two")
            assert [item.content for item in team.query(type="message")] == ["one", "two"]
            assert ada.resolve(team.id).sequencer == new.identity.public


def test_a_client_keeps_its_own_settings() -> None:
    pins = MemoryPins()
    with local_node() as node, node.client(ADA, pins=pins, settings=ClientSettings(alg="ecdsa")) as ada:
        notes = ada.create("notes")
        assert notes.manifest().alg == "ecdsa"
        assert pins.load(notes.id) is not None


def test_a_client_writes_no_pins_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with local_node() as node, node.client(ADA) as ada:
        ada.create("notes").head()
    assert list(tmp_path.iterdir()) == []


def test_the_node_of_a_registry_is_registered_in_it() -> None:
    with local_node() as node, node.client(ADA, registry=node.registry) as ada:
        notes = ada.create("notes")
        notes.register(app="test")
        assert ada.resolve(notes.id).urls == (node.url,)


def test_a_subscription_notices_that_the_node_has_ended_it() -> None:
    with local_node() as node:
        line = node.network.connect("ws://node.test/")
        node.close()
        assert "shutting down" in line.recv(60)
        with pytest.raises(ConnectionClosedError):
            line.recv(60)


def test_an_async_connection_notices_that_the_node_has_ended_it() -> None:
    async def run() -> None:
        line = await node.network.async_connect("ws://node.test/")
        node.close()
        assert "shutting down" in await asyncio.wait_for(line.recv(), 60)
        with pytest.raises(ConnectionClosedError):
            await asyncio.wait_for(line.recv(), 60)

    with local_node() as node:
        asyncio.run(run())
