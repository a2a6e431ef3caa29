"""Owners who leave a node that is evacuated, with real nodes: with copies, without, and elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.client import Client, ForeignSequencer, Identity
from enc.client.enclave.templates import template
from enc.node.control.client import call
from tests.node.running import RunningNode

TRIES = 60_000
MESSAGES = 3000


class House:
    """A node that is evacuated, its destination, and clients."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.old = RunningNode(home / "old")
        self.new = self.start_new()

    def start_new(self) -> RunningNode:
        return RunningNode(self.home / "new", env={"ENC_NODE_IMPORTS_AHEAD_FROM": self.old.seq_pub.hex()})

    def client(self, who: Identity) -> Client:
        return Client(self.old.url, who, pins=self.home / who.hex, patience=30)

    def create(self, client: Client, messages: int) -> Any:
        manifest = {**template("log", client.identity.public), "meta": {"nonce": Identity.new().hex[:16]}}
        enclave = client.create(manifest)
        for first in range(0, messages, 1000):
            names = [f"message {n}" for n in range(first, min(first + 1000, messages))]
            enclave.send_many([enclave.prepare("entry", name) for name in names])
        return enclave

    def evacuate(self, to: str = "", key: bytes = b"") -> None:
        to_key = (key or self.new.seq_pub).hex()
        call(self.old.data, "evacuate", {"to": to or self.new.url, "to_key": to_key, "source": self.old.url})

    def results(self) -> dict[str, str]:
        found = call(self.old.data, "evacuation")["enclaves"]
        return {
            each["enclave"]: "behind" if each["result"] == "warm" and each.get("behind") else each["result"]
            for each in found
        }

    def wait(self, enclave: Any, result: str = "warm") -> None:
        for _ in range(TRIES):
            if self.results()[enclave.hex] == result:
                return
        raise AssertionError(call(self.old.data, "evacuation"))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    found = House(tmp_path)
    with found.old:
        try:
            yield found
        finally:
            found.new.stop()


def test_an_owner_moves_with_the_copy_of_the_destination(house: House) -> None:
    alice, bob = Identity.new(), Identity.new()
    with house.client(alice) as mine, house.client(bob) as his:
        large, small = house.create(mine, MESSAGES), house.create(his, 3)
        house.evacuate()
        for enclave in (large, small):
            house.wait(enclave)
        large.commit("entry", "after the copy")
    with house.client(alice) as mine:
        steps = dict[str, str]()
        enclave = mine.enclave(large.id)
        moved = enclave.migrate(house.new.url, house.home / "moves", tell=lambda step, what: steps.update({step: what}))
        assert steps["copy"] == f"{MESSAGES + 2} events, copied ahead by {house.new.url}"
        assert moved.sequencer == house.new.seq_pub
        assert enclave.commit("entry", "at the new node").sequencer == house.new.seq_pub
        assert sum(1 for _ in enclave.query(type="entry")) == MESSAGES + 2
    assert house.results() == {large.hex: "moved", small.hex: "warm"}
    assert not list((house.home / "moves").iterdir())


def test_the_copy_follows_a_restart_of_the_destination(house: House) -> None:
    with house.client(Identity.new()) as mine:
        enclave = house.create(mine, 500)
        house.evacuate()
        house.wait(enclave)
        house.new.kill()
        house.new = house.start_new()  # at another address: the operator gives the command again
        house.evacuate()
        enclave.commit("entry", "while it was away")
    with house.client(mine.identity) as again:
        house.wait(enclave)
        steps = dict[str, str]()
        again.enclave(enclave.id).migrate(
            house.new.url, house.home / "moves", tell=lambda step, what: steps.update({step: what})
        )
        assert "copied ahead" in steps["copy"]


def test_an_owner_may_move_elsewhere(house: House) -> None:
    with RunningNode(house.home / "third") as third, house.client(Identity.new()) as mine:
        enclave = house.create(mine, 20)
        house.evacuate()
        house.wait(enclave)
        moved = enclave.migrate(third.url, house.home / "moves")
        assert moved.sequencer == third.seq_pub
        assert house.results() == {enclave.hex: "elsewhere"}


def test_without_a_copy_the_move_is_an_ordinary_one(house: House) -> None:
    with RunningNode(house.home / "third") as third:
        with house.client(Identity.new()) as mine:
            enclave = house.create(mine, 20)
        house.evacuate(third.url, third.seq_pub)  # its operator has allowed nothing
        house.wait(enclave, "cold")
        with house.client(mine.identity) as again:
            steps = dict[str, str]()
            enclave = again.enclave(enclave.id)
            enclave.migrate(third.url, house.home / "moves", tell=lambda step, what: steps.update({step: what}))
        assert steps["copy"] == "21 events, replayed"


def test_a_destination_with_another_key_is_refused(house: House) -> None:
    with house.client(Identity.new()) as mine:
        enclave = house.create(mine, 3)
        house.evacuate(key=Identity.new().public)
    with house.client(mine.identity) as again:
        enclave = again.enclave(enclave.id)
        with pytest.raises(ForeignSequencer, match="nothing was moved"):
            enclave.migrate(house.new.url, house.home / "moves")
        assert enclave.commit("entry", "still here").sequencer == house.old.seq_pub
