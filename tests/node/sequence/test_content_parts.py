"""How much JSON a node accepts in contents that the rules read."""

import json
from typing import Any

import pytest

from enc.core.errors import InvalidCommit
from enc.core.log.commit import build_commit, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.node.sequence.content_parts import MAX_BUNDLE_PARTS, MAX_PARTS, MAX_VALUE_PARTS, check_parts
from tests.core.world import START, person, pub
from tests.node.served import SMALL, Served, bad

JUNK: dict[str, str] = {
    "numbers": "[" + "0," * MAX_BUNDLE_PARTS + "0]",
    "lists": "[" + "[]," * MAX_BUNDLE_PARTS + "[]]",
    "objects": "[" + "{}," * MAX_BUNDLE_PARTS + "{}]",
    "strings": "[" + '"",' * MAX_BUNDLE_PARTS + '""]',
    "names": json.dumps({f"{i}": 0 for i in range(MAX_BUNDLE_PARTS)}),
}


def check(type_: str, content: str) -> None:
    check_parts(build_commit(person("alice"), bytes(32), type_, content, START))


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
@pytest.mark.parametrize("type_", ["AC_Bundle", "Shared", "Own", "Grant", "Migrate", "Delete", "Reg_Enclave"])
def test_more_than_the_most_is_refused_whatever_it_is(type_: str, junk: str) -> None:
    with pytest.raises(InvalidCommit, match=r"^content: this node accepts at most (32,768|8,192|256) "):
        check(type_, f'{{"key":"k","value":{junk}}}')


@pytest.mark.parametrize("type_", ["message", "Update", "Manifest"])
def test_what_the_rules_do_not_read_may_hold_anything(type_: str) -> None:
    check(type_, JUNK["numbers"])


def test_what_is_in_a_string_does_not_count() -> None:
    text = 'a,b:[{"\\' * 100_000
    check("Shared", compact_json({"key": "k", "value": text}))


def test_a_bundle_of_1000_operations_with_all_fields_is_accepted() -> None:
    each: dict[str, Any] = {"type": "Grant", "target": pub("bob"), "trait": "t", "endpoint": "https://e/" + "x" * 900}
    check("AC_Bundle", json.dumps({"operations": [{**each, "note": "a", "more": [1, 2]}] * 1000}))


@pytest.mark.parametrize(
    ("type_", "most"),
    [
        *[
            ("AC_Bundle", MAX_BUNDLE_PARTS),
            ("Move", MAX_BUNDLE_PARTS),
            ("Shared", MAX_VALUE_PARTS),
            ("Own", MAX_VALUE_PARTS),
        ],
        *[("Reg_Node", MAX_VALUE_PARTS), ("Grant", MAX_PARTS), ("Force_Move", MAX_PARTS), ("Migrate", MAX_PARTS)],
    ],
)
def test_the_most_is_accepted(type_: str, most: int) -> None:
    check(type_, "[" + "0," * (most - 1) + "0]")
    with pytest.raises(InvalidCommit):
        check(type_, "[" + "0," * most + "0]")


def test_a_node_refuses_it() -> None:
    with Served() as node:
        enclave = node.create(SMALL)
        commit = enclave.commit("alice", "AC_Bundle", JUNK["numbers"])
        refusal = bad(node.post(wire_commit(commit)))
        assert refusal.code == "INVALID_COMMIT"
        assert "32,768" in refusal.message


def test_a_string_without_an_end_is_one_part() -> None:
    check("Shared", '"' + '\\"' * 400_000)
