"""The diagrams in the documents have the form that Mermaid draws: known kinds, whole lines, brackets that close."""

import re

import pytest

from tests.documents import NAMES, Block, blocks

PICTURES = [(f"{name}:{block.line}", block) for name in NAMES for block in blocks(name, "mermaid")]

_TEXT = r'"[^"]*"'
_SHAPE = rf"(?:\[{_TEXT}\]|\(\[{_TEXT}\]\)|\[\({_TEXT}\)\]|\{{{_TEXT}\}})"
_NODE = rf"\w+{_SHAPE}?"
_ARROW = rf"(?:-->|-\.->)(?:\|(?:{_TEXT}|[\w ]+)\|)?"
_FLOW = re.compile(rf"{_NODE}(?: {_ARROW} {_NODE})*")
_SUBGRAPH = re.compile(rf"subgraph \w+(?:\[{_TEXT}\])?")
_NAMED = re.compile(r"participant (\w+)(?: as [\w' -]+)?")
_SAID = re.compile(r"(\w+)(?:->>|-->>)(\w+): [^;#]+")
RESERVED = {"end", "graph", "subgraph", "flowchart", "style", "class", "click", "default", "linkStyle"}
"""Names that Mermaid does not accept for a node."""


def check_flowchart(lines: list[str]) -> None:
    depth = 0
    for line in lines:
        if line == "end":
            depth -= 1
            assert depth >= 0, "an end too many"
        elif line.startswith("subgraph"):
            assert _SUBGRAPH.fullmatch(line), line
            depth += 1
        else:
            assert _FLOW.fullmatch(line), line
            assert not RESERVED & set(re.findall(r"\w+", re.sub(rf"{_TEXT}|\|[^|]*\|", "", line))), line
    assert depth == 0, "a subgraph without its end"


def check_sequence(lines: list[str]) -> None:
    known = {found[1] for line in lines if (found := _NAMED.fullmatch(line))}
    for line in lines:
        if not _NAMED.fullmatch(line):
            said = _SAID.fullmatch(line)
            assert said, line
            assert {said[1], said[2]} <= known, line


def check_picture(text: str) -> None:
    kind, *lines = [line.strip() for line in text.splitlines() if line.strip()]
    assert lines, "an empty picture"
    if re.fullmatch(r"flowchart (LR|TD|BT)", kind):
        check_flowchart(lines)
    elif kind == "sequenceDiagram":
        check_sequence(lines)
    else:
        raise AssertionError(f"a kind that is not known: {kind}")


@pytest.mark.parametrize("block", [block for _, block in PICTURES], ids=[place for place, _ in PICTURES])
def test_a_picture_has_a_form_that_is_drawn(block: Block) -> None:
    check_picture(block.text)


@pytest.mark.parametrize(
    "name", ["docs/concepts.md", "docs/architecture.md", "docs/dataview.md", "docs/apps.md", "docs/group.md"]
)
def test_there_are_pictures(name: str) -> None:
    assert any(place.startswith(name) for place, _ in PICTURES)


@pytest.mark.parametrize(
    "text",
    [
        "flowchart XX\n a --> b",
        "flowchart LR",
        'flowchart LR\n a["open --> b',
        'flowchart LR\n a["x"] --> b["y")',
        "flowchart LR\n a -> b",
        "flowchart LR\n a --> end",
        "flowchart LR\n subgraph x\n a --> b",
        "flowchart LR\n a --> b\n end",
        "sequenceDiagram\n participant a\n a->>b: hello",
        "sequenceDiagram\n participant a\n a->>a",
        "pie\n a --> b",
    ],
)
def test_a_picture_that_cannot_be_drawn_is_found_out(text: str) -> None:
    with pytest.raises(AssertionError):
        check_picture(text)
