"""Accounting of connected peers and of the bytes that wait for them."""

import random

import pytest

from enc.core.errors import InvalidQuery, Unavailable
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.peers import PeerConnection, Peers


class World:
    """Peers by name, and the names of those that were dropped."""

    def __init__(self, most: int = 100, of_address: int = 0, unsent: int = 100, **more: int) -> None:
        self.peers = Peers(
            ServingLimits(connections=most, connections_per_address=of_address, unsent_bytes=unsent, **more)
        )
        self.dropped: list[str] = []

    def peer(self, name: str, address: str = "a") -> PeerConnection:
        peer = PeerConnection(self.peers, address, lambda: self.dropped.append(name))
        self.peers.add(peer)
        return peer


def test_connections_of_all_and_of_one_address() -> None:
    world = World(most=3, of_address=2)
    first = world.peer("1")
    world.peer("2")
    with pytest.raises(Unavailable, match="from this address") as refused:
        world.peer("3")
    assert refused.value.context == {"retry_after_ms": 1000}
    world.peer("4", "b")
    with pytest.raises(Unavailable, match=r"too many connections$"):
        world.peer("5", "b")
    assert (world.peers.count, world.dropped) == (3, [])
    first.remove()
    first.remove()
    assert world.peers.count == 2
    world.peer("6")


def test_a_refused_address_gets_no_connection_and_loses_those_it_has() -> None:
    world = World()
    for name, address in (("1", "a"), ("2", "b"), ("3", "a")):
        world.peer(name, address)

    def admit(address: str) -> None:
        if address == "a":
            raise InvalidQuery("refused")

    world.peers.admit = admit
    world.peers.close_where(lambda address: address == "a")
    assert (world.dropped, world.peers.count, world.peers.dropped) == (["1", "3"], 1, 0)
    with pytest.raises(InvalidQuery, match="refused"):
        world.peer("4", "a")
    world.peer("5", "b")


def test_an_address_without_a_limit() -> None:
    world = World(most=100, of_address=0)
    for i in range(100):
        world.peer(f"{i}")
    with pytest.raises(Unavailable):
        world.peer("one more", "b")


def test_a_newcomer_takes_the_place_of_one_of_the_address_with_most() -> None:
    world = World(most=6, of_address=5)
    peers = [world.peer(f"{i}", "greedy") for i in range(4)]
    world.peer("honest", "b")
    world.peer("another", "c")
    peers[0].set_drop(peers[0].drop)  # it has an open request
    peers[2].remove()
    world.peer("new", "greedy")
    for address in "def":
        world.peer(address, address)
    with pytest.raises(Unavailable, match=r"too many connections$"):
        world.peer("of no other address", "g")
    assert (world.dropped, world.peers.count, world.peers.dropped) == (["1", "3", "new"], 6, 3)


def test_of_busy_connections_the_oldest_goes() -> None:
    world = World(most=3, of_address=3)
    for i in range(3):
        peer = world.peer(f"{i}")
        peer.set_drop(peer.drop)
    world.peer("new", "b")
    assert world.dropped == ["0"]


def test_nobody_is_displaced_where_an_address_has_no_limit() -> None:
    world = World(most=3, of_address=0)
    for i in range(3):
        world.peer(f"{i}", "a proxy")
    with pytest.raises(Unavailable, match=r"too many connections$"):
        world.peer("new", "b")
    assert world.dropped == []


def test_one_that_was_refused_may_leave_and_hold_as_if_it_had_been_there() -> None:
    world = World(most=1)
    stays, refused = world.peer("1"), PeerConnection(world.peers, "a", lambda: None)
    with pytest.raises(Unavailable):
        world.peers.add(refused)
    stays.add_unsent(10)
    refused.add_unsent(50)
    refused.remove()
    assert (world.peers.count, world.peers.unsent) == (1, 10)


def test_what_waits_is_counted_until_it_goes_or_the_peer_does() -> None:
    world = World()
    one, two = world.peer("1"), world.peer("2")
    one.add_unsent(30)
    with two.counting_unsent(40), two.counting_unsent(10):
        assert (world.peers.unsent, two.unsent) == (80, 50)
    one.add_unsent(-10)
    assert world.peers.unsent == 20
    one.remove()
    one.add_unsent(-20)
    one.add_unsent(7)
    assert world.peers.unsent == 0
    with pytest.raises(ValueError, match="of the work"), two.counting_unsent(5):
        raise ValueError("of the work")
    assert (world.peers.unsent, world.dropped) == (0, [])


