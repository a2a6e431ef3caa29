"""When a contact gets a new epoch, so that a leaked one reveals little and reading stays cheap."""

from msgspec import Struct

from enc.apps.dm.peer import Peer

DAY_MS = 86_400_000


class Rotation(Struct, frozen=True):
    """After so many messages from the contact or so much time, whichever comes first; None: no
    limit.
    """

    messages: int | None = 256
    age_ms: int | None = 7 * DAY_MS

    def is_due(self, peer: Peer, now: int) -> bool:
        """Whether the contact needs a new epoch. A FRIEND without one gets the first.

        Otherwise only a FRIEND that was given the current epoch: an unused one has protected
        nothing.
        """
        if peer.state == "FRIEND" and peer.own.n < 0:
            return True
        if peer.state != "FRIEND" or peer.owes_epoch or not peer.messages_in_epoch:
            return False
        is_full = self.messages is not None and peer.messages_in_epoch >= self.messages
        return is_full or (self.age_ms is not None and now - peer.epoch_at >= self.age_ms)
