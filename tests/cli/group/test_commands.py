"""`enc group`: every action in a group, one command at a time, against a real node."""

import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from enc.apps import AddressBook
from enc.apps.group import GroupMember
from enc.apps.people.lookup import find
from enc.cli.group.context import resolve_member
from enc.client import Client
from enc.client.enclave.templates import template
from enc.core.errors import MisuseError
from tests.cli.group_people import Friend, Friends, introduced, let_in
from tests.node.running import RunningNode


def standing(ann: Friend, who: Friend) -> tuple[str, list[str]] | None:
    people = {each["identity"]: each for each in ann.ask_json("group", "who", "plans")}
    found = people.get(who.identity.hex)
    return None if found is None else (found["state"], found["traits"])


def test_who_creates_a_group_owns_it_and_it_has_a_name_here(ann: Friend) -> None:
    status = ann.one("status", "plans")
    assert (status["enclave"], status["topic"], status["members"]) == (ann.group, "the summer", 1)
    assert status["me"]["traits"] == ["owner", "admin"]
    assert (status["epoch"]["n"], status["is_stale"], status["can_seal"]) == (0, False, True)
    assert status["gates"] == {"applications": True, "auto_join": False}
    assert [each["name"] for each in ann.ask_json("group", "list")] == ["plans"]
    text = ann.ask("group", "status", "plans").stdout
    assert "epoch 0 fresh" in text
    assert "owner, admin" in text


def test_a_second_group_of_the_same_name_is_not_created(ann: Friend) -> None:
    before = ann.ask_json("group", "list")
    assert "already named plans" in ann.refused("group", "create", "plans", code=2)["message"]
    assert ann.ask_json("group", "list") == before
    other = ann.one("create", "others")
    assert other["enclave"] != ann.group


def test_an_invited_member_reads_what_is_said_from_then_on(ann: Friend, friend: Friends) -> None:
    ann.one("say", "plans", "before bob")
    bob = let_in(ann, friend("bob"), "bob")
    sent = ann.one("say", "plans", "hello, bob")
    assert (sent["epoch"], sent["is_stale"]) == (1, False)
    (_, before), (_, after) = bob.read()
    assert (before, after) == (None, "hello, bob")
    assert bob.ask("group", "read", "plans").stdout.splitlines()[1].endswith("ann: hello, bob")


def test_reply_edit_react_and_delete(ann: Friend, bob: Friend) -> None:
    first = ann.one("say", "plans", "helo")
    ann.one("edit", "plans", str(first["seq"]), "hello")
    bob.one("reply", "plans", f"#{first['seq']}", "hello yourself")
    bob.one("react", "plans", first["id"], "👍")
    said, answer = ann.ask_json("group", "read", "plans")
    assert (said["text"], said["is_edited"]) == ("hello", True)
    assert [(each["author"], each["text"]) for each in said["reactions"]] == [(bob.identity.hex, "👍")]
    assert (answer["text"], answer["reply_to"]) == ("hello yourself", first["id"])
    lines = ann.ask("group", "read", "plans").stdout.splitlines()
    assert lines[0].endswith("you: hello  (edited) [👍 bob]")
    assert lines[1].endswith(f"bob: hello yourself  (re #{first['seq']} you: hello)")
    assert bob.refused("group", "unreact", "plans", first["id"], "👎", code=2)["code"] == "MISUSE"
    assert "you have no such reaction" in ann.refused("group", "unreact", "plans", first["id"], code=2)["message"]
    bob.one("unreact", "plans", first["id"])
    bob.one("delete", "plans", str(answer["seq"]))
    (said,) = ann.ask_json("group", "read", "plans")
    assert (said["text"], said["reactions"]) == ("hello", [])


def test_an_admin_deletes_anybody_s_and_nobody_else_does(ann: Friend, bob: Friend) -> None:
    ours, theirs = ann.one("say", "plans", "one"), bob.one("say", "plans", "two")
    assert bob.refused("group", "delete", "plans", str(ours["seq"]), code=2)["code"] == "NOT_AN_ADMIN"
    ann.one("delete", "plans", str(theirs["seq"]), "--note", "off topic")
    assert [text for _, text in bob.read()] == ["one"]


