"""The blocking commit queue: keeps commits in a file, and sends them when their nodes answer.

Generated from `async_commit_queue.py` by `scripts/blocking_client.py`: do not edit.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from enc.client.clients.wiring import Setup
from enc.client.commit_queue.queue_file import QueuedCommit, QueueFile
from enc.client.commit_queue.queue_sender import QueueResult, QueueSender
from enc.client.enclave.send_many import check_is_commit
from enc.client.wire.flow import Flow, work
from enc.client.wire.transport import base_url
from enc.core.errors import MisuseError
from enc.core.primitives.types import Commit


class CommitQueue:
    """Commits in a file that wait until they are sent. Make one with `client.commit_queue(path)`.

    A commit is on disk when `add` returns, and stays there until its outcome is known: after a crash,
    `send` continues. The commits of each enclave are sent in order, and none becomes two events. A
    commit that expires while it waits is signed again. One that a node rejects is kept apart, with the
    error, and does not stop the others.
    """

    def __init__(self, file: QueueFile, setup: Setup, run: Callable[[Flow[Any]], Any]) -> None:
        self._file, self._setup, self._run = file, setup, run
        self._quick = setup.without_patience()

    def add(self, commit: Commit, *, at: str | None = None) -> int:
        """Store a commit from `prepare`; return its number in the queue. Needs no node.

        `at`: the URL of the enclave's node, if it is not the client's.
        """
        check_is_commit(commit, "commit")
        if commit.from_ != self._setup.identity.public:
            raise MisuseError("commit: is of another identity; its own client must queue it")
        url = None if at is None else base_url(at)
        number: int = self._run(work(lambda: self._file.add(commit, url)))
        return number

    def send(self, *, patience: float | None = None, own_node_first: bool = False) -> list[QueueResult]:
        """Send the waiting commits; return the outcome of each, or why it still waits.

        Waits up to `patience` seconds (default: the client's) for nodes that are away or busy; 0
        tries once, `math.inf` waits until everything is settled. Raises Distrust once everything
        that other enclaves accept is sent. With `own_node_first`, the client's node is asked before the
        URLs that `add` was given.
        """
        quick, backoff = self._quick, self._setup.backoff(patience)
        sender = QueueSender(self._file, quick.reader, quick.with_registration, backoff, own_node_first=own_node_first)
        found: list[QueueResult] = self._run(sender.send())
        return found

    def waiting(self) -> list[QueuedCommit]:
        """Return the commits that are not sent yet, in order."""
        found: list[QueuedCommit] = self._run(work(self._file.waiting))
        return found

    def rejected(self) -> list[QueuedCommit]:
        """Return the commits that a node rejected, with the errors."""
        found: list[QueuedCommit] = self._run(work(self._file.rejected))
        return found

    def damaged(self) -> list[int]:
        """Return the numbers of the commits that cannot be read from the file. `send` passes over them;
        `discard` removes them.
        """
        found: list[int] = self._run(work(self._file.damaged))
        return found

    def retry(self, number: int) -> None:
        """Let a rejected commit wait again, at its old place."""
        self._run(work(lambda: self._file.retry(number)))

    def discard(self, number: int) -> None:
        """Remove a commit. One that was sent already may be in the log all the same."""
        self._run(work(lambda: self._file.discard(number)))

    def close(self) -> None:
        """Close the file; what waits in it stays."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
