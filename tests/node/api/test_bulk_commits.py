"""Several commits in one request: each is judged, counted and answered as if it came alone."""

import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.json import decode, encode

from enc.core.errors import InvalidQuery, RateLimited
from enc.core.log.commit import wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.types import Commit
from enc.node.api.bulk_commits import split_lines
from enc.node.config import AdmissionSettings, LimitSettings, NodeConfig, RateSettings
from enc.node.sequence.admission import LONG_BODY
from enc.runtime.rate_limit import RateLimiter
from tests.node.api.http_requests import dialed, read_response
from tests.node.metrics_page import figures
from tests.node.served import SMALL, Enclave, Json, Served, bad, good


def body_of(*commits: Commit | bytes) -> bytes:
    return b"\n".join(each if isinstance(each, bytes) else encode(wire_commit(each)) for each in commits)


def posted(node: Served, *commits: Commit | bytes) -> list[Json]:
    results: list[Json] = good(node.post(body_of(*commits), "/commits"))["results"]
    assert len(results) == len(commits)
    return results


def outcomes(results: list[Json]) -> list[Any]:
    """Return the seq of each receipt, and the code of each error."""
    return [each["seq"] if each["type"] == "Receipt" else each["code"] for each in results]


def messages(enclave: Enclave, count: int, name: str = "bob") -> list[Commit]:
    return [enclave.commit(name, "message", f"{number}") for number in range(count)]


def limited(**more: Any) -> Served:
    return Served(NodeConfig(port=0, **more))


def test_each_is_answered_in_the_order_of_the_request(node: Served, enclave: Enclave) -> None:
    commits = messages(enclave, 3)
    results = posted(node, *commits)
    for commit, result in zip(commits, results, strict=True):
        check_receipt(parse_receipt(encode(result)), commit, node.key.public)
    assert outcomes(results) == [1, 2, 3]
    assert [item["event"]["content"] for item in enclave.query("bob", type="message")] == ["0", "1", "2"]


def test_short_commits_do_not_pass_a_long_one_before_them(node: Served, enclave: Enclave) -> None:
    """Long ones wait for their address's turn."""
    texts = ["0", "1" * LONG_BODY, "2", "3" * LONG_BODY, "4"]
    assert outcomes(posted(node, *(enclave.commit("bob", "message", text) for text in texts))) == [1, 2, 3, 4, 5]


def test_a_line_feed_may_end_the_last_commit(node: Served, enclave: Enclave) -> None:
    body = body_of(enclave.commit("bob", "message", "x")) + b"\n"
    assert outcomes(good(node.post(body, "/commits"))["results"]) == [1]


def test_one_that_is_refused_does_not_refuse_the_others(node: Served, enclave: Enclave) -> None:
    first, last = messages(enclave, 2)
    forged = wire_commit(enclave.commit("bob", "message", "y")) | {"sig": "00" * 64}
    results = posted(
        node,
        first,
        b"not JSON",
        b"",
        b"[" * 5000,
        encode(forged),
        enclave.commit("mallory", "message", "z"),
        enclave.commit("bob", "message", "late", exp=1),
        last,
    )
    malformed = ["INVALID_COMMIT"] * 3
    expected = [1, *malformed, "INVALID_SIGNATURE", "UNAUTHORIZED", "EXPIRED", 2]
    assert outcomes(results) == expected
    assert results[5]["message"]


def test_a_repeated_commit_gets_its_first_receipt(node: Served, enclave: Enclave) -> None:
    first, second = messages(enclave, 2)
    receipt = good(node.post(wire_commit(first)))
    results = posted(node, first, second, second)
    assert outcomes(results) == ["DUPLICATE", 2, "DUPLICATE"]
    assert results[0]["receipt"] == receipt
    assert results[2]["receipt"] == results[1]
    assert enclave.seqs("bob") == [0, 1, 2]


def test_commits_may_be_for_several_enclaves(node: Served) -> None:
    one, other = node.create(SMALL), node.create(SMALL)
    commits = [one.commit("bob", "message"), other.commit("bob", "message"), one.commit("bob", "message")]
    assert outcomes(posted(node, *commits)) == [1, 1, 2]


def test_an_enclave_must_exist_before_the_request(node: Served) -> None:
    """As for commits that are sent one by one, without waiting for answers."""
    manifest = node.manifest({**SMALL, "meta": {"of": "one request"}})
    enclave = Enclave(node, manifest)
    with ThreadPoolExecutor(1) as pool, node.held_up():
        sent = pool.submit(posted, node, manifest, enclave.commit("bob", "message", "x"))
        node.until(lambda: node.node.intake.waiting == 1)
    assert outcomes(sent.result()) == [0, "ENCLAVE_NOT_FOUND"]


# Bounds


@pytest.mark.parametrize("body", [b"", b"\n"])
def test_a_request_without_commits_is_refused(node: Served, body: bytes) -> None:
    error = bad(node.post(body, "/commits"))
    assert (error.status, error.code, error.message) == (400, "INVALID_QUERY", "body: expected one commit on each line")


def test_info_announces_how_many_a_request_may_have() -> None:
    with limited(limits=LimitSettings(commits_per_request=3)) as node:
        assert good(node.get("/info"))["limits"]["commits_per_request"] == 3
        enclave = node.create(SMALL)
        commits = messages(enclave, 4)
        error = bad(node.post(body_of(*commits), "/commits"))
        assert (error.status, error.code) == (400, "INVALID_QUERY")
        assert error.message == "body: more than 3 commits; send fewer in one request"
        assert enclave.seqs("bob") == [0]
        assert outcomes(posted(node, *commits[:3])) == [1, 2, 3]


