"""Puts each test into a tier by what it uses, so that `make quick` can leave the slow ones out.

A test without a marker is fast. Markers:

spark    it uses the fixture `java`, directly or through another fixture
browser  it uses the fixture `browser`
crash    its file is named after crashes, kills, faults or chaos
docs     it runs or checks documents, examples or the demo
process  its module, a helper module of the tests that it imports, or a conftest.py beside it starts processes
sweep    put on by hand: a random sweep, whose length `rounds` decides; `make soak` runs it many times as long
"""

import ast
import os
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMES = int(os.environ.get("ENC_SOAK", "1"))
"""How many times as long sweeps run."""
CRASH = re.compile(r"test_(crash|kill|faults|chaos)")
DOCS = re.compile(r"test_(docs|doc_\w+|guides|examples|demo)$")
STARTERS = {"subprocess", "multiprocessing", "concurrent.futures.process"}


def rounds(usual: int) -> int:
    """Return how many rounds a sweep makes: `usual`, or a multiple of it under `make soak`."""
    return usual * TIMES


def tiers_of(item: pytest.Item) -> set[str]:
    """Return the markers of a test."""
    fixtures = set(getattr(item, "fixturenames", ()))
    stem = item.path.stem
    found = {
        "spark": "java" in fixtures,
        "browser": "browser" in fixtures,
        "crash": CRASH.match(stem) is not None,
        "docs": DOCS.match(stem) is not None,
        "process": any(map(starts_processes, (item.path, item.path.with_name("conftest.py")))),
    }
    return {name for name, holds in found.items() if holds}


@cache
def starts_processes(path: Path) -> bool:
    """Whether a file of tests imports a module that starts processes, directly or through helpers in tests/."""
    imported = _imported(path) if path.is_file() else set()
    if imported & STARTERS:
        return True
    files = (ROOT / f"{name.replace('.', '/')}.py" for name in imported if name.startswith("tests."))
    return any(starts_processes(file) for file in files if file.is_file() and file != path)


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
