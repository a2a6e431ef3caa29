"""Recognises a store whose file is a copy: what a node records at each start differs then.

The record is in the store: the machine, the file's inode and when it was created, and a random
number of the start. A second file beside the store has that number too, so that a store whose
content was replaced, in the same file, is recognised as well. Not recognised: a whole disk or a
virtual machine that is set back to an earlier state, with both files.
"""

import ctypes
import os
import secrets
import struct
from contextlib import suppress
from pathlib import Path

import structlog
from msgspec import Struct
from msgspec.json import decode, encode

from enc.core.errors import Unavailable
from enc.core.primitives.hashing import sha256
from enc.node.store.sqlite.store import SqliteStore
from enc.runtime.files import write_atomic

MACHINE_ID = Path("/etc/machine-id")
MAX_ID = 1000
"""Bytes that are read of a machine id, or of the number of a start."""
_AT_FDCWD, _STATX_BTIME, _STATX = -100, 0x800, struct.Struct("=I76xqI")

_log = structlog.get_logger("enc.node")


class Place(Struct, frozen=True, kw_only=True):
    """Where a store's file is, and which start recorded that."""

    machine: str
    inode: int
    birth: int
    """When the file was created, in nanoseconds; 0: the file system does not report it."""
    device: int
    start: str
    before: str
    """What the file beside the store contained before: the node may have died before it wrote it."""


def start_path(store: Path) -> Path:
    """Return the path of the file that has the number of the store's last start."""
    return store.with_name(f"{store.name}.start")


def mark_if_copied(store: SqliteStore, path: Path, host_id: str = "") -> None:
    """Mark an open store as restored if its file is a copy; otherwise record its place.

    A store without a record, of an earlier version or a new one, is not taken for a copy.
    `host_id`: the machine's name, instead of the id that its system has.
    """
    provenance, now = store.provenance, _place(path, host_id)
    if provenance.restored:
        return
    if (last := provenance.place) and (reason := _difference(decode(last, type=Place), now)):
        provenance.mark(reason)
        return
    try:
        provenance.record(encode(now).decode())
        _write_start(path, now)
    except (Unavailable, OSError) as e:  # a full disk: the record of the last start stays valid
        _log.warning("place_not_recorded", reason=str(e))


def adopt(store: SqliteStore, path: Path, host_id: str = "") -> None:
    """Let the node sign again over a restored store, from the place where it is now."""
    now = _place(path, host_id)
    store.provenance.adopt(encode(now).decode())
    _write_start(path, now)


def _place(path: Path, host_id: str) -> Place:
    status = os.stat(path)
    return Place(
        machine=_digest(host_id.encode() or _read(MACHINE_ID)),
        inode=status.st_ino,
        birth=_birth(path),
        device=status.st_dev,
        start=secrets.token_hex(16),
        before=_read(start_path(path)).decode("ascii", "replace"),
    )


def _difference(last: Place, now: Place) -> str:
    """Return in words how a place differs from that of the last start; empty if it does not."""
    if last.machine != now.machine:
        return "a copy from another machine"
    # The device's number may change when the machine starts again: it is the last resort.
    file, same = (last.inode, last.birth), (now.inode, now.birth)
    if not (last.birth and now.birth):
        file, same = (last.inode, last.device), (now.inode, now.device)
    if file != same:
        return "a copy: its file is not that of the last start"
    if now.before not in (last.start, last.before):
        return "an earlier state: the file beside it names a later start, or is missing"
    return ""


def _write_start(path: Path, place: Place) -> None:
    write_atomic(start_path(path), place.start.encode())


def _read(path: Path) -> bytes:
    with suppress(OSError), path.open("rb") as file:
        return file.read(MAX_ID).strip()
    return b""


def _digest(machine: bytes) -> str:
    """Return what stands for a machine id in backups: the id itself is not to be published."""
    return sha256(b"enc:machine:" + machine).hex()[:32] if machine else ""


def _birth(path: Path) -> int:
    """Return when a file was created, in nanoseconds; 0 if that is not known.

    Python's `os` does not report it on Linux. The file must not be opened for this: SQLite's locks on
    it would end when it is closed.
    """
    answer = ctypes.create_string_buffer(256)
    try:
        failed = ctypes.CDLL(None).statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer)
    except AttributeError:  # a C library without statx
        return 0
    mask, seconds, nanoseconds = _STATX.unpack_from(answer)
    return 0 if failed or not mask & _STATX_BTIME else seconds * 10**9 + nanoseconds
