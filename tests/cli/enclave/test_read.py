"""`enc query`, `enc watch`, `enc get`, `enc enclave …`: their requests and their output."""

import json
import time
from datetime import datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace

from enc.cli.common import output
from enc.cli.common.command_context import CommandContext
from enc.cli.common.event_flags import as_ms, as_search, as_seq, as_tag, as_tags
from enc.cli.enclave import commands
from enc.cli.enclave.read import _row, wire_item
from enc.client import Item, Overview
from enc.client.enclave.templates import names
from enc.core.errors import MisuseError
from enc.core.log.event import erase
from enc.core.log.withheld import wire_withheld
from enc.core.primitives.types import TreeHead
from tests.cli.people import LATE, Person, team
from tests.core.world import GROUP, World, withheld

HEAD = TreeHead(0, 0, b"", b"")

# Flags


def test_a_search_says_what_the_flags_say() -> None:
    assert as_search() == dict.fromkeys(["type", "author", "tags", "id", "seq", "timestamp"])
    assert as_search(["a", "b"], ["c"], ["t=1"], ["d"], "3:4", "5", "6") == {
        "type": ["a", "b"],
        "author": ["c"],
        "tags": {"t": ["1"]},
        "id": ["d"],
        "seq": {"start_at": 3, "end_at": 4},
        "timestamp": {"start_at": 5, "end_before": 6},
    }


def test_tags() -> None:
    assert [as_tag(text) for text in ("a", "a=", "a=b=c")] == [("a",), ("a", ""), ("a", "b=c")]
    assert as_tags(["a", "b=1", "b=2", "b"]) == {"a": True, "b": ["1", "2"]}


@pytest.mark.parametrize(
    ("text", "seq"),
    [("7", 7), ("3:9", {"start_at": 3, "end_at": 9}), ("3:", {"start_at": 3}), (":9", {"end_at": 9})],
)
def test_seqs(text: str, seq: Any) -> None:
    assert as_seq(text) == seq


@pytest.mark.parametrize("text", ["", ":", "a", "-1", "1-2", "1:2:3", "1:b"])
def test_what_is_no_seq(text: str) -> None:
    with pytest.raises(MisuseError, match="--seq: expected"):
        as_seq(text)


def test_times(monkeypatch: pytest.MonkeyPatch) -> None:
    assert as_ms("1794756580483", "--since") == 1794756580483
    assert as_ms("2026-11-15T15:29:40.483Z", "--since") == 1794756580483
    assert as_ms("2026-11-15T16:29:40+01:00", "--since") == 1794756580000
    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        assert as_ms("2026-11-15", "--since") == 1794693600000
        assert output.format_time(1794756580483) == "2026-11-15 17:29:40+02:00"
    finally:
        monkeypatch.undo()
        time.tzset()
    for text in ("yesterday", "", "9999-99-99"):
        with pytest.raises(MisuseError, match="--until: expected a time"):
            as_ms(text, "--until")
    assert output.format_time(2**53) == f"{2**53} ms"


# Query


@pytest.fixture
def seqs(alice: Person) -> Any:
    """Return the seqs that a query finds in alice's enclave of three messages."""
    alice.ask("commit", "message", "one", "--tag", "n=1")
    alice.ask("commit", "message", "two", "--tag", "n=2", "--tag", "even")
    alice.ask("set", "topic", "x")

    def ask(*flags: str) -> list[int]:
        return [item["seq"] for item in alice.ask_json("query", *flags)]

    return ask


def test_a_query_finds_what_each_flag_asks_for(alice: Person, seqs: Any) -> None:
    events = alice.ask_json("query")
    (me,) = alice.ask_json("key", "show")
    assert [event["seq"] for event in events] == [0, 1, 2, 3]
    assert seqs("--type", "message", "--type", "Shared", "--author", me["public"], "--limit", "2") == [1, 2]
    assert seqs("--author", events[0]["sequencer"]) == []
    assert seqs("--id", events[1]["id"], "--id", events[3]["id"], "--reverse") == [3, 1]
    assert seqs("--seq", "1:2", "--tag", "n=1", "--tag", "n=2") == [1, 2]
    assert seqs("--tag", "n", "--tag", "even") == [2]
    second = events[2]["timestamp"]
    iso = datetime.fromtimestamp(second / 1000).astimezone().isoformat(timespec="milliseconds")
    assert seqs("--since", iso) == [event["seq"] for event in events if event["timestamp"] >= second]
    assert seqs("--until", iso) == [event["seq"] for event in events if event["timestamp"] < second]


