"""Where an enclave has gone: by a registry, or among the nodes that the user named; and whether that is so."""

from collections.abc import Callable, Iterable, Sequence

from enc.client.directory import CACHE_S, Directory, Record, Resolution
from enc.client.errors import Distrust, LostRange, TooManyMoves, Unreachable
from enc.client.flow import Call, Flow
from enc.client.history import History
from enc.client.lineage import learned
from enc.client.link import Link
from enc.client.node_link import NodeLink
from enc.client.pins import MemoryPins, Pin, grown
from enc.client.speech import Speech
from enc.client.succession import adopt
from enc.core.errors import EnclaveMigrated, EnclaveNotFound, MisuseError, PeerError, Unauthorized, WorldError

MAX_SEEN = 256
"""Enclaves of which it is remembered what the registry said."""


class Guide:
    """`nodes`: URLs of nodes to which an enclave may move. `glance`: the registry again, without patience for it.

    `accept_loss`: go on where what was seen before is lost.
    """

    def __init__(
        self,
        reach: Callable[[str], NodeLink],
        nodes: Sequence[str] = (),
        directory: Directory | None = None,
        *,
        glance: Directory | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        accept_loss: bool = False,
    ) -> None:
        self._reach, self._nodes, self._directory, self._accept_loss = reach, tuple(nodes), directory, accept_loss
        self._seen: dict[bytes, Resolution] = {}
        self._glance, self._clock, self._due = glance, clock, dict[bytes, float]()

    @property
    def has_hope(self) -> bool:
        """Whether there is anybody who could name another node sooner or later."""
        return self._directory is not None or bool(self._nodes)

    def know(self, url: str) -> None:
        """One more node to which an enclave may move."""
        if url not in self._nodes:
            self._nodes = (*self._nodes[-MAX_SEEN:], url)

    def locate(self, enclave: bytes) -> Flow[NodeLink]:
        """The node that the registry names, where nothing else is known; Unreachable if it does not answer."""
        if self._directory is None:
            raise EnclaveNotFound("no registry was given that may know the enclave")
        try:
            resolution = yield from self._directory.resolve(enclave, fresh=True)
        except EnclaveNotFound:
            raise EnclaveNotFound("no registry that was given knows the enclave") from None
        self._remember(resolution)
        found = yield from self._first(resolution.urls, resolution.sequencer, None, enclave)
        if found is None:
            raise _silent(resolution)
        return found

    def _check_named(self, enclave: bytes, key: bytes) -> None:
        """Whoever else the registry names for an enclave that this node does not show, does not answer."""
        seen = self._seen.get(enclave)
        if seen is not None and seen.sequencer != key:
            raise _silent(seen)

    def find(self, enclave: bytes, sequencer: bytes | None, node: NodeLink) -> Flow[NodeLink | None]:
        """A node with this key, or with the one that the registry names; other than the one that is left."""
        resolution = yield from self._resolution(enclave)
        if resolution is not None:
            self._remember(resolution)
            found = yield from self._first(resolution.urls, resolution.sequencer, node, enclave)
            if found is not None:
                return found
        return None if sequencer is None else (yield from self._first(self._nodes, sequencer, node, enclave))

    def _remember(self, resolution: Resolution) -> None:
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[resolution.enclave] = resolution

    def _first(
        self, urls: Iterable[str], sequencer: bytes, left: NodeLink | None, enclave: bytes
    ) -> Flow[NodeLink | None]:
        """The first of these, in their order, that has the key and the enclave; none that was just left.

        Each is asked once. A node that a Migrate names has the enclave only once its import is done.
        """
        for url in urls:
            node = self._reach(url)
            try:
                key = yield from node.seq_pub(node.glance())
            except (WorldError, Distrust, MisuseError):
                continue
            if key != sequencer or (left is not None and not left.is_nowhere and left.found == key):
                continue
            if (yield from _has(node, enclave)):
                return node
        return None

    def _resolution(self, enclave: bytes) -> Flow[Resolution | None]:
        if self._directory is None:
            return None
        try:
            return (yield from self._directory.resolve(enclave, fresh=True))
        except Distrust:
            raise
        except (PeerError, WorldError):
            return None

    def should_turn(self, speech: Speech) -> Flow[bool]:
        """Whether the registry, which is looked at now and then, names a node that is not known to be a former one.

        An old node that was left by force may go on without saying so, or knowing it. A registry that does not answer
        is no reason to wait.
        """
        if self._glance is None or self._clock() < self._due.get(speech.enclave, 0.0):
            return False
        if len(self._due) >= MAX_SEEN:
            self._due.clear()
        self._due[speech.enclave] = self._clock() + CACHE_S
        try:
            resolution = yield from self._glance.resolve(speech.enclave)
        except Distrust:
            raise
        except (PeerError, WorldError):
            return False
        if resolution.sequencer == speech.node.found:
            return False
        return not _is_behind(resolution, (yield from _known(speech)))

    def may_have_moved(self, enclave: bytes, key: bytes | None) -> Flow[bool]:
        """Whether the registry names another sequencer than the one that was asked, and does not answer."""
        resolution = yield from self._resolution(enclave)
        return resolution is not None and resolution.sequencer != key

    def origin(self, enclave: bytes) -> bytes | None:
        """The first sequencer of an enclave that was found by a registry, if its creator vouches for it."""
        seen = self._seen.get(enclave)
        return seen.origin if seen else None

    def succeed(self, speech: Speech, pin: Pin) -> Flow[None]:
        """Adopt the node by its log, or turn to the pinned one; else it is a stranger."""
        new = yield from self._adopted(speech, pin)
        if new is None:
            new = yield from self._elsewhere(speech, pin)
        if new is not None:
            if self._accept_loss and grown(pin, new) != new:
                speech.pins.remove(speech.enclave)
            speech.pins.store(speech.enclave, new)

    def _elsewhere(self, speech: Speech, pin: Pin) -> Flow[Pin | None]:
        """The node shows nothing: turn to the one that is pinned, or to whom the registry names and who does show it.

        A node that never had the enclave may be the one that the user names for all: that is no lie of it.
        """
        seq_pub = yield from speech.node.seq_pub()
        found = yield from self.find(speech.enclave, pin.sequencer, speech.node)
        if found is None:
            self._check_named(speech.enclave, seq_pub)
            if pin.history.departure(seq_pub) is None:  # not a former one: it has to show how the log came to it
                raise speech.foreign(pin.sequencer, seq_pub)
            return None
        speech.node = found
        if found.found == pin.sequencer:
            return None
        new = yield from self._adopted(speech, pin)
        if new is None and pin.history.departure(found.found or b"") is None:
            raise speech.foreign(pin.sequencer, found.found or b"")
        return new

    def _adopted(self, speech: Speech, pin: Pin) -> Flow[Pin | None]:
        probe = Link(speech.node, speech.identity, speech.enclave, MemoryPins(), speech.now, speech.alg)
        seen = self._seen.get(speech.enclave)
        hints = seen.migrates if seen else ()
        try:
            return (yield from adopt(probe, pin, hints, accept_loss=self._accept_loss, record=self._record))
        except (EnclaveMigrated, LostRange, TooManyMoves, Distrust, WorldError):
            raise
        except Unauthorized:
            if pin.history.sequencer == speech.node.found:  # by a Migrate that was seen: who may not read there is out
                raise
            return None
        except PeerError:  # it will not say how the enclave came to it: it is a stranger
            return None

    def _record(self, enclave: bytes) -> Flow[Record | None]:
        """The registry's entry. A registry that does not answer cannot be gone without: what it would say decides."""
        if self._directory is None:
            return None
        try:
            return (yield from self._directory.record(enclave))
        except EnclaveNotFound:
            return None


def _silent(resolution: Resolution) -> Unreachable:
    where = " ".join(resolution.urls) or "no address"
    return Unreachable(f"the registry names the node {resolution.sequencer.hex()} at {where}, which does not answer")


def _has(node: NodeLink, enclave: bytes) -> Flow[bool]:
    try:
        yield from node.glance().request(Call(f"/{enclave.hex()}/sth"))
    except EnclaveNotFound:
        return False
    except (PeerError, WorldError):
        pass
    return True


def _known(speech: Speech) -> Flow[History]:
    """What is pinned of the enclave's sequencers; or, where nothing is, what the node itself shows."""
    pin = speech.pins.load(speech.enclave)
    if pin is not None and (pin.moves or pin.head):
        return pin.history
    try:
        return (yield from learned(speech))
    except (PeerError, WorldError):
        return History(speech.node.found)


def _is_behind(resolution: Resolution, known: History) -> bool:
    """The registry names a sequencer that is known to be a former one, and no Migrate by which it came back."""
    if known.departure(resolution.sequencer) is None:
        return False
    return max((event.seq for event in resolution.migrates), default=-1) <= known.reach
