"""Claims that enclaves have moved from a node: another node pushes their events, or an
unknown node pushes something.

A claim is settled after the node's own queue has been emptied, so that what it pushed before the
move is delivered first.
"""

import logging
from typing import Protocol

from msgspec import Struct

from enc.client.receive.move_finder import MoveFinder
from enc.client.registry.registry_client import Resolution

MAX_CLAIMS = 256
"""Most enclaves of one node that are looked up at once."""

UNKNOWN = (
    "pushes events of {enclave}, but is not known as its node; if the enclave has moved there, give the receiver a "
    "registry that lists it, or let the manifest push Migrate to this identity or allow it to read Migrate"
)


class Claim(Struct, frozen=True):
    """An enclave has moved from the sequencer `known` to `claimant`, which pushes its events; None: to
    any other.
    """

    known: bytes
    claimant: bytes | None = None


class ClaimsContext(Protocol):
    """What settling claims needs from the receiver."""

    moves: MoveFinder

    def log_throttled(self, level: int, kind: str, text: str) -> None: ...

    def url_of(self, seq_pub: bytes) -> str | None: ...

    def node_found(self, url: str, seq_pub: bytes) -> None: ...


class Claims:
    """The claims about enclaves of one node, and what the registry says about them."""

    def __init__(self, context: ClaimsContext, by_enclave: dict[bytes, Claim]) -> None:
        self._context, self.by_enclave = context, by_enclave
        self._found: dict[bytes, Resolution] = {}

    def look_up(self) -> None:
        """Ask the registry before the node's queue is read: the queue then has everything before the move."""
        for enclave in self.by_enclave:
            found = self._context.moves.look_up(enclave)
            if found is not None:
                self._found[enclave] = found

    def settle(self) -> bool:
        """Pin the moves that are proved; return whether all claims are settled."""
        settled = [self._settle(enclave, claim.known, claim.claimant) for enclave, claim in self.by_enclave.items()]
        return all(settled)

    def _settle(self, enclave: bytes, known: bytes, claimant: bytes | None) -> bool:
        context, found = self._context, self._found.get(enclave)
        if found is not None:
            history = context.moves.pin_moves(enclave, known, found.migrates)
            if history.sequencer == found.sequencer and context.url_of(found.sequencer) is None and found.urls:
                context.node_found(found.urls[0], found.sequencer)
            if claimant is not None and history.knows(claimant):
                return True
        url = None if claimant is None else context.url_of(claimant)
        if claimant is None or url is None or context.moves.is_proved_by(url, claimant, enclave, known):
            return True
        text = f"{url} {UNKNOWN.format(enclave=enclave.hex())}"
        context.log_throttled(logging.WARNING, f"{url} {enclave.hex()} unknown", text)
        return False
