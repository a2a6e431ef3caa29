"""Finds the node to which an enclave has moved, by a registry or the user's nodes, and verifies it."""

from collections.abc import Callable, Collection, Iterable, Sequence

from enc.client.errors import Distrust, LostRange, TooManyMoves, Unreachable
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.enclave_session import EnclaveSession
from enc.client.link.node_link import NodeLink
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.migration.adopt_sequencer import adopt_sequencer
from enc.client.registry.registry_client import CACHE_S, RegistryClient, RegistryRecord, Resolution
from enc.client.verify.pins import MemoryPins, Pin, merge_pins
from enc.client.verify.sequencer_history import History
from enc.client.wire.flow import Call, Flow
from enc.core.errors import EnclaveMigrated, EnclaveNotFound, MisuseError, PeerError, Unauthorized, WorldError

MAX_SEEN = 256
"""Most enclaves for which the registry's answer is remembered."""


class NodeLocator:
    """`nodes`: URLs of nodes to which an enclave may move.

    `quick_registry`: the registry client without retries. `accept_loss`: continue even if events
    seen before are lost. `uses_recorded`: also look at the addresses that pins recorded.
    """

    def __init__(
        self,
        reach: Callable[[str], NodeLink],
        nodes: Sequence[str] = (),
        registry_client: RegistryClient | None = None,
        *,
        quick_registry: RegistryClient | None = None,
        clock: Callable[[], float] = lambda: 0.0,
        accept_loss: bool = False,
        uses_recorded: bool = False,
    ) -> None:
        self._reach, self._nodes, self._registry_client, self._accept_loss = (
            reach,
            tuple(nodes),
            registry_client,
            accept_loss,
        )
        self._uses_recorded, self._seen = uses_recorded, dict[bytes, Resolution]()
        self._quick_registry, self._clock, self._due = quick_registry, clock, dict[bytes, float]()

    @property
    def can_locate(self) -> bool:
        """Whether there is any source that may name another node."""
        return self._registry_client is not None or bool(self._nodes)

    def recorded(self, pin: Pin) -> Sequence[str]:
        """Return the addresses that a pin recorded, if they may be used."""
        return pin.urls if self._uses_recorded else ()

    def add_node(self, url: str) -> None:
        """Add a node to which an enclave may move."""
        if url not in self._nodes:
            self._nodes = (*self._nodes[-MAX_SEEN:], url)

    def locate(self, enclave: bytes) -> Flow[NodeLink]:
        """Return the node that the registry names; raise Unreachable if it does not answer."""
        if self._registry_client is None:
            raise EnclaveNotFound("no registry was given that may list the enclave")
        try:
            resolution = yield from self._registry_client.resolve(enclave, fresh=True)
        except EnclaveNotFound:
            raise EnclaveNotFound("the registry does not list the enclave") from None
        self._remember(resolution)
        found = yield from self._first(resolution.urls, (resolution.sequencer,), None, enclave)
        if found is None:
            raise _not_answering(resolution)
        return found

    def _check_named(self, enclave: bytes, key: bytes) -> None:
        """Raise Unreachable if the registry names another node than `key`, which did not answer."""
        seen = self._seen.get(enclave)
        if seen is not None and seen.sequencer != key:
            raise _not_answering(seen)

    def find(
        self,
        enclave: bytes,
        sequencers: Collection[bytes],
        node: NodeLink,
        urls: Sequence[str] = (),
        *,
        is_patient: bool = True,
    ) -> Flow[NodeLink | None]:
        """Return a node other than `node`: the one that the registry names, or one with one of these
        keys, searched for at `urls`, too. Unless `is_patient`, the registry is asked once.
        """
        resolution = yield from self._resolution(enclave, is_patient=is_patient)
        if resolution is not None:
            self._remember(resolution)
            found = yield from self._first(resolution.urls, (resolution.sequencer,), node, enclave)
            if found is not None:
                return found
        return (yield from self._first((*self._nodes, *urls), sequencers, node, enclave)) if sequencers else None

    def _remember(self, resolution: Resolution) -> None:
        if len(self._seen) >= MAX_SEEN:
            self._seen.clear()
        self._seen[resolution.enclave] = resolution

    def _first(
        self, urls: Iterable[str], sequencers: Collection[bytes], left: NodeLink | None, enclave: bytes
    ) -> Flow[NodeLink | None]:
        """Return the first node, in this order, that has one of the keys and the enclave and was not
        just left.

        Each is asked once. A node that a Migrate names has the enclave only after its import.
        """
        for url in dict.fromkeys(urls):
            try:
                node = self._reach(url)
                key = yield from node.seq_pub(node.without_retries())
            except (WorldError, Distrust, MisuseError):
                continue
            if key not in sequencers or (left is not None and not left.is_unresolved and left.found == key):
                continue
            if (yield from _has(node, enclave)):
                return node
        return None

    def _resolution(self, enclave: bytes, *, is_patient: bool = True) -> Flow[Resolution | None]:
        client = self._registry_client if is_patient else self._quick_registry
        if client is None:
            return None
        try:
            return (yield from client.resolve(enclave, fresh=True))
        except Distrust:
            raise
        except (PeerError, WorldError):
            return None

    def names_other_node(self, session: EnclaveSession) -> Flow[bool]:
        """Whether the registry, asked from time to time, names a node not known to be a former one.

        A node that was left by force may continue without knowing it. A registry that does not
        answer is ignored.
        """
        if self._quick_registry is None or self._clock() < self._due.get(session.enclave, 0.0):
            return False
        if len(self._due) >= MAX_SEEN:
            self._due.clear()
        self._due[session.enclave] = self._clock() + CACHE_S
        try:
            resolution = yield from self._quick_registry.resolve(session.enclave)
        except Distrust:
            raise
        except (PeerError, WorldError):
            return False
        if resolution.sequencer == session.node.found:
            return False
        return not _is_behind(resolution, (yield from _known(session)))

    def may_have_moved(self, enclave: bytes, key: bytes | None) -> Flow[bool]:
        """Whether the registry names a sequencer other than `key`, which does not answer."""
        resolution = yield from self._resolution(enclave)
        return resolution is not None and resolution.sequencer != key

    def origin(self, enclave: bytes) -> bytes | None:
        """Return the first sequencer of an enclave found by a registry, if its creator signed the
        entry.
        """
        seen = self._seen.get(enclave)
        return seen.origin if seen else None

    def adopt_or_switch(self, session: EnclaveSession, pin: Pin) -> Flow[None]:
        """Adopt the node according to its log, or switch to the pinned one; else raise."""
        new = yield from self._adopted(session, pin)
        if new is None:
            new = yield from self._elsewhere(session, pin)
        if new is not None:
            if self._accept_loss and merge_pins(pin, new) != new:
                session.pins.remove(session.enclave)
            session.pins.store(session.enclave, new)

    def _elsewhere(self, session: EnclaveSession, pin: Pin) -> Flow[Pin | None]:
        """Switch to the pinned node or to its known successor, or to the one that the registry names,
        if that proves its log.

        The node asked may simply be the one that the user configured for all enclaves, and never
        have had this one: that is not a lie.
        """
        seq_pub = yield from session.node.seq_pub()
        urls = self.recorded(pin) if pin.history.departure(seq_pub) is not None else ()
        found = yield from self.find(session.enclave, pin.named, session.node, urls)
        if found is None:
            self._check_named(session.enclave, seq_pub)
            if pin.history.departure(seq_pub) is None:  # not a former sequencer: it must prove how it got the log
                raise session.foreign_node(pin.sequencer, seq_pub)
            return None
        session.node = found
        if found.found == pin.sequencer:
            return None
        new = yield from self._adopted(session, pin)
        if new is None and pin.history.departure(found.found or b"") is None:
            raise session.foreign_node(pin.sequencer, found.found or b"")
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
            if pin.history.sequencer == session.node.found:  # named by a known Migrate: reading is really denied
                raise
            return None
        except PeerError:  # it does not show how the enclave came to it
            return None

    def _record(self, enclave: bytes) -> Flow[RegistryRecord | None]:
        """Return the registry's entry, or None.

        Raises if the registry does not answer: its entry decides.
        """
        if self._registry_client is None:
            return None
        try:
            return (yield from self._registry_client.record(enclave))
        except EnclaveNotFound:
            return None


def _not_answering(resolution: Resolution) -> Unreachable:
    where = " ".join(resolution.urls) or "no address"
    return Unreachable(f"the registry names the node {resolution.sequencer.hex()} at {where}, which does not answer")


def _has(node: NodeLink, enclave: bytes) -> Flow[bool]:
    try:
        yield from node.without_retries().request(Call(f"/{enclave.hex()}/sth"))
    except EnclaveNotFound:
        return False
    except (PeerError, WorldError):
        pass
    return True


def _known(session: EnclaveSession) -> Flow[History]:
    """Return the pinned history of sequencers, or else what the node itself shows."""
    pin = session.pins.load(session.enclave)
    if pin is not None and (pin.moves or pin.head):
        return pin.history
    try:
        return (yield from fetch_history(session))
    except (PeerError, WorldError):
        return History(session.node.found)


def _is_behind(resolution: Resolution, known: History) -> bool:
    """Whether the registry names a former sequencer, without a Migrate by which it came back."""
    if known.departure(resolution.sequencer) is None:
        return False
    return max((event.seq for event in resolution.migrates), default=-1) <= known.reach
