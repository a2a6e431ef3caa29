"""The report: for programs, for people, and beside it a file of evidence for each finding."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.audit.page import page
from enc.audit.report import Circumstances, write_report
from enc.client import check_evidence, load_evidence
from enc.core.errors import MisuseError
from enc.core.fault import FAULT_KINDS
from enc.core.hashing import sha256
from tests.core.world import START, World

from .logs import audit, head, held, talk, write

MADE = Circumstances(START, 1.25, "one process", ("archives",))


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
    assert "every node kept its word" in (tmp_path / "out/report.html").read_text()


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
    assert shown.count("<svg") == 3
    assert "1 finding: a node did not keep its word" in shown
    assert "head not on log" in shown


def test_what_could_not_be_looked_at_is_said(tmp_path: Path, world: World) -> None:
    (tmp_path / "bad.enc").write_bytes(b"hello")
    found = reported(tmp_path, world, str(tmp_path / "bad.enc"))
    assert (found["clean"], found["complete"]) == (True, False)
    assert "bad.enc: not zstd" in found["problems"][0]
    assert "not everything could be looked at" in (tmp_path / "out/report.html").read_text()


def test_a_folder_that_cannot_be(tmp_path: Path, world: World) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(MisuseError, match="out"):
        reported(tmp_path, world, write(tmp_path / "a.enc", world))
