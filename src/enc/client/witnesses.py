"""Whom a client asks besides the node: witnesses, and what they have vouched for of a head."""

from msgspec import Struct

from enc.client.transport import base_url
from enc.core.cosigning import CosignedHead
from enc.core.errors import MisuseError
from enc.core.signing import is_public_key
from enc.core.types import TreeHead


class Witness(Struct, frozen=True):
    """Where a witness is asked, and the key by which it is known."""

    url: str
    key: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.key, bytes) or not is_public_key(self.key):
            raise MisuseError("a witness's key is the 32 bytes of a public key")
        base_url(self.url)


def parse_witness(text: str) -> Witness:
    """URL=KEY."""
    url, _, key = text.rpartition("=")
    try:
        raw = bytes.fromhex(key)
    except ValueError:
        raw = b""
    if not url or len(raw) != 32:
        raise MisuseError(f"witness: expected URL=KEY, with a key of 64 hex digits, and not {text!r}")
    return Witness(base_url(url), raw)


def parse_witnesses(text: str) -> tuple[list[Witness], int | None]:
    """[K] URL=KEY URL=KEY …: witnesses, and how many of them are needed where that is not all."""
    words = text.split()
    k = int(words.pop(0)) if words and words[0].isdecimal() and len(words[0]) < 4 else None
    found = [parse_witness(word) for word in words]
    if not found or not (k is None or 1 <= k <= len(found)):
        raise MisuseError("witnesses: expected [K] URL=KEY …, with K from 1 to the number of witnesses")
    return found, k


class Witnessed(Struct, frozen=True):
    """What was vouched for of a head: the latest word of each witness that counts, the largest first."""

    head: TreeHead
    cosigned: tuple[CosignedHead, ...]
    k: int
    n: int
    """Witnesses that were named."""

    @property
    def size(self) -> int:
        """The bundles that `k` witnesses have seen."""
        return self.cosigned[self.k - 1].head.ts if len(self.cosigned) >= self.k else 0

    @property
    def count(self) -> int:
        """The witnesses that have seen all of the head."""
        return sum(each.head.ts >= self.head.ts for each in self.cosigned)

    @property
    def is_whole(self) -> bool:
        """`k` witnesses have seen all of the head."""
        return self.size >= self.head.ts

    def __str__(self) -> str:
        """`2 of 3`, and if that is less than all of the log, how much `k` of them have seen."""
        behind = "" if self.is_whole else f"; {self.k} have seen {self.size} of {self.head.ts} bundles"
        return f"{self.count} of {self.n}{behind}"