def test_an_entry_that_is_not_there_is_named(ann: Friend) -> None:
    assert ann.refused("group", "edit", "plans", "99", "x", code=2)["message"].startswith("no entry 99")


def test_an_announcement_is_an_admin_s(ann: Friend, bob: Friend) -> None:
    ann.one("announce", "plans", "we meet at noon")
    assert bob.refused("group", "announce", "plans", "so do we", code=2)["code"] == "NOT_AN_ADMIN"
    (entry,) = bob.ask_json("group", "read", "plans")
    assert (entry["kind"], entry["text"]) == ("notice", "we meet at noon")
    assert "[announcement] ann: we meet at noon" in bob.ask("group", "read", "plans").stdout


def test_a_message_from_stdin_has_its_lines(ann: Friend) -> None:
    ann.ask("group", "say", "plans", "-", stdin="one\ntwo\x1b[2J")
    assert ann.read()[0][1] == "one\ntwo\x1b[2J"
    assert "you: one\n    two\\x1b[2J" in ann.ask("group", "read", "plans").stdout


def test_mute_and_unmute(ann: Friend, bob: Friend) -> None:
    ann.one("mute", "plans", "bob")
    assert standing(ann, bob) == ("MEMBER", ["muted"])
    assert bob.refused("group", "say", "plans", "psst", code=2)["code"] == "MUTED"
    ann.one("unmute", "plans", "bob")
    bob.one("say", "plans", "thanks")
    assert [text for _, text in ann.read()] == ["thanks"]


def test_who_is_removed_reads_nothing_later_and_the_epoch_is_new(ann: Friend, bob: Friend) -> None:
    ann.one("remove", "plans", "bob")
    assert standing(ann, bob) is None
    assert bob.refused("group", "read", "plans", code=2)["code"] == "NOT_A_MEMBER"
    status = ann.one("status", "plans")
    assert (status["epoch"]["n"], status["is_stale"], status["members"]) == (2, False, 1)


def test_block_and_unblock(ann: Friend, bob: Friend) -> None:
    ann.one("block", "plans", "bob")
    assert standing(ann, bob) == ("BLOCKED", [])
    assert bob.ask("group", "apply", "plans", code=1)
    ann.one("unblock", "plans", "bob")
    assert standing(ann, bob) is None
    bob.one("apply", "plans")
    assert standing(ann, bob) == ("PENDING", [])


def test_apply_withdraw_decline_and_approve(ann: Friend, friend: Friends) -> None:
    cleo = introduced(ann, friend("cleo"), "cleo")
    cleo.one("apply", "plans")
    cleo.one("withdraw", "plans")
    assert standing(ann, cleo) is None
    cleo.one("apply", "plans")
    ann.one("decline", "plans", "cleo")
    assert standing(ann, cleo) is None
    cleo.one("apply", "plans")
    ann.one("approve", "plans", cleo.identity.hex[:8], "--no-notice")
    assert standing(ann, cleo) == ("MEMBER", [])
    ann.one("say", "plans", "welcome")
    assert [text for _, text in cleo.read()] == ["welcome"]


def test_gates(ann: Friend, friend: Friends) -> None:
    cleo = introduced(ann, friend("cleo"), "cleo")
    assert cleo.ask("group", "join", "plans", code=1)
    ann.one("gate", "plans", "applications", "closed")
    assert cleo.ask("group", "apply", "plans", code=1)
    ann.one("gate", "plans", "auto-join", "open")
    cleo.one("join", "plans")
    assert ann.one("status", "plans")["gates"] == {"applications": False, "auto_join": True}
    assert standing(ann, cleo) == ("MEMBER", [])


