"""Logs that this node fetches from the nodes which orders name.

Each is fetched into a file, under the limits of uploads, and becomes an import when it is whole. So
a source that sends slowly keeps nobody else's import away.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from enc.core.errors import EncError, InvalidQuery, Unavailable
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.node.imports.jobs import Importer
from enc.node.imports.log_import import ImportJob
from enc.node.imports.orders import ImportStatus
from enc.node.imports.source_calls import SourceCalls
from enc.node.imports.source_node import ImportCancelled, RemoteLog
from enc.node.imports.uploads import Upload, Uploads
from enc.node.imports.warm_copies import WarmCopies
from enc.node.ops.internal_errors import internal_error


class Fetches:
    """All logs that are being fetched. For one event loop."""

    def __init__(
        self,
        importer: Importer,
        uploads: Uploads,
        calls: SourceCalls,
        key: Signer,
        clock: Callable[[], int],
        max_bytes: int,
        copies: WarmCopies,
    ) -> None:
        """`max_bytes`: of one log, as JSON lines. `copies` may have the start of a log."""
        self._copies = copies
        self._importer, self._uploads, self._calls, self._key, self._clock = importer, uploads, calls, key, clock
        self._max_bytes = max_bytes
        # One page at a time is opened: it takes several times its size of memory.
        self._pages = ThreadPoolExecutor(1, thread_name_prefix="pages")
        self._tasks = set[asyncio.Task[None]]()

    async def start(self, job: ImportJob, address: str) -> ImportStatus:
        """Start to fetch the log of a job, or join the same job; return its status.

        Raises what `SourceCalls.addresses` and `Uploads.add` raise.
        """
        migrate, source = job.order.migrate, job.order.source
        if not isinstance(migrate, Event) or source is None:
            raise InvalidQuery("source: the Migrate is not final")
        await self._calls.addresses(source, address)
        if (running := self._importer.expect(job)) is not None:
            return running
        try:
            upload = self._uploads.add(address, lambda: task.cancel())
        except Exception:  # also OSError, if the file cannot be created
            self._importer.forget(job)
            raise
        log = RemoteLog(
            source, self._key, migrate.sequencer, job.enclave, migrate.seq, self._clock, max_bytes=self._max_bytes
        )
        task = asyncio.get_running_loop().create_task(self._fetch(job, upload, log, migrate))
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, job, upload, log))
        return job.status

    async def _fetch(self, job: ImportJob, upload: Upload, log: RemoteLog, migrate: Event) -> None:
        """Fetch the log, or the end of it that a warm copy lacks."""
        if job.held is None:
            upload.wait()
            job.copy = await self._copies.take(job.enclave, migrate)  # once it has caught up
            upload.go_on()
        if job.copy is not None:
            log.first = job.copy.events
            if log.first >= migrate.seq:  # the order itself has the only event that may be missing
                upload.rewind()
                return
        await log.fetch(upload, self._calls, self._pages)

    def _end(self, job: ImportJob, upload: Upload, log: RemoteLog, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        failure: BaseException | None = upload.rejection or ImportCancelled("the node is stopping")
        if not task.cancelled():
            failure = task.exception()
        if failure is None:
            job.sth = log.sth
            with suppress(Unavailable):  # the node is stopping
                self._importer.start(job, upload, upload.address)
            return
        job.log = upload
        job.close()
        self._importer.fail(job, failure if isinstance(failure, EncError) else internal_error(failure, "import"))

    def stop(self) -> None:
        """End all of them; the event loop must run on to see it."""
        for task in self._tasks:
            task.cancel()
        self._calls.close()
        self._pages.shutdown(wait=False, cancel_futures=True)
