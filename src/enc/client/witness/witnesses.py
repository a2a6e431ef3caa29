"""Witnesses that a client asks besides the node, and their co-signatures of a head."""

from msgspec import Struct

from enc.client.wire.transport import base_url
from enc.core.errors import MisuseError
from enc.core.primitives.signing import is_public_key
from enc.core.primitives.types import TreeHead
from enc.core.trees.cosigning import CosignedHead


class Witness(Struct, frozen=True):
    """The URL and the key of a witness."""

    url: str
    key: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or not is_public_key(self.key):
            raise MisuseError("a witness's key is the 32 bytes of a public key")
        base_url(self.url)


def parse_witness(text: str) -> Witness:
    """Parse URL=KEY."""
    url, _, key = text.rpartition("=")
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        raw = b""
    if not url or len(raw) != 32:
        raise MisuseError(f"witness: expected URL=KEY, with a key of 64 hex digits, not {text!r}")
    return Witness(base_url(url), raw)


def parse_witnesses(text: str) -> tuple[list[Witness], int | None]:
    """Parse [K] URL=KEY URL=KEY …: the witnesses, and how many are required (None: all)."""
    words = text.split()
    k = int(words.pop(0)) if words and words[0].isdecimal() and len(words[0]) < 4 else None
    found = [parse_witness(word) for word in words]
    if not found or not (k is None or 1 <= k <= len(found)):
        raise MisuseError("witnesses: expected [K] URL=KEY …, with K from 1 to the number of witnesses")
    return found, k


class Witnessed(Struct, frozen=True):
    """The confirmation of a head: each valid witness's latest co-signature, the largest log first."""

    head: TreeHead
    cosigned: tuple[CosignedHead, ...]
    k: int
    n: int
    """Number of configured witnesses."""

    @property
    def size(self) -> int:
        """Number of bundles that `k` witnesses have seen."""
        return self.cosigned[self.k - 1].head.ts if len(self.cosigned) >= self.k else 0

    @property
    def count(self) -> int:
        """Number of witnesses that have seen the whole head."""
        return sum(each.head.ts >= self.head.ts for each in self.cosigned)

    @property
    def is_whole(self) -> bool:
        """Whether `k` witnesses have seen the whole head."""
        return self.size >= self.head.ts

    def __str__(self) -> str:
        """Return `2 of 3`, and how much `k` of them have seen if that is not the whole log."""
        behind = "" if self.is_whole else f"; {self.k} have seen {self.size} of {self.head.ts} bundles"
        return f"{self.count} of {self.n}{behind}"
