"""Each fault matches its description in `kinds`, at its place in planted.json, and there are no other faults."""

from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from enc.bench.fault_kinds import KINDS, Kind, Planted
from enc.bench.fault_places import MIN_EVENTS, assign, behaviour_of
from enc.bench.fleet import make
from enc.bench.group_script import GroupScript
from enc.bench.log_maker import LogMaker
from enc.bench.plan import Plant, draw_plan
from enc.core.errors import InvalidArchive, InvalidHash, InvalidSignature, ReplayFailed
from enc.core.log.commit import check_commit
from enc.core.log.event import check_event, check_sequenced
from enc.core.machine.archive_check import check_sth, verify_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import sha256
from enc.core.rules.content import parse_migrate
from enc.core.trees.bundle import BundleConfig, events_root, split
from enc.core.trees.merkle_log import check_consistency, prove_consistency
from tests.bench import folder

pytestmark = pytest.mark.sweep

SEEDS = range(10)


class Scene:
    """Return an enclave with a fault of a kind; every fifth seed is of version 1."""

    def __init__(self, out: Path, kind: Kind, seed: int, events: int = 0, place: int = 0) -> None:
        out.mkdir(exist_ok=True)
        plan = draw_plan(seed, 0, events or (MIN_EVENTS, 120, 60, 110, 150)[seed % 5], 40)
        plan = replace(plan, enc_v=1 if seed % 5 == 4 else 2, earlier=10)
        (plan,) = assign([plan], [kind], seed)
        if place:
            moves = (place - 1,) if plan.moves else ()
            plan = replace(plan, plant=Plant(kind, place), moves=moves, gap_ms=1, bundle_timeout=60_000)
        made = make(out, plan)
        assert made.planted is not None
        self.out, self.fault = out, made.planted
        self.archive, *self.earlier = folder.archives(out)
        (out / "heads.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(made.heads))
        self.heads = folder.heads(out)
        self.enclave = self.archive.header.enclave
        assert (self.fault.kind, self.fault.enclave) == (kind, self.enclave.hex())
        assert self.fault.done
        assert bool(self.earlier) == (kind == "broken_consistency")

    @property
    def seq(self) -> int:
        return self.fault.seq

    def failure(self) -> ReplayFailed:
        with pytest.raises(ReplayFailed) as caught:
            verify_archive(self.archive.header, iter(self.archive.events))
        return caught.value

    def fits(self, log: folder.TrustingReplay, but: tuple[int, ...] = ()) -> None:
        """Check that every head except those of some sizes, the header's and the checkpoint match
        the log as made.
        """
        header = self.archive.header
        assert header.events == len(self.archive.events)
        assert header.checkpoint_seq == self.archive.events[-1].seq
        assert header.checkpoint_root == log.checkpoint
        sth = [] if header.sth is None else [header.sth]
        for head in [*sth, *(each.head for each in self.heads)]:
            assert folder.signer(head, self.archive)
            assert head.ts in but or log.roots[head.ts] == head.r
        runs = [
            (event.sequencer, event.seq)
            for i, event in enumerate(self.archive.events)
            if i == 0 or event.sequencer != self.archive.events[i - 1].sequencer
        ]
        assert list(header.sequencers) == runs

    def signatures(self, but: int = -1) -> None:
        for event in self.archive.events:
            if event.seq != but:
                check_event(event, self.archive.header.enc_v)


def scenes(kind: Kind) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"{kind}-{seed}")


@scenes("invalid_signature")
def test_an_invalid_signature(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "invalid_signature", seed)
    event = scene.archive.events[scene.seq]
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "INVALID_SIGNATURE")
    if scene.fault.done.startswith("sig "):
        check_sequenced(event)
        with pytest.raises(InvalidSignature):
            check_commit(event, scene.archive.header.enc_v)
    else:
        check_commit(event, scene.archive.header.enc_v)
        with pytest.raises(InvalidSignature, match="seq_sig"):
            check_sequenced(event)
    assert sha256(event.seq_sig) == event.id
    scene.signatures(but=scene.seq)
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("altered_content")
def test_an_altered_content(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "altered_content", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "INVALID_HASH")
    event = scene.archive.events[scene.seq]
    check_sequenced(event)
    with pytest.raises(InvalidHash):
        check_commit(event, scene.archive.header.enc_v)
    scene.signatures(but=scene.seq)
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("unauthorised_event")
def test_an_unauthorised_event(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "unauthorised_event", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "UNAUTHORIZED")
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive, unjudged=scene.seq))


