"""Events as a node returns them, decrypted but not verified, for callers that verify them
elsewhere.

The data pipeline does so. The answer is authentic, sealed by the node for this identity, but its
content is unchecked.
"""

from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.follow_moves import follow_moves
from enc.client.verify.decode_answers import read
from enc.client.wire.flow import Flow
from enc.core.errors import InvalidProof
from enc.core.log.filter import parse_filter


class UnverifiedPage(Struct, frozen=True):
    events: list[bytes]
    """Each event in wire JSON, byte for byte."""
    more: bool


class _Item(Struct):
    event: Raw


class _Page(Struct):
    events: list[_Item]
    more: bool = False


_page = Decoder(_Page)


@follow_moves
def unverified_page(reader: EnclaveReader, wire_filter: dict[str, Any]) -> Flow[UnverifiedPage]:
    """Return one page of matching events. Raises Distrust for a malformed or oversized answer."""
    limit = parse_filter(wire_filter).limit
    verifier = yield from reader.session.verifier()
    text = yield from reader.session.ask("/", "Query", {"filter": wire_filter})
    with verifier.blame_node("page", text):
        wire = read(text, _page)
        if len(wire.events) > limit:
            raise InvalidProof("more events than requested")
        if not wire.events and wire.more:
            raise InvalidProof("no events, but `more` is set")
    return UnverifiedPage([bytes(item.event) for item in wire.events], wire.more)
