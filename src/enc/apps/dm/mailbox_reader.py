"""Reading a mailbox: everything that its owner's log shows."""

import os
from collections.abc import Callable, Iterator

from enc.apps.dm.compose import Composer, Random
from enc.apps.dm.errors import NoSuchMessage
from enc.apps.dm.fold import ChangedEntry, MailboxFold, Refusal
from enc.apps.dm.mailbox_locator import MailboxLocator
from enc.apps.dm.outbox import Outbox
from enc.apps.dm.peer import Invite, MailboxContact, Peer
from enc.apps.dm.rotation import Rotation
from enc.apps.dm.thread import ThreadEntry
from enc.client import Client, Item
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import MisuseError
from enc.core.primitives.signing import is_public_key
from enc.runtime.clock import now_ms


class MailboxReader:
    """A mailbox computed from its log."""

    def __init__(
        self,
        client: Client,
        enclave: Id,
        *,
        node: str | None = None,
        rotation: Rotation = Rotation(),  # noqa: B008 - it is frozen
        clock: Callable[[], int] = now_ms,
        random: Random = os.urandom,
    ) -> None:
        self._client, self._rotation, self._clock = client, rotation, clock
        key = client.identity.key
        self.enclave = client.enclave(enclave, at=node)
        self._fold, self._composer = MailboxFold(key), Composer(key, random)
        self._locate = MailboxLocator(client)
        self._outbox = Outbox(self.enclave, key, self._composer, self._locate, self.sync)

    @property
    def identity(self) -> bytes:
        return self._client.identity.public

    # Reading

    def sync(self) -> list[ChangedEntry]:
        """Read new events; return the entries that have changed, with their contacts."""
        items = self.enclave.query(seq={"start_after": self._fold.last_seq} if self._fold.last_seq >= 0 else None)
        return [each for item in items for each in self._fold.apply(item)]

    def live(self) -> Iterator[list[ChangedEntry]]:
        """Yield what `sync` returns as events arrive, without end."""
        with self.enclave.subscribe(after=self.last_seq) as items:
            for item in items:
                yield self.take(item)

    def take(self, item: Item) -> list[ChangedEntry]:
        """Apply one event of the log that the caller has read. Events up to `last_seq` are
        ignored.
        """
        return self._fold.apply(item)

    @property
    def last_seq(self) -> int:
        """The seq of the last event read; -1 before the first."""
        return self._fold.last_seq

    def thread(self, who: Id) -> list[ThreadEntry]:
        """Return the messages of both sides, in order, as far as the log was read."""
        return self._fold.thread(_key(who))

    def entry(self, who: Id, ref: bytes) -> ThreadEntry | None:
        known = self._fold.peers.get(_key(who))
        return None if known is None else known.entries.get(ref)

    def last(self, who: Id) -> ThreadEntry:
        """Return your last message to a contact, whatever its state: the default of `edit` and
        `retract`.
        """
        self.sync()
        found = self._fold.last_sent(_key(who))
        if found is None:
            raise NoSuchMessage("no such message: you have not written to them yet")
        return found

    def contacts(self) -> list[MailboxContact]:
        """Return everyone with whom there was any contact, as far as the log was read, latest
        first.

        People who have only sent an invitation are in `invites`.
        """
        found = [peer.contact() for peer in self._fold.peers.values() if peer.is_contact]
        return sorted(found, key=lambda each: (-each.last_at, each.identity))

    def contact(self, who: Id) -> MailboxContact:
        return self._fold.peer(_key(who)).contact()

    def invites(self) -> list[Invite]:
        """Return the invitations of strangers."""
        return self._fold.invites()

    @property
    def refusals(self) -> list[Refusal]:
        """Events of the log that were rejected, and why."""
        return self._fold.refusals

    @property
    def is_open(self) -> bool:
        """Whether strangers may send invitations."""
        return self._fold.is_open

    def _known(self, who: Id) -> Peer:
        self.sync()
        return self._fold.peer(_key(who, self.identity))


def _key(who: Id, me: bytes | None = None) -> bytes:
    key = as_bytes(who, "identity")
    if not is_public_key(key):
        raise MisuseError("identity: not a public key")
    if key == me:
        raise MisuseError("identity: this is your own")
    return key
