"""Parses the documents: their code blocks, and the shell commands in them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
GUIDES = tuple(f"docs/guide-{user}.md" for user in ("app-developer", "operator", "data-engineer", "auditor"))
NAMES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "vectors/README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
)

_FENCE = re.compile(r"^(?P<fence>```+)(?P<kind>[\w-]*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    text: str
    line: int
    """The line of the document at which it begins."""


def text_of(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(name: str, *kinds: str) -> Iterator[Block]:
    text = text_of(name)
    for found in _FENCE.finditer(text):
        if found["kind"] in kinds:
            yield Block(found["kind"], found["text"], text.count("\n", 0, found.start()) + 1)


def prose(name: str) -> str:
    """Return the document without its code blocks."""
    return _FENCE.sub("", text_of(name))


def simple_commands(shell: str) -> Iterator[list[str]]:
    """Yield the arguments of every command in shell code, without assignments, redirections and keywords."""
    joined = shell.replace("\\\n", " ")
    for line in joined.splitlines():
        words = list[str]()
        for word in _tokens(re.sub(r"(?:^|(?<=\s))#.*", "", line)):
            if set(word) <= set("();<>|&"):
                yield _command(words)
                words = [word] if word[0] in "<>" else []
            else:
                words.append(word)
        yield _command(words)


def _tokens(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(lexer)


def _command(words: list[str]) -> list[str]:
    if words and words[0][0] in "<>":
        words = words[2:]
    while words and (words[0] in ("do", "then", "else") or re.match(r"\w+=", words[0])):
        words = words[1:]
    return words
