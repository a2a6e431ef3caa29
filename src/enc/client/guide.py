"""Where an enclave has gone: by a registry, or among the nodes that the user named; and whether that is so."""

from collections.abc import Callable, Iterable, Sequence

from enc.client.directory import CACHE_S, RegistryClient, RegistryRecord, Resolution
from enc.client.errors import Distrust, LostRange, TooManyMoves, Unreachable
from enc.client.flow import Call, Flow
from enc.client.history import History
from enc.client.lineage import fetch_history
from enc.client.link import EnclaveReader
from enc.client.node_link import NodeLink
from enc.client.pins import MemoryPins, Pin, merge_pins
from enc.client.speech import EnclaveSession
from enc.client.succession import adopt_sequencer
from enc.core.errors import EnclaveMigrated, EnclaveNotFound, MisuseError, PeerError, Unauthorized, WorldError

MAX_SEEN = 256
"""Enclaves of which it is remembered what the registry said."""


class NodeLocator:
    """`nodes`: URLs of nodes to which an enclave may move. `glance`: the registry again, without patience for it.

    `accept_loss`: go on where what was seen before is lost.
    """

    def __init__(
        self,
        reach: Callable[[str], NodeLink],
        nodes: Sequence[str] = (),
        registry_client: RegistryClient | None = None,
        *,
        glance: RegistryClient | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        accept_loss: bool = False,
    ) -> None:
        self._reach, self._nodes, self._registry_client, self._accept_loss = (
            reach,
            tuple(nodes),
            registry_client,
            accept_loss,
        )
        self._seen: dict[bytes, Resolution] = {}
        self._glance, self._clock, self._due = glance, clock, dict[bytes, float]()

    @property
    def can_locate(self) -> bool:
        """Whether there is anybody who could name another node sooner or later."""
        return self._registry_client is not None or bool(self._nodes)

    def know(self, url: str) -> None:
        """One more node to which an enclave may move."""
        if url not in self._nodes:
            self._nodes = (*self._nodes[-MAX_SEEN:], url)

    def locate(self, enclave: bytes) -> Flow[NodeLink]:
        """The node that the registry names, where nothing else is known; Unreachable if it does not answer."""
        if self._registry_client is None:
            raise EnclaveNotFound("no registry was given that may know the enclave")
        try:
            resolution = yield from self._registry_client.resolve(enclave, fresh=True)
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
            if key != sequencer or (left is not None and not left.is_unresolved and left.found == key):
                continue
            if (yield from _has(node, enclave)):
                return node
        return None

    def _resolution(self, enclave: bytes) -> Flow[Resolution | None]:
        if self._registry_client is None:
            return None
        try:
            return (yield from self._registry_client.resolve(enclave, fresh=True))
        except Distrust:
            raise
        except (PeerError, WorldError):
            return None

    def names_other_node(self, session: EnclaveSession) -> Flow[bool]:
        """Whether the registry, which is looked at now and then, names a node that is not known to be a former one.

        An old node that was left by force may go on without saying so, or knowing it. A registry that does not answer
        is no reason to wait.
        """
        if self._glance is None or self._clock() < self._due.get(session.enclave, 0.0):
            return False
        if len(self._due) >= MAX_SEEN:
            self._due.clear()
        self._due[session.enclave] = self._clock() + CACHE_S
        try:
            resolution = yield from self._glance.resolve(session.enclave)
        except Distrust:
            raise
        except (PeerError, WorldError):
            return False
        if resolution.sequencer == session.node.found:
            return False
        return not _is_behind(resolution, (yield from _known(session)))

    def may_have_moved(self, enclave: bytes, key: bytes | None) -> Flow[bool]:
        """Whether the registry names another sequencer than the one that was asked, and does not answer."""
        resolution = yield from self._resolution(enclave)
        return resolution is not None and resolution.sequencer != key

    def origin(self, enclave: bytes) -> bytes | None:
        """The first sequencer of an enclave that was found by a registry, if its creator vouches for it."""
        seen = self._seen.get(enclave)
        return seen.origin if seen else None

    def adopt_or_turn(self, session: EnclaveSession, pin: Pin) -> Flow[None]:
        """Adopt the node by its log, or turn to the pinned one; else it is a stranger."""
        new = yield from self._adopted(session, pin)
        if new is None:
            new = yield from self._elsewhere(session, pin)
        if new is not None:
            if self._accept_loss and merge_pins(pin, new) != new:
                session.pins.remove(session.enclave)
            session.pins.store(session.enclave, new)

    def _elsewhere(self, session: EnclaveSession, pin: Pin) -> Flow[Pin | None]:
        """The node shows nothing: turn to the one that is pinned, or to whom the registry names and who does show it.

        A node that never had the enclave may be the one that the user names for all: that is no lie of it.
        """
        seq_pub = yield from session.node.seq_pub()
        found = yield from self.find(session.enclave, pin.sequencer, session.node)
        if found is None:
            self._check_named(session.enclave, seq_pub)
            if pin.history.departure(seq_pub) is None:  # not a former one: it has to show how the log came to it
                raise session.foreign(pin.sequencer, seq_pub)
            return None
        session.node = found
        if found.found == pin.sequencer:
            return None
        new = yield from self._adopted(session, pin)
        if new is None and pin.history.departure(found.found or b"") is None:
            raise session.foreign(pin.sequencer, found.found or b"")
        return new

    def _adopted(self, session: EnclaveSession, pin: Pin) -> Flow[Pin | None]:
        probe = EnclaveReader(
            EnclaveSession(session.node, session.identity, session.enclave, MemoryPins(), session.now, session.alg)
        )
        seen = self._seen.get(session.enclave)
        hints = seen.migrates if seen else ()
        try:
            return (yield from adopt_sequencer(probe, pin, hints, accept_loss=self._accept_loss, record=self._record))
        except (EnclaveMigrated, LostRange, TooManyMoves, Distrust, WorldError):
            raise
        except Unauthorized:
            if pin.history.sequencer == session.node.found:  # by a Migrate that was seen: who may not read there is out
                raise
            return None
        except PeerError:  # it will not say how the enclave came to it: it is a stranger
            return None

    def _record(self, enclave: bytes) -> Flow[RegistryRecord | None]:
        """The registry's entry. A registry that does not answer cannot be gone without: what it would say decides."""
        if self._registry_client is None:
            return None
        try:
            return (yield from self._registry_client.record(enclave))
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


def _known(session: EnclaveSession) -> Flow[History]:
    """What is pinned of the enclave's sequencers; or, where nothing is, what the node itself shows."""
    pin = session.pins.load(session.enclave)
    if pin is not None and (pin.moves or pin.head):
        return pin.history
    try:
        return (yield from fetch_history(session))
    except (PeerError, WorldError):
        return History(session.node.found)


def _is_behind(resolution: Resolution, known: History) -> bool:
    """The registry names a sequencer that is known to be a former one, and no Migrate by which it came back."""
    if known.departure(resolution.sequencer) is None:
        return False
    return max((event.seq for event in resolution.migrates), default=-1) <= known.reach
