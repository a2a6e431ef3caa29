"""Invitations: notices of the kind `group_invite`, each verified against the replayed group log.

Pass `CONFIRMERS` to a `Personal` for this. Without it, `Personal` only asks for proofs of the Move
and of the identity's own State.
"""

from collections.abc import Mapping

from msgspec import UNSET

from enc.apps.group.errors import NotAGroup
from enc.apps.group.group import Group
from enc.apps.group.invite_actions import KIND
from enc.apps.group.views import Invitation
from enc.apps.people.address_book import AddressBook
from enc.apps.personal import Personal, Question, Received, Refuted, Unconfirmed
from enc.apps.personal.notice_verification import Confirmer
from enc.client import Client
from enc.client.enclave.writes import Id
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import unhex
from enc.core.sealed_forms.personal import OpenedNotice


def confirm_by_log(asked: Question) -> None:
    """Confirm that the group's log has the inviter's Move of us to MEMBER (protocol.md 26.9).

    The author of the notice must be the inviter. Raise Refuted or Unconfirmed otherwise.
    """
    notice = asked.notice
    if asked.author.hex() != notice.inviter:
        raise Refuted("inviter: not the author of the notice")
    group = Group(asked.client, asked.source, heal=False)
    try:
        group.sync()
    except NotAGroup as e:
        raise Refuted(e.message) from None
    except MisuseError as e:  # we may not read it yet
        raise Unconfirmed(e.message) from None
    group.check_invited(asked.author, _number(notice), _move(notice))
    claimed = notice.manifest_hash
    if claimed is not UNSET and asked.source.manifest().content_hash.hex() != claimed:
        raise Refuted("manifest_hash: not that of the group's Manifest")


CONFIRMERS: Mapping[str, Confirmer] = {KIND: confirm_by_log}


def invitations(client: Client, personal: Id, *, book: AddressBook | None = None) -> list[Invitation]:
    """Return the group invitations in a personal store, oldest first. Nothing is deleted."""
    return invitations_in(Personal(client, personal, book=book, confirmers=CONFIRMERS))


def invitations_in(personal: Personal) -> list[Invitation]:
    """Return the group invitations in a store that has the `CONFIRMERS`."""
    found = (_invitation(received) for received in personal.notices(discard=False))
    return [each for each in found if each is not None]


def _invitation(received: Received) -> Invitation | None:
    claims = received.claims
    if claims is None or claims.kind != KIND:
        return None
    return Invitation(
        id=received.id,
        enclave=unhex(claims.enclave_id, 32, "enclave_id"),
        inviter=received.author,
        topic=None if claims.topic is UNSET else claims.topic,
        greeting=None if claims.greeting is UNSET else claims.greeting,
        epoch_n=_number(claims),
        move_ref=_move(claims),
        handoff=None if claims.handoff is UNSET else claims.handoff,
        is_confirmed=received.is_actionable,
        is_refuted=received.state == "refuted",
        why=received.reason,
    )


def _number(notice: OpenedNotice) -> int | None:
    return None if notice.epoch_n is UNSET else notice.epoch_n


def _move(notice: OpenedNotice) -> bytes | None:
    return None if notice.move_ref is UNSET else unhex(notice.move_ref, 32, "move_ref")
