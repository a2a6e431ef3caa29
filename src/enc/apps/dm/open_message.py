"""Opens what contacts and other devices sealed, and finds out why something does not open."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NoReturn

from enc.apps.dm.epochs import OwnEpochs, check_whole
from enc.apps.dm.errors import SealedForAnother, Swapped, WrongKey
from enc.apps.dm.records import MAX_TEXT
from enc.core.errors import DecryptFailed
from enc.core.primitives.encoding import strict_json
from enc.core.primitives.sealing import NONCE_SIZE, TAG_SIZE, open_sealed
from enc.core.sealed_forms import dm

MAX_TRIED = 256
"""Keys tried to find out why something does not open: bounds what a hostile contact can cost."""
MAX_AHEAD = 64
"""Keys derived for that from the start of another contact's chain; beyond, only existing ones."""
MAX_DIAGNOSED = MAX_TEXT + NONCE_SIZE + TAG_SIZE
"""Longest sealed text, in bytes, for which the cause is looked for: each key is tried on all of
it.
"""
NEXT = 16
"""Keys after the expected one that are tried as well."""


def open_text(content: str, own: OwnEpochs, others: Iterable[OwnEpochs]) -> str:
    """Open a message's text, cut to the maximum length.

    `own`: the epochs made for its author; `others`: those of other contacts.
    """
    message = dm.parse_message(strict_json(content))
    chain, sealed = own.chain(message.epoch), check_whole(message.ciphertext)
    key = chain.key(message.sender_seq)
    try:
        return open_sealed(key, sealed).decode()[:MAX_TEXT]
    except UnicodeDecodeError:
        raise WrongKey("sealed: not UTF-8 text") from None
    except DecryptFailed:
        if len(sealed) > MAX_DIAGNOSED:
            raise WrongKey("sealed: does not open, and is too long to look for its key") from None
        chain.key(min(message.sender_seq + NEXT, dm.MAX_SENDER_SEQ))
        _raise_cause(sealed, own.derived(), _same_number(others, message))


def open_copy(content: str, key: bytes, others: Iterable[bytes]) -> bytes:
    """Open an own copy. `key`: for the contact its tag names; `others`: those of other contacts."""
    sealed = check_whole(content)
    try:
        return open_sealed(key, sealed)
    except DecryptFailed:
        _raise_cause(sealed, (), others)


def open_greeting(sealed: str, key: bytes) -> str:
    """Open what is sealed under an invitation's key: the greeting, or a tag's value."""
    try:
        return open_sealed(key, check_whole(sealed)).decode()[:MAX_TEXT]
    except UnicodeDecodeError:
        raise WrongKey("sealed: not UTF-8 text") from None
    except DecryptFailed as e:
        raise e if e.code != DecryptFailed.code else WrongKey(e.message) from None


def _same_number(others: Iterable[OwnEpochs], message: dm.SealedMessage) -> Iterator[bytes]:
    """Yield other contacts' keys with the message's numbers, as far as they are cheap to derive."""
    for epochs in others:
        if message.epoch in epochs:
            chain = epochs.chain(message.epoch)
            if message.sender_seq < max(len(chain.derived), MAX_AHEAD):
                yield chain.key(message.sender_seq)


def _raise_cause(sealed: bytes, same: Iterable[bytes], others: Iterable[bytes]) -> NoReturn:
    if _opens(sealed, same):
        raise Swapped("sealed: with the key of another message than the one it names")
    if _opens(sealed, others):
        raise SealedForAnother("sealed: with the key of another contact")
    raise WrongKey("sealed: no known key opens it: altered, or sealed with another key")


def _opens(sealed: bytes, keys: Iterable[bytes]) -> bool:
    for key in islice(keys, MAX_TRIED):
        try:
            open_sealed(key, sealed)
        except DecryptFailed:
            continue
        return True
    return False
