"""Claims of the OpenAPI document, and random requests by its schemas against a running node."""

import re
import socket
from collections import Counter
from http.client import HTTPResponse
from typing import Any
from urllib.parse import urlsplit

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

from enc.core.log.commit import wire_commit
from enc.core.session.envelope import open_answer
from enc.core.trees.state_key import own_slot
from enc.node.openapi.document import document
from tests.core.world import give, move, person
from tests.node.openapi.openapi_document import (
    CHECKS,
    COMMIT,
    DOCUMENT,
    ENCLAVES,
    HEX,
    HOUSE,
    PATHS,
    POINT,
    UNKNOWN,
    Json,
    Scene,
    about,
    validator,
)
from tests.node.running import RunningNode

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
    """Use mostly an existing enclave, or a registered identity."""
    ids = [*ENCLAVES.values(), HOUSE.state.enclave, person("node").public, person("alice").public]
    known = [dict.fromkeys(path_parameters or (), id_.hex()) for id_ in ids]
    return st.sampled_from([path_parameters, *known]) if path_parameters else st.just(path_parameters)


@OUTSIDE.hook
def flatmap_query(context: schemathesis.HookContext, query: Json) -> st.SearchStrategy[Json]:
    """Use valid log sizes half of the time."""
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
        content: Any = data.draw(CONTENTS[type_])
        tags: Any = data.draw(TAGS)
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


def is_hash(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def grounded(value: Any, known: list[bytes], field: str = "") -> Any:
    """Return the value with existing ids, indexes and sizes, as valid as before."""
    if isinstance(value, dict):
        found = {name: grounded(inner, known, name) for name, inner in value.items()}
        match found:
            case {"key": str(key), "own": {"identity": str(owner), "key": str(name)}}:
                if is_hash(key) and is_hash(owner):
                    found["key"] = own_slot(bytes.fromhex(owner), name).hex()
        return found
    if isinstance(value, list):
        return [grounded(inner, known, field) for inner in value]
    if isinstance(value, str) and is_hash(value):
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
