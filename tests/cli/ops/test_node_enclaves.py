"""`enc node enclaves`: the largest enclaves, of a stopped and of a running node."""

import json
from pathlib import Path

import pytest

from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.node.served import SMALL, Served

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_the_largest_enclaves_come_first(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    with Served(store=store) as node:
        small, large, ended = (node.create({**SMALL, "meta": {"n": n}}) for n in range(3))
        large.send("bob", "message", "x" * 10_000)
        ended.send("alice", "Terminate")
        found = [json.loads(line) for line in enc("enclaves", "--data", tmp_path, "--json").stdout.splitlines()]
        sizes = {each.id.hex(): store.size(each.id) for each in (small, large, ended)}
    assert [each["enclave"] for each in found] == sorted(sizes, key=lambda each: -sizes[each])
    assert found[0] == {"enclave": large.id.hex(), "events": 2, "bytes": sizes[large.id.hex()], "terminated": False}
    assert {each["enclave"]: each["terminated"] for each in found}[ended.id.hex()] is True
    store.close()
    (line,) = enc("enclaves", "--data", tmp_path, "--limit", "1").stdout.splitlines()
    assert line.split() == [large.id.hex(), "2", str(sizes[large.id.hex()]), "-"]


def test_without_a_store_it_fails(tmp_path: Path) -> None:
    assert "no such file" in failure(enc("enclaves", "--data", tmp_path), 2)
