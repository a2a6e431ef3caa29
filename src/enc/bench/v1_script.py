"""Events of a version 1 enclave: roles that are granted and revoked."""

from typing import Any, ClassVar

from enc.bench.script import Act, Script
from enc.core.primitives.encoding import compact_json
from enc.core.rules.v1.content import wire_bitmask
from enc.core.rules.v1.manifest_parts import FIRST_CUSTOM

_ADMIN, _MEMBER = 1 << FIRST_CUSTOM, 1 << FIRST_CUSTOM + 1


class V1Script(Script):
    changes: ClassVar[tuple[tuple[str, float], ...]] = (
        ("admit", 1.5),
        ("leave", 0.5),
        ("remove", 0.5),
        ("promote", 0.3),
        ("demote", 0.3),
        ("notice", 0.5),
    )

    def admit(self) -> Act | None:
        who = self._drawn(self.outside)
        if who is None:
            return None
        admin = self.rng.choice([self.owner, *self.admins])
        self.members.append(who)
        self._update_speakers()
        return self._role("Grant", admin, who, "Member")

    def leave(self) -> Act | None:
        who = self._departing()
        return None if who is None else self._object(who, "Revoke_Self", {"role": "Member"})

    def remove(self) -> Act | None:
        who = self._departing()
        return None if who is None else self._role("Revoke", self.rng.choice([self.owner, *self.admins]), who, "Member")

    def promote(self) -> Act | None:
        """Promote a member by a Move, which replaces all roles at once."""
        who = self._drawn(self.members) if len(self.members) > 2 and len(self.admins) < 4 else None
        if who is None:
            return None
        self.admins.append(who)
        roles = {"from": wire_bitmask(_MEMBER), "to": wire_bitmask(_ADMIN | _MEMBER)}
        return self._object(self.owner, "Move", {"identity": self._public(who), **roles})

    def demote(self) -> Act | None:
        who = self._drawn(self.admins)
        if who is None:
            return None
        self.members.append(who)
        return self._role("Revoke", self.owner, who, "Admin")

    def notice(self) -> Act:
        return self._act(self.rng.choice([self.owner, *self.admins]), "notice", self._text())

    def _departing(self) -> int | None:
        who = self._drawn(self.members) if len(self.members) > 2 else None
        if who is not None:
            self.outside.append(who)
            self._update_speakers()
        return who

    def _role(self, type_: str, by: int, who: int, role: str) -> Act:
        return self._object(by, type_, {"identity": self._public(who), "role": role})

    def _object(self, by: int, type_: str, content: dict[str, Any]) -> Act:
        return self._act(by, type_, compact_json(content))
