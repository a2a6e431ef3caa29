"""Deliveries: the state of pushes, for the owner at every endpoint, for others at their own."""

from collections.abc import Iterator
from typing import Any

import pytest

from enc.node.push import sender
from enc.node.read import deliveries
from enc.node.store.push_interface import ChallengeResult, DeliveryResult
from enc.node.store.sqlite.push import endpoint_state
from enc.runtime import checked_http_async
from tests.core.world import person, pub
from tests.node.pushing import CONFIG, OTHER_URL, PUSHED, URL, register, report, revoke, room, say, settle
from tests.node.served import Enclave, Json, Served


@pytest.fixture
def node() -> Iterator[Served]:
    with Served(CONFIG) as node:
        yield node


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return room(node)


def deliveries_of(enclave: Enclave, name: str, **body: Any) -> list[Json]:
    found: list[Json] = enclave.ask(name, "Deliveries", **body)["endpoints"]
    return found


def names(endpoints: list[Json]) -> list[tuple[str, str]]:
    return [(each["identity"], each["trait"]) for each in endpoints]


def test_the_owner_sees_every_endpoint(enclave: Enclave) -> None:
    register(enclave, "vera", "helper", OTHER_URL)
    expected = sorted([(pub("vera"), "dataview"), (pub("nick"), "watcher"), (pub("vera"), "helper")])
    assert names(deliveries_of(enclave, "alice")) == expected


def test_anyone_else_sees_their_own(enclave: Enclave) -> None:
    register(enclave, "vera", "helper", OTHER_URL)
    assert names(deliveries_of(enclave, "vera")) == [(pub("vera"), "dataview"), (pub("vera"), "helper")]
    assert names(deliveries_of(enclave, "nick")) == [(pub("nick"), "watcher")]
    for name in ("bob", "carol", "mallory"):  # a member, an admin, a stranger
        assert enclave.ask(name, "Deliveries") == {"endpoints": []}


def test_endpoints_of_other_enclaves_are_not_told_of(node: Served, enclave: Enclave) -> None:
    other = node.create(PUSHED)
    register(other, "carol", "helper")
    assert names(deliveries_of(other, "alice")) == [(pub("carol"), "helper")]
    assert pub("carol") not in {identity for identity, _ in names(deliveries_of(enclave, "alice"))}


def test_before_the_first_batch(enclave: Enclave) -> None:
    (found,) = deliveries_of(enclave, "vera")
    assert found == {
        "identity": pub("vera"),
        "trait": "dataview",
        "url": URL,
        "state": "unconfirmed",
        "has_dead": False,
        "last_error": "",
        "last_error_at": None,
        "queue": {"push_seq": 0, "waiting": 0, "oldest": None, "delivered": 0, "dead": 0},
    }


def test_how_a_queue_stands(node: Served, enclave: Enclave) -> None:
    for text in ("one", "two", "three", "four"):
        say(enclave, text)
    queue, now = report(node, "vera").queue, node.clock.now
    settle(
        node,
        DeliveryResult(queue, 1, now),
        DeliveryResult(queue, 2, now + 1, "status 503"),
        DeliveryResult(queue, 3, now + 2, "no answer in time", next_try=now + 5),
    )
    made = [batch.made_at for batch in node.store.list_batches(person("vera").public, URL, 3, 3, 1)]
    seen = {
        "identity": pub("vera"),
        "trait": "dataview",
        "url": URL,
        "state": "unconfirmed",
        "has_dead": True,
        "last_error": "no answer in time",
        "last_error_at": now + 2,
    }
    queue_of = {"push_seq": 4, "waiting": 2, "oldest": made[0], "delivered": 1, "dead": 1}
    assert deliveries_of(enclave, "vera") == [{**seen, "queue": queue_of}]
    assert seen in deliveries_of(enclave, "alice"), (
        "a queue covers all enclaves: only its recipient may see its figures"
    )


