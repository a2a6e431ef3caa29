"""The file with a node's private key: 64 lower-case hex digits, or sealed with a passphrase in the
format of `enc.runtime.keys.key_file`. Readable only by its owner.

Anyone who reads a file that is not sealed can sign as the node. So it is rejected if anyone but its
owner could open it, and no message contains its content.
"""

import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.signing import PrivateKey
from enc.runtime.files import atomic_file
from enc.runtime.keys.key_file import MAX_SIZE, PassphraseNeeded, format_key, parse_key, public_key
from enc.runtime.locks import FileLock
from enc.runtime.private_file import is_credential

_FORM = re.compile(rb"[0-9a-f]{64}\n?")

AskPassphrase = Callable[[Path], str]
"""Returns the passphrase of a sealed key file, or raises MisuseError. Called only for such a file."""


def load_or_create(path: Path, ask: AskPassphrase | None = None) -> PrivateKey:
    """Return the key in this file; if the file is missing, create it with a new key and fsync it.

    The file is linked to its name only when complete, and never replaces another: after a crash it
    exists or it does not, and two processes that start at once both return the key of the first. A
    draft left by a crash is deleted, since it may contain the same secret. The directory must
    exist.
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
            _refuse(path, f"cannot be created: {getattr(e, 'strerror', None) or e}")
        except OSError as e:  # a full or failing disk: the path is not at fault
            raise Unavailable(f"key file {path}: cannot be created: {e.strerror or e}") from None
    return load(path, ask)


def load(path: Path, ask: AskPassphrase | None = None) -> PrivateKey:
    """Return the key in this file. Raises MisuseError with the reason if it is missing or invalid,
    and PassphraseNeeded if it is sealed and `ask` is missing.
    """
    raw = _content(path)
    if not _has_format(raw):
        return _parse(path, raw)
    try:
        return parse_key(path, raw, None)
    except PassphraseNeeded:
        if ask is None:
            raise
    return parse_key(path, raw, ask(path))


def public(path: Path) -> bytes:
    """Return the public key of the key in this file. A sealed file shows it without its passphrase."""
    raw = _content(path)
    return public_key(path, raw) if _has_format(raw) else _parse(path, raw).public


def is_sealed(path: Path) -> bool:
    """Return whether the file opens only with a passphrase."""
    try:
        load(path)
    except PassphraseNeeded:
        return True
    return False


def save(path: Path, key: PrivateKey, passphrase: str | None) -> None:
    """Replace the file, sealed if a passphrase is given; after a crash there is the old or the new
    one. A link stays: the file that it names is replaced.
    """
    path = path.resolve()
    content = f"{key.secret.hex()}\n".encode() if passphrase is None else format_key(key, passphrase)
    try:
        with atomic_file(path, prefix=f".{path.name}.", private=True) as file:
            file.write(content)
    except OSError as e:
        raise Unavailable(f"key file {path}: cannot be written: {e.strerror or e}") from None


def _has_format(raw: bytes) -> bool:
    """Return whether this content is of the format that can be sealed, rather than bare digits."""
    return raw[:1] == b"{"


def _content(path: Path) -> bytes:
    try:
        fd = _open(path)
    except (OSError, ValueError) as e:
        _refuse(path, f"cannot be read: {getattr(e, 'strerror', None) or e}")
    try:
        return _read(path, fd)
    finally:
        os.close(fd)


def _open(path: Path) -> int:
    """Open the file; follow a link only to a file of the same user.

    The checks apply to the opened file, so it cannot be swapped in between. O_NONBLOCK: a pipe must
    not block.
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
    if status.st_mode & 0o077 and not is_credential(path, status):
        _refuse(path, "is accessible to other users; if no one has read it, run chmod 600 on it")
    return os.read(fd, MAX_SIZE + 1)


def _parse(path: Path, raw: bytes) -> PrivateKey:
    key = None
    if _FORM.fullmatch(raw):
        with suppress(MisuseError):  # not chained: nothing that has seen the secret may be attached to the error
            key = PrivateKey(bytes.fromhex(raw[:64].decode()))
    if key is None:
        _refuse(path, "does not contain a private key (64 lower-case hex digits, or what `enc node key seal` writes)")
    return key


def _clear_drafts(path: Path) -> None:
    """Delete what a crash left: an incomplete key, or a second name of the complete one."""
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
