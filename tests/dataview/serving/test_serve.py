"""`enc dataview serve`, in a separate process."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from enc.client import Identity
from enc.dataview.serving.database import ServingDatabase
from enc.dataview.serving.session_auth import SessionAuth
from tests.dataview.serving.asking import TOKEN, refused, tokens
from tests.dataview.serving.rows import PAIRS, pairs

PATIENCE_S = 60
ENC = [sys.executable, "-c", "from enc.cli import main; main()"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a database of three views, and the other files that a server needs."""
    database = ServingDatabase(str(tmp_path / "serving.db"))
    for name in ("one", "two", "three"):
        database.upsert(PAIRS.__class__(name, PAIRS.columns, PAIRS.key), pairs(2), {})
    database.close()
    tokens(tmp_path)
    Identity.new().save(tmp_path / "server.key")
    return tmp_path


@contextmanager
def serve(folder: Path, *flags: str) -> Iterator[dict[str, str]]:
    """Run it and yield its first line. A signal ends it cleanly."""
    command = [*ENC, "dataview", "serve", "--listen", "127.0.0.1:0", "--json", *flags]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            yield json.loads(line)
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, said) == (0, "")
        finally:
            process.kill()


def names(url: str, **more: object) -> list[str]:
    answer = httpx.get(f"{url}/views", trust_env=False, timeout=60, **more)  # type: ignore[arg-type]
    return [view["name"] for view in answer.json()["views"]]


def test_nothing_is_public_unless_a_flag_says_so(folder: Path) -> None:
    with serve(folder, "--public", "two") as said:
        assert said["session_pub"] is None
        assert names(said["url"]) == ["two"]
        refused(httpx.get(f"{said['url']}/views/one", trust_env=False, timeout=60), 401, "UNAUTHENTICATED")


def test_the_configuration_says_who_may_read_what(folder: Path) -> None:
    me = Identity.new()
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    (folder / "serve.toml").write_text(
        'database = "serving.db"\ntokens = "tokens"\nkey = "server.key"\n'
        f'[views.one]\npublic = true\n[views.two]\ntokens = ["analyst"]\n[views.three]\nidentities = ["{me.hex}"]\n'
    )
    with serve(elsewhere, "--config", "../serve.toml") as said:
        url = said["url"]
        assert names(url) == ["one"]
        assert names(url, headers={"authorization": f"Bearer {TOKEN}"}) == ["one", "two"]
        assert names(url, auth=SessionAuth(me, said["session_pub"])) == ["one", "three"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--config", "none.toml"], "none.toml: cannot be read"),
        (["--database", "mysql://x"], "database: expected"),
        (["--tokens", "none"], "no such file"),
        (["--key", "none"], "there is no such file"),
        (["--node", "nowhere"], "not a node's URL"),
        (["--registry", "http://x"], "registry: id"),
        (["--listen", "nowhere"], "listen: expected HOST:PORT"),
        (["--cert", "tokens"], "the certificate and key cannot be used"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(folder: Path, flags: list[str], says: str) -> None:
    command = [*ENC, "dataview", "serve", "--listen", "127.0.0.1:0", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_it_needs_no_spark(folder: Path) -> None:
    """A serving machine needs neither Java nor PySpark."""
    program = "import sys; sys.modules['pyspark'] = None; from enc.cli import main; main()"
    command = [sys.executable, "-c", program, "dataview", "serve", "--listen", "nowhere"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "listen: expected HOST:PORT" in done.stderr
