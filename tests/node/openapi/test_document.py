"""The document that /openapi.json serves: valid, complete, and true of a running node."""

import ast
import asyncio
import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.json import decode, encode
from schemathesis.core import NOT_SET
from schemathesis.specs.openapi import checks
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from enc.core.errors import WIRE_ERRORS, EncError, InvalidCommit, InvalidFilter
from enc.core.log.commit import build_commit, build_manifest, parse_commit, wire_commit
from enc.core.log.event import wire_event
from enc.core.log.filter import parse_filter
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import NONCE_SIZE, seal_text
from enc.core.primitives.types import Commit, Limits, Tags
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import client_keys, open_session
from enc.node.api.http import SEALED_PATHS
from enc.node.config import Config
from enc.node.main import Node
from enc.node.openapi.document import MEANINGS, document
from enc.node.store.sqlite.store import SqliteStore
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import GROUP, World, give, init, move, person, pub
from tests.core.world_v1 import change
from tests.node.moving import archive_of
from tests.node.running import RunningNode
from tests.node.small_v1 import MEMBER, OWNER, SMALL_V1

Json = dict[str, Any]

ROOT = Path(__file__).parents[3]


@schemathesis.serializer("application/x-enc-import")
def as_it_is(context: Any, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


DOCUMENT: Json = decode(encode(document()))
"""The document as clients receive it."""


def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    """Return a validator of the schema of this name."""
    return jsonschema_rs.Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    )


