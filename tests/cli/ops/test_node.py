"""`enc node`: the output of its commands, and their exit codes."""

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib import reload
from pathlib import Path
from typing import Any

import pytest

from enc.cli.ops import node, node_commands
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.signing import PrivateKey
from enc.node import fsck
from enc.node.config import FIELDS, SECTIONS, NodeConfig, describe, load_config
from enc.node.fsck import Difference, Report
from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.node.store_host import NODE, Host

pytestmark = pytest.mark.usefixtures("plain_environment")

COMMANDS = [
    "run",
    "config",
    "fsck",
    "backup",
    "compact",
    "key",
    "signer",
    "queues",
    "redeliver",
    "adopt",
    "mark-restored",
    "clock",
    "enclaves",
    "evacuate",
    "bans",
    "suspended",
    "withheld",
]
"""Commands that need no argument."""
ALL = [*COMMANDS, "salvage", "ban", "unban", "suspend", "resume", "withhold", "unwithhold", "purge"]
EXIT_CODES = "Exit codes: 0 done; 1 the check found damage, or the work failed; 2 wrong use or configuration."


# Help


def test_without_a_command_it_shows_help_with_the_exit_codes() -> None:
    result = enc()
    shown = " ".join((result.stdout + result.stderr).split())
    assert all(command in shown for command in ALL)
    assert EXIT_CODES in shown


def test_the_order_of_commands_does_not_depend_on_what_was_imported_first() -> None:
    commands = node.app.registered_commands
    before = list(commands)
    commands.reverse()
    reload(node_commands)
    modules = dict.fromkeys(each.callback.__module__ for each in commands if each.callback)
    assert list(modules) == [module.__name__ for module in node_commands.MODULES]
    assert sorted(map(id, before)) == sorted(map(id, commands))
    commands[:] = before


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_help_with_an_example_and_the_exit_codes(command: str) -> None:
    result = enc(command, "--help")
    assert result.exit_code == 0
    shown = " ".join(result.stdout.split())
    assert f"Example: enc node {command}" in shown
    assert EXIT_CODES in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_option(command: str) -> None:
    result = enc(command, "--nonsense")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nonsense" in result.stderr


# enc node run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[NodeConfig]:
    from enc.node import main

    found: list[NodeConfig] = []

    def run(config: NodeConfig, load: Callable[[], NodeConfig], ask: Callable[[Path], str]) -> int:
        assert load() == config  # what SIGHUP reads comes from the same flags
        found.append(config)
        return 7

    monkeypatch.setattr(main, "run", run)
    return found


