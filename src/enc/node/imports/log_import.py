"""Replays one log that has arrived, and adopts it.

The log is an archive, or lines that this node has fetched from the old node. Both are checked alike.
"""

import threading
from contextlib import ExitStack

from msgspec.structs import replace

from enc.core.errors import InvalidArchive, ReplayFailed, Unavailable
from enc.core.machine.archive import read_archive
from enc.core.machine.archive_check import check_header, check_sth
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event, TreeHead
from enc.node.imports.context import ImportContext
from enc.node.imports.log_lines import LogFile, chunks, fetched_events, limited_events
from enc.node.imports.orders import ImportOrder, ImportStatus
from enc.node.imports.replay import StagedReplay
from enc.node.imports.source_node import ImportCancelled
from enc.node.imports.warm_copy import WarmCopy
from enc.node.signatures.import_check import ImportSignaturePool

MIN_UNPACKED = 8 << 20
"""Bytes that an archive may always have when it is decompressed."""
RETRY_MS = 5000


class ImportJob:
    """One import, from its order on."""

    log: LogFile
    """Set when it has arrived."""
    sth: TreeHead | None = None
    """The tree head that came with a fetched log."""
    copy: WarmCopy | None = None
    """What was copied of the log ahead of time; `log` has the rest of it."""

    def __init__(self, order: ImportOrder, held: EnclaveState | None) -> None:
        self.order, self.held = order, held
        self.id, self.enclave = order.migrate.hash, order.migrate.enclave
        self.status = ImportStatus(self.id.hex(), self.enclave.hex(), "running", 0, order.total)

    def close(self) -> None:
        """Discard the log, and what was copied of it."""
        self.log.close()
        if self.copy is not None:
            self.copy.close()


class LogImport:
    """The replay of one job's log, on a thread of its own."""

    def __init__(self, context: ImportContext, job: ImportJob, stopped: threading.Event) -> None:
        """`stopped` ends the replay."""
        self._context, self._job, self._stopped = context, job, stopped
        self._policy = context.policy

    def run(self) -> Event:
        """Replay the job's log into a staging area and adopt it; return the Migrate as stored in the log."""
        context, job = self._context, self._job
        held_seq, copy = job.held.seq if job.held else -1, job.copy
        with ExitStack() as stack:
            known = 0 if copy is None else copy.events
            checkers = ImportSignaturePool(context.cores, job.order.total - known)
            stack.callback(checkers.close)
            if copy is not None:
                staged, staging = copy.staged, copy.staged.staging
                staged.checkers, staged.on_slice = checkers, self._after_slice
            else:
                staging = context.call(lambda: context.store.stage(job.enclave, held_seq))
                staged = StagedReplay(
                    context.store,
                    staging,
                    context.key,
                    job.enclave,
                    job.held,
                    checkers,
                    write=lambda steps: context.call(lambda: staging.write(steps)),
                    on_slice=self._after_slice,
                )
            stack.callback(staging.drop)
            stack.callback(staged.close)
            if job.order.source is None:
                self._replay_archive(staged, job.log)
            elif known > job.order.prev_seq:
                self._replay_copied(staged)
            else:
                self._replay_fetched(staged, job.log)
            staged.finish()
            return context.call(lambda: self._adopt(staged))

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
        header, events = read_archive(chunks(archive), max_total=most)
        before = order.prev_seq + 1
        if header.enclave != self._job.enclave:
            raise InvalidArchive("header: enclave: expected the Migrate's")
        if header.events != before and not (order.is_final and header.events == before + 1):
            raise InvalidArchive(f"header: events: {header.events}, but the Migrate comes after {before} events")
        staged.replay_events(limited_events(events, self._policy))
        check_header(header, staged.replay)
        if isinstance(migrate, Event) and header.events == before:
            staged.replay_events(limited_events([migrate], self._policy))

    def _replay_copied(self, staged: StagedReplay) -> None:
        """Add the Migrate, if the copy lacks it: it has everything before."""
        migrate = self._job.order.migrate
        if isinstance(migrate, Event) and staged.replay.events == migrate.seq:
            staged.replay_events(limited_events([migrate], self._policy))

    def _replay_fetched(self, staged: StagedReplay, log: LogFile) -> None:
        staged.replay_events(fetched_events(log, self._policy, staged.replay.events))
        if self._job.sth is not None:
            check_sth(self._job.sth, staged.replay)

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


def _position(state: EnclaveState | None) -> tuple[int, int] | None:
    return None if state is None else (state.seq, state.log.size)
