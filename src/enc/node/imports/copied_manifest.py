"""A copy of an enclave's Manifest on this node, which an import of the enclave replaces.

Anyone who reads a Manifest can send it to other nodes until it expires, and each of them creates the
enclave. So a node may hold the id of an enclave that is elsewhere. A log that is nothing but such a
copy gives way to the one that the owner moves here: the other log has the same commit, so nothing
that this node has acknowledged is lost.

The node has signed heads of the copy, though. It signs no other head of those sizes, and no larger
head with an earlier time: either would be evidence against it (docs/protocol.md, section 15.3).
"""

from msgspec import Struct

from enc.core.errors import EnclaveExists, ReplayFailed
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event


class CopiedManifest(Struct, frozen=True):
    """What a node has signed of a copy that it replaces."""

    size: int
    """Largest size of which it may have signed a head."""
    floor: int
    """Latest time in those heads."""

    def head_time(self, size: int, closed_at: int, *, is_last: bool) -> int | None:
        """Return the time for a head of the imported log, or None if this node must not sign one.

        The last size needs a head: its time is not earlier than that of the copy's heads.
        """
        if size <= self.size or (closed_at < self.floor and not is_last):
            return None
        return max(closed_at, self.floor)

    def check_imported(self, seq: int, size: int, signers: list[bytes], key: bytes) -> None:
        """Check that this node can take on a log up to `seq`: it has signed nothing of it before,
        and can sign a head of its end.
        """
        if key in signers:
            raise ReplayFailed(seq, EnclaveExists("this node has signed another event 0 of this log"))
        if size <= self.size:
            message = f"this node has signed a head of size {self.size} of a copied Manifest, and the log is no longer"
            raise ReplayFailed(seq, EnclaveExists(message))


def copied_manifest(held: EnclaveState, stored: Event, event: Event, key: bytes) -> CopiedManifest:
    """Return what the node has signed of the log that it holds, if `event` may take the place of
    its event 0; raise ReplayFailed if the log may not be replaced.
    """
    is_copy = held.seq == 0 and stored.sequencer == key and stored.hash == event.hash
    if not is_copy or event.sequencer == key:
        raise ReplayFailed(event.seq, EnclaveExists("this node holds a different event at this seq"))
    return CopiedManifest(held.log.size, held.min_timestamp)
