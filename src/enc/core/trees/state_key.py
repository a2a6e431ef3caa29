"""Keys of the sparse tree: `namespace || sha256(raw key)[:20]` (docs/protocol.md, section 10)."""

from typing import Literal

from enc.core.primitives.hashing import H, sha256

Namespace = Literal["rbac", "event_status", "kv"]

RBAC, STATUS, KV = b"\x00", b"\x01", b"\x02"

_PREFIX: dict[Namespace, bytes] = {"rbac": RBAC, "event_status": STATUS, "kv": KV}

DELETED = b"\x00"
"""Event status of a deleted event. An updated one holds its latest Update's id, an active one has
no leaf."""

CLOSED = sha256(b"closed")
"""Value of a closed gate. An open one has no leaf."""


def tree_key(namespace: Namespace, raw: bytes) -> bytes:
    """Return the 21-byte key for a 32-byte raw key, as `POST /state` takes it."""
    return _PREFIX[namespace] + sha256(raw)[:20]


def identity_key(id_pub: bytes) -> bytes:
    """Return the key of an identity's bitmask: 32 bytes big-endian; no leaf if it is 0."""
    return tree_key("rbac", id_pub)


def status_key(event_id: bytes) -> bytes:
    return tree_key("event_status", event_id)


def shared_slot(key: str) -> bytes:
    """Return the raw key of a Shared slot."""
    return H("Shared", key)


def own_slot(id_pub: bytes, key: str) -> bytes:
    """Return the raw key of an identity's Own slot."""
    return H("Own", id_pub, key)


def gate_slot(alias: str) -> bytes:
    """Return the raw key of a gate."""
    return H("Gate", alias)


def gate_key(alias: str) -> bytes:
    return tree_key("kv", gate_slot(alias))


LIFECYCLE_KEY = tree_key("kv", shared_slot("lifecycle"))
"""Key of sha256 of `paused`, `terminated` or `migrated`; no leaf while the enclave is active."""
