"""The delivery status of an enclave's pushes, as the node reports it, unproved."""

from typing import Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import asdict

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Flow
from enc.core.errors import InvalidProof
from enc.core.primitives.encoding import check_numbers, unhex

MAX_PAGES = 1000
"""Most pages of one answer, so that a hostile node cannot continue forever."""


class Queue(Struct, frozen=True):
    """The queue to one identity at one URL, from all enclaves of the node."""

    push_seq: int
    """Number of the latest batch; 0 before the first."""
    waiting: int
    """Batches not delivered yet."""
    oldest: int | None
    """When the oldest waiting batch was made, in Unix milliseconds."""
    delivered: int
    """Batches delivered so far."""
    dead: int
    """Batches that the node gave up on; they can be pulled while the node keeps them."""


class Delivery(Struct, frozen=True):
    """An endpoint registered in the enclave, and its delivery status."""

    identity: bytes
    trait: str
    url: str
    state: str
    """`confirmed`: it has answered a challenge. `unconfirmed`, `challenge failed`, or `suspended` after
    answers 404 or 410: the node does not push there for now. Empty: the node does not report it.
    """
    has_dead: bool
    """Whether the node gave up on batches, of this enclave or of another on the node."""
    last_error: str
    last_error_at: int | None
    queue: Queue | None
    """Shown only for the caller's own endpoint."""


class _Wire(Struct, kw_only=True):
    identity: str
    trait: str
    url: str
    has_dead: bool
    last_error: str
    last_error_at: int | None
    queue: Queue | None = None
    state: str = ""


class _Page(Struct):
    endpoints: list[_Wire]
    more: bool = False


_page = Decoder(_Page)


def deliveries(reader: EnclaveReader) -> Flow[list[Delivery]]:
    """Return all endpoints of the enclave for its owner, else the caller's own, by identity and
    trait.
    """
    verifier = yield from reader.session.verifier()
    found = list[Delivery]()
    for _ in range(MAX_PAGES):
        text = yield from reader.session.ask("/deliveries", "Deliveries", _after(found))
        with verifier.blame_node("deliveries", text):
            page = read(text, _page)
            for wire in page.endpoints:
                found.append(_delivery(wire))
                if len(found) > 1 and _key(found[-1]) <= _key(found[-2]):
                    raise InvalidProof("endpoints: out of order")
            if page.more and not page.endpoints:
                raise InvalidProof("no endpoints, but `more` is set")
        if not page.more:
            break
    return found


def _key(delivery: Delivery) -> tuple[bytes, str]:
    return delivery.identity, delivery.trait


def _after(found: list[Delivery]) -> dict[str, Any]:
    return {"after": {"identity": found[-1].identity.hex(), "trait": found[-1].trait}} if found else {}


def _delivery(wire: _Wire) -> Delivery:
    numbers = asdict(wire.queue) if wire.queue else {}
    check_numbers(InvalidProof, last_error_at=wire.last_error_at or 0, **{name: n or 0 for name, n in numbers.items()})
    return Delivery(
        unhex(wire.identity, 32, "identity", InvalidProof),
        wire.trait,
        wire.url,
        wire.state,
        wire.has_dead,
        wire.last_error,
        wire.last_error_at,
        wire.queue,
    )


def wire_delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "identity": delivery.identity.hex(),
        "trait": delivery.trait,
        "url": delivery.url,
        "state": delivery.state,
        "has_dead": delivery.has_dead,
        "last_error": delivery.last_error,
        "last_error_at": delivery.last_error_at,
        **({"queue": asdict(delivery.queue)} if delivery.queue else {}),
    }
