"""`enc audit`: archives, folders, heads, nodes, a registry; its exit codes; evidence that `enc verify` explains."""

import json
from pathlib import Path

import pytest

from enc.bench.fleet import generate
from enc.client import Identity
from tests.cli.people import Person
from tests.client.moved import town

HERE = ("--master", "here")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleets") / "planted"
    generate(out, enclaves=6, events=400, seed=3, plants=["gap", "equivocation", "altered_content"])
    return out


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleets") / "clean"
    generate(out, enclaves=3, events=120, seed=4)
    return out


def test_a_clean_fleet(anybody: Person, clean: Path) -> None:
    (found,) = anybody.tell("audit", clean, *HERE)
    assert (found["clean"], found["complete"], found["findings"], found["enclaves"]) == (True, True, [], 3)
    assert found["checked"]["events_verified"] == 120
    assert (anybody.home / "audit/report.html").exists()
    (again,) = anybody.tell("audit", clean, *HERE)
    assert (again["checked"]["events_verified"], again["checked"]["events_verified_before"]) == (0, 120)
    (afresh,) = anybody.tell("audit", clean, *HERE, "--afresh")
    assert afresh["checked"]["events_verified"] == 120
    shown = anybody.ask("audit", clean, *HERE).stdout
    assert "findings" in shown
    assert "audit/report.html" in shown


def test_findings_and_evidence(anybody: Person, fleet: Path) -> None:
    (found,) = anybody.tell("audit", fleet, *HERE, "--out", "found", code=1)
    planted = {(each["kind"], each["seq"]) for each in json.loads((fleet / "planted.json").read_bytes())}
    assert {(each["kind"], each["seq"]) for each in found["findings"]} == planted
    for each in found["findings"]:
        (says,) = anybody.tell("verify", anybody.home / "found" / each["evidence"])
        assert says["ok"]
        assert says["convicts"] == (each["kind"] != "altered_content")
        shown = anybody.ask("verify", anybody.home / "found" / each["evidence"]).stdout
        assert ("convicts the sequencer" in shown) == says["convicts"]
        assert ("The finding holds" in shown) != says["convicts"]
    assert "equivocation\t" in anybody.ask("audit", fleet, *HERE, code=1).stdout


def test_heads_from_files(anybody: Person, fleet: Path, tmp_path: Path) -> None:
    heads = tmp_path / "collected.jsonl"
    heads.write_bytes((fleet / "heads.jsonl").read_bytes())
    archives = sorted(fleet.glob("*.enc"))
    (without,) = anybody.tell("audit", *archives, *HERE, "--out", "a", code=1)
    (with_,) = anybody.tell("audit", *archives, *HERE, "--out", "b", "--heads", heads, code=1)
    kinds = [{each["kind"] for each in found["findings"]} for found in (without, with_)]
    assert kinds[1] - kinds[0] == {"equivocation"}


def test_what_could_not_be_completed(anybody: Person, clean: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.enc").write_bytes(b"hello")
    (found,) = anybody.tell("audit", clean, tmp_path / "bad.enc", *HERE, code=2)
    assert (found["clean"], found["complete"]) == (True, False)
    assert "not completed: " in anybody.ask("audit", tmp_path / "bad.enc", *HERE, code=2).stderr


def test_wrong_uses(anybody: Person, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for args, words in (
        ((), "name archives"),
        (("nothing.enc",), "no such file"),
        ((tmp_path / "empty",), "there is no archive"),
        ((tmp_path / "empty", "--heads", "none.jsonl"), "no such file"),
    ):
        assert words in anybody.refused("audit", *args, *HERE, code=2)["message"]


def test_an_enclave_of_ones_own_from_its_node(alice: Person) -> None:
    for text in ("one", "two"):
        alice.ask("commit", "message", text)
    (shown,) = alice.tell("config", "show")
    id_ = shown["enclave"]["value"]
    (found,) = alice.tell("audit", "--enclave", id_, *HERE)
    assert (found["clean"], found["complete"], found["checked"]["events"]) == (True, True, 3)
    assert found["checked"]["heads"] >= 1
    alice.ask("commit", "message", "three")
    (found,) = alice.tell("audit", "--enclave", id_, *HERE)
    assert (found["checked"]["events"], found["checked"]["events_verified"]) == (4, 1)
    assert found["clean"]


def test_an_enclave_that_one_may_only_read(alice: Person, tmp_path: Path) -> None:
    bob = Person(tmp_path / "bob")
    bob.ask("key", "new")
    (shown,) = alice.tell("config", "show")
    for name in ("node", "enclave"):
        bob.ask("config", "set", name, str(shown[name]["value"]))
    refused = bob.ask("audit", "--enclave", shown["enclave"]["value"], *HERE, code=2)
    assert "UNAUTHORIZED" in refused.stderr
    (key,) = bob.tell("key", "show")
    alice.ask("commit", "message", "one")
    alice.ask("move", key["public"], "OUTSIDER", "MEMBER")
    (found,) = bob.tell("audit", "--enclave", shown["enclave"]["value"], *HERE)
    assert (found["clean"], found["checked"]["events"]) == (True, 3)
    assert "read, and not replayed" in found["notes"][0]


def test_all_enclaves_of_a_registry(tmp_path: Path) -> None:
    with town(tmp_path / "town", "a", "b") as place:
        alice = Identity.new()
        for at in ("a", "b"):
            with place.client(alice, at) as client:
                enclave = client.create("team")
                enclave.commit("message", "hello")
                enclave.register(app="test")
        person = Person(tmp_path / "alice")
        person.key().parent.mkdir(parents=True)
        alice.save(person.key())
        (found,) = person.tell("audit", "--registry", place.text, "--identity", person.key(), *HERE)
    assert (found["clean"], found["complete"], found["enclaves"]) == (True, True, 2)
    assert found["checked"]["events"] == 4


def test_a_node_that_does_not_answer(alice: Person) -> None:
    (found,) = alice.tell(
        "audit", "--enclave", "ab" * 32, "--node", "http://127.0.0.1:9", "--timeout", "0.2", *HERE, code=2
    )
    assert "UNREACHABLE" in found["problems"][0]
