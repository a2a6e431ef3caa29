"""`enc me`: a personal store at a terminal, with and without a registry."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.apps import Group, Personal
from enc.apps.personal import Audience
from enc.cli.common import profiles
from enc.cli.me.audience import audience_lines
from enc.client import Client, Identity
from enc.core.errors import Unauthorized
from tests.cli.people import AT_ONCE, LATE, Person, with_key
from tests.client.moved import Town, town
from tests.node.running import RunningNode


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("me"), "a", "b") as found:
        yield found


@pytest.fixture
def ada(tmp_path: Path, running_node: RunningNode) -> Person:
    return with_key(tmp_path / "lone", running_node.url)


@pytest.fixture
def owner(ada: Person) -> Person:
    ada.ask("me", "create", "--name", "Ada")
    return ada


def identity(person: Person) -> str:
    return str(person.ask_json("key", "show")[0]["public"])


def test_a_store_is_created_once_and_found_again(ada: Person, running_node: RunningNode) -> None:
    assert "no personal store" in ada.refused("me", "show", code=2)["message"]
    (made,) = ada.ask_json("me", "create", "--name", "Ada")
    assert made["node"] == running_node.url
    (shown,) = ada.ask_json("me", "show")
    assert (shown["enclave"], shown["name"], shown["documents"]) == (made["enclave"], "Ada", 0)
    assert "--again" in ada.refused("me", "create", code=2)["message"]
    (other,) = ada.ask_json("me", "create", "--again")
    assert ada.ask_json("me", "show")[0]["enclave"] == other["enclave"] != made["enclave"]
    ada.ask("me", "use", made["enclave"])
    assert ada.ask_json("me", "show")[0]["name"] == "Ada"


def test_another_device_is_told_where_the_store_is(owner: Person, tmp_path: Path, place: Town) -> None:
    (shown,) = owner.ask_json("me", "show")
    owner.ask("me", "add", "Diary", "It rained.")
    device = Person(tmp_path / "device")
    device.key().parent.mkdir(parents=True)
    device.key().write_bytes(owner.key().read_bytes())
    device.key().chmod(0o600)
    for name, value in (("node", place.nodes["a"].url), ("identity", str(device.key()))):
        profiles.store(device.config, "default", name, value)
    assert device.refused("me", "use", shown["enclave"], code=1)["code"] == "ENCLAVE_NOT_FOUND"
    device.ask("me", "use", shown["enclave"], "--at", shown["node"])
    assert [each["name"] for each in device.ask_json("me", "list")] == ["Diary"]


def test_a_stranger_s_store_is_not_used(owner: Person, tmp_path: Path) -> None:
    (shown,) = owner.ask_json("me", "show")
    stranger = with_key(tmp_path / "eve", shown["node"])
    assert stranger.refused("me", "use", shown["enclave"], code=1)["code"] == "UNAUTHORIZED"
    assert "no personal store" in stranger.refused("me", "list", code=2)["message"]


def test_the_profile(owner: Person) -> None:
    owner.ask(
        "me", "profile", "--bio", "counts", "--avatar", "https://example.org/a", "--set", "age=36", "--set", "x=y"
    )
    assert owner.ask_json("me", "profile")[0]["profile"] == {
        "display_name": "Ada",
        "bio": "counts",
        "avatar": "https://example.org/a",
        "age": 36,
        "x": "y",
    }
    owner.ask("me", "profile", "--name", "Ada L.", "--unset", "avatar", "--unset", "age", "--unset", "x")
    assert owner.ask("me", "profile").stdout == "bio           counts\ndisplay_name  Ada L.\n"
    assert "FIELD=VALUE" in owner.refused("me", "profile", "--set", "x", code=2)["message"]


def test_posts(owner: Person) -> None:
    owner.ask("me", "post", "one")
    (two,) = owner.ask_json("me", "post", "-", stdin="two\n")
    assert [json.loads(each["content"])["text"] for each in owner.ask_json("me", "posts")] == ["one", "two\n"]
    assert owner.ask("me", "posts").stdout.splitlines()[0].endswith("\tone")
    owner.ask("me", "unpost", str(two["seq"]))
    assert len(owner.ask_json("me", "posts")) == 1
    assert owner.refused("me", "unpost", str(two["seq"]), code=1)["code"] == "EVENT_NOT_FOUND"


def test_documents(owner: Person) -> None:
    (diary,) = owner.ask_json("me", "add", "Diary", "It rained.")
    (owner.home / "soup.md").write_text("leek\npotato\n")
    owner.ask("me", "add", "Soup", "--file", "soup.md", "--kind", "recipe")
    assert [(each["name"], each["kind"]) for each in owner.ask_json("me", "list")] == [
        ("Diary", "note"),
        ("Soup", "recipe"),
    ]
    (found,) = owner.ask_json("me", "list", "POTATO", "soup")
    assert owner.ask("me", "cat", found["id"][:12]).stdout == "leek\npotato\n\n"
    owner.ask("me", "edit", str(diary["seq"]), "It rained again.", "--name", "Dear diary")
    assert owner.ask_json("me", "cat", diary["id"])[0]["text"] == "It rained again."
    assert owner.ask_json("me", "list")[0]["name"] == "Dear diary"
    owner.ask("me", "rm", diary["id"][:8])
    assert [each["name"] for each in owner.ask_json("me", "list")] == ["Soup"]
    for word in (diary["id"], "999", "ab"):
        assert owner.refused("me", "cat", word, code=1)["code"] == "EVENT_NOT_FOUND"
    assert "give a text" in owner.refused("me", "edit", found["id"], code=2)["message"]


def test_a_document_that_does_not_open_is_told_of(owner: Person) -> None:
    (shown,) = owner.ask_json("me", "show")
    (bad,) = owner.ask_json("commit", "private", "odd", "--enclave", shown["enclave"])
    result = owner.ask("me", "list")
    assert (result.stdout, f"{bad['seq']} (" in result.stderr) == ("", True)
    assert owner.refused("me", "cat", str(bad["seq"]), code=1)["code"] == "DECRYPT_FAILED"
    owner.ask("me", "rm", str(bad["seq"]))
    assert owner.ask("me", "list").stderr == ""


def test_the_gate_and_dataviews(owner: Person, running_node: RunningNode) -> None:
    view = Identity.new().hex
    with Client(running_node.url, Identity.load(owner.key()), pins=None) as client:
        owner.ask("me", "use", Personal.create(client, bundle=AT_ONCE).enclave.hex)
    owner.ask("me", "grant", view, "--endpoint", "https://view.example/push")
    owner.ask("me", "gate", "closed")
    assert "open or closed" in owner.refused("me", "gate", "ajar", code=2)["message"]
    assert [each["identity"] for each in owner.ask_json("me", "dataviews")] == [view]
    assert owner.ask_json("me", "gate") == [{"open": False}]
    owner.ask("me", "revoke", view)
    owner.ask("me", "gate", "open")
    assert (owner.ask_json("me", "dataviews"), owner.ask_json("me", "gate")) == ([], [{"open": True}])


def test_a_post_says_who_can_see_it(owner: Person, running_node: RunningNode) -> None:
    view, other = Identity.new().hex, Identity.new().hex
    first = owner.ask("me", "post", "hello").stderr.splitlines()
    assert first == [
        f"you and the operator of the node {running_node.url} can read it: a post is not sealed",
        "nobody else can read it at the node",
    ]
    owner.ask("me", "know", "view", view)
    for who in (view, other):
        owner.ask("me", "grant", who)
    pushed = owner.ask("me", "post", "hello").stderr.splitlines()[-1]
    assert pushed.startswith(f"the node pushes it to view ({view[:8]}…), {other}, and these services may show it to")
    (wire,) = owner.ask_json("me", "post", "hello")
    assert wire["audience"] == {
        "public": False,
        "readers": [],
        "pushed": [view, other],
        "notified": [],
        "complete": True,
    }
    owner.ask("me", "use", owner.ask_json("enclave", "create", "personal-v1")[0]["enclave"])
    assert owner.ask("me", "post", "hello").stderr == f"anybody can read it at {running_node.url}\n"


def test_a_post_stays_posted_if_nobody_knows_who_can_see_it(owner: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Personal) -> None:
        raise Unauthorized("not today")

    monkeypatch.setattr(Personal, "audience", fail)
    assert owner.ask("me", "post", "one").stderr == "posted; who can see it could not be read: not today\n"
    assert owner.ask_json("me", "post", "two")[0]["audience"] is None
    assert len(owner.ask_json("me", "posts")) == 2


def test_people_who_may_read_a_post_or_hear_of_it() -> None:
    fan, bell = bytes(32), bytes([1]) * 32
    lines = audience_lines(Audience(False, (fan,), (), (bell,), is_complete=False), "http://n", {fan: "Fan"})
    assert lines[1:] == [
        "Fan (00000000…) can read it at the node",
        f"the node tells {bell.hex()} that there is a post, without its text",
        "others may see it, too: you may not read all events that give rights",
    ]


def test_a_dataview_that_is_not_proved_yet_is_marked(ada: Person, running_node: RunningNode) -> None:
    view = Identity.new().hex
    with Client(running_node.url, Identity.load(ada.key()), pins=None) as client:
        ada.ask("me", "use", Personal.create(client, bundle=LATE).enclave.hex)
    ada.ask("me", "grant", view)
    result = ada.ask("me", "dataviews", "--timeout", "0.05")
    assert result.stdout == f"{view}\tnot proved yet\n"
    assert "not proved yet" in result.stderr
    assert ada.ask_json("me", "dataviews", "--timeout", "0.05") == [{"identity": view, "proved": False}]


def test_the_address_book(owner: Person) -> None:
    bob, carol = Identity.new().hex, Identity.new().hex
    assert owner.ask_json("me", "contacts") == []
    owner.ask("me", "know", "Bob", bob, "--store", "ab" * 32, "--at", "https://node.example")
    owner.ask("me", "know", "bob", bob, "--mailbox", "cd" * 32)
    assert owner.ask_json("me", "contacts") == [
        {
            "name": "bob",
            "identity": bob,
            "enclaves": {
                "dm": {"enclave": "cd" * 32, "node": None},
                "personal": {"enclave": "ab" * 32, "node": "https://node.example"},
            },
        }
    ]
    assert bob in owner.refused("me", "know", "Bob", carol, code=2)["message"]
    owner.ask("me", "know", "Bob", carol, "--again")
    assert owner.ask_json("me", "whois", "BOB") == [{"identity": carol, "name": "Bob", "source": "book"}]
    assert owner.ask_json("me", "whois", bob) == [{"identity": bob, "name": "", "source": "key"}]
    assert "--at: needs" in owner.refused("me", "know", "X", bob, "--at", "https://x.example", code=2)["message"]
    owner.ask("me", "forget", "bob")
    assert "no person named" in owner.refused("me", "whois", "bob", code=2)["message"]
    assert "no contact in" in owner.refused("me", "forget", "bob", code=2)["message"]


# Between people


class Neighbours:
    """Ada at node "a" and Bob at node "b", both in the registry."""

    def __init__(self, home: Path, place: Town) -> None:
        self.place, self.word = place, os.urandom(5).hex()
        self.ada = with_key(home / "ada", place.nodes["a"].url, place.text)
        self.bob = with_key(home / "bob", place.nodes["b"].url, place.text)
        self.ada.ask("me", "create", "--name", f"Ada {self.word}")
        self.bob.ask("me", "create", "--name", f"Bob {self.word}")

    def group(self) -> str:
        """Create a group of Ada's."""
        ada = Identity.load(self.ada.key())
        with Client(self.place.nodes["a"].url, ada, pins=None, registry=self.place.registry) as client:
            found = Group.create(client, bundle=AT_ONCE)
            found.enclave.register(app="group")
            return found.hex


