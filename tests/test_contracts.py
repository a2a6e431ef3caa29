"""The import contracts of pyproject.toml hold, and only the kernel distinguishes the protocol versions."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_imports_keep_their_directions() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


OF_ONE_VERSION = re.compile(r"enc_v *(==|!=|<|>|in|not in) *[\d(]|PREDEFINED|\b\w+V[12]\b|enc\.core\.rules\.(v1|v2)\b")
"""Code that depends on the version of an enclave."""


@pytest.mark.parametrize("part", ["node", "client", "cli"])
def test_nothing_outside_the_kernel_asks_which_version_it_is(part: str) -> None:
    files = sorted((ROOT / "src/enc" / part).rglob("*.py"))
    assert files
    assert [path.name for path in files if OF_ONE_VERSION.search(path.read_text())] == []


def test_enclaves_are_created() -> None:
    """No other word stands for this, least of all one that looks like the past of find."""
    word = re.compile(rf"(?i){'f'}ound(s|ed|er|ing)(?![a-z])")
    files = [path for part in ("src", "tests", "docs", "examples", "benchmarks") for path in (ROOT / part).rglob("*")]
    texts = [path for path in files if path.suffix in (".py", ".md", ".sql", ".toml")]
    assert len(texts) > 1000
    assert [str(path) for path in texts if word.search(path.read_text())] == []
