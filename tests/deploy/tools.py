"""Programs of other projects that check the files in deploy/."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def tool(name: str) -> str:
    """Return a program's path. Without it the test is skipped; in CI, which installs it, the test fails."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        why = f"{name} is missing: run scripts/test-packages, or install the package that has it"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found


def output(*command: str, **env: str) -> str:
    """Return what a command prints, on both streams. It must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **env})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
