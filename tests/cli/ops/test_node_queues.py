"""`enc node queues` and `enc node redeliver`, with a node that is stopped and with one that runs."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from enc.cli.ops.node_queues import COLUMNS, age
from enc.node.store.push_interface import ChallengeResult, DeliveryResult
from enc.node.store.sqlite.store import SqliteStore
from tests.cli.ops.node_command import enc, failure
from tests.core.world import START, pub
from tests.node.pushing import CONFIG, OTHER_URL, URL, register, report, room, say, settle
from tests.node.served import Served

pytestmark = pytest.mark.usefixtures("plain_environment")

GONE = "status 410"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory: vera has two dead letters and a waiting batch, nick a delivered and a waiting one."""
    made = tmp_path / "data"
    made.mkdir()
    with Served(CONFIG, SqliteStore(made / "enc.db")) as node:
        fill(node)
        node.stop()
        node.store.close()
    return made


def fill(node: Served) -> None:
    enclave = room(node)
    for text in "one", "two", "three":
        say(enclave, text)
    vera, nick = report(node, "vera").queue, report(node, "nick").queue
    dead = [DeliveryResult(vera, push_seq, START + push_seq, GONE) for push_seq in (1, 2)]
    settle(node, *dead, DeliveryResult(nick, 1, START), DeliveryResult(nick, 2, START))


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """Return the same while the node runs. It sends nothing by itself."""
    made = tmp_path / "data"
    made.mkdir()
    with Served(CONFIG, SqliteStore(made / "enc.db")) as node:
        fill(node)
        yield made
        node.stop()
        node.store.close()