@scenes("gap")
def test_a_gap(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "gap", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq + 1, "INVALID_ARCHIVE")
    assert f"expected {scene.seq}" in failed.message
    places = [event.seq for event in scene.archive.events]
    assert places == [seq for seq in range(len(places) + 1) if seq != scene.seq]
    assert not any("inclusion" in head.line for head in scene.heads)
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("reordering")
def test_a_reordering(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "reordering", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq + 1, "INVALID_ARCHIVE")
    first, then = scene.archive.events[scene.seq : scene.seq + 2]
    assert (first.seq, then.seq) == (scene.seq + 1, scene.seq)
    assert first.timestamp == then.timestamp
    assert all(event.type == "message" and event.content for event in (first, then))
    assert sorted(event.seq for event in scene.archive.events) == list(range(len(scene.archive.events)))
    assert sum(event.seq != i for i, event in enumerate(scene.archive.events)) == 2
    log = folder.TrustingReplay(scene.archive)
    ids = [event.id for event in scene.archive.events]
    bundle = next(b for b in log.bundles if b.first_seq <= scene.seq < b.first_seq + b.count)
    assert scene.seq + 1 < bundle.first_seq + bundle.count
    assert bundle.events_root == events_root(ids[bundle.first_seq : bundle.first_seq + bundle.count])
    scene.signatures()
    scene.fits(log)


@scenes("falling_timestamp")
def test_a_falling_timestamp(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "falling_timestamp", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "INVALID_ARCHIVE")
    assert failed.message.endswith("timestamp: before the previous event's")
    times = [event.timestamp for event in scene.archive.events]
    assert [i for i in range(1, len(times)) if times[i] < times[i - 1]] == [scene.seq]
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("sequencer_change")
def test_a_sequencer_change(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "sequencer_change", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "ENCLAVE_MIGRATED")
    (old, _), (new, since) = scene.archive.header.sequencers
    assert (old != new, since) == (True, scene.seq)
    assert not any(event.type == "Migrate" for event in scene.archive.events)
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("old_sequencer")
def test_an_old_sequencer(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "old_sequencer", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "ENCLAVE_MIGRATED")
    migrate, after = scene.archive.events[scene.seq - 1 : scene.seq + 1]
    assert parse_migrate(migrate).new_sequencer != after.sequencer == migrate.sequencer
    replay = Replay()
    for event in scene.archive.events[: scene.seq]:
        replay.add(event)
    assert len(scene.archive.header.sequencers) == 1
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive))


@scenes("erasure_without_cause")
def test_an_erasure_without_cause(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "erasure_without_cause", seed)
    failed = scene.failure()
    assert (failed.seq, failed.code) == (scene.seq, "INVALID_ARCHIVE")
    assert scene.archive.events[scene.seq].content is None
    scene.signatures()
    scene.fits(folder.TrustingReplay(scene.archive))


