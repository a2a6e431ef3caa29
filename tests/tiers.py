"""Puts each test into a tier by what it uses, so that `make quick` can leave the slow ones out.

A test without a marker is fast, and `pytest --quick` runs only those. Markers:

spark    it uses the fixture `java`, directly or through another fixture
browser  it uses the fixture `browser`
crash    its file is named after crashes, kills, faults or chaos
docs     it runs or checks documents, examples or the demo
process  its module, a helper module of the tests that it imports, or a conftest.py beside it starts processes
sweep    added by hand: a random sweep, whose length `rounds` decides; `make soak` runs it many times as long
"""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMES = int(os.environ.get("ENC_SOAK", "1"))
"""How many times as long sweeps run."""
CRASH = re.compile(r"test_(crash|kill|faults|chaos)")
DOCS = re.compile(r"test_(docs|doc_\w+|guides|examples|demo)$")
STARTERS = {"subprocess", "multiprocessing", "concurrent.futures.process"}
IMPORT = re.compile(r"^\s*(?:import +([^\n#]+)|from +([\w.]+) +import +(\([^)]*\)|[^\n#]+))", re.MULTILINE)
"""An import, found in the text: parsing every file would take each worker seconds."""
TIERS = ("process", "spark", "browser", "crash", "docs", "sweep")


def rounds(usual: int) -> int:
    """Return how many rounds a sweep makes: `usual`, or a multiple of it under `make soak`."""
    return usual * TIMES


def tiers_of(item: pytest.Item) -> set[str]:
    """Return the markers of a test."""
    fixtures = set(getattr(item, "fixturenames", ()))
    found = {"spark": "java" in fixtures, "browser": "browser" in fixtures}
    return {name for name, holds in found.items() if holds} | tiers_of_file(item.path)


@cache
def tiers_of_file(path: Path) -> frozenset[str]:
    """Return the markers that all tests of a file have."""
    found = {
        "crash": CRASH.match(path.stem) is not None,
        "docs": DOCS.match(path.stem) is not None,
        "process": any(map(starts_processes, (path, path.with_name("conftest.py")))),
    }
    return frozenset(name for name, holds in found.items() if holds)


@cache
def starts_processes(path: Path) -> bool:
    """Return whether a file of tests imports a module that starts processes, directly or through helpers in tests/."""
    imported = _imported(path) if path.is_file() else set()
    if imported & STARTERS:
        return True
    files = (ROOT / f"{name.replace('.', '/')}.py" for name in imported if name.startswith("tests."))
    return any(starts_processes(file) for file in files if file.is_file() and file != path)


def _imported(path: Path) -> set[str]:
    found = set()
    for modules, package, names in IMPORT.findall(path.read_text()):
        found |= set(_names(modules))
        if package:
            found |= {package, *(f"{package}.{name}" for name in _names(names.strip("()")))}
    return found


def _names(listed: str) -> Iterator[str]:
    """Yield the names of a list, without those that follow `as`."""
    return (name.split()[0] for name in listed.split(",") if name.strip())