def test_all_may_be_used_and_no_more() -> None:
    world = World(unsent=100)
    one, two = world.peer("1"), world.peer("2")
    one.add_unsent(60)
    two.add_unsent(40)
    assert world.dropped == []
    two.add_unsent(1)
    assert (world.dropped, world.peers.unsent, world.peers.count) == (["1"], 41, 1)
    assert world.peers.dropped == 1
    one.add_unsent(-60)  # its bytes are freed later
    one.remove()
    assert (world.peers.unsent, world.peers.count) == (41, 1)


def test_the_address_for_which_most_waits_makes_room() -> None:
    """Neither the oldest peer of all nor the one with the most waiting bytes is dropped."""
    world = World(unsent=100)
    old = world.peer("old", "honest")
    old.add_unsent(45)
    for i in range(8):
        world.peer(f"{i}", "greedy").add_unsent(10)
    assert world.dropped == ["0", "1", "2"]
    assert old.unsent == 45


def test_of_one_address_who_took_nothing_for_the_longest_time_goes_first() -> None:
    world = World(unsent=100)
    one, two, three = (world.peer(name) for name in ("1", "2", "3"))
    for peer in (one, two, three):
        peer.add_unsent(30)
    one.add_unsent(0)  # it read a part of its answer
    two.add_unsent(5)  # only its waiting bytes grew
    three.add_unsent(-10)
    three.add_unsent(35)
    assert world.dropped == ["2"]
    three.add_unsent(40)
    assert world.dropped == ["2", "1"]


def test_who_alone_holds_too_much_is_dropped_itself() -> None:
    world = World(unsent=100)
    for name in ("idle", "quiet"):
        world.peer(name)
    world.peer("greedy").add_unsent(101)
    assert (world.dropped, world.peers.unsent) == (["greedy"], 0)


def test_a_node_is_crowded_past_half_of_the_bound() -> None:
    world = World(unsent=100)
    one, two = world.peer("1"), world.peer("2")
    one.add_unsent(50)
    assert not two.is_crowded
    two.add_unsent(1)
    assert one.is_crowded
    one.remove()
    assert not two.is_crowded


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_never_past_the_bound_and_always_right(seed: int) -> None:
    chance, world = random.Random(seed), World(unsent=1000)
    here: list[PeerConnection] = []
    for i in range(500):
        turn = chance.randrange(4)
        if turn == 0 or not here:
            here.append(world.peer(f"{i}", chance.choice("abc")))
        elif turn == 1:
            here.pop(chance.randrange(len(here))).remove()
        else:
            peer = chance.choice(here)
            peer.add_unsent(chance.randrange(-peer.unsent, 200))
        known = [peer for address in world.peers._by_address.values() for peer in address.peers]
        assert world.peers.unsent == sum(peer.unsent for peer in known) <= 1000
        assert world.peers.count == len(known)
        here = [peer for peer in here if peer in known]


# Incomplete requests and messages


def test_what_arrives_is_counted_until_it_is_complete_or_the_peer_goes() -> None:
    world = World(incoming_bytes=100)
    one, two = world.peer("1"), world.peer("2")
    one.set_incoming(30)
    two.set_incoming(60)
    one.set_incoming(10)
    assert (world.peers.incoming, one.incoming) == (70, 10)
    two.set_incoming(0)
    one.remove()
    one.set_incoming(50)
    assert (world.peers.incoming, world.dropped) == (0, [])


def test_of_one_address_the_oldest_incomplete_message_goes() -> None:
    world = World(incoming_bytes=1000, incoming_bytes_per_address=100)
    world.peer("other", "b").set_incoming(90)
    one, two, three = (world.peer(name) for name in ("1", "2", "3"))
    world.peer("idle")
    one.set_incoming(1)
    two.set_incoming(50)
    one.set_incoming(0)
    one.set_incoming(20)  # a new message, which began after that of 2
    three.set_incoming(31)
    assert (world.dropped, world.peers.incoming) == (["2"], 141)


def test_past_the_limit_of_all_the_address_with_most_makes_room() -> None:
    world = World(incoming_bytes=100)
    old = world.peer("old", "honest")
    old.set_incoming(30)
    for i in range(8):
        world.peer(f"{i}", "greedy").set_incoming(10)
    assert (world.dropped, world.peers.incoming) == (["0"], 100)


def test_an_address_may_hold_all_if_it_has_no_limit() -> None:
    world = World(incoming_bytes=100, incoming_bytes_per_address=0)
    for i in range(10):
        world.peer(f"{i}").set_incoming(10)
    assert world.dropped == []