def test_who_walks_in_speaks_once_an_admin_s_client_was_there(ann: Friend, friend: Friends) -> None:
    cleo = introduced(ann, friend("cleo"), "cleo")
    ann.one("gate", "plans", "auto-join", "open")
    assert "from the next epoch on" in cleo.ask("group", "join", "plans").stderr
    assert "STALE" in cleo.ask("group", "status", "plans").stdout
    assert cleo.refused("group", "say", "plans", "hello?", code=3)["code"] == "NOT_SEALABLE"
    ann.one("status", "plans")
    cleo.one("say", "plans", "hello!")
    assert [text for _, text in ann.read()] == ["hello!"]


def test_a_member_is_told_before_speaking_in_a_stale_group(ann: Friend, bob: Friend, friend: Friends) -> None:
    let_in(ann, friend("cleo"), "cleo").one("leave", "plans")
    refused = bob.ask("group", "say", "plans", "is she gone?", "--only-fresh", code=2)
    assert "people who left since the last epoch can read" in refused.stderr
    said = bob.ask("group", "say", "plans", "is she gone?")
    assert "people who left since the last epoch can read" in said.stderr
    assert bob.one("say", "plans", "again")["is_stale"]
    ann.one("say", "plans", "now she is")
    assert not ann.one("status", "plans")["is_stale"]
    assert bob.ask("group", "say", "plans", "good").stderr == ""
    assert [text for _, text in bob.read()] == ["is she gone?", "again", "now she is", "good"]


def test_admins_and_ownership(ann: Friend, bob: Friend) -> None:
    ann.one("admin", "plans", "bob")
    assert standing(ann, bob) == ("MEMBER", ["admin"])
    assert bob.one("rotate", "plans")["counts"]
    bob.one("unadmin", "plans", bob.identity.hex)
    assert standing(ann, bob) == ("MEMBER", [])
    ann.one("transfer", "plans", "bob")
    assert standing(ann, bob) == ("MEMBER", ["owner"])
    assert standing(ann, ann) == ("MEMBER", ["admin"])


def test_rotate_and_epochs(ann: Friend, bob: Friend) -> None:
    assert ann.one("rotate", "plans")["n"] == 2
    found = bob.ask_json("group", "epochs", "plans")
    assert [(each["n"], each["counts"], each["is_open"]) for each in found] == [
        (0, True, False),
        (1, True, True),
        (2, True, True),
    ]
    assert "from before you joined" in bob.ask("group", "epochs", "plans").stdout.splitlines()[0]


def test_topic_and_profile(ann: Friend, bob: Friend) -> None:
    ann.one("topic", "plans", "the winter")
    assert bob.one("topic", "plans") == {"topic": "the winter"}
    assert bob.ask("group", "topic", "plans", "mine", code=None).exit_code != 0
    ann.one("topic", "plans", "--unset")
    assert bob.ask("group", "topic", "plans").stdout == "(none)\n"
    bob.one("profile", "plans", "Bobby")
    assert "bob\t" in ann.ask("group", "who", "plans").stdout  # her own name for him has precedence
    ann.ask("me", "forget", "bob")
    assert f"~Bobby {bob.identity.hex[:8]}…" in ann.ask("group", "who", "plans").stdout
    bob.one("profile", "plans", "--unset")
    assert "Bobby" not in ann.ask("group", "who", "plans").stdout
    assert bob.refused("group", "profile", "plans", code=2)["message"] == "give a name, or --unset"


def test_nobody_is_found_by_the_name_they_give_themselves(ann: Friend, bob: Friend) -> None:
    bob.one("profile", "plans", "ann-the-admin")
    assert (
        "no person named ann-the-admin is known"
        in ann.refused("group", "admin", "plans", "ann-the-admin", code=2)["message"]
    )


def test_the_start_of_a_key_must_be_one_person_s(ann: Friend, bob: Friend) -> None:
    assert ann.ask("group", "mute", "plans", bob.identity.hex[:8] + "…")
    assert "no key in the group" in ann.refused("group", "mute", "plans", "00000000", code=2)["message"]
    assert "no person named" in ann.refused("group", "mute", "plans", bob.identity.hex[:7], code=2)["message"]


