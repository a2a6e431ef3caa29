"""Events of a version 2 group: States, traits, gates and slots."""

from typing import Any, ClassVar

from enc.bench.plan import Plan
from enc.bench.recent_messages import RecentMessages
from enc.bench.script import Act, Script
from enc.core.primitives.encoding import compact_json


class GroupScript(Script):
    changes: ClassVar[tuple[tuple[str, float], ...]] = (
        ("admit", 1.2),
        ("apply", 0.5),
        ("leave", 0.5),
        ("remove", 0.4),
        ("unblock", 0.3),
        ("admit_two", 0.2),
        ("mute", 0.5),
        ("unmute", 0.5),
        ("promote", 0.3),
        ("demote", 0.2),
        ("turn", 0.15),
        ("topic", 0.8),
        ("profile", 2.0),
        ("notice", 0.5),
    )

    def __init__(self, plan: Plan, recent: RecentMessages) -> None:
        super().__init__(plan, recent)
        self.pending: list[int] = []
        self.blocked: list[int] = []
        self.muted: list[int] = []
        self._is_open = True

    # Joining and leaving

    def admit(self) -> Act | None:
        """Admit an applicant, or else an outsider."""
        from_ = "PENDING" if self.pending else "OUTSIDER"
        who = self._drawn(self.pending or self.outside)
        if who is None:
            return None
        admin = self._admin()
        self.members.append(who)
        self._update_speakers()
        return self._move(admin, who, from_, "MEMBER")

    def apply(self) -> Act | None:
        who = self._drawn(self.outside) if self._is_open else None
        if who is None:
            return None
        self.pending.append(who)
        return self._move(who, who, "OUTSIDER", "PENDING")

    def leave(self) -> Act | None:
        who = self._drawn(self.members) if len(self.members) > 2 else None
        if who is None:
            return None
        self.outside.append(who)
        self._update_speakers()
        return self._move(who, who, "MEMBER", "OUTSIDER")

    def remove(self) -> Act | None:
        """Remove or block a member, by an admin."""
        who = self._drawn(self.members) if len(self.members) > 2 else None
        if who is None:
            return None
        to, where = ("BLOCKED", self.blocked) if self.rng.random() < 0.5 else ("OUTSIDER", self.outside)
        where.append(who)
        self._update_speakers()
        return self._move(self._admin(), who, "MEMBER", to)

    def unblock(self) -> Act | None:
        who = self._drawn(self.blocked)
        if who is None:
            return None
        self.outside.append(who)
        return self._move(self._admin(), who, "BLOCKED", "OUTSIDER")

    def admit_two(self) -> Act | None:
        if len(self.outside) < 2:
            return None
        admin = self._admin()
        two = [self.outside.pop(), self.outside.pop()]
        self.members += two
        self._update_speakers()
        moves = [{"type": "Move", **self._moved(who, "OUTSIDER", "MEMBER")} for who in two]
        return self._object(admin, "AC_Bundle", {"operations": moves})

    # Traits

    def mute(self) -> Act | None:
        who = self._drawn(self.members) if len(self.members) > 2 else None
        if who is None:
            return None
        self.muted.append(who)
        self._update_speakers()
        return self._trait("Grant", self._admin(), who, "muted")

    def unmute(self) -> Act | None:
        who = self._drawn(self.muted)
        if who is None:
            return None
        self.members.append(who)
        self._update_speakers()
        return self._trait("Revoke", self._admin(), who, "muted")

    def promote(self) -> Act | None:
        who = self._drawn(self.members) if len(self.members) > 2 and len(self.admins) < 4 else None
        if who is None:
            return None
        self.admins.append(who)
        return self._trait("Grant", self.owner, who, "admin")

    def demote(self) -> Act | None:
        who = self._drawn(self.admins)
        if who is None:
            return None
        self.members.append(who)
        return self._trait("Revoke", self.owner, who, "admin")

    # Gates, slots, notices

    def turn(self) -> Act:
        self._is_open = not self._is_open
        state = "open" if self._is_open else "closed"
        return self._object(self._admin(), "Gate", {"alias": "applications", "state": state})

    def topic(self) -> Act:
        value = self._text() if self.rng.random() < 0.9 else None
        return self._object(self._admin(), "Shared", {"key": "topic", "value": value})

    def profile(self) -> Act:
        value = {"name": self.rng.choice(self.speakers), "about": self._text()} if self.rng.random() < 0.9 else None
        return self._object(self.rng.choice(self.speakers), "Own", {"key": "profile", "value": value})

    def notice(self) -> Act:
        return self._act(self._admin(), "notice", self._text())

    def _admin(self) -> int:
        return self.rng.choice([self.owner, *self.admins])

    def _moved(self, who: int, from_: str, to: str) -> dict[str, Any]:
        return {"target": self._public(who), "from": from_, "to": to}

    def _move(self, by: int, who: int, from_: str, to: str) -> Act:
        return self._object(by, "Move", self._moved(who, from_, to))

    def _trait(self, type_: str, by: int, who: int, trait: str) -> Act:
        return self._object(by, type_, {"target": self._public(who), "trait": trait})

    def _object(self, by: int, type_: str, content: dict[str, Any]) -> Act:
        return self._act(by, type_, compact_json(content))
