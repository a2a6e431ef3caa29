"""Whatever someone makes of honest logs, heads and proofs, it convicts only holders of keys that
they have."""

from collections import Counter
from functools import lru_cache
from random import Random

import pytest

from enc.client import Evidence, check_evidence, load_evidence
from enc.core.errors import InvalidProof
from enc.core.log.event import check_event
from tests.core.world import person
from tests.framing.framer import Framer
from tests.framing.scenes import FORMS, MOVES, scene
from tests.tiers import rounds

pytestmark = pytest.mark.sweep
THIEVES: dict[str, list[str]] = {
    "a stranger with a node": [],
    "an author": ["bob"],
    "the owner": ["alice", "olga"],
    "the first node": ["node"],
    "the second node": ["node2"],
    "the owner and the first node": ["alice", "olga", "node"],
    "the owner and the second node": ["alice", "olga", "node2"],
}


def convicted(evidence: Evidence) -> bytes | None:
    """Return whom a file convicts, as `enc verify` would say."""
    try:
        read = load_evidence(evidence.json())
        return read.sequencer if check_evidence(read).convicts else None
    except InvalidProof:
        return None


@pytest.fixture(autouse=True)
def remembered_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check each event once: a thousand files are made of the same events."""
    monkeypatch.setattr("enc.client.evidence.check_log_evidence.check_event", lru_cache(100_000)(check_event))


@pytest.mark.parametrize("thief", THIEVES)
@pytest.mark.parametrize("moves", MOVES)
def test_only_holders_of_the_keys_are_convicted(thief: str, moves: str) -> None:
    found = Counter[str]()
    start = list(THIEVES).index(thief)
    for seed in range(rounds(3)):
        rng = Random(f"{thief} {moves} {seed}")
        one, other = scene(rng, FORMS[(seed + start) % len(FORMS)], moves), scene(rng, rng.choice(FORMS), "none")
        framer = Framer(rng, one, other, THIEVES[thief])
        for evidence in framer.accusations():
            key = convicted(evidence)
            found["files"] += 1
            if key is None:
                continue
            found["convictions"] += 1
            assert key in framer.own, (seed, evidence.kind, evidence.parts.get("fault"))
    assert found["files"] > 60


def test_a_node_that_frames_is_itself_convicted() -> None:
    """The same accusations do convict, of statements that the accused has signed."""
    found = Counter[str]()
    for seed in range(20):
        rng = Random(seed)
        one, other = scene(rng, FORMS[seed % len(FORMS)], "none"), scene(rng, FORMS[0], "none")
        for evidence in Framer(rng, one, other, ["node"]).accusations():
            if convicted(evidence) == person("node").public:
                found[str(evidence.parts.get("fault", evidence.kind))] += 1
    assert len(found) >= 5, found
