"""Sealed requests that are sent again: one that changes something is accepted once."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.session.envelope import seal_request
from enc.node.config import LimitSettings, NodeConfig
from enc.node.store import spent_requests
from enc.testing.memory_store import MemoryStore
from tests.node.served import NODE, PATHS, SMALL, Clock, Enclave, Json, Served, bad, good, sqlite


@pytest.fixture
def node() -> Iterator[Served]:
    with Served(store=MemoryStore()) as node:
        yield node


def hold(enclave: Enclave, seconds: int = 2) -> Json:
    return enclave.request("alice", "Checkpoint", hold=seconds)


def post(node: Served, request: Json) -> Json:
    return good(node.post(request, PATHS["Checkpoint"]))


def refusal(node: Served, request: Json) -> str:
    return bad(node.post(request, PATHS["Checkpoint"])).code


def test_a_hold_that_is_sent_again_holds_nothing(node: Served) -> None:
    enclave = node.create(SMALL)
    request = hold(enclave)
    post(node, request)
    assert enclave.refused("bob", "message").code == "UNAVAILABLE"
    for wait in (2_000, 3_000_000, 655_000):  # as long as the token is accepted
        node.clock.tick(wait)
        assert refusal(node, request) == "DUPLICATE"
        assert enclave.send("bob", "message", "not held").seq
    node.clock.tick(10_000)
    assert refusal(node, request) == "SESSION_EXPIRED"


def test_a_hold_that_is_sent_again_does_not_last_longer(node: Served) -> None:
    enclave = node.create(SMALL)
    request = hold(enclave, 30)
    post(node, request)
    node.clock.tick(29_000)
    assert refusal(node, request) == "DUPLICATE"
    node.clock.tick(1_000)
    assert enclave.send("bob", "message", "not held").seq == 1


def test_not_even_after_a_restart(tmp_path: Path) -> None:
    store, clock = sqlite(tmp_path), Clock()
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL)
        request = hold(enclave)
        post(node, request)
    store.close()
    clock.tick(5_000)
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        assert refusal(node, request) == "DUPLICATE"
        assert enclave.at(node).send("bob", "message", "not held").seq == 1
        post(node, hold(enclave.at(node)))
        assert enclave.at(node).refused("bob", "message").code == "UNAVAILABLE"
    store.close()


def test_the_owner_seals_it_again_and_is_answered(node: Served) -> None:
    """In the same session: a hold whose answer was lost."""
    enclave, session = node.create(SMALL), node.session("alice")
    for n in range(3):
        request = seal_request(session, NODE.public, enclave.id, "Checkpoint", {"hold": 30}, os.urandom(NONCE_SIZE))
        assert post(node, request)["type"] == "Response"
        assert enclave.refused("bob", "message").code == "UNAVAILABLE"
        node.clock.tick(10_000 * n)


def test_what_only_reads_may_be_sent_again(node: Served) -> None:
    enclave = node.create(SMALL)
    request = enclave.request("alice", "Checkpoint")
    assert post(node, request)["type"] == post(node, request)["type"] == "Response"


def test_a_hold_that_is_not_allowed_uses_no_space(node: Served) -> None:
    enclave = node.create(SMALL)
    for request in (enclave.request("bob", "Checkpoint", hold=1), enclave.request("alice", "Checkpoint", hold=31)):
        assert refusal(node, request) == refusal(node, request) != "DUPLICATE"
    assert isinstance(node.store, MemoryStore)
    assert node.store._spent == {}


@pytest.mark.parametrize(("most", "accepted"), [(512, 1), (0, 2)])
def test_one_address_leaves_room_for_the_holds_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, accepted: int
) -> None:
    """Unless it stands for many, as that of a proxy may."""
    monkeypatch.setattr(spent_requests, "MAX_SPENT", 2)
    store = sqlite(tmp_path)
    with Served(NodeConfig(port=0, limits=LimitSettings(connections_per_address=most)), store=store) as node:
        enclave = node.create(SMALL)
        for _ in range(accepted):
            post(node, hold(enclave))
        assert refusal(node, hold(enclave)) == "RATE_LIMITED"
    store.close()