@pytest.fixture
def neighbours(tmp_path: Path, place: Town) -> Neighbours:
    return Neighbours(tmp_path, place)


def test_an_invitation_from_its_writing_to_its_reading(neighbours: Neighbours) -> None:
    ada, bob, group = neighbours.ada, neighbours.bob, neighbours.group()
    name = f"bob {neighbours.word}"
    args = ["me", "notify", name, "group_invite", group, "--of", "group", "--topic", "Soup", "--greeting", "come"]
    result = ada.ask(*args, stdin="n\n", code=1)  # an entry in the registry alone is not enough to write to somebody
    assert identity(bob) in result.stderr
    assert ada.ask_json("me", "contacts") == []
    ada.ask(*args, "--yes")
    assert ada.ask_json("me", "contacts")[0]["identity"] == identity(bob)
    assert "1 not proved: do not act on them" in bob.ask("me", "notices").stderr
    (pending,) = bob.ask_json("me", "notices")
    assert (pending["state"], pending["actionable"], pending["claims"]["topic"]) == ("pending", False, "Soup")
    about = bob.ask("me", "notices").stdout.rstrip("\n").split("\t")[-1]
    assert about == f"UNPROVED: Soup come ({pending['reason']})"
    ada.ask("move", identity(bob), "OUTSIDER", "MEMBER", "--enclave", group)
    (found,) = bob.ask_json("me", "notices")
    assert (found["state"], found["actionable"], found["claims"]["enclave_id"]) == ("confirmed", True, group)
    assert "Soup come" in bob.ask("me", "notices").stdout
    bob.ask("me", "dismiss", str(found["seq"]))
    assert bob.ask_json("me", "notices", "--all") == []


