"""The input line of a chat: keys, pastes, history, and input that is never accepted."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from enc.cli.chat.screen import MAX_LINE, TerminalUi, clean
from enc.cli.chat.slash_commands import ChatEnded

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"
LEAVE = "\x15\x04"


@contextmanager
def wakeup() -> Iterator[int]:
    reader, writer = os.pipe()
    try:
        yield reader
    finally:
        os.close(reader)
        os.close(writer)


def typed(*keys: str, enter: Callable[[TerminalUi, str], Any] = lambda ui, line: None) -> list[str]:
    """Return the lines that are entered by these keys, until the end of the chat."""
    lines: list[str] = []
    with wakeup() as fd, create_pipe_input() as keyboard, create_app_session(keyboard, DummyOutput()):
        ui = TerminalUi(keyboard, DummyOutput())

        def entered(line: str) -> None:
            lines.append(line)
            enter(ui, line)

        # A pipe takes less than a long line at once: another thread fills it.
        sender = threading.Thread(target=keyboard.send_text, args=("".join(keys),), daemon=True)
        sender.start()
        chat = SimpleNamespace(wakeup_fd=fd, handle_events=lambda: None, sending=[], status="", enter=entered)
        with pytest.raises(ChatEnded):
            ui.run(chat)  # type: ignore[arg-type]
        sender.join()
    return lines


def edited(*keys: str) -> str:
    """Return the line after these keys, with a mark where the cursor is."""
    (line,) = typed(*keys, "|", "\r", LEAVE)
    return line


@pytest.mark.parametrize("enter", ["\r", "\n"])
def test_lines_come_out_as_they_are_entered(enter: str) -> None:
    assert typed(f"one{enter}two{enter}thr", f"ee{enter}{enter}", LEAVE) == ["one", "two", "three", ""]


def test_letters_of_several_bytes() -> None:
    assert edited("👍é") == "👍é|"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (["abc", LEFT, LEFT], "a|bc"),
        (["abc", LEFT, LEFT, RIGHT], "ab|c"),
        (["abc", *[LEFT] * 9], "|abc"),
        (["abc", RIGHT], "abc|"),
        (["abc", "\x02\x02\x06"], "ab|c"),
        (["abc", "\x01"], "|abc"),
        (["abc", "\x1b[H", "x", "\x1b[F", "y"], "xabcy|"),
        (["abc", "\x1b[1~", "x", "\x1b[4~", "y"], "xabcy|"),
        (["abc", "\x1bOH", "x", "\x1bOF", "y"], "xabcy|"),
        (["abc", "\x01\x05"], "abc|"),
        (["abc", "\x7f"], "ab|"),
        (["abc", "\x08\x08\x08\x08"], "|"),
        (["abc", LEFT, "\x7f"], "a|c"),
        (["abc", LEFT, "\x1b[3~"], "ab|"),
        (["abc", LEFT, "\x04"], "ab|"),
        (["abc", LEFT, LEFT, "\x0b"], "a|"),
        (["abc", LEFT, "\x15"], "|c"),
        (["one two  ", "\x17"], "one |"),
        (["one two", LEFT, "\x17"], "one |o"),
        (["one", "\x17\x17"], "|"),
        (["one two\x1b[1;5D"], "one |two"),
    ],
)
def test_keys(keys: list[str], line: str) -> None:
    assert edited(*keys) == line


@pytest.mark.parametrize("key", ["\x00", "\x07", "\t", "\u202e", "\x1a", "\x11\x07", "\x9b", "\x1b[200~\x1b[201~"])
def test_control_characters_are_not_inserted(key: str) -> None:
    assert edited("a", key, "b") == "ab|"


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ([UP], "two"),
        ([UP, UP], "one"),
        ([UP, UP, UP], "one"),
        ([UP, UP, DOWN], "two"),
        ([UP, UP, DOWN, DOWN], "draft"),
        ([UP, DOWN, DOWN], "draft"),
        (["\x10"], "two"),
        (["\x10", "\x0e"], "draft"),
    ],
)
def test_lines_of_before_come_back(keys: list[str], line: str) -> None:
    """A line that is entered twice is in the history once."""

    def enter(ui: TerminalUi, entered: str) -> None:
        if entered == "":  # the history is loaded when the prompt is drawn
            asyncio.get_running_loop().call_later(0.2, ui._session.input.send_text, "".join([*keys, "\r", LEAVE]))  # type: ignore[attr-defined]

    assert typed("one\rtwo\rtwo\r", "\r", "draft", enter=enter)[-1] == line


def test_a_line_is_bounded() -> None:
    assert typed(f"\x1b[200~{'x' * (MAX_LINE + 10)}\x1b[201~", "\r", LEAVE) == ["x" * MAX_LINE]


@pytest.mark.parametrize("keys", ["\x03", "abc\x03", "\x04", "a\x7f\x04"])
def test_ways_out(keys: str) -> None:
    assert typed(keys) == []


def test_a_paste_may_have_lines() -> None:
    assert typed("\x1b[200~one\rtwo\r\nthree\n\x1b[201~", "\r", LEAVE) == ["one\ntwo\nthree\n"]


def test_a_paste_cannot_press_keys() -> None:
    assert edited("\x1b[200~a\tb\x03\x04\x15c\x1b[201~") == "a bc|"


def test_a_line_that_is_put_back_can_be_changed_and_entered_again() -> None:
    def enter(ui: TerminalUi, line: str) -> None:
        if line == "draft":
            ui.restore_input(line)

    assert typed("draft\r", "\x7f!\r", LEAVE, enter=enter) == ["draft", "draf!"]


def test_an_error_of_a_line_ends_the_chat() -> None:
    def enter(ui: TerminalUi, line: str) -> None:
        raise ChatEnded

    assert typed("one\rtwo\r", enter=enter)[0] == "one"


def test_an_error_of_an_event_ends_the_chat() -> None:
    def fail() -> None:
        raise OSError("gone")

    with wakeup() as fd, create_pipe_input() as keyboard, create_app_session(keyboard, DummyOutput()):
        ui = TerminalUi(keyboard, DummyOutput())

        async def event() -> None:
            ui._guard(fail)

        def enter(line: str) -> None:
            asyncio.get_running_loop().create_task(event())

        keyboard.send_text("x\r")
        chat = SimpleNamespace(wakeup_fd=fd, handle_events=fail, sending=["x"], status="s", enter=enter)
        with pytest.raises(OSError, match="gone"):
            ui.run(chat)  # type: ignore[arg-type]


def test_rows_are_printed_at_once_without_a_prompt_and_control_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalUi(output=DummyOutput()).warn("a\x1b[2Jb", about="c\x07" * 30)
    printed = capsys.readouterr().out
    assert "a\\x1b[2Jb" in printed
    assert "\x07" not in printed


@given(st.text(max_size=60))
def test_a_clean_text_commands_no_terminal(text: str) -> None:
    assert clean(text).replace("\n", "").isprintable()
    assert clean(clean(text)) == clean(text)


@settings(max_examples=30, deadline=None)
@given(st.text(max_size=30))
def test_whatever_is_typed_no_line_commands_a_terminal(keys: str) -> None:
    text = keys.encode(errors="replace").decode().replace("\x1b", "")
    for line in typed(text, "\r", "\x03"):
        assert line.replace("\n", "").isprintable()
