"""Pins: they grow and never shrink, even with concurrent writers, and a damaged one is rejected."""

import fcntl
import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.client.verify import pins as pins_module
from enc.client.verify.pins import MAX_URLS, FilePins, MemoryPins, Pin, default_directory, merge_pins
from enc.core.errors import MisuseError
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import sign_head, wire_head
from enc.runtime import private_file

ENCLAVE, OTHER = sha256(b"enclave"), sha256(b"other")
NODE, NEXT = PrivateKey(sha256(b"node")), PrivateKey(sha256(b"next"))


def head(ts: int, key: PrivateKey = NODE) -> TreeHead:
    return sign_head(key, ENCLAVE, 1_790_000_000_000 + ts, ts, sha256(b"root %d" % ts))


def pin(ts: int | None, key: PrivateKey = NODE) -> Pin:
    return Pin(key.public, None if ts is None else head(ts, key))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data" / "pins"


@pytest.fixture(params=["memory", "file"])
def pins(request: pytest.FixtureRequest, directory: Path) -> MemoryPins | FilePins:
    return MemoryPins() if request.param == "memory" else FilePins(directory)


@pytest.fixture
def file(directory: Path) -> Path:
    """Return the file of an enclave whose pin is stored."""
    FilePins(directory).store(ENCLAVE, pin(3))
    return directory / f"{ENCLAVE.hex()}.json"


# What is kept


@pytest.mark.parametrize(
    ("before", "stored", "after"),
    [
        (None, pin(None), pin(None)),
        (None, pin(3), pin(3)),
        (pin(None), pin(3), pin(3)),
        (pin(None), pin(None, NEXT), pin(None)),
        (pin(3), pin(4), pin(4)),
        (pin(3), pin(3), pin(3)),
        (pin(3), pin(2), pin(3)),
        (pin(3), pin(0), pin(3)),
        (pin(3), pin(None), pin(3)),
        (pin(3), pin(4, NEXT), pin(3)),
        (pin(3), pin(2, NEXT), pin(3)),
        (pin(3), pin(None, NEXT), pin(3)),
    ],
    ids=range(12),
)
def test_what_stands_after_store(pins: MemoryPins | FilePins, before: Pin | None, stored: Pin, after: Pin) -> None:
    if before:
        pins.store(ENCLAVE, before)
    pins.store(ENCLAVE, stored)
    assert pins.load(ENCLAVE) == after
    assert pins.load(OTHER) is None


def test_of_two_heads_of_one_size_the_first_stays() -> None:
    other = sign_head(NODE, ENCLAVE, 1, 3, sha256(b"another root"))
    assert merge_pins(pin(3), Pin(NODE.public, other)) == pin(3)


@given(st.permutations(range(5)))
def test_the_largest_stays_in_whatever_order_they_come(order: list[int]) -> None:
    pins = MemoryPins()
    for ts in order:
        pins.store(ENCLAVE, pin(ts))
    assert pins.load(ENCLAVE) == pin(4)


def test_enclaves_are_apart(pins: MemoryPins | FilePins) -> None:
    pins.store(ENCLAVE, pin(3))
    pins.store(OTHER, pin(1, NEXT))
    assert (pins.load(ENCLAVE), pins.load(OTHER)) == (pin(3), pin(1, NEXT))


def test_after_remove_the_node_is_trusted_anew(pins: MemoryPins | FilePins) -> None:
    pins.remove(ENCLAVE)
    pins.store(ENCLAVE, pin(3))
    pins.store(OTHER, pin(3))
    pins.remove(ENCLAVE)
    assert (pins.load(ENCLAVE), pins.load(OTHER)) == (None, pin(3))
    pins.store(ENCLAVE, pin(1))
    assert pins.load(ENCLAVE) == pin(1)


@pytest.mark.parametrize("enclave", [b"", bytes(31), bytes(33)])
def test_what_is_no_enclave(pins: MemoryPins | FilePins, enclave: bytes) -> None:
    for call in (pins.load, pins.remove, lambda enclave: pins.store(enclave, pin(1))):
        with pytest.raises(MisuseError, match="32 bytes"):
            call(enclave)


def test_a_pin_names_a_key() -> None:
    with pytest.raises(MisuseError, match="32 bytes"):
        Pin(b"short", None)


# Files


