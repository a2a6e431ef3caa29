"""Pins: what a client remembers of each enclave, its sequencer and the last verified head.

A pin makes a node's second answer harder to forge than its first. So a pin only grows: of two heads
of one sequencer the larger one stays, whichever is stored last, and no head is replaced by None.
The sequencer changes only through a Migrate, which the pin stores. It also stores where the sequencer
has answered, so that a client finds it when the node that the client was given is gone.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

from msgspec import Struct
from msgspec.json import Decoder

from enc.client.verify.sequencer_history import MAX_CONTENT, MAX_MOVES, History, Migration
from enc.core.errors import InvalidProof, MisuseError, PeerError
from enc.core.log.event import WireEvent, event_from_wire, wire_event
from enc.core.primitives.encoding import compact_json, decode_json, unhex
from enc.core.primitives.types import TreeHead
from enc.core.rules.content import parse_migrate
from enc.core.trees.tree_head import WireHead, head_from_wire, wire_head
from enc.runtime import private_file
from enc.runtime.files import sync_directory
from enc.runtime.locks import FileLock
from enc.runtime.private_file import refuse

FORMAT, VERSION, MOVED = "enc-pin", 1, 2
"""A pin that contains Migrates has format version 2."""
MAX_URLS, MAX_URL = 4, 1024
"""Most addresses of a sequencer that a pin stores, and most characters of one."""
MAX_SIZE = 4096 + MAX_URLS * MAX_URL + MAX_MOVES * (6 * MAX_CONTENT + 8192)
LOCK = ".lock"


class Pin(Struct, frozen=True):
    """The enclave's sequencer, its last verified head (None before the first), and the known
    Migrates.

    The last Migrate may name another sequencer than this one: a node that was not asked yet.
    """

    sequencer: bytes
    head: TreeHead | None
    moves: tuple[Migration, ...] = ()
    first: bytes | None = None
    """The sequencer before all moves, if known."""
    urls: tuple[str, ...] = ()
    """Where the sequencer has answered, the latest address first; users of one check the key
    again."""

    def __post_init__(self) -> None:
        if len(self.sequencer) != 32:
            raise MisuseError("a sequencer's key must be 32 bytes")

    @property
    def since(self) -> int:
        """The first seq of the sequencer's term, as far as known."""
        return max((term.from_seq for term in self.history.terms() if term.sequencer == self.sequencer), default=0)

    @property
    def history(self) -> History:
        return History(self.first, self.moves) if self.moves else History(self.sequencer)

    @property
    def named(self) -> tuple[bytes, ...]:
        """The keys by which to find the enclave's node: the latest known sequencer and the pinned
        one.
        """
        return tuple(dict.fromkeys((self.history.sequencer or self.sequencer, self.sequencer)))


def pin_of(sequencer: bytes, head: TreeHead | None, history: History, urls: Sequence[str] = ()) -> Pin:
    return Pin(sequencer, head, history.moves, history.first if history.moves else None, tuple(urls))


class Pins(Protocol):
    """Stores pins. `store` merges with `merge_pins`; `check` raises if pins could not be stored."""

    def check(self) -> None: ...

    def load(self, enclave: bytes) -> Pin | None: ...

    def store(self, enclave: bytes, pin: Pin) -> None: ...

    def remove(self, enclave: bytes) -> None: ...


def merge_pins(old: Pin | None, new: Pin) -> Pin:
    """Return the pin to keep after `new` is stored over `old`: the larger head, and all known
    Migrates.

    Another sequencer replaces the pinned one only through Migrates that lead from one to the other.
    To trust any other sequencer, remove the pin.
    """
    if old is None:
        return new
    known = max((old, new), key=lambda pin: (pin.history.reach, len(pin.moves)))
    if new.sequencer == old.sequencer:
        heads = [pin.head for pin in (new, old) if pin.head is not None]
        head = max(reversed(heads), key=lambda head: head.ts, default=None)
        return pin_of(new.sequencer, head, known.history, _merge_urls(old.urls, new.urls))
    is_led_to = new.history.knows(old.sequencer) and new.history.holds(old.history)
    return new if is_led_to and new.since > old.since else old


