"""`enc push receive`: a node's pushes, printed as lines or passed to a command."""

import json
import os
import re
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.cli.enclave.receiver import enclave_filter
from enc.client import Client, Enclave, Identity
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize, wire_event
from enc.core.session.envelope import seal_push
from tests.cli.people import ENC, PATIENCE_S, Person
from tests.core.world import person
from tests.node.running import RunningNode, free_port
from tests.plain_http import NO_TLS

PUSHED = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "reader(1)"],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "OUTSIDER", "trait": "reader"}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "reader", "ops": ["P"]},
        {"event": "status", "operator": "MEMBER", "ops": ["C"]},
        {"event": "status", "operator": "reader", "ops": ["N"]},
    ],
}


@pytest.fixture(scope="module")
def quick_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    settings = {"ENC_NODE_PUSH_INTERVAL_S": "0.01", "ENC_NODE_PUSH_FIRST_RETRY_S": "0.05"}
    with RunningNode(tmp_path_factory.mktemp("push") / "node", env=settings) as node:
        yield node


@pytest.fixture
def bob(anybody: Person) -> Person:
    anybody.ask("key", "new")
    return anybody


class Receiving:
    """A running `enc push receive` that listens."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        assert process.stdout is not None
        found = re.search(r"listening on 127.0.0.1 port (\d+)", self.says("listening on"))
        assert found is not None
        self.port = int(found[1])

    def says(self, text: str) -> str:
        """Return the next line on stderr that contains the text."""
        assert self.process.stderr is not None
        said = list[str]()
        while not said or text not in said[-1]:
            said.append(self.process.stderr.readline())
            assert said[-1], said
        return said[-1]

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def stop(self) -> str:
        """Stop it with SIGTERM, as a service manager does; return its stderr."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def receiving(person: Person, hook: str, *args: str | Path, port: int = 0, **env: str) -> Iterator[Receiving]:
    flags = ("--url", hook, "--state", "inbox.db", "--listen", f"127.0.0.1:{port}")
    with person.start("push", "receive", *flags, *args, **env) as process:
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        try:
            yield Receiving(process)
        finally:
            guard.cancel()
            guard.join()
            process.kill()


@contextmanager
def room(node: RunningNode, reader: Person, hook: str) -> Iterator[Enclave]:
    """Yield an enclave whose messages are pushed to somebody."""
    with Client(node.url, Identity.new(), pins=None) as client:
        owner = {"identity": client.identity.hex, "state": "MEMBER", "traits": ["owner"]}
        enclave = client.create({**PUSHED, "init": [owner]})
        enclave.grant(Identity.load(reader.key()).public, "reader", endpoint=hook)
        yield enclave


def test_each_event_is_a_line_once_over_restarts(bob: Person, quick_node: RunningNode) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with room(quick_node, bob, hook) as enclave:
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            assert running.port == port
            enclave.commit("message", "one")
            line = running.line()
            assert (line["content"], line["enclave"], line["seq"]) == ("one", enclave.hex, 2)
            enclave.commit("message", "two")
            assert running.line()["content"] == "two"
            running.stop()
        enclave.commit("message", "three")
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            enclave.commit("message", "four")
            assert [running.line()["content"] for _ in range(2)] == ["three", "four"]
            running.process.send_signal(signal.SIGINT)
            rest, _ = running.process.communicate(timeout=PATIENCE_S)
            assert (running.process.returncode, rest) == (0, "")


def test_a_command_has_each_event_on_stdin_and_is_run_again_if_it_fails(bob: Person, quick_node: RunningNode) -> None:
    script = bob.home / "on event.py"
    script.write_text(
        "import pathlib, sys\n"
        "text = sys.stdin.read()\n"
        "tried = pathlib.Path('tried')\n"
        "if not tried.exists():\n"
        "    tried.touch()\n"
        "    sys.exit(3)\n"
        "print(text, flush=True)\n"
    )
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    command = f"'{sys.executable}' '{script}'"
    with (
        room(quick_node, bob, hook) as enclave,
        receiving(bob, hook, "--exec", command, "--node", quick_node.url, port=port) as running,
    ):
        enclave.commit("message", "one")
        enclave.commit("message", "two")
        assert [running.line()["content"] for _ in range(2)] == ["one", "two"]
        assert "exited with code 3" in running.stop()