def test_lines_for_people_hold_whole_values_and_nothing_that_commands_a_terminal(alice: Person) -> None:
    (me,) = alice.ask_json("key", "show")
    (made,) = alice.ask_json("commit", "message", "é\x1b[2J\ttab\nline [red]")
    line = alice.ask("query", "--type", "message").stdout
    cells = ["1", output.format_time(made["timestamp"]), "message", me["public"], "é\\x1b[2J\\ttab\\nline [red]\n"]
    assert line.split("\t") == cells
    assert alice.ask("query", "--type", "message", "--proof").stdout.split("\t")[4] == "1"


def test_a_table_on_a_terminal(alice: Person) -> None:
    alice.ask("commit", "message", "[red]" + "x" * 300)
    shown = alice.ask("query", "--type", "message", "--proof", FORCE_COLOR="1", COLUMNS="90").stdout.splitlines()
    header, row = [line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in shown]
    assert header.split() == ["seq", "time", "type", "author", "bundle", "content"]
    assert row.split()[0] == "1"
    assert "[red]xxx" in row
    assert row.rstrip().endswith("x…")
    assert len(row) == 90


def test_a_long_answer_is_several_tables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(output, "TABLE", 2)
    output.Output(False).rows(("a", "b"), (({}, (str(n), "x")) for n in range(5)))
    assert capsys.readouterr().out.count("\n") == 5 + 3


def test_an_updated_event_says_so(alice: Person) -> None:
    alice.ask("commit", "message", "--file", "team.json")
    alice.ask("update", "1", "new")
    assert alice.ask("query", "--seq", "1").stdout.rstrip().endswith("\t(updated)")


def test_a_withheld_content_names_the_node_s_reason_and_time() -> None:
    world = World(GROUP)
    event = withheld(world.send("alice", "message", "hello"))
    assert event.withheld is not None
    ctx = cast(CommandContext, output.Output(as_json=False))
    when = output.format_time(event.withheld.ts)
    wire, cells = _row(ctx, Item(event, "active"))
    assert cells[-1] == f"[withheld by the node since {when}: court_order]"
    assert (wire["content"], wire["withheld"]) == (None, wire_withheld(event.withheld))
    assert _row(ctx, Item(erase(event), "active"))[1][-1] == "(erased)"
    assert "withheld" not in wire_item(Item(erase(event), "active"))
    updated = Item(event, "updated", event.id)
    assert _row(ctx, updated)[1][-1] == "(updated)"
    assert "withheld" not in wire_item(replace(updated, judged="the Update's"))


def test_a_query_s_proof_is_a_proof_file(alice: Person) -> None:
    (item,) = alice.ask_json("query", "--seq", "0", "--proof")
    (alice.home / "p.json").write_text(output._json(item["proof"]))
    assert alice.ask_json("verify", "p.json")[0]["ok"] is True


