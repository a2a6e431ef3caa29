"""What systemd hears from a node and from a witness: each is a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.processes import descendants
from tests.node.running import RunningNode
from tests.runtime.manager_socket import Heard


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Heard]:
    heard = Heard(str(tmp_path / "notify"))
    with closing(heard.socket):
        yield heard


def variables(manager: Heard) -> dict[str, str]:
    return {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "60000000"}


def test_a_node_reports_its_start_its_life_and_its_end(tmp_path: Path, manager: Heard) -> None:
    with RunningNode(tmp_path / "node", env=variables(manager)) as node:
        manager.wait_for(f"READY=1\nSTATUS=serving on {node.url}")
        manager.wait_for("WATCHDOG=1")
        for child in descendants(node.pid):
            assert b"NOTIFY_SOCKET" not in Path(f"/proc/{child}/environ").read_bytes()
        manager.messages()
        node.stop()
    assert manager.messages()[-1] == "STOPPING=1"


def test_a_witness_reports_its_start_and_its_end(tmp_path: Path, manager: Heard) -> None:
    command = [sys.executable, "-m", "enc", "witness", "run", "--enclave", "ab" * 32 + "@http://127.0.0.1:9"]
    command += ["--data", str(tmp_path / "witness"), "--listen", "127.0.0.1:0"]
    env = {**os.environ, **variables(manager)}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as witness:
        try:
            assert witness.stdout is not None
            url = witness.stdout.readline().split('"url":"')[1].split('"')[0]
            manager.wait_for(f"READY=1\nSTATUS=serving on {url}")
            witness.terminate()
            manager.wait_for("STOPPING=1")
            assert witness.wait(60) == 0
        finally:
            witness.kill()
