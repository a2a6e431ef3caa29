"""Reads the tags of a mailbox's events: their unsealed part."""

from enc.client.wire.transport import base_url
from enc.core.errors import MisuseError
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import Event

AT_TAG, FROM_TAG, TO_TAG, MAILBOX_TAG, NODE_TAG = "at", "from", "to", "enclave_id", "node"


def tag_value(event: Event, name: str) -> str:
    """Return the value of the first tag with this name; "" if there is none."""
    return next((tag[1] for tag in event.tags if tag[0] == name and len(tag) > 1), "")


def claimed_time(text: str, most: int) -> int:
    """Return the time an author claims, but no later than `most`, the time of the event itself."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT))
    return min(int(text), most) if is_number else most


def claimed_url(text: str) -> str | None:
    """Return the URL an author claims; None if it is invalid."""
    try:
        return base_url(text)
    except MisuseError:
        return None
