"""Heads against a log and against each other: findings, and honest situations without one."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from enc.audit import replay_task
from enc.audit.collected_heads import CollectedHead, collect_heads, read_heads
from enc.client import check_evidence, load_evidence
from enc.core.errors import MisuseError
from enc.core.log.event import finalize
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import check_bound_head, wire_head
from tests.audit.logs import audit, head, held, reported, talk, write
from tests.core.world import World, person, pub

WRONG = sha256(b"no log has this root")


@pytest.fixture
def world() -> World:
    return talk()  # 21 events: five bundles of four, and one event in an open one


@pytest.fixture
def path(world: World, tmp_path: Path) -> str:
    return write(tmp_path / "a.enc", world, sth=head(world, 5))


def convicted(found: object) -> list[bool]:
    return [check_evidence(load_evidence(each.evidence)).convicts for each in found.proved]  # type: ignore[attr-defined]


def test_heads_of_a_log_are_on_it(world: World, path: str) -> None:
    found = audit(path, heads=held(*(head(world, size) for size in range(6))), world=world)
    assert reported(found) == []
    (verdict,) = found.verdicts
    assert (verdict.heads, verdict.on_log, verdict.beyond, verdict.unsigned) == (6, 6, 0, 0)


def test_a_head_with_another_root(world: World, path: str) -> None:
    found = audit(path, heads=held(head(world, 3, wrong=WRONG)), world=world)
    assert reported(found) == [("head_not_on_log", 11)]
    assert convicted(found) == [True]


def test_the_archives_own_head_with_another_root(world: World, tmp_path: Path) -> None:
    found = audit(write(tmp_path / "a.enc", world, sth=head(world, 5, wrong=WRONG)), world=world)
    assert reported(found) == [("wrong_log_root", 19)]
    assert convicted(found) == [True]
    sealed = audit(write(tmp_path / "b.enc", world, sth=head(world, 6, wrong=WRONG)), world=world)
    assert reported(sealed) == [("wrong_log_root", 20)]
    assert convicted(sealed) == [False]
    beyond = audit(write(tmp_path / "c.enc", world, sth=head(world, 9, wrong=WRONG)), world=world)
    assert reported(beyond) == [("wrong_log_root", 20)]


def test_a_checkpoint_that_is_not_the_logs(world: World, tmp_path: Path) -> None:
    found = audit(write(tmp_path / "a.enc", world, checkpoint=WRONG), world=world)
    assert reported(found) == [("wrong_log_root", 20)]
    assert convicted(found) == [False]


def test_two_heads_of_one_size(world: World, path: str) -> None:
    found = audit(path, heads=held(head(world, 2), head(world, 2, wrong=WRONG)), world=world)
    assert reported(found) == [("equivocation", 7)]
    assert convicted(found) == [True]
    same = held(head(world, 2), head(world, 2, t=5))
    assert reported(audit(path, heads=same, world=world)) == []


def test_two_heads_of_one_size_beyond_the_log(world: World, path: str) -> None:
    pair = [head(world, 9, wrong=sha256(text)) for text in (b"one", b"other")]
    found = audit(path, heads=held(*pair), world=world)
    assert reported(found) == [("equivocation", 20)]


def test_heads_without_an_enclave_do_not_contradict_each_other(world: World, path: str) -> None:
    """They may belong to two enclaves of the node; but a head that is given for this log must be on it."""
    loose = replace(head(world, 2), bound_sig=None)
    assert reported(audit(path, heads=held(loose), world=world)) == []
    wrong = replace(head(world, 2, wrong=WRONG), bound_sig=None)
    assert reported(audit(path, heads=held(wrong, loose), world=world)) == [("head_not_on_log", 7)]


def test_a_head_that_nobody_signed_is_nobodys_word(world: World, path: str) -> None:
    found = audit(path, heads=held(head(world, 2, by="node2", wrong=WRONG)), world=world)
    assert reported(found) == []
    assert found.verdicts[0].unsigned == 1
    damaged = replace(head(world, 3, wrong=WRONG), sig=bytes(64))
    assert audit(path, heads=held(damaged), world=world).verdicts[0].unsigned == 1


def test_a_head_of_more_than_the_archive_has_is_not_judged(world: World, tmp_path: Path) -> None:
    path = write(tmp_path / "a.enc", world, world.events[:18])
    full = held(head(world, 5))  # a bundle that is open in the archive, and took two more events since
    found = audit(path, heads=full, world=world)
    assert [kind for kind, _ in reported(found)] == ["wrong_log_root"]  # the checkpoint is that of the whole log
    assert found.verdicts[0].beyond == 1


def test_a_former_sequencers_head_of_what_came_after_it(world: World, tmp_path: Path) -> None:
    world.send("alice", "Migrate", world.migrate("node2"))
    for i in range(5):
        world.send("alice", "message", f"there {i}", node="node2")
    path = write(tmp_path / "a.enc", world)
    honest = held(head(world, 5), head(world, 6), head(world, 7, by="node2"), head(world, 3, by="node2"))
    assert reported(audit(path, heads=honest, world=world)) == []
    found = audit(path, heads=held(head(world, 7)), world=world)
    assert reported(found) == [("old_sequencer", 25)]
    assert found.proved[0].evidence


def test_two_archives_of_one_log(world: World, path: str, tmp_path: Path) -> None:
    short = talk(12)
    assert short.events == world.events[:13]
    other = write(tmp_path / "b.enc", short, sth=head(short, 3))
    assert reported(audit(path, other, world=world)) == []


def test_two_archives_that_part(world: World, path: str, tmp_path: Path) -> None:
    parted = talk(11)
    parted.send("alice", "message", "something else")
    parted.send("alice", "message", "and more")
    found = audit(path, write(tmp_path / "b.enc", parted, sth=head(parted, 3)), world=world)
    assert reported(found) == [("broken_consistency", 12)]
    assert convicted(found) == [True]


def test_two_archives_of_one_length_that_part_in_a_bundle_that_no_head_covers(tmp_path: Path) -> None:
    one, other = talk(6), talk(5)
    other.send("alice", "message", "another last one")
    paths = [write(tmp_path / f"{i}.enc", world, sth=head(one, 1)) for i, world in enumerate((one, other))]
    found = audit(*paths)
    assert reported(found) == [("broken_consistency", 6)]
    assert convicted(found) == [True]
    assert reported(audit(paths[0], write(tmp_path / "copy.enc", one))) == []


def test_an_archive_that_ends_before_it_says(world: World, tmp_path: Path) -> None:
    found = audit(write(tmp_path / "a.enc", world, world.events[:18], says=21), world=world)
    assert reported(found) == [("gap", 18)]


def test_roots_after_an_event_that_nobody_can_judge_are_not_held_against_anybody(world: World, tmp_path: Path) -> None:
    commit = world.commit("carol", "Move", {"target": pub("carol"), "from": "OUTSIDER", "to": "MEMBER"}, at=9)
    events = list(world.events)
    events[9] = finalize(commit, person("node"), events[9].timestamp, 9)
    found = audit(write(tmp_path / "a.enc", world, events, sth=head(world, 5)), world=world)
    assert reported(found) == [("unauthorised_event", 9)]
    assert convicted(found) == [True]


def test_a_stranger_cannot_accuse_itself_into_a_log(world: World, path: str) -> None:
    """A head that names its own signer, which has no part in the log."""
    stray = CollectedHead(
        head=head(world, 2, by="node2", wrong=WRONG), source="mallory", sequencer=person("node2").public
    )
    found = audit(path, heads=[stray], world=world)
    assert reported(found) == []
    assert found.verdicts[0].unsigned == 1
    misnamed = replace(stray, head=head(world, 2, wrong=WRONG))
    assert reported(audit(path, heads=[misnamed], world=world)) == []


def test_heads_without_an_archive(world: World) -> None:
    def named(ts: int, wrong: bytes, by: str = "node") -> CollectedHead:
        return CollectedHead(head=head(world, ts, wrong=wrong), source="a witness", sequencer=person(by).public)

    apart = [named(2, WRONG), named(3, WRONG), named(2, sha256(b"x"), by="node2")]
    assert reported(audit(heads=apart, world=world)) == []
    found = audit(heads=[*apart, named(2, sha256(b"x"))], world=world)
    assert reported(found) == [("equivocation", -1)]
    assert convicted(found) == [True]
    assert found.findings[0].what.endswith(
        f"signed by the key {pub('node')}: no archive shows whether this is a sequencer of the enclave, "
        "and anyone can make a key"
    )
    assert audit(heads=[named(2, WRONG)], world=world).notes == []
    (note,) = audit(heads=held(head(world, 2)), world=world).notes
    assert note.startswith("1 heads were ignored")


def test_files_of_heads(world: World, tmp_path: Path) -> None:
    line = {"enclave": world.state.enclave.hex(), "sth": wire_head(head(world, 2)), "source": "carol"}
    file = tmp_path / "heads.jsonl"
    file.write_bytes(msgspec.json.encode(line) + b"\n\n" + msgspec.json.encode({**line, "source": ""}) + b"\n")
    assert [each.source for _, each in read_heads(file)] == ["carol", "heads.jsonl"]
    cosigned: dict[str, object] = {name: each for name, each in line.items() if name != "source"}
    cosigned |= {"sequencer": pub("node"), "seen": 5, "witness": "ab" * 32, "cosig": "cd" * 64}
    (tmp_path / "witness.jsonl").write_bytes(msgspec.json.encode(cosigned) + b"\n")
    ((_, seen),) = read_heads(tmp_path / "witness.jsonl")
    assert (seen.source, seen.sequencer) == ("witness " + "ab" * 32, person("node").public)
    known = {world.state.enclave: [CollectedHead(head=head(world, 1), source="before")]}
    (found,) = collect_heads([file], known).values()
    assert [each.head.ts for each in found] == [1, 2, 2]
    file.write_bytes(msgspec.json.encode(line) + b"\n{}\n")
    with pytest.raises(MisuseError, match="line 2"):
        list(read_heads(file))
    with pytest.raises(MisuseError, match="cannot be read"):
        list(read_heads(tmp_path / "nothing"))


def test_heads_that_are_too_many_are_said(world: World, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many heads without a known signer cannot displace valid ones silently."""
    monkeypatch.setattr("enc.audit.audit.MAX_HEADS", 3)
    many = held(*(replace(head(world, 3), ts=100 + i) for i in range(3)), head(world, 3, wrong=WRONG))
    assert audit(path, heads=many[:3], world=world).problems == []
    found = audit(path, heads=many, world=world)
    assert reported(found) == []
    assert found.problems == [f"{world.state.enclave.hex()}: only the 3 largest of 4 heads were used"]


