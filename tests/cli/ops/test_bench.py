"""`enc bench generate` with the installed command: a folder of logs, and the errors for invalid options."""

import json

import pytest

from enc.bench.fault_kinds import KINDS
from tests.cli.people import Person


def test_a_fleet_with_a_fault_by_two_processes(anybody: Person) -> None:
    ask = ("bench", "generate", "--enclaves", "8", "--events", "5000", "--seed", "3", "--plant", "gap", "--jobs", "2")
    said = anybody.json(*ask, "--out", "here")
    assert list(said) == ["out", "enclaves", "events", "bytes", "archives", "heads", "planted"]
    assert (said["out"], said["enclaves"], said["events"]) == ("here", 8, 5000)
    out = anybody.home / "here"
    assert said["planted"] == json.loads((out / "planted.json").read_text())
    assert said["heads"] == len((out / "heads.jsonl").read_text().splitlines())
    archives = sorted(out.glob("*.enc"))
    assert (said["archives"], said["bytes"]) == (len(archives), sum(path.stat().st_size for path in archives))
    (fault,) = said["planted"]
    for path in archives:
        wrong = path.name.startswith(fault["enclave"])
        (found,) = anybody.ask_json("archive", "verify", path, code=int(wrong))
        assert (found["ok"], found.get("seq")) == ((False, fault["seq"] + 1) if wrong else (True, None))


def test_what_is_told_to_people_and_where_it_goes_by_itself(anybody: Person) -> None:
    told = anybody.ask("bench", "generate", "--enclaves", "2", "--events", "80", "--plant", "equivocation").stdout
    assert "enclaves  2\nevents    80\n" in told
    (fault,) = json.loads((anybody.home / "fleet/planted.json").read_text())
    assert told.endswith(f"planted   equivocation in {fault['enclave']} at seq {fault['seq']}\n")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--plant", "theft"), f"theft: not a kind of fault; expected one of {', '.join(KINDS)}"),
        (("--enclaves", "0"), "enclaves: expected 1 to 100000, not 0"),
        (("--events", "3"), "events: expected at least 5: each enclave has a Manifest"),
        (("--jobs", "0"), "jobs: expected 1 to 256, not 0"),
        (("--out", "."), ". is not empty: give another folder, or remove it"),
        (("--out", "file"), "file: File exists"),
        (
            ("--plant", "gap"),
            "plant: each fault needs its own enclave of at least 24 events: there are 0",
        ),
    ],
)
def test_wrong_uses(anybody: Person, wrong: tuple[str, ...], said: str) -> None:
    (anybody.home / "file").write_text("")
    error = anybody.refused("bench", "generate", "--enclaves", "5", "--events", "50", *wrong, code=2)
    assert error["code"] == "MISUSE"
    assert error["message"].startswith(said)
    assert [path.name for path in anybody.home.iterdir()] == ["file"]
