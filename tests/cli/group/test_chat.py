"""`enc group chat`: at a real terminal (a pseudo-terminal), and without one."""

import json
import os
import signal
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from enc.apps.group import Change, Group
from enc.cli.chat.source import AWAY, BACK
from enc.cli.common import profiles
from enc.cli.group.chat import GroupChat
from enc.cli.group.slash_commands import GroupCommands
from enc.cli.group.view import GroupView
from enc.client import Client
from enc.core.errors import Unavailable
from tests.cli.group_people import Friend, Friends, let_in
from tests.cli.people import PATIENCE_S
from tests.node.running import RunningNode


def test_history_then_live_and_what_is_typed_is_sent(ann: Friend, bob: Friend) -> None:
    ann.one("say", "plans", "hello, bob")
    with bob.at_terminal("group", "chat", "plans") as seat:
        seat.sees("ann: hello, bob")
        seat.sees("plans: the summer | 2 members | epoch 1 fresh | you: member")
        seat.types("hello, ann\r")
        seat.sees("you: hello, ann")
        ann.one("say", "plans", "how are you?")
        seat.sees("ann: how are you?")
        seat.types("\x04")
        assert seat.ends() == 0
    assert [text for _, text in ann.read()] == ["hello, bob", "hello, ann", "how are you?"]


def test_what_is_being_typed_stays_when_something_comes(ann: Friend, bob: Friend) -> None:
    with bob.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: member")
        seat.types("half a sent")
        seat.sees("half a sent")
        ann.one("say", "plans", "in between")
        seat.sees("ann: in between")
        seat.sees("> half a sent")
        seat.types("ence\r")
        seat.sees("you: half a sentence")
        seat.types("/quit\r")
        assert seat.ends() == 0


def test_replies_reactions_edits_and_deletions_are_seen_as_they_happen(ann: Friend, bob: Friend) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        seq = bob.one("say", "plans", "helo")["seq"]
        seat.sees("bob: helo")
        seat.types(f"/reply {seq} hello yourself\r")
        seat.sees(f"> #{seq} bob: helo")
        seat.sees("you: hello yourself")
        seat.types(f"/react {seq} 👍\r")
        seat.sees(f"you react 👍 to #{seq} bob: helo")
        bob.one("edit", "plans", str(seq), "hello")
        seat.sees(f"bob edits #{seq} bob: hello")
        seat.types("/history\r")
        seat.sees("bob: hello  (edited) [👍 you]")
        seat.types(f"/unreact {seq}\r")
        seat.sees("you remove a reaction to")
        bob.one("delete", "plans", str(seq))
        seat.sees(f"bob deletes #{seq}")
        seat.types("\x04")
        assert seat.ends() == 0


def test_people_come_and_go_and_the_epoch_stays_fresh_by_an_admin_s_chat(
    ann: Friend, bob: Friend, friend: Friends
) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("2 members | epoch 1 fresh")
        bob.one("leave", "plans")
        seat.sees("bob is no longer a member")
        seat.sees("epoch 2 by you")
        seat.sees("1 member | epoch 2 fresh")
        cleo = friend("cleo")
        seat.types(f"/invite {cleo.identity.hex}\r")
        seat.sees("is a member now, by you")
        seat.sees("epoch 3 by you")
        seat.shows("they were not notified: the personal store of")
        seat.shows(f"send them the group's id: {ann.group[:8]}")
        seat.types("/who\r")
        seat.sees(cleo.identity.hex)
        seat.types("\x04")
        assert seat.ends() == 0


def test_in_a_stale_group_a_line_is_entered_twice(ann: Friend, bob: Friend, friend: Friends) -> None:
    cleo = let_in(ann, friend("cleo"), "cleo")
    with bob.at_terminal("group", "chat", "plans") as seat:
        seat.sees("3 members | epoch 2 fresh")
        cleo.one("leave", "plans")
        seat.sees("the group's epoch is stale: people who left since the last epoch can read")
        seat.sees("2 members | epoch 2 STALE")
        seat.types("is she gone?\r")
        seat.sees("Enter it again to send it anyway.")
        seat.sees("is she gone?")
        seat.types("\x15/status\r")
        seat.sees("epoch 2 STALE; 2 members")
        assert bob.read() == []
        seat.types("is she gone?\r\r")
        seat.sees("you: is she gone?")
        ann.one("say", "plans", "now she is")
        seat.sees("epoch 3 by ann")
        seat.sees("ann: now she is")
        seat.types("good\r")
        seat.sees("you: good")
        seat.types("\x04")
        assert seat.ends() == 0
    assert [text for _, text in ann.read()] == ["is she gone?", "now she is", "good"]