def test_run_starts_a_node_with_the_settings_and_ends_with_its_exit_code(
    started: list[NodeConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("port = 1\nhost = 'f'\n[limits]\ntags = 5\n")
    monkeypatch.setenv("ENC_NODE_HOST", "e")
    flags = f"--port 2 --data d --dev --log-level debug --log-format console --registry {'ab' * 32}".split()
    assert enc("run", "--config", file, *flags).exit_code == 7
    expected = {"port": 2, "host": "e", "data": "d", "dev": True, "log_level": "debug", "log_format": "console"}
    assert started == [load_config(None, {}, {**expected, "limits.tags": 5, "registry.enclave": "ab" * 32})]


def test_run_with_no_flags_has_the_defaults(started: list[NodeConfig]) -> None:
    enc("run")
    assert started == [NodeConfig()]


def test_dev_of_the_environment_can_be_taken_back(started: list[NodeConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_NODE_DEV", "1")
    enc("run"), enc("run", "--no-dev")
    assert [config.dev for config in started] == [True, False]


@pytest.mark.parametrize("command", ["run", "config"])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--port", "x"], "--port: port: expected a whole number from 0 to 65535"),
        (["--log-level", "loud"], "--log-level: log_level: expected one of debug, info, warning, error"),
        (["--log-format", "xml"], "--log-format: log_format: expected one of json, console"),
        (
            ["--registry", "xyz"],
            "--registry: registry.enclave: expected an enclave's id of 64 lower-case hex digits, or nothing",
        ),
        (["--host", ""], "--host: host: expected an address or a host's name"),
        (["--config", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--config", "a\nb"], r"a\nb: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_setting_is_one_line(command: str, flags: list[str], message: str, started: list[NodeConfig]) -> None:
    assert failure(enc(command, *flags)) == message
    assert started == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_looks_at_the_environment(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_NODE_PROT", "1")
    needed = ["--to", "copy.db"] if command == "backup" else []
    assert failure(enc(command, *needed)) == "ENC_NODE_PROT: there is no setting with this variable"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MisuseError("key file x: is accessible to other users"), 2, "key file x: is accessible to other users"),
        (Unavailable("the store is held by another process"), 1, "the store is held by another process"),
        (OSError(98, "Address already in use"), 1, "[Errno 98] Address already in use"),
        (sqlite3.OperationalError("disk I/O error"), 1, "disk I/O error"),
    ],
)
def test_a_node_that_cannot_run(monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, message: str) -> None:
    from enc.node import main

    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(main, "run", fail)
    assert failure(enc("run"), code) == message


def run_on(data: Path) -> subprocess.CompletedProcess[str]:
    """Run a node that fails to start, in a separate process."""
    command = [
        sys.executable,
        "-c",
        "from enc.cli import main; main()",
        "node",
        "run",
        "--data",
        str(data),
        "--port",
        "0",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_run_on_a_store_in_use_names_it(data: Path) -> None:
    with closing(SqliteStore(data / "enc.db")):
        done = run_on(data)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"enc node: the store is in use by another process, which holds {data / 'enc.db.lock'}\n"


def test_run_with_a_lock_that_cannot_be_opened_names_it(data: Path) -> None:
    (data / "enc.db.lock").unlink()
    (data / "enc.db.lock").mkdir()
    done = run_on(data)
    assert (done.returncode, done.stdout) == (1, "")
    message = f"the store's lock file cannot be opened: {data / 'enc.db.lock'}: Is a directory"
    assert done.stderr == f"enc node: {message}\n"


# enc node config


def test_config_prints_a_file_that_gives_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_NODE_ADMISSION_ALLOW", ",".join(["ab" * 32, "cd" * 32]))
    monkeypatch.setenv("ENC_NODE_RATES_IDENTITY_PER_S", "1e-7")
    monkeypatch.setenv("ENC_NODE_ADMISSION_MAX_BYTES", str(2**53 - 1))
    monkeypatch.setenv("ENC_NODE_SEQUENCING_SEAL_IDLE", "false")
    monkeypatch.setenv("ENC_NODE_TLS_CERTIFICATE", 'a "quoted" \\ pätħ 🔑 #1')
    monkeypatch.setenv("ENC_NODE_TLS_KEY", "'k'")
    result = enc("config", "--port", "0", "--dev")
    assert result.exit_code == 0
    printed = tmp_path / "printed.toml"
    printed.write_text(result.stdout, encoding="utf-8")
    again = load_config(printed, {}, {})
    assert again == load_config(None, os.environ, {"port": 0, "dev": True})
    assert again != NodeConfig()


def test_config_prints_every_setting_with_its_meaning_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text("[limits]\ntags = 7\n")
    monkeypatch.setenv("ENC_NODE_HOST", "e")
    printed = enc("config", "--config", file, "--port", "5").stdout
    assert set(tomllib.loads(printed)) == {key for key in FIELDS if "." not in key} | set(SECTIONS)
    for setting in describe(NodeConfig()):
        assert f"# {setting.meaning}\n" in printed
        assert f"; variable {setting.variable}; " in printed
    comments = dict(re.findall(r"^# (.*)\n(\w+) = ", printed, re.MULTILINE)[::-1])
    sources = {name: comment.rpartition("here from: ")[2] for comment, name in comments.items()}
    assert (sources["tags"], sources["host"], sources["port"]) == ("file", "environment", "flag")
    assert set(sources.values()) == {"default", "file", "environment", "flag"}
    assert "# in bytes; default 1048576; variable ENC_NODE_LIMITS_CONTENT; here from: default\n" in printed


def test_config_for_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_NODE_HOST", "é")
    shown = json.loads(enc("config", "--json", "--port", "5").stdout)
    assert list(shown) == list(FIELDS)
    assert shown["host"]["value"] == "é"
    assert shown["port"] == {
        "value": 5,
        "default": 7700,
        "source": "flag",
        "variable": "ENC_NODE_PORT",
        "unit": "",
        "meaning": "Port to listen on; 0: a free one.",
    }


def test_config_is_utf8_whatever_the_terminal_is_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    command = [sys.executable, "-c", "from enc.cli import main; main()", "node", "config", "--host", "é"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert 'host = "é"'.encode() in done.stdout


# enc node key


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a node's data directory: a key and a store with two enclaves."""
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / "node.key").write_text(NODE.secret.hex())
    (directory / "node.key").chmod(0o600)
    store = SqliteStore(directory / "enc.db")
    host = Host(store)
    host.create("alice")
    host.create("alice", meta={"second": True})
    store.close()
    return directory


def ids(data: Path) -> list[bytes]:
    store = SqliteStore(data / "enc.db")
    try:
        return list(store.enclaves())
    finally:
        store.close()


def test_key_prints_the_public_key(data: Path) -> None:
    assert enc("key", "--data", data).stdout == NODE.public.hex() + "\n"


def test_key_looks_where_the_settings_say(data: Path, tmp_path: Path) -> None:
    other = PrivateKey(b"o" * 32)
    (tmp_path / "other.key").write_text(other.secret.hex())
    (tmp_path / "other.key").chmod(0o600)
    (tmp_path / "node.toml").write_text("key_file = 'other.key'")
    assert enc("key", "--data", data, "--config", "node.toml").stdout == other.public.hex() + "\n"


def test_backup_copies_the_store_and_takes_no_file_s_place(data: Path, tmp_path: Path) -> None:
    result = enc("backup", "--data", data, "--to", tmp_path / "copy.db")
    assert (result.exit_code, result.stdout) == (
        0,
        f"{tmp_path}/copy.db: {(tmp_path / 'copy.db').stat().st_size:,} bytes\n",
    )
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy.db").rename(tmp_path / "copy" / "enc.db")
    assert ids(tmp_path / "copy") == ids(data)
    assert "already exists" in failure(enc("backup", "--data", data, "--to", tmp_path / "copy" / "enc.db"))
    assert "no such file" in failure(enc("backup", "--data", tmp_path / "nowhere", "--to", tmp_path / "x"))


def test_backup_of_a_damaged_store_names_the_store(data: Path, tmp_path: Path) -> None:
    (data / "enc.db").write_bytes(b"x" * 10_000)
    message = failure(enc("backup", "--data", data, "--to", tmp_path / "copy.db"), 1)
    assert message == f"{data / 'enc.db'}: cannot be read: file is not a database"


def test_run_makes_no_key_beside_a_database(data: Path) -> None:
    (data / "node.key").unlink()
    assert "is missing, but" in failure(enc("run", "--data", data, "--port", "0"))
    assert not (data / "node.key").exists()


def test_key_makes_none(tmp_path: Path) -> None:
    message = failure(enc("key", "--data", tmp_path))
    assert message == f"key file {tmp_path / 'node.key'}: cannot be read: No such file or directory"
    assert list(tmp_path.iterdir()) == []


# enc node fsck


class Check:
    """Replaces check_file: it records its arguments, and reports `differences`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *differences: Difference) -> None:
        self.asked: list[Any] = []
        self.is_whole = True
        self.differences = list(differences)
        monkeypatch.setattr(fsck, "check_file", self)

    def __call__(
        self, path: Path, seq_pub: bytes, chosen: Sequence[bytes], progress: Callable[[int], None], jobs: int | None
    ) -> Report:
        self.asked.append((seq_pub, chosen, jobs))
        for _ in range(5):
            progress(2)
        return Report(2, 10, self.differences, self.is_whole)


def test_fsck_of_clean_data(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check(monkeypatch)
    result = enc("fsck", "--data", data)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "clean: 2 enclaves, 10 events\n", "")
    assert check.asked == [(NODE.public, [], None)]


def test_fsck_of_chosen_enclaves(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check, (first, second) = Check(monkeypatch), ids(data)
    enc("fsck", "--data", data, "--enclave", second.hex())
    enc("fsck", "--data", data, "--enclave", second.hex(), "--enclave", first.hex(), "--jobs", "3")
    assert check.asked == [(NODE.public, [second], None), (NODE.public, [second, first], 3)]


def test_fsck_tells_every_difference(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Difference(b"\1" * 32, 5, "hash: not this\nline"), Difference(b"\2" * 32, None, "head: missing")
    Check(monkeypatch, one, two)
    result = enc("fsck", "--data", data)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"enclave {'01' * 32}: seq 5: hash: not this\\nline",
        f"enclave {'02' * 32}: head: missing",
        "2 differences: 2 enclaves, 10 events",
    ]


def test_fsck_for_programs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check(monkeypatch)
    result = enc("fsck", "--data", data, "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"enclaves": 2, "events": 10, "differences": [], "whole": True}
    check.differences = [Difference(b"\1" * 32, 5, "a"), Difference(b"\2" * 32, None, "b")]
    result = enc("fsck", "--data", data, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["differences"] == [
        {"enclave": "01" * 32, "seq": 5, "what": "a"},
        {"enclave": "02" * 32, "seq": None, "what": "b"},
    ]


def test_fsck_of_one_difference_is_counted_right(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Check(monkeypatch, Difference(b"\1" * 32, 5, "a"))
    assert enc("fsck", "--data", data).stdout.endswith("\n1 difference: 2 enclaves, 10 events\n")


@pytest.mark.parametrize("text", ["", "ab", "zz" * 32, "ab" * 33])
def test_fsck_of_what_is_no_enclave(data: Path, text: str) -> None:
    assert failure(enc("fsck", "--data", data, "--enclave", text)) == "--enclave: expected 64 hex digits"


def test_fsck_of_an_enclave_that_is_not_there(data: Path) -> None:
    message = failure(enc("fsck", "--data", data, "--enclave", "ab" * 32))
    assert message == f"--enclave: this node has no enclave {'ab' * 32}"


def test_fsck_of_no_data_makes_none(tmp_path: Path) -> None:
    assert failure(enc("fsck", "--data", tmp_path)) == f"{tmp_path / 'enc.db'}: no such file"
    assert list(tmp_path.iterdir()) == []


def test_fsck_without_a_key(data: Path) -> None:
    (data / "node.key").unlink()
    assert "node.key: cannot be read" in failure(enc("fsck", "--data", data))
    assert not (data / "node.key").exists()


@pytest.mark.parametrize(
    ("raw", "code", "why"),
    [(b"", 2, "not a node's store"), (b"not a database" * 1000, 1, "cannot be read: file is not a database")],
)
def test_fsck_of_a_file_that_is_no_store(data: Path, raw: bytes, code: int, why: str) -> None:
    for file in data.glob("enc.db*"):
        file.unlink()
    (data / "enc.db").write_bytes(raw)
    assert failure(enc("fsck", "--data", data), code) == f"{data / 'enc.db'}: {why}"
    assert (data / "enc.db").read_bytes() == raw


def test_fsck_of_another_program_s_database(data: Path) -> None:
    for file in data.glob("enc.db*"):
        file.unlink()
    with sqlite3.connect(data / "enc.db") as db:
        db.execute("CREATE TABLE other (x)")
    db.close()
    assert failure(enc("fsck", "--data", data)).endswith("enc.db: not a node's store")


@pytest.mark.parametrize("error", [Unavailable("held by a node"), OSError(5, "x"), sqlite3.OperationalError("x")])
def test_fsck_that_could_not_be_done_prints_no_report(
    data: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*args: Any) -> Report:
        raise error

    monkeypatch.setattr(fsck, "check_file", fail)
    failure(enc("fsck", "--data", data), 1)
    failure(enc("fsck", "--data", data, "--json"), 1)


def test_fsck_while_a_node_runs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(SqliteStore(data / "enc.db")):
        assert enc("fsck", "--data", data).stdout == "clean: 2 enclaves, 2 events\n"
    Check(monkeypatch).is_whole = False
    last = "not checked: the counts over all enclaves, because the node wrote meanwhile\n"
    assert enc("fsck", "--data", data).stdout.endswith(last)


def test_fsck_lets_go_of_the_store(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> Report:
        raise Unavailable("x")

    monkeypatch.setattr(fsck, "check_file", fail)
    enc("fsck", "--data", data)
    SqliteStore(data / "enc.db").close()


def test_fsck_interrupted_is_not_a_difference(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*args: Any) -> Report:
        raise KeyboardInterrupt

    monkeypatch.setattr(fsck, "check_file", stop)
    assert enc("fsck", "--data", data).exit_code == 130


class CommandContext(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_fsck_shows_a_bar_on_a_terminal_and_nowhere_else(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = CommandContext()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with node._progress(data / "enc.db", ()) as advance:
        advance(1)
        advance(1)
    assert re.search(r"events .*2/2", terminal.getvalue(), re.DOTALL)
    shown = terminal.getvalue()
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    with node._progress(data / "enc.db", ()) as advance:
        advance(1)
    assert terminal.getvalue() == shown


def test_a_damaged_state_does_not_stop_the_check_before_it_begins(data: Path) -> None:
    with closing(sqlite3.connect(data / "enc.db")) as db:
        db.execute("UPDATE states SET state = x''")
        db.commit()
    assert node._count(data / "enc.db", ()) is None


def test_fsck_for_real(data: Path) -> None:
    result = enc("fsck", "--data", data)
    assert (result.exit_code, result.stdout) == (0, "clean: 2 enclaves, 2 events\n")
    with sqlite3.connect(data / "enc.db") as db:
        db.execute("UPDATE events SET timestamp = timestamp + 1")
    db.close()
    result = enc("fsck", "--data", data)
    assert result.exit_code == 1
    assert all(enclave.hex() in result.stdout for enclave in ids(data))
