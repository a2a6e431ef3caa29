"""When a contact gets a new epoch: so that one that leaks tells little, and reading stays cheap."""

from msgspec import Struct

from enc.apps.dm.peer import Peer

DAY_MS = 86_400_000


class Rotation(Struct, frozen=True):
    """After so many messages from the contact, or after so long, whichever comes first; None: not by that."""

    messages: int | None = 256
    age_ms: int | None = 7 * DAY_MS

    def is_due(self, peer: Peer, now: int) -> bool:
        """Only of a contact that may write, and of an epoch that it was given: another has protected nothing yet.

        Who may write and has none yet gets the first.
        """
        if peer.state == "FRIEND" and peer.own.n < 0:
            return True
        if peer.state != "FRIEND" or peer.owes_epoch or not peer.heard:
            return False
        is_full = self.messages is not None and peer.heard >= self.messages
        return is_full or (self.age_ms is not None and now - peer.epoch_at >= self.age_ms)