@pytest.mark.parametrize("kind", KINDS)
def test_no_pause_comes_between(tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupScript, "changes", (("pause", 300.0), ("admit", 10.0)))
    for seed in (0, 1, 2, 3):
        Scene(tmp_path / str(seed), kind, seed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_place_and_the_last_will_do(tmp_path: Path, kind: Kind) -> None:
    for seed, place in enumerate((2, 2, 69, 69, 69, 69)):
        scene = Scene(tmp_path / str(seed), kind, seed, 78, place)
        sizes = {each.head.ts for each in scene.heads}
        assert scene.archive.header.sth is not None
        assert scene.archive.header.sth.ts >= 4, "too few bundles for a fault to be between them"
        for earlier in scene.earlier:
            assert earlier.header.sth is not None
            assert earlier.header.sth.ts < scene.archive.header.sth.ts
            assert earlier.header.sth.ts in sizes


# Leaves


def proved(scene: Scene) -> folder.Head:
    """Return the line of heads.jsonl that proves an event, under a head that its sequencer
    signed.
    """
    (head,) = (head for head in scene.heads if "inclusion" in head.line)
    folder.check_proof(head, scene.archive)
    return head


def replays(scene: Scene) -> Replay:
    """Check that the events themselves are valid; only the signed values over them are not."""
    replay = Replay(scene.enclave)
    for event in scene.archive.events:
        replay.add(event)
    replay.finish()
    with pytest.raises(InvalidArchive, match="not the log's checkpoint"):
        verify_archive(scene.archive.header, iter(scene.archive.events))
    return replay


@scenes("wrong_bundle_boundary")
def test_a_wrong_bundle_boundary(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "wrong_bundle_boundary", seed)
    replays(scene)
    line = proved(scene).line
    member, index = line["membership"], line["membership"]["leaf_index"]
    first = line["seq"] - member["ei"]
    ids = [event.id for event in scene.archive.events]
    assert events_root(ids[first : first + member["size"]]).hex() == member["events_root"]
    right = list(split(scene.archive.events, scene_bundle(scene)))[index]
    assert right.first_seq == first
    assert min(right.count, member["size"]) + first == scene.seq
    is_early = member["size"] < right.count
    assert is_early == ("closed before" in scene.fault.done)
    assert is_early or member["size"] > right.count
    early, late = (scene.seq, -1) if is_early else (-1, scene.seq)
    scene.fits(folder.TrustingReplay(scene.archive, early=early, late=late))


@pytest.mark.parametrize("kind", KINDS)
def test_a_larger_log_is_never_signed_earlier(kind: Kind) -> None:
    for seed in range(6):
        plan = replace(draw_plan(seed, 0, 80, 40), gap_ms=1, bundle_timeout=60_000)
        (plan,) = assign([plan], [kind], seed)
        times = [bundle.closed_at for bundle in LogMaker(plan, behaviour_of(plan), BytesIO()).run().bundles]
        assert times == sorted(times) or kind == "falling_timestamp"


def scene_bundle(scene: Scene) -> BundleConfig:
    replay = Replay()
    replay.add(scene.archive.events[0])
    return replay.state.policy.bundle


def test_bundles_are_closed_early_and_late_and_both_signatures_are_forged(tmp_path: Path) -> None:
    forged: list[tuple[Kind, int, set[str]]] = [
        ("wrong_bundle_boundary", 2, {"was", "took"}),
        ("invalid_signature", 0, {"sig", "seq_sig"}),
    ]
    for kind, word, ways in forged:
        faults = [Scene(tmp_path / f"{kind}{seed}", kind, seed).fault for seed in range(12)]
        assert {fault.done.split()[word] for fault in faults} == ways


@scenes("wrong_state_root")
def test_a_wrong_state_root(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "wrong_state_root", seed)
    replays(scene)
    inclusion = proved(scene).line["inclusion"]
    log = folder.TrustingReplay(scene.archive)
    bundle = log.bundles[inclusion["li"]]
    assert inclusion["events_root"] == bundle.events_root.hex()
    assert inclusion["state_hash"] != bundle.state_hash.hex()
    assert bundle.first_seq + bundle.count - 1 == scene.seq
    wrong = bytes.fromhex(inclusion["state_hash"])
    scene.fits(folder.TrustingReplay(scene.archive, leaf=(bundle.index, wrong)))


# Heads


def covered(scene: Scene, log: folder.TrustingReplay, size: int) -> None:
    assert log.last[size] == scene.seq


@scenes("wrong_log_root")
def test_a_wrong_log_root(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "wrong_log_root", seed)
    with pytest.raises(InvalidArchive, match="sth is not the head of this log"):
        verify_archive(scene.archive.header, iter(scene.archive.events))
    log, sth = folder.TrustingReplay(scene.archive), scene.archive.header.sth
    assert sth is not None
    assert log.roots[sth.ts] != sth.r
    assert sth.ts not in {each.head.ts for each in scene.heads}
    covered(scene, log, sth.ts)
    scene.fits(log, but=(sth.ts,))


@scenes("head_not_on_log")
def test_a_head_that_is_not_on_the_log(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "head_not_on_log", seed)
    verify_archive(scene.archive.header, iter(scene.archive.events))
    log = folder.TrustingReplay(scene.archive)
    (head,) = (each.head for each in scene.heads if log.roots[each.head.ts] != each.head.r)
    assert scene.archive.header.sth is not None
    assert [each.head.ts for each in scene.heads].count(head.ts) == 1
    assert head.ts < scene.archive.header.sth.ts
    covered(scene, log, head.ts)
    scene.fits(log, but=(head.ts,))
    assert not scene.earlier


@scenes("equivocation")
def test_an_equivocation(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "equivocation", seed)
    verify_archive(scene.archive.header, iter(scene.archive.events))
    log = folder.TrustingReplay(scene.archive)
    by_size: dict[int, set[bytes]] = {}
    for each in scene.heads:
        by_size.setdefault(each.head.ts, set()).add(each.head.r)
    ((size, roots),) = ((size, roots) for size, roots in by_size.items() if len(roots) > 1)
    assert len(roots) == 2
    assert log.roots[size] in roots
    assert len({folder.signer(each.head, scene.archive) for each in scene.heads if each.head.ts == size}) == 1
    covered(scene, log, size)
    scene.fits(log, but=(size,))


@scenes("broken_consistency")
def test_a_broken_consistency(tmp_path: Path, seed: int) -> None:
    scene = Scene(tmp_path, "broken_consistency", seed)
    verify_archive(scene.archive.header, iter(scene.archive.events))
    (earlier,) = scene.earlier
    verify_archive(earlier.header, iter(earlier.events))
    small, large = earlier.header.sth, scene.archive.header.sth
    assert small is not None
    assert large is not None
    check_sth(small, verify_archive(earlier.header, iter(earlier.events)))
    assert small.ts < large.ts
    log = folder.TrustingReplay(scene.archive)
    proof = prove_consistency(log.memory, small.ts, large.ts)
    check_consistency(proof, log.roots[small.ts], large.r)
    assert log.roots[small.ts] != small.r
    assert earlier.events[-1].seq == scene.seq
    same = [a.id == b.id for a, b in zip(earlier.events, scene.archive.events, strict=False)]
    assert same == [True] * scene.seq + [False]
    assert {each.head.r for each in scene.heads if each.head.ts == small.ts} == {small.r}
    scene.fits(log, but=(small.ts,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_is_any_and_the_seq_that_is_named_is_in_the_log(tmp_path: Path, kind: Kind) -> None:
    found = [planted(tmp_path / str(seed), kind, seed) for seed in range(5, 11)]
    assert len({each.seq for each in found}) > 1 or kind == "wrong_log_root"


def planted(out: Path, kind: Kind, seed: int) -> Planted:
    scene = Scene(out, kind, seed, events=60)
    assert 0 < scene.seq < 61
    return scene.fault
