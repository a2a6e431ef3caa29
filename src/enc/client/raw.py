"""Events as a node says them, opened and not yet believed: for who checks them elsewhere, as the data pipeline does.

The answer itself is the node's, sealed for this identity. What is in it, nobody has looked at.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from enc.client.answers import read
from enc.client.client import Enclave
from enc.client.flow import Flow
from enc.client.following import following
from enc.client.link import EnclaveReader
from enc.core.errors import InvalidProof
from enc.core.filter import parse_filter


class UnverifiedPage(Struct, frozen=True):
    events: list[bytes]
    """Each in wire JSON, byte for byte."""
    more: bool


class _Item(Struct):
    event: Raw


class _Page(Struct):
    events: list[_Item]
    more: bool = False


_page = Decoder(_Page)


def unverified_page(enclave: Enclave, wire_filter: Mapping[str, Any]) -> UnverifiedPage:
    """One page of what matches. Distrust where the answer is none, or holds more than was asked for."""
    return enclave._run(_raw_page(enclave._reader, dict(wire_filter)))


@following
def _raw_page(reader: EnclaveReader, wire_filter: dict[str, Any]) -> Flow[UnverifiedPage]:
    limit = parse_filter(wire_filter).limit
    verifier = yield from reader.session.verifier()
    text = yield from reader.session.ask("/", "Query", {"filter": wire_filter})
    with verifier.blame_node("page", text):
        wire = read(text, _page)
        if len(wire.events) > limit:
            raise InvalidProof("more events than were asked for")
        if not wire.events and wire.more:
            raise InvalidProof("no events, and more of them")
    return UnverifiedPage([bytes(item.event) for item in wire.events], wire.more)
