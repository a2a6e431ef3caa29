"""Whatever someone makes of honest logs, heads and proofs, it convicts only holders of keys that
they have."""

from collections import Counter
from functools import lru_cache
from itertools import chain
from random import Random

import pytest

from enc.client import Evidence, check_evidence, load_evidence
from enc.client.evidence.log_evidence import log_parts
from enc.core.errors import InvalidProof
from enc.core.log.commit import build_commit
from enc.core.log.event import check_event, finalize
from enc.core.machine.audit_replay import AuditReplay
from enc.core.machine.observed_roots import ObservedRoots
from enc.core.primitives.encoding import compact_json
from enc.core.trees.cosigning import CosignedHead
from tests.core.world import Json, person
from tests.framing.framer import Framer, replayed
from tests.framing.scenes import FORMS, MOVES, Acting, scene
from tests.tiers import rounds

pytestmark = pytest.mark.sweep
THIEVES: dict[str, list[str]] = {
    "a stranger with a node": [],
    "an author": ["bob"],
    "the owner": ["alice", "olga"],
    "the first node": ["node"],
    "the second node": ["node2"],
    "the third node": ["node3"],
    "the witness": ["witness"],
    "the owner and the first node": ["alice", "olga", "node"],
    "the owner and the second node": ["alice", "olga", "node2"],
}


def judged(evidence: Evidence) -> tuple[bytes | None, str | None]:
    """Return whom a file convicts, and what it says that a witness states, as `enc verify` would."""
    try:
        read = load_evidence(evidence.json())
        verdict = check_evidence(read)
    except InvalidProof:
        return None, None
    said = next((each for each in verdict.proved if each.startswith("the witness ")), None)
    return read.sequencer if verdict.convicts else None, said


def stated(cosigned: CosignedHead) -> tuple[str, str, str]:
    """Return the words of a verdict that name the witness, the size and the time."""
    return cosigned.witness.hex(), f"of {cosigned.head.ts} bundles", f"saw it at {cosigned.seen}"


@pytest.fixture(autouse=True)
def remembered_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check each event once: a thousand files are made of the same events."""
    monkeypatch.setattr("enc.client.evidence.check_log_evidence.check_event", lru_cache(100_000)(check_event))


@pytest.mark.parametrize("thief", THIEVES)
@pytest.mark.parametrize("moves", MOVES)
def test_only_holders_of_the_keys_are_convicted(thief: str, moves: str) -> None:
    found = Counter[str]()
    start = list(THIEVES).index(thief)
    for seed in range(rounds(len(FORMS))):
        rng = Random(f"{thief} {moves} {seed}")
        one, other = scene(rng, FORMS[(seed + start) % len(FORMS)], moves), scene(rng, rng.choice(FORMS), "none")
        framer = Framer(rng, one, other, THIEVES[thief])
        tries = 1 if THIEVES[thief] else 3
        for evidence in chain.from_iterable(framer.accusations() for _ in range(tries)):
            key, _ = judged(evidence)
            found["files"] += 1
            if key is None:
                continue
            found["convictions"] += 1
            assert key in framer.own, (seed, evidence.kind, evidence.parts.get("fault"))
    assert found["files"] > 60


@pytest.mark.parametrize("is_anchored", [False, True])
def test_a_head_of_a_copied_manifest_convicts_nobody(is_anchored: bool) -> None:
    """The node has signed that it took the whole log, at another root: by its Migrate, or by a later head."""
    found = 0
    for seed in range(10):
        one = scene(Random(seed), FORMS[seed % len(FORMS)], "copied")
        copied, later, log = one.heads[0], one.heads[-1], one.lines[-1]
        marks = ObservedRoots([1])
        replay = AuditReplay(one.enclave, on_step=marks.step)
        for event in log:
            replay.add(event)
        mark = marks.at(1)
        if mark is None or not mark.is_closed:
            continue
        assert (copied.head.ts, later.key, log[0].sequencer == copied.key) == (1, copied.key, False)
        anchor = later.head if is_anchored else None
        for kind in ("head_not_on_log", "wrong_log_root", "broken_consistency"):
            parts = log_parts(kind, mark.seq, log, copied.head, anchor=anchor)  # type: ignore[arg-type]
            accused = Evidence(kind="log", enclave=one.enclave, sequencer=copied.key, message="", parts=parts)
            verdict = check_evidence(accused)
            assert (verdict.holds, verdict.convicts) == (True, False)
            found += 1
    assert found


def test_a_copied_manifest_in_front_of_the_log_convicts_nobody() -> None:
    """The owner moved the enclave before anything else was written; the copy's head covers the copy."""
    scenes = (scene(Random(seed), FORMS[0], "copied") for seed in range(20))
    one = next(each for each in scenes if each.lines[-1][1].type == "Migrate")
    (copy,), log, copied = one.lines[0], one.lines[-1], one.heads[0]
    assert (copy.sequencer, copied.key, copied.head.ts) == (log[1].sequencer, copy.sequencer, 1)
    for anchor in (None, copied.head):
        parts = log_parts("sequencer_change", 1, [copy, *log[1:]], anchor=anchor)
        accused = Evidence(kind="log", enclave=one.enclave, sequencer=copied.key, message="", parts=parts)
        verdict = check_evidence(accused)
        assert (verdict.holds, verdict.convicts) == (True, False)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form[2].__name__)
