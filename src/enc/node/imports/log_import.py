"""Replays one log that has arrived, and adopts it.

The log is an archive, or lines that this node has fetched from the old node. Both are checked alike.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Protocol, TypeVar

from msgspec.structs import replace

from enc.core.errors import InvalidArchive, InvalidCommit, ReplayFailed, Unavailable
from enc.core.log.commit import check_shape, manifest_version
from enc.core.machine.archive import read_archive, unpack_lines
from enc.core.machine.archive_check import check_header, check_sth
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import VERSIONS, Event, TreeHead
from enc.node.imports.context import ImportContext
from enc.node.imports.orders import ImportOrder, ImportStatus
from enc.node.imports.replay import StagedReplay
from enc.node.imports.source_node import ImportCancelled, parse_line
from enc.node.signatures.import_check import ImportSignaturePool

CHUNK = 1 << 16
"""Bytes of a log that are read at a time."""
MIN_UNPACKED = 8 << 20
"""Bytes that an archive may always have when it is decompressed."""
RETRY_MS = 5000

T = TypeVar("T")


class LogFile(Protocol):
    """A log that has arrived, read from its start."""

    @property
    def size(self) -> int:
        """Its bytes, compressed."""
        ...

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


class ImportJob:
    """One import, from its order on."""

    log: LogFile
    """Set when it has arrived."""
    sth: TreeHead | None = None
    """The tree head that came with a fetched log."""

    def __init__(self, order: ImportOrder, held: EnclaveState | None) -> None:
        self.order, self.held = order, held
        self.id, self.enclave = order.migrate.hash, order.migrate.enclave
        self.status = ImportStatus(self.id.hex(), self.enclave.hex(), "running", 0, order.total)


class LogImport:
    """The replay of one job's log, on a thread of its own."""

    def __init__(self, context: ImportContext, job: ImportJob, stopped: threading.Event) -> None:
        """`stopped` ends the replay."""
        self._context, self._job, self._stopped = context, job, stopped
        self._policy = context.policy

    def run(self) -> Event:
        """Replay the job's log into a staging area and adopt it; return the Migrate as stored in the log."""
        context, job = self._context, self._job
        held_seq = job.held.seq if job.held else -1
        staging = self._call(lambda: context.store.stage(job.enclave, held_seq))
        with ExitStack() as stack:
            stack.callback(staging.drop)
            checkers = ImportSignaturePool(context.cores, job.order.total)
            stack.callback(checkers.close)
            staged = StagedReplay(
                context.store,
                staging,
                context.key,
                job.enclave,
                job.held,
                checkers,
                write=lambda steps: self._call(lambda: staging.write(steps)),
                on_slice=self._after_slice,
            )
            stack.callback(staged.close)
            if job.order.source is None:
                self._replay_archive(staged, job.log)
            else:
                self._replay_fetched(staged, job.log)
            staged.finish()
            return self._call(lambda: self._adopt(staged))

    def _call(self, work: Callable[[], T]) -> T:
        """Run `work` on the sequencer's thread, the only one that writes, and return its result."""
        return self._context.sequencer.call(work).result()

    def _after_slice(self, staged: StagedReplay) -> None:
        """Check after each slice that the import may continue, and update its status."""
        if self._stopped.is_set():
            raise ImportCancelled("the node is stopping")
        self._policy.rules.disk.check()
        self._check_quota(staged)
        self._job.status = replace(self._job.status, events=staged.replay.events)

    def _check_quota(self, staged: StagedReplay) -> None:
        context, job, staging = self._context, self._job, staged.staging
        context.check_quota(job.order, job.held, staging.size, context.store.size(staging.name))

    def _replay_archive(self, staged: StagedReplay, archive: LogFile) -> None:
        order, migrate = self._job.order, self._job.order.migrate
        most = min(self._policy.total_bytes, max(MIN_UNPACKED, archive.size * self._policy.max_ratio))
        header, events = read_archive(_chunks(archive), max_total=most)
        before = order.prev_seq + 1
        if header.enclave != self._job.enclave:
            raise InvalidArchive("header: enclave: expected the Migrate's")
        if header.events != before and not (order.is_final and header.events == before + 1):
            raise InvalidArchive(f"header: events: {header.events}, but the Migrate comes after {before} events")
        staged.replay_events(self._checked(events))
        check_header(header, staged.replay)
        if isinstance(migrate, Event) and header.events == before:
            staged.replay_events(self._checked([migrate]))

    def _replay_fetched(self, staged: StagedReplay, log: LogFile) -> None:
        lines = unpack_lines(_chunks(log), max_total=self._policy.total_bytes)
        staged.replay_events(self._checked(parse_line(line, seq) for seq, line in enumerate(lines)))
        if self._job.sth is not None:
            check_sth(self._job.sth, staged.replay)

    def _checked(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events; raise at one that is over a limit of this node for commits.

        The check of a Manifest comes before it is parsed further. Replay rejects any second one.
        """
        for event in events:
            is_first = event.seq == 0
            most = self._policy.max_manifest if is_first else self._policy.limits.content
            try:
                if len((event.content or "").encode()) > most:
                    what = "a Manifest" if is_first else "a content"
                    raise InvalidCommit(f"content: over this node's limit for {what}, {most} bytes")
                check_shape(event, self._policy.limits)
                if is_first and event.type == "Manifest" and event.content is not None:
                    _check_version(event)
            except InvalidCommit as e:
                raise ReplayFailed(event.seq, e) from None
            yield event

    def _adopt(self, staged: StagedReplay) -> Event:
        """Make the replayed log visible in one transaction; runs on the sequencer's thread.

        Nothing else writes meanwhile, so what it checks cannot change.
        """
        context, job = self._context, self._job
        now, migrate = context.clock(), job.order.migrate
        context.sequencer.check_clock(now)
        if _position(context.held(job.enclave)) != _position(job.held):
            raise Unavailable("the enclave changed on this node during the import", retry_after_ms=RETRY_MS)
        self._check_quota(staged)
        if isinstance(migrate, Event):
            event, state = staged.last, staged.replay.state
            if event.id != migrate.id:
                raise ReplayFailed(event.seq, InvalidArchive("the log does not end with this Migrate"))
        else:
            event, state = staged.finalize(migrate, now)
        staged.check_replacement(state)
        try:
            staged.staging.adopt(state, migrate.from_, now)
        finally:  # also after a failure: the transaction may have reached the disk
            context.sequencer.forget(job.enclave)
        context.sequencer.record_clock(now)
        context.states.put(state)
        return event


def _check_version(manifest: Event) -> None:
    enc_v = manifest_version(manifest)
    if enc_v not in VERSIONS:
        raise InvalidCommit(f"enc_v: this node does not host enclaves of version {enc_v}")


def _chunks(log: LogFile) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk


def _position(state: EnclaveState | None) -> tuple[int, int] | None:
    return None if state is None else (state.seq, state.log.size)
