"""Sends the commits of a queue, those of each enclave in order, and never one of them twice.

A commit is signed again only if nobody can accept the earlier one any more: the node that
sequences the enclave says that it has expired, and so does this client's clock, with SKEW added. A
node that the enclave has left may say the same of a commit that its successor accepted. Therefore
the earlier commits stay in the file until one of them has a receipt, and each node that the enclave
moves to is asked for all of them first.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from enc.client.commit_queue.queue_file import QueuedCommit, QueueFile
from enc.client.enclave.commit_builder import deliver
from enc.client.errors import Distrust, ForeignSequencer, LostRange, TooManyMoves
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.follow_moves import follow_moves
from enc.client.link.node_link import NodeLink
from enc.client.wire.flow import Flow, Pause, work
from enc.core.errors import (
    EncError,
    EnclaveMigrated,
    EnclaveNotFound,
    EnclavePaused,
    Expired,
    InvalidCommit,
    InvalidProof,
    PeerError,
    RateLimited,
    WorldError,
)
from enc.core.log.commit import MAX_EXP_WINDOW_MS, SKEW_MS
from enc.core.primitives.types import Commit, Receipt
from enc.runtime.backoff import Backoff
from enc.runtime.clock import utc_time

LAST_TIME_MS = 253_402_300_799_000
"""The last second that a date can show: of the year 9999."""


class SignedAhead(InvalidCommit):
    """The commit expires too late for the node's clock. It may be accepted when that has moved on, so
    it must not be signed again before it expires (docs/protocol.md, 7.5).
    """

    def __init__(self, commit: Commit) -> None:
        time = utc_time(min(commit.exp - MAX_EXP_WINDOW_MS, LAST_TIME_MS))
        super().__init__(
            "exp: more than an hour ahead of the node's clock: the commit was signed by a clock that is ahead, "
            f"and waits until the node's clock shows {time}, unless you discard it"
        )


STAYS = (
    WorldError,
    RateLimited,
    Expired,
    EnclaveNotFound,
    EnclaveMigrated,
    EnclavePaused,
    InvalidProof,
    SignedAhead,
)
"""Answers to a commit that do not reject it for good: it stays in the queue."""

ELSEWHERE = (WorldError, EnclaveNotFound, EnclaveMigrated, ForeignSequencer)
"""Answers after which the enclave may be found at another URL."""

Accepted = tuple[Commit, Receipt]
FOR_THE_USER = (Receipt, LostRange, TooManyMoves)
"""Results for which waiting does not help."""


class QueueResult(Struct, frozen=True):
    """The outcome of a queued commit: the receipt, or the error that rejected it. If
    `is_waiting`, the error may be temporary, and the commit stays in the queue.
    """

    number: int
    commit: Commit
    result: Receipt | EncError
    is_waiting: bool = False


class QueueSender:
    """`reader_of` returns a reader of an enclave, asked first at the client's node or at a URL, which
    does not wait for nodes. `watch` registers the enclave if a request shows that this is due.
    `backoff` decides how long to wait for nodes. With `own_node_first`, the client's node is asked
    before the URL that was added with a commit.
    """

    def __init__(
        self,
        file: QueueFile,
        reader_of: Callable[[bytes, str | None], EnclaveReader],
        watch: Callable[[EnclaveReader, Flow[Accepted]], Flow[Accepted]],
        backoff: Backoff,
        *,
        own_node_first: bool = False,
    ) -> None:
        self._own_node_first = own_node_first
        self._file, self._reader_of, self._watch, self._backoff = file, reader_of, watch, backoff
        self._readers: dict[tuple[bytes, str | None], EnclaveReader] = {}

    def send(self) -> Flow[list[QueueResult]]:
        """Send what waits; return the settled commits, then the first waiting one of each enclave.

        Raises Distrust once everything that other enclaves accept is sent.
        """
        settled = list[QueueResult]()
        while True:
            before = len(settled)
            left = yield from self._send_each(settled)
            for each in left:
                if isinstance(each.result, Distrust):
                    raise each.result
            if len(settled) > before:
                self._backoff.reset()
            if not left or (pause := self._pause(left)) is None:
                return settled + left
            yield Pause(pause)

    def _pause(self, left: list[QueueResult]) -> float | None:
        """Return the seconds until the next try; None if there shall be none."""
        errors = [each.result for each in left if not isinstance(each.result, FOR_THE_USER)]
        try:
            return self._backoff.wait(errors[0]) if errors else None
        except EncError:
            return None

    def _send_each(self, settled: list[QueueResult]) -> Flow[list[QueueResult]]:
        """Send until each enclave has no waiting commit or takes none; return what it does not take."""
        left = list[QueueResult]()
        for enclave in (yield from work(self._file.enclaves)):
            first = partial(self._file.first, enclave)
            while (queued := (yield from work(first))) is not None:
                found = yield from self._send_one(queued)
                if found.is_waiting:
                    left.append(found)
                    break
                settled.append(found)
        return left

    def _send_one(self, queued: QueuedCommit) -> Flow[QueueResult]:
        if queued.at is None or not self._own_node_first:
            return (yield from self._send_to(queued, queued.at))
        first = yield from self._send_to(queued, None)
        if not (first.is_waiting and isinstance(first.result, ELSEWHERE)):
            return first
        again = yield from work(partial(self._file.first, queued.commit.enclave))  # may be signed again by now
        if again is None or again.number != queued.number:
            return first
        second = yield from self._send_to(again, queued.at)
        shows_more = isinstance(first.result, ForeignSequencer) or not isinstance(second.result, ELSEWHERE)
        return second if shows_more else first

    def _send_to(self, queued: QueuedCommit, at: str | None) -> Flow[QueueResult]:
        """Send a commit to the enclave's node, looked for first at a URL, or at the client's node."""
        reader = self._reader(queued.commit.enclave, at)
        delivery = _Delivery(reader, queued, self._file)
        try:
            commit, receipt = yield from self._watch(reader, delivery.run())
        except (PeerError, WorldError) as e:
            error, is_rejected = e, delivery.is_rejected and not isinstance(e, STAYS)
            if is_rejected:
                yield from work(lambda: self._file.reject(queued.number, error))
            return QueueResult(queued.number, delivery.queued.commit, error, not is_rejected)
        yield from work(lambda: self._file.remove(queued.number))
        return QueueResult(queued.number, commit, receipt)

    def _reader(self, enclave: bytes, at: str | None) -> EnclaveReader:
        key = enclave, at
        if key not in self._readers:
            self._readers[key] = self._reader_of(*key)
        return self._readers[key]


class _Delivery:
    """One commit on its way to the node that sequences its enclave."""

    def __init__(self, reader: EnclaveReader, queued: QueuedCommit, file: QueueFile) -> None:
        self._reader, self.queued, self._file = reader, queued, file
        self.is_rejected = False
        """Whether the node has judged the commit and rejected it; false for errors on the way to it."""

    @property
    def node(self) -> NodeLink:
        return self._reader.session.node

    def follow(self, error: EncError) -> Flow[None]:
        return self._reader.session.follow(error)

    @follow_moves
    def run(self) -> Flow[Accepted]:
        """Return the commit that was accepted, and its receipt."""
        session = self._reader.session
        verifier = yield from session.verifier()
        node = session.node  # all of them must be judged by one node

        def send(commit: Commit) -> Flow[Receipt]:
            self.is_rejected = False
            try:
                return (yield from session.send_to(node, verifier, commit))
            except PeerError as e:
                if isinstance(e, InvalidCommit) and e.message.startswith("exp: "):
                    raise SignedAhead(commit) from e
                self.is_rejected = not isinstance(e, STAYS) and type(e) is not PeerError  # that: an unknown code
                raise

        for commit in self.queued.signed:
            try:
                return commit, (yield from deliver(self._reader, commit, send))
            except Expired as e:
                late = e
        self._check_may_sign(late)
        commit = session.prepare(commit.type, commit.content or "", commit.tags)
        self.queued = yield from work(lambda: self._file.replace(self.queued, commit))
        return commit, (yield from deliver(self._reader, commit, send))

    def _check_may_sign(self, late: Expired) -> None:
        """Raise the error while a copy of the commit that is under way may still be accepted."""
        if self.queued.commit.exp + SKEW_MS >= self._reader.session.now():
            raise late
