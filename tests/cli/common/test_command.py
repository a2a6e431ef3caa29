"""Every command: its help, its examples, its place in docs/cli.md; and completion."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from enc.cli import app
from enc.cli.common.failures import HELP
from tests.cli.people import Person
from tests.node.running import RunningNode

DOCUMENT = (Path(__file__).parents[3] / "docs/cli.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, sub in command.commands.items():
            yield from leaves(sub, (*path, name))
    else:
        yield path, command


COMMANDS = dict(leaves(get_command(app)))
OURS = [path for path in COMMANDS if path[0] not in ("node", "witness")]


def named(line: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the command in a line of shell, and its arguments."""
    words = shlex.split(line, comments=True)
    words = words[words.index("enc") + 1 :]
    words = words[: words.index(">")] if ">" in words else words[: words.index("|")] if "|" in words else words
    path = next(path for path in COMMANDS if tuple(words[: len(path)]) == path)
    return path, words[len(path) :]


def parses(line: str) -> tuple[str, ...]:
    """Check that the command accepts these arguments, without running it; return its name."""
    path, arguments = named(line)
    COMMANDS[path].make_context(" ".join(path), arguments)
    return path


LINES = [line for block in BLOCKS for line in block.splitlines()]


@pytest.mark.parametrize("line", LINES)
def test_every_example_of_the_document_parses(line: str) -> None:
    parses(line)


def test_every_command_is_in_the_document() -> None:
    assert {parses(line) for line in LINES} == set(COMMANDS)


OWN_CODES: dict[tuple[str, ...], str] = {
    ("audit",): "0 no findings; 1 findings; 2 the audit is incomplete, or wrong use."
}


@pytest.mark.parametrize("path", OURS, ids=" ".join)
def test_every_command_has_help_with_examples_that_parse_json_and_the_exit_codes(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    examples = re.findall(r"Example: (.*)", command.epilog)
    assert examples
    assert all(parses(example) == path for example in examples if example.startswith("enc "))
    assert command.epilog.endswith(OWN_CODES.get(path, HELP))
    assert command.help
    assert "--json" in {flag for parameter in command.params for flag in parameter.opts}


def test_a_help_is_shown(anybody: Person) -> None:
    shown = " ".join(anybody.ask("commit", "--help").stdout.split())
    assert 'Example: enc commit message "hello"' in shown
    assert (
        "--enclave ID The enclave's id, or its first digits. Default: ENC_ENCLAVE, or the profile's."
        in shown.replace("│ ", "")
    )


def test_the_first_lines_of_the_document_run(anybody: Person, running_node: RunningNode) -> None:
    for line in BLOCKS[0].splitlines():
        path, arguments = named(line)
        arguments = [word.replace("http://127.0.0.1:7700", running_node.url) for word in arguments]
        result = anybody.ask(*path, *arguments)
    assert result.stdout.endswith("\thello\n")


def test_the_document_names_every_exit_code_and_variable() -> None:
    rows = dict(re.findall(r"^\| (\d+) \| (\w[\w ]*)", DOCUMENT, re.MULTILINE))
    assert sorted(map(int, rows)) == [0, 1, 2, 3, 4, 130]
    source = "".join(path.read_text() for path in (Path(__file__).parents[3] / "src/enc/cli").rglob("*.py"))
    variables = set(re.findall(r"\bENC_(?!NODE_|DEBUG)[A-Z]+\b", source))
    assert variables == set(re.findall(r"\bENC_[A-Z]+\b", DOCUMENT))


def test_completion_is_there_for_every_command(anybody: Person) -> None:
    environment: dict[str, Any] = {"_ENC_COMPLETE": "complete_bash", "COMP_WORDS": "enc enclave ", "COMP_CWORD": "2"}
    assert anybody.run(**environment).split() == ["create", "info", "members", "list"]
    assert "--install-completion" in anybody.ask("--help").stdout
