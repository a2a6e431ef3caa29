"""The sealed forms of direct messages (docs/protocol.md, section 24): epochs, messages, invites,
own copies.

An identity's private key opens everything that was sealed to it, on any device, from the log alone.
A mailbox's owner makes an epoch secret for one contact, who seals messages to the owner with keys
derived from it, one for each message. Nonces and secrets are arguments.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.encoding import b64, check_numbers, compact_json, convert_json, unb64, unhex
from enc.core.primitives.sealing import open_sealed, open_text, seal, seal_text, shared_key
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_public_key

EPOCH_DIST, INVITE = "enc:dm:epoch_dist", "enc:dm:invite"
SECRET = 32
EPOCH_TAG = "epoch"
MAX_SENDER_SEQ = 65_535
"""Highest message number of an epoch. Bounds the derivations that a hostile number causes."""


class SealedEpoch(Struct, frozen=True):
    """An epoch secret, sealed: in a Move or a rotate to its owner, in a tag to the contact."""

    n: int
    encrypted_secret: str
    ecdh_pub: str
    """Public key of the side that sealed it: the owner's own, or the other side's."""


class SealedMessage(Struct, frozen=True):
    """The sealed content of a message."""

    epoch: int
    sender_seq: int
    ciphertext: str


# Epochs


def seal_epoch(key: Signer, to: bytes, n: int, secret: bytes, nonce: bytes) -> SealedEpoch:
    """Seal an epoch secret to oneself, for other devices, or to the contact."""
    if len(secret) != SECRET:
        raise MisuseError("an epoch secret must be 32 bytes")
    return SealedEpoch(n, b64(seal(shared_key(key, to, EPOCH_DIST), secret, nonce)), key.public.hex())


def open_epoch(key: Signer, epoch: SealedEpoch) -> bytes:
    """Return the secret, or raise DecryptFailed."""
    sealed = unb64(epoch.encrypted_secret, "encrypted_secret", DecryptFailed)
    peer = unhex(epoch.ecdh_pub, 32, "ecdh_pub", DecryptFailed)
    check_public_key(peer, "ecdh_pub", DecryptFailed)
    secret = open_sealed(shared_key(key, peer, EPOCH_DIST), sealed)
    if len(secret) != SECRET:
        raise DecryptFailed("encrypted_secret: not a secret of 32 bytes")
    return secret


def wire_epoch(epoch: SealedEpoch) -> dict[str, Any]:
    """Return the field `epoch` of a Move's or a rotate's content."""
    return {"n": epoch.n, "encrypted_secret": epoch.encrypted_secret, "ecdh_pub": epoch.ecdh_pub}


def parse_epoch(value: Any) -> SealedEpoch:
    epoch = convert_json(value, SealedEpoch, InvalidCommit)
    check_numbers(InvalidCommit, n=epoch.n)
    return epoch


def epoch_tag(epoch: SealedEpoch) -> tuple[str, ...]:
    return EPOCH_TAG, str(epoch.n), epoch.encrypted_secret, epoch.ecdh_pub


def parse_epoch_tag(tag: tuple[str, ...]) -> SealedEpoch:
    if len(tag) != 4 or tag[0] != EPOCH_TAG or not (tag[1].isascii() and tag[1].isdigit()) or len(tag[1]) > 16:
        raise InvalidCommit('epoch: expected ["epoch", number, encrypted secret, public key]')
    if str(int(tag[1])) != tag[1]:
        raise InvalidCommit("epoch: the number has leading zeros")
    return parse_epoch({"n": int(tag[1]), "encrypted_secret": tag[2], "ecdh_pub": tag[3]})


# Messages


class EpochChain:
    """The message keys of one epoch. Each takes two derivations, once."""

    def __init__(self, epoch_secret: bytes) -> None:
        self._link = hkdf(epoch_secret, "enc:dm:ratchet:init")
        self._keys: list[bytes] = []

    @property
    def derived(self) -> Sequence[bytes]:
        """The keys derived so far, from the first."""
        return self._keys

    def key(self, sender_seq: int) -> bytes:
        if not 0 <= sender_seq <= MAX_SENDER_SEQ:
            raise InvalidCommit(f"sender_seq: an epoch has {MAX_SENDER_SEQ + 1} messages")
        while len(self._keys) <= sender_seq:
            self._keys.append(hkdf(self._link, "enc:dm:ratchet:message"))
            self._link = hkdf(self._link, "enc:dm:ratchet:advance")
        return self._keys[sender_seq]


def seal_message(chain: EpochChain, epoch: int, sender_seq: int, plaintext: bytes, nonce: bytes) -> str:
    """Return a sealed content as JSON."""
    ciphertext = seal_text(chain.key(sender_seq), plaintext, nonce)
    return compact_json({"epoch": epoch, "sender_seq": sender_seq, "ciphertext": ciphertext})


def parse_message(value: Any) -> SealedMessage:
    message = convert_json(value, SealedMessage, InvalidCommit)
    check_numbers(InvalidCommit, epoch=message.epoch, sender_seq=message.sender_seq)
    return message


def open_message(chain: EpochChain, message: SealedMessage) -> bytes:
    return open_text(chain.key(message.sender_seq), message.ciphertext)


# Invitations, and the sender's own copies


def seal_invite(key: Signer, to: bytes, text: str, nonce: bytes) -> str:
    """Seal a greeting (the content) or the id of one's mailbox (the value of the tag
    `enclave_id`)."""
    return seal_text(shared_key(key, to, INVITE), text.encode(), nonce)


def open_invite(key: Signer, sender: bytes, sealed: str) -> str:
    return _text(open_text(shared_key(key, sender, INVITE), sealed))


def sent_key(key: Signer, to: bytes) -> bytes:
    """Return the key of the owner's own copies of messages to one contact."""
    return hkdf(shared_key(key, key.public, "enc:dm:sent:root"), f"enc:dm:sent:{to.hex()}")


def seal_sent(key: Signer, to: bytes, plaintext: bytes, nonce: bytes) -> str:
    return seal_text(sent_key(key, to), plaintext, nonce)


def open_sent(key: Signer, to: bytes, sealed: str) -> bytes:
    return open_text(sent_key(key, to), sealed)


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise DecryptFailed("the sealed content is not UTF-8 text") from None
