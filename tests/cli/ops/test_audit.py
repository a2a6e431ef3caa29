"""`enc audit`: archives, folders, heads, nodes, a registry; its exit codes; evidence that `enc verify` explains."""

import json
from pathlib import Path

import pytest

from enc.audit.archive_reader import read_header, read_lines
from enc.bench.fleet import generate
from enc.client import Identity
from enc.core.machine.archive import write_lines
from tests.audit.logs import talk, write
from tests.cli.people import Person
from tests.client.moved import town
from tests.core.world import withheld

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
    (found,) = anybody.ask_json("audit", clean, *HERE)
    assert (found["clean"], found["complete"], found["findings"], found["enclaves"]) == (True, True, [], 3)
    assert found["checked"]["events_verified"] == 120
    assert (anybody.home / "audit/report.html").exists()
    (again,) = anybody.ask_json("audit", clean, *HERE)
    assert (again["checked"]["events_verified"], again["checked"]["events_verified_before"]) == (0, 120)
    (afresh,) = anybody.ask_json("audit", clean, *HERE, "--afresh")
    assert afresh["checked"]["events_verified"] == 120
    shown = anybody.ask("audit", clean, *HERE).stdout
    assert "findings" in shown
    assert "audit/report.html" in shown


def test_withheld_contents_are_remarks_and_the_exit_code_is_0(anybody: Person, tmp_path: Path) -> None:
    world, hidden = talk(30), range(5, 27)
    events = [withheld(event) if event.seq in hidden else event for event in world.events]
    path = write(tmp_path / "a.enc", world, events)
    done = anybody.ask("audit", path, *HERE)
    assert f"{world.state.enclave.hex()[:8]}…: event 5: withheld by the node since " in done.stderr
    assert done.stderr.count(": court_order") == 20
    assert "2 more withheld contents" in done.stderr
    (found,) = anybody.ask_json("audit", path, *HERE)
    assert (found["clean"], found["complete"], [each["seq"] for each in found["withheld"]]) == (True, True, [*hidden])


def test_findings_and_evidence(anybody: Person, fleet: Path) -> None:
    (found,) = anybody.ask_json("audit", fleet, *HERE, "--out", "found", code=1)
    planted = {(each["kind"], each["seq"]) for each in json.loads((fleet / "planted.json").read_bytes())}
    assert {(each["kind"], each["seq"]) for each in found["findings"]} == planted
    for each in found["findings"]:
        (says,) = anybody.ask_json("verify", anybody.home / "found" / each["evidence"])
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
    (without,) = anybody.ask_json("audit", *archives, *HERE, "--out", "a", code=1)
    (with_,) = anybody.ask_json("audit", *archives, *HERE, "--out", "b", "--heads", heads, code=1)
    kinds = [{each["kind"] for each in found["findings"]} for found in (without, with_)]
    assert kinds[1] - kinds[0] == {"equivocation"}


