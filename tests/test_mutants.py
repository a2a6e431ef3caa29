"""Mutation testing: which changes it makes, and that its lists are about modules and tests that exist."""

import ast
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from scripts.mutants import find_mutants

ROOT = Path(__file__).parents[1]
MODULES: dict[str, list[str]] = tomllib.loads((ROOT / "tests/mutation/modules.toml").read_text())
SOURCE = """
LIMIT = 3

class Door(Struct, frozen=True):
    \"\"\"A door.\"\"\"

    def check(self, key: "str" = "k") -> bool:
        if not self.is_open and len(key) <= LIMIT:
            raise Closed("the text of an error")
        return any(each for each in self.keys if each)
"""
NAMES = [
    "module: 3 -> 4",
    "Door: 'k' -> 'k_'",
    "Door.check: not self.is_open and len(key) <= LIMIT -> not self.is_open or len(key) <= LIMIT",
    "Door.check: not self.is_open and len(key) <= LIMIT -> len(key) <= LIMIT",
    "Door.check: not self.is_open and len(key) <= LIMIT -> not self.is_open",
    "Door.check: not self.is_open -> self.is_open",
    "Door.check: len(key) <= LIMIT -> len(key) < LIMIT",
    "Door.check: len(key) <= LIMIT -> len(key) > LIMIT",
    "Door.check: raise Closed('the text of an error') -> pass",
    "Door.check: return any((each for each in self.keys if each)) -> return None",
    "Door.check: any((each for each in self.keys if each)) -> all((each for each in self.keys if each))",
    "Door.check: for each in self.keys if each -> for each in self.keys",
]


def test_every_decision_is_changed_and_no_text() -> None:
    assert [mutant.name.strip() for mutant in find_mutants(ast.parse(SOURCE))] == NAMES


@pytest.mark.parametrize("number", range(len(NAMES)))
def test_a_change_is_made_in_one_place(number: int) -> None:
    tree = ast.parse(SOURCE)
    before, mutant = ast.unparse(tree), find_mutants(tree)[number]
    mutant.apply()
    compile(tree, "door.py", "exec")
    changed = [line for line in ast.unparse(tree).split("\n") if line not in before.split("\n")]
    assert len(changed) == 1
    assert mutant.is_in_function == (number >= 2)
    assert mutant.lines.start == (2 if number == 0 else mutant.lines.start)


def test_the_lists_name_what_exists() -> None:
    for module, tests in MODULES.items():
        assert find_spec(module) is not None
        assert [test for test in tests if not (ROOT / test).exists()] == []
    lines = (ROOT / "tests/mutation/survivors.txt").read_text().splitlines()
    for line in lines[1:]:
        name, _, reason = line.partition("  # ")
        assert name.partition(": ")[0] in MODULES, line
        assert reason, f"without a reason: {line}"
