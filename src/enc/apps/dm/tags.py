"""The tags of a mailbox's events: what stands in the open, as it is read."""

from enc.client.transport import base_url
from enc.core.encoding import MAX_INT
from enc.core.errors import MisuseError
from enc.core.types import Event

AT_TAG, FROM_TAG, TO_TAG, MAILBOX_TAG, NODE_TAG = "at", "from", "to", "enclave_id", "node"


def tag_value(event: Event, name: str) -> str:
    """The value of the first tag of this name; empty where there is none."""
    return next((tag[1] for tag in event.tags if tag[0] == name and len(tag) > 1), "")


def time_said(text: str, most: int) -> int:
    """A time that an author says, where it may be true: no later than the event that says it."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INT))
    return min(int(text), most) if is_number else most


def url_said(text: str) -> str | None:
    try:
        return base_url(text)
    except MisuseError:
        return None
