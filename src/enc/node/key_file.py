"""The file that holds a node's private key: 64 lower-case hex digits, for its owner's eyes only.

Whoever reads this file can sign as the node. So it is refused as soon as anybody but its owner could have opened it,
and what it holds appears in no message.
"""

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError, Unavailable
from enc.core.signing import PrivateKey
from enc.runtime.files import atomic_file
from enc.runtime.locks import FileLock

_FORM = re.compile(rb"[0-9a-f]{64}\n?")


def load_or_create(path: Path) -> PrivateKey:
    """The key in this file; where there is none, a new one, which the disk has before this returns.

    The file gets its name only when it is whole, and never in the place of another: after a crash it is there or it is
    not, and of two processes that start at once both return the key of the one that was first. The draft that a crash
    left beside it is cleared away, for it may hold the same secret. The directory must be there.
    """
    if os.path.lexists(path):
        # A process that may not change the directory may still use the key in it.
        with suppress(OSError), FileLock.on_directory(path.parent, wait=True):
            _clear_drafts(path)
    else:
        try:
            with FileLock.on_directory(path.parent, wait=True):  # so that a draft is a leftover, not another's
                _clear_drafts(path)
                _create(path)
        except (FileNotFoundError, NotADirectoryError, PermissionError, ValueError) as e:
            _refuse(path, f"cannot be made: {getattr(e, 'strerror', None) or e}")
        except OSError as e:  # a full or failing disk: nobody chose a wrong path
            raise Unavailable(f"key file {path}: cannot be made: {e.strerror or e}") from None
    return load(path)


def load(path: Path) -> PrivateKey:
    """The key in this file, which must be there; MisuseError says what is wrong with it."""
    try:
        fd = _open(path)
    except (OSError, ValueError) as e:
        _refuse(path, f"cannot be read: {getattr(e, 'strerror', None) or e}")
    try:
        return _parse(path, _read(path, fd))
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    """Open the file, and follow a link only to a file of our own.

    What is judged is what was opened, so nobody can swap it in between. O_NONBLOCK: a pipe must not hold us up.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    with suppress(OSError):
        return os.open(path, flags | os.O_NOFOLLOW)
    fd = os.open(path, flags)
    if os.fstat(fd).st_uid != os.geteuid():
        os.close(fd)
        _refuse(path, "is a link to a file of another user")
    return fd


def _read(path: Path, fd: int) -> bytes:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        _refuse(path, "is not a file")
    if status.st_mode & 0o077:
        _refuse(path, "is open to others than its owner; if nobody has read it, chmod 600 it")
    return os.read(fd, 66)


def _parse(path: Path, raw: bytes) -> PrivateKey:
    key = None
    if _FORM.fullmatch(raw):
        with suppress(MisuseError):  # not chained: nothing that has seen the secret hangs on the error
            key = PrivateKey(bytes.fromhex(raw[:64].decode()))
    if key is None:
        _refuse(path, "does not hold a private key, which is 64 lower-case hex digits")
    return key


def _clear_drafts(path: Path) -> None:
    """Remove what a crash left: a key that is not whole, or a second name of the one that is."""
    draft = re.compile(re.escape(f".{path.name}.") + "[0-9a-f]{16}")
    with os.scandir(path.parent) as entries:
        for entry in list(entries):
            if draft.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry)


def _create(path: Path) -> None:
    """Write a new key, unless another process has already written one."""
    with suppress(FileExistsError), atomic_file(path, prefix=f".{path.name}.", private=True, overwrite=False) as file:
        file.write(PrivateKey(secrets.token_bytes(32)).secret.hex().encode() + b"\n")


def _refuse(path: Path, why: str) -> NoReturn:
    raise MisuseError(f"key file {path}: {why}")
