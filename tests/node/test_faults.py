"""A node on a failing machine: it rejects what it cannot write, keeps what it acknowledged, and recovers by itself."""

import asyncio
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode
from websockets.asyncio.client import connect

from enc.core.log.commit import wire_commit
from enc.core.primitives.types import Commit
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import client_keys, open_session
from enc.runtime.log_throttle import BURST
from enc.runtime.serving.descriptors import RESERVE
from tests.core.world import person
from tests.forked import Forked, run
from tests.node.api.websocket_peer import Room
from tests.node.crash_node import PATIENCE_S, Launched, Launcher, set_clock
from tests.node.crash_story import Load, Outside, Story, send
from tests.node.running import RunningNode, children
from tests.plain_http import NO_TLS

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    with Launcher() as found:
        yield found


class Client(AbstractContextManager["Client"]):
    """Sends requests to one node, and checks its answers."""

    def __init__(self, outside: Outside, node: Launched | RunningNode) -> None:
        self._outside, self._node = outside, node
        self._http = httpx.Client(base_url=node.url, timeout=PATIENCE_S, verify=NO_TLS, trust_env=False)

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def post(self, commit: Commit) -> httpx.Response:
        return self._http.post("/", content=encode(wire_commit(commit)))

    def health(self) -> tuple[int, str]:
        answer = self._http.get("/health")
        return answer.status_code, answer.json()["status"]

    def query(self) -> list[Any]:
        session = open_session(person("alice"), self._outside.now() // 1000 + 600)
        enclave = self._outside.enclaves[0]
        request = seal_request(session, self._node.seq_pub, enclave, "Query", {"filter": {}}, os.urandom(24))
        answer = self._http.post("/", content=encode(request))
        assert answer.status_code == 200, answer.text
        found: list[Any] = open_answer(client_keys(session, self._node.seq_pub, enclave), answer.content)["events"]
        return found

    def check_works(self) -> None:
        assert self.health() == (200, "ok")
        commit = self._outside.any_commit()
        answer = self.post(commit)
        assert answer.status_code == 200, answer.text
        self._outside.take_receipt(commit, answer.json(), self._node.seq_pub)

    def check_fails(self) -> None:
        """Check that the node rejects writes by HTTP and WebSocket with UNAVAILABLE, and still answers reads."""
        assert self.health() == (503, "failing")
        for commit in (self._outside.any_commit(), self._outside.manifest()):
            answer = self.post(commit)
            assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE"), answer.text
            assert int(answer.headers["retry-after"]) >= 1
        answer = asyncio.run(self._say(self._outside.any_commit()))
        assert answer["code"] == "UNAVAILABLE"
        assert self.query()
        for path in (f"/{self._outside.enclaves[0].hex()}/sth", "/info", "/metrics"):
            assert self._http.get(path).status_code == 200

    async def _say(self, commit: Commit) -> Any:
        async with connect(self._node.url.replace("http", "ws"), ping_interval=None) as ws:
            return await send(ws, commit)


Node = Launched | RunningNode
Fault = Callable[[bool], None]
"""A switch: True makes the machine fail, False repairs it."""


def check_fault(outside: Outside, node: Node, fault: Fault) -> None:
    """Check the fault twice: a node that recovers once may not recover again."""
    with Client(outside, node) as client:
        for _ in range(2):
            client.check_works()
            fault(True)
            client.check_fails()
            client.check_fails()
            fault(False)
            client.check_works()
            asyncio.run(outside.check(node))


def check_fault_under_load(outside: Outside, node: Node, fault: Fault) -> None:
    """Check a machine that starts to fail under load, and is repaired after some commits were rejected."""
    counts = {"sent": 0, "acknowledged": 0, "refused": 0}

    def count(what: str) -> None:
        counts[what] += 1
        if (what, counts[what]) == ("acknowledged", 12):
            fault(True)
        if (what, counts[what]) == ("refused", 12):
            fault(False)

    Load(outside, node, count, most=20, may_refuse=True).run()
    assert counts["refused"] >= 12
    assert counts["acknowledged"] > 12
    asyncio.run(outside.check(node))


def check_all(story: Story, start: Callable[[], Node], fault_of: Callable[[Node], Fault]) -> None:
    """Check a fault alone, under load, and while the node is stopped or killed on the failing machine."""
    story.create()
    with start() as node:
        fault = fault_of(node)
        check_fault(story.outside, node, fault)
        check_fault_under_load(story.outside, node, fault)
        fail_at_the_end(story.outside, node, fault, node.stop)
    story.recover()
    story.audit()
    with start() as node:
        fail_at_the_end(story.outside, node, fault_of(node), node.kill)
    story.recover()
    story.audit()


def fail_at_the_end(outside: Outside, node: Node, fault: Fault, end: Callable[[], None]) -> None:
    with Client(outside, node) as client:
        client.check_works()
        fault(True)
        client.check_fails()
    end()
    fault(False)


def full_disk(node: Node) -> Fault:
    """Let no file of the node grow, nor be written beyond its first byte, not even its log."""
    before = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)

    def switch(fails: bool) -> None:
        with suppress(ProcessLookupError):
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (1, before[1]) if fails else before)

    return switch


