"""The OpenAPI document by itself: valid, complete, with the bounds that the kernel enforces."""

import ast
import asyncio
import json
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest
import schemathesis
from msgspec.json import encode
from starlette.routing import Route

from enc.core.errors import WIRE_ERRORS, EncError, InvalidCommit, InvalidFilter
from enc.core.log.commit import parse_commit
from enc.core.log.filter import parse_filter
from enc.core.primitives.types import CommitLimits
from enc.node.assembly import Node
from enc.node.config import NodeConfig
from enc.node.openapi.document import MEANINGS
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import person
from tests.node.openapi.openapi_document import COMMIT, DOCUMENT, HEX, Json, codes, responses, validator, walk

ROOT = Path(__file__).parents[3]


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
        node = Node(NodeConfig(), store, person("node"))
        found = {
            (method, route.path)
            for route in cast(list[Route], node.http._router.routes)
            for method in route.methods or ()
        }
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


LIMITS = CommitLimits()


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
