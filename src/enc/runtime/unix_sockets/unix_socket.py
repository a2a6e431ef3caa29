"""Unix sockets that only one user may use: mode 0600, and a look at who connects.

A path of any length may be used: Linux limits an address to 107 bytes, so a longer path is reached
through a descriptor of its directory.
"""

import errno
import os
import pwd
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError

MAX_ADDRESS = 107
"""Most bytes of a socket's address on Linux."""
MAX_NAME = 80
"""Most bytes of a socket's file name in a path that is longer than an address."""
BACKLOG = 64
PROBE_S = 1.0
FIRST_PASSED = 3
"""The first descriptor that systemd passes."""

_CREDENTIALS = struct.Struct("3i")


def listen(path: Path, owner: int) -> socket.socket:
    """Return a socket that listens at `path`, with mode 0600 and this owner.

    A socket that nobody listens on is replaced. Raises MisuseError if a program listens there, or
    if the path has something else.
    """
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # nobody else may connect, not even before chmod
    try:
        with _address(path) as address:
            listening.bind(address)
        if owner != os.geteuid():
            os.chown(path, owner, -1)
        listening.listen(BACKLOG)
    except OSError as e:
        listening.close()
        why = e.strerror or str(e)
        if e.errno == errno.EPERM:
            why += "; only root can give the socket to another user; or let systemd pass the socket (SocketUser=)"
        _refuse(path, why)
    finally:
        os.umask(before)
    return listening


def connect(path: Path, timeout_s: float) -> socket.socket:
    """Return a connection to the program that listens at `path`. Raises OSError; TimeoutError if it
    does not accept in time.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout_s)
        with _address(path) as address:
            connection.connect(address)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _address(path: Path) -> Iterator[str]:
    """Yield an address of the path that is short enough."""
    if len(os.fsencode(path)) <= MAX_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        address = f"/proc/self/fd/{folder}/{path.name}"
        if len(os.fsencode(address)) > MAX_ADDRESS:
            raise OSError(errno.ENAMETOOLONG, f"the file name of a socket has at most {MAX_NAME} bytes")
        yield address
    finally:
        os.close(folder)


def passed() -> socket.socket | None:
    """Return the listening socket that systemd passes to this process (socket activation), if any."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = os.environ.get("LISTEN_FDS", "")
    if count != "1":
        raise MisuseError(f"LISTEN_FDS: expected one socket from systemd, not {count!r}")
    try:
        found = socket.socket(fileno=FIRST_PASSED)
    except OSError as e:
        raise MisuseError(f"LISTEN_FDS: descriptor {FIRST_PASSED} is not a socket: {e.strerror}") from None
    if found.family != socket.AF_UNIX or not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise MisuseError(f"LISTEN_FDS: descriptor {FIRST_PASSED} is not a listening Unix socket")
    return found


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end, as the kernel knows them."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid


def uid_of(user: str) -> int:
    """Return the number of a user, given by name or number."""
    if user.isdecimal():
        return int(user)
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise MisuseError(f"user {user!r}: there is no such user on this machine") from None


def remove(path: Path) -> None:
    """Remove a socket at the end of the program that listened."""
    with suppress(OSError):
        path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    except OSError as e:
        _refuse(path, e.strerror or str(e))
    if not stat.S_ISSOCK(status.st_mode):
        _refuse(path, "exists and is not a socket; choose another path")
    try:
        connect(path, PROBE_S).close()
    except ConnectionRefusedError:
        remove(path)
    except OSError as e:
        _refuse(path, f"exists, and a test connection failed: {e.strerror or e}; choose another path")
    else:
        _refuse(path, "another process listens there; stop it, or choose another path")


def _refuse(path: Path, why: str) -> NoReturn:
    raise MisuseError(f"socket {path}: {why}") from None
