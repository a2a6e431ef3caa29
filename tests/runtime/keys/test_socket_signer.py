"""A signer in another process: what it does for the one user, and what happens while it does not answer."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from enc.core.errors import InvalidCommit, MisuseError
from enc.core.primitives.signer import BatchSigner, SignerUnavailable
from enc.core.primitives.signing import PrivateKey, check_ecdsa, check_schnorr
from enc.runtime.keys import signer_wire as wire
from enc.runtime.keys.socket_signer import SocketSigner
from enc.runtime.unix_sockets import frames, unix_socket
from tests.forked import Forked, run
from tests.signer_process import PATIENCE_S, RunningSigner

KEY, OTHER = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)
DIGEST = b"\x05" * 32


@pytest.fixture
def process(tmp_path: Path) -> Iterator[RunningSigner]:
    with RunningSigner(tmp_path / "s", KEY) as process:
        yield process


@pytest.fixture
def signer(process: RunningSigner) -> Iterator[SocketSigner]:
    signer = SocketSigner(process.path)
    yield signer
    signer.close()


class Changes:
    """What a signer reports."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self._changed = threading.Condition()

    def __call__(self, failure: str | None) -> None:
        with self._changed:
            self.seen.append(failure)
            self._changed.notify_all()

    def until(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.seen) >= count, PATIENCE_S)


def test_it_does_what_the_key_does(signer: SocketSigner, process: RunningSigner) -> None:
    assert process.ready == {"ready": True, "socket": str(process.path), "public": KEY.public.hex()}
    assert isinstance(signer, BatchSigner)
    assert signer.public == KEY.public
    check_schnorr(KEY.public, DIGEST, signer.sign("schnorr", DIGEST))
    check_ecdsa(KEY.public, DIGEST, signer.sign("ecdsa", DIGEST))
    assert signer.ecdh(OTHER.public) == signer.ecdh(b"\x02" + OTHER.public) == KEY.ecdh(OTHER.public)
    assert signer.derive("enc:é") == KEY.derive("enc:é")
    many = [i.to_bytes(32, "big") for i in range(2 * wire.MAX_DIGESTS + 1)]
    assert signer.sign_all("schnorr", many) == [KEY.sign_schnorr(each) for each in many]
    assert signer.sign_all("schnorr", []) == []


def test_threads_use_it_at_once(signer: SocketSigner) -> None:
    many = [i.to_bytes(32, "big") for i in range(400)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda each: signer.sign("schnorr", each), many)) == [KEY.sign_schnorr(e) for e in many]


def test_wrong_use_is_refused_before_it_is_sent(signer: SocketSigner) -> None:
    with pytest.raises(MisuseError, match="a digest must be 32 bytes"):
        signer.sign("schnorr", b"short")
    with pytest.raises(MisuseError, match="a digest must be 32 bytes"):
        signer.sign_all("ecdsa", [DIGEST, b""])
    for wrong in (b"", b"\xff" * 32, b"\x04" + OTHER.public):
        with pytest.raises(InvalidCommit, match="not a point"):
            signer.ecdh(wrong)
    with pytest.raises(MisuseError, match="label: over 255 bytes"):
        signer.derive("x" * 256)


# Who may connect


def test_only_its_user_may_use_the_socket(process: RunningSigner) -> None:
    assert stat.S_IMODE(process.path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_other_users_are_cut_off() -> None:
    with TemporaryDirectory() as folder, RunningSigner(Path(folder), KEY, "--user", "65534") as process:
        Path(folder).chmod(0o755)
        status = process.path.stat()
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (65534, 0o600)
        process.path.chmod(0o666)  # the mode is not what keeps others out
        for uid, may in ((65534, True), (65533, False)):
            assert _answers(process.path, uid) is may
        assert '"uid": 65533' in process.log()
        assert "this user may not use the socket" in process.log()


def _answers(path: Path, uid: int) -> bool:
    """Return whether the signer answers a process of another user."""
    program = f"""
import os, socket
os.setuid({uid})
peer = socket.socket(socket.AF_UNIX)
peer.connect({str(path)!r})
try:
    peer.sendall(b"\\0\\0\\0\\1\\0")
    print(len(peer.recv(100)))
except OSError:
    print(0)
"""
    return (
        subprocess.run([shutil.which("python3") or "", "-c", program], capture_output=True, check=True).stdout
        == b"37\n"
    )


def test_what_is_no_request_ends_the_connection(process: RunningSigner, signer: SocketSigner) -> None:
    for data in (b"\0\0\0\0", frames.LENGTH.pack(wire.MAX_REQUEST + 1), b"GET / HTTP/1.1\r\n"):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(PATIENCE_S)
            peer.connect(str(process.path))
            peer.sendall(data)
            assert peer.recv(1) == b""
    assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)