def test_a_start_that_two_keys_share_is_nobody_s(tmp_path: Path) -> None:
    book = AddressBook(tmp_path / "contacts.json")
    people = [GroupMember(bytes(31) + bytes([i]), "MEMBER") for i in range(2)]
    group: Any = SimpleNamespace(people=lambda: people)
    with pytest.raises(MisuseError, match="more than one key in the group"):
        resolve_member(group, book, "00000000", lambda word: find(word, book))
    found = resolve_member(group, book, people[1].identity.hex(), lambda word: find(word, book))
    assert found.identity == people[1].identity


def test_a_prefix_of_a_contact_who_is_not_in_the_group(ann: Friend, friend: Friends) -> None:
    cleo = introduced(ann, friend("cleo"), "cleo")
    ann.one("invite", "plans", cleo.identity.hex[:8], "--no-notice")
    assert standing(ann, cleo) == ("MEMBER", [])


def test_a_member_named_by_a_prefix_is_shown_whole_unless_known(ann: Friend, bob: Friend) -> None:
    assert ann.ask("group", "mute", "plans", bob.identity.hex[:8]).stderr == ""
    ann.ask("me", "forget", "bob")
    shown = ann.ask("group", "unmute", "plans", bob.identity.hex[:8]).stderr
    assert shown == f"{bob.identity.hex[:8]} is {bob.identity.hex}\n"


def test_groups_and_entries_are_named_by_prefixes(ann: Friend, bob: Friend) -> None:
    sent = ann.one("say", "plans", "hello")
    bob.one("react", ann.group[:8], sent["id"][:4], "+1")
    bob.ask("group", "forget", "plans")
    (entry,) = bob.ask_json("group", "read", f"{ann.group[:8]}…")
    assert [each["text"] for each in entry["reactions"]] == ["+1"]
    assert "no entry starts with this" in bob.refused("group", "react", ann.group, "a" * 63, "+1", code=2)["message"]
    bob.one("add", "again", ann.group[:8])


def test_a_group_is_found_by_its_id_too(ann: Friend, bob: Friend) -> None:
    bob.one("forget", "plans")
    assert "is named plans" in bob.refused("group", "read", "plans", code=2)["message"]
    assert bob.one("status", ann.group)["members"] == 2


def test_an_enclave_that_is_no_group_is_refused(ann: Friend, running_node: RunningNode) -> None:
    with Client(running_node.url, ann.identity, pins=None) as client:
        other = client.create(template("team", ann.identity.public))
    assert ann.ask("group", "status", other.hex, "--json", code=None).exit_code != 0


_number = count(1)


def test_an_invitation_comes_to_the_personal_enclave_and_is_confirmed(
    ann: Friend, friend: Friends, running_node: RunningNode
) -> None:
    cleo = friend("cleo")
    ann.ask("me", "know", "cleo", cleo.identity.hex)
    with Client(running_node.url, cleo.identity, pins=None) as client:
        personal = client.create(personal_manifest(cleo.identity.public)).hex
    assert cleo.ask_json("group", "invitations", "--store", personal) == []
    invitation = ann.one("invite", "plans", "cleo", "--store", personal, "--greeting", "come in")
    assert invitation["notice"] is not None
    (found,) = cleo.ask_json("group", "invitations", "--store", personal)
    assert (found["enclave"], found["inviter"], found["greeting"], found["topic"]) == (
        ann.group,
        ann.identity.hex,
        "come in",
        "the summer",
    )
    accepted = cleo.one("accept", "plans", ann.group, "--store", personal)
    assert accepted["can_seal"]
    cleo.one("say", "plans", "thank you")
    assert [text for _, text in ann.read()] == ["thank you"]
    other = "ab" * 32
    assert (
        "there is no invitation to that group"
        in cleo.refused("group", "accept", "x", other, "--store", personal, code=2)["message"]
    )


