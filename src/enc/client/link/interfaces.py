"""What a session needs from the layers above it: a locator of nodes, a quorum of witnesses, and a
registrar for enclaves whose ownership has changed.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from enc.client.link.node_link import NodeLink
from enc.client.verify.pins import Pin
from enc.client.wire.flow import Flow
from enc.core.primitives.types import Commit, TreeHead

if TYPE_CHECKING:
    from enc.client.link.enclave_session import EnclaveSession


class Locator(Protocol):
    """Finds the node to which an enclave has moved, and checks that it did."""

    @property
    def can_locate(self) -> bool:
        """Whether there is any source that may name another node."""
        ...

    def recorded(self, pin: Pin) -> Sequence[str]:
        """Return the addresses that a pin recorded, if they may be used."""
        ...

    def locate(self, enclave: bytes) -> Flow[NodeLink]:
        """Return the node that a registry names; raise if none is named or it does not answer."""
        ...

    def find(
        self,
        enclave: bytes,
        sequencers: Collection[bytes],
        node: NodeLink,
        urls: Sequence[str] = (),
        *,
        is_patient: bool = True,
    ) -> Flow[NodeLink | None]:
        """Return a node other than `node`: the one that a registry names, or one with one of these
        keys, searched for at `urls`, too. Unless `is_patient`, a registry is asked once.
        """
        ...

    def adopt_or_switch(self, session: "EnclaveSession", pin: Pin) -> Flow[None]:
        """Adopt a node that is not the pinned one, or switch to the pinned one, or raise."""
        ...

    def names_other_node(self, session: "EnclaveSession") -> Flow[bool]:
        """Whether a registry names a node other than the one in use."""
        ...

    def origin(self, enclave: bytes) -> bytes | None:
        """Return the first sequencer, if the registry entry is signed by the enclave's creator."""
        ...

    def may_have_moved(self, enclave: bytes, key: bytes | None) -> Flow[bool]:
        """Whether a registry names a sequencer other than `key`, which does not answer."""
        ...


class Quorum(Protocol):
    """The witnesses that must confirm a head before it is accepted."""

    def check(self, session: "EnclaveSession", head: TreeHead) -> Flow[object]: ...


class Registrar(Protocol):
    """Registers an enclave whose ownership changes."""

    def before_send(self, session: "EnclaveSession", commit: Commit) -> Flow[None]:
        """Register a proof that only the present owner can make, if the commit gives the ownership
        away.
        """
        ...

    def notice(self, session: "EnclaveSession", commit: Commit, seq: int) -> None:
        """Take note of an event of the log: it may have made this identity an owner."""
        ...
