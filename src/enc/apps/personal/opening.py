"""Opening what others sealed to the owner: notices, and the secrets that they hand over."""

from enc.apps.personal.ledger import Entry
from enc.apps.personal.reconciling import Unconfirmed
from enc.apps.personal.sealing_keys import own_keys, registered_sub_key
from enc.client import Client
from enc.core.errors import DecryptFailed
from enc.core.personal import ForeignSender, Handoff, InvalidNotice, Notice, open_handoff, open_notice


def opened_notice(client: Client, entry: Entry) -> Notice:
    """What it says. Sealed to either of the owner's keys; by its author's, or by the one registered for it."""
    content = entry.content
    if content is None:
        raise InvalidNotice("its content is erased, or too long")
    try:
        return _opened(client, entry, content, (entry.author,))
    except ForeignSender:
        return _opened(client, entry, content, _senders(client, entry.author))


def opened_handoff(client: Client, author: bytes, handoff: Handoff) -> bytes:
    """The secret that the author of a notice hands over; or a DecryptFailed of its own kind."""
    senders = _senders(client, author) if client.has_registry else (author,)
    if handoff.ecdh_pub not in {key.hex() for key in senders}:
        raise ForeignSender("handoff: sealed by another than the notice's author")
    keys = own_keys(client)
    return open_handoff(next((key for key in keys if key.public.hex() == handoff.recipient), keys[1]), handoff)


def _senders(client: Client, author: bytes) -> tuple[bytes, ...]:
    if not client.has_registry:
        raise Unconfirmed("sealed by a key that only a registry could show to be its author's")
    sub_key = registered_sub_key(client, author, fresh=True)  # what it refutes is discarded for good
    return (author,) if sub_key is None else (author, sub_key)


def _opened(client: Client, entry: Entry, content: str, senders: tuple[bytes, ...]) -> Notice:
    sub_key, identity = own_keys(client)
    try:
        return open_notice(sub_key, senders, content, entry.tags)
    except DecryptFailed as e:
        if type(e) is not DecryptFailed:  # its form is wrong, whichever key it is for
            raise
    return open_notice(identity, senders, content, entry.tags)
