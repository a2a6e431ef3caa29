"""Every error code over HTTP with its status and fields, and the order of checks on a commit."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.core.errors import WIRE_ERRORS
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import wire_event
from enc.core.log.receipt import parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.node.config import NodeConfig, RateSettings
from enc.node.openapi.document import MEANINGS
from enc.runtime.unix_sockets.frame_server import Peer
from tests.core.world import GROUP, LIFETIME, World, give, move, person, pub
from tests.core.world_v1 import change
from tests.node.api.http_requests import HOUR, SKEW, again, migrate, refused
from tests.node.served import SMALL, Clock, Enclave, Served, about, bad, good, sqlite
from tests.node.small_v1 import ADMIN, MEMBER, OWNER, SMALL_V1

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
        enclave = node.create(SMALL)
        return node.post(wire_commit(enclave.commit(*what)))


def sends_v1(status: int, code: str, *what: Any) -> None:
    """Add a case for an enclave of version 1."""

    @answers(status, code)
    def case(node: Served) -> httpx.Response:
        return node.post(wire_commit(node.create(SMALL_V1).commit(*what)))


def asks(status: int, code: str, name: str, type_: str, **body: Any) -> None:
    """Add a case: a sealed request about a new enclave with this answer."""

    @answers(status, code)
    def case(node: Served) -> httpx.Response:
        return node.create(SMALL).ask_raw(name, type_, **body)


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
    return node.post({**wire_commit(node.create(SMALL).commit("bob", "message", "x")), "hash": "00" * 32})


@answers(400, "INVALID_SIGNATURE")
def wrong_signature(node: Served) -> httpx.Response:
    return node.post({**wire_commit(node.create(SMALL).commit("bob", "message", "x")), "sig": "00" * 64})


@answers(400, "EXPIRED")
def expired(node: Served) -> httpx.Response:
    return node.post(wire_commit(node.create(SMALL).commit("bob", "message", "x", exp=node.clock.now - 1)))


@answers(400, "INVALID_TARGET")
def no_content_event(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    slot = enclave.send("bob", "Shared", {"key": "topic", "value": 1})
    return node.post(wire_commit(enclave.commit("bob", "Update", "x", about(slot))))


@answers(404, "ENCLAVE_NOT_FOUND")
def unknown_enclave(node: Served) -> httpx.Response:
    return node.post(wire_commit(build_commit(person("bob"), bytes(32), "message", "x", node.clock.now + LIFETIME)))


@answers(409, "DUPLICATE")
def sent_twice(node: Served) -> httpx.Response:
    commit = node.create(SMALL).commit("bob", "message", "x")
    node.submit(commit)
    return node.post(wire_commit(commit))


@answers(409, "ENCLAVE_EXISTS")
def created_twice(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    return node.post(wire_commit(again(enclave, exp=node.clock.now + 1)))


@answers(409, "TRAIT_ALREADY_HELD")
def given_twice(node: Served) -> httpx.Response:
    two = [{"identity": pub(name), "state": "MEMBER", "traits": ["owner"]} for name in ("alice", "bob")]
    enclave = node.create(SMALL, init=two, states=["MEMBER"], moves=[])
    return node.post(wire_commit(enclave.commit("alice", "Transfer", give("bob", "owner"))))


@answers(403, "GATE_CLOSED")
def closed_gate(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    enclave.send("alice", "Gate", {"alias": "applications", "state": "closed"})
    return node.post(wire_commit(enclave.commit("mallory", "Move", move("mallory", "OUTSIDER", "PENDING"))))


@answers(403, "ENCLAVE_PAUSED")
def paused(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    enclave.send("alice", "Pause")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


def forbid(node: Served, operation: str, **params: str) -> None:
    node.node.operations.perform(operation, params, Peer(1, 0))


@answers(403, "BANNED")
def banned(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    forbid(node, "ban", target=pub("bob"))
    try:
        return node.post(wire_commit(enclave.commit("bob", "message", "x")))
    finally:
        forbid(node, "unban", target=pub("bob"))


@answers(403, "ENCLAVE_SUSPENDED")
def suspended(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    forbid(node, "suspend", enclave=enclave.id.hex())
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "ENCLAVE_PURGED")
def purged_by_order(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    forbid(node, "purge", enclave=enclave.id.hex())
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "ENCLAVE_TERMINATED")
def terminated(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    enclave.send("alice", "Terminate")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "ENCLAVE_MIGRATED")
def migrated(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    migrate(enclave, "node2")
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(410, "EVENT_DELETED")
def deleted(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    gone = enclave.send("bob", "message", "x")
    enclave.send("bob", "Delete", {"reason": "author"}, about(gone))
    return node.post(wire_commit(enclave.commit("bob", "Update", "y", about(gone))))


@answers(409, "EVENT_PENDING")
def pending(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    event = enclave.send("bob", "message", "x")
    return enclave.ask_raw("bob", "Bundle_Proof", event_id=event.id.hex())


@answers(400, "INVALID_RANGE")
def no_tree_yet(node: Served) -> httpx.Response:
    return node.get(f"/{node.create(SMALL).id.hex()}/consistency?from=1")


@answers(400, "INVALID_SESSION")
def anothers_token(node: Served) -> httpx.Response:
    request = node.create(SMALL).request("alice", "Query", filter={})
    return node.post({**request, "from": pub("bob")})


@answers(401, "SESSION_EXPIRED")
def old_token(node: Served) -> httpx.Response:
    return node.create(SMALL).ask_raw("alice", "Query", session=node.session("alice", -60), filter={})


@answers(400, "DECRYPT_FAILED")
def sealed_for_another_enclave(node: Served) -> httpx.Response:
    enclave, other = node.create(SMALL), node.create(SMALL)
    request = enclave.request("alice", "Query", filter={})
    return node.post({**request, "enclave": other.id.hex()})


@answers(429, "RATE_LIMITED")
def too_fast(node: Served) -> httpx.Response:
    with Served(NodeConfig(port=0, rates=RateSettings(address_per_s=0.25, address_burst=1))) as slow:
        good(slow.get("/info"))
        return slow.get("/info")


@answers(503, "UNAVAILABLE")
def held(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    enclave.ask("alice", "Checkpoint", hold=1)
    return node.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(503, "READ_ONLY")
def restored(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.store, "restored", lambda: "a backup")
        with Served(store=node.store, clock=node.clock) as copy:
            return copy.post(wire_commit(enclave.commit("bob", "message", "x")))


@answers(502, "UPSTREAM_UNREACHABLE")
def nowhere(node: Served) -> httpx.Response:
    world = World(GROUP, node="node2")
    world.send("alice", "Migrate", world.migrate("node"))
    order = {"migrate": wire_event(world.events[-1]), "source": "https://nowhere.invalid/"}
    return node.post(order, "/import")


@answers(500, "INTERNAL_ERROR")
def broken(node: Served) -> httpx.Response:
    enclave = node.create(SMALL)

    def fail(*args: Any) -> Any:
        raise RuntimeError("a secret of ours")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node.store, "find_in_steps", fail)
        return enclave.ask_raw("alice", "Query", filter={})


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


# The order of checks: a commit that is wrong in two ways is rejected for the one that is checked first


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
    assert refused(node, enclave.manifest, **NO_SIG) == "ENCLAVE_EXISTS"


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


def test_a_commit_that_was_accepted_cannot_be_guessed(node: Served, enclave: Enclave) -> None:
    """Others get the same answer for a commit that was accepted as for one that nobody made."""
    made = enclave.commit("bob", "message", "yes")
    node.submit(made)
    guesses = [made, enclave.commit("bob", "message", "no", exp=made.exp)]
    for wait, code in ((0, "INVALID_SIGNATURE"), (LIFETIME + 1, "EXPIRED")):
        node.clock.tick(wait)
        errors = [bad(node.post({**wire_commit(each), **NO_SIG})) for each in guesses]
        assert [error.code for error in errors] == [code, code]
        assert errors[0].to_wire() == errors[1].to_wire()


def test_a_duplicate_is_known_after_a_restart_and_after_the_end(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    with Served(store=store, clock=clock) as node:
        enclave = node.create(SMALL)
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


def test_two_manifests_for_one_enclave_at_once_create_it_once(node: Served) -> None:
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
        enclave = node.create(SMALL)
        clock.tick(HOUR)  # the enclave's own time limit is long over
        node.create(SMALL)
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
