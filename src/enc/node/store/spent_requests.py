"""Sealed requests that changed something: each is accepted once (docs/protocol.md, section 17.4).

The store keeps them until their session is over, so that a restart does not make them acceptable
again. What may be kept is bounded; at the bound, the node rejects new ones
and forgets none. The addresses that send them have fair shares of the places.
"""

from msgspec import Struct

from enc.core.errors import Duplicate, RateLimited
from enc.core.log.commit import SKEW_MS
from enc.core.primitives.hashing import sha256
from enc.core.session.envelope import SealedRequest
from enc.core.session.session import SKEW

MAX_SPENT = 100_000
"""Most requests that a node keeps; an address has a fair share of them."""
MAX_SPENT_EACH = 1_000
"""Most of them by one identity."""


class SpentRequest(Struct, frozen=True):
    """A request that changed something.

    `until`: from when the node rejects its token, in Unix milliseconds.
    `address`: the sender's, which has a share of the requests that are kept; None: no share
    applies, because many senders have the same address.
    """

    digest: bytes
    identity: bytes
    until: int
    address: str | None = None


def spent_request(request: SealedRequest, address: str | None = None) -> SpentRequest:
    """Return what to keep of an opened request.

    Its content has one spelling and opens under the keys of one session only, so its hash identifies
    it. A node's clock may step back by SKEW_MS.
    """
    until = (request.token.expires + SKEW) * 1000 + SKEW_MS
    return SpentRequest(sha256(request.content.encode()), request.from_, until, address)


def check_unspent(is_spent: bool, own: int, wait_ms: int) -> None:
    """Raise Duplicate for a request that is kept; RateLimited if `own` of this identity are, and
    none of these may be dropped before `wait_ms`.
    """
    if is_spent:
        raise Duplicate("this request was accepted before; to repeat it, seal it again")
    if own >= MAX_SPENT_EACH:
        raise RateLimited("this identity has made too many requests that change something", retry_after_ms=wait_ms)


def too_many_spent(wait_ms: int) -> RateLimited:
    """Return the error if there is no room for a request of this address."""
    return RateLimited("too many requests that change something", retry_after_ms=wait_ms)
