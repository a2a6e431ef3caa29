"""Seals answers and live events with the keys of a session."""

import os
from binascii import b2a_base64

from enc.core.primitives.sealing import NONCE_SIZE, encrypt
from enc.core.session.session import TransportKeys


def sealed_answer(keys: TransportKeys, plaintext: bytes) -> bytes:
    """Return the Response message with this plaintext sealed inside."""
    return seal_between(b'{"type":"Response","content":"', keys, plaintext, b'"}')


def seal_between(before: bytes, keys: TransportKeys, plaintext: bytes, after: bytes) -> bytes:
    """Return the plaintext, sealed with the session's response key, as base64 between two byte
    strings.

    Megabytes are copied once: a nonce is a whole number of base64 groups, so it is encoded apart
    from the ciphertext.
    """
    nonce = os.urandom(NONCE_SIZE)
    ciphertext = encrypt(keys.response, plaintext, nonce)
    return b"".join((before, b2a_base64(nonce, newline=False), b2a_base64(ciphertext, newline=False), after))
