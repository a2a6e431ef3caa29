"""`enc node evacuate`, and what other commands then show."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enc.cli import app
from enc.client import Client, Identity
from tests.cli.ops.node_command import enc, failure
from tests.node.running import RunningNode

pytestmark = pytest.mark.usefixtures("plain_environment")


@pytest.fixture
def old(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "old") as node:
        yield node


def test_start_status_and_stop(old: RunningNode, tmp_path: Path) -> None:
    data = ("--data", old.data)
    with RunningNode(tmp_path / "new", env={"ENC_NODE_IMPORTS_AHEAD_FROM": old.seq_pub.hex()}) as new:
        assert enc("evacuate", *data).stdout == "no evacuation is going on: enc node evacuate --to URL\n"
        started = enc("evacuate", *data, "--to", new.url, "--source", old.url, "--deadline", "2100-01-01T00:00Z")
        lines = started.stdout.splitlines()
        assert lines[0] == f"asks owners to move to {new.url} (key {new.seq_pub.hex()}) by 2100-01-01T00:00:00Z"
        assert lines[1] == f"copies are fetched from {old.url}"
        assert lines[-2:] == [
            "no enclaves",
            "every enclave has left: the node may be stopped once clients have followed. Keep its key and a backup: "
            "it answers for what it signed, and owners may come back for an archive",
        ]
        with Client(old.url, Identity.new(), pins=None) as client:
            enclave = client.create("log")
        found = json.loads(enc("evacuate", *data, "--status", "--json").stdout)
        assert [each["enclave"] for each in found["enclaves"]] == [enclave.hex]
        assert found["evacuation"]["to_key"] == new.seq_pub.hex()
        assert "1 still here: their owners have to move them" in enc("evacuate", *data, "--status").stdout
        assert enc("evacuate", *data, "--stop").stdout == "stopped\n"
        assert enc("evacuate", *data, "--stop").stdout == "no evacuation was going on\n"


def test_wrong_use(old: RunningNode, tmp_path: Path) -> None:
    data = ("--data", old.data)
    assert failure(enc("evacuate", *data, "--stop", "--status")) == "give one of --to, --stop and --status"
    assert failure(enc("evacuate", *data, "--deadline", "2100-01-01")) == "--source, --deadline: only with --to"
    wrong = failure(enc("evacuate", *data, "--to", old.url, "--deadline", "soon"))
    assert wrong.startswith("--deadline soon: expected a date")
    assert "the node itself" in failure(enc("evacuate", *data, "--to", old.url, "--source", old.url))
    assert "no node is running" in failure(enc("evacuate", "--data", tmp_path / "none"), 1)
    assert "127.0.0.1:1" in failure(enc("evacuate", *data, "--to", "http://127.0.0.1:1"), 1)


def test_other_commands_show_the_request(old: RunningNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    key = Identity.new()
    key.save(tmp_path / "alice.key")
    with RunningNode(tmp_path / "new") as new:
        enc("evacuate", "--data", old.data, "--to", new.url, "--source", old.url)
        flags = ["--node", old.url, "--identity", str(tmp_path / "alice.key")]
        made = CliRunner().invoke(app, ["enclave", "create", "log", *flags], catch_exceptions=False)
        line = (
            f"the node with the key {old.seq_pub.hex()} asks owners to move their enclaves to {new.url}: "
            f"enc migrate ENCLAVE --to {new.url}, or for all of yours: enc migrate --all --to {new.url}\n"
        )
        assert made.exit_code == 0, made.stderr
        assert made.stderr.endswith(line)
        assert made.stderr.count(line) == 1
        as_json = CliRunner().invoke(app, ["enclave", "create", "log", *flags, "--json"], catch_exceptions=False)
        assert as_json.stderr == ""
        enclave = json.loads(as_json.stdout)["enclave"]
        moved = CliRunner().invoke(app, ["migrate", enclave, "--to", new.url, *flags], catch_exceptions=False)
        assert (moved.exit_code, "asks owners" in moved.stderr) == (0, False)