def test_what_is_refused_is_told_and_the_chat_goes_on(ann: Friend, bob: Friend) -> None:
    seq = ann.one("say", "plans", "hello")["seq"]
    with bob.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: member")
        seat.types(f"/delete {seq}\r")
        seat.sees("! NOT_AN_ADMIN")
        seat.types("/bad\r")
        seat.sees("! MISUSE: /bad: unknown command; /help lists all commands")
        seat.types("/reply 7\r")
        seat.sees("use: /reply NUMBER TEXT")
        seat.types("//bad\r")
        seat.sees("you: /bad")
        seat.types("/help\r")
        seat.sees("/quit")
        seat.types("\x03")
        assert seat.ends() == 0


def test_who_is_put_out_sees_so_and_the_chat_ends(ann: Friend, bob: Friend) -> None:
    with bob.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: member")
        ann.one("remove", "plans", "bob")
        assert seat.ends() == 2
        assert "enc: NOT_A_MEMBER: " in seat.seen


def test_nothing_that_others_say_commands_the_terminal(ann: Friend, bob: Friend) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202eevil\r\n\x9b2J"
    bob.one("profile", "plans", evil)
    ann.ask("me", "forget", "bob")
    bob.one("say", "plans", evil)
    ann.one("topic", "plans", evil)
    bob.one("react", "plans", str(bob.read()[0][0]), evil)
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        bob.one("say", "plans", f"live {evil}")
        seat.sees("live ")
        seat.types("/who\r")
        seat.sees("owner, admin  ")
        seat.types("/topic\r")
        seat.sees("topic: ")
        seat.types("\x04")
        assert seat.ends() == 0
        for command in ("\x1b]0;owned", "\x1b[2J", "\u202e", "\x9b"):
            assert command not in seat.raw


def test_the_terminal_is_left_as_it_was(ann: Friend) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        assert not seat.echoes()
        seat.types("\x04")
        assert seat.ends() == 0
        assert seat.echoes()
        assert "\x1b[?2004h" in seat.raw
        assert "\x1b[?2004l" in seat.raw


def test_a_terminal_of_another_size_is_drawn_anew(ann: Friend) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        seat.resize(29)
        seat.sees("plans: the summer | 1 member\n>")
        seat.types("\x04")
        assert seat.ends() == 0


def test_a_paste_of_lines_is_one_message(ann: Friend) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        seat.types("\x1b[200~one\rtwo\x1b[201~")
        seat.sees("one")
        seat.sees("two")
        seat.types("\r")
        seat.sees("you: one")
        seat.types("\x04")
        assert seat.ends() == 0
    assert [text for _, text in ann.read()] == ["one\ntwo"]


def test_a_node_that_was_away_for_longer_than_a_command_waits(tmp_path: Path) -> None:
    """The chat continues: no message is missing, and messages written meanwhile are sent in order, each once."""
    with RunningNode(tmp_path / "node") as node:
        ann = Friend(tmp_path / "ann", node.url)
        ann.group = ann.one("create", "plans")["enclave"]
        bob = let_in(ann, Friend(tmp_path / "bob", node.url), "bob")
        with bob.at_terminal("group", "chat", "plans", "--timeout", "0.2") as seat:
            seat.sees("you: member")
            ann.one("say", "plans", "live")
            seat.sees("ann: live")  # the chat is subscribed
            node.kill()
            seat.types("anybody?\r")
            seat.sees("… anybody?")
            seat.shows("! not sent yet; the chat tries again: UNREACHABLE")
            seat.shows(f"! {AWAY}")
            seat.types("hello?\r/announce no\rlast\r")
            seat.shows("offline, trying again | 4 waiting | plans")
            with RunningNode(tmp_path / "node", "--port", node.url.rpartition(":")[2]):
                seat.shows(f"! {BACK}")
                seat.shows("you: last")
                seat.shows("! NOT_AN_ADMIN")
                ann.one("say", "plans", "back again")
                seat.shows("ann: back again")
                seat.types("/quit\r")
                assert seat.ends() == 0
                assert [text for _, text in ann.read()] == ["live", "anybody?", "hello?", "last", "back again"]


def test_a_long_topic_leaves_room_for_what_matters(ann: Friend) -> None:
    ann.one("topic", "plans", "the summer and all that comes after it " * 9)
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("plans: the summer and all that… | 1 member | epoch 0 fresh | you: owner, admin")
        seat.types("\x04")
        assert seat.ends() == 0


def test_a_profile_is_told_in_words(ann: Friend, bob: Friend) -> None:
    with ann.at_terminal("group", "chat", "plans") as seat:
        seat.sees("you: owner, admin")
        bob.one("profile", "plans", "Bobby")
        seat.sees("* bob changes their profile")
        seat.types("/profile Ann\r")
        seat.sees("* you change your profile")
        seat.types("\x04")
        assert seat.ends() == 0


