"""The log verifier: what it rejects, and what it accepts from an honest node."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from enc.client import AsyncClient, Equivocation, ForeignSequencer, Forgery, Fork, Identity, Rollback
from enc.client.verify import log_verifier as module
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import FilePins, MemoryPins, Pin
from enc.client.verify.sequencer_history import History, Migration
from enc.client.wire.transport import AsyncTransport
from enc.core.log.commit import MAX_EXP_WINDOW_MS, SKEW_MS, build_commit, build_manifest
from enc.core.log.event import erase, finalize
from enc.core.log.receipt import build_receipt
from enc.core.primitives.hashing import EMPTY_HASH, sha256
from enc.core.primitives.types import Commit, Event, TreeHead
from enc.core.trees.tree_head import sign_head
from enc.testing.lying_node import LyingNode
from tests.client.evidence.honest_log import LOG
from tests.client.scene import TOPIC, Scene
from tests.client.stage import URL
from tests.core.world import START, person
from tests.node.served import PATIENCE_S

ENCLAVE = sha256(b"enclave")
NODE = person("node")


@pytest.fixture
def pins() -> MemoryPins:
    return MemoryPins()


@pytest.fixture
def verifier(pins: MemoryPins) -> LogVerifier:
    return LogVerifier(ENCLAVE, NODE.public, pins)


def head(ts: int, t: int = 0, root: bytes | None = None) -> TreeHead:
    return sign_head(NODE, ENCLAVE, START + t, ts, LOG.roots[ts] if root is None else root)


def commit(text: str = "x", exp: int = START + 60_000) -> Commit:
    return build_commit(person("bob"), ENCLAVE, "message", text, exp)


def event(text: str = "x", seq: int = 1, timestamp: int = START) -> Event:
    return finalize(commit(text), NODE, timestamp, seq)


# Sequencers


def test_every_sequencer_of_the_log_may_withhold_and_nobody_else(verifier: LogVerifier) -> None:
    assert verifier.nodes_of(event()) == {NODE.public}
    first, then = person("node2").public, person("node3").public
    moves = Migration(event(), NODE.public), Migration(event(seq=9), then)
    verifier.learn(History(first, moves))
    assert verifier.nodes_of(event()) == {first, NODE.public, then}


# Heads


def test_what_is_believed_is_pinned_and_only_grows(verifier: LogVerifier, pins: MemoryPins) -> None:
    assert verifier.size == 0
    for each in (head(0), head(2), head(5), head(3)):
        verifier.pin_head(each)
    assert verifier.head == head(5)
    assert verifier.size == 5
    assert pins.load(ENCLAVE) == Pin(NODE.public, head(5))


def test_the_first_head_stands_on_its_signature(verifier: LogVerifier) -> None:
    assert verifier.check_head(head(5), b"", since=0) is None
    assert verifier.head is None, "judging a head does not accept it"


def test_the_same_head_again(verifier: LogVerifier) -> None:
    verifier.pin_head(head(3))
    assert verifier.check_head(head(3), b"", since=3) is None


def test_a_larger_head_must_be_connected(verifier: LogVerifier) -> None:
    verifier.pin_head(head(3))
    assert verifier.check_head(head(5), b"", since=3) == head(3)
    verifier.connect(head(3), head(5), LOG.connect(3, 5))


def test_nothing_is_connected_with_the_empty_log(verifier: LogVerifier) -> None:
    verifier.pin_head(head(0, root=EMPTY_HASH))
    assert verifier.check_head(head(5), b"", since=0) is None


def test_a_head_that_was_on_its_way_when_a_larger_one_came(verifier: LogVerifier) -> None:
    """This is not a rollback, but it must belong to the same log."""
    verifier.pin_head(head(5))
    assert verifier.check_head(head(3), b"", since=3) == head(5)
    assert verifier.check_head(head(4), b"", since=3) == head(5)
    with pytest.raises(Rollback):
        verifier.check_head(head(2), b"", since=3)
    with pytest.raises(Rollback):
        verifier.check_head(head(3), b"", since=5)
    with pytest.raises(Fork):
        verifier.connect(head(3, root=sha256(b"false")), head(5), LOG.connect(3, 5))


def test_the_empty_log_was_on_its_way_too(verifier: LogVerifier) -> None:
    verifier.pin_head(head(5))
    assert verifier.check_head(head(0, root=EMPTY_HASH), b"", since=0) is None


# Events


def test_an_event_is_the_same_whole_and_erased(verifier: LogVerifier) -> None:
    verifier.verify_events([event()], b"")
    verifier.verify_events([erase(event())], b"")


def test_a_receipt_takes_its_place(verifier: LogVerifier) -> None:
    verifier.verify_receipt(build_receipt(event()), commit(), b"")
    verifier.verify_events([event()], b"")
    with pytest.raises(Equivocation):
        verifier.verify_events([event("y")], b"")


def test_a_place_is_remembered_for_long_and_not_for_ever(
    verifier: LogVerifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SEEN", 3)
    verifier.verify_events([event(f"{seq}", seq) for seq in range(1, 4)], b"")
    with pytest.raises(Equivocation):
        verifier.verify_events([event("y", 1)], b"")
    with pytest.raises(Forgery):
        verifier.verify_events([event("1", 7)], b"")
    verifier.verify_events([event("4", 4)], b"")
    verifier.verify_events([event("y", 1)], b"")
    verifier.verify_events([event("1", 7)], b"")


@pytest.mark.parametrize(
    ("after", "is_good"),
    [
        (-SKEW_MS, True),
        (-SKEW_MS - 1, False),
        (MAX_EXP_WINDOW_MS + SKEW_MS, True),
        (MAX_EXP_WINDOW_MS + SKEW_MS + 1, False),
    ],
)
def test_the_time_of_an_event_is_one_that_its_exp_allows(verifier: LogVerifier, after: int, is_good: bool) -> None:
    """docs/protocol.md, section 7.3."""
    found = finalize(commit(exp=START + after), NODE, START, 1)
    if is_good:
        verifier.verify_events([found], b"")
    else:
        with pytest.raises(Forgery, match="exp"):
            verifier.verify_events([found], b"")


def test_event_0_and_no_other_is_the_manifest(pins: MemoryPins) -> None:
    manifest = build_manifest(person("bob"), '{"enc_v":2}', START + 60_000)
    verifier = LogVerifier(manifest.enclave, NODE.public, pins)
    verifier.verify_events([finalize(manifest, NODE, START, 0)], b"")
    with pytest.raises(Forgery):
        verifier.verify_events([finalize(manifest, NODE, START, 1)], b"")
    with pytest.raises(Forgery):
        LogVerifier(ENCLAVE, NODE.public, pins).verify_events([event(seq=0)], b"")


def test_the_sequencer_is_pinned_by_the_first_thing_it_signed(verifier: LogVerifier, pins: MemoryPins) -> None:
    assert pins.load(ENCLAVE) is None
    with pytest.raises(ForeignSequencer):
        verifier.verify_events([finalize(commit(), person("node2"), START, 1)], b"")
    assert pins.load(ENCLAVE) is None
    verifier.verify_events([event()], b"")
    assert pins.load(ENCLAVE) == Pin(NODE.public, None)


def test_what_is_no_lie_stays_what_it_is(verifier: LogVerifier) -> None:
    """The node is blamed only for its own answers, not for local failures."""
    with pytest.raises(ZeroDivisionError), verifier.blame_node("page", b""):
        raise ZeroDivisionError


# Two at once


def sees(scene: Scene, node: LyingNode) -> None:
    """Let another client with the same pins see the newest head of a node."""
    FilePins(scene.stage.pins).store(scene.enclave.id, Pin(NODE.public, node.proofs(scene.enclave.id).head()))


ASKS: dict[str, Callable[[Any], Any]] = {
    "State_Proof": lambda e: e.state("kv", TOPIC).anchor.head.ts,
    "Query": lambda e: next(e.query(proof=True)).fact.anchor.head.ts,
    "Inclusion_Proof": lambda e: e.bundle(0).anchor.head.ts,
    "sth": lambda e: e.head().ts,
}


@pytest.mark.parametrize("kind", ASKS)
def test_an_answer_on_its_way_while_another_client_sees_more_is_no_rollback(scene: Scene, kind: str) -> None:
    def meanwhile(answer: Any) -> None:
        scene.node.be_honest()
        scene.grow(scene.node, "meanwhile")
        sees(scene, scene.node)

    scene.lie(kind, meanwhile)
    assert ASKS[kind](scene.enclave) == 2
    assert FilePins(scene.stage.pins).load(scene.enclave.id) == Pin(NODE.public, scene.enclave.head(), urls=(URL,))
    assert scene.enclave.head().ts == 3


@pytest.mark.parametrize("kind", ASKS)
def test_an_answer_on_its_way_is_of_the_same_log(scene: Scene, kind: str) -> None:
    """Otherwise a slow answer could hide a fork."""
    twin, honest = scene.fork(), scene.node
    scene.grow(honest, "more")
    twin.lie(kind, lambda answer: sees(scene, honest))
    scene.stage.node = twin
    with pytest.raises(Fork):
        ASKS[kind](scene.enclave)


def test_two_questions_at_once_of_one_that_awaits(scene: Scene) -> None:
    """The first answer comes last, with a smaller head: that is not a lie."""
    client = AsyncClient(URL, Identity(person("bob")), pins=scene.stage.pins, patience=0.0)
    enclave = client.enclave(scene.enclave.id)

    async def ask() -> None:
        asked, held = asyncio.Event(), asyncio.Event()

        async def slow(request: httpx.Request) -> httpx.Response:
            response = scene.node(request)
            if request.url.path == "/state":
                asked.set()
                await held.wait()
            return response

        client._transport = AsyncTransport(URL, 10.0, httpx.AsyncClient(transport=httpx.MockTransport(slow)))
        first = asyncio.create_task(enclave.state("kv", TOPIC))
        await asyncio.wait_for(asked.wait(), PATIENCE_S)
        scene.grow(scene.node, "meanwhile")
        assert (await enclave.head()).ts == 3
        held.set()
        assert (await first).anchor.head.ts == 2
        await client.close()

    asyncio.run(ask())


def test_another_client_s_pin_is_not_taken_from_it(verifier: LogVerifier, pins: MemoryPins) -> None:
    """Two clients with the same pins asked two nodes before anything was pinned: the first one wins."""
    other = LogVerifier(verifier.enclave, person("node2").public, pins)
    verifier.verify_events([event()], b"")
    with pytest.raises(ForeignSequencer):
        other.pin_head(head(2))
    with pytest.raises(ForeignSequencer):
        _ = other.size
    pinned = pins.load(verifier.enclave)
    assert pinned is not None
    assert (pinned.sequencer, pinned.head) == (verifier.sequencer, None)