def flagged(flag: Path, text: str) -> Fault:
    """Return a fault that lasts while this file exists; its text names the failing statements."""

    def switch(fails: bool) -> None:
        if fails:
            flag.with_suffix(".new").write_text(text)
            flag.with_suffix(".new").replace(flag)
        else:
            flag.unlink()

    return switch


def not_ready(node: RunningNode) -> set[str]:
    """Return the codes of the reasons why a node is not ready."""
    answer = httpx.get(f"{node.admin}/health/ready", timeout=PATIENCE_S, trust_env=False, verify=NO_TLS)
    return {each["code"] for each in answer.json().get("reasons", ())}


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits can be set on Linux alone")
def test_a_node_whose_disk_is_full_says_what_fails(tmp_path: Path) -> None:
    with RunningNode(tmp_path / "node") as node:
        assert not_ready(node) == set()
        fault = full_disk(node)
        fault(True)
        while not (codes := not_ready(node)):  # a result is reused for a second
            pass
        assert codes == {"store_not_writable", "disk_not_writable"}
        fault(False)
        while not_ready(node):
            pass


def test_a_node_with_few_file_descriptors_stays_live(tmp_path: Path) -> None:
    few = RESERVE + 40
    first = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({few}, {few}))"
    with RunningNode(tmp_path / "node", first=first) as node, ExitStack() as stack:
        host, port = httpx.URL(node.url).host, httpx.URL(node.url).port or 0
        peers = [stack.enter_context(socket.create_connection((host, port))) for _ in range(few)]
        with peers[-1].makefile("rb") as file:
            assert b"503" in file.readline()
        assert httpx.get(f"{node.admin}/health/live", trust_env=False, verify=NO_TLS).json() == {"status": "ok"}
        assert not_ready(node) == set()
        assert "few_file_descriptors" in node.log()
        assert "accept_failed" not in node.log()


def test_a_process_that_checks_signatures_is_stopped(tmp_path: Path) -> None:
    """Its pipes stay open. Commits are accepted, and it is replaced."""
    with RunningNode(tmp_path / "node") as node:
        room = Room(node)
        assert not_ready(node) == set()
        (stopped,) = children(node.pid, "enc.node.signatures.worker")
        os.kill(stopped, signal.SIGSTOP)
        room.send("alice", "message", "x")  # one alone is checked by the node itself
        while "signature_workers_not_answering" not in not_ready(node):
            pass
        room.send("alice", "message", "y")
        while not_ready(node):
            pass
        (other,) = children(node.pid, "enc.node.signatures.worker")
        assert other != stopped


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="another process's limits can be set on Linux alone")
def test_the_disk_is_full(launcher: Launcher, tmp_path: Path) -> None:
    story = Story(launcher, tmp_path / "data")
    check_all(story, story.start, full_disk)


@pytest.mark.parametrize("statements", ["BEGIN", "UPDATE", "COMMIT", "COMMIT ROLLBACK"])
def test_a_statement_fails(launcher: Launcher, tmp_path: Path, statements: str) -> None:
    story, fault = Story(launcher, tmp_path / "data"), flagged(tmp_path / "failing", statements)
    check_all(story, lambda: story.start(failing=str(tmp_path / "failing")), lambda node: fault)
    assert "store_failed" in story.log()


def test_a_fault_that_comes_with_every_commit_does_not_fill_the_log(launcher: Launcher, tmp_path: Path) -> None:
    story, fault = Story(launcher, tmp_path / "data"), flagged(tmp_path / "failing", "COMMIT")
    story.create()
    with story.start(failing=str(tmp_path / "failing")) as node, Client(story.outside, node) as client:
        client.check_works()
        fault(True)
        for _ in range(3 * BURST):
            client.post(story.outside.any_commit())
        fault(False)
        lines = [line for line in story.log().splitlines() if '"store_failed"' in line]
        assert 1 <= len(lines) <= BURST
        while "log_repeats" not in story.log() and '"repeats"' not in story.log():
            pass
    story.recover()
    story.audit()