def beyond_start(said: str) -> list[str]:
    """Return the output without the notes of a start: that the node's key, or an enclave, is not known yet."""
    return [
        line
        for line in said.splitlines()
        if "key is known yet" not in line and "no enclave on that node is known" not in line
    ]


def test_where_nobody_reads_it_stops_and_loses_nothing(bob: Person, quick_node: RunningNode) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with room(quick_node, bob, hook) as enclave:
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            assert running.process.stdout is not None
            running.process.stdout.close()
            enclave.commit("message", "one")
            assert running.process.wait(PATIENCE_S) == 1
            assert running.process.stderr is not None
            assert beyond_start(running.process.stderr.read()) == []
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            assert running.line()["content"] == "one"


def test_a_full_disk_under_stdout_is_the_one_thing_it_says(bob: Person, quick_node: RunningNode) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    flags = f"--url {hook} --state inbox.db --listen 127.0.0.1:{port} --node {quick_node.url}"
    with (
        room(quick_node, bob, hook) as enclave,
        subprocess.Popen(
            ["/bin/sh", "-c", f"exec '{ENC}' push receive {flags} > /dev/full"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=bob.home,
            env={**bob.environment, "ENC_ENCLAVE": enclave.hex},
        ) as process,
    ):
        Receiving(process)
        enclave.commit("message", "one")
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 1
        assert beyond_start(said) == ["enc: OS_ERROR: [Errno 28] No space left on device"]


# With a new state file


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_with_a_new_state_file_all_that_came_before_is_pulled_by_an_enclave(
    bob: Person, quick_node: RunningNode, how: str
) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with room(quick_node, bob, hook) as enclave:
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            enclave.commit("message", "one")
            assert running.line()["content"] == "one"
            running.stop()
        (bob.home / "inbox.db").unlink()
        named, env = ("--enclave", enclave.hex), {"ENC_ENCLAVE": enclave.hex}
        flags, env = (named, {}) if how == "flag" else ((), env)
        with receiving(bob, hook, "--node", quick_node.url, *flags, port=port, **env) as running:
            assert running.line()["content"] == "one"
            assert beyond_start(running.stop()) == []


def test_without_an_enclave_it_says_that_it_waits_for_a_push(bob: Person, quick_node: RunningNode) -> None:
    with receiving(bob, "http://bob.test/hook", "--node", quick_node.url) as running:
        running.says("no enclave on that node is known, so")
        running.stop()


# Its output while no push arrives


def posted(running: Receiving, body: bytes) -> int:
    url = f"http://127.0.0.1:{running.port}/hook"
    return httpx.post(
        url, content=body, headers={"content-type": "application/json"}, trust_env=False, verify=NO_TLS
    ).status_code


def test_it_says_that_a_node_cannot_be_reached(bob: Person) -> None:
    reader = Identity.load(bob.key()).public
    with receiving(bob, "http://bob.test/hook", "--node", "http://127.0.0.1:1") as running:
        running.says("http://127.0.0.1:1 cannot be asked for missing batches; retrying: UNREACHABLE")
        body = encode(seal_push(person("node"), reader, "http://bob.test/hook", {"push_seq": 1}, os.urandom(24)))
        assert posted(running, body) == 503
        running.says("a push was rejected: UNAVAILABLE: from: not every node's key is known yet")
        running.stop()


def test_it_says_that_pushes_are_for_another_identity(bob: Person) -> None:
    carol = Identity.new().public
    with receiving(bob, "http://bob.test/hook", "--node", "http://127.0.0.1:1") as running:
        body = encode(seal_push(person("node"), carol, "http://bob.test/hook", {"push_seq": 1}, os.urandom(24)))
        assert posted(running, body) == 400
        line = running.says("a push was rejected: DECRYPT_FAILED: to: addressed to another identity")
        assert Identity.load(bob.key()).hex in line
        running.stop()


# Notices


def test_a_notice_is_a_line_of_its_own_kind(bob: Person, quick_node: RunningNode) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with room(quick_node, bob, hook) as enclave:
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            receipt = enclave.commit("status", "away")
            line = running.line()
            assert line == {
                "notice": {
                    "enclave": enclave.hex,
                    "seq": receipt.seq,
                    "event_id": receipt.id.hex(),
                    "type": "status",
                    "timestamp": receipt.timestamp,
                    "type_seq": line["notice"]["type_seq"],
                }
            }
            running.stop()
        with receiving(bob, hook, "--node", quick_node.url, "--exec", "cat", port=port) as running:
            receipt = enclave.commit("status", "back")
            assert running.process.stdout is not None
            found = json.JSONDecoder().raw_decode(
                running.process.stdout.read(len(json.dumps(line, separators=(",", ":"))))
            )
            assert found[0]["notice"]["seq"] == receipt.seq
            running.stop()


# A command that hangs


def hanging(bob: Person) -> str:
    """Return a command that prints its process id, and then waits until it may end."""
    script = bob.home / "hang.py"
    script.write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print(os.getpid(), flush=True)\n"
        "open('go').readline()\n"
    )
    os.mkfifo(bob.home / "go")
    return f"'{sys.executable}' '{script}'"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_kills_the_command_that_is_waited_for(
    bob: Person, quick_node: RunningNode, number: signal.Signals
) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with (
        room(quick_node, bob, hook) as enclave,
        receiving(bob, hook, "--exec", hanging(bob), "--node", quick_node.url, port=port) as running,
    ):
        seq = enclave.commit("message", "one").seq
        pid = running.line()
        running.process.send_signal(number)
        assert f"(process {pid}) has finished event {seq} of {enclave.hex}; a second signal" in running.says(
            "stopping when"
        )
        os.kill(pid, 0)  # it still runs
        running.process.send_signal(number)
        assert running.process.wait(PATIENCE_S) == -number
        try:
            assert running.process.stdout is not None
            assert select.select([running.process.stdout], [], [], 10)[0]  # the command would hold it open
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_the_command_that_is_waited_for_may_end(bob: Person, quick_node: RunningNode) -> None:
    port = free_port()
    hook = f"http://127.0.0.1:{port}/hook"
    with (
        room(quick_node, bob, hook) as enclave,
        receiving(bob, hook, "--exec", hanging(bob), "--node", quick_node.url, port=port) as running,
    ):
        enclave.commit("message", "one")
        running.line()
        os.killpg(running.process.pid, signal.SIGINT)  # like a terminal: to all processes of this group
        running.says("stopping when")
        go = os.open(bob.home / "go", os.O_RDWR)  # opened for both, so that this does not wait for the reader
        os.write(go, b"\n")
        assert running.process.wait(PATIENCE_S) == 0
        os.close(go)
    with closing(sqlite3.connect(bob.home / "inbox.db")) as db:
        assert db.execute("SELECT count(*) FROM enc_events").fetchone() == (0,)


