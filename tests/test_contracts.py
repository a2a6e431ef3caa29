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
