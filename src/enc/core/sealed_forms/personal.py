"""The sealed forms of a personal enclave (docs/protocol.md, section 25): private documents,
notices, handoffs.

Only the owner's private key opens a private document. Anyone may seal a notice to the owner. A
handoff inside it is sealed once more, under a key of its own, because another program opens it
later. Nonces are arguments.
"""

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Decoder
from msgspec.structs import asdict

from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.primitives.encoding import check_numbers, compact_json, convert_json, decode_json, strict_json, unhex
from enc.core.primitives.sealing import NONCE_SIZE, encrypt, open_sealed, shared_key
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_public_key
from enc.core.primitives.types import Tags

NOTICE, HANDOFF = "enc:personal:notice", "enc:personal:notice:epoch"
SCHEME = "personal:notice"
EVACUATION = "x-evacuation"
"""Kind of the notice by which a node asks an owner to move enclaves away (15.4)."""
KINDS = ("group_invite", "dm_invite")
"""Kinds of notices; others start with `x-`."""
SECRET = 32


class ForeignSender(DecryptFailed):
    """The key that sealed the notice is neither its author's nor the author's registered
    sub-key."""

    code = "FOREIGN_SENDER"


class ContradictingTag(DecryptFailed):
    """The plain tags contradict the sealed content."""

    code = "CONTRADICTING_TAG"


class InvalidNotice(DecryptFailed):
    """The content, or what is sealed in it, does not have the form of a notice."""

    code = "NO_NOTICE"


class WrongRecipient(DecryptFailed):
    """The handoff is addressed to another key."""

    code = "WRONG_RECIPIENT"


class _Sealed(Struct):
    ciphertext: str
    nonce: str


class _Notice(_Sealed):
    sender_pub: str
    scheme: str
    encrypted: bool


class Handoff(Struct, frozen=True):
    """A secret for the recipient's later use, sealed on its own. All fields are hex."""

    recipient: str
    ecdh_pub: str
    ciphertext: str
    nonce: str


class OpenedNotice(Struct, frozen=True, kw_only=True):
    """An opened notice: someone did something that concerns the recipient, in another enclave."""

    kind: str
    enclave_id: str
    enclave_kind: str
    inviter: str
    handoff: Handoff | UnsetType = UNSET
    epoch_n: int | UnsetType = UNSET
    topic: str | UnsetType = UNSET
    greeting: str | UnsetType = UNSET
    manifest_hash: str | UnsetType = UNSET
    move_ref: str | UnsetType = UNSET


_sealed, _notice = Decoder(_Sealed), Decoder(_Notice)

# Private documents


def private_key(key: Signer, enclave: bytes) -> bytes:
    """Return the key of an owner's private documents in one enclave."""
    return key.derive(f"enc-personal-private:{enclave.hex()}")


def seal_private(key: Signer, enclave: bytes, plaintext: bytes, nonce: bytes) -> str:
    """Return a sealed content as JSON."""
    return compact_json(_seal(private_key(key, enclave), plaintext, nonce))


def open_private(key: Signer, enclave: bytes, content: str) -> bytes:
    return _open(private_key(key, enclave), decode_json(content, _sealed, DecryptFailed))


# Notices


def seal_notice(key: Signer, to: bytes, notice: OpenedNotice, nonce: bytes) -> str:
    """Return a sealed content as JSON. `key` is the sender's identity or registered sub-key, `to`
    the recipient's."""
    check_notice(notice)
    payload = compact_json({name: _plain(value) for name, value in asdict(notice).items() if value is not UNSET})
    sealed = _seal(shared_key(key, to, NOTICE), payload.encode(), nonce)
    return compact_json({**sealed, "sender_pub": key.public.hex(), "scheme": SCHEME, "encrypted": True})


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Handoff) else value


def notice_sender(content: str) -> bytes:
    """Return the key that a notice says it was sealed with; raise DecryptFailed if the notice does
    not have the form.
    """
    return unhex(_outside(content).sender_pub, 32, "sender_pub", DecryptFailed)