def test_what_is_refuted_is_shown_once_if_asked_for_and_is_gone(neighbours: Neighbours) -> None:
    ada, bob, group = neighbours.ada, neighbours.bob, neighbours.group()
    (other,) = ada.ask_json("move", Identity.new().hex, "OUTSIDER", "MEMBER", "--enclave", group)
    ada.ask("move", identity(bob), "OUTSIDER", "MEMBER", "--enclave", group)
    args = ["me", "notify", identity(bob), "group_invite", group, "--of", "group"]
    ada.ask(*args, "--move", other["id"])
    for _ in range(2):
        assert bob.ask_json("me", "notices", "--all", "--keep")[0]["state"] == "refuted"
    assert bob.ask_json("me", "notices") == []
    assert bob.ask_json("me", "notices", "--all") == []


def test_a_store_that_no_registry_knows_is_named(neighbours: Neighbours, owner: Person) -> None:
    (shown,) = owner.ask_json("me", "show")
    args = ["me", "notify", shown["identity"], "x-poke", "ab" * 32, "--of", "x"]
    assert "the personal store of" in neighbours.ada.refused(*args, code=2)["message"]
    assert "--store" in neighbours.ada.refused(*args, "--at", shown["node"], code=2)["message"]
    neighbours.ada.ask(*args, "--store", shown["enclave"], "--at", shown["node"])
    (found,) = owner.ask_json("me", "notices", "--all")
    assert found["author"] == identity(neighbours.ada)
    neighbours.ada.ask("me", "know", "far", shown["identity"], "--store", shown["enclave"], "--at", shown["node"])
    neighbours.ada.ask("me", "notify", "far", "x-poke", "ab" * 32, "--of", "x")
    assert len(owner.ask_json("me", "notices", "--all")) == 2


