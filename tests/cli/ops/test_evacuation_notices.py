"""Notices to the owners of an evacuated node's enclaves: sent once, and what their owners see."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.cli.ops import evacuation_notices
from enc.cli.ops.evacuation_notices import Holding, OwnerNotifier, holdings
from enc.client import Client
from enc.client.enclave.templates import template
from tests.cli.me.devices import identity_of
from tests.cli.ops.node_command import enc, failure
from tests.cli.people import AT_ONCE, Person, with_key
from tests.client.moved import Town, introduce, town
from tests.node.running import RunningNode

pytestmark = pytest.mark.usefixtures("plain_environment")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Yield a registry, the destination and another node."""
    with town(tmp_path_factory.mktemp("town"), "new", "far") as found:
        yield found


@pytest.fixture
def old(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "old") as node:
        yield node


@pytest.fixture
def ada(old: RunningNode, tmp_path: Path) -> Person:
    """Return an owner with a personal store on the node and no registry."""
    ada = with_key(tmp_path / "ada", old.url)
    ada.ask("me", "create")
    return ada


def evacuate(old: RunningNode, *flags: str) -> dict[str, Any]:
    """Run the command; return the report of each owner."""
    done = enc("evacuate", "--data", old.data, "--json", *flags)
    assert done.exit_code == 0, done.stderr
    return {each["owner"]: each for each in json.loads(done.stdout)["owners"]}


def start(old: RunningNode, place: Town, *flags: str) -> dict[str, Any]:
    return evacuate(old, "--to", place.nodes["new"].url, "--source", old.url, *flags)


def results(owners: dict[str, Any]) -> dict[str, str]:
    return {owner: each["result"] for owner, each in owners.items()}


def test_owners_with_a_store_here_and_elsewhere_are_notified_once(
    old: RunningNode, ada: Person, place: Town, tmp_path: Path
) -> None:
    introduce(place, old)
    bob = with_key(tmp_path / "bob", place.nodes["far"].url, place.text)
    bob.ask("me", "create", "--name", "Bob")
    for number in range(2):
        manifest = json.dumps({**_log(identity_of(bob)), "meta": {"n": number}})
        (tmp_path / "log.json").write_text(manifest)
        (made,) = bob.ask_json("enclave", "create", str(tmp_path / "log.json"), "--node", old.url)
        bob.ask("registry", "register-enclave", "--enclave", made["enclave"], "--node", old.url)
    until, registry = ("--deadline", "2100-01-01T00:00Z"), ("--registry", place.text)
    owners, at = [identity_of(ada), identity_of(bob)], place.nodes["new"].url
    first = start(old, place, *until, *registry)
    assert results(first) == dict.fromkeys(owners, "notified")
    assert [first[owner]["enclaves"] for owner in owners] == [1, 2]
    for what, person in (("your enclave", ada), ("your 2 enclaves", bob)):
        (found,) = person.ask_json("me", "notices")
        assert (found["state"], found["reason"], found["author"]) == ("confirmed", "", old.seq_pub.hex())
        assert (found["claims"]["kind"], found["claims"]["inviter"]) == ("x-evacuation", old.seq_pub.hex())
        request = (
            f"This node asks you to move {what} to another node by 2100-01-01T00:00:00Z: enc migrate --all --to {at}"
        )
        assert found["text"] == f"the node with the key {old.seq_pub.hex()} says: {request}"
        assert found["text"] in person.ask("me", "notices").stdout
    assert start(old, place, *until, *registry) == evacuate(old, "--status", "--notify", *registry) == first
    for person in (ada, bob):
        assert len(person.ask_json("me", "notices", "--all")) == 1
    text = enc("evacuate", "--data", old.data).stdout
    assert f"owner {owners[1]}  2 here; notified at 20" in text


def _log(owner: str) -> dict[str, Any]:
    return {**template("log", bytes.fromhex(owner)), "bundle": AT_ONCE}


def test_a_restart_keeps_who_was_notified(old: RunningNode, ada: Person, place: Town) -> None:
    before = start(old, place)
    assert results(before) == {identity_of(ada): "notified"}
    old.stop()
    with RunningNode(old.data, "--port", old.url.rpartition(":")[2]) as again:
        assert evacuate(again, "--status", "--notify") == before
        assert len(ada.ask_json("me", "notices")) == 1


def test_a_closed_gate_is_reported_and_tried_again(old: RunningNode, ada: Person, place: Town) -> None:
    ada.ask("me", "gate", "closed")
    assert results(start(old, place)) == {identity_of(ada): "closed"}
    text = enc("evacuate", "--data", old.data, "--status").stdout
    assert "1 here; not notified: the owner's personal store accepts no notices" in text
    ada.ask("me", "gate", "open")
    assert results(evacuate(old, "--status")) == {identity_of(ada): "closed"}
    assert results(evacuate(old, "--status", "--notify")) == {identity_of(ada): "notified"}
    assert len(ada.ask_json("me", "notices")) == 1


