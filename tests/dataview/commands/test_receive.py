"""`enc dataview receive` in a separate process: pushes reach the landing zone, and a signal ends
it.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pyarrow.parquet as pq

from tests.client.pushing import push
from tests.dataview.logs import Log
from tests.dataview.served import key_file, serving
from tests.node.served import PATIENCE_S

ROOT = Path(__file__).parents[3]
URL = "https://vera.test/push"
TRIES = 1000
"""Pushes that may be postponed until the receiver has the node's key."""


def test_what_is_pushed_lands_and_a_signal_ends_it(tmp_path: Path, log: Log) -> None:
    (tmp_path / "home").mkdir()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "XDG_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    with serving() as node:
        command = [sys.executable, "-c", "from enc.cli import main; main()", "dataview", "receive", "--json"]
        command += ["--url", URL, "--landing", str(tmp_path / "landing"), "--state", str(tmp_path / "inbox.db")]
        command += ["--listen", "127.0.0.1:0", "--node", node.url, "--identity", key_file(tmp_path, "vera")]
        env = {**plain, "HOME": str(tmp_path / "home"), "PYTHONPATH": path}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True) as process:
            try:
                assert process.stdout is not None
                port = json.loads(process.stdout.readline())["port"]
                assert _pushed(port, push(1, *log.events, to="vera", url=URL)) == 200
                (file,) = (tmp_path / "landing").iterdir()
                assert pq.read_table(file).column("seq").to_pylist() == [event.seq for event in log.events]
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE_S) == 0
            finally:
                process.kill()


def _pushed(port: int, body: bytes) -> int:
    """Return the final status of a push: the answer is 503 until the receiver has the node's key."""
    with httpx.Client(trust_env=False, timeout=PATIENCE_S, headers={"content-type": "application/json"}) as http:
        for _ in range(TRIES):
            status = http.post(f"http://127.0.0.1:{port}/push", content=body).status_code
            if status != 503:
                return status
    return 503
