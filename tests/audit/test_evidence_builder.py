"""Evidence as an audit writes it: recipients find the same, or there is no file and a reason."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from enc.audit import evidence_builder
from enc.audit.archive_reader import read_header, read_lines
from enc.audit.audit import Audit
from enc.client import check_evidence, load_evidence
from enc.client.evidence.verdict import Verdict
from enc.core.errors import InvalidProof
from enc.core.log.event import finalize
from enc.core.machine.archive import write_lines
from enc.core.primitives.hashing import sha256
from enc.core.trees.tree_head import wire_head
from tests.audit.logs import audit, head, held, reported, talk, write
from tests.core.world import World, person


@pytest.fixture
def world() -> World:
    return talk(12)


def verified(found: Audit) -> dict[tuple[str, int], Verdict | str]:
    """Return what others find in each finding's evidence, or why there is none."""
    return {
        (each.finding.kind, each.finding.seq): check_evidence(load_evidence(each.evidence))
        if each.evidence
        else each.missing
        for each in found.proved
    }


def respelled(path: str, change: Callable[[list[bytes]], list[bytes]]) -> str:
    """Write the archive with other lines under the same header."""
    lines = [line for block in read_lines(path) for line in block]
    Path(path).write_bytes(b"".join(write_lines(read_header(path), change(lines))))
    return path


@pytest.mark.parametrize("left", [0, 9])
def test_an_archive_that_ends_before_it_says_is_its_own_evidence(world: World, tmp_path: Path, left: int) -> None:
    path = respelled(write(tmp_path / "a.enc", world), lambda lines: lines[:left])
    assert verified(audit(path)) == {
        ("gap", left): "nobody signs the number of events in an archive's header; the archive itself is the evidence"
    }


@pytest.mark.parametrize("bad", [b"", b"[" * 5000, b'{"seq":4}', b"\xff\xfe", b'{"seq":3}'])
def test_a_line_that_cannot_be_read_is_shown_and_accuses_nobody(world: World, tmp_path: Path, bad: bytes) -> None:
    path = respelled(write(tmp_path / "a.enc", world), lambda lines: [*lines[:4], bad, *lines[5:]])
    (each,) = audit(path).proved
    assert each.finding.kind == "altered_content"
    assert load_evidence(each.evidence).sequencer == b""
    verdict = check_evidence(load_evidence(each.evidence))
    assert (verdict.convicts, verdict.holds) == (False, True)
    assert "cannot be read" in verdict.proved[0]


def test_only_what_names_nobody_may_accuse_nobody(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "a.enc", world)
    pair = held(head(world, 2), head(world, 2, wrong=sha256(b"x")))
    (fork,) = audit(path, heads=pair, world=world).proved
    wire = msgspec.json.decode(fork.evidence)
    with pytest.raises(InvalidProof, match="sequencer: expected 64"):
        load_evidence(msgspec.json.encode({**wire, "sequencer": ""}))
    (off,) = audit(path, heads=pair[1:], world=world).proved
    wire = msgspec.json.decode(off.evidence)
    with pytest.raises(InvalidProof, match="sequencer: missing"):
        check_evidence(load_evidence(msgspec.json.encode({**wire, "sequencer": ""})))


@pytest.mark.parametrize("seq", [0, 5])
def test_an_event_that_stands_twice(world: World, tmp_path: Path, seq: int) -> None:
    events = [*world.events[: seq + 1], *[world.events[seq]] * 3, *world.events[seq + 1 :]]
    found = verified(audit(write(tmp_path / "a.enc", world, events)))
    assert {("reordering", seq), ("unauthorised_event", seq)} <= set(found)
    for verdict in found.values():
        assert isinstance(verdict, Verdict)
        assert (verdict.convicts, verdict.holds) == (False, True)
        assert not any("honest" in words for words in verdict.proved)  # others may repeat an event of an honest one


def test_gaps_around_an_event_that_comes_late(world: World, tmp_path: Path) -> None:
    """The second gap is separate only if the event between them is seen."""
    events = [*world.events[:3], *world.events[6:9], world.events[4], *world.events[9:]]
    found = verified(audit(write(tmp_path / "a.enc", world, events)))
    assert {("gap", 3), ("reordering", 4), ("gap", 5)} <= set(found)
    assert all(isinstance(verdict, Verdict) and verdict.holds for verdict in found.values())


