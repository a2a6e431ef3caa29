"""`enc prove`, `enc verify`, `enc head`: proof files, and the reports about them."""

import json
import re
from typing import Any

import pytest

from enc.cli.common.exits import FAILED, MISUSE
from tests.cli.people import Person
from tests.node.running import RunningNode


@pytest.fixture(scope="module")
def proof(reader: Person) -> Any:
    """Write the proof of event 0 to proof.json; return its content."""
    reader.ask("prove", "0", "-o", "proof.json")
    return json.loads((reader.home / "proof.json").read_text())


def test_a_proof_says_what_it_proves_and_what_not(reader: Person, proof: Any, running_node: RunningNode) -> None:
    (found,) = reader.ask_json("verify", "proof.json")
    assert (found["ok"], found["format"], found["enclave"]) == (True, "enc-proof", proof["enclave"])
    assert found["sequencer"] == running_node.seq_pub.hex()
    shown = reader.ask("verify", "proof.json").stdout.splitlines()
    assert shown[:2] == ["The proof holds.", "Proved:"]
    assert shown[shown.index("Not proved:") :] == ["Not proved:", *(f"  {each}" for each in found["not_proved"])]
    assert [line[2:] for line in shown[2 : shown.index("Not proved:")]] == found["proved"]


def test_verify_needs_nothing_but_the_file(anybody: Person, proof: Any) -> None:
    assert anybody.ask_json("verify", "-", stdin=json.dumps(proof))[0]["ok"] is True
    assert list(anybody.home.iterdir()) == []


def test_a_proof_goes_to_stdout_or_to_a_file(reader: Person, proof: Any) -> None:
    printed = json.loads(reader.ask("prove", "0").stdout)
    assert printed["event"]["event"] == proof["event"]["event"]
    assert json.loads(reader.ask("prove", "0", "--json").stdout) == printed
    (wire,) = reader.ask_json("prove", proof["event"]["event"]["id"], "-o", "again.json")
    assert wire == {"file": "again.json", "enclave": proof["enclave"], "bundle": 0}
    assert json.loads((reader.home / "again.json").read_text()) == printed


def test_state_is_proved_after_the_last_closed_bundle(alice: Person) -> None:
    (me,) = alice.ask_json("key", "show")
    alice.ask("set", "topic", "x")
    alice.ask("set", "nick", "al", "--own")
    proofs = {
        name: json.loads(alice.ask("prove", *args).stdout)["state"]
        for name, args in {
            "member": ["--member", me["public"]],
            "shared": ["--slot", "topic"],
            "own": ["--slot", "nick", "--own"],
            "none": ["--slot", "nick"],
        }.items()
    }
    assert {name: proof["namespace"] for name, proof in proofs.items()} == {
        "member": "rbac",
        "shared": "kv",
        "own": "kv",
        "none": "kv",
    }
    assert proofs["member"]["key"] == me["public"]
    assert [name for name, proof in proofs.items() if proof["proof"]["v"] is None] == ["none"]
    assert all(proof["anchor"]["li"] == 2 for proof in proofs.values())


def changed(proof: Any, change: str) -> str:
    text = json.dumps(proof)
    return {
        "content": text.replace("MEMBER", "member"),
        "sequencer": text.replace(proof["sequencer"], "ab" * 32),
        "enclave": text.replace(proof["enclave"], "ab" * 32),
        "head": text.replace('"ts": 1', '"ts": 2'),
        "fields": text.replace('"membership"', '"m"'),
        "version": text.replace('"version": 1', '"version": 2'),
        "format": text.replace("enc-proof", "enc-key"),
        "cut": text[: len(text) // 2],
        "empty": "",
        "list": "[]",
    }[change]


@pytest.mark.parametrize(
    "change", ["content", "sequencer", "enclave", "head", "fields", "version", "format", "cut", "empty", "list"]
)
def test_a_changed_file_proves_nothing(reader: Person, proof: Any, change: str) -> None:
    text = changed(proof, change)
    assert text != json.dumps(proof)
    (reader.home / "changed.json").write_text(text)
    (found,) = reader.ask_json("verify", "changed.json", code=FAILED)
    assert set(found) == {"ok", "code", "message"}
    assert (found["ok"], found["code"]) == (False, "INVALID_PROOF")
    result = reader.ask("verify", "changed.json", code=FAILED)
    assert result.stdout == f"Nothing is proved: {found['message']}\n"


def test_bytes_that_are_no_text_prove_nothing(reader: Person) -> None:
    (reader.home / "x").write_bytes(b'{"format": "\xff"}')
    assert "neither a proof nor evidence" in reader.ask_json("verify", "x", code=FAILED)[0]["message"]


def test_only_the_sequencer_that_counts_proves(reader: Person, proof: Any) -> None:
    reader.ask("verify", "proof.json", "--sequencer", proof["sequencer"].upper())
    (found,) = reader.ask_json("verify", "proof.json", "--sequencer", "ab" * 32, code=FAILED)
    assert found["message"] == f"signed by {proof['sequencer']}, not by {'ab' * 32}"


def test_the_key_is_not_to_be_compared_once_it_matched(reader: Person, proof: Any) -> None:
    (unknown,), (known,) = (
        reader.ask_json("verify", "proof.json", *more) for more in ([], ["--sequencer", proof["sequencer"]])
    )
    assert [line for line in unknown["not_proved"] if "compare it with what you know" in line]
    assert known == {**unknown, "not_proved": unknown["not_proved"][1:]}


def test_verify_shows_contents_and_the_update(alice: Person) -> None:
    (event,) = alice.ask_json("commit", "message", "helo")
    alice.ask("update", event["id"], "hello")
    alice.ask("prove", event["id"], "-o", "updated.json")
    shown = alice.ask("verify", "updated.json").stdout
    assert re.search(r"made it event \d+ at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\n", shown)
    assert re.search(r"replaced it with Update \d+ at [0-9TZ:.-]+, whose content is: hello\n", shown)


def test_prove_leaves_a_file_as_it_was_if_it_cannot_write(alice: Person) -> None:
    assert "cannot write the proof" in alice.refused("prove", "0", "-o", "none/proof.json", code=MISUSE)["message"]


def test_a_head_needs_no_identity(alice: Person, running_node: RunningNode) -> None:
    (head,) = alice.ask_json("head")
    assert set(head) == {"t", "ts", "r", "sig", "bound_sig", "enclave"}
    alice.key().unlink()
    assert alice.ask_json("head") == [head]
    assert alice.ask("head").stdout.startswith(f"1 bundles, root {head['r']}, ")
    assert "there is no such file" in alice.refused("query", code=MISUSE)["message"]


def test_a_file_that_is_nested_without_end_proves_nothing(anybody: Person) -> None:
    (anybody.home / "deep.json").write_text('{"format":' + "[" * 100_000)
    (found,) = anybody.ask_json("verify", "deep.json", code=1)
    assert (found["ok"], found["code"]) == (False, "INVALID_PROOF")
