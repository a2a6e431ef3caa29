"""A line that is being typed: every key that it knows, and what it does with others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.cli.chat.line_editor import MAX_HISTORY, MAX_LINE, Ended, LineEditor

UP, DOWN, RIGHT, LEFT = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D"


def typed(*keys: str) -> LineEditor:
    editor = LineEditor()
    assert list(editor.feed("".join(keys).encode())) == []
    return editor


@pytest.mark.parametrize("enter", ["\r", "\n"])
def test_lines_come_out_as_they_are_entered(enter: str) -> None:
    editor = LineEditor()
    assert list(editor.feed(f"one{enter}two{enter}thr".encode())) == ["one", "two"]
    assert (editor.text, editor.cursor) == ("thr", 3)
    assert list(editor.feed(f"ee{enter}{enter}".encode())) == ["three", ""]


def test_a_letter_may_come_in_parts() -> None:
    editor, data = LineEditor(), "👍é".encode()
    for i in range(len(data)):
        assert list(editor.feed(data[i : i + 1])) == []
    assert editor.text == "👍é"


@pytest.mark.parametrize(
    ("keys", "text", "cursor"),
    [
        (["abc", LEFT, LEFT, "x"], "axbc", 2),
        (["abc", LEFT, LEFT, RIGHT, "x"], "abxc", 3),
        (["abc", *[LEFT] * 9, "x"], "xabc", 1),
        (["abc", RIGHT, "x"], "abcx", 4),
        (["abc", "\x02\x02\x06", "x"], "abxc", 3),
        (["abc", "\x01", "x"], "xabc", 1),
        (["abc", "\x1b[H", "x", "\x1b[F", "y"], "xabcy", 5),
        (["abc", "\x1b[1~", "x", "\x1b[4~", "y"], "xabcy", 5),
        (["abc", "\x1bOH", "x", "\x1bOF", "y"], "xabcy", 5),
        (["abc", "\x01\x05", "x"], "abcx", 4),
        (["abc", "\x7f"], "ab", 2),
        (["abc", "\x08\x08\x08\x08"], "", 0),
        (["abc", LEFT, "\x7f"], "ac", 1),
        (["abc", LEFT, "\x1b[3~"], "ab", 2),
        (["abc", LEFT, "\x04"], "ab", 2),
        (["abc", LEFT, LEFT, "\x0b"], "a", 1),
        (["abc", LEFT, "\x15"], "c", 0),
        (["one two  ", "\x17"], "one ", 4),
        (["one two", LEFT, "\x17"], "one o", 4),
        (["one", "\x17\x17"], "", 0),
        (["a\x1b[1;5Cb"], "ab", 2),
        (["a\x1b[99zb"], "ab", 2),
        (["a\x1bxb"], "ab", 2),
        (["a\x00\x07\tb"], "ab", 2),
        (["a\u202eb"], "ab", 2),
        (["a\x1ab"], "ab", 2),
        (["\x1b[200~a\tb\x03\x04\x15c\x1b[201~"], "a bc", 4),
    ],
)
def test_keys(keys: list[str], text: str, cursor: int) -> None:
    editor = typed(*keys)
    assert (editor.text, editor.cursor) == (text, cursor)


def test_an_escape_sequence_that_never_ends_is_given_up() -> None:
    assert typed("\x1b[" + "1" * 40 + "b").text == "1" * 9 + "b"


def test_lines_of_before_come_back() -> None:
    editor = LineEditor()
    list(editor.feed(b"one\rtwo\rtwo\r\rdraft"))
    seen = []
    for key in (UP, UP, UP, DOWN, DOWN, DOWN, "\x10", "\x0e"):
        list(editor.feed(key.encode()))
        seen.append(editor.text)
    assert seen == ["two", "one", "one", "two", "draft", "draft", "two", "draft"]


def test_what_is_remembered_is_bounded() -> None:
    editor = LineEditor()
    list(editor.feed("".join(f"{i}\r" for i in range(MAX_HISTORY + 5)).encode()))
    list(editor.feed((UP * (MAX_HISTORY + 5)).encode()))
    assert editor.text == "5"


def test_a_line_is_bounded() -> None:
    assert len(typed("x" * (MAX_LINE + 10)).text) == MAX_LINE


@pytest.mark.parametrize("keys", ["\x03", "abc\x03", "\x04", "a\x7f\x04"])
def test_ways_out(keys: str) -> None:
    with pytest.raises(Ended):
        list(LineEditor().feed(keys.encode()))


def test_a_paste_may_have_lines() -> None:
    editor = typed("\x1b[200~one\rtwo\n\x1b[201~")
    assert editor.text == "one\ntwo\n"
    assert list(editor.feed(b"\r")) == ["one\ntwo\n"]


@pytest.mark.parametrize(
    ("text", "moves", "width", "shown", "column"),
    [
        ("abc", 0, 10, "abc", 3),
        ("abcdefghij", 0, 5, "ghij", 4),
        ("abcdefghij", 10, 5, "abcde", 0),
        ("abcdefghij", 7, 5, "abcde", 3),
        ("ab\x1b[200~\n\x1b[201~c", 0, 9, "ab⏎c", 4),
        ("日本語", 0, 5, "本語", 4),
        ("日本語", 1, 9, "日本語", 4),
    ],
)
def test_the_part_around_the_cursor_is_shown(text: str, moves: int, width: int, shown: str, column: int) -> None:
    assert typed(text, *[LEFT] * moves).shown(width) == (shown, column)


@given(st.text(max_size=60) | st.binary(max_size=60), st.integers(1, 30))
def test_whatever_is_typed_the_cursor_is_in_the_line_and_nothing_commands_the_terminal(
    keys: str | bytes, width: int
) -> None:
    editor = LineEditor()
    data = keys.encode(errors="replace") if isinstance(keys, str) else keys
    try:
        for line in editor.feed(data):
            assert line.replace("\n", "").isprintable()
    except Ended:
        return
    assert 0 <= editor.cursor <= len(editor.text)
    shown, column = editor.shown(width)
    assert shown.isprintable()
    assert 0 <= column <= width
