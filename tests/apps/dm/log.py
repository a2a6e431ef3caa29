"""A mailbox's log without a node: signed events in the order in which a test writes them."""

import json
from itertools import count
from typing import Any

from enc.apps.dm import MailboxFold
from enc.apps.dm.epochs import GivenEpoch
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import CopyRecord, wire_record
from enc.client import Item
from enc.core.log.commit import build_commit
from enc.core.log.event import erase, finalize
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.sealed_forms import dm
from tests.core.world import person

NODE = PrivateKey(b"\x11" * 32)
MAILBOX = b"\xaa" * 32
_numbers = count(1)


def nonce() -> bytes:
    return next(_numbers).to_bytes(24, "big")


class Log:
    """Alice's mailbox, as its node would show it. `secret`: the epoch secret that she makes for a
    contact.
    """

    def __init__(self, owner: str = "alice") -> None:
        self.owner, self.events = person(owner), list[Event]()
        self.now = 1_800_000_000_000

    def say(self, who: str, type_: str, content: Any, *tags: tuple[str, ...]) -> Event:
        key, text = person(who), content if isinstance(content, str) else json.dumps(content)
        commit = build_commit(key, MAILBOX, type_, text, self.now + 1000, tags)
        self.now += 10
        self.events.append(finalize(commit, NODE, self.now, len(self.events)))
        return self.events[-1]

    def fold(self, *, events: list[Event] | None = None) -> MailboxFold:
        fold = MailboxFold(self.owner)
        for event in self.events if events is None else events:
            fold.apply(Item(event, "active"))
        return fold

    def erased(self, *gone: Event, shown: bool = True) -> list[Event]:
        """Return the log as a new device sees it: replaced contents are erased, deleted events are
        missing.
        """
        ids = {event.id for event in gone}
        return [erase(each) if each.id in ids else each for each in self.events if shown or each.id not in ids]

    # The owner's events

    def own_epoch(self, n: int, secret: bytes, **changes: Any) -> dict[str, Any]:
        sealed = dm.seal_epoch(self.owner, self.owner.public, n, secret, nonce())
        return {**dm.wire_epoch(sealed), **changes}

    def befriend(self, who: str, secret: bytes, n: int = 0) -> Event:
        target = person(who).public.hex()
        content = {"target": target, "from": "OUTSIDER", "to": "FRIEND", "epoch": self.own_epoch(n, secret)}
        return self.say("alice", "Move", content)

    def move(self, who: str, from_: str, to: str) -> Event:
        return self.say("alice", "Move", {"target": person(who).public.hex(), "from": from_, "to": to})

    def rotate(self, who: str, n: int, secret: bytes, **changes: Any) -> Event:
        content = {"target": person(who).public.hex(), "epoch": self.own_epoch(n, secret, **changes)}
        return self.say("alice", "rotate", content)

    def copy(self, to: str, record: CopyRecord) -> Event:
        return self.say("alice", "sent", self.sealed(to, record), ("to", person(to).public.hex()))

    def revise(self, event: Event, to: str, record: CopyRecord) -> Event:
        return self.say("alice", "Update", self.sealed(to, record), ("r", event.id.hex()))

    def sealed(self, to: str, record: CopyRecord) -> str:
        return dm.seal_sent(self.owner, person(to).public, wire_record(record), nonce())

    # Events of others

    def message(self, who: str, content: str, *tags: tuple[str, ...]) -> Event:
        return self.say(who, "message", content, *tags)

    def given(self, who: str, n: int, secret: bytes, to: str = "alice") -> tuple[str, ...]:
        return dm.epoch_tag(dm.seal_epoch(person(who), person(to).public, n, secret, nonce()))


def words(secret: bytes, seq: int, text: str, epoch: int = 0) -> str:
    """Return a message's content."""
    return dm.seal_message(dm.EpochChain(secret), epoch, seq, text.encode(), nonce())


def of(fold: MailboxFold, who: str) -> Peer:
    return fold.peer(person(who).public)


def texts(fold: MailboxFold, who: str) -> list[str | None]:
    return [entry.text for entry in fold.thread(person(who).public)]


def codes(fold: MailboxFold) -> list[str]:
    return [refusal.error.code for refusal in fold.refusals]


def current(fold: MailboxFold, who: str) -> GivenEpoch | None:
    return of(fold, who).given
