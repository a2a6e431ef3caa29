"""Invitations: an admin lets somebody in and tells them; they look into the group's own log before they believe it."""

import os
from collections.abc import Callable

from msgspec import UNSET

from enc.apps.group.standing import Standing
from enc.apps.group.views import Change, Invitation, Invited
from enc.client import Client, Distrust, Enclave, Item
from enc.client.writes import Id, as_bytes
from enc.core.encoding import unhex
from enc.core.errors import DecryptFailed, EncError, InvalidCommit, MisuseError
from enc.core.personal import Handoff, Notice, open_handoff, open_notice, seal_handoff, seal_notice
from enc.core.sealing import NONCE_SIZE
from enc.core.signing import PrivateKey
from enc.core.types import Receipt

KIND = "group_invite"
WINDOW_MS = 24 * 3600 * 1000
"""How long a notice may wait for the Move that it speaks of."""


class Inviting(Standing):
    def invite(
        self, identity: Id, *, greeting: str | None = None, personal: Enclave | None = None, notify: bool = True
    ) -> Invited:
        """Make somebody a member, with an epoch that includes them, and tell them by a notice in their personal
        enclave: `personal`, or the one that the client's registry knows."""
        return self._let_in(identity, "OUTSIDER", greeting, personal, notify)

    def approve(
        self, identity: Id, *, greeting: str | None = None, personal: Enclave | None = None, notify: bool = True
    ) -> Invited:
        """Let an applicant in; else as `invite`."""
        return self._let_in(identity, "PENDING", greeting, personal, notify)

    def _let_in(
        self, identity: Id, from_: str, greeting: str | None, personal: Enclave | None, notify: bool
    ) -> Invited:
        who = as_bytes(identity, "identity")
        with self._lock:
            self._ready()
            receipt = self._move(who, from_, "MEMBER")
            if not notify:
                return Invited(receipt=receipt, why="not asked for")
            try:
                return Invited(receipt=receipt, notice=self._notify(who, receipt, greeting, personal))
            except EncError as e:
                return Invited(receipt=receipt, why=e.message)

    def _notify(self, who: bytes, move: Receipt, greeting: str | None, personal: Enclave | None) -> Receipt:
        sub: bytes | None = None
        if personal is None:
            entry = self._client.lookup(who)
            if "personal" not in entry.enclaves:
                raise MisuseError("the registry knows no personal enclave of theirs")
            sub, personal = entry.sub_pub, self._client.enclave(entry.enclaves["personal"])
        key, to = self._client.identity.key, sub or who
        notice = Notice(
            kind=KIND,
            enclave_id=self.hex,
            enclave_kind="group",
            inviter=self._client.identity.hex,
            move_ref=move.id.hex(),
            greeting=UNSET if greeting is None else greeting,
            topic=self._fold.roll.topic if isinstance(self._fold.roll.topic, str) else UNSET,
        )
        return personal.commit("notice", seal_notice(key, to, self._with_handoff(notice, move, key, to), _nonce()))

    def _with_handoff(self, notice: Notice, move: Receipt, key: PrivateKey, to: bytes) -> Notice:
        """With the root secret of the epoch that the Move carries, if that counts. Else the log alone gives it."""
        made = next((made for made in self._fold.epochs.counted if made.event_id == move.id), None)
        epoch = None if made is None else self._fold.epochs.secret(made.n)
        if made is None or epoch is None:
            return notice
        handoff = seal_handoff(key, to, epoch.root_secret, _nonce())
        fields = {name: getattr(notice, name) for name in Notice.__struct_fields__}
        return Notice(**{**fields, "handoff": handoff, "epoch_n": made.n})

    def accept(self, invitation: Invitation) -> list[Change]:
        """Take the handoff of a confirmed invitation, if it has one, and sync."""
        if not invitation.is_confirmed or invitation.enclave != self.id:
            raise MisuseError(f"not a confirmed invitation to this group: {invitation.why}")
        with self._lock:
            if invitation.handoff is not None and invitation.move_ref is not None:
                self._fold.epochs.hand(invitation.move_ref, _open(self._client, invitation.handoff))
            return self.sync()

    def invited_by(self, inviter: bytes, epoch_n: int | None) -> str:
        """Why the log does not bear out that `inviter` made us a member; empty: it does."""
        with self._lock:
            moves = [
                change.seq
                for change in self._journal
                if change.type == "Move"
                and (change.author, change.target) == (inviter, self.me)
                and change.what.endswith("-> MEMBER")
            ]
            if not moves:
                return "no Move by the inviter made us a member"
            counted = self._fold.epochs.counted
            if epoch_n is not None and (epoch_n >= len(counted) or counted[epoch_n].seq < moves[0]):
                return "no epoch of that number came with it"
            return ""


def _nonce() -> bytes:
    return os.urandom(NONCE_SIZE)


def _open(client: Client, handoff: Handoff) -> bytes:
    mine = client.identity.key, client.identity.sub_key()
    key = next((key for key in mine if key.public.hex() == handoff.recipient), mine[0])
    return open_handoff(key, handoff)


def read_invitation(client: Client, item: Item) -> Invitation | None:
    """What a notice says, if it is a group invitation that its author sealed to us: unconfirmed. None: it is not."""
    notice = _open_notice(client, item)
    if notice is None or notice.kind != KIND or notice.inviter != item.author.hex():
        return None
    return Invitation(
        id=item.id,
        enclave=unhex(notice.enclave_id, 32, "enclave_id"),
        inviter=item.author,
        topic=None if notice.topic is UNSET else notice.topic,
        greeting=None if notice.greeting is UNSET else notice.greeting,
        epoch_n=None if notice.epoch_n is UNSET else notice.epoch_n,
        move_ref=None if notice.move_ref is UNSET else unhex(notice.move_ref, 32, "move_ref"),
        handoff=None if notice.handoff is UNSET else notice.handoff,
    )


def _open_notice(client: Client, item: Item) -> Notice | None:
    for senders in _senders(client, item.author):
        for key in (client.identity.key, client.identity.sub_key()):
            try:
                return open_notice(key, senders, item.content or "", item.event.tags)
            except (DecryptFailed, InvalidCommit):
                continue
    return None


def _senders(client: Client, author: bytes) -> list[tuple[bytes, ...]]:
    """The keys that may have sealed it: the author's; and, only if that is not it, the one that a registry knows."""
    found: list[tuple[bytes, ...]] = [(author,)]
    try:
        sub = client.lookup(author).sub_pub
    except EncError:
        sub = None
    return found if sub is None else [*found, (author, sub)]


def confirm(invitation: Invitation, group: Callable[[bytes], Inviting], came: int, now: int) -> Invitation:
    """Look into the group's own log. What is not there may still come; after a day it will not."""
    fields = {name: getattr(invitation, name) for name in Invitation.__struct_fields__}
    try:
        found = group(invitation.enclave)
        found.sync()
        why = found.invited_by(invitation.inviter, invitation.epoch_n)
    except Distrust:
        raise
    except EncError as e:
        why = e.message
    return Invitation(
        **{**fields, "is_confirmed": not why, "why": why, "is_lapsed": bool(why) and now - came > WINDOW_MS}
    )