@pytest.mark.parametrize(("stored", "wire"), [(pin(3), wire_head(head(3))), (pin(None), None)], ids=["head", "none"])
def test_the_file(directory: Path, stored: Pin, wire: Any) -> None:
    FilePins(directory).store(ENCLAVE, stored)
    assert json.loads((directory / f"{ENCLAVE.hex()}.json").read_bytes()) == {
        "format": "enc-pin",
        "version": 1,
        "enclave": ENCLAVE.hex(),
        "sequencer": NODE.public.hex(),
        "head": wire,
    }
    assert FilePins(str(directory)).load(ENCLAVE) == stored


def test_a_head_without_bound_sig_is_kept_as_it_is(directory: Path) -> None:
    bare = TreeHead(1, 2, bytes(32), bytes(64))
    FilePins(directory).store(ENCLAVE, Pin(NODE.public, bare))
    assert FilePins(directory).load(ENCLAVE) == Pin(NODE.public, bare)


def test_directories_and_files_are_their_owner_s(file: Path) -> None:
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for directory in (file.parent, file.parent.parent):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {entry.name for entry in file.parent.iterdir()} == {file.name, ".lock"}


def test_to_load_makes_no_directory(directory: Path) -> None:
    assert FilePins(directory).load(ENCLAVE) is None
    assert not directory.exists()


def test_the_disk_has_every_name_before_store_returns(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def note_fsync(fd: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", lambda *args: (done.append("replace"), replace(*args)))  # type: ignore[func-returns-value]
    FilePins(directory).store(ENCLAVE, pin(3))
    above, data, draft, *rest = done
    assert (above, data, rest) == (directory.parent.parent.name, "data", ["replace", "pins"])
    assert draft.startswith(".enc-")
    done.clear()
    FilePins(directory).store(ENCLAVE, pin(2))
    assert done == [], "nothing is written where nothing changes"
    FilePins(directory).remove(ENCLAVE)
    assert done == ["pins"]


def test_a_failure_leaves_the_pin_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    pins = FilePins(file.parent)
    with pytest.raises(MisuseError, match="cannot be written: No space left"):
        pins.store(ENCLAVE, pin(4))
    assert pins.load(ENCLAVE) == pin(3)
    assert {entry.name for entry in file.parent.iterdir()} == {file.name, ".lock"}


@pytest.mark.parametrize("below", ["", "below"])
def test_where_no_directory_can_be(tmp_path: Path, below: str) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"")
    before = len(os.listdir("/proc/self/fd"))
    for call in (lambda pins: pins.store(ENCLAVE, pin(1)), lambda pins: pins.remove(ENCLAVE)):
        with pytest.raises(MisuseError, match=r"cannot keep pins: .*; give a directory of your own") as caught:
            call(FilePins(place / below))
        assert str(place / below) in caught.value.message
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_system_without_locks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(MisuseError, match="cannot keep pins: No locks available"):
        FilePins(directory).store(ENCLAVE, pin(1))
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_cannot_be_removed(file: Path) -> None:
    file.unlink()
    file.mkdir()
    with pytest.raises(MisuseError, match="cannot be removed") as caught:
        FilePins(file.parent).remove(ENCLAVE)
    assert str(file) in caught.value.message


def damaged(**changes: Any) -> dict[str, Any]:
    whole = {"format": "enc-pin", "version": 1, "enclave": ENCLAVE.hex(), "sequencer": NODE.public.hex(), "head": None}
    return {**whole, **changes}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "expected `object`"),
        (b"{}", "format"),
        (damaged(format="enc-key"), "format: expected enc-pin, version 1"),
        (damaged(version=2), "format: expected enc-pin, version 1"),
        (damaged(enclave=OTHER.hex()), "enclave: the pin belongs to another enclave"),
        (damaged(sequencer="00"), "sequencer: expected 64"),
        (damaged(head={}), "head"),
        (damaged(head={**wire_head(head(3)), "ts": -1}), "ts: must be 0 to"),
        (damaged(head={**wire_head(head(3)), "r": "00"}), "r: expected 64"),
        ({name: value for name, value in damaged().items() if name != "head"}, "head"),
    ],
    ids=range(12),
)
def test_a_damaged_file_is_neither_believed_nor_written_over(file: Path, content: Any, why: str) -> None:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    file.write_bytes(raw)
    pins = FilePins(file.parent)
    for call in (lambda: pins.load(ENCLAVE), lambda: pins.store(ENCLAVE, pin(9))):
        with pytest.raises(MisuseError) as caught:
            call()
        assert str(file) in caught.value.message
        assert why in caught.value.message
        assert "removing it means trusting the node again" in caught.value.message
    assert file.read_bytes() == raw
    pins.remove(ENCLAVE)
    assert pins.load(ENCLAVE) is None