def test_of_two_events_of_one_seq_the_wrong_one_is_shown(world: World, tmp_path: Path) -> None:
    altered = replace(world.events[3], content="something else")
    found = verified(audit(write(tmp_path / "a.enc", world, [*world.events[:4], altered, *world.events[4:]])))
    verdict = found["altered_content", 3]
    assert isinstance(verdict, Verdict)
    assert verdict.holds


def test_of_two_wrong_events_of_one_seq_the_first_is_shown_as_its_own_sequencers(world: World, tmp_path: Path) -> None:
    """In any order of the audit's tasks."""
    one, other = (replace(world.events[3], content=f"not {i}") for i in range(2))
    other = replace(other, sequencer=person("eve").public)
    path = write(tmp_path / "a.enc", world, [*world.events[:3], one, other, *world.events[4:]])
    finding = next(each for each in audit(path).findings if each.kind == "altered_content")
    for key in ("node", "eve"):
        found = evidence_builder.prove(replace(finding, sequencer=person(key).public))
        assert found.finding.sequencer == person("node").public
        assert check_evidence(load_evidence(found.evidence)).holds


def test_a_former_sequencers_head_and_its_late_event_are_there_for_all_to_see(world: World, tmp_path: Path) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    for i in range(6):
        world.send("alice", "message", f"there {i}", node="node2")
    path = write(tmp_path / "a.enc", world)
    (found,) = verified(audit(path, heads=held(head(world, 5)), world=world)).values()
    assert isinstance(found, Verdict)
    assert (found.convicts, found.holds) == (False, True)
    assert "that no later Migrate gave the enclave back to it" in found.not_proved[0]
    late = finalize(world.commit("alice", "message", "back"), person("node"), world.events[-1].timestamp + 1, 20)
    late_found = audit(write(tmp_path / "b.enc", world, [*world.events, late]), world=world)
    assert ("old_sequencer", 20) in reported(late_found)
    verdict = verified(late_found)["old_sequencer", 20]
    assert isinstance(verdict, Verdict)
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_a_head_in_evidence_is_of_a_log_that_had_left_its_signer(world: World, tmp_path: Path) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    for i in range(6):
        world.send("alice", "message", f"there {i}", node="node2")
    (each,) = audit(write(tmp_path / "a.enc", world), heads=held(head(world, 5)), world=world).proved
    wire = msgspec.json.decode(each.evidence)
    for by, size, words in (
        ("node", 3, "has another size"),
        ("node2", 5, "or still is"),
        ("bob", 5, "was never"),
    ):
        parts = {**wire["parts"], "head": wire_head(head(world, size, by=by))}
        bad = {**wire, "sequencer": person(by).public.hex(), "parts": parts}
        with pytest.raises(InvalidProof, match=words):
            check_evidence(load_evidence(msgspec.json.encode(bad)))


def test_a_time_that_falls_after_an_event_that_does_not_check_is_shown_by_the_log(world: World, tmp_path: Path) -> None:
    ahead = replace(world.events[5], timestamp=world.events[5].timestamp + 50_000)
    found = verified(audit(write(tmp_path / "a.enc", world, [*world.events[:5], ahead, *world.events[6:]])))
    verdict = found["falling_timestamp", 6]
    assert isinstance(verdict, Verdict)
    assert (verdict.convicts, verdict.holds) == (False, True)


def test_a_fault_after_a_line_that_cannot_be_read(world: World, tmp_path: Path) -> None:
    path = respelled(write(tmp_path / "a.enc", world), lambda lines: [*lines[:3], b"{", *lines[4:8], *lines[9:]])
    found = verified(audit(path))
    why = "an earlier event, number 3 of the archive, cannot be read; the archive itself is the evidence"
    assert found["gap", 8] == why


def test_what_others_would_refuse_is_not_written(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The archive's own head covers more than the archive: nobody signed that it belongs to these events."""
    beyond = write(tmp_path / "a.enc", world, sth=head(world, 9, wrong=sha256(b"x")))
    (why,) = verified(audit(beyond)).values()
    assert str(why).endswith("; the archive itself is the evidence")
    erased = [*world.events[:3], replace(world.events[3], sig=bytes(64)), *world.events[4:]]
    monkeypatch.setattr(evidence_builder, "MAX_EVIDENCE", 100)
    (why,) = verified(audit(write(tmp_path / "b.enc", world, erased))).values()
    assert why == "the evidence would exceed 100 bytes; the archive itself is the evidence"
