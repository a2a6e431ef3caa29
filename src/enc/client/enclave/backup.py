"""Writes a whole enclave into one archive file: pulled page by page, replayed, resumable.

Events received so far are in `<name>.part` beside the archive, one per line. A resumed pull replays
them first, so nothing in the archive was accepted on trust. The archive gets its name only when it
is complete.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.decode_answers import head_of, read
from enc.client.verify.log_verifier import LogVerifier
from enc.client.wire.flow import Call, Flow, work
from enc.core.errors import EncError, InvalidArchive, InvalidProof, MisuseError
from enc.core.log.event import WireEvent, event_from_wire, parse_event, wire_event
from enc.core.machine.archive import Header, read_archive, write_lines
from enc.core.machine.archive_check import check_header, header_of, verify_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event, TreeHead, Withheld
from enc.core.trees.tree_head import WireHead
from enc.runtime.files import atomic_file

PAGE = 1000

BackupProgress = Callable[[int, int], None]
"""Called with the number of events received and the total."""


class _Page(Struct, kw_only=True):
    events: list[WireEvent]
    seq: int
    """The seq of the last event of the log."""
    sth: WireHead


_page = Decoder(_Page)


def pull(reader: EnclaveReader, path: Path, progress: BackupProgress = lambda here, total: None) -> Flow[Header]:
    """Write the archive of a reader's enclave to `path` and return its header. For owners only."""
    if path.exists():
        raise MisuseError(f"{path} already exists: give another name, or remove it")
    part = path.with_name(path.name + ".part")
    replay = Replay(reader.enclave)
    yield from reader.session.head()  # follows the enclave to its current node
    with open_part(part) as file:
        yield from work(lambda: resume(file, part, replay))
        head = yield from append_log(reader, file, replay, progress)
    header = header_of(replay, head)
    with reader.session.known_verifier().blame_node("export", b""):
        check_header(header, replay)
    yield from work(lambda: write_archive(header, part, path))
    return header


def first_event(reader: EnclaveReader) -> Flow[Event]:
    """Return event 0 of a reader's enclave. For owners only."""
    verifier = yield from reader.session.verifier()
    text = yield from reader.session.ask("/export", "Export", {"from_seq": 0, "limit": 1})
    with verifier.blame_node("export", text):
        wire = read(text, _page).events
        if len(wire) != 1 or wire[0].seq != 0:
            raise InvalidProof("not the requested event")
        event = event_from_wire(wire[0])
    verifier.verify_events([event], text)
    return event


def append_log(reader: EnclaveReader, file: BinaryIO, replay: Replay, progress: BackupProgress) -> Flow[TreeHead]:
    """Append the rest of the log to a file and a replay, and return the head that came with it."""
    verifier = yield from reader.session.verifier()
    while True:
        since = verifier.size
        text = yield from reader.session.ask("/export", "Export", {"from_seq": replay.events, "limit": PAGE})
        page, head = yield from work(lambda text=text: _take(verifier, text, replay, file))  # type: ignore[misc]
        progress(replay.events, page.seq + 1)
        if replay.events > page.seq:
            break
    yield from reader.session.accept(head, text, since)
    return head


def open_part(part: Path) -> BinaryIO:
    try:
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as e:
        raise MisuseError(f"{part}: {e.strerror}") from None
    return os.fdopen(descriptor, "r+b")


def resume(file: BinaryIO, part: Path, replay: Replay) -> None:
    """Replay the events received so far; drop a truncated last line."""
    whole = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        try:
            replay.add(parse_event(line))
        except EncError as e:
            raise InvalidArchive(f"{part}: damaged ({e.message}); remove it and pull again") from None
        whole += len(line)
    file.seek(whole)
    file.truncate()


def _take(verifier: LogVerifier, text: bytes, replay: Replay, file: BinaryIO) -> tuple[_Page, TreeHead]:
    """Replay a page and write it. Anything that does not replay is blamed on the node."""
    with verifier.blame_node("export", text):
        page = read(text, _page)
        if not page.events and replay.events <= page.seq:
            raise InvalidArchive("no events, but more are announced")
        for wire in page.events:
            event = event_from_wire(wire)
            replay.add(event)
            file.write(msgspec.json.encode(wire_event(event)) + b"\n")
        return page, head_of(page.sth)


def write_archive(header: Header, part: Path, path: Path) -> None:
    """Compress the events received, and rename the file only after it is synced to disk."""
    with atomic_file(path, draft=path.with_name(path.name + ".draft"), private=True) as file:
        for piece in write_lines(header, _lines(part)):
            file.write(piece)
    part.unlink()


def _lines(part: Path) -> Iterator[bytes]:
    with part.open("rb") as file:
        for line in file:
            yield line[:-1]


def archive_head(archive: Path) -> TreeHead | None:
    """Return the head in an archive, unverified."""
    return read_archive(Call("", file=archive).pieces())[0].sth


class Summary(Struct, frozen=True):
    """The result of replaying a complete archive."""

    header: Header
    bundles: int
    state_hash: bytes
    ct_root: bytes
    withheld: Sequence[tuple[int, Withheld]]
    """The seqs of contents that nodes of the log withhold, with their statements."""


def summarise(header: Header, events: Iterator[Event]) -> Summary:
    """Replay an archive in full. Raises ReplayFailed or InvalidArchive."""
    replay = verify_archive(header, events)
    return Summary(header, replay.state.log.size, replay.state_hash(), replay.state.log.root(), replay.withheld())
