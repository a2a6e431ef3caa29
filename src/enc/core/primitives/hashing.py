"""H() and the fixed shapes built from it (docs/protocol.md, section 3).

H(f1, f2, …) = sha256(cbor([f1, f2, …])). For speed, the shapes that are hashed for every commit,
event and tree node are assembled by hand. Tests compare each with the general H().
"""

from collections.abc import Sequence
from hashlib import sha256 as _sha256
from typing import Any

from enc.core.errors import InvalidCommit
from enc.core.primitives.encoding import cbor

Tags = Sequence[Sequence[str]]

EMPTY_HASH = _sha256(b"").digest()
"""Root of an empty log, root of an empty sparse tree, and every empty node in it."""


def sha256(data: bytes) -> bytes:
    return _sha256(data).digest()


def H(*fields: Any) -> bytes:
    return _sha256(cbor(fields)).digest()


def content_hash(content: str) -> bytes:
    return _sha256(content.encode()).digest()


def commit_hash(
    enc_v: int, enclave: bytes, from_: bytes, type_: str, content_digest: bytes, exp: int, tags: Tags
) -> bytes:
    """H(0x10, enclave, from, type, content_hash, exp, tags)."""
    head = b"\x87\x10\x58\x20" + enclave + b"\x58\x20" + from_ + _text(type_)
    return _sha256(head + b"\x58\x20" + content_digest + _uint(exp) + _tags(enc_v, tags)).digest()


def enclave_id(enc_v: int, from_: bytes, content_digest: bytes, tags: Tags) -> bytes:
    """H(0x12, from, "Manifest", content_hash, tags): the id of the enclave that a Manifest
    creates."""
    return _sha256(b"\x85\x12\x58\x20%b\x68Manifest\x58\x20%b%b" % (from_, content_digest, _tags(enc_v, tags))).digest()


def event_hash(timestamp: int, seq: int, sequencer: bytes, sig: bytes) -> bytes:
    """H(0x11, timestamp, seq, sequencer, sig): what the sequencer signs."""
    return _sha256(b"\x85\x11" + _uint(timestamp) + _uint(seq) + b"\x58\x20" + sequencer + b"\x58\x40" + sig).digest()


def log_leaf(events_root: bytes, state_hash: bytes) -> bytes:
    """H(0x00, events_root, state_hash): one bundle in the log."""
    return _sha256(b"\x83\x00\x58\x20%b\x58\x20%b" % (events_root, state_hash)).digest()


def log_node(left: bytes, right: bytes) -> bytes:
    """H(0x01, left, right): an inner node of the log, and of a bundle's tree of event ids."""
    return _sha256(b"\x83\x01\x58\x20" + left + b"\x58\x20" + right).digest()


def member_set(keys: Sequence[bytes]) -> bytes:
    """H("enc:mls:set", [keys]): the id of a set of members; the keys have 32 bytes each and are
    sorted."""
    head = bytearray(_uint(len(keys)))
    head[0] |= 0x80
    listed = b"\x58\x20" + b"\x58\x20".join(keys) if keys else b""
    return _sha256(b"\x82\x6benc:mls:set%b%b" % (bytes(head), listed)).digest()


def tag_text(tags: Tags) -> str:
    """Return tags as version 1 spells them: `[r,abc,reply],[k,v]`, and "" without tags.

    Raises InvalidCommit for a string that contains one of `,[]`: otherwise two lists of tags would
    share a hash.
    """
    for tag in tags:
        for text in tag:
            if any(mark in text for mark in ",[]"):
                raise InvalidCommit("tags: a version 1 tag may not contain ',', '[' or ']'")
    return ",".join(f"[{','.join(tag)}]" for tag in tags)


def _tags(enc_v: int, tags: Tags) -> bytes:
    if enc_v == 1:
        return _text(tag_text(tags))
    return cbor([list(tag) for tag in tags]) if tags else b"\x80"


def _uint(number: int) -> bytes:
    if number >= 0x100000000:  # first, because most numbers here are times
        return b"\x1b" + number.to_bytes(8, "big")
    if number < 24:
        return number.to_bytes(1, "big")
    if number < 0x100:
        return b"\x18%c" % number
    if number < 0x10000:
        return b"\x19" + number.to_bytes(2, "big")
    return b"\x1a" + number.to_bytes(4, "big")


_SHORT = [bytes([0x60 + size]) for size in range(24)]
"""First byte of the CBOR of a text of fewer than 24 bytes, by length."""


def _text(text: str) -> bytes:
    raw = text.encode()
    size = len(raw)
    if size < 24:
        return _SHORT[size] + raw
    head = bytearray(_uint(size))
    head[0] |= 0x60
    return bytes(head) + raw
