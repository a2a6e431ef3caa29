"""Dataviews: services to which public events are pushed, by grants in the log and in the state."""

from collections.abc import Iterator

from msgspec import Struct

from enc.client import Enclave, Item
from enc.core.errors import PeerError, TreeSizeNotFound
from enc.core.primitives.encoding import unhex
from enc.core.rules.content import content_object

DATAVIEW = "dataview"


class Dataview(Struct, frozen=True):
    """A service with a grant. `proved`: by the state as of the last closed bundle, not the log
    alone.
    """

    identity: bytes
    proved: bool


def dataviews(enclave: Enclave, owner: bytes) -> list[Dataview]:
    """Return the current grants. Where log and state differ, the log is ahead by an open bundle."""
    logged = dict[bytes, bool]()
    for item in enclave.query(type=["Grant", "Revoke", "AC_Bundle"]):
        if item.author == owner:
            logged.update(_changes(item))
    try:
        proved = [member.identity for member in enclave.members() if DATAVIEW in member.traits]
    except TreeSizeNotFound:  # no bundle was closed yet
        proved = []
    return [Dataview(who, who in proved) for who in dict.fromkeys([*proved, *logged]) if logged.get(who, True)]


def _changes(item: Item) -> Iterator[tuple[bytes, bool]]:
    """Yield each identity that an event grants (True) or revokes (False)."""
    try:
        content = content_object(item.event)
        operations = content.get("operations") if item.type == "AC_Bundle" else [{**content, "type": item.type}]
        for each in operations if isinstance(operations, list) else ():
            if isinstance(each, dict) and each.get("type") in ("Grant", "Revoke") and each.get("trait") == DATAVIEW:
                yield unhex(each.get("target"), 32, "target"), each["type"] == "Grant"
    except PeerError:  # an honest node would have rejected it: ignore it
        return