def test_a_commit_is_made_but_reported_as_failed(launcher: Launcher, tmp_path: Path) -> None:
    """A rejected client finds its commit when it sends it again, and others' commits continue after it."""
    story, fault = Story(launcher, tmp_path / "data"), flagged(tmp_path / "failing", "COMMIT late")
    check_all(story, lambda: story.start(failing=str(tmp_path / "failing")), lambda node: fault)


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether the file that FAULT names is there and says `what`. */
static int fails(const char *what) {
  char text[16] = "";
  int kept = errno, fd = open(getenv("FAULT"), O_RDONLY);
  if (fd >= 0) {
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    close(fd);
  }
  errno = kept;
  return strcmp(text, what) == 0;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

int fsync(int fd) { return fails("sync") ? (errno = EIO, -1) : REAL(fsync)(fd); }
int fdatasync(int fd) { return fails("sync") ? (errno = EIO, -1) : REAL(fdatasync)(fd); }
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  return fails("space") ? (errno = ENOSPC, -1) : REAL(pwrite)(fd, data, size, at);
}
ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at) {
  return fails("space") ? (errno = ENOSPC, -1) : REAL(pwrite64)(fd, data, size, at);
}
"""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a library that is loaded before all others and makes system calls fail."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler here, or no LD_PRELOAD")
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    command = [compiler, "-shared", "-fPIC", "-o", str(folder / "shim.so"), str(folder / "shim.c"), "-ldl"]
    subprocess.run(command, check=True, timeout=PATIENCE_S)
    return folder / "shim.so"


@pytest.mark.parametrize("what", ["sync", "space"])
def test_the_disk_fails(tmp_path: Path, shim: Path, what: str) -> None:
    """fsync fails, as on a disk that loses data; or there is no space left."""
    fault = flagged(tmp_path / "fault", what)
    with Launcher(LD_PRELOAD=str(shim), FAULT=str(tmp_path / "fault")) as launcher:
        story = Story(launcher, tmp_path / "data")
        check_all(story, story.start, lambda node: fault)


@pytest.mark.parametrize("behind_ms", [2 * MINUTE_MS, 90 * MINUTE_MS])
def test_the_clock_is_set_back(launcher: Launcher, tmp_path: Path, behind_ms: int) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    story = Story(launcher, tmp_path / "data", clock=str(clock))
    story.create()
    node = story.start()
    check_fault(story.outside, node, lambda fails: set_clock(clock, -behind_ms if fails else 0))
    set_clock(clock, -behind_ms)
    node.kill()
    node = story.start()
    with Client(story.outside, node) as client:
        client.check_fails()
        answer = client.post(story.outside.any_commit())
        assert behind_ms - MINUTE_MS < answer.json()["retry_after_ms"] <= behind_ms
        set_clock(clock, 0)
        client.check_works()
    assert "clock_behind" in story.log()
    story.check(node)
    node.kill()
    story.audit()


def test_a_clock_that_is_a_little_behind_is_taken(launcher: Launcher, tmp_path: Path) -> None:
    clock = tmp_path / "clock"
    set_clock(clock, 0)
    story = Story(launcher, tmp_path / "data", clock=str(clock))
    story.create()
    node = story.start()
    with Client(story.outside, node) as client:
        client.check_works()
        set_clock(clock, -MINUTE_MS // 2)
        client.check_works()
    node.kill()
    story.recover()
    story.audit()


def command(data: Path) -> list[str]:
    program = "from enc.cli import main; main()"
    return [sys.executable, "-c", program, "node", "run", "--data", str(data), "--port", "0", "--dev"]


def first_line(node: "subprocess.Popen[bytes]") -> bytes:
    """Return the first line of output; empty if the node has ended without one."""
    assert node.stdout is not None
    assert select.select([node.stdout], [], [], PATIENCE_S)[0], "a node neither became ready nor ended"
    return node.stdout.readline()


def test_a_second_node_on_the_same_data_refuses_to_start(launcher: Launcher, tmp_path: Path) -> None:
    story = Story(launcher, tmp_path / "data")
    story.create()
    with RunningNode(story.data) as node:
        for _ in range(2):
            second = run(command(story.data), PATIENCE_S)
            assert (second.returncode, second.stdout) == (1, b"")
            assert b"in use by another process" in second.stderr
            with Client(story.outside, node) as client:
                client.check_works()
    story.recover()
    story.audit()


def test_of_two_nodes_that_start_at_once_on_new_data_one_runs(tmp_path: Path) -> None:
    nodes = [Forked(command(tmp_path / "data"), stdout=-1, stderr=-1) for _ in range(2)]
    try:
        lines = [first_line(node) for node in nodes]
        assert sorted(bool(line) for line in lines) == [False, True]
        loser, winner = sorted(nodes, key=lambda node: bool(lines[nodes.index(node)]))
        assert loser.wait(PATIENCE_S) == 1
        ready = decode(max(lines))
        assert httpx.get(ready["url"] + "/health", timeout=PATIENCE_S, verify=NO_TLS).status_code == 200
        winner.send_signal(signal.SIGTERM)
        assert winner.wait(PATIENCE_S) == 0
    finally:
        for node in nodes:
            node.kill()
            node.communicate()