def walk(value: Any) -> Iterator[Json]:
    """Yield every JSON object inside."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(inner)


# The document by itself


def test_it_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_every_schema_is_valid_and_every_reference_leads_somewhere() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema_rs.meta.validate(schema)
        validator(name)
    used = {found["$ref"].removeprefix("#/components/schemas/") for found in walk(DOCUMENT) if "$ref" in found}
    assert used == set(schemas)


def test_operation_ids_are_unique() -> None:
    ids = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids))


def test_it_lists_the_routes_of_the_node_and_no_others(tmp_path: Path) -> None:
    async def routes() -> set[tuple[str, str]]:
        store = SqliteStore(tmp_path / "enc.db")
        node = Node(Config(), store, person("node"))
        found = {(method, route.path) for route in node.http._router.routes for method in route.methods}
        node.executor.shutdown()
        store.close()
        return found

    served = {("POST", "/"), *((m, path) for m, path in asyncio.run(routes()) if m != "HEAD")}
    documented = {(m.upper(), path) for path, methods in DOCUMENT["paths"].items() for m in methods}
    assert documented == served


# Errors


def named_in_source() -> set[str]:
    """Return the error classes that the kernel or the node names outside their definition."""
    files = [path for part in ("core", "node") for path in (ROOT / "src/enc" / part).rglob("*.py")]
    skipped = ("errors.py", "openapi.py")
    trees = (ast.parse(path.read_text()) for path in files if path.name not in skipped)
    return {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}


def responses() -> Iterator[tuple[str, int, Json]]:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                yield path, int(status), response


def codes(response: Json) -> set[str]:
    found = (part["properties"]["code"]["enum"] for part in walk(response) if "code" in part.get("properties", {}))
    return {code for enum in found for code in enum}


def test_every_code_that_the_node_can_answer_is_documented_and_no_other() -> None:
    names = named_in_source()
    answered = {code for code, error in WIRE_ERRORS.items() if error.__name__ in names}
    assert {code for _, _, response in responses() for code in codes(response)} == answered
    assert len(answered) > 30


def test_every_code_stands_under_its_own_status_with_its_meaning() -> None:
    statuses: dict[tuple[str, int], type[EncError]] = {(error.code, error.status): error for error in MEANINGS}
    assert ("INVALID_COMMIT", 413) in statuses
    for _, status, response in responses():
        assert bool(codes(response)) == (status >= 400)
        for code in codes(response):
            assert f"- `{code}`: {MEANINGS[statuses[code, status]]}" in response["description"]


def test_the_error_schema_has_the_fields_of_every_code() -> None:
    fields = set(DOCUMENT["components"]["schemas"]["Error"]["properties"]) - {"type", "code", "message"}
    assert fields == {field for error in MEANINGS for field in error.fields}


def test_retry_after_comes_with_429_and_503_and_with_nothing_else() -> None:
    for path, status, response in responses():
        assert ("headers" in response) == (status in (429, 503))
        if "headers" in response:
            assert response["headers"]["Retry-After"]["required"] == ((path, status) != ("/health", 503))


def test_every_request_may_be_too_many_or_meet_a_fault() -> None:
    for path in DOCUMENT["paths"]:
        assert {400, 429, 500, 503} <= {status for where, status, _ in responses() if where == path}


# Bounds: a schema accepts what the kernel accepts

HEX, POINT = "ab" * 32, "cd" * 64
FILTERS: list[Json] = [
    {},
    {"id": HEX},
    {"id": HEX.upper()},
    {"id": [HEX] * 100},
    {"id": [HEX] * 101},
    {"seq": 0},
    {"seq": -1},
    {"seq": 2**53},
    {"seq": [1] * 100},
    {"seq": [1] * 101},
    {"seq": {"start_at": 1, "end_before": 2**53 - 1}},
    {"seq": {"start": 1}},
    {"type": ["t"] * 20},
    {"type": ["t"] * 21},
    {"from": [HEX] * 100},
    {"from": [HEX] * 101},
    {"tags": {str(i): True for i in range(10)}},
    {"tags": {str(i): True for i in range(11)}},
    {"tags": {"r": ["v"] * 20}},
    {"tags": {"r": ["v"] * 21}},
    {"tags": {"r": False}},
    {"timestamp": {"start_after": 2**53 - 1, "end_at": 0}},
    {"timestamp": 1},
    {"limit": 1},
    {"limit": 0},
    {"limit": 1000},
    {"limit": 1001},
    {"reverse": True},
    {"reverse": 1},
    {"other": 1},
]


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda filter_: json.dumps(filter_)[:40])
def test_the_filter_schema_takes_what_the_kernel_takes(filter_: Json) -> None:
    try:
        parse_filter(filter_)
        taken = True
    except InvalidFilter:
        taken = False
    assert validator("Filter").is_valid(filter_) == taken


COMMIT: Json = {
    "hash": HEX, "enclave": HEX, "from": HEX, "type": "note", "content": "", "exp": 1, "tags": [["a"]], "sig": POINT,
}  # fmt: skip
LIMITS = Limits()
COMMITS: list[Json] = [
    {},
    {"other": 1},
    {"hash": HEX[1:]},
    {"enclave": HEX.upper()},
    {"from": None},
    {"type": ""},
    {"type": "t" * LIMITS.type},
    {"type": "t" * (LIMITS.type + 1)},
    {"content": None},
    {"content": "c" * LIMITS.content},
    {"content": "c" * (LIMITS.content + 1)},
    {"exp": -1},
    {"exp": 2**53 - 1},
    {"exp": 2**53},
    {"tags": []},
    {"tags": [[]]},
    {"tags": [["a"]] * LIMITS.tags},
    {"tags": [["a"]] * (LIMITS.tags + 1)},
    {"tags": [["a"] * LIMITS.tag_strings]},
    {"tags": [["a"] * (LIMITS.tag_strings + 1)]},
    {"tags": [["a" * LIMITS.tag_string]]},
    {"tags": [["a" * (LIMITS.tag_string + 1)]]},
    {"alg": "ecdsa"},
    {"alg": "rsa"},
    {"sig": HEX},
]


@pytest.mark.parametrize("change", COMMITS, ids=lambda change: json.dumps(change)[:40])
def test_the_commit_schema_takes_what_the_kernel_takes(change: Json) -> None:
    wire = {**COMMIT, **change}
    try:
        parse_commit(encode(wire))
        taken = True
    except InvalidCommit:
        taken = False
    assert validator("Commit").is_valid(wire) == taken


@pytest.mark.parametrize("field", [name for name in COMMIT if name != "tags"])
def test_the_commit_schema_requires_what_the_kernel_requires(field: str) -> None:
    wire = {name: value for name, value in COMMIT.items() if name != field}
    with pytest.raises(InvalidCommit):
        parse_commit(encode(wire))
    assert not validator("Commit").is_valid(wire)


# A running node: its answers are as documented, whatever it is sent

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
SMALL: Json = {
    **GROUP,
    "bundle": {"size": 2, "timeout": 3_600_000},
    "init": init(alice="MEMBER owner admin", bob="MEMBER admin", carol="MEMBER owner"),
}
UNKNOWN = bytes(32)
NAMES = ("group", "paused", "terminated", "moved", "held", "busy", "young", "roles", "registry")
HOUSE = House(TEAM)
"""An enclave of alice's elsewhere, and the only one that is registered."""


