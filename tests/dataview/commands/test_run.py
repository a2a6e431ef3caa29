"""`enc dataview run --receive` in a separate process: a node that pushes and notifies, tables, and
the API.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.client import Client, Identity
from tests.core.world import person
from tests.dataview.pipeline_driver import SMALL
from tests.dataview.served import PUBLIC, free_port, key_file
from tests.node.running import RunningNode

ROOT = Path(__file__).parents[3]
PATIENCE_S = 240
ENC = [sys.executable, "-c", "from enc.cli import main; main()", "dataview"]


def environment(home: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("ENC_", "XDG_"))}
    jars = {"ENC_JARS": os.environ["ENC_JARS"]} if "ENC_JARS" in os.environ else {}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return {**plain, **jars, "HOME": str(home), "PYTHONPATH": path, "ENC_IDENTITY": str(home / "vera.key")}


class Pipeline:
    """A running pipeline that prints lines of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.said = process, dict[str, Any]()

    def line(self) -> Any:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.communicate()[1][-4000:]
        return json.loads(text)

    def until(self, **expected: int) -> None:
        """Wait until it reports these counts."""
        while any(self.said.get(name) != number for name, number in expected.items()):
            self.said = self.line()


@contextmanager
def running(home: Path, *words: str) -> Iterator[Pipeline]:
    conf = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    command, pipe = [*ENC, "run", "--json", "--master", "local[2]", *conf, *words], subprocess.PIPE
    with subprocess.Popen(command, cwd=home, env=environment(home), stdout=pipe, stderr=pipe, text=True) as process:
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        try:
            yield Pipeline(process)
        finally:
            guard.cancel()
            guard.join()
            process.kill()


def test_pushed_notified_and_served_in_one_command(java: None, tmp_path: Path) -> None:
    hook = f"http://127.0.0.1:{free_port()}/push"
    key_file(tmp_path, "vera")
    with RunningNode(tmp_path / "node") as node, Client(node.url, Identity.new(), pins=None) as client:
        owner = [{"identity": client.identity.hex, "state": "OWNER", "traits": []}]
        enclave = client.create({**PUBLIC, "init": owner})
        enclave.grant(person("vera").public, "dataview", endpoint=hook)
        pull = f"node={node.url};enclaves={enclave.hex};pollSeconds=3600"
        where = ("--receive", hook.removeprefix("http://").removesuffix("/push"), "--url", hook, "--pull", pull)
        api = ("--database", "serving.db", "--serve", "--listen", "127.0.0.1:0", "--public", "events")
        with running(tmp_path, *where, *api) as pipeline:
            assert pipeline.line()["receiving"]["url"] == hook
            url = pipeline.line()["serving"]
            pipeline.until(events=2, behind=0)
            enclave.commit("post", "pushed")
            pipeline.until(events=3)
            enclave.commit("note", "notified")
            pipeline.until(events=4)
            rows = httpx.get(f"{url}/views/events?order=seq", trust_env=False).json()["rows"]
            here, there = f"node:{node.url}", f"push:{node.url}"
            assert [row["origin"] for row in rows] == [here, here, there, here]
            assert [row["content"] for row in rows[2:]] == ["pushed", "notified"]
            _refused(tmp_path, f"`enc dataview run` (process {pipeline.process.pid} on ")
            pipeline.process.send_signal(signal.SIGTERM)
            _, said = pipeline.process.communicate(timeout=PATIENCE_S)
            assert pipeline.process.returncode == 0, said
        zone = tmp_path / "lake" / "_receive"
        assert sorted(path.name for path in zone.iterdir() if path.is_dir()) == ["landing", "notices"]


def _refused(home: Path, says: str) -> None:
    """Check that another command refuses to write to the same lake, and names the holder of the lock."""
    command = [*ENC, "upkeep", "--json"]
    done = subprocess.run(command, cwd=home, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert says in json.loads(done.stderr.splitlines()[-1])["error"]["message"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--receive", "127.0.0.1:0"], "--receive: needs --url"),
        (["--receive", "127.0.0.1:0", "--url", "http://x", "--once"], "cannot be used with --once"),
        (["--receive", "127.0.0.1:0", "--url", "http://x", "--lake", "s3a://b/lake"], "needs a lake on a local disk"),
        (["--archive", "x.enc", "--url", "http://x"], "only with --receive"),
        (["--serve", "--archive", "x.enc"], "--serve: needs --database"),
        ([], "no source: give --pull"),
    ],
)
def test_what_does_not_go_together_is_said_before_anything_starts(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from enc.cli import app

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        app(["dataview", "run", "--json", *words])
    assert ended.value.code != 0
    assert says in json.loads(capsys.readouterr().err)["error"]["message"]
    assert list(tmp_path.iterdir()) == []
