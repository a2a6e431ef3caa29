"""A command imports only what it needs; and values of flags are converted with plain errors."""

import os
import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
import typer
from typer.main import get_group
from typer.testing import CliRunner

from enc.cli import MODULES, app
from enc.cli.common.lazy_commands import LazyCommands

SLOW = ("pydantic", "rich", "prompt_toolkit", "httpx._main", "enc.node", "enc.apps", "pyspark")
PROGRAM = """
import sys
from enc.cli import main
sys.argv = ["enc", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
print(*(name for name, module in sys.modules.items() if module), file=sys.stderr)
"""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_adds_the_commands_that_are_listed_for_it(module: str) -> None:
    whole = typer.Typer()
    whole.add_typer(import_module(module).app)
    assert list(get_group(whole).commands) == MODULES[module].split()


def test_commands_of_one_module_are_loaded_together_and_no_others() -> None:
    commands = LazyCommands(MODULES)
    assert commands["query"].name == "query"
    loaded = {name for name, command in commands._commands.items() if command is not None}
    assert loaded == {"query", "watch"}
    assert "nonsense" not in commands


@pytest.mark.parametrize("arguments", [["--version"], ["query", "--limit", "5", "--node", "http://127.0.0.1:9"]])
def test_a_command_does_not_import_what_it_does_not_need(arguments: list[str], tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(arguments=arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    loaded = done.stderr.splitlines()[-1].split()
    assert "enc.cli" in loaded
    assert [name for name in loaded if name in SLOW] == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["query", "--limit", "many"], "Invalid value for '--limit': expected a whole number, not 'many'"),
        (["query", "--limit", "1.5"], "Invalid value for '--limit': expected a whole number, not '1.5'"),
        (["query", "--timeout", "soon"], "Invalid value for '--timeout': expected a number, not 'soon'"),
        (["query", "--timeout", "0"], "Invalid value for '--timeout': expected at least 0.001, not 0"),
        (["query", "--timeout", "nan"], "Invalid value for '--timeout': expected at least 0.001, not nan"),
        (["up", "--port", "65536"], "Invalid value for '--port': expected at most 65535, not 65536"),
    ],
)
def test_a_value_of_a_flag_that_is_no_such_number_is_refused_plainly(arguments: list[str], error: str) -> None:
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert error in done.output
