"""Fleets from a seed: valid, realistic, of the requested sizes, and always the same bytes."""

from collections import Counter
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.bench.fault_kinds import KINDS
from enc.bench.fleet import generate, make, sizes
from enc.bench.group_script import GroupScript
from enc.bench.log_maker import LogMaker
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.plan import draw_plan
from enc.bench.script import Act
from enc.core.errors import MisuseError, Unauthorized
from enc.core.machine.archive import read_archive
from enc.core.machine.archive_check import verify_archive
from enc.core.machine.replay import Replay
from enc.core.rules.content import parse_migrate
from tests.bench import folder

pytestmark = pytest.mark.sweep

MIXED: dict[str, Any] = {"enclaves": 24, "events": 5000, "seed": 10}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fleet")
    generate(out, **MIXED)
    return out


def everything(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_seed_makes_the_same_bytes_however_many_processes_there_are(clean: Path, tmp_path: Path, jobs: int) -> None:
    generate(tmp_path, **MIXED, jobs=jobs)
    assert everything(tmp_path) == everything(clean)


def test_planted_faults_are_the_same_bytes_too_and_leave_other_enclaves_alone(clean: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    generate(one, **MIXED, plants=KINDS)
    fleet = generate(two, **MIXED, plants=KINDS, jobs=2)
    assert everything(one) == everything(two)
    assert {each["enclave"] for each in folder.planted(one)} == {each.enclave for each in fleet.planted}
    unchanged = everything(one).items() & everything(clean).items()
    assert len([name for name, _ in unchanged if len(name) == 68]) == MIXED["enclaves"] - len(KINDS)


def test_another_seed_makes_other_enclaves(clean: Path, tmp_path: Path) -> None:
    generate(tmp_path, **{**MIXED, "events": 24, "seed": 11})
    assert not everything(tmp_path).keys() & {name for name in everything(clean) if name.endswith(".enc")}


def test_every_archive_replays_and_fits_its_header(clean: Path) -> None:
    for path in clean.glob("*.enc"):
        header, events = read_archive([path.read_bytes()])
        verify_archive(header, events)
        assert header.sth is not None
        assert header.sth.bound_sig is not None
        assert path.name.startswith(header.enclave.hex())


def test_there_is_one_archive_an_enclave_and_some_earlier_ones_that_are_prefixes(clean: Path) -> None:
    whole = [path for path in clean.glob("*.enc") if len(path.suffixes) == 1]
    assert len(whole) == MIXED["enclaves"]
    earlier = [path for path in clean.glob("*.enc") if len(path.suffixes) == 2]
    assert earlier
    for path in earlier:
        shorter, longer = folder.read(path), folder.read(path.with_name(path.name.replace(".earlier", "")))
        assert len(shorter.events) < len(longer.events)
        assert [event.id for event in shorter.events] == [event.id for event in longer.events[: len(shorter.events)]]
        both = zip(shorter.events, longer.events, strict=False)
        assert all(then.content in (None, before.content) for before, then in both)


def test_sizes_follow_zipf_and_are_those_that_were_asked_for(clean: Path) -> None:
    found = sorted((len(folder.read(p).events) for p in clean.glob("*.enc") if len(p.suffixes) == 1), reverse=True)
    assert found == sizes(MIXED["enclaves"], MIXED["events"])
    for enclaves, events in ((1, 1), (1, 300_000), (7, 7), (10, 12), (1000, 1_000_000), (999, 12_345)):
        found = sizes(enclaves, events)
        assert (len(found), sum(found), min(found) >= 1) == (enclaves, events, True)
        assert found == sorted(found, reverse=True)
    found = sizes(1000, 1_000_000)
    for rank in (2, 3, 10, 100):
        assert found[rank - 1] == pytest.approx(found[0] / rank, rel=0.05)


def test_logs_are_as_people_write_them(clean: Path) -> None:
    events = [event for archive in folder.archives(clean) for event in archive.events]
    types = Counter(event.type for event in events)
    assert types["message"] / len(events) > 0.5
    wanted = "Move Grant Revoke Gate AC_Bundle Shared Own Update Delete Pause Resume Migrate reaction notice"
    assert not set(wanted.split()) - types.keys()
    assert {archive.header.enc_v for archive in folder.archives(clean)} == {1, 2}
    assert {event.alg for event in events} == {"schnorr", "ecdsa"}
    assert {tag[0] for event in events for tag in event.tags} == {"r", "topic", "auto-delete"}
    assert all(one.exp < then.exp for archive in folder.archives(clean) for one, then in pairwise(archive.events))
    assert any(len(archive.header.sequencers) > 1 for archive in folder.archives(clean))


def test_version_1_has_its_own_ways(tmp_path: Path) -> None:
    make(tmp_path, replace(draw_plan(1, 0, 1500, 100), enc_v=1))
    (archive, *_) = folder.archives(tmp_path)
    verify_archive(archive.header, iter(archive.events))
    types = {event.type for event in archive.events}
    assert types >= set("Grant Revoke Revoke_Self Move Update Delete Pause Resume message reaction notice".split())
    assert types.isdisjoint(["Shared", "Own", "Gate"])


def test_moves_and_pauses_go_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupScript, "changes", (("pause", 300.0), ("admit", 10.0)))
    plan = replace(draw_plan(3, 0, 300, 40), enc_v=2, nodes=(1, 2, 3, 4), moves=(60, 61, 200))
    make(tmp_path, plan)
    verify_archive(*read_archive([path.read_bytes() for path in tmp_path.glob("*.enc")][:1]))


def test_the_kernel_judges_what_a_script_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this log a person joins, writes, leaves, and then tries to write."""

    def act(script: GroupScript, place: int, now: int, *, plain: bool) -> Act:
        who = script.outside[0]
        if place % 2:
            states = ("OUTSIDER", "MEMBER") if place == 1 else ("MEMBER", "OUTSIDER")
            return script._move(script.owner, who, *states)
        return script._act(who, "message", "hello")

    monkeypatch.setattr(GroupScript, "act", act)
    plan = replace(draw_plan(3, 0, 5, 40), enc_v=2, is_sealed=False)
    maker = LogMaker(plan, NodeBehaviour(), BytesIO())
    with pytest.raises(Unauthorized):
        maker.run()
    assert maker.state.seq == 3


def test_a_migrate_is_peaceful_and_the_next_sequencer_goes_on(clean: Path) -> None:
    for archive in folder.archives(clean):
        for event, after in pairwise(archive.events):
            if event.type == "Migrate":
                assert event.sequencer != after.sequencer == parse_migrate(event).new_sequencer


def test_what_a_later_event_took_away_is_gone_and_nothing_else(clean: Path) -> None:
    erased, timed = 0, Counter[bool]()
    for archive in folder.archives(clean):
        replay, gone = Replay(), set[bytes]()
        for event in archive.events:
            gone.update(replay.add(event)[1].erases)
        end = archive.events[-1].timestamp
        for event in archive.events:
            ends = [int(tag[1]) for tag in event.tags if tag[0] == "auto-delete"]
            assert (event.content is None) == (event.id in gone or any(at <= end for at in ends))
            erased += event.content is None
            timed.update([event.content is None] if ends and event.id not in gone else [])
    assert erased > 100
    assert set(timed) == {True, False}


def test_every_head_is_on_the_log_and_bound_and_every_proof_holds(clean: Path) -> None:
    proofs, sources = 0, set[str]()
    for archive in folder.archives(clean):
        own = folder.heads(clean, archive.header.enclave.hex())
        log = folder.TrustingReplay(archive)
        assert own
        for each in own:
            if each.head.ts not in log.roots:
                continue  # a head of the longer log of an earlier archive
            assert log.roots[each.head.ts] == each.head.r
            assert folder.signer(each.head, archive) or log.last[each.head.ts] > archive.header.checkpoint_seq
            sources.add(each.line["source"])
            if "inclusion" in each.line and each.line["seq"] < len(archive.events):
                proofs += 1
                folder.check_proof(each, archive)
    assert len(sources) > 3
    assert proofs


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_logs_are_valid_too(tmp_path: Path, seed: int) -> None:
    generate(tmp_path, enclaves=12, events=20, seed=seed)
    for path in tmp_path.glob("*.enc"):
        verify_archive(*read_archive([path.read_bytes()]))
    assert len(folder.heads(tmp_path)) >= 12
    assert folder.planted(tmp_path) == []


def test_a_folder_that_has_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    with pytest.raises(MisuseError, match="is not empty"):
        generate(tmp_path, enclaves=1, events=1, seed=0)
    with pytest.raises(MisuseError, match="mine"):
        generate(tmp_path / "mine", enclaves=1, events=1, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"enclaves": 0}, "enclaves: expected 1 to"),
        ({"enclaves": 100_001, "events": 200_000}, "enclaves: expected 1 to"),
        ({"events": 100_000_001}, "events: expected 1 to"),
        ({"enclaves": 5, "events": 4}, "events: expected at least 5"),
        ({"seed": -1}, "seed: expected 0 to"),
        ({"jobs": 0}, "jobs: expected 1 to"),
        ({"plants": KINDS[:3], "enclaves": 2, "events": 60}, "of at least 24 events: there are 1 for 3 faults"),
    ],
)
def test_what_is_out_of_bounds_is_refused_before_anything_is_written(tmp_path: Path, wrong: dict, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        generate(tmp_path / "out", **{"enclaves": 1, "events": 30, "seed": 0, **wrong})
    assert not (tmp_path / "out").exists()
