"""The contents of a personal enclave, computed from its events: the same on every device."""

from msgspec import Struct
from msgspec.structs import replace

from enc.client.verify.items import Item
from enc.core.errors import MisuseError
from enc.core.primitives.types import Tags, Withheld
from enc.core.rules.content import revised_id

PUBLIC, PRIVATE, NOTICE = "public", "private", "notice"
TYPES = (PUBLIC, PRIVATE, NOTICE, "Update", "Delete")
"""The types that matter here; other events are ignored."""


MAX_NOTICE = 64 << 10
"""Characters of a notice's content. Its author chooses the size, and the recipient stores it."""


class LedgerEntry(Struct, frozen=True):
    """An event that was not deleted, with its current content, which is still sealed."""

    id: bytes
    type: str
    seq: int
    author: bytes
    created: int
    changed: int
    """Unix milliseconds, by the node's clock."""
    content: str | None
    """None: replaced by an Update that has not been read yet; erased at its `auto-delete` time; or
    a notice that is too long; or withheld.
    """
    tags: Tags
    withheld: Withheld | None = None
    """The verified statement of a node that it withholds the content."""


class Ledger:
    """Feed it the enclave's events by rising seq, from the log or live. It sends no requests.

    Posts, documents, Updates and Deletes count only if the owner signed them, whatever a node
    shows.
    """

    def __init__(self, owner: bytes) -> None:
        self._owner = owner
        self._entries: dict[bytes, LedgerEntry] = {}
        self.last = -1
        """The seq of the last event that was applied."""

    def apply(self, item: Item) -> None:
        if item.seq <= self.last:
            raise MisuseError(f"event {item.seq} was fed after event {self.last}: feed them by rising seq")
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
        self._entries[item.id] = LedgerEntry(
            item.id,
            item.type,
            item.seq,
            item.author,
            event.timestamp,
            event.timestamp,
            content,
            event.tags,
            event.withheld,
        )

    def _revise(self, item: Item) -> None:
        target = revised_id(item.event)
        entry = self._entries.get(target)
        if entry is None:
            return
        if item.type == "Delete":
            del self._entries[target]
        elif entry.type != NOTICE:
            current = {"content": item.content, "withheld": item.withheld}
            self._entries[target] = replace(entry, **current, changed=item.event.timestamp)

    def entries(self, type_: str) -> list[LedgerEntry]:
        """Return the entries of one type, the oldest first."""
        return [entry for entry in self._entries.values() if entry.type == type_]

    def get(self, id_: bytes) -> LedgerEntry | None:
        return self._entries.get(id_)
