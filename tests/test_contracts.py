"""The import contracts of pyproject.toml hold."""

import subprocess
import sys
from pathlib import Path


def test_imports_keep_their_directions() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run([lint], cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
