"""The program accepts every `enc …` command in the documents."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from enc.cli import app
from tests.documents import GUIDES, NAMES, blocks, prose, simple_commands

PROGRAM = get_command(app)


def lines(name: str) -> Iterator[tuple[str, ...]]:
    """Yield the `enc` commands in shell blocks, including unlabelled blocks that begin with a command."""
    for block in blocks(name, "sh", ""):
        if block.kind or re.match(r"(make|enc|\.venv/bin/enc) ", block.text):
            for words in simple_commands(block.text):
                if words and words[0] in ("enc", ".venv/bin/enc"):
                    yield tuple(words[1:])


def resolved(words: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """Return the command or the group of commands that the words name, and the remaining words."""
    command: Any = PROGRAM
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check(words: tuple[str, ...]) -> None:
    """Check that the program accepts these words, without running them."""
    command, rest = resolved(words)
    assert not hasattr(command, "commands"), f"no such command: enc {' '.join(words)}"
    command.make_context("enc", list(rest))


TYPED = [(name, words) for name in NAMES for words in lines(name)]


@pytest.mark.parametrize(("name", "words"), TYPED, ids=lambda each: each if isinstance(each, str) else " ".join(each))
def test_a_line_of_shell_is_taken_by_the_program(name: str, words: tuple[str, ...]) -> None:
    check(words)


@pytest.mark.parametrize("name", [*GUIDES, "README.md", "docs/operations.md", "docs/commands.md", "docs/group.md"])
def test_lines_are_found(name: str) -> None:
    assert any(found == name for found, _ in TYPED)


@pytest.mark.parametrize(
    "line", ["enc qurey", "enc key", "enc query --sinse 1", "enc delete", "enc enclave info one-too-many"]
)
def test_a_line_that_the_program_does_not_take_is_found_out(line: str) -> None:
    (words,) = simple_commands(line)
    with pytest.raises((AssertionError, SystemExit, Exception)):
        check(tuple(words[1:]))


def test_commands_are_found_wherever_a_shell_runs_them() -> None:
    shell = """\
A=1 B="two words" enc one \\
    --more  # a remark
for x in *; do enc two "$x" > out; done
cd here && C=$(enc three --json | head -1)
date | enc four -
"""
    found = [words for words in simple_commands(shell) if words[:1] == ["enc"]]
    assert found == [["enc", "one", "--more"], ["enc", "two", "$x"], ["enc", "three", "--json"], ["enc", "four", "-"]]


SPOKEN = sorted(
    {
        (name, words)
        for name in NAMES
        if name != "CHANGELOG.md"  # it may name commands that were removed
        for words in re.findall(r"`enc ((?:[a-z-]+ ?)+[^`]*)`", prose(name))
        if not words.startswith("node run …")
    }
)


@pytest.mark.parametrize(("name", "words"), SPOKEN)
def test_a_command_that_is_named_in_passing_is_there_with_its_flags(name: str, words: str) -> None:
    first = words.split("|")[0].split()
    command, rest = resolved(tuple(first))
    assert not hasattr(command, "commands") or not rest or rest[0][0] in "-…", f"no such command: enc {words}"
    known = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
    flags = {word.split("=")[0] for word in rest if re.match(r"--[a-z]", word)}
    assert flags <= known, flags - known
