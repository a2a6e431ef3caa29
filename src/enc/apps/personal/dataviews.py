"""Dataviews: services that are pushed what is public, as the owner's log grants it and as the state proves it."""

from collections.abc import Iterator

from msgspec import Struct

from enc.client import Enclave, Item
from enc.core.content import content_object
from enc.core.encoding import unhex
from enc.core.errors import PeerError, TreeSizeNotFound

DATAVIEW = "dataview"


class Dataview(Struct, frozen=True):
    """Who has a grant. `proved`: the state says so, as of the last closed bundle; else the log alone does, so far."""

    identity: bytes
    proved: bool


def dataviews(enclave: Enclave, owner: bytes) -> list[Dataview]:
    """Who has a grant now. Where log and state differ, the log is ahead by a bundle that is still open."""
    said = dict[bytes, bool]()
    for item in enclave.query(type=["Grant", "Revoke", "AC_Bundle"]):
        if item.author == owner:
            said.update(_changes(item))
    try:
        proved = [member.identity for member in enclave.members() if DATAVIEW in member.traits]
    except TreeSizeNotFound:  # no bundle was closed yet
        proved = []
    return [Dataview(who, who in proved) for who in dict.fromkeys([*proved, *said]) if said.get(who, True)]


def _changes(item: Item) -> Iterator[tuple[bytes, bool]]:
    """Whom an event gives the grant, or takes it from."""
    try:
        content = content_object(item.event)
        operations = content.get("operations") if item.type == "AC_Bundle" else [{**content, "type": item.type}]
        for each in operations if isinstance(operations, list) else ():
            if isinstance(each, dict) and each.get("type") in ("Grant", "Revoke") and each.get("trait") == DATAVIEW:
                yield unhex(each.get("target"), 32, "target"), each["type"] == "Grant"
    except PeerError:  # what no honest node takes says nothing
        return
