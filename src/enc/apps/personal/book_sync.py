"""Keeps an address book the same on all devices of an identity, through its personal store."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.apps.people.address_book import AddressBook
from enc.apps.people.book_entries import (
    OWN,
    Entries,
    Entry,
    EntryKey,
    apply_changes,
    changes_between,
    entries_of,
    local_changes,
    parse_changes,
    wire_changes,
    with_entries,
)
from enc.apps.people.book_file import Contents
from enc.apps.personal.book_log import BookState, append_changes, compact_log, read_log
from enc.apps.personal.store import Personal
from enc.core.errors import InvalidCommit, PeerError
from enc.core.primitives.encoding import compact_json, decode_json, unhex
from enc.runtime import private_file
from enc.runtime.clock import now_ms
from enc.runtime.locks import FileLock

FOLDER, PAUSE = "synced", ".pause"
MAX_SIZE = 8 << 20


class Synced(Struct, frozen=True):
    """How many entries a sync changed: here, and for the other devices."""

    received: int
    sent: int


class _File(Struct):
    enclave: str
    seq: int
    entries: list[Any]
    events: list[tuple[int, str]]


_decoder = Decoder(_File)


def sync_book(store: Personal, book: AddressBook) -> Synced:
    """Read what other devices changed in the book, and write what this one changed.

    The file `synced/IDENTITY.json` beside the book holds the entries as of the last sync: what
    differs from them was changed here. Of two changes of one entry the later one in the log counts.
    Identities that share a book share its entries on this machine only: an entry goes to the store of
    the identity that synced it first.
    """
    me = store.client.identity.public
    path = _path(book, me)
    with _locked(path):
        before, others = _load(path, store.enclave.id), _of_others(path)
        found = entries_of(book.contents(), me, before.entries)
        state, local = read_log(store, before), _without(found, before.entries, others)
        changes = local_changes(before.entries, local, state.entries)
        if changes:
            append_changes(store, changes)
            state = read_log(store, state)
        book.update(lambda now: _merged(now, me, state.entries, found, others))
        _save(path, store.enclave.id, state)  # after the book: else the old book would count as a change
        compacted = compact_log(store, state)
        if compacted != state:
            _save(path, store.enclave.id, compacted)
        path.with_suffix(PAUSE).unlink(missing_ok=True)
    received = changes_between(local, state.entries)
    return Synced(len(received.keys() - changes.keys()), len(changes))


def _merged(now: Contents, me: bytes, entries: Entries, found: Entries, others: Sequence[Entries]) -> Contents:
    """Return the book `now` with the store's entries, what changed since it was `found`, and the
    entries of other identities.
    """
    current = entries_of(now, me, found)
    kept = {key: each for key, each in found.items() if any(key in other for other in others)}
    return with_entries(now, apply_changes({**kept, **entries}, changes_between(found, current)), me)


def _without(found: Entries, base: Entries, others: Sequence[Entries]) -> dict[EntryKey, Entry]:
    """Return the entries of a book without those that are there because of other identities."""
    mine = dict[EntryKey, Entry]()
    for key, entry in found.items():
        theirs = [other[key] for other in others if key in other]
        if not theirs or (key in base and entry not in theirs):
            mine[key] = entry
        elif key in base:
            mine[key] = base[key]
    return mine


def _of_others(path: Path) -> list[Entries]:
    """Return the entries that the other identities of this machine synced."""
    files = [each for each in sorted(path.parent.glob("*.json")) if each != path]
    states = [_load(each, None).entries for each in files]
    return [{key: each for key, each in entries.items() if key[0] != OWN} for entries in states]


def pause_sync(book: AddressBook, identity: bytes, ms: int) -> None:
    """Remember, after a failed sync, not to try again for a while; see `is_paused`."""
    path = _path(book, identity)
    private_file.make_directory(path.parent)
    private_file.write(path.with_suffix(PAUSE), str(now_ms() + ms).encode(), overwrite=True)


def is_paused(book: AddressBook, identity: bytes, most: int) -> bool:
    """Return whether a sync failed so recently that a program should wait, at most `most` ms."""
    raw = private_file.read(_path(book, identity).with_suffix(PAUSE), 32)
    until = int(raw) if raw is not None and raw.isdigit() else 0
    return 0 < until - now_ms() <= most


def _path(book: AddressBook, identity: bytes) -> Path:
    return book.path.parent / FOLDER / f"{identity.hex()}.json"


def _locked(path: Path) -> FileLock:
    try:
        private_file.make_directory(path.parent)
        return FileLock(path.with_name(f".{path.name}.lock"), wait=True)
    except OSError as e:
        private_file.refuse(path, f"cannot be written: {private_file.reason(e)}")


def _load(path: Path, enclave: bytes | None) -> BookState:
    """Return the state of the last sync with this store; an empty one for another store."""
    raw = private_file.read(path, MAX_SIZE)
    if raw is None:
        return BookState()
    try:
        file = decode_json(raw, _decoder, InvalidCommit)
        if enclave is not None and unhex(file.enclave, 32, "enclave") != enclave:
            return BookState()
        events = tuple((seq, unhex(id_, 32, "events")) for seq, id_ in file.events)
        return BookState(apply_changes({}, parse_changes(file.entries)), file.seq, events)
    except PeerError as e:
        private_file.refuse(path, f"is not the state of a sync: {e.message}; remove it, to sync from the beginning")


def _save(path: Path, enclave: bytes, state: BookState) -> None:
    wire: Mapping[str, Any] = {
        "enclave": enclave.hex(),
        "seq": state.seq,
        "entries": wire_changes(state.entries),
        "events": [[seq, id_.hex()] for seq, id_ in state.events],
    }
    private_file.write(path, compact_json(wire).encode(), overwrite=True)
