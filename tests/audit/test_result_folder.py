"""The report: for programs, for people, and an evidence file for each finding."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.audit.html_report import page
from enc.audit.result_folder import AuditRun, write_report
from enc.client import check_evidence, load_evidence
from enc.core.errors import MisuseError
from enc.core.machine.fault import FAULT_KINDS
from enc.core.primitives.hashing import sha256
from tests.audit.logs import audit, head, held, talk, write
from tests.core.world import START, World, pub

MADE = AuditRun(START, 1.25, "one process", ("archives",))


@pytest.fixture
def world() -> World:
    return talk()


def reported(tmp_path: Path, world: World, *paths: str, **more: Any) -> dict[str, Any]:
    write_report(tmp_path / "out", audit(*paths, world=world, **more), MADE)
    found: dict[str, Any] = json.loads((tmp_path / "out/report.json").read_bytes())
    return found


def test_a_clean_report(tmp_path: Path, world: World) -> None:
    path = write(tmp_path / "a.enc", world, sth=head(world, 5))
    found = reported(tmp_path, world, path)
    assert (found["clean"], found["complete"], found["findings"]) == (True, True, [])
    assert found["counts"] == dict.fromkeys(FAULT_KINDS, 0)
    checked = found["checked"]
    assert (checked["events"], checked["signatures"], checked["bundles"], checked["heads_on_log"]) == (21, 42, 5, 1)
    assert list(found["days"].values()) == [21]
    assert "every node followed the protocol" in (tmp_path / "out/report.html").read_text()


def test_findings_and_their_evidence(tmp_path: Path, world: World) -> None:
    events = list(world.events)
    events[4] = replace(events[4], sig=bytes(64))
    path = write(tmp_path / "a.enc", world, events)
    found = reported(tmp_path, world, path, heads=held(head(world, 2, wrong=sha256(b"x"))))
    assert [(each["kind"], each["seq"]) for each in found["findings"]] == [
        ("invalid_signature", 4),
        ("head_not_on_log", 7),
    ]
    for each in found["findings"]:
        data = (tmp_path / "out" / each["evidence"]).read_bytes()
        assert check_evidence(load_evidence(data)).holds
    assert (found["counts"]["invalid_signature"], found["clean"]) == (1, False)
    again = reported(tmp_path, world, write(tmp_path / "a.enc", world))
    assert again["clean"]
    assert list((tmp_path / "out/evidence").iterdir()) == []
    kept = sorted((tmp_path / "out/earlier").iterdir())
    assert [path.name.split("-")[0] for path in kept] == ["head_not_on_log", "invalid_signature"]
    assert all(check_evidence(load_evidence(path.read_bytes())).holds for path in kept)
    assert "evidence of earlier audits that this one did not find again: 2" in again["notes"][0]


def test_what_is_found_again_is_there_once_and_what_is_not_ours_is_left_alone(tmp_path: Path, world: World) -> None:
    events = [*world.events[:4], replace(world.events[4], sig=bytes(64)), *world.events[5:]]
    path = write(tmp_path / "a.enc", world, events)
    (tmp_path / "out/evidence").mkdir(parents=True)
    mine = tmp_path / "out/evidence/enc-evidence-fork-1.json"
    mine.write_text("mine")
    for _ in range(2):
        found = reported(tmp_path, world, path)
    assert mine.read_text() == "mine"
    assert len(list((tmp_path / "out/evidence").iterdir())) == 2
    assert (found["notes"], (tmp_path / "out/earlier").exists()) == ([], False)


def test_very_many_faults_are_counted_and_the_first_are_told(tmp_path: Path) -> None:
    world = talk(140)
    events = [world.events[0], *(replace(event, sig=bytes(64)) for event in world.events[1:])]
    found = reported(tmp_path, world, write(tmp_path / "a.enc", world, events))
    assert found["counts"]["invalid_signature"] == 140
    assert len(found["findings"]) == 100


def test_the_page_needs_nothing_but_itself(tmp_path: Path, world: World) -> None:
    path = write(tmp_path / "a.enc", world)
    wire = reported(
        tmp_path, world, path, heads=held(head(world, 2, wrong=sha256(b"x")), source="<script>bad</script>")
    )
    shown = (tmp_path / "out/report.html").read_text()
    assert shown == page(wire)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "default-src 'none'" in shown
    assert not re.search(r"""(src|href)=["'](https?:)?//""", shown)
    assert (shown.count("<svg"), shown.count('<div class="bars')) == (1, 2)
    assert "1 finding." in shown
    assert "head not on log" in shown


def test_the_page_accuses_nobody_for_what_convicts_nobody(tmp_path: Path, world: World) -> None:
    events = list(world.events)
    events[4] = replace(events[4], content="altered by whoever held the copy")
    wire = reported(tmp_path, world, write(tmp_path / "a.enc", world, events))
    assert "Some convict nobody" in page(wire)
    assert "its word" not in page(wire)


def test_the_page_names_the_keys_that_are_convicted(tmp_path: Path, world: World) -> None:
    wire = reported(tmp_path, world, write(tmp_path / "a.enc", world), heads=held(head(world, 2, wrong=sha256(b"x"))))
    assert [each["convicts"] for each in wire["findings"]] == [True]
    assert f"Evidence convicts the holder of <code>{pub('node')}</code>." in page(wire)
    many = [{**wire["findings"][0], "sequencer": f"{i:064}"} for i in range(25)]
    assert "and of 5 more" in page({**wire, "findings": many})


def test_the_page_says_no_more_than_was_looked_at(tmp_path: Path, world: World) -> None:
    wire = reported(tmp_path, world, write(tmp_path / "a.enc", world))
    assert "every node followed the protocol" not in page({**wire, "notes": ["read, but not replayed"]})
    assert "no log to check" in page({**wire, "checked": {**wire["checked"], "events": 0}})
    both = {**wire, "counts": {**wire["counts"], "gap": 1}, "complete": False}
    assert "Not everything could be checked" in page(both)


def test_a_finding_of_heads_alone_has_no_place(tmp_path: Path, world: World) -> None:
    pair = held(head(world, 9, wrong=sha256(b"one")), head(world, 9, wrong=sha256(b"other")))
    wire = reported(tmp_path, world, heads=[replace(each, sequencer=bytes.fromhex(pub("node"))) for each in pair])
    assert (wire["findings"][0]["kind"], wire["findings"][0]["seq"]) == ("equivocation", None)
    assert wire["findings"][0]["evidence"] == f"evidence/0001-equivocation-{world.state.enclave.hex()[:8]}.json"
    assert "None" not in page({**wire, "findings": wire["findings"]}).replace("None.", "")


def test_what_could_not_be_looked_at_is_said(tmp_path: Path, world: World) -> None:
    (tmp_path / "bad.enc").write_bytes(b"hello")
    found = reported(tmp_path, world, str(tmp_path / "bad.enc"))
    assert (found["clean"], found["complete"]) == (True, False)
    assert "bad.enc: not zstd" in found["problems"][0]
    assert "Not everything could be checked" in (tmp_path / "out/report.html").read_text()


def test_a_folder_that_cannot_be(tmp_path: Path, world: World) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(MisuseError, match="out"):
        reported(tmp_path, world, write(tmp_path / "a.enc", world))
