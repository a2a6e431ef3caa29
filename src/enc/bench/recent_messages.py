"""The latest messages, which later events may answer, change or delete; bounded for any log."""

from random import Random

from msgspec import Struct

from enc.core.primitives.types import Target

CAPACITY = 512


class RecentMessage(Struct):
    id: bytes
    author: int
    public: bytes
    type: str
    place: int
    latest: int | None = None
    """The place of its latest Update."""


class RecentMessages:
    """At most CAPACITY messages. No later event refers to one that was displaced."""

    def __init__(self) -> None:
        self._all: list[RecentMessage] = []
        self._by_id: dict[bytes, RecentMessage] = {}
        self._next = 0

    def add(self, message: RecentMessage) -> None:
        self._by_id[message.id] = message
        if len(self._all) < CAPACITY:
            self._all.append(message)
            return
        self._next = (self._next + 1) % CAPACITY
        del self._by_id[self._all[self._next].id]
        self._all[self._next] = message

    def remove(self, message: RecentMessage) -> None:
        del self._by_id[message.id]
        last = self._all.pop()
        if last is not message:
            self._all[self._all.index(message)] = last

    def pick(self, rng: Random) -> RecentMessage | None:
        return self._all[int(rng.random() * len(self._all))] if self._all else None

    def target(self, event_id: bytes) -> Target | None:
        """Return what the rules need to know of the target of an Update or Delete."""
        found = self._by_id.get(event_id)
        return None if found is None else Target(found.type, found.public)