def test_a_query_for_valid_or_invalid_events(alice: Person) -> None:
    alice.ask("enclave", "create", "ledger", "--use")
    for amount in (1, 1.5):
        alice.ask("commit", "entry", f'{{"amount":{amount},"currency":"EUR"}}')
    why = "amount: expected integer, not 1.5"
    assert [item["seq"] for item in alice.ask_json("query", "--type", "entry", "--valid")] == [1]
    (item,) = alice.ask_json("query", "--invalid", "--proof")
    assert (item["seq"], item["violations"], "proof" in item) == (2, [why], True)
    assert alice.ask("query", "--invalid").stdout.split("\t")[4] == why
    shown = alice.ask("query", "--invalid", FORCE_COLOR="1").stdout.splitlines()
    assert shown[0].replace("\x1b[1m", "").replace("\x1b[0m", "").split()[-2:] == ["violations", "content"]
    alice.ask("update", "1", '{"amount":7,"currency":"EUR"}')
    (item,) = alice.ask_json("query", "--type", "entry", "--valid")
    assert (item["content"], item["status"]) == ('{"amount":7,"currency":"EUR"}', "updated")
    line = alice.ask("query", "--type", "entry", "--valid").stdout
    assert line.rstrip().endswith('\t{"amount":7,"currency":"EUR"}')
    (refused,) = [alice.refused("query", "--type", "Move", "--valid", code=2)]
    assert "no schema for the type 'Move'" in refused["message"]


def test_info_names_schemas(alice: Person) -> None:
    alice.ask("enclave", "create", "ledger", "--use")
    lines = dict(line.split(maxsplit=1) for line in alice.ask("enclave", "info").stdout.splitlines())
    assert lines["schemas"] == "entry"
    assert alice.ask_json("enclave", "info")[0]["schema_problems"] == {}
    overview = Overview(b"", b"", {"enc_v": 2, "meta": {"schemas": {"a": 1}}}, 0, "active", HEAD, {})
    assert "ignored schemas  meta.schemas.a: expected an object: a schema" in commands._text_overview(overview)


def use_bundles(person: Person, bundle: dict[str, int]) -> None:
    """Use an enclave with these bundle settings."""
    (me,) = person.ask_json("key", "show")
    (person.home / "open.json").write_text(team(me["public"], bundle=bundle))
    person.ask("enclave", "create", "open.json", "--name", str(person.home), "--use")


def test_an_open_bundle_proves_nothing_yet(alice: Person) -> None:
    use_bundles(alice, LATE)
    (item,) = alice.ask_json("query", "--proof")
    assert item["proof"] is None
    assert alice.ask("query", "--proof").stdout.split("\t")[4] == "open"
    assert alice.refused("prove", "0", "--no-wait", code=1)["code"] == "EVENT_PENDING"


def test_a_proof_waits_until_the_bundle_is_closed(alice: Person) -> None:
    use_bundles(alice, {"timeout": 1000})
    assert json.loads(alice.ask("prove", "0").stdout)["event"]["anchor"]["li"] == 0


# Watch


def test_watch_ends_after_as_many_as_asked_for(alice: Person) -> None:
    alice.ask("commit", "message", "one")
    assert [item["seq"] for item in alice.ask_json("watch", "--after", "-1", "--limit", "2")] == [0, 1]
    assert alice.ask("watch", "--after", "0", "--limit", "1").stdout.endswith("\tone\n")


def test_watch_begins_with_what_comes_from_now_on(alice: Person) -> None:
    alice.ask("commit", "message", "before")
    with alice.watching() as watch:
        for _ in range(200):  # until it listens
            alice.ask("commit", "message", "now")
            if (item := watch.peek(0.1)) is not None:
                break
    assert item["content"] == "now"


def test_watch_of_an_enclave_that_ends(alice: Person) -> None:
    alice.ask("terminate")
    result = alice.ask("watch", "--after", "-1", code=1)
    assert [line.split("\t")[2] for line in result.stdout.splitlines()] == ["Manifest", "Terminate"]
    assert result.stderr.startswith("enc: ENCLAVE_TERMINATED: ")


# Slots


@pytest.mark.parametrize(
    ("args", "value", "shown"),
    [
        (["plain"], "plain", "plain"),
        (['"quoted"'], "quoted", "quoted"),
        (["1.50"], 1.5, "1.5"),
        (["true"], True, "true"),
        (['{"b": [], "a": 1}'], {"a": 1, "b": []}, '{"a":1,"b":[]}'),
        (["NaN"], "NaN", "NaN"),
        (["{broken"], "{broken", "{broken"),
        (["--text", "12"], "12", "12"),
        (["--", "-1"], -1, "-1"),
    ],
)
def test_a_value_is_json_or_else_text(alice: Person, args: list[str], value: Any, shown: str) -> None:
    alice.ask("set", "topic", *args)
    (event,) = alice.ask_json("query", "--type", "Shared")
    found = json.loads(event["content"])["value"]
    assert (found, type(found)) == (value, type(value))
    assert alice.ask("get", "topic").stdout == shown + "\n"


