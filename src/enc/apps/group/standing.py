"""Who is in and who may what: joining, leaving, moderating, and what people say of the group and of themselves."""

from collections.abc import Callable
from typing import Any, Literal

from enc.apps.group.manifest import AUTO_JOIN, GATES
from enc.apps.group.renewing import Renewing
from enc.apps.group.rights import (
    MAX_PROFILE,
    MAX_TOPIC,
    check_admin,
    check_json,
    check_owner,
    check_replaceable,
    check_state,
    check_text,
    check_trait,
)
from enc.apps.group.views import Person
from enc.client.writes import Id, as_bytes
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

    def leave(self, *, even_so: bool = False) -> Receipt:
        """Nothing can be read any more. An admin's client makes the next epoch without us.

        `even_so`: also if we are the owner or the only admin (else Irreplaceable), and without reading the log first.
        """
        with self._lock:
            if not even_so:
                self._pull()
                check_replaceable(self._fold)
            return self._gone("OUTSIDER")

    def _gone(self, to: str) -> Receipt:
        """Put ourselves out. What came since we last read is not ours to read any more."""
        content = {"target": self.me.hex(), "from": "MEMBER", "to": to}
        commit = self._enclave.prepare("Move", content)
        receipt = self._enclave.send(commit)
        self._left = receipt.seq
        if receipt.seq == self._fold.seq + 1:
            self._absorb(commit, receipt)
        return receipt

    # As an admin

    def decline(self, identity: Id) -> Receipt:
        """Refuse an applicant."""
        return self._moved(identity, "PENDING", "OUTSIDER", "declines applications")

    def remove(self, identity: Id) -> Receipt:
        """Put a member out, who can read nothing that is sent from here on."""
        return self._moved(identity, "MEMBER", "OUTSIDER", "removes members")

    def block(self, identity: Id, *, even_so: bool = False) -> Receipt:
        """A member, or somebody outside, who then can neither apply nor join; an applicant is declined first.

        `even_so`: also ourselves, if we are the owner or the only admin; else Irreplaceable.
        """
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            check_admin(self._fold.my_standing(), "blocks people")
            if who == self.me:
                if not even_so:
                    check_replaceable(self._fold)
                return self._gone("BLOCKED")
            state = self._fold.roll.person(who).state
            if state == "BLOCKED":
                raise MisuseError("they are blocked already")
            if state == "PENDING":
                self._move(who, "PENDING", "OUTSIDER")
                state = "OUTSIDER"
            return self._move(who, state, "BLOCKED")

    def unblock(self, identity: Id) -> Receipt:
        return self._moved(identity, "BLOCKED", "OUTSIDER", "unblocks people")

    def mute(self, identity: Id) -> Receipt:
        return self._say_of("Grant", identity, "muted", lambda me, _: check_admin(me, "mutes"))

    def unmute(self, identity: Id) -> Receipt:
        return self._say_of("Revoke", identity, "muted", lambda me, _: check_admin(me, "unmutes"))

    def make_admin(self, identity: Id) -> Receipt:
        """As the owner."""
        return self._say_of("Grant", identity, "admin", lambda me, _: check_owner(me, "makes admins"))

    def unmake_admin(self, identity: Id) -> Receipt:
        """Somebody, as the owner; or oneself."""
        return self._say_of("Revoke", identity, "admin", _check_unmaking)

    def transfer(self, identity: Id) -> Receipt:
        """Pass ownership on to a member. Who is an admin stays one, and the new owner is none by it."""
        return self._say_of("Transfer", identity, "owner", lambda me, _: check_owner(me, "passes the group on"))

    def set_gate(self, gate: Literal["applications", "auto_join"] | str, *, open: bool) -> Receipt:
        """`applications` (owner and admins) or `auto_join` (owner)."""
        if gate not in GATES:
            raise MisuseError(f"gate: expected one of {', '.join(GATES)}")
        with self._lock:
            self._ready()
            me = self._fold.my_standing()
            if gate == AUTO_JOIN:
                check_owner(me, "opens or closes that")
            elif not me.is_owner:
                check_admin(me, "opens or closes that")
            return self._write("Gate", {"alias": gate, "state": "open" if open else "closed"})

    def set_topic(self, topic: str | None) -> Receipt:
        """In the open: the node reads it. None: no topic."""
        if topic is not None:
            check_text(topic, MAX_TOPIC, "topic", least=0)
        with self._lock:
            self._ready()
            check_admin(self._fold.my_standing(), "sets the topic")
            return self._write("Shared", {"key": "topic", "value": topic})

    def set_profile(self, profile: Any) -> Receipt:
        """One's own, in the open, such as {"name": "Ann"}. None: none."""
        check_json(profile, MAX_PROFILE, "profile")
        with self._lock:
            self._ready()
            return self._write("Own", {"key": "profile", "value": profile})

    # How it is said

    def _moved(self, identity: Id, from_: str, to: str, does: str) -> Receipt:
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            if who == self.me and from_ == "MEMBER":
                raise MisuseError("who goes by themselves leaves")
            check_admin(self._fold.my_standing(), does)
            check_state(self._fold.roll.person(who), from_)
            return self._move(who, from_, to)

    def _say_of(self, type_: str, identity: Id, trait: str, check: Callable[[Person, Person], None]) -> Receipt:
        """`check`: whether we, the first, may say that of the second."""
        who = as_bytes(identity, "identity")
        with self._lock:
            self._ready()
            me, person = self._fold.my_standing(), self._fold.roll.person(who)
            check(me, person)
            check_trait(person, trait, has=type_ == "Revoke")
            return self._write(type_, {"target": who.hex(), "trait": trait})


def _check_unmaking(me: Person, who: Person) -> None:
    if me.identity != who.identity:
        check_owner(me, "unmakes admins")
