"""What stands in a personal enclave, folded from its events: the same on every device that reads the same log."""

from msgspec import Struct
from msgspec.structs import replace

from enc.client.items import Item
from enc.core.content import revised_id
from enc.core.errors import MisuseError
from enc.core.types import Tags

PUBLIC, PRIVATE, NOTICE = "public", "private", "notice"
TYPES = (PUBLIC, PRIVATE, NOTICE, "Update", "Delete")
"""What the fold takes; other events change nothing here."""


MAX_NOTICE = 64 << 10
"""Characters of a notice's content: whoever writes one chooses its size, and its recipient keeps all of them."""


class Entry(Struct, frozen=True):
    """An event that stands, with the content that it has now. Sealed contents are sealed still."""

    id: bytes
    type: str
    seq: int
    author: bytes
    created: int
    changed: int
    """Unix milliseconds, by the node's clock."""
    content: str | None
    """None: a later Update replaced it, and has not come yet; its `auto-delete` time erased it; or it is a notice past
    its size."""
    tags: Tags


class Ledger:
    """Feed it the enclave's events by rising seq, from the log or live. Nothing is asked of anybody.

    Posts and documents count only if the owner signed them, and so do Updates and Deletes: whatever a node lets in.
    """

    def __init__(self, owner: bytes) -> None:
        self._owner = owner
        self._entries: dict[bytes, Entry] = {}
        self.last = -1
        """The seq of the last event that was taken."""

    def take(self, item: Item) -> None:
        if item.seq <= self.last:
            raise MisuseError(f"event {item.seq} comes after event {self.last}: feed them by rising seq")
        self.last = item.seq
        if item.type in (PUBLIC, PRIVATE, NOTICE):
            self._enter(item)
        elif item.author == self._owner and item.type in ("Update", "Delete"):
            self._revise(item)

    def _enter(self, item: Item) -> None:
        if (item.author == self._owner) == (item.type == NOTICE):
            return
        event, content = item.event, item.content
        if item.type == NOTICE and len(content or "") > MAX_NOTICE:
            content = None
        self._entries[item.id] = Entry(
            item.id, item.type, item.seq, item.author, event.timestamp, event.timestamp, content, event.tags
        )

    def _revise(self, item: Item) -> None:
        target = revised_id(item.event)
        entry = self._entries.get(target)
        if entry is None:
            return
        if item.type == "Delete":
            del self._entries[target]
        elif entry.type != NOTICE:
            self._entries[target] = replace(entry, content=item.content, changed=item.event.timestamp)

    def entries(self, type_: str) -> list[Entry]:
        """Those of one type that stand, the oldest first."""
        return [entry for entry in self._entries.values() if entry.type == type_]

    def get(self, id_: bytes) -> Entry | None:
        return self._entries.get(id_)
