"""Writes a whole log as the node gives it into one archive file, unverified, for auditors.

`backup.pull` stops at the first event that does not replay, since nobody should continue from such
a log. An auditor needs the rest of it too.
"""

from pathlib import Path
from typing import BinaryIO

from msgspec import Raw, Struct
from msgspec.json import Decoder

from enc.client.enclave.backup import PAGE, BackupProgress, open_part, write_archive
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.decode_answers import head_of, read
from enc.client.wire.flow import Call, Flow, work
from enc.core.errors import EncError, InvalidArchive
from enc.core.log.commit import manifest_version
from enc.core.log.event import parse_event
from enc.core.machine.archive import Header, read_lines
from enc.core.machine.audit_replay import AuditReplay
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import WireHead


class _Page(Struct, kw_only=True):
    events: list[Raw]
    seq: int
    sth: WireHead


_page = Decoder(_Page)


def export(reader: EnclaveReader, path: Path, since: Path | None, progress: BackupProgress) -> Flow[Header]:
    """Write a reader's log to `path`, continuing the earlier archive `since`. For owners."""
    yield from reader.session.head()  # follows the enclave to its current node
    part = path.with_name(path.name + ".part")
    log = _Log(reader.enclave)
    with open_part(part) as file:
        file.truncate()
        yield from work(lambda: log.start(file, since))
        head = yield from _gather(reader, file, log, progress)
    header = log.header(head)
    yield from work(lambda: write_archive(header, part, path))
    return header


def _gather(reader: EnclaveReader, file: BinaryIO, log: "_Log", progress: BackupProgress) -> Flow[TreeHead]:
    verifier = yield from reader.session.verifier()
    while True:
        text = yield from reader.session.ask("/export", "Export", {"from_seq": log.next_seq, "limit": PAGE})
        with verifier.blame_node("export", text):
            page = read(text, _page)
            if not page.events and log.next_seq <= page.seq:
                raise InvalidArchive("no events, but more are announced")
        for raw in page.events:
            log.take(file, bytes(raw))
        progress(log.events, page.seq + 1)
        if log.next_seq > page.seq or not page.events:
            break
    with verifier.blame_node("export", text):
        return head_of(page.sth)


class _Log:
    """Collects an archive's header while the log arrives."""

    def __init__(self, enclave: bytes) -> None:
        self._enclave, self._enc_v = enclave, 2
        self._trial = AuditReplay(enclave, check_erasures=False)
        self.events, self.next_seq = 0, 0

    def start(self, file: BinaryIO, since: Path | None) -> None:
        if since is None or not since.exists():
            return
        for line in read_lines(Call("", file=since).pieces())[1]:
            self.take(file, line)

    def take(self, file: BinaryIO, line: bytes) -> None:
        try:
            event = parse_event(line)
        except EncError:
            event = None
        self._add(file, b"".join(line.split(b"\n")), event)

    def _add(self, file: BinaryIO, line: bytes, event: Event | None) -> None:
        file.write(line + b"\n")
        self.events += 1
        if event is None:
            self._trial.skip()
            self.next_seq += 1
            return
        if event.seq == 0 and event.type == "Manifest":
            self._enc_v = _version(event)
        self._trial.add(event)
        self.next_seq = max(self.next_seq, event.seq + 1)

    def header(self, head: TreeHead) -> Header:
        return Header(
            enclave=self._enclave,
            enc_v=self._enc_v,
            sequencers=tuple(self._trial.sequencers),
            events=self.events,
            sth=head,
            checkpoint_seq=max(self.next_seq - 1, 0),
            checkpoint_root=self._trial.root() or EMPTY_HASH,
        )


def _version(event: Event) -> int:
    try:
        return manifest_version(event)
    except EncError:
        return 2
