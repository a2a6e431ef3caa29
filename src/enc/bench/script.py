"""Chooses the events of an enclave from the plan's seed; most are messages.

A script only chooses what the rules allow; the kernel judges it all the same.
"""

from collections.abc import Callable
from typing import ClassVar

from msgspec import Struct

from enc.bench.people import key_of
from enc.bench.plan import Plan
from enc.bench.recent_messages import RecentMessage, RecentMessages
from enc.bench.words import REACTIONS, WORDS
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import Alg, PrivateKey
from enc.core.primitives.types import Tags

MAX_CROWD = 40
HOUR_MS = 3_600_000


class Act(Struct, frozen=True):
    """An event to be signed."""

    author: PrivateKey
    type: str
    content: str
    tags: Tags = ()
    alg: Alg = "schnorr"
    about: RecentMessage | None = None
    """The message that is changed or deleted."""
    by: int = -1
    """The author's number, only for messages that later events may refer to."""
    gone_at: int | None = None
    """Its auto-delete time."""


class Script:
    """The common part of both versions. Subclasses add the changes of members and rights."""

    changes: ClassVar[tuple[tuple[str, float], ...]] = ()
    """The version's own acts: names of methods, with their weights."""

    def __init__(self, plan: Plan, recent: RecentMessages) -> None:
        self.plan, self.recent, self.rng = plan, recent, plan.random("script")
        count = min(MAX_CROWD, max(4, plan.events // 12), plan.population)
        self.owner, *outside = self.rng.sample(range(plan.population), count)
        self.outside: list[int] = outside
        self.members: list[int] = []
        """Members without further rights."""
        self.admins: list[int] = []
        self.speakers = [self.owner]
        self._newcomers = min(len(outside) // 2, plan.events // 8)
        self._paused, self._place, self._now = False, 0, 0
        common = (("message", 78.0), ("reaction", 6.0), ("update", 5.0), ("delete", 2.0), ("pause", 0.15))
        acts = common + self.changes
        self._acts: list[Callable[[], Act | None]] = [getattr(self, name) for name, _ in acts]
        self._weights = [sum(weight for _, weight in acts[: i + 1]) for i in range(len(acts))]

    def act(self, place: int, now: int, *, plain: bool) -> Act:
        """Choose the event at this place. A plain one is a message that no later event refers
        to.
        """
        self._place, self._now = place, now
        if plain:
            return self._act(self.rng.choice(self.speakers), "message", self._text())
        if self._paused:
            self._paused = False
            return self._act(self.owner, "Resume", "")
        if place <= self._newcomers:
            return self.admit() or self.message()
        return self.rng.choices(self._acts, cum_weights=self._weights)[0]() or self.message()

    def creation(self, content: str) -> Act:
        return self._act(self.owner, "Manifest", content)

    def migrate(self, to: bytes, prev_seq: int, ct_root: bytes) -> Act:
        content = {"new_sequencer": to.hex(), "prev_seq": prev_seq, "ct_root": ct_root.hex()}
        return self._act(self.owner, "Migrate", compact_json(content))

    # Messages

    def message(self) -> Act:
        rng, author = self.rng, self.rng.choice(self.speakers)
        gone_at, drawn = None, rng.random()
        tags: Tags = ()
        if drawn < 0.15 and (answered := self.recent.pick(rng)):
            tags = (("r", answered.id.hex(), "reply"),)
        elif drawn > 0.93:
            tags = (("topic", rng.choice(WORDS)),)
        elif drawn > 0.92:
            gone_at = self._now + HOUR_MS // 4 + int(rng.random() ** 3 * 48 * HOUR_MS)
            tags = (("auto-delete", str(gone_at)),)
        by = author if gone_at is None else -1
        return self._act(author, "message", self._text(), tags, by=by, gone_at=gone_at)

    def reaction(self) -> Act | None:
        about = self.recent.pick(self.rng)
        if about is None:
            return None
        return self._act(
            self.rng.choice(self.speakers), "reaction", self.rng.choice(REACTIONS), (("r", about.id.hex()),)
        )

    def update(self) -> Act | None:
        about = self.recent.pick(self.rng)
        if about is None or about.author not in self.speakers:
            return None
        return self._act(about.author, "Update", self._text(), (("r", about.id.hex()),), about=about)

    def delete(self) -> Act | None:
        about = self.recent.pick(self.rng)
        if about is None:
            return None
        is_own = about.author in self.speakers and self.rng.random() < 0.7
        by, reason = (about.author, "author") if is_own else (self.rng.choice([self.owner, *self.admins]), "moderator")
        content = compact_json({"reason": reason})
        return self._act(by, "Delete", content, (("r", about.id.hex()),), about=about)

    def pause(self) -> Act | None:
        if self._place >= self.plan.quiet_from or self._place + 1 in self.plan.moves:
            return None
        self._paused = True
        return self._act(self.owner, "Pause", "")

    # For subclasses

    def admit(self) -> Act | None:
        raise NotImplementedError

    def overstep(self) -> Act:
        """Return an event its author has no right to: a stranger's message or a member's notice."""
        if self.members and self.rng.random() < 0.5:
            return self._act(self.rng.choice(self.members), "notice", self._text())
        stranger = key_of(self.plan.seed, "stranger", self.plan.number)
        return Act(stranger, "message", self._text())

    def _drawn(self, people: list[int]) -> int | None:
        """Remove and return a random person."""
        return people.pop(int(self.rng.random() * len(people))) if people else None

    def _act(
        self,
        who: int,
        type_: str,
        content: str,
        tags: Tags = (),
        *,
        about: RecentMessage | None = None,
        by: int = -1,
        gone_at: int | None = None,
    ) -> Act:
        author = key_of(self.plan.seed, "person", who)
        alg: Alg = "ecdsa" if who % 16 == 5 and self.plan.enc_v > 1 else "schnorr"
        return Act(author, type_, content, tags, alg, about, by, gone_at)

    def _public(self, who: int) -> str:
        return key_of(self.plan.seed, "person", who).public.hex()

    def _text(self) -> str:
        return " ".join(self.rng.choices(WORDS, k=3 + int(self.rng.random() * 20)))

    def _update_speakers(self) -> None:
        """Update who may write after a change of members or rights."""
        self.speakers = [self.owner, *self.admins, *self.members]
