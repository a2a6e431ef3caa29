"""The OpenAPI document as clients read it, and validators of its schemas."""

import os
import re
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import jsonschema_rs
import requests
import schemathesis
from msgspec.json import decode, encode
from schemathesis.specs.openapi import checks

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import NONCE_SIZE, seal_text
from enc.core.primitives.types import Commit, Tags
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import client_keys, open_session
from enc.node.api.http_api import SEALED_PATHS
from enc.node.openapi.document import document
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import GROUP, give, init, person, pub
from tests.node.running import RunningNode
from tests.node.small_v1 import SMALL_V1

Json = dict[str, Any]


DOCUMENT: Json = decode(encode(document()))
"""The document as clients receive it."""


@schemathesis.serializer("application/x-enc-import", "application/x-ndjson")
def unchanged(context: Any, value: Any) -> bytes:
    """Return the body of an import with its archive, or the lines of a body, unchanged."""
    return value if isinstance(value, bytes) else str(value).encode()


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


def responses() -> Iterator[tuple[str, int, Json]]:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                yield path, int(status), response


def codes(response: Json) -> set[str]:
    found = (part["properties"]["code"]["enum"] for part in walk(response) if "code" in part.get("properties", {}))
    return {code for enum in found for code in enum}


HEX, POINT = "ab" * 32, "cd" * 64


COMMIT: Json = {
    "hash": HEX, "enclave": HEX, "from": HEX, "type": "note", "content": "", "exp": 1, "tags": [["a"]], "sig": POINT,
}  # fmt: skip


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
        self.update = self.do("alice", "Update", "fixed", tags=about(self.edited))
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

    def sealed(self, type_: Any, body: Any, by: str = "alice", enclave: str = "group", lasts: int = 600) -> Json:
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