def test_events_in_front_of_the_manifest_convict_nobody(form: tuple[Json, str, Acting]) -> None:
    """No root covers them, so the node's heads are also those of the log with them."""
    one = scene(Random("in front"), form, "none")
    log, eve, found = one.lines[0], person("eve"), 0
    content = compact_json({"enc_v": one.enc_v})  # the first event says the version
    commit = build_commit(eve, one.enclave, "note", content, log[0].timestamp + 60_000, enc_v=one.enc_v)
    for seq in (3, 0):
        forged = finalize(commit, eve, log[0].timestamp, seq)
        for events in ([forged, *log], [forged, *log[:4], *log[3:]]):
            for fault in replayed(one.enclave, events).finish():
                for over in one.heads if fault.kind in ("gap", "reordering") else ():
                    parts = log_parts(fault.kind, fault.seq, events, over.head)
                    accused = Evidence(kind="log", enclave=one.enclave, sequencer=over.key, message="", parts=parts)
                    assert judged(accused)[0] is None
                    found += 1
    assert found


def test_a_witness_is_quoted_with_what_it_has_signed_alone() -> None:
    """The thieves have nodes' keys, so there are heads that contradict each other to quote it on."""
    found = Counter[bool]()
    for seed in range(25):
        rng = Random(f"witness {seed}")
        one, other = scene(rng, FORMS[seed % len(FORMS)], "none"), scene(rng, FORMS[0], "none")
        framer = Framer(rng, one, other, ["node"])
        true = [stated(each) for each in one.cosigned]
        for _ in range(3):
            for evidence in framer.accusations():
                said = judged(evidence)[1]
                if said is not None and not any(own.hex() in said.split(" co-signed ")[0] for own in framer.own):
                    assert any(all(word in said for word in words) for words in true), said
                    found[True] += 1
                found[False] += said is not None
    assert found[True]
    assert found[False] > found[True]  # others of one's own are quoted too


def test_a_node_that_frames_is_itself_convicted() -> None:
    """The same accusations do convict, of statements that the accused has signed."""
    found = Counter[str]()
    for seed in range(40):
        rng = Random(seed)
        one, other = scene(rng, FORMS[seed % len(FORMS)], "none"), scene(rng, FORMS[0], "none")
        for evidence in Framer(rng, one, other, ["node"]).accusations():
            if judged(evidence)[0] == person("node").public:
                found[str(evidence.parts.get("fault", evidence.kind))] += 1
    assert len(found) >= 5, found
