"""The HTTP API by real requests: every code with its status and fields, and the order of checks on a commit."""

import os
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, get_args

import httpx
import pytest
from msgspec.json import decode, encode

from enc.core.errors import WIRE_ERRORS, Unavailable
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import parse_event, wire_event
from enc.core.log.receipt import build_receipt, parse_receipt, wire_receipt
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import NONCE_SIZE, seal_text
from enc.core.primitives.types import Commit, Receipt
from enc.core.session.envelope import RequestType
from enc.core.session.session import Session, client_keys, open_session
from enc.node.api.http import SEALED_PATHS
from enc.node.config import Config, Rates, Retention
from enc.node.openapi.document import MEANINGS
from tests.core.world import GROUP, LIFETIME, NO_POINT, World, give, move, person, pub
from tests.core.world_v1 import change
from tests.node.served import NODE, PATHS, PATIENCE_S, SMALL, Clock, Enclave, Json, Served, about, bad, good, sqlite
from tests.node.small_v1 import ADMIN, MEMBER, OWNER, SMALL_V1

HOUR, SKEW = 3_600_000, 60_000


@pytest.fixture(scope="module", params=["the short way", "the long way"])
def node(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    store = sqlite(tmp_path_factory.mktemp("node"))
    with Served(store=store, quick=request.param == "the short way") as node:
        yield node
    store.close()


@pytest.fixture
def enclave(node: Served) -> Enclave:
    return node.found(SMALL)


# One case for every code and status

Case = Callable[[Served], httpx.Response]
CASES: dict[tuple[int, str], Case] = {}


def answers(status: int, code: str) -> Callable[[Case], Case]:
    def keep(case: Case) -> Case:
        CASES[status, code] = case
        return case

    return keep


def sends(status: int, code: str, *what: Any) -> None:
    """Add a case: a commit to a new enclave with this answer."""

    @answers(status, code)
    def case(node: Served) -> httpx.Response:
        enclave = node.found(SMALL)
        return node.post(wire_commit(enclave.commit(*what)))


def sends_v1(status: int, code: str, *what: Any) -> None:
    """Add a case for an enclave of version 1."""

    @answers(status, code)
    def case(node: Served) -> httpx.Response:
        return node.post(wire_commit(node.found(SMALL_V1).commit(*what)))


def asks(status: int, code: str, name: str, type_: str, **body: Any) -> None:
    """Add a case: a sealed request about a new enclave with this answer."""

    @answers(status, code)
    def case(node: Served) -> httpx.Response:
        return node.found(SMALL).ask_raw(name, type_, **body)


sends(400, "INVALID_COMMIT", "bob", "Shared", "{}")
sends(403, "UNAUTHORIZED", "mallory", "message", "x")
sends(403, "RANK_INSUFFICIENT", "carol", "Revoke", give("alice", "admin"))
sends(400, "INVALID_ENDPOINT_URL", "alice", "Grant", give("bob", "helper", endpoint=""))
sends(400, "INVALID_TRANSFER_TARGET", "alice", "Transfer", give("alice", "owner"))
sends(404, "EVENT_NOT_FOUND", "bob", "Update", "x", ("r", "00" * 32))
sends(409, "STATE_MISMATCH", "alice", "Move", move("bob", "PENDING", "MEMBER"))
sends(409, "INVALID_STATE_FOR_GRANT", "alice", "Grant", give("dave", "helper"))
sends(409, "INVALID_STATE_FOR_TRANSFER", "alice", "Transfer", give("dave", "owner"))
sends(409, "INVALID_LIFECYCLE_STATE", "alice", "Resume")
sends(409, "AC_BUNDLE_FAILED", "bob", "AC_Bundle", {"operations": [{"type": "Grant", **give("bob", "admin")}]})
sends(
    409, "CHECKPOINT_MISMATCH", "alice", "Migrate", {"new_sequencer": pub("node2"), "prev_seq": 7, "ct_root": "00" * 32}
)
sends_v1(403, "OWNER_SELF_REVOKE_FORBIDDEN", "alice", "Revoke_Self", {"role": "Owner"})
sends_v1(403, "OWNER_BIT_PROTECTED", "alice", "Force_Move", change("alice", OWNER | MEMBER, 0))
sends_v1(409, "BITMASK_MISMATCH", "alice", "Move", change("bob", ADMIN, 0))
asks(400, "INVALID_QUERY", "alice", "Query", filter=3)
asks(400, "INVALID_FILTER", "alice", "Query", filter={"colour": "red"})
asks(400, "INVALID_NAMESPACE", "alice", "State_Proof", namespace="colour", key=pub("alice"))
asks(404, "LEAF_NOT_FOUND", "alice", "Inclusion_Proof", leaf_index=0)
asks(404, "TREE_SIZE_NOT_FOUND", "alice", "State_Proof", namespace="rbac", key=pub("alice"))


@answers(413, "INVALID_COMMIT")
def too_large(node: Served) -> httpx.Response:
    return node.post(b" " * (2 * 1024 * 1024 + 1))


@answers(400, "INVALID_HASH")
def wrong_hash(node: Served) -> httpx.Response:
    return node.post({**wire_commit(node.found(SMALL).commit("bob", "message", "x")), "hash": "00" * 32})


@answers(400, "INVALID_SIGNATURE")
def wrong_signature(node: Served) -> httpx.Response:
    return node.post({**wire_commit(node.found(SMALL).commit("bob", "message", "x")), "sig": "00" * 64})


@answers(400, "EXPIRED")
def expired(node: Served) -> httpx.Response:
    return node.post(wire_commit(node.found(SMALL).commit("bob", "message", "x", exp=node.clock.now - 1)))


@answers(400, "INVALID_TARGET")
def no_content_event(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    slot = enclave.send("bob", "Shared", {"key": "topic", "value": 1})
    return node.post(wire_commit(enclave.commit("bob", "Update", "x", about(slot))))


@answers(404, "ENCLAVE_NOT_FOUND")
def unknown_enclave(node: Served) -> httpx.Response:
    return node.post(wire_commit(build_commit(person("bob"), bytes(32), "message", "x", node.clock.now + LIFETIME)))


@answers(409, "DUPLICATE")
def sent_twice(node: Served) -> httpx.Response:
    commit = node.found(SMALL).commit("bob", "message", "x")
    node.submit(commit)
    return node.post(wire_commit(commit))


@answers(409, "ENCLAVE_EXISTS")
def founded_twice(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    return node.post(wire_commit(again(enclave, exp=node.clock.now + 1)))


@answers(409, "TRAIT_ALREADY_HELD")
def given_twice(node: Served) -> httpx.Response:
    two = [{"identity": pub(name), "state": "MEMBER", "traits": ["owner"]} for name in ("alice", "bob")]
    enclave = node.found(SMALL, init=two, states=["MEMBER"], moves=[])
    return node.post(wire_commit(enclave.commit("alice", "Transfer", give("bob", "owner"))))


@answers(403, "GATE_CLOSED")
def closed_gate(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    enclave.send("alice", "Gate", {"alias": "applications", "state": "closed"})
    return node.post(wire_commit(enclave.commit("mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))))


@answers(403, "ENCLAVE_PAUSED")
def paused(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    enclave.send("alice", "Pause")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "ENCLAVE_TERMINATED")
def terminated(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    enclave.send("alice", "Terminate")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "ENCLAVE_MIGRATED")
def migrated(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    migrate(enclave, "node2")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "EVENT_DELETED")
def deleted(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    gone = enclave.send("bob", "message", "x")
    enclave.send("bob", "Delete", {"reason": "author"}, about(gone))
    return node.post(wire_commit(enclave.commit("bob", "Update", "y", about(gone))))


@answers(409, "EVENT_PENDING")
def pending(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    event = enclave.send("bob", "message", "x")
    return enclave.ask_raw("bob", "Bundle_Proof", event_id=event.id.hex())


@answers(400, "INVALID_RANGE")
def no_tree_yet(node: Served) -> httpx.Response:
    return node.get(f"/{node.found(SMALL).id.hex()}/consistency?from=1")


@answers(400, "INVALID_SESSION")
def anothers_token(node: Served) -> httpx.Response:
    request = node.found(SMALL).request("alice", "Query", filter={})
    return node.post({**request, "from": pub("bob")})


@answers(401, "SESSION_EXPIRED")
def old_token(node: Served) -> httpx.Response:
    return node.found(SMALL).ask_raw("alice", "Query", session=node.session("alice", -60), filter={})


@answers(400, "DECRYPT_FAILED")
def sealed_for_another_enclave(node: Served) -> httpx.Response:
    enclave, other = node.found(SMALL), node.found(SMALL)
    request = enclave.request("alice", "Query", filter={})
    return node.post({**request, "enclave": other.id.hex()})


@answers(429, "RATE_LIMITED")
def too_fast(node: Served) -> httpx.Response:
    with Served(Config(port=0, rates=Rates(address_per_s=0.25, address_burst=1))) as slow:
        good(slow.get("/info"))
        return slow.get("/info")


@answers(503, "UNAVAILABLE")
def held(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)
    enclave.ask("alice", "Checkpoint", hold=1)
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(502, "UPSTREAM_UNREACHABLE")
def nowhere(node: Served) -> httpx.Response:
    world = World(GROUP, node="node2")
    world.send("alice", "Migrate", world.migrate("node"))
    order = {"migrate": wire_event(world.events[-1]), "source": "https://nowhere.invalid/"}
    return node.post(order, "/import")


@answers(500, "INTERNAL_ERROR")
def broken(node: Served) -> httpx.Response:
    enclave = node.found(SMALL)

    def fail(*args: Any) -> Any:
        raise RuntimeError("a secret of ours")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.store, "find", fail)
        return enclave.ask_raw("alice", "Query", filter={})


def again(enclave: Enclave, exp: int, name: str = "alice") -> Commit:
    """The enclave's Manifest with another `exp`: another commit for the same enclave."""
    manifest = enclave.manifest
    return build_commit(person(name), enclave.id, "Manifest", manifest.content or "", exp, manifest.tags)


def migrate(enclave: Enclave, to: str, hold: int = 0) -> Receipt:
    found = enclave.ask("alice", "Checkpoint", hold=hold)
    content = {"new_sequencer": pub(to), "prev_seq": found["seq"], "ct_root": found["ct_root"]}
    return enclave.send("alice", "Migrate", content)


@answers(404, "INVALID_QUERY")
def no_registry(node: Served) -> httpx.Response:
    return node.get(f"/nodes/{pub('node')}")


ELSEWHERE = {(404, "NODE_NOT_FOUND"), (404, "IDENTITY_NOT_FOUND"), (409, "REGISTRY_CONFLICT")}
"""Codes of a node that serves a registry: see the tests of the registry API."""


def test_there_is_a_case_for_every_error_that_the_node_documents_and_for_no_other() -> None:
    assert set(CASES) | ELSEWHERE == {(error.status, error.code) for error in MEANINGS}


@pytest.mark.parametrize(("status", "code"), CASES, ids=lambda part: str(part))
def test_every_code_comes_with_its_status_and_its_fields(node: Served, status: int, code: str) -> None:
    error = bad(CASES[status, code](node))
    assert (error.status, error.code) == (status, code)
    assert set(error.context) == set(WIRE_ERRORS[code].fields)
    assert "secret" not in error.message


def test_what_the_fields_say(node: Served) -> None:
    found = {code: bad(case(node)).context for (_, code), case in CASES.items() if WIRE_ERRORS[code].fields}
    assert found["STATE_MISMATCH"] == {"expected": "PENDING", "actual": "MEMBER"}
    assert found["BITMASK_MISMATCH"] == {"expected": "0x100000000", "actual": "0x200000000"}
    assert found["AC_BUNDLE_FAILED"] == {"failed_index": 0, "reason": "UNAUTHORIZED"}
    assert found["GATE_CLOSED"] == {"alias": "applications"}
    assert found["ENCLAVE_MIGRATED"] == {"new_sequencer": pub("node2")}
    assert found["CHECKPOINT_MISMATCH"]["seq"] == 0
    assert found["RATE_LIMITED"] == {"retry_after_ms": 4000}
    assert found["EVENT_PENDING"] == {"retry_after_ms": 4999}
    assert found["UNAVAILABLE"] == {"retry_after_ms": 999}


# The order of checks: a commit that is wrong in two ways is refused for the earlier


def refused(node: Served, commit: Commit, **wrong: Any) -> str:
    return bad(node.post({**wire_commit(commit), **wrong})).code


NO_SIG = {"sig": "00" * 64}


def test_structure_comes_before_the_enclave(node: Served) -> None:
    lost = build_commit(person("bob"), bytes(32), "message", "x", node.clock.now + LIFETIME)
    assert refused(node, lost) == "ENCLAVE_NOT_FOUND"
    assert refused(node, lost, type="") == "INVALID_COMMIT"
    assert refused(node, lost, tags=[["auto-delete", "soon"]]) == "INVALID_COMMIT"


def test_the_enclave_comes_before_the_hash(node: Served) -> None:
    lost = build_commit(person("bob"), bytes(32), "message", "x", node.clock.now + LIFETIME)
    assert refused(node, lost, hash="00" * 32) == "ENCLAVE_NOT_FOUND"


def test_a_manifests_version_comes_before_its_hash(node: Served) -> None:
    for content in ('{"enc_v": 3}', '{"enc_v": "2"}', "{}", "[]", "not JSON", '{"enc_v": 2, "enc_v": 2}'):
        commit = build_manifest(person("alice"), content, node.clock.now + LIFETIME)
        assert refused(node, commit, hash="00" * 32) == "INVALID_COMMIT"


def test_the_hash_comes_before_the_duplicate(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    node.submit(commit)
    assert refused(node, commit) == "DUPLICATE"
    assert refused(node, commit, content="y") == "INVALID_HASH"


def test_the_duplicate_comes_before_expiry(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    late = enclave.commit("bob", "message", "never accepted")
    node.submit(commit)
    node.clock.tick(LIFETIME + 1)
    assert refused(node, commit) == "DUPLICATE"
    assert refused(node, late) == "EXPIRED"


def test_expiry_comes_before_enclave_exists(node: Served, enclave: Enclave) -> None:
    assert refused(node, again(enclave, node.clock.now - 1)) == "EXPIRED"
    assert refused(node, again(enclave, node.clock.now + HOUR + SKEW + 1)) == "INVALID_COMMIT"
    assert refused(node, again(enclave, node.clock.now)) == "ENCLAVE_EXISTS"


def test_enclave_exists_comes_before_the_signature(node: Served, enclave: Enclave) -> None:
    assert refused(node, again(enclave, node.clock.now), **NO_SIG) == "ENCLAVE_EXISTS"


def test_a_manifest_that_was_accepted_is_a_duplicate_before_it_exists(node: Served, enclave: Enclave) -> None:
    assert refused(node, enclave.manifest) == "DUPLICATE"
    assert refused(node, enclave.manifest, **NO_SIG) == "INVALID_SIGNATURE"


def test_expiry_comes_before_the_signature(node: Served, enclave: Enclave) -> None:
    assert refused(node, enclave.commit("bob", "message", exp=node.clock.now - 1), **NO_SIG) == "EXPIRED"
    assert refused(node, enclave.commit("bob", "message", exp=node.clock.now + 2 * HOUR), **NO_SIG) == "INVALID_COMMIT"


def test_the_signature_comes_before_the_lifecycle(node: Served, enclave: Enclave) -> None:
    enclave.send("alice", "Terminate")
    assert refused(node, enclave.commit("bob", "message"), **NO_SIG) == "INVALID_SIGNATURE"


def test_the_lifecycle_comes_before_content_and_authorisation(node: Served, enclave: Enclave) -> None:
    enclave.send("alice", "Pause")
    assert enclave.refused("mallory", "message").code == "ENCLAVE_PAUSED"
    assert enclave.refused("mallory", "Move", "not JSON").code == "ENCLAVE_PAUSED"
    assert enclave.refused("mallory", "Resume").code == "UNAUTHORIZED"


def test_content_comes_before_authorisation_and_that_before_state_and_that_before_rank(enclave: Enclave) -> None:
    assert enclave.refused("mallory", "Move", "not JSON").code == "INVALID_COMMIT"
    assert enclave.refused("mallory", "Move", move("bob", "PENDING", "MEMBER")).code == "UNAUTHORIZED"
    assert enclave.refused("carol", "Move", move("alice", "PENDING", "MEMBER")).code == "STATE_MISMATCH"
    assert enclave.refused("carol", "Move", move("alice", "MEMBER", "OUTSIDER")).code == "RANK_INSUFFICIENT"


def test_a_manifest_is_judged_whole_only_after_its_signature(node: Served) -> None:
    wrong = node.manifest({**SMALL, "init": []})
    assert refused(node, wrong, **NO_SIG) == "INVALID_SIGNATURE"
    assert refused(node, wrong) == "INVALID_COMMIT"
    assert refused(node, wrong, enclave="00" * 32) == "INVALID_HASH"
    assert bad(node.get(f"/{wrong.enclave.hex()}/sth")).code == "ENCLAVE_NOT_FOUND"


def test_a_manifest_for_another_enclave_than_its_own(node: Served) -> None:
    content = compact_json(SMALL)
    astray = build_commit(person("alice"), bytes(32), "Manifest", content, node.clock.now + LIFETIME)
    assert refused(node, astray) == "INVALID_COMMIT"


def test_a_version_that_this_node_does_not_host(node: Served) -> None:
    commit = node.manifest({**SMALL, "enc_v": 3})
    assert refused(node, commit) == "INVALID_COMMIT"
    assert refused(node, commit, **NO_SIG) == "INVALID_COMMIT"  # returned before the signature is checked


def test_a_refused_commit_leaves_no_trace(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))
    enclave.send("alice", "Gate", {"alias": "applications", "state": "closed"})
    for _ in range(2):
        assert refused(node, commit) == "GATE_CLOSED"
    enclave.send("alice", "Gate", {"alias": "applications", "state": "open"})
    assert node.submit(commit).seq == 3


# Duplicates


def test_a_duplicate_by_the_same_signature_carries_the_first_receipt(node: Served, enclave: Enclave) -> None:
    open_ = enclave.commit("mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))
    first = node.submit(open_)
    for wait in (0, LIFETIME + 1, 10 * HOUR):
        node.clock.tick(wait)
        error = bad(node.post(wire_commit(open_)))
        assert error.code == "DUPLICATE"
        assert parse_receipt(encode(error.context["receipt"])) == first


def test_a_duplicate_by_another_signature_carries_none(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    other = build_commit(person("bob"), enclave.id, "message", "x", commit.exp, alg="ecdsa")
    assert (other.hash, other.sig == commit.sig) == (commit.hash, False)
    node.submit(commit)
    for wait in (0, LIFETIME + 1):
        node.clock.tick(wait)
        error = bad(node.post(wire_commit(other)))
        assert (error.code, error.context) == ("DUPLICATE", {})
        assert refused(node, commit, **NO_SIG) == "INVALID_SIGNATURE"


def test_a_duplicate_is_known_after_a_restart_and_after_the_end(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave = node.found(SMALL)
        commit = enclave.commit("bob", "message", "x")
        receipt = node.submit(commit)
        enclave.send("alice", "Terminate")
    store.close()
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        for wait in (0, LIFETIME + 1):
            clock.tick(wait)
            error = bad(node.post(wire_commit(commit)))
            assert parse_receipt(encode(error.context["receipt"])) == receipt
        assert bad(node.post(wire_commit(enclave.commit("bob", "message", "y")))).code == "ENCLAVE_TERMINATED"
    store.close()


def test_the_same_commit_twice_at_once_is_accepted_once(node: Served, enclave: Enclave) -> None:
    wire = wire_commit(enclave.commit("bob", "message", "x"))
    with ThreadPoolExecutor(4) as pool:
        with node.held_up():
            sent = [pool.submit(node.post, wire) for _ in range(4)]
        responses = [future.result() for future in sent]
    receipts = [good(r) if r.status_code == 200 else bad(r).context["receipt"] for r in responses]
    assert sorted(r.status_code for r in responses) == [200, 409, 409, 409]
    assert all(receipt == receipts[0] for receipt in receipts)
    assert enclave.seqs("bob") == [0, 1]


def test_two_manifests_for_one_enclave_at_once_found_it_once(node: Served) -> None:
    first = node.manifest({**SMALL, "meta": {"twin": True}})
    second = build_commit(person("alice"), first.enclave, "Manifest", first.content or "", first.exp + 1)
    with ThreadPoolExecutor(2) as pool:
        with node.held_up():
            sent = [pool.submit(node.post, wire_commit(commit)) for commit in (first, second)]
        statuses = sorted(future.result().status_code for future in sent)
    assert statuses == [200, 409]


# Time


def test_exp_at_both_ends_of_its_window(node: Served, enclave: Enclave) -> None:
    node.clock.tick(1)
    now = node.clock.now + 1  # making a commit takes a millisecond
    assert enclave.refused("bob", "message", exp=now - 1).code == "EXPIRED"
    assert enclave.refused("bob", "message", exp=now + 1 + HOUR + SKEW + 1).code == "INVALID_COMMIT"
    assert enclave.send("bob", "message", exp=now + 2).seq == 1
    assert enclave.send("bob", "message", exp=now + 3 + HOUR + SKEW).seq == 2


def test_a_clock_that_stands_behind_what_it_was_stops_the_node_also_after_a_restart(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave = node.found(SMALL)
        clock.tick(HOUR)  # the enclave's own time is long past
        good(node.get("/health"))
        clock.now -= SKEW + 1
        assert node.submit(enclave.commit("bob", "message", "still in time")).seq == 1
        clock.now -= 2
        error = bad(node.post(wire_commit(enclave.commit("bob", "message", "late"))))
        assert (error.code, error.context) == ("UNAVAILABLE", {"retry_after_ms": SKEW + 1})
    store.close()
    store = sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        clock.now -= 1
        assert bad(node.post(wire_commit(enclave.commit("bob", "message", "late")))).code == "UNAVAILABLE"
        assert node.submit(enclave.commit("bob", "message", "in time again")).seq == 2
    store.close()


# Sealed requests: what every type and path rejects

BODIES: dict[str, Json] = {
    "Query": {"filter": {}},
    "Inclusion_Proof": {"leaf_index": 0},
    "Bundle_Proof": {"leaf_index": 0},
    "State_Proof": {"namespace": "kv", "key": "00" * 32},
    "State_Batch": {"keys": [{"namespace": "kv", "key": "00" * 32}]},
    "Checkpoint": {},
    "Export": {},
    "Pull": {"url": "https://a.example", "push_seq": 1},
    "Deliveries": {},
}
"""A valid body of each type."""

every_type = pytest.mark.parametrize("type_", BODIES)


def sealed(session: Session, enclave: Enclave, type_: str, plaintext: bytes) -> Json:
    """Return a request with this plaintext sealed inside."""
    content = seal_text(client_keys(session, NODE.public, enclave.id).query, plaintext, os.urandom(NONCE_SIZE))
    return {
        "type": type_,
        "enclave": enclave.id.hex(),
        "from": session.from_.hex(),
        "session": session.token.hex(),
        "content": content,
    }


@pytest.fixture(scope="module")
def closed(node: Served) -> Enclave:
    """An enclave with a closed bundle."""
    enclave = node.found(SMALL)
    for i in range(3):
        enclave.send("bob", "message", f"{i}")
    return enclave


def code(node: Served, request: Json, type_: str) -> str:
    return bad(node.post(request, PATHS.get(type_, "/"))).code


def test_bodies_of_every_type_that_the_node_answers() -> None:
    assert set(BODIES) == {"Query", "Pull", *SEALED_PATHS.values()} == set(get_args(RequestType))


@every_type
def test_a_good_request_is_answered(closed: Enclave, type_: str) -> None:
    assert closed.ask("alice", type_, **BODIES[type_]) is not None


@pytest.mark.parametrize("type_", sorted(BODIES.keys() - {"Inclusion_Proof", "Pull", "Deliveries"}))
def test_who_may_read_nothing_is_unauthorized(closed: Enclave, type_: str) -> None:
    assert closed.denied("mallory", type_, **BODIES[type_]).code == "UNAUTHORIZED"


@every_type
def test_an_unknown_enclave_is_not_found(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    assert code(node, {**request, "enclave": "00" * 32}, type_) == "ENCLAVE_NOT_FOUND"


@every_type
def test_tokens(node: Served, closed: Enclave, type_: str) -> None:
    def asked(made: Session, **changes: str) -> str:
        request = closed.request("alice", type_, session=made, **BODIES[type_])
        return code(node, {**request, **changes}, type_)

    session = node.session("alice")
    assert asked(session, **{"from": pub("bob")}) == "INVALID_SESSION"
    assert asked(session, **{"from": NO_POINT}) == "INVALID_SESSION"
    assert asked(session, session=node.session("alice", 3599).token.hex()) == "DECRYPT_FAILED"
    assert asked(session, session=node.session("bob").token.hex()) == "INVALID_SESSION"
    for text in ("", "00", session.token.hex().upper(), session.token.hex() + "00", "zz" * 68):
        assert asked(session, session=text) == "INVALID_SESSION"
    assert asked(node.session("alice", -60)) == "SESSION_EXPIRED"
    assert asked(node.session("alice", 7261)) == "INVALID_SESSION"
    for lasts in (-59, 7260):
        good(closed.ask_raw("alice", type_, session=node.session("alice", lasts), **BODIES[type_]))


@every_type
def test_a_token_that_anyone_can_make_opens_nothing(node: Served, closed: Enclave, type_: str) -> None:
    mallory, alice = open_session(person("mallory"), node.clock.now // 1000 + 60), node.session("alice")
    request = closed.request("mallory", type_, session=mallory, **BODIES[type_])
    taken = {**request, "from": pub("alice"), "session": alice.token.hex()}
    assert code(node, taken, type_) == "DECRYPT_FAILED"


@every_type
def test_inside_and_outside_agree(node: Served, closed: Enclave, type_: str) -> None:
    session, other = node.session("alice"), node.session("alice", 60)

    def asked(**inside: Any) -> httpx.Response:
        plaintext = encode({"session": session.token.hex(), **BODIES[type_], **inside})
        return node.post(sealed(session, closed, type_, plaintext), PATHS.get(type_, "/"))

    good(asked())
    good(asked(type=type_))
    assert bad(asked(type="Pull" if type_ != "Pull" else "Query")).code == "INVALID_QUERY"
    assert bad(asked(type=None)).code == "INVALID_QUERY"
    assert bad(asked(session=other.token.hex())).code == "INVALID_SESSION"
    assert bad(asked(session=None)).code == "INVALID_SESSION"


@every_type
def test_contents_that_do_not_open(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    text = request["content"]
    forged = ("B" if text[50] != "B" else "C").join((text[:50], text[51:]))
    for content in ("", "AA==", forged, text + "\n", text[:-4], text.rstrip("=") + "!", "A" * 52):
        assert code(node, {**request, "content": content}, type_) == "DECRYPT_FAILED"


@every_type
def test_plaintexts_that_are_no_object(node: Served, closed: Enclave, type_: str) -> None:
    session = node.session("alice")
    for plaintext in (b"", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"a":"\xff"}', b"[" * 100_000, b'{"a":' * 100_000):
        assert code(node, sealed(session, closed, type_, plaintext), type_) == "INVALID_QUERY"


@every_type
def test_each_path_takes_its_own_types_only(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    for path in {"/", *SEALED_PATHS} - {PATHS.get(type_, "/")}:
        error = bad(node.post(request, path))
        assert (error.status, error.code) == (400, "INVALID_QUERY")


def test_a_commit_is_taken_at_the_root_only(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    for path in SEALED_PATHS:
        assert bad(node.post(wire_commit(commit), path)).code == "INVALID_QUERY"
    assert node.submit(commit).seq == 1


# Lifecycle


def test_a_paused_enclave_can_be_read_and_resumed(enclave: Enclave) -> None:
    enclave.send("alice", "Pause")
    assert enclave.refused("alice", "Pause").code == "ENCLAVE_PAUSED"
    assert enclave.seqs("bob") == [0, 1]
    enclave.send("alice", "Resume")
    assert enclave.send("bob", "message", "x").seq == 3


def test_a_terminated_enclave_can_be_read_until_its_data_is_gone(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    config = Config(port=0, dev=True, retention=Retention(purge_after_s=3600))
    with Served(config, store) as node:
        enclave, other = node.found(SMALL), node.found(SMALL)
        sent = enclave.commit("bob", "message", "x")
        node.submit(sent)
        enclave.send("alice", "Terminate")
        node.clock.tick(HOUR - 1)
        node.settle()
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
        assert enclave.refused("alice", "Resume").code == "ENCLAVE_TERMINATED"
        assert enclave.seqs("bob") == [0, 1, 2]
        assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 1
        assert enclave.ask("bob", "Bundle_Proof", leaf_index=0)["first_seq"] == 0
        node.clock.tick(1001)  # past the next sweep
        node.settle()
        for type_, body in BODIES.items():
            assert enclave.denied("alice", type_, **body).code == "ENCLAVE_TERMINATED", type_
        for path in ("sth", "consistency?from=1"):
            assert bad(node.get(f"/{enclave.id.hex()}/{path}")).code == "ENCLAVE_TERMINATED"
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
        assert refused(node, again(enclave, node.clock.now)) == "ENCLAVE_EXISTS"
        assert other.seqs("bob") == [0]
    store.close()
    store = sqlite(tmp_path)
    with Served(config, store, node.clock) as node:
        enclave.node = node
        assert enclave.denied("alice", "Query", filter={}).code == "ENCLAVE_TERMINATED"
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
    store.close()


def test_an_enclave_whose_data_goes_while_it_is_read_is_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite(tmp_path)
    with Served(Config(port=0, dev=True, retention=Retention(purge_after_s=3600)), store) as node:
        enclave = node.found(SMALL)
        enclave.send("alice", "Terminate")
        node.clock.tick(HOUR + 1)
        node.settle()
        is_purged = store.is_purged
        for type_, body in BODIES.items():
            if type_ == "Pull":  # reads nothing of the enclave that it names
                continue
            seen = iter([False])  # as it was when the answer began
            monkeypatch.setattr(store, "is_purged", lambda found, seen=seen: next(seen, is_purged(found)))
            assert enclave.denied("alice", type_, **body).code == "ENCLAVE_TERMINATED", type_
    store.close()


def test_a_migrated_enclave_names_its_new_sequencer_and_can_be_read(node: Served, enclave: Enclave) -> None:
    assert migrate(enclave, "node2").seq == 1
    for name, type_ in (("bob", "message"), ("alice", "Pause"), ("alice", "Migrate")):
        error = enclave.refused(name, type_)
        assert (error.code, error.context) == ("ENCLAVE_MIGRATED", {"new_sequencer": pub("node2")})
    assert enclave.seqs("bob") == [0, 1]
    assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 1


# Exports


def exported(enclave: Enclave, **body: Any) -> Json:
    found: Json = enclave.ask("alice", "Export", **body)
    return found


def test_an_export_is_the_whole_log_and_replays(node: Served, enclave: Enclave) -> None:
    gone = enclave.send("bob", "message", "gone").id
    enclave.send("bob", "message", "kept")
    enclave.send("bob", "Delete", '{"reason":"author"}', ("r", gone.hex()))
    answer = exported(enclave)
    replay = Replay(enclave.id)
    for event in answer["events"]:
        replay.add(parse_event(encode(event)))
    replay.finish()
    assert answer["seq"] == replay.state.seq == 3
    assert [event["content"] for event in answer["events"][1:3]] == [None, "kept"]
    assert answer["sth"] == good(node.get(f"/{enclave.id.hex()}/sth"))


def test_an_export_goes_page_by_page(enclave: Enclave) -> None:
    for text in "abcd":
        enclave.send("bob", "message", text)
    whole = exported(enclave)["events"]
    assert [event["seq"] for event in whole] == [0, 1, 2, 3, 4]
    assert exported(enclave, from_seq=1, limit=2)["events"] == whole[1:3]
    assert exported(enclave, from_seq=3)["events"] == whole[3:]
    past = exported(enclave, from_seq=5)
    assert (past["events"], past["seq"]) == ([], 4)


@pytest.mark.parametrize(
    "body", [{"limit": 0}, {"limit": 1001}, {"from_seq": -1}, {"from_seq": 1 << 53}, {"limit": "1"}]
)
def test_an_export_of_what_cannot_be(enclave: Enclave, body: Json) -> None:
    assert enclave.denied("alice", "Export", **body).code == "INVALID_QUERY"
    assert exported(enclave, from_seq=(1 << 53) - 1, limit=1000)["events"] == []


def test_only_who_may_migrate_gets_an_export(enclave: Enclave) -> None:
    for name in ("bob", "carol", "mallory"):
        assert enclave.denied(name, "Export").code == "UNAUTHORIZED"


# Checkpoints


def test_a_checkpoint_is_the_root_that_replay_finds(node: Served, enclave: Enclave) -> None:
    for text in "abcde":
        enclave.send("bob", "message", text)
    replay = Replay(enclave.id)
    for event in node.store.events(enclave.id, 0, 10):
        replay.add(event)
    assert enclave.ask("alice", "Checkpoint") == {"seq": 5, "ct_root": replay.checkpoint_root().hex()}


def test_only_who_may_migrate_gets_a_checkpoint(enclave: Enclave) -> None:
    for name in ("bob", "carol", "mallory"):
        assert enclave.denied(name, "Checkpoint").code == "UNAUTHORIZED"


def test_a_migrate_that_is_not_of_this_checkpoint(enclave: Enclave) -> None:
    right = enclave.ask("alice", "Checkpoint")
    for wrong in ({"prev_seq": 1}, {"ct_root": "00" * 32}):
        content = {"new_sequencer": pub("node2"), "prev_seq": right["seq"], "ct_root": right["ct_root"], **wrong}
        error = enclave.refused("alice", "Migrate", content)
        assert (error.code, error.context) == ("CHECKPOINT_MISMATCH", right)


def test_a_hold_admits_nothing_but_a_migrate(node: Served, enclave: Enclave) -> None:
    other, sent = node.found(SMALL), enclave.commit("bob", "message", "before")
    node.submit(sent)
    found = enclave.ask("alice", "Checkpoint", hold=30)
    for name, type_ in (("bob", "message"), ("alice", "Pause"), ("alice", "Terminate")):
        error = enclave.refused(name, type_)
        assert error.code == "UNAVAILABLE"
        assert 0 < error.context["retry_after_ms"] <= 30_000
    assert refused(node, sent) == "DUPLICATE"
    assert enclave.seqs("bob") == [0, 1]
    assert other.send("bob", "message", "elsewhere").seq == 1
    content = {"new_sequencer": pub("node2"), "prev_seq": found["seq"], "ct_root": found["ct_root"]}
    assert enclave.send("alice", "Migrate", content).seq == 2


def test_a_hold_ends_with_its_time(node: Served, enclave: Enclave) -> None:
    enclave.ask("alice", "Checkpoint", hold=2)
    assert enclave.refused("bob", "message").context == {"retry_after_ms": 1999}
    node.clock.tick(1998)
    assert enclave.send("bob", "message", "x").seq == 1


def test_a_hold_ends_with_the_migrate_that_it_was_for(enclave: Enclave) -> None:
    migrate(enclave, "node2", hold=30)
    assert enclave.refused("bob", "message").code == "ENCLAVE_MIGRATED"


@pytest.mark.parametrize("hold", [-1, 31, 1.5, "1", None, True, 2**53])
def test_a_hold_out_of_bounds(node: Served, enclave: Enclave, hold: Any) -> None:
    assert enclave.denied("alice", "Checkpoint", hold=hold).code == "INVALID_QUERY"
    assert enclave.send("bob", "message", "not held").seq == 1


def test_a_checkpoint_without_a_hold_holds_nothing(enclave: Enclave) -> None:
    enclave.ask("alice", "Checkpoint", hold=0)
    assert enclave.send("bob", "message", "x").seq == 1


# Faults


def test_a_store_that_cannot_be_written_is_told_and_the_same_commit_may_come_again(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise Unavailable("no disk")

    commit = enclave.commit("bob", "message", "x")
    with monkeypatch.context() as broken:
        broken.setattr(node.store, "write", fail)
        error = bad(node.post(wire_commit(commit)))
        assert (error.status, error.code) == (503, "UNAVAILABLE")
    assert node.submit(commit).seq == 1


def test_a_fault_of_ours_is_500_and_stops_nothing(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise RuntimeError("a secret of ours")

    commit = enclave.commit("bob", "message", "x")
    for part in ("write", "target"):
        with monkeypatch.context() as broken:
            broken.setattr(node.store, part, fail)
            sent = commit if part == "write" else enclave.commit("bob", "Update", "x", ("r", "00" * 32))
            error = bad(node.post(wire_commit(sent)))
        assert (error.status, error.code) == (500, "INTERNAL_ERROR")
        assert "secret" not in error.message
    assert node.submit(commit).seq == 1


def test_a_sender_who_hangs_up_is_done_with_and_the_commit_stands(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    with node.held_up():
        with dialed(node) as peer:
            peer.sendall(posted(wire_commit(commit)))
            node.until(lambda: node.node.intake.waiting == 1)
            connections = len(node.server.server_state.connections)
        node.until(lambda: len(node.server.server_state.connections) < connections)
    node.until(lambda: node.node.intake.waiting == 0)
    assert refused(node, commit) == "DUPLICATE"


# Connections


@contextmanager
def dialed(node: Served) -> Iterator[socket.socket]:
    url = httpx.URL(node.url)
    with socket.create_connection((url.host, url.port or 0), timeout=PATIENCE_S) as peer:
        yield peer


def posted(body: Any, *headers: str, version: str = "1.1") -> bytes:
    raw = encode(body)
    head = "\r\n".join((f"POST / HTTP/{version}", "Host: x", f"Content-Length: {len(raw)}", *headers))
    return head.encode() + b"\r\n\r\n" + raw


def heard(file: BinaryIO) -> tuple[int, dict[str, str], Json]:
    """Return one response: status, headers, body."""
    status = int(file.readline().split()[1])
    lines = iter(lambda: file.readline().strip().decode(), "")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return status, headers, decode(file.read(int(headers["content-length"])))


def test_requests_that_come_at_once_are_answered_in_their_order(node: Served, enclave: Enclave) -> None:
    commits = [enclave.commit("bob", "message", f"{i}") for i in range(3)]
    refused = {**wire_commit(commits[0]), "sig": "00" * 64}
    query = enclave.request("bob", "Query", filter={})
    bodies = [wire_commit(commits[0]), query, refused, {}, wire_commit(commits[1]), query, wire_commit(commits[2])]
    get = b"GET /info HTTP/1.1\r\nHost: x\r\n\r\n"
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(b"".join(map(posted, bodies)) + get)
        answers = [heard(file) for _ in range(8)]
    assert [status for status, _, _ in answers] == [200, 200, 400, 400, 200, 200, 200, 200]
    found = [body.get("hash") or body.get("code") or body.get("type") or "info" for _, _, body in answers]
    first, second, third = (commit.hash.hex() for commit in commits)
    assert found[:4] == [first, "Response", "INVALID_SIGNATURE", "INVALID_QUERY"]
    assert found[4:] == [second, "Response", third, "info"]


@pytest.mark.parametrize(
    ("headers", "version", "stays"),
    [
        ((), "1.1", True),
        (("Origin: x",), "1.1", True),
        (("Connection: close",), "1.1", False),
        ((), "1.0", False),
        (("Connection: keep-alive",), "1.0", False),
    ],
)
def test_a_connection_stays_open_unless_the_peer_says_otherwise(
    node: Served, enclave: Enclave, headers: tuple[str, ...], version: str, stays: bool
) -> None:
    for body, status in ((wire_commit(enclave.commit("bob", "message", "x")), 200), ({}, 400)):
        with dialed(node) as peer, peer.makefile("rb") as file:
            peer.sendall(posted(body, *headers, version=version))
            answer = heard(file)
            assert answer[0] == status
            if stays:
                peer.sendall(posted(enclave.request("bob", "Query", filter={}), *headers))
                assert heard(file)[0] == 200
            else:
                assert file.read(1) == b""


def test_a_body_in_pieces_is_the_same_body(node: Served, enclave: Enclave) -> None:
    raw = posted(wire_commit(enclave.commit("bob", "message", "x" * 1000)))
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(raw), 100):
            peer.sendall(raw[start : start + 100])
            node.on_loop(lambda: None)
        assert heard(file)[0] == 200


def test_who_waits_to_be_asked_for_the_body_is_asked(node: Served, enclave: Enclave) -> None:
    head, body = posted(wire_commit(enclave.commit("bob", "message", "x")), "Expect: 100-continue").split(b"\r\n\r\n")
    with dialed(node) as peer, peer.makefile("rb") as file:
        peer.sendall(head + b"\r\n\r\n")
        assert file.readline().split()[1] == b"100"
        assert file.readline().strip() == b""
        peer.sendall(body)
        assert heard(file)[0] == 200


# Paths and methods

GETS = ["/info", "/health", "/metrics", "/openapi.json", "/{enclave}/sth", "/{enclave}/consistency?from=1"]


@pytest.mark.parametrize(
    "path", ["/nothing", "/x/y/z", "//", "/sth", "/enclave", "/a/b/sth", "/INFO", "/info/", "/state/"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_path_that_is_not_there(node: Served, path: str, method: str) -> None:
    error = bad(node.http.request(method, node.url + path))
    assert (error.status, error.code) == (404, "INVALID_QUERY")


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_a_path_by_another_method(node: Served, closed: Enclave, method: str) -> None:
    for path in {"GET": SEALED_PATHS, "POST": GETS}.get(method, [*GETS, *SEALED_PATHS]):
        response = node.http.request(method, path.format(enclave=closed.id.hex()))
        error = bad(response)
        assert (error.status, error.code) == (405, "INVALID_QUERY"), path
        assert ("POST" if path in SEALED_PATHS else "GET") in response.headers["allow"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
def test_the_root_takes_post_only(node: Served, method: str) -> None:
    error = bad(node.http.request(method, "/"))
    assert error.status in (404, 405)
    assert error.code == "INVALID_QUERY"


@pytest.mark.parametrize("path", GETS)
def test_head_is_answered_as_get_without_its_body(node: Served, closed: Enclave, path: str) -> None:
    path = path.format(enclave=closed.id.hex())
    head, get = node.http.head(path), node.get(path)
    assert (head.status_code, get.status_code) == (200, 200)
    assert head.headers["content-type"] == get.headers["content-type"]
    assert head.content == b""


def test_the_log_is_public_by_both_of_its_paths(node: Served, closed: Enclave) -> None:
    for path in ("sth", "consistency?from=1&to=1"):
        short, long = (node.get(f"{prefix}/{closed.id.hex()}/{path}") for prefix in ("", "/enclave"))
        assert good(short) == good(long)


@pytest.mark.parametrize("name", ["00" * 32, "00", "zz" * 32, "%ff", "%00", "A" * 64, "0" * 5000])
def test_an_enclave_that_is_not_there_or_no_id(node: Served, name: str) -> None:
    for path in (f"/{name}/sth", f"/{name}/consistency?from=1", f"/enclave/{name}/sth"):
        error = bad(node.get(path))
        assert (error.status, error.code) == (404, "ENCLAVE_NOT_FOUND")


NO_RANGES = """
to=1 from=0 from=0&to=0 from=2 from=1&to=2 from=2&to=1 from=1&to=0 from= from=x from=-1 from=+1 from=1.0 from=1_0
from=%D9%A1 from=1&to=x from=1&to= from=9007199254740992 from=99999999999999999
"""


@pytest.mark.parametrize("query", ["", *NO_RANGES.split()])
def test_consistency_between_sizes_that_the_log_never_had(node: Served, closed: Enclave, query: str) -> None:
    error = bad(node.get(f"/{closed.id.hex()}/consistency?{query}"))
    assert (error.status, error.code) == (400, "INVALID_RANGE")


@pytest.mark.parametrize("query", ["from=1&from=1", "from=1&from=2", "from=1&to=1&to=1", "from=1&to=x&to=1"])
def test_a_size_that_is_told_twice_is_refused(node: Served, closed: Enclave, query: str) -> None:
    error = bad(node.get(f"/{closed.id.hex()}/consistency?{query}"))
    assert (error.status, error.code) == (400, "INVALID_QUERY")


def test_receipts_of_both_algorithms(node: Served, enclave: Enclave) -> None:
    for alg in ("schnorr", "ecdsa"):
        commit = enclave.commit("bob", "message", alg, alg=alg)
        wire = good(node.post(wire_commit(commit)))
        assert wire.get("alg", "schnorr") == alg
        (event,) = node.store.events(enclave.id, wire["seq"], 1)
        assert wire == wire_receipt(build_receipt(event))


def test_a_peer_that_asks_and_goes_is_no_fault_of_ours(node: Served, enclave: Enclave) -> None:
    """Pipelined requests are answered in order; those of a closed connection are dropped silently."""
    body, state = encode(enclave.request("bob", "Query", filter={})), node.server.server_state
    host, _, port = node.url.rpartition("/")[2].partition(":")
    before = re.findall(r'status="500"} (\S+)', node.get("/metrics").text)
    known = set(state.connections)
    peer = socket.create_connection((host, int(port)), timeout=10)
    peer.sendall((b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)) * 4)
    node.until(lambda: state.connections > known)
    peer.close()
    node.until(lambda: state.connections <= known and not state.tasks)
    assert re.findall(r'status="500"} (\S+)', node.get("/metrics").text) == before
