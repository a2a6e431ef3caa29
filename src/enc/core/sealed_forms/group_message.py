"""Messages of a group (docs/protocol.md, section 26.6): a key for each, and their sealed form.

Every sender has a chain of keys in every epoch. One counter, `sender_seq`, numbers everything that
a sender seals in an epoch. Gaps are allowed, so readers bound it by the event's seq (`check_place`)
before they derive anything.
"""

import re
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidCommit
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.encoding import check_numbers, compact_json, convert_json, strict_json
from enc.core.sealed_forms.group_envelope import open_short, seal_short


class Sealed(Struct, frozen=True):
    """The content of a message, a reaction or a notice, and of their Updates."""

    epoch: int
    sender_seq: int
    ciphertext: str


class SenderChain:
    """One sender's message keys in one epoch. Each takes two derivations, once; the first takes
    one."""

    def __init__(self, epoch_secret: bytes, sender: bytes) -> None:
        self._link = hkdf(epoch_secret, f"enc:mls:sender:{sender.hex()}")
        self._keys: list[bytes] = []

    def key(self, sender_seq: int) -> bytes:
        keys = self._keys
        while len(keys) <= sender_seq:
            if keys:
                self._link = hkdf(self._link, "enc:mls:ratchet:advance")
            keys.append(hkdf(self._link, "enc:mls:ratchet:message"))
        return keys[sender_seq]


_NUMBER = "(0|[1-9][0-9]{0,14})"
_as_written = re.compile(
    rf'{{"ciphertext":"([A-Za-z0-9+/=]*)","epoch":{_NUMBER},"sender_seq":{_NUMBER}}}', re.ASCII
).fullmatch
"""Matches what `seal_message` writes. It is always strict JSON, so this common case skips the slow
parser."""


def read_sealed(content: str) -> Sealed:
    """Parse a content of the log by the rules of strict JSON; raise InvalidCommit if it is
    malformed."""
    found = _as_written(content)
    if found is None:
        return parse_sealed(strict_json(content))
    return Sealed(int(found[2]), int(found[3]), found[1])


def parse_sealed(value: Any) -> Sealed:
    """Parse a sealed content from decoded JSON; raise InvalidCommit if it is malformed."""
    found = convert_json(value, Sealed, InvalidCommit)
    check_numbers(InvalidCommit, epoch=found.epoch, sender_seq=found.sender_seq)
    return found


def check_place(sealed: Sealed, seq: int, epoch_seq: int) -> None:
    """Check that `sender_seq` is possible: a sender seals at most one message for each event since
    the epoch began.

    `seq` is the event's, `epoch_seq` that of the event which made the epoch. Raises InvalidCommit.
    """
    if sealed.sender_seq >= seq - epoch_seq:
        raise InvalidCommit("sender_seq: higher than the number of events since the epoch began")


def seal_message(chain: SenderChain, epoch: int, sender_seq: int, text: str, nonce: bytes) -> str:
    """Return a sealed content as JSON."""
    ciphertext = seal_short(chain.key(sender_seq), text.encode(), nonce)
    return compact_json({"epoch": epoch, "sender_seq": sender_seq, "ciphertext": ciphertext})


def open_message(chain: SenderChain, sealed: Sealed) -> str:
    """Return the text, or raise DecryptFailed. Callers call `check_place` first."""
    try:
        return open_short(chain.key(sealed.sender_seq), sealed.ciphertext, "ciphertext").decode()
    except UnicodeDecodeError:
        raise InvalidCommit("ciphertext: the sealed content is not UTF-8 text") from None