def test_a_name_in_the_book_is_not_taken_over_by_a_registered_one(neighbours: Neighbours) -> None:
    ada, friend = neighbours.ada, Identity.new().hex
    ada.ask("me", "know", f"bob {neighbours.word}", friend)
    part = f"ob {neighbours.word}"  # the key of a name in the registry
    assert friend in ada.refused("me", "whois", part, "--yes", code=2)["message"]
    assert [each["identity"] for each in ada.ask_json("me", "contacts")] == [friend]


def test_no_registered_name_stands_for_a_prefix(neighbours: Neighbours) -> None:
    digits = os.urandom(4).hex()
    neighbours.bob.ask("me", "create", "--again", "--name", digits)
    for more in ((), ("--yes",)):
        error = neighbours.ada.refused("me", "whois", digits, *more, code=2)
        assert error["message"].startswith(f"{digits}: no key that you know starts with this")


def test_a_store_is_announced_to_a_registry_that_comes_later(owner: Person, place: Town) -> None:
    assert "no registry" in owner.refused("me", "announce", code=2)["message"]
    registry = ("--registry", place.text)
    owner.ask("me", "announce", *registry)
    (shown,) = owner.ask_json("me", "show")
    assert owner.ask_json("registry", "lookup", identity(owner), *registry)[0]["enclaves"] == {
        "personal": shown["enclave"]
    }


def test_a_name_of_the_registry_is_printed_and_kept_only_if_that_is_asked_for(neighbours: Neighbours) -> None:
    ada, name = neighbours.ada, f"Bob {neighbours.word}"
    hint = {"identity": identity(neighbours.bob), "name": name, "source": "registry"}
    assert ada.ask_json("me", "whois", name) == [hint]
    assert identity(neighbours.bob) in ada.ask("me", "whois", name).stdout
    assert ada.ask_json("me", "contacts") == []
    assert identity(neighbours.bob) in ada.ask("me", "whois", name, "--yes").stdout
    assert [each["name"] for each in ada.ask_json("me", "contacts")] == [name]
    assert ada.ask_json("me", "whois", name)[0]["source"] == "book"


def test_it_is_told_that_there_are_more_notices_than_were_asked_about(neighbours: Neighbours) -> None:
    ada, bob, group = neighbours.ada, neighbours.bob, neighbours.group()
    for _ in range(3):
        ada.ask("me", "notify", f"Bob {neighbours.word}", "group_invite", group, "--of", "group", "--yes")
    assert "more were not verified" not in bob.ask("me", "notices").stderr
    result = bob.ask("me", "notices", "--all", "--limit", "1", "--json")
    assert len(result.stdout.splitlines()) == 1
    assert "2 more were not verified: enc me notices --limit 3" in bob.ask("me", "notices", "--limit", "1").stderr
