"""The conversation: messages, announcements, reactions, edits and deletions, opened in log
order.
"""

from collections.abc import Iterator
from typing import Literal, cast

from msgspec import Struct
from msgspec.structs import replace

from enc.apps.group.epochs import Epochs
from enc.apps.group.membership import SEALED
from enc.apps.group.views import EntryKind, GroupEntry, Reaction
from enc.core.errors import EncError, InvalidCommit
from enc.core.primitives.encoding import unhex
from enc.core.primitives.types import Event, Withheld
from enc.core.rules.content import revised_id
from enc.core.sealed_forms.group_message import check_place, open_message, read_sealed

REPLY, AGAIN = ("r", "reply"), ("again",)
"""Tags, without the id: the entry that is answered; and the sender's own failed event that this one
sends again."""
TO = ("r",)
"""The tag of a reaction's entry."""
REPEAT = "sealed with a key that was used before"

ContentKind = Literal["message", "notice", "edit", "delete", "reaction"]


class OpenedContent(Struct, frozen=True):
    """The result of opening a sealed content."""

    text: str | None = None
    why: str = ""
    epoch: int | None = None
    is_late: bool = False
    withheld: Withheld | None = None

    @property
    def is_repeat(self) -> bool:
        return self.why == REPEAT


class Messages:
    """`apply` every event that the membership has applied, after the epochs."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self.entries: dict[bytes, GroupEntry] = {}
        """In log order."""
        self._reactions: dict[bytes, dict[bytes, Reaction]] = {}
        self._reacted: dict[bytes, bytes] = {}
        """The entry of each reaction."""
        self._used: set[tuple[bytes, int, int]] = set()
        """Sender, epoch and sender_seq of everything sealed so far."""
        self._sealed: dict[bytes, list[int]] = {}
        """The seqs of what each author has sealed, erased or not."""
        self.verdicts: dict[bytes, OpenedContent] = {}
        """Results for events that did not open, our own included."""

    def apply(self, event: Event) -> tuple[ContentKind, GroupEntry | None, Reaction | None] | None:
        """Apply an event; return what it does to the conversation, or None."""
        if event.type in SEALED or event.type == "Update":
            self._sealed.setdefault(event.from_, []).append(event.seq)
        if event.type in ("message", "notice"):
            return self._entry(event)
        if event.type == "reaction":
            return self._reaction(event)
        if event.type == "Update":
            return self._edit(event)
        return self._delete(event) if event.type == "Delete" else None

    def shown(self, id_: bytes) -> GroupEntry | None:
        """Return an entry as it is now, with its reactions."""
        entry = self.entries.get(id_)
        found = self._reactions.get(id_)
        return entry if entry is None or not found else replace(entry, reactions=tuple(found.values()))

    def all(self) -> Iterator[GroupEntry]:
        for id_ in self.entries:
            entry = self.shown(id_)
            if entry is not None:
                yield entry

    def next_sender_seq(self, sender: bytes, n: int, gaps: list[int]) -> int:
        """Return a number that the sender has not used in the epoch.

        An erased or deleted event no longer shows its number. But every device of the sender counts
        in this way, and empty seqs count too, so none can have used a number this high.
        """
        since = self._epochs.counted[n].seq
        places = sum(seq > since for seq in self._sealed.get(sender, ())) + sum(seq > since for seq in gaps)
        while (sender, n, places) in self._used:
            places += 1
        return places

    def is_used(self, sender: bytes, n: int, sender_seq: int) -> bool:
        """Return whether the log shows an event that the sender sealed with this key."""
        return (sender, n, sender_seq) in self._used

    # Opening

    def _open(self, event: Event) -> OpenedContent:
        if event.content is None:
            why = "its content was erased" if event.withheld is None else "the node withholds its content"
            return OpenedContent(why=why, withheld=event.withheld)
        opened = self._judged(event)
        if opened.text is None:
            self.verdicts[event.id] = opened
        return opened

    def _judged(self, event: Event) -> OpenedContent:
        try:
            sealed = read_sealed(event.content or "")
            if sealed.epoch >= len(self._epochs.counted):
                raise InvalidCommit(self._unknown_epoch())
            epoch = self._epochs.counted[sealed.epoch]
            check_place(sealed, event.seq, epoch.seq)
        except EncError as e:
            return OpenedContent(why=e.message)
        is_late = sealed.epoch + 1 < len(self._epochs.counted)
        found = OpenedContent(epoch=sealed.epoch, is_late=is_late)
        used = event.from_, sealed.epoch, sealed.sender_seq
        if used in self._used:
            return replace(found, why=REPEAT)
        self._used.add(used)
        chain = self._epochs.chain(sealed.epoch, event.from_)
        if chain is None:
            return replace(found, why="sealed in an epoch whose secret we do not hold")
        try:
            return replace(found, text=open_message(chain, sealed))
        except EncError as e:
            return replace(found, why=e.message)

    def _unknown_epoch(self) -> str:
        """Return why an epoch is unknown: it may be in an event whose content a node withholds."""
        seq = next((view.seq for view in self._epochs.views if view.withheld is not None), None)
        if seq is None:
            return "sealed under an epoch that does not count"
        return f"sealed under an epoch that is unknown here: the node withholds the content of event {seq}"

    # Kinds of events

    def _entry(self, event: Event) -> tuple[ContentKind, GroupEntry | None, Reaction | None]:
        opened, kind = self._open(event), cast(EntryKind, event.type)
        self._drop_first_try(event, opened.text)
        entry = GroupEntry(
            id=event.id,
            seq=event.seq,
            kind=kind,
            author=event.from_,
            timestamp=event.timestamp,
            text=opened.text,
            why=opened.why,
            epoch=opened.epoch,
            is_late=opened.is_late,
            withheld=opened.withheld,
            reply_to=_tagged(event, REPLY),
        )
        if not opened.is_repeat:
            self.entries[event.id] = entry
        return kind, entry, None

    def _drop_first_try(self, event: Event, text: str | None) -> None:
        """Remove the first try of an event that was sent again: nobody should see both (the event
        that used its key first may be erased by now).

        An entry with another text stays: only a Delete removes it, and leaves a trace.
        """
        first = _tagged(event, AGAIN)
        old = None if first is None else self.entries.get(first)
        if old is not None and (old.author, old.text) == (event.from_, text):
            del self.entries[old.id]

    def _reaction(self, event: Event) -> tuple[ContentKind, GroupEntry | None, Reaction | None]:
        opened, to = self._open(event), _tagged(event, TO)
        if opened.text is None or to is None:
            return "reaction", None if to is None else self.shown(to), None
        reaction = Reaction(event.id, event.from_, opened.text)
        self._drop_reaction(_tagged(event, AGAIN), event.from_)
        self._reactions.setdefault(to, {})[event.id] = reaction
        self._reacted[event.id] = to
        return "reaction", self.shown(to), reaction

    def _drop_reaction(self, id_: bytes | None, author: bytes | None = None) -> bytes | None:
        to = None if id_ is None else self._reacted.get(id_)
        if id_ is None or to is None or (author is not None and self._reactions[to][id_].author != author):
            return None
        del self._reactions[to][id_], self._reacted[id_]
        return to

    def _edit(self, event: Event) -> tuple[ContentKind, GroupEntry | None, Reaction | None]:
        """Apply an edit. The latest one counts even if it does not open: the node erased the former
        text.
        """
        opened, id_ = self._open(event), revised_id(event)
        old = self.entries.get(id_)
        if old is None:
            return "edit", None, None
        now = {"text": opened.text, "why": opened.why, "epoch": opened.epoch, "is_late": opened.is_late}
        self.entries[id_] = replace(old, **now, withheld=opened.withheld, is_edited=True)
        return "edit", self.shown(id_), None

    def _delete(self, event: Event) -> tuple[ContentKind, GroupEntry | None, Reaction | None]:
        id_ = revised_id(event)
        to = self._drop_reaction(id_)
        if to is not None:
            return "delete", self.shown(to), None
        old = self.entries.get(id_)
        if old is None:
            return "delete", None, None
        self.entries[id_] = replace(old, text=None, why="deleted", withheld=None, is_deleted=True)
        return "delete", self.shown(id_), None


def _tagged(event: Event, wanted: tuple[str, ...]) -> bytes | None:
    """Return the event that a tag of this kind names."""
    for tag in event.tags:
        if len(tag) >= 2 and (tag[0], *tag[2:]) == wanted:
            try:
                return unhex(tag[1], 32, f"tags: {tag[0]}")
            except EncError:
                return None
    return None


def tag(kind: tuple[str, ...], event_id: bytes) -> tuple[str, ...]:
    """Return a tag of this kind that names an event."""
    return (kind[0], event_id.hex(), *kind[1:])
