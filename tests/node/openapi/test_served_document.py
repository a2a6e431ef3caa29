"""The OpenAPI document against a running node: its answers are as documented."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import requests
from msgspec.json import decode, encode

from enc.core.errors import WIRE_ERRORS
from enc.core.log.commit import wire_commit
from enc.core.log.event import wire_event
from enc.core.primitives.types import Commit
from enc.node.api.http_api import SEALED_PATHS
from enc.node.store.sqlite.store import SqliteStore
from tests.core.registry_world import TEAM, House
from tests.core.world import GROUP, World, give, move, pub
from tests.core.world_v1 import change
from tests.node.moving import archive_of
from tests.node.openapi.openapi_document import (
    CHECKS,
    DOCUMENT,
    HEX,
    HOUSE,
    PATHS,
    POINT,
    UNKNOWN,
    Json,
    Scene,
    about,
    codes,
    responses,
    validator,
)
from tests.node.running import RunningNode
from tests.node.small_v1 import MEMBER, OWNER

# Requests for each code


COMMITS_REFUSED: dict[str, Callable[[Scene], Json | Commit]] = {
    "INVALID_COMMIT": lambda s: {**wire_commit(s.commit("alice", "message")), "type": ""},
    "INVALID_HASH": lambda s: {**wire_commit(s.commit("alice", "message")), "content": "another"},
    "INVALID_SIGNATURE": lambda s: {**wire_commit(s.commit("alice", "message")), "sig": POINT},
    "INVALID_TARGET": lambda s: s.commit("alice", "Update", tags=about(s.gate)),
    "INVALID_TRANSFER_TARGET": lambda s: s.commit("alice", "Transfer", give("alice", "owner")),
    "INVALID_ENDPOINT_URL": lambda s: s.commit("alice", "Grant", give("dave", "dataview", endpoint="")),
    "EXPIRED": lambda s: s.commit("alice", "message", exp=1),
    "UNAUTHORIZED": lambda s: s.commit("dave", "message"),
    "GATE_CLOSED": lambda s: s.commit("dave", "Move", move("dave", "OUTSIDER", "MEMBER")),
    "RANK_INSUFFICIENT": lambda s: s.commit("bob", "Move", move("alice", "MEMBER", "OUTSIDER")),
    "ENCLAVE_PAUSED": lambda s: s.commit("alice", "message", enclave="paused"),
    "ENCLAVE_NOT_FOUND": lambda s: s.commit("alice", "message", enclave="unknown"),
    "EVENT_NOT_FOUND": lambda s: s.commit("alice", "Update", tags=about(UNKNOWN)),
    "DUPLICATE": lambda s: s.manifests["group"],
    "ENCLAVE_EXISTS": lambda s: s.manifest("group"),
    "STATE_MISMATCH": lambda s: s.commit("alice", "Move", move("bob", "PENDING", "MEMBER")),
    "OWNER_SELF_REVOKE_FORBIDDEN": lambda s: s.commit("alice", "Revoke_Self", {"role": "Owner"}, "roles"),
    "OWNER_BIT_PROTECTED": lambda s: s.commit("alice", "Move", change("alice", OWNER | MEMBER, MEMBER), "roles"),
    "BITMASK_MISMATCH": lambda s: s.commit("alice", "Move", change("bob", 0, 0), "roles"),
    "INVALID_STATE_FOR_GRANT": lambda s: s.commit("alice", "Grant", give("dave", "muted")),
    "INVALID_STATE_FOR_TRANSFER": lambda s: s.commit("alice", "Transfer", give("dave", "owner")),
    "TRAIT_ALREADY_HELD": lambda s: s.commit("alice", "Transfer", give("carol", "owner")),
    "INVALID_LIFECYCLE_STATE": lambda s: s.commit("alice", "Resume"),
    "AC_BUNDLE_FAILED": lambda s: s.commit(
        "alice", "AC_Bundle", {"operations": [{"type": "Grant", **give("dave", "muted")}]}
    ),
    "CHECKPOINT_MISMATCH": lambda s: s.commit(
        "alice", "Migrate", {"new_sequencer": pub("node2"), "prev_seq": 0, "ct_root": HEX}
    ),
    "REGISTRY_CONFLICT": lambda s: s.commit(
        "alice", "Reg_Enclave", House(TEAM, node="node2").entry(), enclave="registry"
    ),
    "ENCLAVE_TERMINATED": lambda s: s.commit("alice", "message", enclave="terminated"),
    "ENCLAVE_MIGRATED": lambda s: s.commit("alice", "message", enclave="moved"),
    "EVENT_DELETED": lambda s: s.commit("alice", "Update", tags=about(s.deleted)),
}


@pytest.mark.parametrize("code", COMMITS_REFUSED)
def test_commits_are_refused_as_documented(scene: Scene, code: str) -> None:
    commit = COMMITS_REFUSED[code](scene)
    error = scene.send("/", wire_commit(commit) if isinstance(commit, Commit) else commit).json()
    assert error["code"] == code
    assert set(error) - {"type", "code", "message"} == set(WIRE_ERRORS[code].fields)


def test_several_commits_are_answered_as_documented(scene: Scene) -> None:
    commits = [scene.commit("alice", "message", enclave="busy"), COMMITS_REFUSED["UNAUTHORIZED"](scene)]
    lines = b"\n".join(encode(wire_commit(each) if isinstance(each, Commit) else each) for each in commits)
    case = scene.schema["/commits"]["POST"].Case(body=lines, media_type="application/x-ndjson")
    accepted, refused = scene.checked(case).json()["results"]
    assert (accepted["type"], refused["code"]) == ("Receipt", "UNAUTHORIZED")


Ask = tuple[str, Json, Json]
"""A type, a body, and other deviations of the request."""


REQUESTS_REFUSED: dict[str, Callable[[Scene], Ask]] = {
    "INVALID_QUERY": lambda s: ("Pull", {}, {}),
    "INVALID_FILTER": lambda s: ("Query", {"filter": {"limit": 0}}, {}),
    "INVALID_NAMESPACE": lambda s: ("State_Proof", {"namespace": "other", "key": HEX}, {}),
    "INVALID_SESSION": lambda s: ("Query", {"filter": {}}, {"lasts": 8000}),
    "SESSION_EXPIRED": lambda s: ("Query", {"filter": {}}, {"lasts": -600}),
    "UNAUTHORIZED": lambda s: ("Query", {"filter": {}}, {"by": "dave"}),
    "ENCLAVE_NOT_FOUND": lambda s: ("Query", {"filter": {}}, {"enclave": "unknown"}),
    "EVENT_NOT_FOUND": lambda s: ("Bundle_Proof", {"event_id": HEX}, {}),
    "EVENT_PENDING": lambda s: ("Bundle_Proof", {"event_id": s.pending.hex()}, {}),
    "LEAF_NOT_FOUND": lambda s: ("Inclusion_Proof", {"leaf_index": 1000}, {}),
    "TREE_SIZE_NOT_FOUND": lambda s: ("State_Proof", {"namespace": "kv", "key": HEX}, {"enclave": "young"}),
}


@pytest.mark.parametrize("code", REQUESTS_REFUSED)
def test_sealed_requests_are_refused_as_documented(scene: Scene, code: str) -> None:
    type_, body, more = REQUESTS_REFUSED[code](scene)
    assert scene.send(PATHS[type_], scene.sealed(type_, body, **more)).json()["code"] == code


def test_what_does_not_open_is_refused_as_documented(scene: Scene) -> None:
    body = {**scene.sealed("Query", {"filter": {}}), "content": scene.sealed("Query", {}, by="bob")["content"]}
    assert scene.send("/", body).json()["code"] == "DECRYPT_FAILED"


def test_a_held_enclave_is_unavailable_as_documented(scene: Scene) -> None:
    scene.opened("Checkpoint", {"hold": 30}, enclave="held")
    response = scene.send("/", wire_commit(scene.commit("alice", "message", enclave="held")))
    assert (response.status_code, response.json()["code"]) == (503, "UNAVAILABLE")


def test_a_body_over_the_limit_is_refused_as_documented(scene: Scene) -> None:
    for path in ("/", *SEALED_PATHS):
        response = scene.send(path, {"exp": "x" * (2 << 20)})
        assert (response.status_code, response.json()["code"]) == (413, "INVALID_COMMIT")


def test_rates_are_limited_as_documented(scene: Scene, tmp_path: Path) -> None:
    rates = {"ENC_NODE_RATES_ADDRESS_PER_S": "0.001", "ENC_NODE_RATES_ADDRESS_BURST": "1"}
    with RunningNode(tmp_path / "node", "--no-dev", env=rates) as node, requests.Session() as http:
        for status in (200, 429):
            case = scene.schema["/info"]["GET"].Case()
            assert case.call_and_validate(base_url=node.url, session=http, checks=CHECKS).status_code == status


def test_a_restored_node_answers_as_documented(scene: Scene, tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node"):
        pass
    with closing(SqliteStore(tmp_path / "node" / "enc.db")) as store:
        store.provenance.mark("a backup")
    commit = scene.schema["/"]["POST"].Case(body=wire_commit(scene.manifest("group")), media_type="application/json")
    health, info = (scene.schema[path]["GET"].Case() for path in ("/health", "/info"))
    with RunningNode(tmp_path / "node") as node, requests.Session() as http:
        refused, ill, told = (
            case.call_and_validate(base_url=node.url, session=http, checks=CHECKS) for case in (commit, health, info)
        )
    assert (refused.status_code, refused.json()["code"]) == (503, "READ_ONLY")
    assert (ill.status_code, ill.json()["status"], told.json()["restored"]) == (503, "restored", "a backup")


def test_ranges_are_refused_as_documented(scene: Scene) -> None:
    for query in ({"from": 0}, {"from": 2, "to": 1}, {"from": 1, "to": 1000}, {"from": "one"}, {}):
        assert scene.get("/{enclave}/consistency", **query).json()["code"] == "INVALID_RANGE"


def test_lookups_are_refused_as_documented(scene: Scene) -> None:
    for path, code in {
        "/nodes/{seq_pub}": "NODE_NOT_FOUND",
        "/enclaves/{enclave_id}": "ENCLAVE_NOT_FOUND",
        "/resolve/{enclave_id}": "ENCLAVE_NOT_FOUND",
        "/identity/{id_pub}": "IDENTITY_NOT_FOUND",
    }.items():
        assert scene.look(path, HEX).json()["code"] == code
    assert scene.look("/enclaves", limit=0).json()["code"] == "INVALID_QUERY"


def test_lookups_are_as_documented(scene: Scene) -> None:
    enclave = HOUSE.state.enclave.hex()
    for query in ({}, {"proof": "1"}):
        for path, key in {
            "/nodes/{seq_pub}": pub("node"),
            "/enclaves/{enclave_id}": enclave,
            "/resolve/{enclave_id}": enclave,
            "/identity/{id_pub}": pub("alice"),
        }.items():
            response = scene.look(path, key, **query)
            assert (response.status_code, "proof" in response.json()) == (200, bool(query))
    listed = scene.look("/enclaves", app="chat", limit=1, creator=pub("alice"), after=UNKNOWN.hex()).json()
    assert [each["enclave_id"] for each in listed["enclaves"]] == [enclave]
    known = {"If-None-Match": "*"}
    assert scene.checked(scene.schema["/enclaves"]["GET"].Case(headers=known)).status_code == 304


def test_imports_are_ordered_refused_and_told_of_as_documented(scene: Scene) -> None:
    world = World(GROUP, node="node2")
    world.send("alice", "Migrate", {**world.migrate("node"), "new_sequencer": scene.node.seq_pub.hex()})
    operation = scene.schema["/import"]["POST"]
    migrate = decode(encode(wire_event(world.events[-1])))
    wrong = {"migrate": migrate, "source": "https://nowhere.invalid/"}
    assert scene.checked(operation.Case(body=wrong, media_type="application/json")).status_code == 502
    body = encode({"migrate": migrate}) + b"\n" + archive_of(world.events)
    order = operation.Case(body=body, media_type="application/x-enc-import")
    assert scene.checked(order).status_code in (200, 202)
    told = scene.schema["/import/{migrate}"]["GET"].Case(path_parameters={"migrate": migrate["hash"]})
    while scene.checked(told).json()["status"] == "running":
        pass
    assert scene.checked(told).json()["status"] == "done"
    assert scene.checked(order).status_code == 200


def test_the_refusals_above_are_all_that_is_documented() -> None:
    alone = {"DECRYPT_FAILED", "UNAVAILABLE", "RATE_LIMITED", "INVALID_RANGE", "NODE_NOT_FOUND", "IDENTITY_NOT_FOUND"}
    alone |= {"UPSTREAM_UNREACHABLE", "READ_ONLY", "BANNED", "ENCLAVE_SUSPENDED", "ENCLAVE_PURGED"}
    seen = {*COMMITS_REFUSED, *REQUESTS_REFUSED, *alone}
    assert seen == {code for _, _, response in responses() for code in codes(response)} - {"INTERNAL_ERROR"}


# Valid requests


ANSWERED: list[Callable[[Scene], Ask]] = [
    lambda s: ("Query", {"filter": {}}, {}),
    lambda s: ("Query", {"filter": {}, "proof": True}, {}),
    lambda s: ("Query", {"filter": {}, "proof": True}, {"enclave": "young"}),
    lambda s: ("Query", {"filter": {"limit": 1, "reverse": True}}, {}),
    lambda s: ("Query", {"filter": {"id": [s.edited.hex()]}}, {"by": "bob"}),
    lambda s: ("Query", {"filter": {}}, {"enclave": "terminated"}),
    lambda s: ("Inclusion_Proof", {"leaf_index": 0}, {}),
    lambda s: ("Inclusion_Proof", {"leaf_index": 0, "tree_size": 1}, {}),
    lambda s: ("Bundle_Proof", {"event_id": s.plain.hex()}, {}),
    lambda s: ("Bundle_Proof", {"leaf_index": 1}, {}),
    lambda s: ("State_Proof", {"namespace": "rbac", "key": pub("alice")}, {}),
    lambda s: ("State_Proof", {"namespace": "rbac", "key": pub("dave")}, {"by": "dave"}),
    lambda s: ("State_Proof", {"namespace": "event_status", "key": s.deleted.hex(), "mode": "current"}, {}),
    lambda s: ("State_Batch", {"keys": [{"namespace": "kv", "key": HEX}] * 256, "tree_size": 2}, {}),
    lambda s: ("State_Batch", {"keys": [{"namespace": "event_status", "key": s.edited.hex()}], "mode": "current"}, {}),
    lambda s: ("Checkpoint", {}, {}),
    lambda s: ("Checkpoint", {"hold": 1}, {"enclave": "held"}),
    lambda s: ("Export", {}, {}),
    lambda s: ("Export", {"from_seq": 2, "limit": 1}, {}),
    lambda s: ("Pull", {"url": s.url, "push_seq": {"end_at": 5}}, {"by": "vera", "enclave": "young"}),
    lambda s: ("Pull", {"url": s.url, "push_seq": [1, 2], "enclave": HEX}, {"by": "vera"}),
    lambda s: ("Pull", {"url": s.url, "push_seq": 7}, {"by": "dave"}),
    lambda s: ("Deliveries", {}, {"enclave": "young"}),
    lambda s: ("Deliveries", {"after": {"identity": HEX, "trait": ""}}, {"by": "vera", "enclave": "young"}),
]


@pytest.mark.parametrize("ask", range(len(ANSWERED)))
def test_what_is_sealed_is_as_documented(scene: Scene, ask: int) -> None:
    type_, body, more = ANSWERED[ask](scene)
    validator(f"{type_}.body").validate({**body, "session": "00" * 68, "type": type_})
    assert scene.opened(type_, body, **more) is not None


@pytest.mark.parametrize("prefix", ["", "/enclave"])
def test_heads_and_consistency_are_as_documented(scene: Scene, prefix: str) -> None:
    size = scene.get(prefix + "/{enclave}/sth").json()["ts"]
    assert size > 2
    assert scene.get(prefix + "/{enclave}/sth", "young").json()["ts"] == 0
    for query in ({"from": 1}, {"from": 1, "to": size}, {"from": size, "to": size}):
        assert scene.get(prefix + "/{enclave}/consistency", **query).json()["ts2"] == size


def test_the_node_serves_this_document(scene: Scene) -> None:
    response = scene.checked(scene.schema["/openapi.json"]["GET"].Case())
    assert response.json() == DOCUMENT


def test_a_sealed_request_that_is_changed_outside_is_refused_as_documented(scene: Scene) -> None:
    request = scene.sealed("Query", {"filter": {}})
    for field in request:
        junk: object
        for junk in (None, True, 1, "", "Query.", [], {}, HEX, POINT, "ab" * 68):
            assert scene.send("/", {**request, field: junk}).status_code in (400, 401, 404)
        assert scene.send("/", {name: request[name] for name in request if name != field}).status_code == 400
