"""Enclaves of version 1 between real nodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.client import Client, Identity
from enc.client.enclave.backup import summarise
from enc.core.machine.archive import read_archive
from tests.client.moved import Town, town
from tests.core.world_v1 import manifest, row


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b", "c") as found:
        yield found


SCHEMA = [
    row("Grant", "Owner", "C", "Member"),
    *(row(type_, "Owner", "C") for type_ in ("Transfer_Owner", "Pause", "Resume", "Terminate")),
    row("message", "Member", "C"),
    row("*", "Member", "R"),
    row("*", "Owner", "R"),
]


def create_v1(client: Client, *members: Identity) -> Any:
    me = client.identity.hex
    return client.create(
        manifest(
            SCHEMA,
            {"Owner": [me], "Member": [me, *(each.hex for each in members)]},
            bundle={"size": 4, "timeout": 200},
            meta={"n": Identity.new().hex},
        )
    )


def seqs(place: Town, names: str) -> list[bytes]:
    return [place.nodes[name].seq_pub for name in names]


def test_peaceful(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_v1(mine, bob)
        assert team.register(app="v1") is not None
        theirs = his.enclave(team.id)
        theirs.commit("message", "at a")
        heard = theirs.subscribe(type="message")
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert theirs.commit("message", "at b").sequencer == place.nodes["b"].seq_pub
        assert [next(heard).content, next(heard).content] == ["at a", "at b"]
        heard.close()
        assert mine.resolve(team.id, fresh=True).sequencer == place.nodes["b"].seq_pub
        team.archive(tmp_path / "x.enc")
        assert [k for k, _ in summarise(*read_archive([(tmp_path / "x.enc").read_bytes()])).header.sequencers] == seqs(
            place, "ab"
        )


def test_forced(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_v1(mine, bob)
        assert team.register(app="v1") is not None
        theirs = his.enclave(team.id)
        theirs.commit("message", "at a")
        theirs.head()
        team.archive(tmp_path / "copy.enc")
    with place.client(alice, "b") as mine, place.client(bob) as his:  # as `enc migrate --force` does
        team = mine.enclave(team.id)
        team.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
        assert his.enclave(team.id).commit("message", "at b").sequencer == place.nodes["b"].seq_pub
        assert mine.resolve(team.id, fresh=True).sequencer == place.nodes["b"].seq_pub
        team.archive(tmp_path / "x.enc")
        assert [k for k, _ in summarise(*read_archive([(tmp_path / "x.enc").read_bytes()])).header.sequencers] == seqs(
            place, "ab"
        )


def test_transfer(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_v1(mine, bob)
        assert team.register(app="v1") is not None
        team.head()
        team.transfer(bob.public, "Owner")
        theirs = his.enclave(team.id)
        assert theirs.register() is not None


def test_transfer_then_forced(place: Town, tmp_path: Path) -> None:
    alice, bob = Identity.new(), Identity.new()
    with place.client(alice, "a") as mine, place.client(bob, "a") as his:
        team = create_v1(mine, bob)
        for n in range(8):
            team.commit("message", f"{n}")
        team.head()
        team.transfer(bob.public, "Owner")
        theirs = his.enclave(team.id)
        theirs.register()
        theirs.archive(tmp_path / "copy.enc")
        theirs.migrate(place.nodes["b"].url, tmp_path / "moves", archive=tmp_path / "copy.enc")
    with place.client(alice, "b") as mine:
        assert mine.enclave(team.id).commit("message", "x")


def test_personal(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a") as mine:
        team = mine.create("personal-v1")
        team.commit("public", "x")
        team.head()
        team.register()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        assert team.commit("public", "x")


def test_personal_unregistered(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a", registry=None) as mine:
        team = mine.create("personal-v1")
        team.commit("public", "x")
        team.head()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
    with place.client(alice, "b", registry=None) as mine:
        assert mine.enclave(team.id).commit("public", "x")


def test_paused(place: Town, tmp_path: Path) -> None:
    alice = Identity.new()
    with place.client(alice, "a") as mine:
        team = create_v1(mine)
        gone = team.commit("message", "x")
        team.pause()
        team.migrate(place.nodes["b"].url, tmp_path / "moves")
        team.resume()
        assert team.commit("message", "at b").sequencer == place.nodes["b"].seq_pub
        team.migrate(place.nodes["a"].url, tmp_path / "moves")
        assert team.commit("message", "home").sequencer == place.nodes["a"].seq_pub
        assert [item.content for item in team.query(type="message")] == ["x", "at b", "home"]
        assert team.proof(gone.id).status == "active"
