"""`enc node withhold`, `unwithhold` and `withheld` at a node in a process of its own, and a client of it."""

import json
from pathlib import Path

import pytest

from enc import Client, Identity
from tests.cli.ops.node_command import enc, failure
from tests.node.running import RunningNode
from tests.node.store_host import MANIFEST

pytestmark = pytest.mark.usefixtures("plain_environment")


def test_a_client_sees_the_statement_and_then_the_content_again(tmp_path: Path) -> None:
    data, alice = tmp_path / "node", Identity.new()
    manifest = {**MANIFEST, "init": [{"identity": alice.public.hex(), "state": "MEMBER", "traits": ["owner"]}]}
    with RunningNode(data) as node, Client(node.url, alice, pins=None) as client:
        enclave = client.create(manifest)
        receipt = enclave.commit("message", "unlawful")
        place = f"{enclave.id.hex()}/{receipt.seq}"
        done = enc("withhold", place, "--reason", "court_order", "--note", "case 12/34", "--data", data)
        assert done.stdout == f"{place}: withheld, court_order; its content is kept\n"
        (item,) = enclave.query(type="message")
        assert item.content is None
        assert item.withheld is not None
        assert (item.withheld.reason, item.withheld.node) == ("court_order", node.seq_pub)
        (line,) = enc("withheld", "--json", "--data", data).stdout.splitlines()
        found = json.loads(line)
        assert (found["id"], found["content"], found["note"]) == (receipt.id.hex(), "kept", "case 12/34")
        assert found["since"] == item.withheld.ts
        assert "\tcourt_order\t" in enc("withheld", "--data", data).stdout
        assert enc("unwithhold", receipt.id.hex(), "--data", data).stdout == f"{place}: shown again\n"
        (item,) = enclave.query(type="message")
        assert (item.content, item.withheld) == ("unlawful", None)
        assert "is not withheld" in failure(enc("unwithhold", place, "--data", data), 2)
        enc("withhold", place, "--reason", "abuse", "--data", data)
        assert enc("withheld", "--data", data).stdout.endswith("\tkept\t-\n")
    log = [json.loads(line) for line in node.stderr.read_text().splitlines() if "operator_action" in line]
    assert [(line["operation"], line["params"]["event"]) for line in log][:2] == [
        ("withhold", place),
        ("unwithhold", receipt.id.hex()),
    ]
    assert "no node is running" in failure(enc("withheld", "--data", data), 1)
