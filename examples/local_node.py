"""A node that runs for the duration of a block, for these examples. A real app gets the URL of a permanent node."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from enc import Client, Identity, Registry
from enc.node.ops import key_file


@contextmanager
def running(*command: str) -> Iterator[dict[str, Any]]:
    """Run an `enc` command that serves until it is stopped. Yields the JSON that it prints when it is ready, and
    the process."""
    enc = Path(sys.executable).with_name("enc")
    with subprocess.Popen([enc, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        try:
            assert process.stdout is not None
            yield {**json.loads(process.stdout.readline()), "process": process}
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


@contextmanager
def registered_node(registry: Registry, data: Path, port: int = 0) -> Iterator[dict[str, Any]]:
    """Run a node and register it. Yields what `running` does: the node's `url`, and its `process`."""
    with running("node", "run", "--data", str(data), "--port", str(port), "--dev") as ready:
        node = Identity(key_file.load(data / "node.key"))
        with Client(identity=node, registry=registry, pins=None) as client:
            client.register_node([ready["url"]])
        yield ready


@contextmanager
def local_nodes(number: int) -> Iterator[tuple[Any, ...]]:
    """Run nodes, and another one with a registry that lists them. Yields the registry and the nodes' URLs."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        homes = [Path(folder, str(n)) for n in range(number + 1)]
        with local_node(homes[0]) as url, Client(url, Identity.new(), pins=None) as client:
            enclave = client.create("registry").id
        flags = ("--data", str(homes[0]), "--port", "0", "--dev", "--registry", enclave.hex())
        registry = Registry(url=stack.enter_context(running("node", "run", *flags))["url"], enclave=enclave)
        yield (registry, *(stack.enter_context(registered_node(registry, home))["url"] for home in homes[1:]))