def personal_manifest(owner: bytes) -> dict:
    return {
        "enc_v": 2,
        "states": ["MEMBER"],
        "traits": ["owner(0)"],
        "readers": [{"type": "MEMBER", "reads": "*"}],
        "customs": [{"event": "notice", "operator": ["OUTSIDER", "MEMBER"], "ops": ["C"]}],
        "init": [{"identity": owner.hex(), "state": "MEMBER", "traits": ["owner"]}],
        "meta": {"n": next(_number)},
    }


def test_an_invitation_that_cannot_be_told_says_what_to_do(ann: Friend, friend: Friends) -> None:
    cleo = friend("cleo")
    ann.ask("me", "know", "cleo", cleo.identity.hex)
    invited = ann.ask("group", "invite", "plans", "cleo")
    assert "they were not notified: the personal store of" in invited.stderr
    assert f"send them the group's id: {ann.group}" in invited.stderr
    assert standing(ann, cleo) == ("MEMBER", [])


def test_what_a_claimed_invitation_says_is_not_shown_unless_a_log_confirms_it(
    ann: Friend, friend: Friends, running_node: RunningNode
) -> None:
    cleo, eve = friend("cleo"), friend("eve")
    eve.group = eve.one("create", "trap")["enclave"]
    with Client(running_node.url, cleo.identity, pins=None) as client:
        personal = client.create(personal_manifest(cleo.identity.public)).hex
    eve.one("invite", "trap", cleo.identity.hex, "--store", personal)
    eve.one("remove", "trap", cleo.identity.hex)
    result = cleo.ask("group", "invitations", "--store", personal)
    row = result.stdout.rstrip("\n").split("\t")
    assert (row[0], row[2:4]) == (eve.group, ["-", "-"])
    assert row[-1].startswith("UNPROVED: you may not read the group")
    assert "not proved: they cannot be accepted" in result.stderr
    (shown,) = cleo.ask_json("group", "invitations", "--store", personal)
    assert (shown["is_confirmed"], shown["topic"], shown["why"]) == (False, None, row[-1].removeprefix("UNPROVED: "))
    refused = cleo.refused("group", "accept", "trap", eve.group, "--store", personal, code=2)
    assert refused["message"].startswith("no confirmed invitation: ")
    assert cleo.ask_json("group", "list") == []


def test_one_s_own_store_says_the_same_of_invitations(ann: Friend, friend: Friends) -> None:
    """`enc me notices` and `enc group invitations` check a claim against the same log."""
    cleo, eve = friend("cleo"), friend("eve")
    cleo_store = cleo.ask_json("me", "create")[0]["enclave"]
    eve.group = eve.one("create", "trap")["enclave"]
    ann.ask("me", "know", "cleo", cleo.identity.hex, "--store", cleo_store)
    assert ann.one("invite", "plans", "cleo")["notice"] is not None, "the address book has the store"
    eve.one("invite", "trap", cleo.identity.hex, "--store", cleo_store)
    eve.one("remove", "trap", cleo.identity.hex)
    shown = {each["enclave"]: each["is_confirmed"] for each in cleo.ask_json("group", "invitations")}
    assert shown == {ann.group: True, eve.group: False}
    notices = {each["claims"]["enclave_id"]: each["state"] for each in cleo.ask_json("me", "notices", "--all")}
    assert notices == {ann.group: "confirmed", eve.group: "pending"}
    assert cleo.one("accept", "plans", ann.group)["can_seal"]


def test_the_help_of_every_command_has_an_example(ann: Friend) -> None:
    names = [line.split()[1] for line in ann.ask("group", "--help").stdout.splitlines() if line.startswith("│ ")]
    assert {"create", "invite", "chat", "accept"} <= set(names)
    for name in names:
        if name.isalpha():
            assert "Example: enc group" in ann.ask("group", name, "--help").stdout


