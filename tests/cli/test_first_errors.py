"""Common first errors of users: each message states what happened, and how to fix it."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from enc.cli.common.exits import FAILED, MISUSE
from enc.cli.common.failures import NO_ANSWER
from tests.cli.people import Person
from tests.cli.processes import without_java

HOUR_MS = 3_600_000
NOBODY = "ab" * 32


@pytest.fixture
def taken() -> Iterator[str]:
    """Return a port that another process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield str(server.getsockname()[1])


@pytest.fixture
def nowhere() -> str:
    """Return a URL without a server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


# No Java


def test_no_java(anybody: Person, tmp_path: Path, nowhere: str) -> None:
    pull = f"node={nowhere};enclave={NOBODY}"
    anybody.run("dataview", "run", "--once", "--pull", pull, code=MISUSE, **without_java(tmp_path / "bin"))
    assert anybody.stderr.startswith("enc: Spark needs Java, and none was found; install Java 17 (Debian: openjdk-17")
    assert "JAVA_HOME" in anybody.stderr


# Port taken


def test_the_node_s_port_is_taken(anybody: Person, taken: str) -> None:
    anybody.run("node", "run", "--port", taken, code=MISUSE)
    assert (
        f"cannot listen on 127.0.0.1 port {taken}: Address already in use; stop the program that uses it"
        in anybody.stderr
    )
    assert "--port" in anybody.stderr


def test_the_port_of_the_serving_api_is_taken(anybody: Person, taken: str) -> None:
    result = anybody.ask("dataview", "serve", "--database", "x.db", "--listen", f"127.0.0.1:{taken}", code=MISUSE)
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use; stop the program that uses it" in result.stderr
    assert "--listen" in result.stderr


# Wrong key


def test_a_key_that_may_not(reader: Person, anybody: Person) -> None:
    anybody.ask("key", "new", "other.key")
    result = reader.ask("commit", "message", "hi", "--identity", str(anybody.home / "other.key"), code=FAILED)
    assert result.stderr.startswith("enc: UNAUTHORIZED: ")
    assert "`enc key show` prints your identity" in result.stderr
    assert "--identity FILE" in result.stderr


def test_no_key_at_all(reader: Person, anybody: Person) -> None:
    assert "make one with `enc key new`" in anybody.ask("enclave", "create", "team", code=MISUSE).stderr
    missing = reader.ask("commit", "message", "hi", "--identity", "no.key", code=MISUSE).stderr
    assert "no.key: there is no such file; give the path of a key file" in missing


def test_a_key_that_others_can_read(reader: Person, anybody: Person) -> None:
    anybody.ask("key", "new", "other.key")
    (anybody.home / "other.key").chmod(0o644)
    stderr = reader.ask("commit", "message", "x", "--identity", str(anybody.home / "other.key"), code=MISUSE).stderr
    assert "chmod 600" in stderr


# Node down


@pytest.mark.parametrize("command", [("commit", "message", "hi"), ("query",), ("head",)], ids=lambda each: each[0])
def test_the_node_is_down(reader: Person, nowhere: str, command: tuple[str, ...]) -> None:
    stderr = reader.ask(*command, "--node", nowhere, "--timeout", "0.1", code=NO_ANSWER).stderr
    assert stderr.startswith(f"enc: UNREACHABLE: cannot reach {nowhere}: ")
    assert "is the node running? `enc config show`" in stderr
    assert "`enc up`" in stderr


def test_the_node_that_a_dataview_pulls_from_is_down(java: None, anybody: Person, nowhere: str) -> None:
    stderr = _pull(anybody, f"node={nowhere};enclave={NOBODY}", NO_ANSWER)
    assert stderr.startswith(f"enc: UNREACHABLE: cannot reach {nowhere}: ")
    assert "is the node running?" in stderr


def _pull(person: Person, options: str, code: int) -> str:
    """Return the error of `enc dataview run` about an unreadable source, which comes before Spark starts."""
    return person.ask("dataview", "run", "--once", "--pull", options, code=code).stderr


def test_a_dataview_s_key_may_not_read_what_it_names(java: None, reader: Person, anybody: Person) -> None:
    (profile,) = reader.ask_json("config", "show")
    node, enclave = profile["node"]["value"], profile["enclave"]["value"]
    anybody.ask("key", "new", "other.key")
    stderr = _pull(anybody, f"node={node};enclave={enclave};keyFile={anybody.home / 'other.key'}", FAILED)
    assert stderr.startswith("enc: UNAUTHORIZED: ")
    assert "ENCLAVE_NOT_FOUND" in _pull(anybody, f"node={node};enclave={NOBODY}", FAILED)
    assert "enclave: expected 64" in _pull(anybody, f"node={node};enclave=xyz", MISUSE)


def test_what_is_wrong_with_views_is_told_before_spark_starts(java: None, anybody: Person) -> None:
    stderr = anybody.ask("dataview", "build", "--views", "nowhere", "--master", "none", code=MISUSE).stderr
    assert stderr == "enc: nowhere: not a folder of views\n"


def test_no_archive_is_there(java: None, anybody: Person) -> None:
    stderr = anybody.ask("dataview", "run", "--once", "--archive", "fleet", "--master", "none", code=MISUSE).stderr
    assert (
        stderr == "enc: fleet: no archive found; in a folder, archives are files that end in .enc, .zst, .enc-archive\n"
    )
    stderr = anybody.ask("dataview", "run", "--archive", "s3a://fleet", "--master", "none", code=MISUSE).stderr
    assert stderr == "enc: s3a://fleet: expected a path on a file system of this machine, not a URL\n"


# Clock off


@pytest.mark.parametrize(("hours", "code"), [(-3, "EXPIRED"), (3, "INVALID_COMMIT")])
def test_the_clock_is_off_when_something_is_written(alice: Person, hours: int, code: str) -> None:
    with patch("enc.client.clients.wiring.now_ms", lambda: time.time_ns() // 1_000_000 + hours * HOUR_MS):
        stderr = alice.ask("commit", "message", "hi", code=FAILED).stderr
    assert stderr.startswith(f"enc: {code}: exp")
    assert "clock" in stderr
    assert "`date -u`" in stderr


@pytest.mark.parametrize("hours", [-3, 3])
def test_the_clock_is_off_when_something_is_read(alice: Person, hours: int) -> None:
    with patch("enc.client.clients.wiring.now_ms", lambda: time.time_ns() // 1_000_000 + hours * HOUR_MS):
        stderr = alice.ask("query", code=FAILED).stderr
    assert "clock" in stderr
    assert "`date -u`" in stderr


# Enclave unknown


@pytest.mark.parametrize("command", [("commit", "message", "hi"), ("query",), ("head",)], ids=lambda each: each[0])
def test_nobody_knows_the_enclave(reader: Person, command: tuple[str, ...]) -> None:
    stderr = reader.ask(*command, "--enclave", NOBODY, code=FAILED).stderr
    assert stderr.startswith("enc: ENCLAVE_NOT_FOUND: no such enclave on this node")
    assert "`enc config show`" in stderr
    assert "`enc enclave list`" in stderr


def test_no_enclave_is_named(anybody: Person) -> None:
    anybody.ask("key", "new")
    stderr = anybody.ask("commit", "message", "hi", "--node", "http://127.0.0.1:1", code=MISUSE).stderr
    assert "no enclave is set in profile default: give --enclave ID" in stderr
    assert "`enc enclave create --use`" in stderr
