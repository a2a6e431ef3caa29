"""Private documents: sealed for their owner, so they are listed and searched here, not by the
node.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from enc.apps.personal.ledger import LedgerEntry
from enc.client import Identity
from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.primitives.encoding import compact_json, strict_json
from enc.core.primitives.types import Withheld
from enc.core.sealed_forms.personal import open_private, seal_private

MAX_PLAINTEXT = 500_000
"""Bytes of a document as JSON. Sealed and in hex it is twice as long; a content has at most 1
MiB.
"""
FIELDS = ("kind", "name", "text")
BOOK_KIND = "enc-address-book"
"""The kind of the events of the owner's address book, which are not listed as documents."""


class NoDocument(DecryptFailed):
    """It opens, but does not have the form of this app's documents."""

    code = "NO_DOCUMENT"


class ContentWithheld(NoDocument):
    """The node withholds the content, by its signed statement."""

    code = "WITHHELD"

    def __init__(self, statement: Withheld) -> None:
        super().__init__(f"content: the node withholds it ({statement.reason})")
        self.statement = statement


class Document(Struct, frozen=True):
    id: bytes
    seq: int
    kind: str
    name: str
    text: str
    created: int
    changed: int
    more: Mapping[str, Any] = {}
    """Fields of other programs, which changes made here preserve."""


class Unreadable(Struct, frozen=True):
    """A document that is withheld or does not open, and why. Listed beside the others, so that none is lost
    unseen.
    """

    id: bytes
    seq: int
    error: DecryptFailed

    @property
    def withheld(self) -> Withheld | None:
        """The verified statement of a node that it withholds the content."""
        return self.error.statement if isinstance(self.error, ContentWithheld) else None


def seal_document(owner: Identity, enclave: bytes, fields: Mapping[str, Any], nonce: bytes) -> str:
    """Seal a document as an event's content. `fields`: `kind`, `name`, `text`, and any others."""
    for field in FIELDS:
        if not isinstance(fields.get(field), str):
            raise MisuseError(f"{field}: expected a text")
    plaintext = compact_json(dict(fields)).encode()
    if len(plaintext) > MAX_PLAINTEXT:
        raise MisuseError(f"document: {len(plaintext)} bytes; at most {MAX_PLAINTEXT} are allowed")
    return seal_private(owner.key, enclave, plaintext, nonce)


def open_document(owner: Identity, enclave: bytes, entry: LedgerEntry) -> Document:
    """Open a document. Raise DecryptFailed (another key, or altered), Truncated or NoDocument."""
    if entry.content is None:
        raise NoDocument("content: erased") if entry.withheld is None else ContentWithheld(entry.withheld)
    raw = open_private(owner.key, enclave, entry.content)
    try:
        fields = strict_json(raw.decode())
    except (InvalidCommit, UnicodeDecodeError):
        raise NoDocument("sealed: not JSON") from None
    if not isinstance(fields, dict) or any(not isinstance(fields.get(name), str) for name in FIELDS):
        raise NoDocument(f"sealed: expected an object with {', '.join(FIELDS)}")
    kind, name, text = (fields.pop(field) for field in FIELDS)
    return Document(entry.id, entry.seq, kind, name, text, entry.created, entry.changed, fields)


def plain(document: Document) -> dict[str, Any]:
    """Return the fields as they are sealed."""
    return {**document.more, "kind": document.kind, "name": document.name, "text": document.text}


def search(documents: Iterable[Document], words: str) -> list[Document]:
    """Return the documents whose name, kind and text contain all the words, in any case."""
    wanted = words.casefold().split()
    return [each for each in documents if all(word in _haystack(each) for word in wanted)]


def _haystack(document: Document) -> str:
    return f"{document.kind}\n{document.name}\n{document.text}".casefold()