def constitution(name: str) -> str:
    """Return the content of an enclave's Manifest. `young` has no closed bundle; `roles` has version 1."""
    if name == "roles":
        return compact_json({**SMALL_V1, "meta": {"name": name}})
    if name == "registry":
        return compact_json(REGISTRY)
    bundle = {**SMALL["bundle"], "size": 256 if name == "young" else 2}
    return compact_json({**SMALL, "bundle": bundle, "meta": {"name": name}})


ENCLAVES = {
    name: build_manifest(person("alice"), constitution(name), 0, enc_v=1 if name == "roles" else 2).enclave
    for name in NAMES
}


class Scene:
    """A running node, its enclaves and its users. Only `busy` and `held` change after the start."""

    def __init__(self, node: RunningNode, http: requests.Session) -> None:
        self.node, self._http = node, http
        self.schema = schemathesis.openapi.from_dict(document())
        self._unique = count()
        self.manifests = {name: self.manifest(name) for name in NAMES}
        for manifest in self.manifests.values():
            self.accept(manifest)
        self.plain, self.edited = self.note("plain"), self.note("edited", alg="ecdsa")
        self.deleted = self.note("deleted", tags=(("topic", "a", "b"),))
        self.update = self.do("alice", "Update", "mended", tags=about(self.edited))
        self.do("alice", "Delete", {"reason": "author"}, tags=about(self.deleted))
        self.gate = self.do("alice", "Gate", {"alias": "auto_join", "state": "closed"})
        self.do("alice", "Shared", {"key": "topic", "value": 1})
        self.pending = self.note("alone in its bundle")
        self.known = [self.plain, self.edited, self.deleted, self.update, self.pending, person("alice").public]
        self.do("alice", "Reg_Enclave", HOUSE.entry(app="chat", meta={"x": 1}), enclave="registry")
        self.do("node", "Reg_Node", node_entry("node"), enclave="registry")
        content = identity_entry("alice", [("dm", UNKNOWN)], sub_pub=pub("bob"))
        self.do("alice", "Reg_Identity", content, enclave="registry")
        self.do("alice", "Pause", enclave="paused")
        self.do("alice", "Terminate", enclave="terminated")
        checkpoint = self.opened("Checkpoint", {}, enclave="moved")
        where = {"new_sequencer": pub("node2"), "prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]}
        self.do("alice", "Migrate", where, enclave="moved")
        self.url = "https://hooks.invalid/push"
        self.do("alice", "Grant", give("vera", "dataview", endpoint=self.url), enclave="young")
        self.note("pushed", enclave="young")
        while not self.opened("Pull", {"url": self.url, "push_seq": 1}, by="vera", enclave="young"):
            pass  # until the node has made a batch of it

    # Commits

    def exp(self) -> int:
        """Return a unique expiry in the near future."""
        return time.time_ns() // 1_000_000 + 60_000 + next(self._unique)

    def manifest(self, name: str) -> Commit:
        enc_v = 1 if name == "roles" else 2
        return build_manifest(person("alice"), constitution(name), self.exp(), enc_v=enc_v)

    def commit(self, by: str, type_: str, content: Any = "", enclave: str = "group", **more: Any) -> Commit:
        text = content if isinstance(content, str) else compact_json(content)
        exp = more.pop("exp", None) or self.exp()
        if enclave == "roles":
            more["enc_v"] = 1
        return build_commit(person(by), ENCLAVES.get(enclave, UNKNOWN), type_, text, exp, **more)

    def accept(self, commit: Commit) -> bytes:
        """Send a commit that must be accepted; return the event's id."""
        receipt = self.send("/", wire_commit(commit)).json()
        assert receipt["type"] == "Receipt", receipt
        return bytes.fromhex(receipt["id"])

    def do(self, by: str, type_: str, content: Any = "", **more: Any) -> bytes:
        return self.accept(self.commit(by, type_, content, **more))

    def note(self, text: str, **more: Any) -> bytes:
        return self.do("alice", "message", text, **more)

    # Sealed requests

    def sealed(self, type_: str, body: Any, by: str = "alice", enclave: str = "group", lasts: int = 600) -> Json:
        """Return a sealed request. A body that is not an object, or bytes, is sealed unchanged."""
        id_, session = ENCLAVES.get(enclave, UNKNOWN), open_session(person(by), int(time.time()) + lasts)
        outside = seal_request(session, self.node.seq_pub, id_, type_, {}, os.urandom(NONCE_SIZE))
        inside = {**body, "session": outside["session"], "type": type_} if isinstance(body, dict) else body
        plaintext = inside if isinstance(inside, bytes) else encode(inside)
        self.keys = client_keys(session, self.node.seq_pub, id_)
        return {**outside, "content": seal_text(self.keys.query, plaintext, os.urandom(NONCE_SIZE))}

    def open(self, type_: str, response: schemathesis.Response) -> Any:
        """Return the plaintext of the answer to the last sealed request."""
        answer = open_answer(self.keys, response.content)
        validator(f"{type_}.answer").validate(answer)
        return answer

    def opened(self, type_: str, body: Any, **more: Any) -> Any:
        response = self.send(PATHS[type_], self.sealed(type_, body, **more))
        assert response.status_code == 200, response.text
        return self.open(type_, response)

    # The wire

    def send(self, path: str, body: Json) -> schemathesis.Response:
        """Post this, check that the answer is as documented, and return it."""
        return self.checked(self.schema[path]["POST"].Case(body=body, media_type="application/json"))

    def get(self, path: str, enclave: str = "group", **query: Any) -> schemathesis.Response:
        where = {"enclave": ENCLAVES[enclave].hex()}
        return self.checked(self.schema[path]["GET"].Case(path_parameters=where, query=query))

    def look(self, path: str, *where: str, **query: Any) -> schemathesis.Response:
        names = re.findall(r"\{(\w+)\}", path)
        case = self.schema[path]["GET"].Case(path_parameters=dict(zip(names, where, strict=True)), query=query)
        return self.checked(case)

    def checked(self, case: schemathesis.Case) -> schemathesis.Response:
        return case.call_and_validate(base_url=self.node.url, session=self._http, checks=CHECKS)


PATHS = {"Query": "/", "Pull": "/", **{type_: path for path, type_ in SEALED_PATHS.items()}}


def about(event_id: bytes) -> Tags:
    return (("r", event_id.hex()),)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    data, flags = tmp_path_factory.mktemp("openapi") / "node", ("--registry", ENCLAVES["registry"].hex())
    with RunningNode(data, *flags) as node, requests.Session() as http:
        yield Scene(node, http)
        assert "internal_error" not in node.log()


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
    alone.add("UPSTREAM_UNREACHABLE")
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
        for junk in (None, True, 1, "", "Query.", [], {}, HEX, POINT, "ab" * 68):
            assert scene.send("/", {**request, field: junk}).status_code in (400, 401, 404)
        assert scene.send("/", {name: request[name] for name in request if name != field}).status_code == 400


# Claims in the document's text


def raw(node: RunningNode, request: bytes) -> tuple[int, Any]:
    """Return the status and the body of the answer to these bytes."""
    url = urlsplit(node.url)
    with socket.create_connection((url.hostname, url.port), timeout=30) as peer:
        peer.sendall(request)
        response = HTTPResponse(peer)
        response.begin()
        with response:
            return response.status, decode(response.read())


@pytest.mark.parametrize("request_", [b"\0\r\n\r\n", b"GET /info HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"])
def test_what_is_no_http_is_refused_as_documented(scene: Scene, request_: bytes) -> None:
    status, error = raw(scene.node, request_)
    validator("Error").validate(error)
    assert (status, error["code"]) == (400, "INVALID_QUERY")


def test_paths_and_methods_that_are_not_listed(scene: Scene) -> None:
    with requests.Session() as http:
        for method, path in (("GET", "/nothing"), ("POST", "/nothing"), ("GET", "/info/")):
            response = http.request(method, scene.node.url + path)
            validator("Error").validate(response.json())
            assert (response.status_code, response.json()["code"]) == (404, "INVALID_QUERY")
        for path in DOCUMENT["paths"]:
            response = http.put(scene.node.url + path)
            validator("Error").validate(response.json())
            assert (response.status_code, response.json()["code"]) == (405, "INVALID_QUERY")
            assert response.headers["allow"]
        head = http.head(scene.node.url + "/info")
        assert (head.status_code, head.content) == (200, b"")


def test_messages_on_a_websocket_are_as_documented(scene: Scene) -> None:
    with connect(scene.node.url.replace("http", "ws", 1)) as peer:

        def say(message: Json, expected: str, schema: str = "") -> Json:
            peer.send(encode(message).decode())
            return hear(expected, schema)

        def hear(expected: str, schema: str = "") -> Json:
            answer: Json = decode(peer.recv())
            validator(schema or f"WebSocket.{expected}").validate(answer)
            assert answer["type"] == expected
            return answer

        say(wire_commit(scene.commit("alice", "message", enclave="busy")), "Receipt", "Receipt")
        refused = scene.commit("dave", "message", enclave="busy")
        assert say(wire_commit(refused), "Error")["hash"] == refused.hash.hex()
        offered = {"sub_id": "mine"}
        assert say({**scene.sealed("Query", {"filter": {"limit": 0}}), **offered}, "Error")["sub_id"] == "mine"
        event = say({**scene.sealed("Query", {"filter": {"limit": 1}}), **offered}, "Event")
        item = open_answer(scene.keys, encode({"type": "Response", "content": event["event"]}))
        validator("Item").validate(item)
        assert hear("EOSE") == {"type": "EOSE", **offered, "more": True}
        peer.send(encode({"type": "Close", **offered}).decode())
        with pytest.raises(ConnectionClosedOK):
            peer.recv()


# Random data

FUZZ = settings(
    deadline=None,
    derandomize=True,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
SIZES = st.fixed_dictionaries({"from": st.integers(0, 6)}, optional={"to": st.integers(0, 6)})


OUTSIDE = schemathesis.openapi.from_dict(document(), config=schemathesis.Config(seed=1))


@OUTSIDE.hook
def flatmap_path_parameters(context: schemathesis.HookContext, path_parameters: Json) -> st.SearchStrategy[Json]:
    """Mostly an existing enclave, or a registered identity."""
    ids = [*ENCLAVES.values(), HOUSE.state.enclave, person("node").public, person("alice").public]
    known = [dict.fromkeys(path_parameters or (), id_.hex()) for id_ in ids]
    return st.sampled_from([path_parameters, *known]) if path_parameters else st.just(path_parameters)


@OUTSIDE.hook
def flatmap_query(context: schemathesis.HookContext, query: Json) -> st.SearchStrategy[Json]:
    """Half of the time valid log sizes."""
    return st.one_of(st.just(query), SIZES) if query else st.just(query)


@OUTSIDE.parametrize()
@FUZZ
def test_whatever_is_sent_is_answered_as_documented(case: schemathesis.Case, scene: Scene) -> None:
    assert scene.checked(case).status_code < 500


NUMBERS = st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False))
JUNK = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=5), st.just([]), st.just({}))
PEOPLE = st.sampled_from(["alice", "bob", "carol", "dave"])
STATES = st.sampled_from(["OUTSIDER", "PENDING", "MEMBER", "BLOCKED", "NOWHERE"])
TRAITS = st.sampled_from(["owner", "admin", "muted", "dataview", "nothing"])
TARGETED = st.builds(give, PEOPLE, TRAITS)
MOVES = st.builds(move, PEOPLE, STATES, STATES)
CONTENTS: dict[str, st.SearchStrategy[Any]] = {
    "message": st.text(max_size=20),
    "notice": st.text(max_size=20),
    "Move": MOVES,
    "Grant": TARGETED,
    "Revoke": TARGETED,
    "Transfer": TARGETED,
    "Gate": st.fixed_dictionaries({"alias": st.just("auto_join"), "state": st.sampled_from(["open", "closed"])}),
    "AC_Bundle": st.lists(MOVES, min_size=1, max_size=3).map(
        lambda moves: {"operations": [{"type": "Move", **content} for content in moves]}
    ),
    "Shared": st.fixed_dictionaries({"key": st.just("topic"), "value": JUNK}),
    "Own": st.fixed_dictionaries({"key": st.just("profile"), "value": st.none()}),
    "Update": st.text(max_size=20),
    "Delete": st.just({"reason": "author"}),
    "Resume": st.just(""),
}
TAGS = st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=3), max_size=3)
CHANGES = st.one_of(
    st.dictionaries(st.sampled_from([*COMMIT, "alg", "session"]), JUNK, min_size=1, max_size=1),
    st.sampled_from([{"hash": HEX}, {"sig": POINT}, {"content": "another"}, {"exp": 1}, {"type": "Manifest"}]),
)


