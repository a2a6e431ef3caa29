"""Who is in and who may what: joining, leaving, moderating, and what people say of the group and of themselves."""

from typing import Any, Literal

from enc.apps.group.errors import NotAMember
from enc.apps.group.renewing import Renewing
from enc.client.writes import Id, as_bytes, as_hex
from enc.core.errors import MisuseError
from enc.core.types import Receipt


class Standing(Renewing):
    # From outside: nothing can be read yet

    def apply(self) -> Receipt:
        """Ask to be let in, while `applications` is open."""
        return self._enclave.move(self.me, "OUTSIDER", "PENDING")

    def withdraw(self) -> Receipt:
        """Take one's application back."""
        return self._enclave.move(self.me, "PENDING", "OUTSIDER")

    def join(self) -> Receipt:
        """Let oneself in, while `auto_join` is open. Nothing can be opened or sealed before an admin's next epoch."""
        return self._enclave.move(self.me, "OUTSIDER", "MEMBER")

    def leave(self) -> Receipt:
        """Nothing can be read any more. An admin's client makes the next epoch without us."""
        return self._enclave.move(self.me, "MEMBER", "OUTSIDER")

    # As an admin

    def decline(self, identity: Id) -> Receipt:
        """Refuse an applicant."""
        return self._moved(identity, "PENDING", "OUTSIDER")

    def remove(self, identity: Id) -> Receipt:
        """Put a member out, who can read nothing that is sent from here on."""
        return self._moved(identity, "MEMBER", "OUTSIDER")

    def block(self, identity: Id) -> Receipt:
        """A member, or somebody outside, who then can neither apply nor join; an applicant is declined first."""
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            state = self._fold.roll.person(who).state
            if state == "BLOCKED":
                raise MisuseError("they are blocked already")
            if state == "PENDING":
                self._move(who, "PENDING", "OUTSIDER")
                state = "OUTSIDER"
            return self._move(who, state, "BLOCKED")

    def unblock(self, identity: Id) -> Receipt:
        return self._moved(identity, "BLOCKED", "OUTSIDER")

    def mute(self, identity: Id) -> Receipt:
        return self._say_of("Grant", identity, "muted")

    def unmute(self, identity: Id) -> Receipt:
        return self._say_of("Revoke", identity, "muted")

    def make_admin(self, identity: Id) -> Receipt:
        """As the owner."""
        return self._say_of("Grant", identity, "admin")

    def unmake_admin(self, identity: Id) -> Receipt:
        """Somebody, as the owner; or oneself."""
        return self._say_of("Revoke", identity, "admin")

    def transfer(self, identity: Id) -> Receipt:
        """Pass ownership on to a member. Who was owner stays an admin, unless they were none."""
        return self._say_of("Transfer", identity, "owner")

    def set_gate(self, gate: Literal["applications", "auto_join"] | str, *, open: bool) -> Receipt:
        """`applications` (owner and admins) or `auto_join` (owner)."""
        return self._written("Gate", {"alias": gate, "state": "open" if open else "closed"})

    def set_topic(self, topic: str | None) -> Receipt:
        """In the open: the node reads it. None: no topic."""
        return self._written("Shared", {"key": "topic", "value": topic})

    def set_profile(self, profile: Any) -> Receipt:
        """One's own, in the open, such as {"name": "Ann"}. None: none."""
        return self._written("Own", {"key": "profile", "value": profile})

    # How it is said

    def _moved(self, identity: Id, from_: str, to: str) -> Receipt:
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            if who == self.me and from_ == "MEMBER":
                raise NotAMember("who goes by themselves leaves")
            return self._move(who, from_, to)

    def _say_of(self, type_: str, identity: Id, trait: str) -> Receipt:
        return self._written(type_, {"target": as_hex(identity, "identity"), "trait": trait})

    def _written(self, type_: str, content: dict[str, Any]) -> Receipt:
        with self._lock:
            self._ready()
            return self._write(type_, content)
