"""How the pushes of an enclave's events fare: told by the node, and proved by nothing."""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder

from enc.client.answers import read
from enc.client.flow import Flow
from enc.client.link import Link
from enc.core.encoding import check_numbers, unhex
from enc.core.errors import InvalidProof

MAX_PAGES = 1000
"""Pages that one node may fill: a hostile one shall not go on for ever."""


class Delivery(Struct, frozen=True):
    """An endpoint that is registered in the enclave, and its queue, which is over all enclaves of the node."""

    identity: bytes
    trait: str
    url: str
    push_seq: int
    """Of the latest batch; 0: none yet."""
    waiting: int
    """Batches that are still to be delivered,"""
    oldest: int | None
    """and when the oldest of them was made, in Unix milliseconds."""
    delivered: int
    """Batches, ever."""
    dead: int
    """Batches that were given up; they can be pulled while the node keeps them."""
    last_error: str
    last_error_at: int | None


class _Wire(Struct, kw_only=True):
    identity: str
    trait: str
    url: str
    push_seq: int
    waiting: int
    oldest: int | None
    delivered: int
    dead: int
    last_error: str
    last_error_at: int | None


class _Page(Struct):
    endpoints: list[_Wire]
    more: bool = False


_page = Decoder(_Page)


def deliveries(link: Link) -> Flow[list[Delivery]]:
    """Every endpoint of the enclave, for its owner; for anyone else their own. By identity and trait."""
    witness = yield from link.witness()
    found = list[Delivery]()
    for _ in range(MAX_PAGES):
        text = yield from link.ask("/deliveries", "Deliveries", _after(found))
        with witness.judging("deliveries", text):
            page = read(text, _page)
            for wire in page.endpoints:
                found.append(_delivery(wire))
                if len(found) > 1 and _key(found[-1]) <= _key(found[-2]):
                    raise InvalidProof("endpoints: out of order")
            if page.more and not page.endpoints:
                raise InvalidProof("no endpoints, and more of them")
        if not page.more:
            break
    return found


def _key(delivery: Delivery) -> tuple[bytes, str]:
    return delivery.identity, delivery.trait


def _after(found: list[Delivery]) -> dict[str, Any]:
    return {"after": {"identity": found[-1].identity.hex(), "trait": found[-1].trait}} if found else {}


def _delivery(wire: _Wire) -> Delivery:
    numbers = {"push_seq": wire.push_seq, "waiting": wire.waiting, "delivered": wire.delivered, "dead": wire.dead}
    times = {"oldest": wire.oldest or 0, "last_error_at": wire.last_error_at or 0}
    check_numbers(InvalidProof, **numbers, **times)
    return Delivery(
        unhex(wire.identity, 32, "identity", InvalidProof),
        wire.trait,
        wire.url,
        wire.push_seq,
        wire.waiting,
        wire.oldest,
        wire.delivered,
        wire.dead,
        wire.last_error,
        wire.last_error_at,
    )


def wire_delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "identity": delivery.identity.hex(),
        "trait": delivery.trait,
        "url": delivery.url,
        "push_seq": delivery.push_seq,
        "waiting": delivery.waiting,
        "oldest": delivery.oldest,
        "delivered": delivery.delivered,
        "dead": delivery.dead,
        "last_error": delivery.last_error,
        "last_error_at": delivery.last_error_at,
    }
