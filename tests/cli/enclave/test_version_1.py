"""The commands on enclaves of version 1: the same as for version 2, without naming the version."""

import json
from itertools import count

import pytest

from enc.client import Client
from enc.client.enclave.templates import names
from tests.cli.conftest import settled
from tests.cli.people import AT_ONCE, Person
from tests.core.world import pub
from tests.core.world_v1 import manifest
from tests.node.running import RunningNode
from tests.node.small_v1 import ADMIN, MEMBER, SCHEMA

BOB = pub("bob")
_numbers = count()


@pytest.fixture
def owner(anybody: Person, creator: Client) -> Person:
    """Return the owner of a new enclave of version 1."""
    person, me = settled(anybody, creator), creator.identity.hex
    constitution = manifest(SCHEMA, {"Owner": [me], "Member": [me]}, bundle=AT_ONCE, meta={"n": next(_numbers)})
    (person.home / "roles.json").write_text(json.dumps(constitution))
    person.ask("enclave", "create", "roles.json", "--use")
    return person


def roles(owner: Person, identity: str) -> list[str]:
    found = [who["traits"] for who in owner.ask_json("enclave", "members") if who["identity"] == identity]
    return list(found[0]) if found else []


def test_the_whole_life(owner: Person, creator: Client, running_node: RunningNode) -> None:
    """Each command determines the version itself."""
    me = creator.identity.hex
    assert owner.ask_json("enclave", "info")[0]["lifecycle"] == "active"
    assert "roles      " in (text := owner.ask("enclave", "info").stdout)
    assert '["Owner","Admin","Member","DataView"]' in text
    said = owner.ask_json("commit", "message", "hello", "--tag", "k=v")[0]
    owner.ask("update", str(said["seq"]), "hello, all")
    owner.ask("grant", BOB, "Member")
    owner.ask("move", BOB, "Member", "Admin,Member")
    assert roles(owner, BOB) == ["Admin", "Member"]
    owner.run("move", BOB, hex(ADMIN | MEMBER), "", "--force")
    assert roles(owner, BOB) == []
    owner.ask("grant", BOB, "DataView", "--endpoint", "https://example.com/hook")
    owner.ask("revoke", BOB, "DataView")
    assert [event["type"] for event in owner.ask_json("query", "--seq", "1:")] == [
        *("message", "Update", "Grant", "Move", "Force_Move", "Grant_Push", "Revoke")
    ]
    owner.ask("prove", str(said["seq"]), "-o", "event.json")
    owner.ask("prove", "--member", me, "-o", "member.json")
    for file in ("event.json", "member.json"):
        assert owner.ask_json("verify", file, "--sequencer", running_node.seq_pub.hex())[0]["ok"] is True
    owner.run("archive", "pull", "all.enc")
    assert owner.ask_json("archive", "verify", "all.enc")[0]["events"] == 8
    owner.ask("pause")
    assert owner.ask_json("enclave", "info")[0]["lifecycle"] == "paused"
    owner.ask("resume")
    owner.run("revoke-self", "Member")
    assert owner.ask_json("query") == []
    owner.ask("transfer", BOB, "Owner")
    assert owner.refused("terminate", code=1)["code"] == "UNAUTHORIZED"


def test_watching(owner: Person) -> None:
    with owner.watching("--after", "0") as watch:
        owner.ask("commit", "message", "live")
        assert watch.next()["content"] == "live"


def test_refusals_carry_their_fields(owner: Person, creator: Client) -> None:
    me = creator.identity.hex
    error = owner.refused("move", BOB, "Admin", "", code=1)
    assert (error["code"], error["expected"], error["actual"]) == ("BITMASK_MISMATCH", hex(ADMIN), "0x0")
    assert owner.refused("revoke-self", "Owner", code=1)["code"] == "OWNER_SELF_REVOKE_FORBIDDEN"
    assert owner.refused("move", me, "Owner,Member", "Member", code=1)["code"] == "OWNER_BIT_PROTECTED"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["gate", "applications", "open"], "enclaves of version 1 have no gates"),
        (["set", "topic", "x"], "enclaves of version 1 have no slots"),
        (
            ["move", BOB, "OUTSIDER", "MEMBER"],
            "OUTSIDER: not a role of this enclave; its roles are Owner, Admin, Me",
        ),
        (["transfer", BOB, "Admin"], "trait: a version 1 enclave can transfer Owner only"),
    ],
)
def test_what_version_1_has_no_words_for(owner: Person, args: list[str], message: str) -> None:
    error = owner.refused(*args, code=2)
    assert error["code"] == "MISUSE"
    assert error["message"].startswith(message)


def test_slots_are_of_no_namespace_here(owner: Person) -> None:
    assert owner.refused("get", "topic", code=1)["code"] == "INVALID_NAMESPACE"
    assert owner.refused("prove", "--slot", "topic", code=1)["code"] == "INVALID_NAMESPACE"


def test_a_template_by_either_spelling(alice: Person) -> None:
    one = alice.ask_json("enclave", "create", "--template", "personal-v1", "--name", f"{next(_numbers)}", "--use")[0]
    other = alice.ask_json("enclave", "create", "personal-v1", "--name", f"{next(_numbers)} again")[0]
    assert one["enclave"] != other["enclave"]
    alice.ask("commit", "public", '{"kind":"post","text":"Hello world"}')
    assert json.loads(alice.ask_json("query", "--type", "public")[0]["content"])["kind"] == "post"
    info = alice.ask_json("enclave", "info")[0]
    assert (info["manifest"]["enc_v"], info["lifecycle"]) == (1, "unknown")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "give a manifest's file, or a template"),
        (["team", "--template", "team"], "give a manifest's file, or a template"),
        (["--template", "team.json"], "team.json: neither a file nor a template; templates are " + ", ".join(names())),
    ],
)
def test_one_manifest_is_named(alice: Person, args: list[str], message: str) -> None:
    assert alice.refused("enclave", "create", *args, code=2)["message"] == message