def test_a_move_is_told_in_words() -> None:
    author = bytes(32)
    group = SimpleNamespace(me=b"", person=lambda who: SimpleNamespace(profile=None))
    view = GroupView(group, {author: "ann"})  # type: ignore[arg-type]
    change = Change(kind="lifecycle", seq=1, id=bytes(32), author=author, timestamp=0, type="Migrate")
    assert [line.text for line in view.change(change)] == ["ann moves the group to another node"]


def test_a_chat_outlasts_a_node_that_fails_while_it_heals(
    ann: Friend, bob: Friend, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = profiles.read(ann.config)["default"]["node"]
    with Client(node, ann.identity, pins=None) as client, Client(node, ann.identity, pins=None) as listens:
        group = Group(client, ann.group)
        group.sync()
        view = GroupView(group, {})
        talk = GroupChat(group, listens.enclave(ann.group), "plans", view, None, PATIENCE_S)  # type: ignore[arg-type]
        heal, fails = group._try_heal, [Unavailable("not now"), Unavailable("still not")]

        def flap() -> None:
            if fails:
                raise fails.pop()
            heal()

        monkeypatch.setattr(group, "_try_heal", flap)
        bob.one("say", "plans", "are you there?")
        with closing(talk):
            live = talk.live()
            assert (next(live).warning, talk.is_away) == (AWAY, True)
            assert (next(live).warning, talk.is_away) == (BACK, False)
            assert talk.status.startswith("plans")
            assert next(live).lines[0].text == "are you there?"
        assert not fails


# Without a terminal


def test_lines_are_sent_and_shown_and_it_ends_with_stdin(ann: Friend, bob: Friend) -> None:
    ann.one("say", "plans", "hello")
    printed = bob.run("group", "chat", "plans", stdin="hi\n/reply 5 hello yourself\nlast, without an end")
    said = [line.split("  ", 2)[2] for line in printed.splitlines()]
    assert said == ["ann: hello", "you: hi", "you: hello yourself  (re #5 ann: hello)", "you: last, without an end"]
    assert bob.stderr == ""


def test_what_is_refused_is_told_on_stderr_and_by_the_exit_code(ann: Friend, bob: Friend) -> None:
    bob.run("group", "chat", "plans", stdin="/announce hear, hear\n/bad\nhello\n", code=1)
    assert "/bad: unknown command" in bob.stderr
    assert len(bob.stderr.splitlines()) == 2
    assert [text for _, text in ann.read()] == ["hello"]


def test_programs_get_an_object_for_each_thing(ann: Friend, bob: Friend) -> None:
    ann.one("say", "plans", "hello")
    entry, change = bob.json("group", "chat", "plans", stdin="hi\n")
    assert (entry["entry"]["text"], entry["entry"]["author"]) == ("hello", ann.identity.hex)
    assert (change["change"]["kind"], change["change"]["entry"]["text"]) == ("message", "hi")
    told = bob.json("group", "chat", "plans", "--history", "0", stdin="/status\n")
    assert told["told"].startswith("epoch 1 fresh")


def test_history_is_as_long_as_asked_for(ann: Friend) -> None:
    for text in ("one", "two", "three"):
        ann.one("say", "plans", text)
    assert len(ann.run("group", "chat", "plans", "--history", "2").splitlines()) == 2


def test_it_stays_and_listens_if_it_is_told_to(ann: Friend, bob: Friend) -> None:
    with bob.start("group", "chat", "plans", "--stay", "--json", "--history", "1") as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write("hello\n")
            process.stdin.close()
            assert json.loads(process.stdout.readline())["change"]["entry"]["text"] == "hello"
            ann.one("say", "plans", "are you there?")
            assert json.loads(process.stdout.readline())["change"]["entry"]["text"] == "are you there?"
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        finally:
            process.kill()


def test_a_member_without_a_terminal_is_told_that_the_group_is_stale(ann: Friend, bob: Friend, friend: Friends) -> None:
    let_in(ann, friend("cleo"), "cleo").one("leave", "plans")
    bob.run("group", "chat", "plans", stdin="hello\n")
    assert "people who left since the last epoch can read" in bob.stderr


def test_who_is_no_member_is_told_so(ann: Friend, friend: Friends) -> None:
    cleo = friend("cleo")
    cleo.run("group", "chat", ann.group, code=2)
    assert "NOT_A_MEMBER" in cleo.stderr


@pytest.mark.parametrize("line", ["", "   ", "/who", "/nothing"])
def test_what_seals_nothing_is_not_asked_about(line: str) -> None:
    assert not GroupCommands.seals(line)


@pytest.mark.parametrize("line", ["a", " a", "//a", "/reply 1 a", "/react 1 a", "/edit 1 a", "/announce a"])
def test_what_seals_something(line: str) -> None:
    assert GroupCommands.seals(line)
