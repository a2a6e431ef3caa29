"""A group in memory: the real rules, one log, and a fold for each reader. No node, no
randomness.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec

from enc.apps.group import GroupFold, Keys, group_manifest
from enc.apps.group.views import Change
from enc.client import Identity
from enc.core.primitives.hashing import sha256
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.sealed_forms.group_message import seal_message
from enc.core.sealed_forms.group_ratchet import propose
from enc.core.sealed_forms.group_state import PublicGroupState, Randomness
from tests.core.world import World, move, person

Json = dict[str, Any]
_numbers = count()


def fresh(size: int) -> Iterator[bytes]:
    while True:
        yield sha256(b"fresh %d" % next(_numbers))[:size]


def pubkey(name: str) -> bytes:
    return person(name).public


def keys_of(name: str) -> Keys:
    return Keys(pubkey(name), person(name), Identity(person(name)).sub_key())


class Recorder:
    """Randomness that remembers the secrets it returned: what an epoch's author knows."""

    def __init__(self) -> None:
        self.secrets: list[bytes] = []

    def chance(self) -> Randomness:
        return Randomness(self._one(), PrivateKey(next(fresh(32))), self._fills(), fresh(12))

    def _one(self) -> bytes:
        self.secrets.append(next(fresh(32)))
        return self.secrets[-1]

    def _fills(self) -> Iterator[bytes]:
        while True:
            yield self._one()


class Circle:
    """alice creates it; `people` are admitted one by one, each with an epoch."""

    def __init__(self, *people: str) -> None:
        self.world = World(group_manifest(pubkey("alice")))
        self.made: dict[str, Recorder] = {}
        self._folds: dict[str, GroupFold] = {}
        self.shut("auto_join")
        self.rotate("alice")
        for name in people:
            self.move("alice", name, "OUTSIDER", "MEMBER")

    @property
    def events(self) -> list[Event]:
        return self.world.events

    @property
    def public(self) -> GroupFold:
        """Return the public state that a reader without any key computes from the log."""
        return self.fold("")

    def fold(self, name: str) -> GroupFold:
        """Return the log as a person reads it, up to now."""
        keys = keys_of(name) if name else Keys(bytes(32))
        fold = self._folds.setdefault(name, GroupFold(keys, self.world.state.enclave))
        for event in self.events[fold.seq + 1 :]:
            fold.apply(event)
        return fold

    def last(self, name: str = "") -> Change:
        """Return the change by the last event, for a person who reads the log from the start."""
        fold, change = GroupFold(keys_of(name) if name else Keys(bytes(32)), self.world.state.enclave), None
        for event in self.events:
            change = fold.apply(event)
        assert change is not None
        return change

    @property
    def state(self) -> PublicGroupState:
        return self.public.epochs.state

    @property
    def members(self) -> frozenset[bytes]:
        return self.public.membership.members

    # Acting

    def propose(self, by: str, members: frozenset[bytes], state: PublicGroupState | None = None, **more: Any) -> Json:
        """Return an envelope for these members, as JSON."""
        chance = self.made.setdefault(by, Recorder()).chance()
        envelope, _, _ = propose(state or self.state, members, pubkey(by), chance, **more)
        found: Json = msgspec.json.decode(msgspec.json.encode(envelope))
        return found

    def send(self, by: str, type_: str, content: Any = "", **more: Any) -> Event:
        return self.world.send(by, type_, content, **more)

    def shut(self, gate: str, by: str = "alice") -> Event:
        return self.send(by, "Gate", {"alias": gate, "state": "closed"})

    def open(self, gate: str, by: str = "alice") -> Event:
        return self.send(by, "Gate", {"alias": gate, "state": "open"})

    def rotate(self, by: str, **more: Any) -> Event:
        return self.send(by, "rotate", {"epoch": self.propose(by, self.members, **more)})

    def move(self, by: str, who: str, from_: str, to: str, *, epoch: bool = True) -> Event:
        after = self.members | {pubkey(who)} if to == "MEMBER" else self.members - {pubkey(who)}
        more = {"epoch": self.propose(by, after)} if epoch and after != self.members else {}
        return self.send(by, "Move", move(who, from_, to, **more))

    def seal(self, by: str, text: str, n: int | None = None, sender_seq: int | None = None) -> str:
        fold = self.fold(by)
        n = fold.epochs.counted[-1].n if n is None else n
        number = (
            fold.messages.next_sender_seq(pubkey(by), n, fold.membership.gaps) if sender_seq is None else sender_seq
        )
        chain = fold.epochs.chain(n, pubkey(by))
        assert chain is not None, f"{by} has no secret of epoch {n}"
        return seal_message(chain, n, number, text, next(fresh(12)))

    def say(self, by: str, text: str, *tags: tuple[str, ...], type_: str = "message", **more: Any) -> Event:
        return self.send(by, type_, self.seal(by, text, **more), tags=tuple(tags))

    def delete(self, by: str, event: Event) -> Event:
        return self.send(by, "Delete", {"reason": "author"}, tags=(("r", event.id.hex()),))

    def edit(self, by: str, event: Event, text: str) -> Event:
        return self.say(by, text, ("r", event.id.hex()), type_="Update")

    def texts(self, name: str) -> list[str | None]:
        return [entry.text for entry in self.fold(name).messages.all()]