def test_names_are_kept_in_a_file_that_is_the_owner_s_alone(ann: Friend) -> None:
    path = ann.home / ".local/share/enc/contacts.json"
    assert path.stat().st_mode & 0o077 == 0
    assert json.loads(path.read_text())["groups"]["plans"]["enclave"] == ann.group
    path.write_text("{")
    assert ann.refused("group", "list", code=2)["message"].startswith(str(path))


def test_a_group_is_added_with_its_node(ann: Friend) -> None:
    (added,) = ann.ask_json("group", "add", "trip", "cd" * 32, "--at", "https://enc.example.org")
    assert added["node"] == "https://enc.example.org"
    assert {"name": "trip", "enclave": "cd" * 32, "node": "https://enc.example.org"} in ann.ask_json("group", "list")
    ann.ask("group", "forget", "trip")


def test_a_name_is_one_person_s_and_one_group_s(ann: Friend, bob: Friend) -> None:
    other = "ab" * 32
    assert f"bob is {bob.identity.hex}" in ann.refused("me", "know", "bob", other, code=2)["message"]
    assert f"plans is the group {ann.group}" in ann.refused("group", "add", "Plans", other, code=2)["message"]
    ann.ask("me", "know", "robert", bob.identity.hex)
    ann.ask("me", "forget", "bob")
    assert "no person named bob is known" in ann.refused("group", "mute", "plans", "bob", code=2)["message"]
    assert "is named bob" in ann.refused("group", "forget", "bob", code=2)["message"]
    ann.one("mute", "PLANS", "Robert")


def test_who_cannot_be_replaced_goes_only_if_they_mean_it(ann: Friend, bob: Friend) -> None:
    for work in (("leave", "plans"), ("block", "plans", ann.identity.hex)):
        refused = ann.refused("group", *work, code=2)
        assert refused["code"] == "IRREPLACEABLE"
        assert refused["message"].endswith("--yes does it anyway")
    assert standing(bob, ann) == ("MEMBER", ["owner", "admin"])
    ann.one("leave", "plans", "--yes")
    assert standing(bob, ann) is None


def test_what_a_plain_member_may_not_do_is_told_in_words(ann: Friend, bob: Friend) -> None:
    refused = bob.refused("group", "remove", "plans", "ann", code=2)
    assert (refused["code"], refused["message"]) == ("NOT_AN_ADMIN", "only an admin may remove members")
    assert bob.refused("group", "admin", "plans", "ann", code=2)["code"] == "NOT_THE_OWNER"
    assert ann.refused("group", "invite", "plans", "bob", code=2)["message"] == "they are already a member"


def test_what_is_not_utf_8_is_not_said(ann: Friend) -> None:
    assert "not UTF-8" in ann.refused("group", "say", "plans", "caf\udce9", code=2)["message"]
    assert "not UTF-8" in ann.refused("group", "topic", "plans", "caf\udce9", code=2)["message"]


def test_without_a_personal_enclave_invitations_say_what_to_do(ann: Friend) -> None:
    assert "`enc me create` makes one" in ann.refused("group", "invitations", code=2)["message"]
    ann.ask_json("me", "create")
    assert ann.ask_json("group", "invitations") == []


def test_a_group_that_moved_is_followed_without_a_registry(ann: Friend, bob: Friend, tmp_path: Path) -> None:
    bob.one("say", "plans", "before")
    with RunningNode(tmp_path / "other") as other:
        ann.ask_json("migrate", ann.group, "--to", other.url)
        refused = bob.ask("group", "say", "plans", "lost", "--timeout", "1", code=1)
        assert "ENCLAVE_MIGRATED" in refused.stderr
        assert "`enc follow ENCLAVE --at URL`" in refused.stderr
        (found,) = bob.ask_json("follow", ann.group, "--at", other.url)
        assert (found["enclave"], found["node"]) == (ann.group, other.url)
        bob.one("say", "plans", "after")
        assert [text for _, text in bob.read()] == ["before", "after"]
