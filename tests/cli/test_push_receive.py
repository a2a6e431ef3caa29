"""`enc push receive`: events that a node pushes, as lines, or to a command."""

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import Client, Enclave, Identity
from enc.core.commit import build_commit
from enc.core.envelope import seal_push
from enc.core.event import finalize, wire_event
from tests.core.world import person
from tests.node.running import RunningNode

from .people import PATIENCE_S, Person

PUSHED = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "reader(1)"],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "OUTSIDER", "trait": "reader"}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "reader", "ops": ["P"]},
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
    """The command, listening."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        assert process.stdout is not None
        said = process.stderr.readline()
        found = re.search(r"listening on 127.0.0.1 port (\d+)", said)
        assert found is not None, said
        self.port = int(found[1])

    def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def stop(self) -> str:
        """Ends it as a service manager does; what it said on stderr."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 0, said
        return said


@contextmanager
def receiving(person: Person, hook: str, *args: str | Path, port: int = 0) -> Iterator[Receiving]:
    flags = ("--url", hook, "--state", "inbox.db", "--listen", f"127.0.0.1:{port}")
    with person.start("push", "receive", *flags, *args) as process:
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        try:
            yield Receiving(process)
        finally:
            guard.cancel()
            guard.join()
            process.kill()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def room(node: RunningNode, reader: Person, hook: str) -> Iterator[Enclave]:
    """An enclave whose messages are pushed to somebody."""
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
        assert "ended with 3" in running.stop()


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
            assert "Traceback" not in running.process.stderr.read()
        with receiving(bob, hook, "--node", quick_node.url, port=port) as running:
            assert running.line()["content"] == "one"


@contextmanager
def liar() -> Iterator[str]:
    """A node that tells its key, and nothing else."""

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
        (("--cert", "nowhere.pem"), "--cert, --key: cannot be used"),
        (("--url", "bob.test"), "url:"),
        (("--node", "node.test"), "not a node's URL"),
    ],
)
def test_a_wrong_call_is_misuse(bob: Person, flags: tuple[str, ...], message: str) -> None:
    given = {"--url": "https://bob.test/hook", "--state": "inbox.db", "--node": "http://127.0.0.1:1"}
    given |= {"--listen": "127.0.0.1:0"} | dict([flags])
    error = bob.refused("push", "receive", *(word for pair in given.items() for word in pair), code=2)
    assert (error["code"], message in error["message"]) == ("MISUSE", True), error


def test_a_state_file_in_use_is_refused(bob: Person) -> None:
    with receiving(bob, "https://bob.test/hook", "--node", "http://127.0.0.1:1") as running:
        flags = ("--url", "https://bob.test/hook", "--state", "inbox.db", "--listen", "127.0.0.1:0")
        error = bob.refused("push", "receive", *flags, "--node", "http://127.0.0.1:1", code=2)
        assert "another process is using it" in error["message"]
        running.stop()
    with closing(sqlite3.connect(bob.home / "inbox.db")) as db:
        assert db.execute("SELECT url FROM enc_inbox").fetchone() == ("https://bob.test/hook",)