def test_files_of_heads_have_a_bound(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "heads.jsonl"
    line = {"enclave": world.state.enclave.hex(), "sth": wire_head(head(world, 2))}
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for _ in range(3)))
    monkeypatch.setattr("enc.audit.collected_heads.MAX_COLLECTED", 5)
    assert len(collect_heads([file], {})[world.state.enclave]) == 3
    with pytest.raises(MisuseError, match="more than 5 heads"):
        collect_heads([file, file], {})


def test_heads_alone_contradict_each_other_where_one_names_who_signed_them(world: World) -> None:
    pair = held(head(world, 2), head(world, 2, wrong=WRONG))
    assert reported(audit(heads=pair, world=world)) == []
    found = audit(heads=[replace(pair[0], sequencer=person("node").public), pair[1]], world=world)
    assert reported(found) == [("equivocation", -1)]
    assert convicted(found) == [True]


def test_very_many_strangers_do_not_hide_whose_a_head_is(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each head is not checked with every key that a log can name, either."""
    tried: set[bytes] = set()
    monkeypatch.setattr(replay_task, "MAX_SIGNERS", 4)
    monkeypatch.setattr(
        "enc.audit.collected_heads.check_bound_head", lambda head, key, enclave: check(head, key, enclave, tried)
    )
    events = [event if event.seq < 12 else replace(event, sequencer=sha256(event.id)) for event in world.events]
    found = audit(write(tmp_path / "a.enc", world, events), heads=held(head(world, 2, wrong=WRONG)), world=world)
    assert ("head_not_on_log", 7) in reported(found)
    assert len(tried) <= 5


def check(head: TreeHead, key: bytes, enclave: bytes, tried: set[bytes]) -> None:
    tried.add(key)
    check_bound_head(head, key, enclave)


def test_two_sizes_beyond_the_log_are_two_findings(world: World, path: str) -> None:
    pairs = [head(world, size, wrong=sha256(text)) for size in (9, 10) for text in (b"one", b"other")]
    assert reported(audit(path, heads=held(*pairs), world=world)) == [("equivocation", 20)] * 2


def test_a_state_that_nobody_knows_hides_roots_after_very_many_faults_too(tmp_path: Path) -> None:
    world = talk(101)
    world.send("alice", "Move", {"target": pub("bob"), "from": "OUTSIDER", "to": "MEMBER"})
    for i in range(8):
        world.send("alice", "message", f"more {i}")
    altered = [replace(event, content=f"not {event.content}") for event in world.events[1:102]]
    move = world.events[102]
    altered.append(replace(move, content=str(move.content).replace(pub("bob"), pub("carol"))))
    events = [world.events[0], *altered, *world.events[103:]]
    found = audit(write(tmp_path / "a.enc", world, events), heads=held(head(world, 27)), world=world)
    assert {kind for kind, _ in reported(found)} == {"altered_content"}


def test_a_head_that_somebody_altered_is_nobodys_word_beside_the_true_one_too(world: World, path: str) -> None:
    true = head(world, 3)
    found = audit(path, heads=held(replace(true, r=WRONG), true), world=world)
    assert reported(found) == []
    assert (found.verdicts[0].heads, found.verdicts[0].unsigned) == (3, 1)


def test_a_head_that_names_no_enclave_is_shown_and_convicts_nobody(world: World, path: str) -> None:
    found = audit(path, heads=held(replace(head(world, 2, wrong=WRONG), bound_sig=None)), world=world)
    assert reported(found) == [("head_not_on_log", 7)]
    assert convicted(found) == [False]


def test_a_takeover_from_an_older_copy_convicts_nobody(world: World, tmp_path: Path) -> None:
    copy = talk(8)  # two bundles, and one event in a third
    copy.send("alice", "Migrate", copy.migrate("node2"), node="node2", takeover=True)
    for i in range(9):
        copy.send("alice", "message", f"there {i}", node="node2")
    path = write(tmp_path / "a.enc", copy)
    within = audit(path, heads=held(head(world, 3)), world=copy)  # the bundle in which the copy ends took more events
    assert reported(within) == []
    assert within.verdicts[0].beyond == 1
    after = audit(path, heads=held(head(world, 4)), world=copy)
    assert reported(after) == [("head_not_on_log", 9)]
    assert convicted(after) == [False]


def test_a_time_that_falls_at_a_move_is_proved_by_the_log_and_a_head_over_it(world: World, tmp_path: Path) -> None:
    """Without a head of the new sequencer, the former one may have signed another Migrate, of a
    later time.
    """
    world.send("alice", "Migrate", world.migrate("node2"))
    event = finalize(world.commit("alice", "message", "there"), person("node2"), world.events[-1].timestamp - 5, 22)
    path = write(tmp_path / "a.enc", world, [*world.events, event])
    for heads, is_bound in (((), False), (held(head(world, 6)), False), (held(head(world, 6, by="node2")), True)):
        found = audit(path, world=world, heads=heads)
        assert ("falling_timestamp", 22) in reported(found)
        fallen = next(each for each in found.proved if each.finding.kind == "falling_timestamp")
        assert (fallen.convicts, fallen.finding.anchor is not None) == (is_bound, is_bound)
        assert check_evidence(load_evidence(fallen.evidence)).convicts == is_bound
