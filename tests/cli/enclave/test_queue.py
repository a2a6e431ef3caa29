"""`enc queue`: commits are stored without a node, and sent when there is one."""

import sqlite3
from typing import Any

import pytest

from enc.cli.common import profiles
from enc.client import Identity
from enc.client.commit_queue.queue_file import QueueFile
from enc.core.log.commit import build_commit
from enc.runtime.clock import now_ms
from tests.cli.people import Person

GONE = "http://127.0.0.1:9"
"""A node that nothing answers for."""


def contents(person: Person) -> list[str]:
    return [event["content"] for event in person.ask_json("query", "--type", "message")]


def states(found: list[Any]) -> list[tuple[int, str]]:
    return [(each["number"], each["state"]) for each in found]


def test_commits_wait_until_they_are_sent(alice: Person) -> None:
    for text in ("one", "two"):
        ((number, state),) = states(alice.ask_json("queue", "add", "message", text, "--tag", "a=1"))
        assert (number > 0, state) == (True, "waiting")
    assert contents(alice) == []
    assert states(alice.ask_json("queue", "list")) == [(1, "waiting"), (2, "waiting")]
    sent = alice.ask_json("queue", "send")
    assert states(sent) == [(1, "accepted"), (2, "accepted")]
    assert [each["receipt"]["seq"] for each in sent] == [1, 2]
    assert contents(alice) == ["one", "two"]
    assert alice.ask_json("queue", "list") == alice.ask_json("queue", "send") == []
    assert (alice.home / ".local/share/enc/queue.db").stat().st_mode & 0o777 == 0o600


def test_a_node_that_is_away_is_no_error_when_a_commit_is_added(alice: Person) -> None:
    alice.ask("queue", "add", "message", "later", "--node", GONE, "--queue", "mine.db")
    result = alice.ask("queue", "send", "--queue", "mine.db", "--wait", "0", code=3)
    assert "waiting" in result.stdout
    assert "UNREACHABLE" in result.stdout
    assert "enc: is the node running?" in result.stderr
    (waiting,) = alice.ask_json("queue", "list", "--queue", "mine.db")
    assert (waiting["state"], waiting["commit"]["content"]) == ("waiting", "later")


def test_rejected_commits_are_kept_and_may_be_tried_again(alice: Person) -> None:
    alice.ask("queue", "add", "nothing of the manifest", "x")
    alice.ask("queue", "add", "message", "next")
    result = alice.ask("queue", "send", code=1)
    first, second = result.stdout.splitlines()
    assert first.split("\t")[:2] == ["1", "rejected"]
    assert first.split("\t")[5].startswith("UNAUTHORIZED: ")
    assert second.split("\t")[1::4] == ["accepted", "event 1"]
    assert "enc: `enc key show` prints your identity" in result.stderr
    assert alice.ask("queue", "list").stderr == result.stderr
    assert "`enc queue discard NUMBER` removes it" in result.stderr
    (kept,) = alice.ask_json("queue", "list")
    assert (kept["state"], kept["error"]["code"]) == ("rejected", "UNAUTHORIZED")
    alice.ask("queue", "retry", "1")
    assert states(alice.ask_json("queue", "list")) == [(1, "waiting")]
    alice.ask("queue", "discard", "1")
    assert alice.ask_json("queue", "list") == []
    assert "has no commit 1" in alice.ask("queue", "discard", "1", code=2).stderr
    assert f"has no commit {10**23}" in alice.ask("queue", "discard", str(10**23), code=2).stderr
    assert f"has no rejected commit {10**23}" in alice.ask("queue", "retry", str(10**23), code=2).stderr
    assert "has no rejected commit 1" in alice.ask("queue", "retry", "1", code=2).stderr


def test_an_oversized_commit_is_refused(alice: Person) -> None:
    (alice.home / "big").write_text("x" * 1_100_000)
    refused = alice.ask("commit", "message", "--file", alice.home / "big", code=1)
    queued = alice.ask("queue", "add", "message", "--file", alice.home / "big", code=1)
    assert "content: over 1048576 bytes" in queued.stderr
    assert queued.stderr == refused.stderr
    assert alice.ask_json("queue", "list") == []


def test_a_damaged_commit_stops_no_other(alice: Person) -> None:
    for text in ("one", "two"):
        alice.ask("queue", "add", "message", text)
    with sqlite3.connect(alice.home / ".local/share/enc/queue.db") as db:
        db.execute("UPDATE enc_commit_queue SET signed = '[1]' WHERE number = 1")
    db.close()
    assert states(alice.ask_json("queue", "list")) == [(2, "waiting"), (1, "damaged")]
    sent = alice.ask("queue", "send", code=1)
    assert "`enc queue discard 1`" in sent.stdout
    assert contents(alice) == ["two"]
    alice.ask("queue", "discard", "1")
    assert alice.ask_json("queue", "list") == []


@pytest.mark.parametrize("wait", ["-1", "nan", "inf"])
def test_a_wait_that_is_no_time(alice: Person, wait: str) -> None:
    assert "--wait" in alice.ask("queue", "send", f"--wait={wait}", code=2).stderr


def test_an_empty_type(alice: Person) -> None:
    for command in (["commit"], ["queue", "add"]):
        assert "type: must not be empty" in alice.ask(*command, "", "x", code=1).stderr


def test_the_node_on_the_command_line_is_tried_before_the_recorded_one(alice: Person) -> None:
    node = profiles.read(alice.config)["default"]["node"]
    alice.ask("queue", "add", "message", "wrong node", "--node", GONE)
    alice.ask("queue", "send", "--wait", "0", code=3)
    alice.ask("queue", "send", "--wait", "0", "--node", node)
    assert contents(alice) == ["wrong node"]


def test_the_list_shows_how_a_content_begins(alice: Person) -> None:
    alice.ask("queue", "add", "message", "short")
    alice.ask("queue", "add", "message", "x" * 41)
    cells = [line.split("\t")[4] for line in alice.ask("queue", "list").stdout.splitlines()]
    assert cells == ["short", "x" * 39 + "…"]


def test_a_commit_that_has_just_expired(alice: Person) -> None:
    key, enclave = Identity.load(alice.key()).key, profiles.read(alice.config)["default"]["enclave"]
    alice.ask("queue", "list", "--queue", "mine.db")
    file = QueueFile(alice.home / "mine.db", key.public)
    file.add(build_commit(key, bytes.fromhex(enclave), "message", "late", now_ms() - 1000), None)
    file.close()
    result = alice.ask("queue", "send", "--queue", "mine.db", "--wait", "0", code=3)
    assert "EXPIRED: the commit is signed again within a minute" in result.stderr
    assert "clock" not in result.stderr