def queues(data: Path) -> dict[str, dict[str, object]]:
    """Return the queues by identity."""
    result = enc("queues", "--data", data, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {each["identity"]: each for each in found}


@pytest.mark.parametrize("where", ["data", "running"])
def test_how_queues_stand(where: str, request: pytest.FixtureRequest) -> None:
    found = queues(request.getfixturevalue(where))
    assert set(found) == {pub("vera"), pub("nick")}
    vera, nick = found[pub("vera")], found[pub("nick")]
    assert vera.pop("oldest") == nick.pop("oldest")
    assert vera == {
        "identity": pub("vera"),
        "url": URL,
        "push_seq": 3,
        "waiting": 1,
        "waiting_events": 1,
        "delivered": 0,
        "dead": 2,
        "last_error": GONE,
        "last_error_at": START + 2,
        "state": "unconfirmed",
        "confirmed_at": None,
        "held_until": None,
    }
    assert (nick["waiting"], nick["delivered"], nick["dead"]) == (1, 2, 0)
    assert (nick["last_error"], nick["last_error_at"]) == (None, None)


def test_how_queues_stand_for_people(data: Path) -> None:
    result = enc("queues", "--data", data)
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert {len(line) for line in lines} == {len(COLUMNS)}
    (vera,) = [line for line in lines if line[0] == pub("vera")]
    assert (vera[1:3], vera[4:7]) == (["3", "1"], ["0", "2", URL])
    assert vera[7].startswith(f"{GONE}, ")
    assert vera[7].endswith(" ago")
    assert vera[8] == "unconfirmed"


def test_a_node_without_queues(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    for flags in ([], ["--json"]):
        result = enc("queues", "--data", tmp_path, *flags)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert enc("redeliver", "--data", tmp_path, "--all").stdout == "0 batches wait again\n"


@pytest.mark.parametrize("where", ["data", "running"])
@pytest.mark.parametrize(
    "flags", [["--all"], ["--identity", pub("vera")], ["--url", URL], ["--url", URL, "--identity", pub("vera")]]
)
def test_dead_letters_wait_again(where: str, flags: list[str], request: pytest.FixtureRequest) -> None:
    data: Path = request.getfixturevalue(where)
    result = enc("redeliver", "--data", data, *flags)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "2 batches wait again\n", "")
    vera = queues(data)[pub("vera")]
    assert (vera["waiting"], vera["dead"], vera["push_seq"]) == (3, 0, 3)
    assert enc("redeliver", "--data", data, *flags).stdout == "0 batches wait again\n"


def test_an_endpoint_that_is_held_is_tried_again(tmp_path: Path) -> None:
    until = time.time_ns() // 1_000_000 + 7 * 3_600_000
    with Served(CONFIG, SqliteStore(tmp_path / "enc.db")) as node:
        say(room(node), "one")
        queue = report(node, "vera").queue
        settle(node, ChallengeResult(queue, START), DeliveryResult(queue, 1, START, GONE, START, 0, until))
        (line,) = [line for line in enc("queues", "--data", tmp_path).stdout.splitlines() if line.endswith(" h")]
        assert line.split("\t")[8] in ("suspended, held for 7 h", "suspended, held for 6 h")
        result = enc("redeliver", "--data", tmp_path, "--identity", pub("vera"))
        assert (result.stdout, result.stderr) == ("0 batches wait again\n1 endpoint is tried again\n", "")
        vera = queues(tmp_path)[pub("vera")]
        assert (vera["state"], vera["held_until"], vera["waiting"]) == ("suspended", None, 1)
        node.stop()
        node.store.close()


@pytest.mark.parametrize(
    "flags", [["--identity", pub("nick")], ["--url", OTHER_URL], ["--url", OTHER_URL, "--identity", pub("vera")]]
)
def test_dead_letters_of_others_do_not(data: Path, flags: list[str]) -> None:
    result = enc("redeliver", "--data", data, *flags)
    assert (result.exit_code, result.stdout) == (0, "0 batches wait again\n")
    assert ("no such queue" in result.stderr) is (OTHER_URL in flags)
    assert queues(data)[pub("vera")]["dead"] == 2


@pytest.mark.parametrize("flags", [[], ["--all", "--url", URL], ["--all", "--identity", pub("vera")]])
def test_which_ones_must_be_said(data: Path, flags: list[str]) -> None:
    message = "--all cannot be used with" if flags else "--identity, --url or both, or --all"
    assert message in failure(enc("redeliver", "--data", data, *flags))
    assert queues(data)[pub("vera")]["dead"] == 2


@pytest.mark.parametrize("text", ["", "00", "zz" * 32, pub("vera").upper(), pub("vera") + "00"])
def test_an_identity_is_sixty_four_digits(data: Path, text: str) -> None:
    assert "--identity" in failure(enc("redeliver", "--data", data, "--identity", text))


@pytest.mark.parametrize("command", [["queues"], ["redeliver", "--all"]])
def test_where_there_is_no_store_none_is_made(tmp_path: Path, command: list[str]) -> None:
    assert "no such file" in failure(enc(*command, "--data", tmp_path / "nothing"))
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "enc.db").write_bytes(b"not a database" * 100)
    failure(enc(*command, "--data", tmp_path), 1)
    (tmp_path / "enc.db").unlink()
    with closing(sqlite3.connect(tmp_path / "enc.db")) as db:
        db.execute("CREATE TABLE other (x)")
    assert "not a node's store" in failure(enc(*command, "--data", tmp_path))


def test_a_second_endpoint_is_a_queue_of_its_own(tmp_path: Path) -> None:
    with Served(CONFIG, SqliteStore(tmp_path / "enc.db")) as node:
        enclave = room(node)
        say(enclave, "one")
        register(enclave, "vera", "dataview", OTHER_URL)
        say(enclave, "two")
        result = enc("queues", "--data", tmp_path, "--json")
        node.stop()
        node.store.close()
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["url"], each["push_seq"]) for each in found if each["identity"] == pub("vera")] == [
        (OTHER_URL, 1),
        (URL, 1),
    ]


@pytest.mark.parametrize(
    ("ms", "said"),
    [(-5, "0 s"), (0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (3_600_000, "1 h"), (86_400_000 * 3, "3 d")],
)
def test_ages(ms: int, said: str) -> None:
    assert age(ms) == said


def test_the_oldest_is_told_by_its_age(data: Path) -> None:
    (line,) = [line for line in enc("queues", "--data", data).stdout.splitlines() if line.startswith(pub("nick"))]
    days = (time.time_ns() // 1_000_000 - START) // 86_400_000
    assert line.split("\t")[3] in (f"{days} d", f"{days - 1} d")


def test_a_node_does_not_start_with_authorities_that_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ENC_NODE_PUSH_CA_FILE", str(tmp_path / "missing.pem"))
    assert "push.ca_file: " in failure(enc("run", "--data", tmp_path / "data"))
    assert not (tmp_path / "data").exists()
