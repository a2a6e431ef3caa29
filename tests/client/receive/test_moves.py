"""An enclave whose Migrate is not pushed to the receiver: it finds out by a registry, or at the new node."""

from typing import Any

import pytest
from msgspec.json import encode

from enc.client import PushReceiver
from enc.client.receive.catch_up import STRANGERS_S
from enc.core.errors import Unauthorized, Unavailable
from enc.core.primitives.sealing import NONCE_SIZE, push_key
from enc.core.primitives.types import Event, Receipt
from enc.core.session.envelope import seal_challenge
from enc.runtime.backoff import RetryPauses
from enc.testing.lying_node import LyingNode
from tests.client.pushing import HOOK, TURNS, Post, body, handed, keeps, push, until
from tests.client.registry.office import Office
from tests.client.stage import URL
from tests.core.world import person
from tests.node.served import NODE

B = person("node-b")
AT_B = "http://b.test"
NONCE = bytes(NONCE_SIZE)


class Moving:
    """An enclave of alice's that moves to B, and a registry. bob's receiver is pushed messages."""

    def __init__(self, post: Post) -> None:
        self.post, self.office = post, Office(post.stage)
        self.enclave = self.office.enclave.id
        self.office.enclave.commit("message", "one")

    @property
    def stage(self) -> Any:
        return self.post.stage

    def move(self) -> LyingNode:
        """Let the enclave move to B, where two messages are written; the registry does not know yet."""
        node = self.post.node
        assert isinstance(node.take(node.migrate(self.enclave, person("alice"), B)), Receipt)
        new = self.stage.others["b.test"] = node.successor(self.enclave, B)
        self.office.enter_node(new, AT_B)
        mine = self.stage.client("alice", url=AT_B).enclave(self.enclave)
        for text in ("two", "three"):
            mine.commit("message", text)
        return new

    def register(self) -> None:
        self.office.client("alice", url=AT_B).enclave(self.enclave).register()
        self.office.close_bundle()

    def events(self, node: LyingNode) -> list[Event]:
        """Return the Manifest and the messages of a node's log."""
        found = node.store.events(self.enclave, 0, 99)
        return [event for event in found if event.type in ("Manifest", "message")]

    def receiver(self, **more: Any) -> PushReceiver:
        nodes = more.pop("nodes", {NODE.public: URL, B.public: AT_B})
        return self.post.started(nodes=nodes, pins=None, **more)


@pytest.fixture
def moving(post: Post) -> Moving:
    return Moving(post)


def accepted(receiver: PushReceiver, what: bytes) -> None:
    """Send a push until it is accepted, as a node does; the first answer is a refusal for now."""
    with pytest.raises((Unavailable, Unauthorized)):
        receiver.take(what)
    accepted_later(receiver, what)


def accepted_later(receiver: PushReceiver, what: bytes) -> None:
    for _ in range(TURNS):
        try:
            receiver.take(what)
            return
        except (Unavailable, Unauthorized):
            until(receiver, lambda: True)
    raise AssertionError("it is never accepted")


def unreadable(*nodes: LyingNode) -> None:
    """Let nodes show bob nothing: he may only be pushed to."""

    def refuse(_: Any) -> Any:
        raise Unauthorized("this identity may not read any type of this enclave")

    for node in nodes:
        for kind in ("Query", "Bundle_Proof", "Inclusion_Proof", "State_Proof", "Export"):
            node.lie(kind, refuse)


NODES = {"listed": {NODE.public: URL, B.public: AT_B}, "not listed": {NODE.public: URL}}


@pytest.mark.parametrize("new_node", NODES)
def test_a_move_is_learned_from_the_registry(moving: Moving, new_node: str) -> None:
    """The identity may only be pushed messages. A node that is not listed may push once the move is known."""
    keeps(moving.post)
    receiver = moving.receiver(registry=moving.office.where, nodes=NODES[new_node])
    receiver.take(push(1, *moving.events(moving.post.node)))
    new = moving.move()
    moving.register()
    unreadable(new, moving.post.node)
    one, two, three = moving.events(new)[1:]
    if new_node == "not listed":
        accepted(receiver, challenge())
        receiver.take(push(1, two, key=B))
    else:
        accepted(receiver, push(1, two, key=B))
    receiver.take(push(2, three, key=B))
    handed(receiver, 0, one.seq, two.seq, three.seq)
    assert moving.post.lies == []


def challenge() -> bytes:
    sealed = seal_challenge(push_key(B, person("bob").public), B.public, person("bob").public, HOOK, b"c" * 32, NONCE)
    return encode(sealed)


def test_and_after_a_restart_by_what_the_state_file_has(moving: Moving) -> None:
    """The pins were in memory."""
    keeps(moving.post)
    first = moving.receiver()
    first.take(push(1, *moving.events(moving.post.node)))
    handed(first, 0, moving.events(moving.post.node)[1].seq)
    first.close()
    new = moving.move()
    moving.register()
    unreadable(new, moving.post.node)
    two = moving.events(new)[2]
    receiver = moving.receiver(registry=moving.office.where)
    accepted(receiver, push(1, two, key=B))
    handed(receiver, 0, two.seq - 2, two.seq)


