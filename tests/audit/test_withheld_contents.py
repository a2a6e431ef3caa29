"""Withheld contents in an audit: remarks with the statement of a node, and no findings."""

import json
from pathlib import Path
from typing import Any

import pytest

from enc.audit.enclave_verdict import EnclaveVerdict
from enc.audit.html_report import page
from enc.audit.result_folder import AuditRun, write_report
from enc.core.log.event import erase
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import Event
from tests.audit.logs import audit, reported, talk, write
from tests.core.world import START, World, pub, withheld

MADE = AuditRun(START, 1.25, "one process", ("archives",))


@pytest.fixture
def world() -> World:
    return talk()


def hidden(world: World, *seqs: int, name: str = "node") -> list[Event]:
    return [withheld(event, name) if event.seq in seqs else event for event in world.events]


@pytest.mark.parametrize("part", [100_000, 4])
def test_a_withheld_content_is_a_remark_and_no_finding(world: World, tmp_path: Path, part: int) -> None:
    found = audit(write(tmp_path / "a.enc", world, hidden(world, 5, 17)), world=world, part=part)
    (verdict,) = found.verdicts
    assert found.findings == []
    assert [(seq, statement.node.hex()) for seq, statement in verdict.withheld] == [(5, pub("node")), (17, pub("node"))]


def test_two_archives_of_one_log_list_each_content_once(world: World, tmp_path: Path) -> None:
    one, other = hidden(world, 3, 5), hidden(world, 5, 9)
    found = audit(write(tmp_path / "a.enc", world, one), write(tmp_path / "b.enc", world, other), world=world)
    assert found.findings == []
    assert [seq for seq, _ in found.verdicts[0].withheld] == [3, 5, 9]


def test_no_statement_and_that_of_a_stranger_excuse_nothing(world: World, tmp_path: Path) -> None:
    events = hidden(world, 5, name="bob")
    events[6] = erase(events[6])
    found = audit(write(tmp_path / "a.enc", world, events), world=world)
    assert reported(found) == [("erasure_without_cause", 5), ("erasure_without_cause", 6)]
    assert found.verdicts[0].withheld == []


def test_the_reports_list_them(world: World, tmp_path: Path) -> None:
    events = hidden(world, 5)
    found = audit(write(tmp_path / "a.enc", world, events), world=world)
    write_report(tmp_path / "out", found, MADE)
    wire: dict[str, Any] = json.loads((tmp_path / "out/report.json").read_bytes())
    assert events[5].withheld is not None
    listed = {"enclave": world.state.enclave.hex(), "seq": 5, **wire_withheld(events[5].withheld)}
    assert (wire["withheld"], wire["clean"], wire["complete"]) == ([listed], True, True)
    assert wire["checked"]["contents_withheld"] == 1
    shown = (tmp_path / "out/report.html").read_text()
    assert "every node followed the protocol" in shown
    assert "it convicts nobody" in shown
    assert f'<td>court_order</td><td class="what"><code>{pub("node")}</code></td>' in shown
    assert "Withheld contents" not in page({**wire, "withheld": []})
    assert "and 1 more" in page({**wire, "withheld": [listed] * 1001})


def test_what_was_read_of_an_enclave_adds_its_withheld_contents(world: World) -> None:
    first, then = (withheld(world.events[seq]).withheld for seq in (3, 5))
    assert first is not None
    assert then is not None
    verdict = EnclaveVerdict(enclave=world.state.enclave, withheld=[(5, then)])
    verdict.add_read(EnclaveVerdict(enclave=world.state.enclave, withheld=[(3, first), (5, then)]))
    assert verdict.withheld == [(3, first), (5, then)]