def test_whatever_is_committed_is_answered_as_documented(scene: Scene) -> None:
    """Signed commits of all kinds, half of them changed in one field afterwards."""
    seen, written = Counter[str](), [UNKNOWN]

    @settings(FUZZ, max_examples=200)
    @given(st.data(), PEOPLE, st.sampled_from(sorted(CONTENTS)), st.booleans())
    def run(data: st.DataObject, by: str, type_: str, is_changed: bool) -> None:
        content, tags = data.draw(CONTENTS[type_]), data.draw(TAGS)
        if type_ in ("Update", "Delete"):
            tags = about(written[data.draw(st.integers(0, 1000)) % len(written)])
        alg = data.draw(st.sampled_from(["schnorr", "ecdsa"]))
        wire = wire_commit(scene.commit(by, type_, content, enclave="busy", tags=tags, alg=alg))
        answer = scene.send("/", wire | (data.draw(CHANGES) if is_changed else {})).json()
        seen[answer.get("code", "Receipt")] += 1
        if "id" in answer:
            written.append(bytes.fromhex(answer["id"]))

    run()
    assert {"Receipt", "INVALID_COMMIT", "INVALID_SIGNATURE", "INVALID_HASH", "UNAUTHORIZED", "EVENT_NOT_FOUND"} <= set(
        seen
    )
    assert not {"INTERNAL_ERROR", "UNAVAILABLE"} & set(seen)