def test_what_the_former_node_still_has_is_delivered_first(moving: Moving) -> None:
    first, one = moving.events(moving.post.node)
    receiver = moving.receiver(registry=moving.office.where)
    receiver.take(push(1, first))
    new = moving.move()
    moving.register()
    unreadable(new, moving.post.node)
    asked = keeps(moving.post, body(2, one))
    two = moving.events(new)[2]
    accepted(receiver, push(1, two, key=B))
    handed(receiver, 0, one.seq, two.seq)
    assert asked


def test_a_move_is_learned_at_the_new_node_by_those_who_may_read_there(moving: Moving) -> None:
    keeps(moving.post)
    receiver = moving.receiver()
    receiver.take(push(1, *moving.events(moving.post.node)))
    two = moving.events(moving.move())[2]
    accepted(receiver, push(1, two, key=B))
    handed(receiver, 0, two.seq - 2, two.seq)


@pytest.mark.parametrize("registry", [True, False])
def test_a_move_that_nothing_shows_is_waited_for_without_blame(
    moving: Moving, registry: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The registry does not list the new node yet, and the identity may not read there."""
    keeps(moving.post)
    receiver = moving.receiver(**({"registry": moving.office.where} if registry else {}))
    receiver.take(push(1, *moving.events(moving.post.node)))
    new = moving.move()
    unreadable(new, moving.post.node)
    two = moving.events(new)[2]
    with pytest.raises(Unavailable, match="not known yet to have moved to this node"):
        receiver.take(push(1, two, key=B))
    until(receiver, lambda: "give the receiver a registry that lists it" in caplog.text)
    with pytest.raises(Unavailable):
        receiver.take(push(1, two, key=B))
    assert moving.post.lies == []
    assert len(moving.post.seen(receiver)) == 2
    if registry:
        new.be_honest()
        moving.register()
        unreadable(new)
        accepted_later(receiver, push(1, two, key=B))


def test_a_takeover_needs_the_right_to_read(moving: Moving) -> None:
    """Nobody but the owner may take over, and only the log shows who that is."""
    keeps(moving.post)
    receiver = moving.receiver(registry=moving.office.where)
    receiver.take(push(1, *moving.events(moving.post.node)))
    node = moving.post.node
    takeover = node.migrate(moving.enclave, person("alice"), B)
    new = moving.stage.others["b.test"] = node.successor(moving.enclave, B, takeover)
    moving.office.enter_node(new, AT_B)
    moving.stage.client("alice", url=AT_B).enclave(moving.enclave).commit("message", "two")
    moving.register()
    unreadable(new, node)
    two = moving.events(new)[2]
    (catch_up, _) = receiver._catch_ups.values()
    for _ in range(3):
        with pytest.raises(Unavailable):
            receiver.take(push(1, two, key=B))
        until(receiver, lambda: not catch_up._claims)
    new.be_honest()
    accepted(receiver, push(1, two, key=B))


def test_while_the_former_node_is_away_its_events_are_awaited_for_a_while(
    moving: Moving, caplog: pytest.LogCaptureFixture
) -> None:
    receiver = moving.receiver(registry=moving.office.where, retries=RetryPauses(first_s=1.0, max_s=4.0))
    receiver.take(push(1, *moving.events(moving.post.node)))
    two = moving.events(moving.move())[2]
    moving.register()
    moving.stage.is_node_gone = True
    (catch_up, _) = receiver._catch_ups.values()
    for pause in (1.0, 2.0, 4.0):
        with pytest.raises(Unavailable):
            receiver.take(push(1, two, key=B))
        catch_up.wake()
        until(receiver, lambda pause=pause: catch_up._pause == pause)  # type: ignore[misc]
        moving.post.now += pause
    with pytest.raises(Unavailable):
        receiver.take(push(1, two, key=B))
    catch_up.wake()
    until(receiver, lambda: not catch_up._claims)
    accepted_later(receiver, push(1, two, key=B))


def test_strangers_do_not_make_the_receiver_ask_all_the_time(moving: Moving) -> None:
    """Anybody can send what looks like a push."""
    keeps(moving.post)
    receiver = moving.receiver(registry=moving.office.where, nodes=NODES["not listed"])
    receiver.take(push(1, *moving.events(moving.post.node)))
    (catch_up,) = receiver._catch_ups.values()
    calls = moving.office.node.calls
    for _ in range(2):
        calls.clear()
        with pytest.raises(Unavailable):
            receiver.take(challenge())
        until(receiver, lambda: calls and calls[-1].startswith("/resolve/"))
        for _ in range(3):
            with pytest.raises(Unauthorized):
                receiver.take(challenge())
        assert not catch_up._is_stranger_here
        moving.post.now += STRANGERS_S


def test_a_claim_that_was_not_proved_is_looked_into_again_after_a_pause(moving: Moving) -> None:
    keeps(moving.post)
    receiver = moving.receiver(registry=moving.office.where, retries=RetryPauses(first_s=1.0, max_s=4.0))
    receiver.take(push(1, *moving.events(moving.post.node)))
    new = moving.move()
    unreadable(new, moving.post.node)
    catch_up, _ = receiver._catch_ups.values()
    for pause in (1.0, 2.0, 4.0, 4.0):
        for _ in range(3):
            with pytest.raises(Unavailable):
                receiver.take(push(1, moving.events(new)[2], key=B))
        until(receiver, lambda pause=pause: catch_up._claims_due == moving.post.now + pause)  # type: ignore[misc]
        with pytest.raises(Unavailable):
            receiver.take(push(1, moving.events(new)[2], key=B))
        assert not catch_up._claims
        moving.post.now += pause
