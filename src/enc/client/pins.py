"""What a client remembers of each enclave: whose word counts, and the last signed head that it believed.

A pin is what makes a node's second answer harder to forge than its first. So it only ever grows: of two heads of one
sequencer the larger stays, whoever comes last, and no head gives way to none. Another sequencer comes only by a
Migrate, which the pin keeps.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Protocol

from msgspec import Struct
from msgspec.json import Decoder

from enc.client.history import MAX_CONTENT, MAX_MOVES, History, Move
from enc.core.content import parse_migrate
from enc.core.encoding import compact_json, decode_json, unhex
from enc.core.errors import InvalidProof, MisuseError, PeerError
from enc.core.event import WireEvent, event_from_wire, wire_event
from enc.core.tree_head import WireHead, head_from_wire, wire_head
from enc.core.types import TreeHead
from enc.runtime import private_file
from enc.runtime.files import sync_directory
from enc.runtime.locks import FileLock
from enc.runtime.private_file import refuse

FORMAT, VERSION, MOVED = "enc-pin", 1, 2
"""A pin with Migrates in it is of the second version."""
MAX_SIZE = 4096 + MAX_MOVES * (6 * MAX_CONTENT + 8192)
LOCK = ".lock"


class Pin(Struct, frozen=True):
    """The enclave's sequencer, its last head that was checked (None before the first), and the Migrates that are known.

    The last of them may lead away from the sequencer, to a node that nobody has asked yet.
    """

    sequencer: bytes
    head: TreeHead | None
    moves: tuple[Move, ...] = ()
    first: bytes | None = None
    """Who was the sequencer before all moves, if that is known."""

    def __post_init__(self) -> None:
        if len(self.sequencer) != 32:
            raise MisuseError("a sequencer's key is 32 bytes")

    @property
    def since(self) -> int:
        """The first event of the sequencer's term, as far as is known."""
        return max((term.from_seq for term in self.history.terms() if term.sequencer == self.sequencer), default=0)

    @property
    def history(self) -> History:
        return History(self.first, self.moves) if self.moves else History(self.sequencer)


def pin_of(sequencer: bytes, head: TreeHead | None, history: History) -> Pin:
    return Pin(sequencer, head, history.moves, history.first if history.moves else None)


class Pins(Protocol):
    """Where pins are kept. `store` keeps what `grown` says; `check` raises where nothing could be kept."""

    def check(self) -> None: ...

    def load(self, enclave: bytes) -> Pin | None: ...

    def store(self, enclave: bytes, pin: Pin) -> None: ...

    def remove(self, enclave: bytes) -> None: ...


def merge_pins(old: Pin | None, new: Pin) -> Pin:
    """What stands after `new` was stored over `old`: the larger head of one sequencer, and all Migrates that are known.

    Another sequencer takes its place only by Migrates that lead from the one to the other: who wants to trust any
    other removes the pin.
    """
    if old is None:
        return new
    known = max((old, new), key=lambda pin: (pin.history.reach, len(pin.moves)))
    if new.sequencer == old.sequencer:
        heads = [pin.head for pin in (new, old) if pin.head is not None]
        head = max(reversed(heads), key=lambda head: head.ts, default=None)
        return pin_of(new.sequencer, head, known.history)
    is_led_to = new.history.knows(old.sequencer) and new.history.holds(old.history)
    return new if is_led_to and new.since > old.since else old


class MemoryPins:
    """Pins for as long as the program runs; threads may share them."""

    def check(self) -> None:
        """There is always room."""

    def __init__(self) -> None:
        self._pins: dict[bytes, Pin] = {}
        self._lock = Lock()

    def load(self, enclave: bytes) -> Pin | None:
        return self._pins.get(_checked(enclave))

    def store(self, enclave: bytes, pin: Pin) -> None:
        with self._lock:
            self._pins[enclave] = merge_pins(self.load(enclave), pin)

    def remove(self, enclave: bytes) -> None:
        """Forget the enclave: the node is trusted anew."""
        self._pins.pop(_checked(enclave), None)


class FilePins:
    """Pins in a directory, one file for each enclave; threads and processes may share it."""

    def __init__(self, directory: Path | str) -> None:
        self._directory = Path(directory)

    def check(self) -> None:
        """The directory can be written: better to know before a node is asked for something that must be kept."""
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
            refuse(path, f"is no pin of this enclave: {e.message}; to remove it means to trust the node anew")

    def store(self, enclave: bytes, pin: Pin) -> None:
        """The disk has the pin when this returns."""
        path = self._path(enclave)
        with self._locked():
            old = self.load(enclave)
            new = merge_pins(old, pin)
            if new != old:
                private_file.write(path, format_pin(enclave, new), overwrite=True)

    def remove(self, enclave: bytes) -> None:
        """Forget the enclave: the node is trusted anew."""
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
        """Wait for all other threads and processes: what is read under the lock is still so when it is written."""
        try:
            private_file.make_directory(self._directory)
            return FileLock(self._directory / LOCK, wait=True)
        except (OSError, ValueError) as e:
            refuse(
                self._directory,
                f"cannot keep pins: {private_file.reason(e)}; give a directory of your own, or set XDG_DATA_HOME",
            )


def default_directory() -> Path:
    """$XDG_DATA_HOME/enc/pins, or ~/.local/share/enc/pins; a relative XDG_DATA_HOME counts as none, as XDG has it."""
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


_decoder = Decoder(_PinFile)


def format_pin(enclave: bytes, pin: Pin) -> bytes:
    """A pin as it is kept on disk."""
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
    return compact_json(content).encode() + b"\n"


def parse_pin(enclave: bytes, raw: bytes) -> Pin:
    """The inverse of format_pin, or InvalidProof."""
    file = decode_json(raw, _decoder, InvalidProof)
    if (file.format, file.version) != (FORMAT, MOVED if file.moves else VERSION):
        raise InvalidProof(f"format: expected {FORMAT}, version {VERSION}, or {MOVED} with moves")
    if file.enclave != enclave.hex():
        raise InvalidProof("enclave: it is another's")
    return Pin(
        unhex(file.sequencer, 32, "sequencer", InvalidProof),
        None if file.head is None else head_from_wire(file.head),
        tuple(_moves(file.moves)),
        None if file.first is None else unhex(file.first, 32, "first", InvalidProof),
    )


def _moves(wires: list[_WireMove]) -> Iterator[Move]:
    """Signatures were checked before they were stored, as the head's was."""
    for wire in wires:
        event = event_from_wire(wire.event)
        yield Move(event, parse_migrate(event).new_sequencer, wire.size)


def _checked(enclave: bytes) -> bytes:
    if len(enclave) != 32:
        raise MisuseError("an enclave's id is 32 bytes")
    return enclave