def test_whether_an_endpoint_is_confirmed(node: Served, enclave: Enclave) -> None:
    say(enclave, "one")
    queue, now = report(node, "vera").queue, node.clock.now
    for result, state, error in (
        (ChallengeResult(queue, now, "status 405", now + 9), "challenge failed", "status 405"),
        (ChallengeResult(queue, now), "confirmed", "status 405"),
        (DeliveryResult(queue, 1, now, "status 410", now, suspend_until=now + 9), "suspended", "status 410"),
    ):
        settle(node, result)
        (found,) = deliveries_of(enclave, "vera")
        assert (found["state"], found["last_error"], found["queue"]["waiting"]) == (state, error, 1)


def test_it_is_about_the_url_that_is_registered_now(node: Served, enclave: Enclave) -> None:
    say(enclave, "one")
    register(enclave, "vera", "dataview", OTHER_URL)
    (found,) = deliveries_of(enclave, "vera")
    assert (found["url"], found["queue"]["push_seq"]) == (OTHER_URL, 0)
    revoke(enclave, "vera", "dataview")
    assert deliveries_of(enclave, "vera") == []


def test_an_error_tells_nothing_of_the_node_s_network(node: Served, enclave: Enclave) -> None:
    say(enclave, "one")
    queue = report(node, "vera").queue
    settle(node, DeliveryResult(queue, 1, node.clock.now, "connect 10.0.0.8:5432 refused", next_try=node.clock.now + 1))
    assert deliveries_of(enclave, "alice")[-1 if pub("vera") > pub("nick") else 0]["last_error"] == "failed"
    assert deliveries_of(enclave, "vera")[0]["last_error"] == "failed"


@pytest.mark.parametrize(
    "error",
    [
        "10.0.0.8",
        "::1",
        "host.internal",
        "status 503 from 10.1",
        "a:b",
        "x" * 81,
        "x\n",
        "status 5033",
        "/etc/x",
        "db-1",
        "é",
    ],
)
def test_what_is_not_told(error: str) -> None:
    assert deliveries.public_error(error) == "failed"


def test_what_the_sender_says_is_told() -> None:
    words = [
        checked_http_async.NOT_CALLED,
        checked_http_async.NO_ADDRESS,
        checked_http_async.NO_CONNECTION,
        checked_http_async.NO_TLS,
        checked_http_async.NOT_TRUSTED,
        checked_http_async.TIMED_OUT,
        checked_http_async.CUT,
        checked_http_async.NOT_HTTP,
        checked_http_async.TOO_LONG,
        sender.NO_KEY,
        sender.NOT_ANSWERED,
        endpoint_state.NOT_CONFIRMED,
        "status 503",
        "",
    ]
    assert [deliveries.public_error(word) for word in words] == words


def test_page_by_page(enclave: Enclave, monkeypatch: pytest.MonkeyPatch) -> None:
    register(enclave, "vera", "helper", OTHER_URL)
    register(enclave, "bob", "helper")
    say(enclave, "one")
    everything = enclave.ask("alice", "Deliveries")
    assert len(everything["endpoints"]) == 4
    assert "more" not in everything
    monkeypatch.setattr(deliveries, "MAX_ENDPOINTS", 3)
    first = enclave.ask("alice", "Deliveries")
    assert first == {"endpoints": everything["endpoints"][:3], "more": True}
    last = {name: first["endpoints"][-1][name] for name in ("identity", "trait")}
    assert enclave.ask("alice", "Deliveries", after=last) == {"endpoints": everything["endpoints"][3:]}


@pytest.mark.parametrize(
    "after",
    [
        None,
        1,
        "x",
        [],
        {},
        {"identity": "ab" * 32},
        {"trait": "x"},
        {"identity": "ab", "trait": "x"},
        {"identity": 1, "trait": "x"},
        {"identity": "AB" * 32, "trait": "x"},
        {"identity": "ab" * 32, "trait": None},
    ],
)
def test_what_is_malformed(enclave: Enclave, after: Any) -> None:
    error = enclave.denied("alice", "Deliveries", after=after)
    assert (error.status, error.code) == (400, "INVALID_QUERY")


def test_an_enclave_that_is_over_has_no_endpoints(node: Served, enclave: Enclave) -> None:
    enclave.send("alice", "Terminate")
    assert enclave.ask("alice", "Deliveries") == {"endpoints": []}
    node.clock.tick(CONFIG.retention.purge_after_s * 1000 + 1)
    node.settle()
    assert enclave.denied("alice", "Deliveries").code == "ENCLAVE_TERMINATED"
