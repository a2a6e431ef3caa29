"""`enc dm` with people on two nodes, whom a registry lists; and over a link that holds back the node's answers."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.dm.mailboxes import know, thread_of, with_mailbox
from tests.cli.people import PATIENCE_S, Watch, with_key
from tests.cli.slow_link import SlowLink
from tests.client.moved import Town, town
from tests.node.running import RunningNode


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("far"), "a", "b") as found:
        yield found


def test_by_names_of_the_registry_alone(tmp_path: Path, place: Town) -> None:
    """No key or enclave is exchanged: a name is looked up once, and stays valid."""
    word = os.urandom(5).hex()
    ada = with_key(tmp_path / "ada", place.nodes["a"].url, place.text)
    bob = with_key(tmp_path / "bob", place.nodes["b"].url, place.text)
    ada.ask("dm", "create", "--name", f"Ada {word}")
    (made,) = bob.ask_json("dm", "create", "--name", f"Bob {word}")
    refused = ada.ask("dm", "add", f"bob {word}", "--greeting", "hi", stdin="n\n", code=1)
    assert made["identity"] in refused.stderr
    assert (bob.ask_json("dm", "invites"), ada.ask_json("dm", "contacts")) == ([], [])
    ada.ask("dm", "add", f"bob {word}", "--greeting", "hi", "--yes")
    (invite,) = bob.ask_json("dm", "invites")
    bob.ask("dm", "accept", invite["identity"])
    bob.ask("dm", "send", f"ADA {word}", "hello", "--yes")
    ada.ask("dm", "send", f"Bob {word}", "found you")
    assert thread_of(ada, f"bob {word}") == [
        ("hi", "delivered", False),
        ("hello", "received", False),
        ("found you", "delivered", False),
    ]
    assert [text for text, *_ in thread_of(bob, f"ada {word}")] == ["hi", "hello", "found you"]


def test_a_mailbox_is_kept_once_it_was_reached(tmp_path: Path, running_node: RunningNode) -> None:
    alice = with_mailbox(tmp_path / "alice", running_node)
    bob = with_mailbox(tmp_path / "bob", running_node)
    alice.ask("me", "know", "bob", bob.hex)  # type: ignore[attr-defined]
    wrong = ("--mailbox", "ab" * 32, "--at", "http://127.0.0.1:1", "--timeout", "1")
    assert alice.refused("dm", "add", "bob", *wrong, code=3)["code"] == "UNREACHABLE"
    assert alice.ask_json("me", "contacts")[0]["enclaves"] == {}
    alice.ask("dm", "add", "bob", "--mailbox", bob.mailbox)  # type: ignore[attr-defined]
    assert alice.ask_json("me", "contacts")[0]["enclaves"]["dm"]["enclave"] == bob.mailbox  # type: ignore[attr-defined]


def test_a_chat_over_a_slow_link(tmp_path: Path, running_node: RunningNode) -> None:
    """Lines that are typed while the link is held are sent later, in order; messages of others appear in between."""
    with SlowLink(running_node.url) as link:
        alice = with_mailbox(tmp_path / "alice", link)  # type: ignore[arg-type]
        bob = with_mailbox(tmp_path / "bob", running_node)
        know(alice, "bob", bob)
        know(bob, "alice", alice)
        alice.ask("dm", "add", "bob", "--greeting", "hi")
        bob.ask("dm", "accept", "alice")
        bob.ask("dm", "send", "alice", "hello")
        with alice.start("dm", "chat", "bob", "--json") as process:
            chat = Watch(process)
            try:
                assert [chat.next()["text"] for _ in range(2)] == ["hi", "hello"]
                link.hold()
                assert process.stdin is not None
                process.stdin.write("one\ntwo\n")
                process.stdin.close()
                process.stdin = None
                link.wait_until_something_is_held(PATIENCE_S)
                bob.ask("dm", "send", "alice", "are you there?")
                assert process.poll() is None, "typed lines are not dropped"
                link.release()
                assert process.wait(PATIENCE_S) == 0
                chat.reader.join(PATIENCE_S)
            finally:
                link.release()
                process.kill()
        shown = [json.loads(line) for line in chat.rest()]
    ended = [(each["text"], each["state"]) for each in shown if each["state"] != "pending"]
    assert [each for each in ended if each[0] != "are you there?"] == [("one", "delivered"), ("two", "delivered")]
    assert ended.count(("are you there?", "received")) == 1
    assert sorted(text for text, *_ in thread_of(bob, "alice")[2:]) == ["are you there?", "one", "two"]
