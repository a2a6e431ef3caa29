"""`enc node salvage`: what it prints, and that the node goes on from what it wrote."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from enc.core.primitives.types import Receipt
from enc.node.store.sqlite.connection import PAGE_BYTES
from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.node.store_host import NODE, Host, live

pytestmark = pytest.mark.usefixtures("plain_environment")


class Data:
    """A node's data: an enclave with many small events, and one of whose last event a page is damaged."""

    def __init__(self, folder: Path) -> None:
        self.path, self.file, self.to = folder, folder / "enc.db", folder.parent / "new"
        folder.mkdir()
        (folder / "node.key").write_text(NODE.secret.hex())
        (folder / "node.key").chmod(0o600)
        with closing(SqliteStore(self.file)) as store:
            host = Host(store)
            self.sound, _ = live(host)
            self.victim = host.create(meta={"n": 2})
            for n in range(20):
                host.send(self.victim, "alice", "message", f"victim {n} " * 200)
            self.now = host.now

    def damage(self) -> None:
        """Damage a page that has only events of the victim, the last one among them."""
        raw = self.file.read_bytes()
        (at,) = [i for i in range(0, len(raw), PAGE_BYTES) if b"victim 19 " in raw[i : i + PAGE_BYTES]]
        assert self.sound.hex().encode() not in raw[at : at + PAGE_BYTES]
        self.file.write_bytes(raw[:at] + bytes(PAGE_BYTES) + raw[at + PAGE_BYTES :])

    def salvage(self, *args: str | Path, code: int = 0) -> str:
        result = enc("salvage", "--data", self.path, "--to", self.to, *args)
        assert result.exit_code == code, result.output
        return result.stdout


@pytest.fixture
def data(tmp_path: Path) -> Data:
    return Data(tmp_path / "data")


def test_a_node_goes_on_from_it_once_it_is_adopted(data: Data) -> None:
    lines = data.salvage().splitlines()
    assert lines[0] == f"{data.to}: 2 enclaves, 28 events; 0 left out"
    assert lines[1].startswith(f"next: enc node adopt --data {data.to}")
    assert (data.to / "node.key").read_text() == NODE.secret.hex()
    assert {each.name: each.stat().st_mode & 0o777 for each in data.to.iterdir()} == {
        "enc.db": 0o600,
        "enc.db.lock": 0o600,
        "node.key": 0o600,
    }
    assert enc("fsck", "--data", data.to).stdout == "clean: 2 enclaves, 28 events\n"
    adopted = enc("adopt", "--data", data.to, "--yes")
    assert adopted.stdout.startswith(f"this store is salvaged from {data.file} at ")
    with closing(SqliteStore(data.to / "enc.db")) as store:
        host = Host(store)
        host.now = data.now
        assert isinstance(host.run(host.commit(data.victim, "alice", "message", "on"))[0], Receipt)


def test_it_lists_what_is_left_out(data: Data) -> None:
    data.damage()
    lines = data.salvage(code=1).splitlines()
    assert lines[0] == f"{data.victim.hex()}: left out: events cannot be read: 20"
    assert lines[-2] == f"{data.to}: 1 enclaves, 7 events; 1 left out"
    assert "; with witnesses, --lost ID for each of the 1 left out; " in lines[-1]
    data.to = data.to.with_name("json")
    found = json.loads(data.salvage("--json", code=1))
    (left,) = found.pop("left_out")
    assert found == {"enclaves": 1, "events": 7, "purged": 0, "unnamed": 0, "notes": []}
    assert (left["enclave"], left["reason"], left["kept"]) == (data.victim.hex(), "events cannot be read", 0)
    assert left["missing"][-1][-1] == 20


def test_a_store_with_a_log_that_ends_early_is_not_adopted(data: Data, tmp_path: Path) -> None:
    data.damage()
    lines = data.salvage("--prefix", "--enclave", data.victim.hex(), code=1).splitlines()
    assert f"{data.victim.hex()}: ONLY EVENTS 0 TO " in lines[0]
    assert lines[-2].endswith("; 0 left out, 1 WITHOUT THEIR NEWEST EVENTS")
    assert lines[-1].startswith(f"next: enc node adopt --data {data.to} --new-key NEWDIR; ")
    refused = failure(enc("adopt", "--data", data.to, "--yes"))
    assert refused.endswith(", with logs that end early: it cannot be adopted; see --new-key")
    moved = enc("adopt", "--data", data.to, "--new-key", tmp_path / "moves")
    assert moved.exit_code == 0, moved.output
    assert moved.stdout.startswith("1 enclave can move to the key ")


def test_a_store_without_any_enclave_that_replays(data: Data) -> None:
    data.damage()
    lines = data.salvage("--enclave", data.victim.hex(), code=1).splitlines()
    assert lines[-2:] == [
        f"{data.to}: 0 enclaves, 0 events; 1 left out",
        "no enclave was salvaged: restore a backup, or let the owners move from their archives",
    ]


def test_a_key_elsewhere_stays_there(data: Data, tmp_path: Path) -> None:
    (data.path / "node.key").rename(tmp_path / "other.key")
    os.environ["ENC_NODE_KEY_FILE"] = str(tmp_path / "other.key")
    try:
        assert f"note: the key was not copied: it stays at {tmp_path / 'other.key'}" in data.salvage()
    finally:
        del os.environ["ENC_NODE_KEY_FILE"]
    assert not (data.to / "node.key").exists()


def test_wrong_use(data: Data, tmp_path: Path) -> None:
    assert failure(enc("salvage", "--data", tmp_path / "none", "--to", data.to)).endswith("enc.db: no such file")
    assert not (tmp_path / "none").exists()
    wrong = enc("salvage", "--data", data.path, "--to", data.path)
    assert failure(wrong) == f"--to: {data.path}: already exists"
    assert "--enclave: expected 64" in failure(enc("salvage", "--data", data.path, "--to", data.to, "--enclave", "x"))
    with closing(SqliteStore(data.file)):
        assert "in use" in failure(enc("salvage", "--data", data.path, "--to", data.to), 1)
    (data.path / "node.key").unlink()
    assert "node.key: is missing" in failure(enc("salvage", "--data", data.path, "--to", data.to))
    assert not data.to.exists()


KILLED = """
import os, signal, sys
from enc.cli import app
from enc.node.salvage import salvage
salvage.check_file = lambda *args: os.kill(os.getpid(), signal.SIGKILL)
app(["node", "salvage", "--data", sys.argv[1], "--to", sys.argv[2]])
"""


def test_killed_meanwhile_it_leaves_no_store_at_that_name(data: Data) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, data.path, data.to], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not data.to.exists()
    (left,) = [each for each in data.to.parent.iterdir() if each != data.path]
    with closing(SqliteStore(left / "enc.db")) as store:
        assert store.restored().startswith("salvaged from ")
    assert data.salvage().startswith(f"{data.to}: 2 enclaves")
