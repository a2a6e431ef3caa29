"""The fold over an enclave's contents: the current content of every content event. Pure; no Spark.

An Update replaces its target's content, and a Delete removes it permanently. Removed contents are
absent from the table and are erased from the events too, except in a registry, whose entries stay
public.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from enc.core.primitives.encoding import MAX_INT

Row = dict[str, Any]
REVISIONS = ("Update", "Delete")
LAST_MS = 253_402_300_799_999
"""The end of the year 9999: not every reader of a table accepts later times."""


class ContentFold:
    """One pass over events. `known`: existing rows of the contents that these events revise."""

    def __init__(self, known: Mapping[str, Row], *, registry: bool) -> None:
        self._known, self._registry = known, registry
        self.changed: dict[str, Row] = {}
        self.erased: dict[str, Row] = {}
        """By id, the events whose contents are to be erased."""

    def apply(self, event: Row) -> None:
        """Apply a row of `events` that is not a control event, in order of seq; `timestamp` is in
        milliseconds.
        """
        if event["type"] in REVISIONS:
            self._revise(event)
        else:
            self.changed[event["id"]] = {
                **{name: event[name] for name in _COPIED},
                **dict.fromkeys(("revision", "revised_seq", "revised_by", "revised_at")),
                "status": "active",
                "expires_at": auto_delete_at(event["tags"]),
            }

    def _revise(self, event: Row) -> None:
        """Apply a revision. Without its target it has no effect until the target arrives and the
        enclave is folded again.
        """
        target = revised_id(event["tags"]) or ""
        row = self.changed.get(target) or self._known.get(target)
        if row is None or row["status"] == "deleted" or (row["revised_seq"] or 0) >= event["seq"]:
            return
        self._erase(row["seq"], row["id"])
        if row["revision"] is not None:
            self._erase(row["revised_seq"], row["revision"])
        is_delete = event["type"] == "Delete"
        content = (row["content"] if self._registry else None) if is_delete else event["content"]
        times = [time for time in (row["expires_at"], auto_delete_at(event["tags"])) if time is not None]
        self.changed[target] = {
            **row,
            "status": "deleted" if is_delete else "updated",
            "content": content,
            "content_hash": row["content_hash"] if is_delete else event["content_hash"],
            "withheld": None if is_delete else event["withheld"],
            "revision": event["id"],
            "revised_seq": event["seq"],
            "revised_by": event["author"],
            "revised_at": event["timestamp"],
            "expires_at": min(times, default=None),
        }

    def _erase(self, seq: int, id_: str) -> None:
        if not self._registry:
            self.erased[id_] = {"seq": seq, "id": id_}


_COPIED = "id seq type author timestamp content content_hash tags withheld".split()

Tags = Sequence[Sequence[str]] | None


def revised_id(tags: Tags) -> str | None:
    """Return the id that an Update's or Delete's `r` tag names."""
    return _first(tags, "r")


def auto_delete_at(tags: Tags) -> int | None:
    """Return when the content expires by its tag; None without a tag, or if no table can hold the
    time.
    """
    text = _first(tags, "auto-delete") or ""
    time = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(MAX_INT)) else LAST_MS + 1
    return time if time <= LAST_MS else None


def _first(tags: Tags, name: str) -> str | None:
    return next((tag[1] for tag in tags or () if len(tag) > 1 and tag[0] == name), None)
