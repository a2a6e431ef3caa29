"""The node that a client was given is gone: the client finds the enclave by what it has pinned."""

from typing import Any

import pytest

from enc.client import Unreachable
from enc.client.verify.pins import MAX_URLS
from enc.testing.lying_node import LyingNode
from tests.client.migration.moving import AT_B, AT_C, SAID, B, C, Moving, texts
from tests.client.stage import URL


@pytest.fixture
def moving(stage: Any) -> Moving:
    return Moving(stage)


def move_away(moving: Moving) -> LyingNode:
    """Let the enclave move to B; the client reads the Migrate, and the old node goes away."""
    new = moving.stage.others["b.test"] = moving.depart()
    list(moving.enclave.query(type="Migrate"))
    assert moving.pinned().moves
    assert moving.pinned().sequencer == moving.node.key.public
    moving.stage.is_node_gone = True
    return new


def test_a_new_client_looks_for_the_pinned_successor_among_its_nodes(moving: Moving) -> None:
    move_away(moving)
    enclave = moving.follower(patience=30.0)
    assert texts(enclave) == SAID
    assert enclave.url == AT_B
    assert enclave.commit("message", "five").sequencer == B.public
    assert moving.stage.naps == [], "it does not wait for the node that is gone"


def test_a_subscription_begins_at_the_pinned_successor(moving: Moving) -> None:
    move_away(moving)
    with_feed = moving.follower(patience=30.0).subscribe(type="message", after=6)
    assert next(with_feed).content == "four"
    assert moving.stage.connected[-1][0] == "ws://b.test/"
    with_feed.close()


def test_a_client_that_uses_the_old_node_switches_when_it_goes_away(moving: Moving) -> None:
    enclave = moving.follower()
    enclave.head()
    move_away(moving)
    assert enclave.proof(moving.id("one")).status == "active"
    assert enclave.url == AT_B


def test_an_address_is_recorded_and_used_without_any_other_source(moving: Moving) -> None:
    moving.follower().head()
    assert moving.pinned().urls == (URL,)
    move_away(moving)
    moving.follower("bob").head()
    assert moving.pinned().urls == (AT_B,), "the address of the sequencer, not of a former one"
    enclave = moving.stage.client("carol", patience=30.0).enclave(moving.enclave.id)
    assert (enclave.commit("message", "five").sequencer, enclave.url) == (B.public, AT_B)
    assert moving.stage.naps == []


def test_a_recorded_address_leads_on_from_a_former_node_that_still_answers(moving: Moving) -> None:
    new = move_away(moving)
    moving.follower().head()
    moving.stage.is_node_gone = False
    moving.write(new, "five")
    assert texts(moving.stage.client("bob").enclave(moving.enclave.id)) == [*SAID, "five"]


def test_of_several_addresses_the_one_that_answers_is_used(moving: Moving) -> None:
    move_away(moving)
    for url in ("http://1.test", "http://2.test", AT_B, "http://3.test", "http://4.test"):
        moving.stage.others[url.removeprefix("http://")] = moving.stage.others["b.test"]
        moving.stranger(url).head()
    assert moving.pinned().urls == ("http://4.test", "http://3.test", AT_B, "http://2.test")
    assert len(moving.pinned().urls) == MAX_URLS
    for host in ("1.test", "2.test", "3.test", "4.test"):
        del moving.stage.others[host]
    assert moving.stage.client("bob").enclave(moving.enclave.id).head().ts == 3
    assert moving.pinned().urls[2] == AT_B, "a known address is not written again"


def test_another_node_at_the_recorded_address_is_not_trusted(moving: Moving) -> None:
    new = move_away(moving)
    moving.follower().head()
    moving.stage.others["b.test"] = new.successor(moving.enclave.id, C)
    with pytest.raises(Unreachable):
        moving.stage.client("bob").enclave(moving.enclave.id).head()


def test_another_node_at_the_old_address_does_not_hide_the_successor(moving: Moving) -> None:
    move_away(moving)
    moving.stage.is_node_gone, moving.stage.node = False, LyingNode(moving.stage.clock, C)
    enclave = moving.follower("bob")
    assert (texts(enclave), enclave.url) == (SAID, AT_B)


def test_a_node_that_is_away_for_a_moment_is_waited_for(moving: Moving, monkeypatch: pytest.MonkeyPatch) -> None:
    moving.stage.is_node_gone = True
    moving.stage.others["c.test"] = LyingNode(moving.stage.clock, C)

    def wake() -> None:
        moving.stage.is_node_gone = len(moving.stage.naps) < 3

    monkeypatch.setattr(moving.stage, "settle", wake)
    enclave = moving.stage.client(nodes=[AT_C], patience=30.0).enclave(moving.enclave.id)
    assert enclave.head().ts == 2
    assert enclave.url == URL


def test_without_any_address_the_node_is_unreachable(moving: Moving) -> None:
    move_away(moving)
    with pytest.raises(Unreachable, match=r"cannot reach http://node\.test"):
        moving.enclave.head()
