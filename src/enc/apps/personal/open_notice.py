"""Opens what others sealed to the owner: notices, and the secrets that they hand over."""

from enc.apps.personal.ledger import LedgerEntry
from enc.apps.personal.notice_verification import Unconfirmed
from enc.apps.personal.sealing_keys import own_keys, registered_sub_key
from enc.client import Client
from enc.core.errors import DecryptFailed
from enc.core.sealed_forms.personal import (
    ForeignSender,
    Handoff,
    InvalidNotice,
    OpenedNotice,
    open_handoff,
    open_notice,
)


def opened_notice(client: Client, entry: LedgerEntry) -> OpenedNotice:
    """Open a notice sealed to either of the owner's keys, by its author's or its registered key."""
    content = entry.content
    if content is None:
        raise InvalidNotice("content: erased, or too long")
    try:
        return _opened(client, entry, content, (entry.author,))
    except ForeignSender:
        return _opened(client, entry, content, _senders(client, entry.author))


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
    sub_key = registered_sub_key(client, author, fresh=True)  # fresh: a refuted notice is discarded for good
    return (author,) if sub_key is None else (author, sub_key)


def _opened(client: Client, entry: LedgerEntry, content: str, senders: tuple[bytes, ...]) -> OpenedNotice:
    sub_key, identity = own_keys(client)
    try:
        return open_notice(sub_key, senders, content, entry.tags)
    except DecryptFailed as e:
        if type(e) is not DecryptFailed:  # malformed, so no other key helps
            raise
    return open_notice(identity, senders, content, entry.tags)