def test_own_slots_are_one_s_own(alice: Person) -> None:
    (me,) = alice.ask_json("key", "show")
    alice.ask("set", "nick", "al", "--own")
    assert alice.ask_json("get", "nick", "--own") == [{"key": "nick", "value": "al", "seq": 1, "proved": True}]
    assert alice.ask_json("get", "nick", "--owner", me["public"])[0]["value"] == "al"
    assert alice.ask_json("get", "nick")[0] == {"key": "nick", "value": None, "seq": None, "proved": True}
    alice.ask("set", "nick", "--unset", "--own")
    assert alice.ask_json("get", "nick", "--own")[0]["value"] is None


def test_a_slot_that_is_not_yet_proved_says_so(alice: Person) -> None:
    use_bundles(alice, LATE)
    alice.ask("set", "topic", "x")
    result = alice.ask("get", "topic")
    assert (result.stdout, result.stderr) == ("x\n", "not proved yet: no closed bundle contains it\n")


def test_a_slot_commands_no_terminal(alice: Person) -> None:
    alice.ask("set", "topic", "one\ntwo\x1b[2J")
    assert alice.ask("get", "topic").stdout == "one\ntwo\x1b[2J\n"
    assert alice.ask("get", "topic", FORCE_COLOR="1").stdout == "one\ntwo\\x1b[2J\n"


# Enclaves


def test_every_template_is_named_in_the_help(alice: Person) -> None:
    shown = " ".join(alice.ask("enclave", "create", "--help").stdout.replace("│", " ").split())
    *most, last = names()
    assert f"or a template: {', '.join(most)} or {last}." in shown


def test_each_call_creates_another_enclave_unless_its_name_is_given_again(alice: Person) -> None:
    made = [
        alice.ask_json("enclave", "create", *args)[0]["enclave"]
        for args in (["notes"], ["notes"], ["notes", "--name", "b"], ["team.json", "--name", "b"])
    ]
    assert len(set(made)) == 4
    named = ("enclave", "create", "notes", "--name", "b")
    assert alice.refused(*named, code=1)["code"] == "ENCLAVE_EXISTS"
    assert "to create another one of this kind, give another --name" in alice.ask(*named, code=1).stderr
    (info,) = alice.ask_json("enclave", "info", "--enclave", made[2])
    assert info["manifest"]["meta"]["name"] == "b"
    assert {pinned["enclave"] for pinned in alice.ask_json("enclave", "list")} == set(made)
    assert alice.ask("enclave", "list").stdout.count("\n") == 4


def test_only_use_changes_the_profile(alice: Person) -> None:
    before = alice.config.read_text()
    alice.ask("enclave", "create", "log")
    assert alice.config.read_text() == before
    (made,) = alice.ask_json("enclave", "create", "log", "--name", "b", "--use")
    assert alice.ask_json("config", "show")[0]["enclave"]["value"] == made["enclave"]


def test_info_and_members_for_people(alice: Person) -> None:
    (me,) = alice.ask_json("key", "show")
    lines = dict(line.split(maxsplit=1) for line in alice.ask("enclave", "info").stdout.splitlines())
    assert lines["lifecycle"] == "active"
    assert lines["traits"] == '["owner(0)","admin(1)"]'
    assert lines["head"].startswith("1 bundles, root ")
    assert alice.ask("enclave", "members").stdout == f"{me['public']}\tMEMBER\towner\n"
    assert alice.ask_json("enclave", "members")[0]["bundle"] == 0


def test_files_beside_the_pins_are_none(alice: Person) -> None:
    alice.ask("head")
    (alice.pins / "notes.json").write_text("{}")
    assert len(alice.ask_json("enclave", "list")) == 1