def _merge_urls(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Return the latest addresses. A known one changes nothing, so that it costs no write."""
    return old if set(new) <= set(old) else tuple(dict.fromkeys((*new, *old)))[:MAX_URLS]


class MemoryPins:
    """Pins in memory, for the life of the program; thread-safe."""

    def check(self) -> None:
        """Always succeeds."""

    def __init__(self) -> None:
        self._pins: dict[bytes, Pin] = {}
        self._lock = Lock()

    def load(self, enclave: bytes) -> Pin | None:
        return self._pins.get(_checked(enclave))

    def store(self, enclave: bytes, pin: Pin) -> None:
        with self._lock:
            self._pins[enclave] = merge_pins(self.load(enclave), pin)

    def remove(self, enclave: bytes) -> None:
        """Forget the enclave: the next node that answers is trusted again."""
        self._pins.pop(_checked(enclave), None)


class FilePins:
    """Pins in a directory, one file per enclave; safe to share between threads and processes."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    @property
    def directory(self) -> Path:
        return self._directory

    def check(self) -> None:
        """Check that the directory is writable, before a node is asked for something that must be
        stored.
        """
        with self._locked():
            pass

    def load(self, enclave: bytes) -> Pin | None:
        path = self._path(enclave)
        raw = private_file.read(path, MAX_SIZE)
        if raw is None:
            return None
        try:
            return parse_pin(enclave, raw)
        except PeerError as e:
            refuse(path, f"is not a pin of this enclave: {e.message}; removing it means trusting the node again")

    def store(self, enclave: bytes, pin: Pin) -> None:
        """Merge and write the pin; it is synced to disk on return."""
        path = self._path(enclave)
        with self._locked():
            old = self.load(enclave)
            new = merge_pins(old, pin)
            if new != old:
                private_file.write(path, format_pin(enclave, new), overwrite=True)

    def remove(self, enclave: bytes) -> None:
        """Forget the enclave: the next node that answers is trusted again."""
        path = self._path(enclave)
        with self._locked():
            try:
                path.unlink(missing_ok=True)
                sync_directory(self._directory)
            except OSError as e:
                refuse(path, f"cannot be removed: {private_file.reason(e)}")

    def _path(self, enclave: bytes) -> Path:
        return self._directory / f"{_checked(enclave).hex()}.json"

    def _locked(self) -> FileLock:
        """Wait for all other threads and processes: what is read under the lock is still so when it
        is written.
        """
        try:
            private_file.make_directory(self._directory)
            return FileLock(self._directory / LOCK, wait=True)
        except (OSError, ValueError) as e:
            refuse(
                self._directory,
                f"cannot keep pins: {private_file.reason(e)}; give a directory of your own, or set XDG_DATA_HOME",
            )


def default_directory() -> Path:
    """Return $XDG_DATA_HOME/enc/pins or ~/.local/share/enc/pins; ignores a relative XDG_DATA_HOME."""
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    if not data.is_absolute():
        try:
            data = Path.home() / ".local" / "share"
        except RuntimeError:
            raise MisuseError("there is no home directory to keep pins in; set XDG_DATA_HOME") from None
    return data / "enc" / "pins"


class _WireMove(Struct):
    event: WireEvent
    size: int | None


class _PinFile(Struct):
    format: str
    version: int
    enclave: str
    sequencer: str
    head: WireHead | None
    first: str | None = None
    moves: list[_WireMove] = []
    urls: list[str] = []


_decoder = Decoder(_PinFile)


def format_pin(enclave: bytes, pin: Pin) -> bytes:
    """Return the content of a pin file."""
    content = {
        "format": FORMAT,
        "version": MOVED if pin.moves else VERSION,
        "enclave": enclave.hex(),
        "sequencer": pin.sequencer.hex(),
        "head": None if pin.head is None else wire_head(pin.head),
    }
    if pin.moves:
        content["first"] = None if pin.first is None else pin.first.hex()
        content["moves"] = [{"event": wire_event(move.event), "size": move.size} for move in pin.moves]
    if pin.urls:
        content["urls"] = list(pin.urls)
    return compact_json(content).encode() + b"\n"


def parse_pin(enclave: bytes, raw: bytes) -> Pin:
    """Return the pin in a file's content; raises InvalidProof. The inverse of format_pin."""
    file = decode_json(raw, _decoder, InvalidProof)
    if (file.format, file.version) != (FORMAT, MOVED if file.moves else VERSION):
        raise InvalidProof(f"format: expected {FORMAT}, version {VERSION}, or {MOVED} with moves")
    if file.enclave != enclave.hex():
        raise InvalidProof("enclave: the pin belongs to another enclave")
    if len(file.urls) > MAX_URLS:
        raise InvalidProof(f"urls: more than {MAX_URLS}")
    return Pin(
        unhex(file.sequencer, 32, "sequencer", InvalidProof),
        None if file.head is None else head_from_wire(file.head),
        tuple(_moves(file.moves)),
        None if file.first is None else unhex(file.first, 32, "first", InvalidProof),
        tuple(file.urls),
    )


def _moves(wires: list[_WireMove]) -> Iterator[Migration]:
    """Decode the moves. Their signatures, and the head's, were checked before they were stored."""
    for wire in wires:
        event = event_from_wire(wire.event)
        yield Migration(event, parse_migrate(event).new_sequencer, wire.size)


def _checked(enclave: bytes) -> bytes:
    if len(enclave) != 32:
        raise MisuseError("an enclave's id must be 32 bytes")
    return enclave
