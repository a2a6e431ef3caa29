"""The imports of a command: it must not wait for libraries that it does not use."""

import subprocess
import sys

import pytest

SLOW = ("asyncio", "coincurve", "httpx", "pyspark", "rich", "structlog", "uvicorn", "websockets")
NETWORK = ("asyncio", "httpx", "structlog", "uvicorn", "websockets")


@pytest.mark.parametrize(("module", "slow"), [("enc.cli", SLOW), ("enc.client.keys.identity", NETWORK)])
def test_slow_libraries_are_not_imported(module: str, slow: tuple[str, ...]) -> None:
    script = f"import sys, {module}; print(*(name for name in {slow} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