def test_what_could_not_be_completed(anybody: Person, clean: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.enc").write_bytes(b"hello")
    (found,) = anybody.ask_json("audit", clean, tmp_path / "bad.enc", *HERE, code=2)
    assert (found["clean"], found["complete"]) == (True, False)
    assert "not completed: " in anybody.ask("audit", tmp_path / "bad.enc", *HERE, code=2).stderr


def test_heads_alone_and_heads_that_lie_deeper(anybody: Person, fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "all/deep").mkdir(parents=True)
    (tmp_path / "all/deep/heads.jsonl").write_bytes((fleet / "heads.jsonl").read_bytes())
    for archive in fleet.glob("*.enc"):
        (tmp_path / "all/deep" / archive.name).write_bytes(archive.read_bytes())
    (found,) = anybody.ask_json("audit", tmp_path / "all", *HERE, "--out", "deep", code=1)
    assert "equivocation" in {each["kind"] for each in found["findings"]}
    planted = next(each for each in found["findings"] if each["kind"] == "equivocation")
    named = [
        json.dumps({"enclave": planted["enclave"], "sequencer": planted["sequencer"], **each})
        for each in planted["heads"]
    ]
    for i, line in enumerate(named):
        (tmp_path / f"{i}.jsonl").write_text(line + "\n")
    given = ("--heads", tmp_path / "0.jsonl", "--heads", tmp_path / "1.jsonl")
    (found,) = anybody.ask_json("audit", *given, *HERE, "--out", "heads", code=1)
    assert [each["kind"] for each in found["findings"]] == ["equivocation"]


def test_what_fails_is_no_finding(
    anybody: Person, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code 1 means that there are findings, and nothing else."""
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file/within"):
        assert "--out" in anybody.refused("audit", clean, *HERE, "--out", out, code=2)["message"]
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "--master here" in anybody.refused("audit", clean, "--out", "o", code=2)["message"]
    help_ = " ".join(anybody.ask("audit", "--help").stdout.split())
    assert "1 findings" in help_
    assert "3 no answer" not in help_


def test_what_nobody_foresaw_is_no_finding(anybody: Person, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in ("audit.run_audit", "result_folder.write_report"):
        with monkeypatch.context() as patch:
            patch.setattr(f"enc.audit.{step}", lambda *args: dict[str, str]()["no such thing"])
            assert "KeyError" in anybody.refused("audit", clean, *HERE, code=2)["message"]
            assert "KeyError" in anybody.ask("audit", clean, *HERE, code=2).stderr


def test_what_has_no_file_says_why(anybody: Person, clean: Path, tmp_path: Path) -> None:
    whole = sorted(clean.glob("*.enc"))[0]
    lines = [line for block in read_lines(str(whole)) for line in block]
    (tmp_path / "cut.enc").write_bytes(b"".join(write_lines(read_header(str(whole)), lines[:-1])))
    shown = anybody.ask("audit", tmp_path / "cut.enc", *HERE, code=1).stdout
    assert "the archive itself is the evidence" in shown


def test_wrong_uses(anybody: Person, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for args, words in (
        ((), "nothing to audit"),
        (("nothing.enc",), "no such file"),
        ((tmp_path / "empty",), "no archive found"),
        ((tmp_path / "empty", "--heads", "none.jsonl"), "no such file"),
    ):
        assert words in anybody.refused("audit", *args, *HERE, code=2)["message"]


def test_an_enclave_of_ones_own_from_its_node(alice: Person) -> None:
    for text in ("one", "two"):
        alice.ask("commit", "message", text)
    (shown,) = alice.ask_json("config", "show")
    id_ = shown["enclave"]["value"]
    (found,) = alice.ask_json("audit", "--enclave", id_, *HERE)
    assert (found["clean"], found["complete"], found["checked"]["events"]) == (True, True, 3)
    assert found["checked"]["heads"] >= 1
    alice.ask("commit", "message", "three")
    (found,) = alice.ask_json("audit", "--enclave", id_, *HERE)
    assert (found["checked"]["events"], found["checked"]["events_verified"]) == (4, 1)
    assert found["clean"]


def test_an_enclave_that_one_may_only_read(alice: Person, tmp_path: Path) -> None:
    bob = Person(tmp_path / "bob")
    bob.ask("key", "new")
    (shown,) = alice.ask_json("config", "show")
    for name in ("node", "enclave"):
        bob.ask("config", "set", name, str(shown[name]["value"]))
    refused = bob.ask("audit", "--enclave", shown["enclave"]["value"], *HERE, code=2)
    assert "UNAUTHORIZED" in refused.stderr
    (key,) = bob.ask_json("key", "show")
    alice.ask("commit", "message", "one")
    alice.ask("move", key["public"], "OUTSIDER", "MEMBER")
    (found,) = bob.ask_json("audit", "--enclave", shown["enclave"]["value"], *HERE)
    assert (found["clean"], found["checked"]["events"], found["enclaves"]) == (True, 3, 1)
    assert (found["checked"]["heads"], found["checked"]["heads_on_log"], found["checked"]["heads_not_judged"]) == (
        1,
        1,
        0,
    )
    assert "read, but not replayed" in found["notes"][0]


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
        (found,) = person.ask_json("audit", "--registry", place.text, "--identity", person.key(), *HERE)
    assert (found["clean"], found["complete"], found["enclaves"]) == (True, True, 2)
    assert found["checked"]["events"] == 4


def test_a_node_that_does_not_answer(alice: Person) -> None:
    (found,) = alice.ask_json(
        "audit", "--enclave", "ab" * 32, "--node", "http://127.0.0.1:9", "--timeout", "0.2", *HERE, code=2
    )
    assert "UNREACHABLE" in found["problems"][0]
