"""Opening what contacts and other devices sealed; and where it does not open, saying why."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NoReturn

from enc.apps.dm.epochs import OwnEpochs, check_whole
from enc.apps.dm.errors import SealedForAnother, Swapped, WrongKey
from enc.apps.dm.records import MAX_TEXT
from enc.core import dm
from enc.core.encoding import strict_json
from enc.core.errors import DecryptFailed
from enc.core.sealing import NONCE_SIZE, TAG_SIZE, open_sealed

MAX_TRIED = 256
"""Keys that are tried to tell why something does not open: what a hostile contact can cost is bounded."""
MAX_AHEAD = 64
"""Keys of another contact's chain that are derived for that, from its first: beyond, those that there are."""
MAX_TOLD = MAX_TEXT + NONCE_SIZE + TAG_SIZE
"""Bytes of a sealed text for which this is done at all: each key is tried on all of them."""
NEXT = 16
"""Keys after the one that should open it, which are tried as well."""


def open_text(content: str, own: OwnEpochs, others: Iterable[OwnEpochs]) -> str:
    """A message's text, cut where it is longer than one may be.

    `own`: the epochs made for its author; `others`: those of other contacts.
    """
    message = dm.parse_message(strict_json(content))
    chain, sealed = own.chain(message.epoch), check_whole(message.ciphertext)
    key = chain.key(message.sender_seq)
    try:
        return open_sealed(key, sealed).decode()[:MAX_TEXT]
    except UnicodeDecodeError:
        raise WrongKey("what is sealed is no text") from None
    except DecryptFailed:
        if len(sealed) > MAX_TOLD:
            raise WrongKey("does not open, and is too long to look for its key") from None
        chain.key(min(message.sender_seq + NEXT, dm.MAX_SENDER_SEQ))
        _tell(sealed, own.derived(), _alike(others, message))


def open_copy(content: str, key: bytes, others: Iterable[bytes]) -> bytes:
    """An own copy. `key`: that of the contact whom its tag names; `others`: those of other contacts."""
    sealed = check_whole(content)
    try:
        return open_sealed(key, sealed)
    except DecryptFailed:
        _tell(sealed, (), others)


def open_greeting(sealed: str, key: bytes) -> str:
    """What is sealed under the key of an invitation: the greeting, or a tag's value."""
    try:
        return open_sealed(key, check_whole(sealed)).decode()[:MAX_TEXT]
    except UnicodeDecodeError:
        raise WrongKey("what is sealed is no text") from None
    except DecryptFailed as e:
        raise e if e.code != DecryptFailed.code else WrongKey(e.message) from None


def _alike(others: Iterable[OwnEpochs], message: dm.Message) -> Iterator[bytes]:
    """The keys of the same number that other contacts have: those that cost little."""
    for epochs in others:
        if message.epoch in epochs:
            chain = epochs.chain(message.epoch)
            if message.sender_seq < max(len(chain.derived), MAX_AHEAD):
                yield chain.key(message.sender_seq)


def _tell(sealed: bytes, same: Iterable[bytes], others: Iterable[bytes]) -> NoReturn:
    if _opens(sealed, same):
        raise Swapped("sealed as another message than it says")
    if _opens(sealed, others):
        raise SealedForAnother("sealed with the key of another contact")
    raise WrongKey("opens with no key that is known: altered, or sealed with another")


def _opens(sealed: bytes, keys: Iterable[bytes]) -> bool:
    for key in islice(keys, MAX_TRIED):
        try:
            open_sealed(key, sealed)
        except DecryptFailed:
            continue
        return True
    return False
