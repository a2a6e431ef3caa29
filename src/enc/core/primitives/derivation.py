"""Key derivation by HKDF-SHA256 (docs/protocol.md, sections 4.4 and 17.3)."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_SHA256 = SHA256()


def hkdf(secret: bytes, label: str, size: int = 32, *, salt: bytes = b"") -> bytes:
    """Derive a key by HKDF-SHA256 with `label` as info."""
    return HKDF(_SHA256, size, salt or None, label.encode()).derive(secret)
