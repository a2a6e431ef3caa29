"""`enc migrate --all`: every enclave that an identity owns, from one node to another, or on after an interruption."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.cli.common import profiles
from enc.cli.common.exits import FAILED, MISUSE
from enc.client import Client, Identity
from enc.client.migration.journal import Journal
from tests.cli.enclave.test_migrate import cut_at
from tests.cli.people import Person
from tests.client.moved import Town, create_team, town


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town"), "a", "b", "c") as found:
        yield found


class Owner(Person):
    """A person with two enclaves at "a", one at "c", one that has ended, and membership in somebody else's at "a"."""

    def __init__(self, place: Town, home: Path) -> None:
        super().__init__(home)
        identity = Identity.new()
        self.key().parent.mkdir(parents=True)
        identity.save(self.key())
        a, c = place.nodes["a"].url, place.nodes["c"].url
        with Client(a, identity, pins=self.pins, registry=place.registry) as client, Client(a) as other:
            made = [create_team(client) for _ in range(3)]
            for team in made:
                team.commit("message", "one")
                team.register(app="test")
            made[2].proof(made[2].terminate().id)  # once its bundle is closed
            theirs = create_team(other)
            theirs.move(identity.public, "OUTSIDER", "MEMBER")
            client.enclave(theirs.id).commit("message", "as a member")
            self.own, self.ended, self.theirs = sorted(team.hex for team in made[:2]), made[2].hex, theirs.hex
        with Client(c, identity, pins=self.pins) as client:
            self.elsewhere = create_team(client).hex
        for name, value in {"node": a, "identity": str(self.key()), "registry": place.text}.items():
            profiles.store(self.config, "default", name, value)


@pytest.fixture
def owner(place: Town, tmp_path: Path) -> Owner:
    return Owner(place, tmp_path / "home")


def results(lines: list[dict[str, Any]]) -> dict[str, str]:
    return {line["enclave"]: line["result"] for line in lines if "result" in line}


def check_moved(place: Town, owner: Owner) -> None:
    for enclave in owner.own:
        receipt = owner.ask_json("commit", "message", "two", "--enclave", enclave)[0]
        assert receipt["sequencer"] == place.nodes["b"].seq_pub.hex()
    assert owner.ask_json("commit", "message", "x", "--enclave", owner.theirs)[0]["sequencer"] == (
        place.nodes["a"].seq_pub.hex()
    )
    assert not list((owner.home / ".local/share/enc/moves").iterdir())


def test_all_own_enclaves_move_and_no_others(place: Town, owner: Owner) -> None:
    found = owner.ask_json("migrate", "--all", "--to", place.nodes["b"].url)
    expected = dict.fromkeys(owner.own, "moved") | {owner.theirs: "not an owner", owner.ended: "terminated"}
    assert results(found) == expected
    assert found[-1] == {"moved": 2, "failed": 0}
    check_moved(place, owner)
    again = owner.ask_json("migrate", "--all", "--from", place.nodes["a"].url, "--to", place.nodes["b"].url)
    assert results(again) == {owner.theirs: "not an owner", owner.ended: "terminated"}


@pytest.mark.parametrize("step", ["sign", "migrate", "import", "verify"])
def test_after_an_interruption_the_same_command_goes_on(place: Town, owner: Owner, step: str) -> None:
    command = ("migrate", "--all", "--from", place.nodes["a"].url, "--to", place.nodes["b"].url)
    cut_at(owner, step, *command)
    found = owner.ask_json(*command)
    assert [results(found)[enclave] for enclave in owner.own] == ["moved", "moved"]
    check_moved(place, owner)


def test_one_that_cannot_move_does_not_stop_the_others(place: Town, owner: Owner) -> None:
    """Another process moves the first one at the moment."""
    folder, to = owner.home / ".local/share/enc/moves", place.nodes["b"]
    with Journal(folder, bytes.fromhex(owner.own[0]), to.seq_pub):
        done = owner.ask("migrate", "--all", "--to", to.url, "--json", code=FAILED)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert (results(found)[owner.own[0]], results(found)[owner.own[1]]) == ("failed", "moved")
    assert found[-1] == {"moved": 1, "failed": 1}
    (failure,) = [line["message"] for line in found if line.get("result") == "failed"]
    assert failure.endswith("another move of this enclave runs; wait for its end")


def test_wrong_use(place: Town, owner: Owner) -> None:
    b = place.nodes["b"].url
    for flags, why in (
        (["--all", owner.own[0]], "--all: moves the enclaves of a node that answers"),
        (["--from", b], "--from: only with --all"),
        (["--all", "--from", b], f"--to {b}: is the node that has the enclaves now"),
    ):
        assert owner.refused("migrate", *flags, "--to", b, code=MISUSE)["message"].startswith(why)