def test_a_body_over_the_limit_is_refused() -> None:
    with limited(limits=LimitSettings(body=8192)) as node:
        enclave = node.create(SMALL)
        error = bad(node.post(body_of(*messages(enclave, 20)), "/commits"))
        assert (error.status, error.code) == (413, "INVALID_COMMIT")
        assert enclave.seqs("bob") == [0]


def test_as_many_lines_as_fit_a_body_are_not_all_looked_at() -> None:
    body = b"\n" * (2 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidQuery):
            split_lines(body, 256)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(body)


def test_only_post_is_accepted(node: Served) -> None:
    assert bad(node.get("/commits")).status == 405


# What the node's operator decides


@pytest.fixture
def slow() -> Iterator[Served]:
    """Yield a node whose rates allow a few requests at once."""
    rates = RateSettings(identity_per_s=0.25, identity_burst=4, address_per_s=0.25, address_burst=10)
    with limited(rates=rates) as node:
        yield node


def test_each_commit_counts_against_the_rate_of_its_identity(slow: Served) -> None:
    enclave = slow.create(SMALL)  # one of ten tokens of the address
    commits = messages(enclave, 6)
    results = posted(slow, *commits)
    assert outcomes(results) == [1, 2, 3, 4, "RATE_LIMITED", "RATE_LIMITED"]
    assert [each["retry_after_ms"] for each in results[4:]] == [4000, 8000]
    assert bad(slow.post(wire_commit(commits[5]))).code == "RATE_LIMITED"
    assert outcomes(posted(slow, enclave.commit("alice", "message", "another identity"))) == [5]


def test_each_commit_counts_against_the_rate_of_its_address(slow: Served) -> None:
    enclave = slow.create(SMALL)
    mixed = [each for name in ("bob", "alice", "carol") for each in messages(enclave, 4, name)]
    results = posted(slow, *mixed)
    assert outcomes(results) == [*range(1, 8), "RATE_LIMITED", 8, *["RATE_LIMITED"] * 3]  # alice has created it
    assert bad(slow.get("/info")).code == "RATE_LIMITED"


def test_none_is_accepted_behind_one_that_its_identity_may_not_send_now() -> None:
    """The rate gives tokens back while the request is processed: here one for each commit."""
    with limited(rates=RateSettings(identity_per_s=1000, identity_burst=2)) as node:
        commits = messages(node.create(SMALL), 4)
        let_time_pass(node, node.node.admission._validator._rates)
        assert outcomes(posted(node, *commits)) == [1, 2, "RATE_LIMITED", "RATE_LIMITED"]


def test_none_is_accepted_behind_one_that_its_address_may_not_send_now() -> None:
    with limited(rates=RateSettings(address_per_s=1, address_burst=4)) as node:
        commits = messages(node.create(SMALL), 5)
        let_time_pass(node, node.node.http._rates)
        assert outcomes(posted(node, *commits)) == [1, 2, 3, "RATE_LIMITED", "RATE_LIMITED"]


def let_time_pass(node: Served, rates: RateLimiter) -> None:
    """Advance the clock by as much as gives a token back whenever a token is taken or refused."""
    passed, step = rates.take, int(1000 / rates._per_s)

    def take(key: bytes | str, cost: float = 1) -> None:
        try:
            passed(key, cost)
        except RateLimited:
            node.clock.tick(step)
            raise
        if rates._per_s > 1:
            node.clock.tick(step)

    rates.take = take  # type: ignore[method-assign]


def test_commits_over_the_quota_of_their_identity_are_refused() -> None:
    with limited(admission=AdmissionSettings(max_events=2)) as node:
        enclave = node.create(SMALL)
        results = posted(node, *messages(enclave, 3), enclave.commit("carol", "message", "of another"))
        assert outcomes(results) == [1, 2, "UNAUTHORIZED", 3]
        assert "quota of events" in results[2]["message"]


def test_each_commit_takes_a_place_of_its_address_among_those_that_wait() -> None:
    with limited(limits=LimitSettings(waiting_commits=5)) as node, ThreadPoolExecutor(1) as pool:
        enclave = node.create(SMALL)
        commits = messages(enclave, 4)
        with node.held_up():
            sent = pool.submit(posted, node, *commits)
            node.until(lambda: node.node.intake.waiting == 3)  # about half of the places
        results = sent.result()
        assert outcomes(results) == [1, 2, 3, "UNAVAILABLE"]
        assert results[3]["retry_after_ms"] == 1000


def test_commits_are_counted_one_by_one(node: Served, enclave: Enclave) -> None:
    before = figures(node)
    posted(node, *messages(enclave, 3), b"not JSON")
    after = figures(node)

    def growth(name: str, labels: str) -> float:
        return after.get((name, labels), 0.0) - before.get((name, labels), 0.0)

    assert growth("enc_commits_total", "accepted") == 3
    assert growth("enc_commits_total", "INVALID_COMMIT") == 1


def test_a_peer_that_leaves_does_not_take_its_commits_along(node: Served, enclave: Enclave) -> None:
    body = body_of(*messages(enclave, 3))
    head = f"POST /commits HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with node.held_up(), dialed(node) as peer:
        peer.sendall(head + body)
        node.until(lambda: node.node.intake.waiting == 3)
    node.until(lambda: node.node.intake.waiting == 0)
    assert enclave.seqs("bob") == [0, 1, 2, 3]


def test_a_chunked_body_is_read_to_its_end(node: Served, enclave: Enclave) -> None:
    body = body_of(*messages(enclave, 2))
    parts = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:100], body[100:])) + b"0\r\n\r\n"
    with dialed(node) as peer:
        peer.sendall(b"POST /commits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + parts)
        with peer.makefile("rb") as file:
            status, _, answer = read_response(file)
    assert (status, outcomes(decode(encode(answer))["results"])) == (200, [1, 2])