def test_a_whole_file_that_others_wrote(file: Path) -> None:
    file.write_text(json.dumps(damaged(head=wire_head(head(7)), more="ignored"), indent=2))
    assert FilePins(file.parent).load(ENCLAVE) == pin(7)


def test_a_file_that_others_may_change(file: Path) -> None:
    file.chmod(0o622)
    with pytest.raises(MisuseError, match="chmod 600"):
        FilePins(file.parent).load(ENCLAVE)


def test_a_file_too_large(file: Path) -> None:
    file.write_bytes(file.read_bytes().ljust(pins_module.MAX_SIZE + 1))
    with pytest.raises(MisuseError, match=f"more than {pins_module.MAX_SIZE} bytes"):
        FilePins(file.parent).load(ENCLAVE)


# Two at once


def test_nobody_else_writes_between_reading_and_writing(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watch(old: Pin | None, new: Pin) -> Pin:
        with (directory / ".lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(1)
        return merge_pins(old, new)

    monkeypatch.setattr(pins_module, "merge_pins", watch)
    FilePins(directory).store(ENCLAVE, pin(3))
    with (directory / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert seen == [1]


def test_nor_does_another_thread_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pins, seen = MemoryPins(), list[bool]()

    def watch(old: Pin | None, new: Pin) -> Pin:
        seen.append(pins._lock.locked())
        return merge_pins(old, new)

    monkeypatch.setattr(pins_module, "merge_pins", watch)
    pins.store(ENCLAVE, pin(3))
    assert (seen, pins._lock.locked()) == ([True], False)


def _store(directory: Path, gate: Any, sizes: list[int]) -> None:
    gate.wait(timeout=60)
    for ts in sizes:
        FilePins(directory).store(ENCLAVE, pin(ts))


def test_processes_that_store_at_once_end_with_the_largest(directory: Path) -> None:
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(3)
    sizes = [list(range(first, 60, 3)) for first in range(3)]
    stores = [context.Process(target=_store, args=(directory, gate, part)) for part in sizes]
    for store in stores:
        store.start()
    for store in stores:
        store.join(timeout=60)
    assert [store.exitcode for store in stores] == [0, 0, 0]
    assert FilePins(directory).load(ENCLAVE) == pin(59)
    assert {entry.name for entry in directory.iterdir()} == {f"{ENCLAVE.hex()}.json", ".lock"}


# Where


@pytest.mark.parametrize(
    ("data", "expected"),
    [("/data", "/data/enc/pins"), ("", None), ("relative", None), (None, None)],
    ids=["set", "empty", "relative", "unset"],
)
def test_the_default_directory(monkeypatch: pytest.MonkeyPatch, data: str | None, expected: str | None) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    if data is None:
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    else:
        monkeypatch.setenv("XDG_DATA_HOME", data)
    assert default_directory() == Path(expected or "/home/someone/.local/share/enc/pins")


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(MisuseError, match="set XDG_DATA_HOME"):
        default_directory()


def test_addresses_of_the_sequencer_are_kept_with_the_latest_first() -> None:
    old, new = (replace(pin(3), urls=urls) for urls in (("http://a", "http://b"), ("http://c",)))
    assert merge_pins(old, new).urls == ("http://c", "http://a", "http://b")
    assert merge_pins(old, pin(4)).urls == old.urls
    assert merge_pins(old, replace(pin(4), urls=("http://b",))).urls == old.urls, "a known one costs no write"
    many = replace(pin(3), urls=tuple(f"http://{n}" for n in range(MAX_URLS)))
    assert merge_pins(many, new).urls == (*new.urls, *many.urls[:-1])


def test_addresses_are_stored(directory: Path) -> None:
    pins, kept = FilePins(directory), replace(pin(3), urls=("http://a", "http://b"))
    pins.store(ENCLAVE, kept)
    assert FilePins(directory).load(ENCLAVE) == kept
    path = directory / f"{ENCLAVE.hex()}.json"
    private_file.write(path, path.read_bytes().replace(b'"http://a"', b'"http://a"' + b',"x"' * 3), overwrite=True)
    with pytest.raises(MisuseError, match="urls: more than 4"):
        pins.load(ENCLAVE)
