"""The index keys of tags."""

from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Tags
from enc.node.store.sqlite.event_rows import MAX_SEQ, SEQ_BITS, first8


def tag8(name: str, value: str | None = None) -> int:
    """Return the index key of a tag by its name and value, or, without a value, by its name."""
    return first8(sha256(name.encode() if value is None else f"{name}\0{value}".encode()))


def tag_rows(k: int, tags: Tags) -> set[tuple[int, int, int]]:
    """Return the rows of table `tags` for the event with key `k`: each tag by name, and by name and
    value.
    """
    found = {tag8(*tag[:strings]) for tag in tags for strings in (1, 2)}
    return {(k >> SEQ_BITS, t8, k & MAX_SEQ) for t8 in found}


def auto_delete(*all_tags: Tags) -> int | None:
    """Return the earliest time of any `auto-delete` tag. Admission has checked their form."""
    return min((int(tag[1]) for tags in all_tags for tag in tags if tag[0] == "auto-delete"), default=None)
