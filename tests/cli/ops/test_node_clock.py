"""`enc node clock`: what a store has recorded of its node's clock, and how that is repaired."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from enc.cli import app
from enc.cli.ops import node_clock
from enc.core.errors import EncError, Unavailable
from enc.core.primitives.types import Receipt
from enc.node.fsck import check_store
from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.core.world import START
from tests.node.store_host import NODE, Host

pytestmark = pytest.mark.usefixtures("plain_environment")

HOUR, MINUTE = 3_600_000, 60_000


class Data:
    """A node whose clock ran ahead by an hour: one enclave got an event then, another did not."""

    def __init__(self, folder: Path) -> None:
        self.path, self.file = folder, folder / "enc.db"
        folder.mkdir()
        with closing(SqliteStore(self.file)) as store:
            host = Host(store)
            self.early, self.late = host.create(meta={"n": 1}), host.create(meta={"n": 2})
            host.now = START + HOUR
            host.send(self.late, "alice", "message", "too late")

    def outcome(self, enclave: bytes, now: int) -> Receipt | EncError:
        """Return how a node answers a commit whose clock shows this time."""
        with closing(SqliteStore(self.file)) as store:
            host = Host(store)
            host.now = now
            (found,) = host.run(host.commit(enclave, "alice", "message", str(now)))
            return found

    def differences(self) -> list[object]:
        with closing(SqliteStore(self.file)) as store:
            return list(check_store(store, NODE.public, None, lambda more: None).differences)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Data:
    set_clock(monkeypatch, START + MINUTE)
    return Data(tmp_path / "data")


def set_clock(monkeypatch: pytest.MonkeyPatch, now: int) -> None:
    monkeypatch.setattr(node_clock, "now_ms", lambda: now)


def test_it_shows_what_is_recorded(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    assert enc("clock", "--data", data.path).stdout.splitlines() == [
        "wall_clock    2026-09-21T14:14:20Z",
        "recorded      2026-09-21T15:13:20Z: the node accepts no commits for 3480 s (see --repair)",
        "newest_event  2026-09-21T14:13:20Z",
        "ahead         1 enclaves",
        f"{data.late.hex()} waits until 2026-09-21T15:13:20Z",
    ]
    set_clock(monkeypatch, START + HOUR - MINUTE + 1)
    assert enc("clock", "--data", data.path).stdout.splitlines()[1:] == [
        "recorded      2026-09-21T15:13:20Z",
        "newest_event  2026-09-21T15:13:20Z",
        "ahead         0 enclaves",
    ]


def test_it_shows_that_to_programs(data: Data) -> None:
    shown = json.loads(enc("clock", "--data", data.path, "--json").stdout)
    assert shown == {
        "now": START + MINUTE,
        "recorded": START + HOUR + 1,
        "newest_event": START,
        "behind_ms": HOUR - 2 * MINUTE + 1,
        "ahead": [{"enclave": data.late.hex(), "last_event": START + HOUR + 1}],
    }


def test_a_repaired_node_goes_on_except_for_the_enclaves_that_are_ahead(data: Data) -> None:
    for enclave in (data.early, data.late):
        refused = data.outcome(enclave, START + MINUTE)
        assert isinstance(refused, Unavailable)
        assert refused.message == "this node's clock shows less than it has shown before"
    result = enc("clock", "--data", data.path, "--repair", "--yes")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "recorded      2026-09-21T14:13:20Z"
    assert isinstance(data.outcome(data.early, START + MINUTE), Receipt)
    refused = data.outcome(data.late, START + MINUTE)
    assert isinstance(refused, Unavailable)
    assert refused.message == "the log is ahead of this node's clock"
    assert data.differences() == []
    late = data.outcome(data.late, START + HOUR - MINUTE + 10)
    assert isinstance(late, Receipt)
    assert late.timestamp >= START + HOUR, "timestamps of a log never fall"
    assert data.differences() == []


def test_it_asks_whether_the_clock_is_right(data: Data) -> None:
    command = ["node", "clock", "--data", str(data.path), "--repair"]
    for answer in ("n\n", ""):
        result = CliRunner().invoke(app, command, input=answer)
        assert result.exit_code == 1
        assert "Is the wall clock right?" in result.stderr
        assert isinstance(data.outcome(data.early, START + MINUTE), Unavailable)
    assert CliRunner().invoke(app, command, input="y\n").exit_code == 0
    assert isinstance(data.outcome(data.early, START + MINUTE), Receipt)


def test_a_clock_that_is_right_needs_no_repair(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, START + HOUR)
    before = enc("clock", "--data", data.path, "--json").stdout
    result = enc("clock", "--data", data.path, "--json", "--repair")
    assert (result.exit_code, result.stdout) == (0, before)


def test_a_clock_that_is_right_by_now_keeps_what_is_recorded(data: Data) -> None:
    from enc.node.ops.recorded_clock import repair_clock

    with closing(SqliteStore(data.file)) as store:
        store.write([], recorded := START + HOUR + MINUTE // 2)
        assert repair_clock(store, START + HOUR).recorded == recorded == store.clock() == store.shown()
        assert repair_clock(store, START + MINUTE).recorded == store.clock() == START
        assert store.shown() == recorded


def test_a_running_node_shows_its_clock_and_is_not_repaired(data: Data) -> None:
    with closing(SqliteStore(data.file)):
        assert enc("clock", "--data", data.path).exit_code == 0
        message = failure(enc("clock", "--data", data.path, "--repair", "--yes"), code=1)
        assert "in use by another process" in message


def test_a_store_without_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, START)
    SqliteStore(tmp_path / "enc.db").close()
    assert enc("clock", "--data", tmp_path, "--repair", "--yes").stdout.splitlines()[1:3] == [
        "recorded      none",
        "newest_event  none",
    ]
    assert failure(enc("clock", "--data", tmp_path / "none")) == f"{tmp_path / 'none' / 'enc.db'}: no such file"