@contextmanager
def liar() -> Iterator[str]:
    """Serve a node that only gives its key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = encode({"seq_pub": person("node").public.hex()})
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_lie_ends_it_with_the_evidence_in_a_file(bob: Person) -> None:
    hook, reader, node = "http://bob.test/hook", Identity.load(bob.key()).public, person("node")
    commit = build_commit(person("alice"), bytes(32), "message", "never said", 2_000_000_000_000)
    event = wire_event(finalize(commit, node, 2_000_000_000_000 - 1000, 5)) | {"content": "or was it?"}
    lie = {"push_seq": 1, "push": {"enclaves": [{"enclave": "00" * 32, "events": [event]}]}}
    with liar() as url, receiving(bob, hook, "--node", url, "--json") as running:
        body = encode(seal_push(node, reader, hook, lie, os.urandom(24)))
        status = 503
        while status == 503:  # until the node's key is known
            status = httpx.post(
                f"http://127.0.0.1:{running.port}/hook", content=body, headers={"content-type": "application/json"}
            ).status_code
        assert status == 400
        _, said = running.process.communicate(timeout=PATIENCE_S)
        assert running.process.returncode == 4, said
        error = json.loads(said.splitlines()[-1])["error"]
        assert error["code"] == "FORGERY"
        assert (bob.home / error["evidence"]).exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--listen", "here"), "expected HOST:PORT"),
        (("--listen", "127.0.0.1:99999"), "expected HOST:PORT"),
        (("--listen", "192.0.2.1:0"), "cannot listen"),
        (("--exec", "'"), "--exec"),
        (("--exec", ""), "--exec"),
        (("--exec", "./nosuch --now"), "--exec: ./nosuch: not found, or not executable"),
        (("--exec", "./plain"), "--exec: ./plain: not found, or not executable"),
        (("--cert", "nowhere.pem"), "--cert, --key: cannot be read: No such file"),
        (("--cert", "plain"), "without --key, the file of --cert must hold the key, too"),
        (("--key", "plain"), "--key: expected --cert with it"),
        (("--state", ""), "state: expected the path of a file"),
        (("--state", "missing/inbox.db"), "there is no directory missing"),
        (("--enclave", "general"), "enclave: expected"),
        (("--url", "https://b\u00f6b.test/hook"), "printable ASCII"),
        (("--url", "bob.test"), "url:"),
        (("--only", "abc"), "--only: expected an id of 64 hex digits"),
        (("--node", "node.test"), "not a node's URL"),
    ],
)
def test_a_wrong_call_is_misuse(bob: Person, flags: tuple[str, str], message: str) -> None:
    given = {"--url": "https://bob.test/hook", "--state": "inbox.db", "--node": "http://127.0.0.1:1"}
    given |= {"--listen": "127.0.0.1:0"} | dict([flags])
    (bob.home / "plain").write_text("no certificate, and no command")
    error = bob.refused("push", "receive", *(word for pair in given.items() for word in pair), code=2)
    assert not list(bob.home.glob("inbox.db*"))
    assert not (bob.home / "missing").exists()
    assert (error["code"], message in error["message"]) == ("MISUSE", True), error


def test_a_port_in_use_is_told_of_once(bob: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        flags = ("--url", "https://bob.test/hook", "--state", "inbox.db", "--node", "http://127.0.0.1:1")
        error = bob.refused("push", "receive", *flags, "--listen", place, code=2)
        hint = "stop the program that uses it, or choose another with --listen"
        assert error["message"] == f"--listen: cannot listen on {place}: Address already in use; {hint}"


def test_a_state_file_in_use_is_refused(bob: Person) -> None:
    with receiving(bob, "https://bob.test/hook", "--node", "http://127.0.0.1:1") as running:
        flags = ("--url", "https://bob.test/hook", "--state", "inbox.db", "--listen", "127.0.0.1:0")
        error = bob.refused("push", "receive", *flags, "--node", "http://127.0.0.1:1", code=2)
        assert "another receiver is using it" in error["message"]
        running.stop()
    with closing(sqlite3.connect(bob.home / "inbox.db")) as db:
        assert db.execute("SELECT url FROM enc_inbox").fetchone() == ("https://bob.test/hook",)


def test_only_the_enclaves_named_are_taken() -> None:
    one, other = bytes([1]) * 32, bytes([2]) * 32
    assert [enclave_filter([one.hex()])(each) for each in (one, other)] == [True, False]
    assert enclave_filter(None)(other)
    assert enclave_filter([])(other)