def _outside(content: str) -> _Notice:
    outside = decode_json(content, _notice, InvalidNotice)
    if outside.scheme != SCHEME or not outside.encrypted:
        raise InvalidNotice(f"scheme: expected {SCHEME}, encrypted")
    return outside


def open_notice(key: Signer, senders: tuple[bytes, ...], content: str, tags: Tags = ()) -> OpenedNotice:
    """Open a notice. `senders` are the keys that may have sealed it: its author's, and the author's
    sub-key.

    Raises DecryptFailed: one of its subclasses InvalidNotice, ForeignSender, ContradictingTag and
    Truncated, or DecryptFailed itself where the notice does not open with this key.
    """
    outside, sender = _outside(content), notice_sender(content)
    if sender not in senders:
        raise ForeignSender("sender_pub: neither the author's key nor its registered sub-key")
    check_public_key(sender, "sender_pub", DecryptFailed)
    raw = _open(shared_key(key, sender, NOTICE), outside)
    try:
        notice = convert_json(strict_json(raw.decode()), OpenedNotice, InvalidNotice)
        check_notice(notice)
    except (InvalidCommit, MisuseError, UnicodeDecodeError) as e:
        raise InvalidNotice(f"the sealed content is not a notice: {e}") from None
    _check_tags(notice, tags)
    return notice


def check_notice(notice: OpenedNotice) -> None:
    """Check the required fields, and those that require each other; raise InvalidCommit."""
    if notice.kind not in KINDS and not (notice.kind.startswith("x-") and len(notice.kind) > 2):
        raise InvalidCommit(f"kind: expected one of {', '.join(KINDS)}, or x-…")
    unhex(notice.enclave_id, 32, "enclave_id")
    unhex(notice.inviter, 32, "inviter")
    if not notice.enclave_kind:
        raise InvalidCommit("enclave_kind: expected the enclave's kind")
    if notice.handoff is not UNSET and notice.epoch_n is UNSET:
        raise InvalidCommit("epoch_n: a handoff names its epoch")
    if notice.epoch_n is not UNSET:
        check_numbers(InvalidCommit, epoch_n=notice.epoch_n)
    for name in ("manifest_hash", "move_ref"):
        value = getattr(notice, name)
        if value is not UNSET:
            unhex(value, 32, name)


def _check_tags(notice: OpenedNotice, tags: Tags) -> None:
    for name, *values in tags:
        sealed = getattr(notice, name, UNSET) if name in OpenedNotice.__struct_fields__ else UNSET
        if sealed is not UNSET and values[:1] != [str(sealed)]:
            raise ContradictingTag(f"tags: {name} contradicts the sealed notice")


# Handoffs


def seal_handoff(key: Signer, to: bytes, secret: bytes, nonce: bytes) -> Handoff:
    if len(secret) != SECRET:
        raise MisuseError("a handoff carries 32 bytes")
    sealed = _seal(shared_key(key, to, HANDOFF), secret, nonce)
    return Handoff(to.hex(), key.public.hex(), sealed["ciphertext"], sealed["nonce"])


def open_handoff(key: Signer, handoff: Handoff) -> bytes:
    if handoff.recipient != key.public.hex():
        raise WrongRecipient("recipient: the handoff is for another key")
    peer = unhex(handoff.ecdh_pub, 32, "ecdh_pub", DecryptFailed)
    check_public_key(peer, "ecdh_pub", DecryptFailed)
    secret = _open(shared_key(key, peer, HANDOFF), _Sealed(handoff.ciphertext, handoff.nonce))
    if len(secret) != SECRET:
        raise DecryptFailed("handoff: not a secret of 32 bytes")
    return secret


def _seal(key: bytes, plaintext: bytes, nonce: bytes) -> dict[str, str]:
    return {"ciphertext": encrypt(key, plaintext, nonce).hex(), "nonce": nonce.hex()}


def _open(key: bytes, sealed: _Sealed) -> bytes:
    nonce = unhex(sealed.nonce, NONCE_SIZE, "nonce", DecryptFailed)
    ciphertext = unhex(sealed.ciphertext, len(sealed.ciphertext) // 2, "ciphertext", DecryptFailed)
    return open_sealed(key, nonce + ciphertext)