def test_an_owner_without_a_store_is_notified_once_there_is_one(old: RunningNode, place: Town, tmp_path: Path) -> None:
    owner = with_key(tmp_path / "carol", old.url)
    owner.ask("enclave", "create", "log")
    assert results(start(old, place, "--no-notify")) == {identity_of(owner): "waiting"}
    assert "1 here; not notified yet: --status --notify" in enc("evacuate", "--data", old.data).stdout
    assert results(evacuate(old, "--notify")) == {identity_of(owner): "no_store"}
    assert "1 here; not notified: no personal store found" in enc("evacuate", "--data", old.data).stdout
    owner.ask("me", "create")
    assert results(evacuate(old, "--notify")) == {identity_of(owner): "notified"}


def test_nothing_is_sent_while_the_registry_does_not_answer(
    old: RunningNode, ada: Person, place: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(evacuation_notices, "PATIENCE_S", 0.0)
    other = with_key(tmp_path / "other", old.url)
    other.ask("me", "create")
    nowhere = f"http://127.0.0.1:1#{'ab' * 32}"
    found = start(old, place, "--registry", nowhere)
    assert results(found) == dict.fromkeys((identity_of(ada), identity_of(other)), "failed")
    assert sorted("did not answer before" in each["reason"] for each in found.values()) == [False, True]
    assert all("127.0.0.1:1" in each["reason"] for each in found.values())
    text = enc("evacuate", "--data", old.data).stdout
    assert "not notified: failed at 20" in text
    assert "cannot reach http://127.0.0.1:1" in text
    assert set(results(evacuate(old, "--notify")).values()) == {"notified"}


def test_no_node_with_a_private_address_is_called_unless_the_settings_allow_it(
    old: RunningNode, place: Town, tmp_path: Path
) -> None:
    bob = with_key(tmp_path / "bob", place.nodes["far"].url, place.text)
    bob.ask("me", "create", "--name", "Bob")
    bob.ask("enclave", "create", "log", "--node", old.url)
    start(old, place, "--no-notify")
    held = Holding(identity_of(bob), 1, "ab" * 32)
    with Client(old.url, pins=None, registry=place.registry) as client:
        found = OwnerNotifier(old.data, client, allow_private=False).notify(held)
    assert (found["result"], found["reason"]) == ("failed", "endpoint: the scheme must be https")
    assert results(evacuate(old, "--notify", "--registry", place.text)) == {identity_of(bob): "notified"}


def test_a_notice_that_was_sent_but_not_recorded_is_not_a_second_one(
    old: RunningNode, ada: Person, place: Town
) -> None:
    start(old, place, "--no-notify")
    store = ada.ask_json("me", "show")[0]["enclave"]
    held = Holding(identity_of(ada), 1, store, store)
    with Client(old.url, pins=None) as client:
        for _ in range(2):
            assert OwnerNotifier(old.data, client, allow_private=True).notify(held)["result"] == "notified"
    assert results(evacuate(old, "--notify")) == {identity_of(ada): "notified"}
    assert len(ada.ask_json("me", "notices", "--all")) == 1


def test_a_store_that_has_moved_to_the_destination_is_found(old: RunningNode, ada: Person, place: Town) -> None:
    ada.ask("enclave", "create", "log")
    store = ada.ask_json("me", "show")[0]["enclave"]
    start(old, place, "--no-notify")
    ada.ask("migrate", store, "--to", place.nodes["new"].url)
    assert results(evacuate(old, "--notify")) == {identity_of(ada): "notified"}


def test_the_newest_store_counts_and_is_named_if_it_is_here() -> None:
    def report(enclave: str, created: int, owners: tuple[str, ...] = ("a",)) -> dict[str, Any]:
        return {"enclave": enclave, "owners": owners, "store_of": "a", "created": created}

    log = {"enclave": "log", "owners": ("a", "b")}
    first, second = report("first", 1), report("second", 2)
    for reports in ([log, first, second], [second, first, log]):
        assert {each.owner: each for each in holdings(reports)} == {
            "a": Holding("a", 3, "second", "second", 2),
            "b": Holding("b", 1, "log"),
        }
    assert holdings([log, report("gone", 2, owners=())])[0] == Holding("a", 1, "log", "gone", 2)
    assert holdings([report("gone", 2, owners=())]) == []


def test_wrong_use(old: RunningNode) -> None:
    data = ("--data", old.data)
    assert failure(enc("evacuate", *data, "--stop", "--notify")) == "--notify: not with --stop"
    assert "no evacuation is going on" in failure(enc("evacuate", *data, "--notify"))
    assert "registry: expected URL#ID" in failure(enc("evacuate", *data, "--to", old.url, "--registry", "x"))
