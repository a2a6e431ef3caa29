"""`enc commit`, `enc update`, `enc delete`, `enc grant`: the commits that they send."""

import json
from typing import Any

import pytest

import enc.client
from enc.cli.common.failures import NO_ANSWER
from enc.client import Unreachable
from tests.cli.people import Person


def last(person: Person) -> Any:
    return person.ask_json("query", "--reverse", "--limit", "1")[0]


def test_content_is_an_argument_a_file_or_stdin_as_it_is(alice: Person) -> None:
    (alice.home / "letter").write_text("é\n\n")
    for args, stdin, content in (
        (["plain"], None, "plain"),
        ([""], None, ""),
        (["-"], "piped\n", "piped\n"),
        (["--file", "letter"], None, "é\n\n"),
        (["--file", "-"], "piped", "piped"),
        (["--", "--file"], None, "--file"),
    ):
        alice.ask("commit", "message", *args, stdin=stdin)
        assert last(alice)["content"] == content


def test_a_receipt_is_the_protocol_s_with_its_enclave(alice: Person) -> None:
    (receipt,) = alice.ask_json("commit", "message", "hello")
    event = last(alice)
    shared = ("id", "hash", "timestamp", "sequencer", "seq", "sig", "seq_sig", "enclave")
    assert receipt == {"type": "Receipt", **{name: event[name] for name in shared}}
    lines = dict(line.split(maxsplit=1) for line in alice.ask("commit", "message", "again").stdout.splitlines())
    assert (lines["seq"], lines["id"]) == ("2", last(alice)["id"])


def test_tags_are_written(alice: Person) -> None:
    alice.ask("commit", "message", "x", "--tag", "a=1=2", "--tag", "b")
    assert last(alice)["tags"] == [["a", "1=2"], ["b"]]
    alice.ask("update", "1", "y", "--tag", "c=3")
    assert last(alice)["tags"][1:] == [["c", "3"]]


def test_an_event_is_named_by_its_seq_or_its_id(alice: Person) -> None:
    (one,), (two,) = alice.ask_json("commit", "message", "one"), alice.ask_json("commit", "message", "two")
    alice.ask("update", "1", "new")
    assert last(alice)["tags"] == [["r", one["id"]]]
    alice.ask("delete", two["id"])
    assert last(alice)["tags"] == [["r", two["id"]]]


def test_a_moderator_says_so(alice: Person) -> None:
    alice.ask("commit", "message", "one")
    alice.ask("delete", "1", "--moderator")
    assert json.loads(last(alice)["content"]) == {"reason": "moderator"}


def test_a_grant_may_name_an_endpoint(alice: Person) -> None:
    (me,) = alice.ask_json("key", "show")
    alice.ask("grant", me["public"], "admin", "--endpoint", "https://example.org/push")
    assert json.loads(last(alice)["content"])["endpoint"] == "https://example.org/push"


@pytest.mark.parametrize(("flags", "seconds"), [([], 10.0), (["--timeout", "0.5"], 0.5)])
def test_a_node_is_tried_for_as_long_as_is_said(
    alice: Person, flags: list[str], seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def client(url: str, identity: object, **more: Any) -> None:
        asked.append(more)
        raise Unreachable(url)

    monkeypatch.setattr(enc.client, "Client", client)
    alice.ask("commit", "message", "x", *flags, code=NO_ANSWER)
    settings = enc.client.ClientSettings()
    assert asked == [{"timeout": seconds, "patience": seconds, "registry": None, "settings": settings}]


def test_a_checked_content_satisfies_its_schema(alice: Person) -> None:
    alice.ask("enclave", "create", "ledger", "--use")
    alice.ask("commit", "entry", '{"amount":1,"currency":"EUR"}', "--check")
    for args in (("commit", "entry"), ("update", "1")):
        refused = alice.refused(*args, '{"amount":"1","currency":"EUR"}', "--check", code=1)
        assert refused["code"] == "INVALID_CONTENT"
        assert refused["message"] == "entry: amount: expected integer, not '1'"
    assert "no schema" in alice.refused("commit", "note", "{}", "--check", code=2)["message"]
    assert len(alice.ask_json("query", "--type", "entry")) == 1
