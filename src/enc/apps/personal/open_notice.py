"""Opens what others sealed to the owner: notices, and the secrets that they hand over."""

from msgspec import Struct

from enc.apps.personal.ledger import MAX_NOTICE, LedgerEntry
from enc.apps.personal.notice_verification import Unconfirmed
from enc.apps.personal.sealing_keys import own_keys, registered_sub_key
from enc.client import Client
from enc.core.errors import DecryptFailed, PeerError, WorldError
from enc.core.sealed_forms.personal import (
    ForeignSender,
    Handoff,
    OpenedNotice,
    notice_sender,
    open_handoff,
    open_notice,
)


class UnprovedNotice(Struct, frozen=True):
    """An opened notice. `doubt`: why it is uncertain that its author sealed it; empty if it is
    certain.
    """

    notice: OpenedNotice
    doubt: str


def opened_notice(client: Client, entry: LedgerEntry) -> UnprovedNotice:
    """Open a notice sealed to either of the owner's keys, by whatever key it names as its sender's.

    Raises DecryptFailed if no key opens it or it is not a notice, Unconfirmed if its content is
    missing.
    """
    if entry.content is None:
        if entry.withheld is not None:
            raise Unconfirmed(f"content: the node withholds it ({entry.withheld.reason})")
        raise Unconfirmed(f"content: erased, or longer than {MAX_NOTICE} characters")
    sender = notice_sender(entry.content)
    notice = _opened(client, entry, entry.content, (sender,))
    return UnprovedNotice(notice, "" if sender == entry.author else _doubt(client, entry.author, sender))


def _doubt(client: Client, author: bytes, sender: bytes) -> str:
    try:
        if sender in _senders(client, author):
            return ""
    except (PeerError, WorldError) as e:
        return e.message
    return "sender_pub: neither the author's identity nor a sub-key that the author has registered in this registry"


def opened_handoff(client: Client, author: bytes, handoff: Handoff) -> bytes:
    """Open the secret that a notice's author hands over; raise a subclass of DecryptFailed."""
    senders = _senders(client, author) if client.has_registry else (author,)
    if handoff.ecdh_pub not in {key.hex() for key in senders}:
        raise ForeignSender("handoff: not sealed by the notice's author")
    keys = own_keys(client)
    return open_handoff(next((key for key in keys if key.public.hex() == handoff.recipient), keys[1]), handoff)


def _senders(client: Client, author: bytes) -> tuple[bytes, ...]:
    if not client.has_registry:
        raise Unconfirmed("sender_pub: not the author's identity, and no registry is set to check a sub-key")
    sub_key = registered_sub_key(client, author, fresh=True)
    return (author,) if sub_key is None else (author, sub_key)


def _opened(client: Client, entry: LedgerEntry, content: str, senders: tuple[bytes, ...]) -> OpenedNotice:
    sub_key, identity = own_keys(client)
    try:
        return open_notice(sub_key, senders, content, entry.tags)
    except DecryptFailed as e:
        if type(e) is not DecryptFailed:  # malformed, so no other key helps
            raise
    return open_notice(identity, senders, content, entry.tags)