def unsealed() -> Json:
    """Return the document without sealing: bodies instead of requests, and their answers."""
    raw, paths = decode(encode(DOCUMENT)), {}
    for type_, path in PATHS.items():
        operation = raw["paths"][path]["post"]
        if type_ in operation["x-sealed"]:
            plaintexts = operation["x-sealed"][type_]
            body = raw["components"]["schemas"][f"{type_}.body"]
            for name in ("session", "type"):
                del body["properties"][name]
            body["required"].remove("session")
            answer = {"description": "", "content": {"application/json": {"schema": plaintexts["answer"]}}}
            paths[f"/{type_}"] = {
                "post": {
                    "requestBody": {"required": True, "content": {"application/json": {"schema": plaintexts["body"]}}},
                    "responses": {**operation["responses"], "200": answer},
                }
            }
    return {**raw, "paths": paths}


INSIDE = schemathesis.openapi.from_dict(unsealed(), config=schemathesis.Config(seed=1))
INSIDE.config.phases.coverage.unexpected_methods = set()


def grounded(value: Any, known: list[bytes], field: str = "") -> Any:
    """Return the value with existing ids, indexes and sizes, as valid as before."""
    if isinstance(value, dict):
        return {name: grounded(inner, known, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [grounded(inner, known, field) for inner in value]
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return [*(item.hex() for item in known), value][sum(value.encode()) % (len(known) + 1)]
    if isinstance(value, float) and value.is_integer():  # JSON Schema takes 1.0 for an integer, the protocol does not
        return grounded(int(value), known, field)
    if type(value) is int and 0 <= value < 2**53 and field in ("leaf_index", "tree_size", "seq"):
        return value % 6
    return value


def with_content(response: schemathesis.Response, content: bytes) -> schemathesis.Response:
    return schemathesis.Response(
        response.status_code, response.headers, content, response.request, response.elapsed, response.verify
    )


@INSIDE.parametrize()
@FUZZ
def test_whatever_is_sealed_is_answered_as_documented(case: schemathesis.Case, scene: Scene) -> None:
    """Bodies that match their schema are accepted, and others are rejected."""
    type_ = case.path.strip("/")
    body = b"" if case.body is NOT_SET else grounded(case.body, scene.known)
    response = scene.send(PATHS[type_], scene.sealed(type_, body, enclave="held" if type_ == "Checkpoint" else "group"))
    if response.status_code == 200:
        response = with_content(response, encode(scene.open(type_, response)))
    case.validate_response(response, checks=[*CHECKS, checks.negative_data_rejection, checks.positive_data_acceptance])
