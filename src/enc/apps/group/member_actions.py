"""Membership actions: joining, leaving, moderating, the topic and profiles."""

from collections.abc import Callable
from typing import Any, Literal

from enc.apps.group.epoch_maker import EpochMaker
from enc.apps.group.manifest import AUTO_JOIN, GATES
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
from enc.apps.group.views import GroupMember
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import MisuseError
from enc.core.primitives.types import Receipt


class MemberActions(EpochMaker):
    # From outside, before anything can be read

    def apply(self) -> Receipt:
        """Apply for membership, while the gate `applications` is open."""
        return self._enclave.move(self.me, "OUTSIDER", "PENDING")

    def withdraw(self) -> Receipt:
        """Withdraw your application."""
        return self._enclave.move(self.me, "PENDING", "OUTSIDER")

    def join(self) -> Receipt:
        """Join, while the gate `auto_join` is open. Messages can be opened and sealed only after an
        admin's next epoch."""
        return self._enclave.move(self.me, "OUTSIDER", "MEMBER")

    def leave(self, *, even_so: bool = False) -> Receipt:
        """Leave the group: it can no longer be read. An admin's client makes the next epoch
        without us.

        `even_so`: also if we are the owner or the only admin (otherwise Irreplaceable), and without
        reading the log first.
        """
        with self._lock:
            if not even_so:
                self._pull()
                check_replaceable(self._fold)
            return self._leave("OUTSIDER")

    def _leave(self, to: str) -> Receipt:
        """Move ourselves out. We may not read what came since we last read."""
        content = {"target": self.me.hex(), "from": "MEMBER", "to": to}
        commit = self._enclave.prepare("Move", content)
        receipt = self._enclave.send(commit)
        self._left = receipt.seq
        if receipt.seq == self._fold.seq + 1:
            self._absorb(commit, receipt)
        return receipt

    # As an admin

    def decline(self, identity: Id) -> Receipt:
        """Decline an application."""
        return self._moved(identity, "PENDING", "OUTSIDER", "may decline applications")

    def remove(self, identity: Id) -> Receipt:
        """Remove a member, who cannot read what is sent from now on."""
        return self._moved(identity, "MEMBER", "OUTSIDER", "may remove members")

    def block(self, identity: Id, *, even_so: bool = False) -> Receipt:
        """Block a member or an outsider: they can neither apply nor join. An applicant is declined
        first.

        `even_so`: also ourselves, if we are the owner or the only admin; otherwise Irreplaceable.
        """
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            check_admin(self._fold.myself(), "may block people")
            if who == self.me:
                if not even_so:
                    check_replaceable(self._fold)
                return self._leave("BLOCKED")
            state = self._fold.membership.person(who).state
            if state == "BLOCKED":
                raise MisuseError("they are already blocked")
            if state == "PENDING":
                self._move(who, "PENDING", "OUTSIDER")
                state = "OUTSIDER"
            return self._move(who, state, "BLOCKED")

    def unblock(self, identity: Id) -> Receipt:
        return self._moved(identity, "BLOCKED", "OUTSIDER", "may unblock people")

    def mute(self, identity: Id) -> Receipt:
        return self._write_trait("Grant", identity, "muted", lambda me, _: check_admin(me, "may mute people"))

    def unmute(self, identity: Id) -> Receipt:
        return self._write_trait("Revoke", identity, "muted", lambda me, _: check_admin(me, "may unmute people"))

    def make_admin(self, identity: Id) -> Receipt:
        """Make a member an admin, as the owner."""
        return self._write_trait("Grant", identity, "admin", lambda me, _: check_owner(me, "may make admins"))

    def unmake_admin(self, identity: Id) -> Receipt:
        """Take the admin trait from a member, as the owner, or from yourself."""
        return self._write_trait("Revoke", identity, "admin", _check_unmaking)

    def transfer(self, identity: Id) -> Receipt:
        """Transfer ownership to a member. Admins stay admins; the new owner does not become one by
        it.
        """
        return self._write_trait("Transfer", identity, "owner", lambda me, _: check_owner(me, "may transfer the group"))

    def set_gate(self, gate: Literal["applications", "auto_join"] | str, *, open: bool) -> Receipt:
        """Open or close `applications` (owner and admins) or `auto_join` (owner)."""
        if gate not in GATES:
            raise MisuseError(f"gate: expected one of {', '.join(GATES)}")
        with self._lock:
            self._ready()
            me = self._fold.myself()
            if gate == AUTO_JOIN:
                check_owner(me, "may open or close this gate")
            elif not me.is_owner:
                check_admin(me, "may open or close this gate")
            return self._write("Gate", {"alias": gate, "state": "open" if open else "closed"})

    def set_topic(self, topic: str | None) -> Receipt:
        """Set the topic, which the node can read. None: no topic."""
        if topic is not None:
            check_text(topic, MAX_TOPIC, "topic", least=0)
        with self._lock:
            self._ready()
            check_admin(self._fold.myself(), "may set the topic")
            return self._write("Shared", {"key": "topic", "value": topic})

    def set_profile(self, profile: Any) -> Receipt:
        """Set your profile, which the node can read, such as {"name": "Ann"}. None: no profile."""
        check_json(profile, MAX_PROFILE, "profile")
        with self._lock:
            self._ready()
            return self._write("Own", {"key": "profile", "value": profile})

    # Writing

    def _moved(self, identity: Id, from_: str, to: str, action: str) -> Receipt:
        with self._lock:
            self._ready()
            who = as_bytes(identity, "identity")
            if who == self.me and from_ == "MEMBER":
                raise MisuseError("you cannot remove yourself: leave instead")
            check_admin(self._fold.myself(), action)
            check_state(self._fold.membership.person(who), from_)
            return self._move(who, from_, to)

    def _write_trait(
        self, type_: str, identity: Id, trait: str, check: Callable[[GroupMember, GroupMember], None]
    ) -> Receipt:
        """Write a change of a trait. `check`: raises unless the first person may change the
        second.
        """
        who = as_bytes(identity, "identity")
        with self._lock:
            self._ready()
            me, person = self._fold.myself(), self._fold.membership.person(who)
            check(me, person)
            check_trait(person, trait, has=type_ == "Revoke")
            return self._write(type_, {"target": who.hex(), "trait": trait})


def _check_unmaking(me: GroupMember, who: GroupMember) -> None:
    if me.identity != who.identity:
        check_owner(me, "may unmake admins")