def test_requests_may_follow_each_other_in_pieces(process: RunningSigner) -> None:
    requests = wire.framed(wire.PUBLIC, b"") + wire.framed(wire.SCHNORR, DIGEST)
    expected = wire.framed(wire.DONE, KEY.public) + wire.framed(wire.DONE, KEY.sign_schnorr(DIGEST))
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(PATIENCE_S)
        peer.connect(str(process.path))
        for each in requests:
            peer.sendall(bytes((each,)))
        found = b""
        while len(found) < len(expected):
            found += peer.recv(1000)
        assert found == expected


def test_connections_are_bounded(process: RunningSigner) -> None:
    opened = [SocketSigner(process.path) for _ in range(64)]
    with pytest.raises(SignerUnavailable, match="has closed the connection"):
        SocketSigner(process.path)
    opened.pop().close()
    for each in opened:
        each.close()


# When it does not answer


def test_a_signer_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SignerUnavailable) as caught:
        SocketSigner(tmp_path / "s.sock")
    assert caught.value.message == f"the signer at {tmp_path}/s.sock cannot be reached: No such file or directory"
    assert (caught.value.code, caught.value.context) == ("UNAVAILABLE", {"retry_after_ms": 1000})


def test_after_a_restart_it_is_used_as_before(process: RunningSigner, signer: SocketSigner) -> None:
    process.stop()
    assert not process.path.exists()
    process.start()
    assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)


def test_one_that_is_killed_fails_at_once_and_is_found_again(process: RunningSigner) -> None:
    changes = Changes()
    signer = SocketSigner(process.path, report=changes)
    process.kill()
    for _ in range(3):
        with pytest.raises(SignerUnavailable, match="cannot be reached: Connection refused"):
            signer.sign("schnorr", DIGEST)
    process.start()  # it replaces the socket that nobody listens on
    changes.until(2)
    assert changes.seen == ["cannot be reached: Connection refused", None]
    assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)
    signer.close()


class WatchedLock:
    """A lock that notes which threads take it."""

    def __init__(self) -> None:
        self._lock, self.names = threading.Lock(), list[str]()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.names.append(threading.current_thread().name)

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_the_end_of_a_failure_does_not_overtake_the_next_failure(process: RunningSigner) -> None:
    """A thread that set the failure after its end would leave it for ever: nothing looks for the signer then."""
    changes, lock = Changes(), WatchedLock()
    signer = SocketSigner(process.path, report=changes)
    signer._lock = lock  # type: ignore[assignment]
    process.kill()
    with pytest.raises(SignerUnavailable):
        signer.sign("schnorr", DIGEST)
    process.start()
    changes.until(2)
    assert lock.names == ["MainThread", "signer"]
    signer.close()


def test_one_that_is_stopped_holds_up_the_first_operation_alone(process: RunningSigner) -> None:
    changes = Changes()
    signer = SocketSigner(process.path, timeout_s=0.05, report=changes)
    process.pause()
    for _ in range(100):
        with pytest.raises(SignerUnavailable, match=r"does not answer within 0\.05 seconds"):
            signer.ecdh(OTHER.public)
        signer._timeout_s = PATIENCE_S  # an operation that waited again would say so
    process.resume()
    changes.until(2)
    assert signer.ecdh(OTHER.public) == KEY.ecdh(OTHER.public)
    signer.close()


def test_one_with_another_key_is_not_used(process: RunningSigner) -> None:
    changes = Changes()
    signer = SocketSigner(process.path, report=changes)
    process.stop()
    process.put(OTHER)
    process.start()
    with pytest.raises(SignerUnavailable, match=f"holds another key, {OTHER.public.hex()}"):
        signer.sign("schnorr", DIGEST)
    process.stop()
    process.put(KEY)
    process.start()
    changes.until(2)
    assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)
    signer.close()


