"""What a commit needs: a place in the queue, processes that check its signature, a right clock, the
sequencer, the node's signer, and a disk that takes it.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from enc.core.errors import EncError
from enc.core.primitives.signer import SignerUnavailable
from enc.node.imports.uploads import unnamed_file
from enc.node.limits.disk_space import DiskSpace
from enc.node.ops.readiness import Check, NotReady
from enc.node.sequence.admission import Admission
from enc.node.sequence.commit_intake import CommitIntake
from enc.node.sequence.sequencer import Sequencer

PROBE_S = 5.0
"""Seconds that each part has to answer."""
WRITTEN = bytes(range(256)) * 256
"""Written to the disk: more than most commits need there."""


class ReadinessChecks:
    """The checks of a node. To be used on the event loop's thread."""

    def __init__(
        self,
        intake: CommitIntake,
        admission: Admission,
        sequencer: Sequencer,
        now: Callable[[], int],
        folder: Path,
        space: DiskSpace,
        restored: str = "",
    ) -> None:
        """`now`: the node's clock. `folder`: its data directory. `restored`: why the node signs nothing."""
        self._restored = restored
        self._intake, self._admission, self._sequencer = intake, admission, sequencer
        self._now, self._folder, self._space = now, folder, space
        self._disk: Future[None] = Future()
        """The last write to the disk."""
        self._disk.set_result(None)

    def all(self) -> tuple[Check, ...]:
        if self._restored:
            return (self.check_restored,)
        return (
            self.check_intake,
            self.check_admission,
            self.check_long_admission,
            self.check_sequencer,
            self.check_disk,
            self.check_space,
        )

    async def check_restored(self) -> NotReady | None:
        return NotReady("restored", self._restored)

    async def check_intake(self) -> NotReady | None:
        if self._intake.is_closed:
            return NotReady("stopping", "the node is shutting down")
        if self._intake.is_full:
            message = f"{self._intake.waiting} commits are waiting, as many as limits.waiting_commits allows"
            return NotReady("commits_waiting", message)
        return None

    async def check_admission(self) -> NotReady | None:
        """Check a signature with each process, in turn with the commits."""
        try:
            failed = await asyncio.wait_for(asyncio.wrap_future(self._admission.probe()), PROBE_S)
        except TimeoutError:
            return NotReady("admission_not_answering", "the thread that checks commits did not answer in time")
        if failed:
            message = f"{failed} processes that check signatures failed or did not answer in time, and were replaced"
            return NotReady("signature_workers_not_answering", message)
        return None

    async def check_long_admission(self) -> NotReady | None:
        """Check the thread of large commits, and of those whose enclave is not in memory."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._admission.probe_long()), PROBE_S)
        except TimeoutError:
            return NotReady(
                "long_admission_not_answering", "the thread that checks long commits did not answer in time"
            )
        return None

    async def check_sequencer(self) -> NotReady | None:
        """Use the node's key and write to the database, through the sequencer."""
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._sequencer.call(self._sequencer.probe)), PROBE_S)
        except SignerUnavailable as e:
            return NotReady("signer_not_answering", e.message)
        except EncError as e:
            is_wrong = self._sequencer.is_clock_wrong(self._now())
            return NotReady("clock_wrong" if is_wrong else "store_not_writable", e.message)
        except TimeoutError:
            return NotReady("sequencer_not_answering", "the sequencer did not answer in time")
        return None

    async def check_disk(self) -> NotReady | None:
        """Write a file: the database may have room for a small write, and the disk none for a commit.

        A disk that hangs holds one thread, not one for each check.
        """
        if self._disk.done():
            disk = Future[None]()
            threading.Thread(target=_run, args=(disk, self._folder), name="disk-probe", daemon=True).start()
            self._disk = disk  # only now: a thread that does not start would never complete it
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._disk)), PROBE_S)
        except TimeoutError:  # before OSError, of which it is a subclass
            return NotReady("disk_not_writable", "the disk did not answer in time")
        except OSError as e:
            return NotReady("disk_not_writable", f"the data directory cannot be written: {e.strerror}")
        return None

    async def check_space(self) -> NotReady | None:
        return NotReady("disk_low", self._space.reason) if self._space.is_low else None


def _run(done: "Future[None]", folder: Path) -> None:
    try:
        _write(folder)
        done.set_result(None)
    except BaseException as e:
        done.set_exception(e)


def _write(folder: Path) -> None:
    with unnamed_file(folder) as file:
        file.write(WRITTEN)
        file.flush()
        os.fsync(file.fileno())
