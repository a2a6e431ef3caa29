"""A node for as long as a block runs: what the examples here speak to. An app is given the URL of one that stays up."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def local_node() -> Iterator[str]:
    """Run a node on a free port, with its data in a temporary directory; what it gives is the node's URL."""
    with tempfile.TemporaryDirectory() as data:
        command = [Path(sys.executable).with_name("enc"), "node", "run", "--data", data, "--port", "0", "--dev"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as node:  # noqa: S603
            try:
                assert node.stdout is not None
                yield json.loads(node.stdout.readline())["url"]
            finally:
                node.terminate()
