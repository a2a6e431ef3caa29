"""The control socket of a running node: who may use it, and what callers see when it is not there."""

import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from enc.core.errors import EncError, MisuseError, Unavailable
from enc.node.control.client import call
from enc.runtime.unix_sockets import frames, unix_socket
from tests.forked import run
from tests.node.running import PATIENCE_S, RunningNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    with RunningNode(tmp_path / "node") as node:
        yield node


def failure(data: Path) -> EncError:
    with pytest.raises(EncError) as caught:
        call(data, "operations")
    return caught.value


def test_a_running_node_answers_its_user(node: RunningNode) -> None:
    path = node.data / "control.sock"
    status = path.stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid) == (0o600, os.geteuid())
    assert "operations" in call(node.data, "operations")
    with pytest.raises(MisuseError, match="operation 'nothing': this node has only"):
        call(node.data, "nothing")
    with pytest.raises(MisuseError, match="over 65536 bytes"):
        call(node.data, "operations", {"x": "y" * 65536})
    for wrong in (b"\0\0\0\0", b"GET / HTTP/1.1\r\n\r\n"):
        with unix_socket.connect(path, PATIENCE_S) as peer:
            peer.sendall(wrong)
            assert peer.recv(1) == b""


def test_a_node_that_does_not_run(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "node")
    node.stop()
    assert not (node.data / "control.sock").exists()
    error = failure(node.data)
    assert isinstance(error, Unavailable)
    assert error.message == f"no node is running on {node.data}; start it with `enc node run`"


def test_a_killed_node_leaves_a_socket_that_the_next_replaces(tmp_path: Path) -> None:
    node = RunningNode(tmp_path / "node")
    node.kill()
    assert (node.data / "control.sock").exists()
    assert "no node is running" in failure(node.data).message
    with RunningNode(tmp_path / "node"):
        assert "operations" in call(node.data, "operations")


def test_a_second_node_does_not_take_it(node: RunningNode) -> None:
    with pytest.raises(AssertionError, match="the store is in use by another process"):
        RunningNode(node.data)
    assert "operations" in call(node.data, "operations")


def test_a_data_directory_with_a_long_path(tmp_path: Path) -> None:
    data = tmp_path / ("d" * 100) / ("e" * 100)
    data.mkdir(parents=True)
    with RunningNode(data):
        assert "operations" in call(data, "operations")
    assert "no node is running" in failure(data).message


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_other_users_may_not_use_it() -> None:
    with TemporaryDirectory() as folder, RunningNode(Path(folder) / "node") as node:
        Path(folder).chmod(0o755)
        node.data.chmod(0o755)
        found = _call_as_nobody(node.data)
        assert found.endswith(
            "control.sock: the node runs as the user root, and nobody may not control it; "
            "run this command as that user or as root\n"
        )
        (node.data / "control.sock").chmod(0o666)  # the mode is not all that keeps others out
        assert "the node closed the connection" in _call_as_nobody(node.data)
        assert '"uid": 65534' in node.log()


def _call_as_nobody(data: Path) -> str:
    """Return the message of the error that another user's call gets."""
    program = f"""
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from enc.core.errors import Unavailable
from enc.node.control.client import call
os.setuid(65534)
try:
    call(Path({str(data)!r}), "operations")
except Unavailable as e:
    print(e.message)
"""
    return run([sys.executable, "-c", program], PATIENCE_S).stdout.decode()


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the node closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the answer does not come from a node"),
        (frames.framed(b"not JSON"), "the answer does not come from a node"),
    ],
)
def test_what_is_not_a_node(tmp_path: Path, answer: bytes, why: str) -> None:
    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(answer)

    with unix_socket.listen(tmp_path / "control.sock", os.geteuid()) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        assert why in failure(tmp_path).message
        thread.join(PATIENCE_S)


def test_a_node_that_does_not_answer_in_time(tmp_path: Path) -> None:
    why = r"did not answer within 0\.01 seconds; it may still do what was asked"
    with unix_socket.listen(tmp_path / "control.sock", os.geteuid()), pytest.raises(Unavailable, match=why):
        call(tmp_path, "operations", timeout_s=0.01)
