"""The installed command against a real node, through the whole life of an enclave.

Each command runs in a separate process at least once; commands that only prepare a step run in this process.
"""

import json
from pathlib import Path

from tests.cli.people import Person, team
from tests.node.running import RunningNode


def test_the_whole_life_of_an_enclave(tmp_path: Path, running_node: RunningNode) -> None:
    alice, bob = Person(tmp_path / "alice"), Person(tmp_path / "bob")
    keys = (begin(alice, running_node), bob.ask_json("key", "new")[0]["public"])
    enclave = create(alice, keys[0], running_node)
    bob.ask("config", "set", "node", running_node.url)
    bob.ask("config", "set", "enclave", enclave)
    let_in(alice, bob, *keys)
    write(alice, bob, keys[1])
    keep_slots(alice, bob)
    prove(alice, keys[0], running_node)
    pass_on_and_end(alice, bob, *keys)


def begin(alice: Person, node: RunningNode) -> str:
    key = alice.json("key", "new")
    assert alice.run("key", "show").strip() == key["public"]
    assert alice.key().stat().st_mode & 0o777 == 0o600
    alice.run("config", "set", "node", node.url)
    return str(key["public"])


def create(alice: Person, owner: str, node: RunningNode) -> str:
    (alice.home / "team.json").write_text(team(owner))
    made = alice.json("enclave", "create", "team.json", "--name", "us", "--use")
    assert (made["node"], made["sequencer"]) == (node.url, node.seq_pub.hex())
    info = alice.json("enclave", "info")
    assert (info["enclave"], info["lifecycle"], info["manifest"]["meta"]["name"]) == (made["enclave"], "active", "us")
    assert alice.json("enclave", "list") == {
        "enclave": made["enclave"],
        "sequencer": made["sequencer"],
        "head": info["head"],
    }
    assert alice.json("head") == {**info["head"], "enclave": made["enclave"]}
    return str(made["enclave"])


def let_in(alice: Person, bob: Person, a: str, b: str) -> None:
    assert bob.refused("query", code=1)["code"] == "UNAUTHORIZED"
    alice.run("gate", "applications", "closed")
    assert bob.refused("move", b, "OUTSIDER", "PENDING", code=1)["alias"] == "applications"
    alice.ask("gate", "applications", "open")
    bob.run("move", b, "OUTSIDER", "PENDING")
    alice.ask("move", b, "PENDING", "MEMBER")
    alice.run("grant", b, "admin")
    assert {who["identity"]: (who["state"], who["traits"]) for who in bob.json("enclave", "members")} == {
        a: ("MEMBER", ["owner"]),
        b: ("MEMBER", ["admin"]),
    }
    alice.run("revoke", b, "admin")
    assert [who["traits"] for who in bob.ask_json("enclave", "members") if who["identity"] == b] == [[]]


def write(alice: Person, bob: Person, b: str) -> None:
    with bob.watching("--after", "0", "--type", "message", "--type", "Delete") as watch:
        (first,) = alice.ask_json("commit", "message", "hello")
        assert watch.next()["content"] == "hello"
        second = bob.json("commit", "message", "-", "--tag", "mood=good", stdin="from a pipe\n")
        assert watch.next()["content"] == "from a pipe\n"
        alice.run("update", str(first["seq"]), "hello, all")
        bob.run("delete", second["id"], "--note", "never mind")
        assert json.loads(watch.next()["content"]) == {"reason": "author", "note": "never mind"}
    assert bob.ask_json("query", "--tag", "mood=good") == []
    message, update = alice.json("query", "--seq", f"{first['seq']}:", "--type", "message", "--type", "Update")
    assert (message["status"], message["updated_by"], update["content"]) == ("updated", update["id"], "hello, all")
    assert bob.ask("query", "--author", b, "--reverse", "--limit", "1").stdout.split("\t")[2] == "Delete"


def keep_slots(alice: Person, bob: Person) -> None:
    alice.run("set", "topic", '{"plan": [1, 2]}')
    (found,) = bob.ask_json("get", "topic")
    assert (found["value"], found["proved"]) == ({"plan": [1, 2]}, True)
    bob.ask("set", "nick", "bobby", "--own")
    assert (bob.run("get", "nick", "--own"), bob.stderr) == ("bobby\n", "")
    alice.ask("set", "topic", "--unset")
    unset = bob.ask("get", "topic")
    assert (unset.stdout, unset.stderr) == ("", "topic is unset\n")


def prove(alice: Person, a: str, node: RunningNode) -> None:
    alice.run("prove", "0", "-o", "event.json")
    alice.ask("prove", "--member", a, "-o", "member.json")
    alice.ask("prove", "--slot", "nick", "--own", "-o", "slot.json")
    assert alice.run("verify", "event.json").startswith("The proof holds.\nProved:\n")
    for file in ("event.json", "member.json", "slot.json"):
        assert alice.ask_json("verify", file, "--sequencer", node.seq_pub.hex())[0]["ok"] is True
    proof = alice.home / "event.json"
    proof.write_text(proof.read_text().replace('"Manifest"', '"manifest"'))
    assert alice.ask_json("verify", "event.json", code=1)[0]["code"] == "INVALID_PROOF"


def pass_on_and_end(alice: Person, bob: Person, a: str, b: str) -> None:
    alice.run("pause")
    assert bob.refused("commit", "message", "too late", code=1)["code"] == "ENCLAVE_PAUSED"
    alice.run("resume")
    alice.run("transfer", b, "owner")
    bob.ask("move", a, "MEMBER", "OUTSIDER")
    assert alice.refused("query", code=1)["code"] == "UNAUTHORIZED"
    bob.run("terminate")
    assert bob.refused("commit", "message", "too late", code=1)["code"] == "ENCLAVE_TERMINATED"
    assert bob.ask_json("enclave", "info")[0]["lifecycle"] == "terminated"
