"""Inviting: an admin admits people and notifies them; they verify it in the group's own log."""

from contextlib import suppress

from enc.apps.group.member_actions import MemberActions
from enc.apps.group.rights import check_admin, check_state, check_text
from enc.apps.group.views import Change, Invitation, Invited
from enc.apps.people.address_book import Place
from enc.apps.people.lookup import Person
from enc.apps.personal.notice_verification import Refuted, Unconfirmed
from enc.apps.personal.open_notice import opened_handoff
from enc.apps.personal.send_notice import make_notice, notify
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import EncError, MisuseError
from enc.core.primitives.types import Receipt

KIND = "group_invite"


MAX_GREETING = 16 << 10


class InviteActions(MemberActions):
    def invite(
        self, identity: Id, *, greeting: str | None = None, place: Place | None = None, notify: bool = True
    ) -> Invited:
        """Make a person a member, with an epoch that includes them, and notify them.

        The notice is written to their personal store, at `place` or where the registry has it.
        """
        return self._admit(identity, "OUTSIDER", greeting, place, notify)

    def approve(
        self, identity: Id, *, greeting: str | None = None, place: Place | None = None, notify: bool = True
    ) -> Invited:
        """Admit an applicant; otherwise like `invite`."""
        return self._admit(identity, "PENDING", greeting, place, notify)

    def _admit(self, identity: Id, from_: str, greeting: str | None, place: Place | None, notify: bool) -> Invited:
        who = as_bytes(identity, "identity")
        if greeting is not None:
            check_text(greeting, MAX_GREETING, "greeting", least=0)
        with self._lock:
            self._ready()
            check_admin(self._fold.myself(), "may admit people")
            check_state(self._fold.membership.person(who), from_)
            receipt = self._move(who, from_, "MEMBER")
            if not notify:
                return Invited(receipt=receipt, why="no notice was requested")
            try:
                return Invited(receipt=receipt, notice=self._notify(who, receipt, greeting, place))
            except EncError as e:
                return Invited(receipt=receipt, why=e.message)

    def _notify(self, who: bytes, move: Receipt, greeting: str | None, place: Place | None) -> Receipt:
        topic = self._fold.membership.topic
        fields = {
            "enclave_id": self.id,
            "enclave_kind": "group",
            "move_ref": move.id,
            "greeting": greeting,
            "topic": topic if isinstance(topic, str) else None,
        }
        epoch_n, secret = self._handoff(move)
        notice = make_notice(KIND, {**fields, "epoch_n": epoch_n}, self.me)
        return notify(self._client, Person(who, None, "key"), notice, secret=secret, place=place)

    def _handoff(self, move: Receipt) -> tuple[int | None, bytes | None]:
        """Return number and root secret of the epoch that the Move carries, if it counts.

        Otherwise the log alone gives the secret.
        """
        made = next((made for made in self._fold.epochs.counted if made.event_id == move.id), None)
        epoch = None if made is None else self._fold.epochs.secret(made.n)
        return (None, None) if made is None or epoch is None else (made.n, epoch.root_secret)

    def accept(self, invitation: Invitation) -> list[Change]:
        """Use the handoff of a confirmed invitation, if it has one that opens, and sync."""
        if not invitation.is_confirmed or invitation.enclave != self.id:
            raise MisuseError(f"not a confirmed invitation to this group: {invitation.why}")
        with self._lock:
            if invitation.handoff is not None and invitation.move_ref is not None:
                with suppress(EncError):  # the log gives the same
                    secret = opened_handoff(self._client, invitation.inviter, invitation.handoff)
                    self._fold.epochs.add_handoff(invitation.move_ref, secret)
            return self.sync()

    def check_invited(self, inviter: bytes, epoch_n: int | None, move_ref: bytes | None) -> None:
        """Raise Unconfirmed or Refuted unless the log, as far as it was read, shows that `inviter`
        made us a member.
        """
        with self._lock:
            moves = {change.id: change.seq for change in self._journal if self._admits_us(change, inviter)}
            if move_ref is not None and move_ref not in moves and any(each.id == move_ref for each in self._journal):
                raise Refuted("move_ref: not a Move by which the inviter made us a member")
            if not moves or (move_ref is not None and move_ref not in moves):
                raise Unconfirmed("no Move by the inviter made us a member")
            counted = self._fold.epochs.counted
            if epoch_n is not None and (epoch_n >= len(counted) or counted[epoch_n].seq < min(moves.values())):
                raise Unconfirmed("epoch_n: the Move brought no epoch with this number")

    def _admits_us(self, change: Change, inviter: bytes) -> bool:
        is_ours = (change.author, change.target) == (inviter, self.me)
        return is_ours and change.type == "Move" and change.what.endswith("-> MEMBER")
