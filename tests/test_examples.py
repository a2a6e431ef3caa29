"""Every program in examples/ runs to its end and says what it should."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

SAYS = {
    "first_enclave.py": [
        "UNAUTHORIZED",
        "Proved under the node's signed head",
        "INVALID_PROOF",
        "INVALID_ARCHIVE",
        "INVALID_HASH",
    ],
    "a_node.py": ["seq 3: 'note 2', under a signed head of 1 bundle", "heard: 'live'", "exit code 0"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_example(name: str) -> None:
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for words in SAYS[name]:
        assert words in done.stdout