@contextmanager
def impostor(path: Path, *answers: bytes) -> Iterator[None]:
    """Listen at `path`, and answer the requests of one connection with these bytes."""

    def serve() -> None:
        peer, _ = listening.accept()
        with peer:
            for each in answers:
                peer.recv(1000)
                peer.sendall(each)

    with unix_socket.listen(path, os.geteuid()) as listening:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield
        thread.join(PATIENCE_S)


PUBLIC_OF_ANOTHER = wire.framed(wire.DONE, KEY.public)


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([PUBLIC_OF_ANOTHER, wire.framed(wire.DONE, bytes(32))], "does not hold the private key of"),
        ([wire.framed(wire.DONE, b"\xff" * 32)], "does not hold the private key of"),
        ([wire.framed(wire.DONE, b"short")], "does not speak the signer's protocol"),
        ([b"HTTP/1.1 400 Bad Request\r\n"], "does not speak the signer's protocol"),
        ([wire.framed(7, b"")], "does not speak the signer's protocol"),
        ([wire.framed(wire.REFUSED, b"not you")], "signer: not you"),
        ([], "has closed the connection"),
    ],
)
def test_an_impostor_is_not_believed(tmp_path: Path, answers: list[bytes], why: str) -> None:
    path = tmp_path / "s.sock"
    with impostor(path, *answers), pytest.raises(SignerUnavailable, match=why):
        SocketSigner(path)


# The socket


def test_a_path_that_cannot_be_taken(process: RunningSigner, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in (
        (process.path, "another process listens there"),
        (tmp_path / "file", "exists and is not a socket"),
        (tmp_path / "none" / "s.sock", "No such file or directory"),
        (tmp_path / ("x" * 108), "the file name of a socket has at most 80 bytes"),
    ):
        with pytest.raises(MisuseError, match=why):
            unix_socket.listen(path, os.geteuid())
    assert (tmp_path / "file").exists()


def test_a_path_may_be_longer_than_an_address(tmp_path: Path) -> None:
    with RunningSigner(tmp_path / ("x" * 120), KEY) as process:
        assert process.ready["socket"] == str(process.path)
        signer = SocketSigner(process.path)
        assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)
        signer.close()
        with pytest.raises(MisuseError, match="another process listens there"):
            unix_socket.listen(process.path, os.geteuid())
        process.kill()
        unix_socket.listen(process.path, os.geteuid()).close()  # replaces the socket that nobody listens on
        unix_socket.remove(process.path)
        assert not process.path.exists()


def test_users_are_given_by_name_or_number() -> None:
    assert (unix_socket.uid_of("root"), unix_socket.uid_of("1234")) == (0, 1234)
    with pytest.raises(MisuseError, match="there is no such user"):
        unix_socket.uid_of("nobody-at-all")


def test_systemd_may_pass_the_socket(process: RunningSigner, tmp_path: Path) -> None:
    """The shell stands for systemd: it opens the socket as descriptor 3, and sets the variables."""
    path = tmp_path / "passed.sock"
    program = f"""
import os, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind({str(path)!r})
listening.listen()
os.dup2(listening.fileno(), 3)
os.environ |= {{"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}}
sys.argv = ["enc", "node", "signer", "--data", {str(process.folder)!r}]
from enc.cli import main
main()
"""
    import sys

    with Forked([sys.executable, "-c", program], stdout=subprocess.PIPE) as passed:
        assert passed.stdout is not None
        assert str(path).encode() in passed.stdout.readline()
        signer = SocketSigner(path)
        assert signer.sign("schnorr", DIGEST) == KEY.sign_schnorr(DIGEST)
        signer.close()
        passed.terminate()
    assert path.exists()


def test_its_memory_is_closed_to_other_processes() -> None:
    program = """
import ctypes, resource
from enc.runtime.keys.signer_server import protect_memory
get = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)  # PR_GET_DUMPABLE
before = get()
protect_memory()
print(before, get(), resource.getrlimit(resource.RLIMIT_CORE))
"""
    assert run([sys.executable, "-c", program], PATIENCE_S).stdout == b"1 0 (0, 0)\n"


def test_a_signer_without_a_key(tmp_path: Path) -> None:
    command = ["enc", "node", "signer", "--data", str(tmp_path), "--socket", str(tmp_path / "s.sock")]
    done = run(command, PATIENCE_S)
    assert done.returncode == 2
    assert b"node.key: cannot be read: No such file" in done.stderr
    assert not (tmp_path / "s.sock").exists()
