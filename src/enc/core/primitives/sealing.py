"""Shared keys and authenticated encryption (docs/protocol.md, sections 4.4 and 17.3).

Keys come from ECDH and HKDF-SHA256 with a label. Sealed data is `nonce(24) || ciphertext ||
tag(16)`: XChaCha20-Poly1305 without associated data. The nonce is an argument: callers draw 24
random bytes for each message.
"""

from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
)
from nacl.exceptions import CryptoError

from enc.core.errors import DecryptFailed, MisuseError
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.encoding import b64, unb64
from enc.core.primitives.signer import Signer

NONCE_SIZE = 24
TAG_SIZE = 16


class Truncated(DecryptFailed):
    """The sealed data is shorter than a nonce and a tag: it was cut off. Has its parent's code on
    the wire."""


QUERY, RESPONSE, PUSH, CHALLENGE = "enc:query", "enc:response", "enc:push", "enc:challenge"


def shared_key(key: Signer, public: bytes, label: str) -> bytes:
    """Return the symmetric key that `key` and the owner of `public` both derive for `label`."""
    return hkdf(key.ecdh(public), label)


def seal(key: bytes, plaintext: bytes, nonce: bytes) -> bytes:
    return nonce + encrypt(key, plaintext, nonce)


def encrypt(key: bytes, plaintext: bytes, nonce: bytes) -> bytes:
    """Return what `seal` puts after the nonce, for callers that join large parts and want to copy
    them once."""
    if len(key) != 32 or len(nonce) != NONCE_SIZE:
        raise MisuseError("sealing needs a 32-byte key and a 24-byte nonce")
    return crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, None, nonce, key)


def open_sealed(key: bytes, sealed: bytes) -> bytes:
    """Return the plaintext, or raise DecryptFailed."""
    if len(key) != 32:
        raise MisuseError("a key must be 32 bytes")
    if len(sealed) < NONCE_SIZE + TAG_SIZE:
        raise Truncated("the sealed content is too short")
    try:
        return crypto_aead_xchacha20poly1305_ietf_decrypt(sealed[NONCE_SIZE:], None, sealed[:NONCE_SIZE], key)
    except CryptoError:
        raise DecryptFailed("the sealed content does not open with this key") from None


def seal_text(key: bytes, plaintext: bytes, nonce: bytes) -> str:
    """Seal, and return base64 as a `content` field carries it."""
    return b64(seal(key, plaintext, nonce))


def open_text(key: bytes, text: object) -> bytes:
    return open_sealed(key, unb64(text, "content", DecryptFailed))


def push_key(key: Signer, peer: bytes) -> bytes:
    """Return the key of webhook deliveries; the node and the recipient derive the same."""
    return shared_key(key, peer, PUSH)


def challenge_key(key: bytes) -> bytes:
    """Return the key that seals challenges, from a `push_key`."""
    return hkdf(key, CHALLENGE)
