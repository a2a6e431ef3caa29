"""A node that runs for the duration of a block, for these examples. A real app gets the URL of a permanent node."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def running(*command: str) -> Iterator[dict[str, Any]]:
    """Run an `enc` command that serves until it is stopped. Yields the JSON that it prints when it is ready."""
    enc = Path(sys.executable).with_name("enc")
    with subprocess.Popen([enc, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


@contextmanager
def local_node(data: Path | None = None) -> Iterator[str]:
    """Run a node on a free port, with its data in a temporary directory or a given one. Yields the node's URL."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running("node", "run", "--data", str(data or folder), "--port", "0", "--dev") as ready,
    ):
        yield ready["url"]
