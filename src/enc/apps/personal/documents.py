"""Private documents: sealed for their owner alone, and so listed and searched here, not by the node."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from enc.apps.personal.ledger import Entry
from enc.client import Identity
from enc.core.encoding import compact_json, strict_json
from enc.core.errors import DecryptFailed, InvalidCommit, MisuseError
from enc.core.personal import open_private, seal_private

MAX_PLAINTEXT = 500_000
"""Bytes of a document as JSON: sealed and in hex it is twice that, and a content is a mebibyte at most."""
FIELDS = ("kind", "name", "text")


class NoDocument(DecryptFailed):
    """It opened, and is not of the form that documents of this app have."""

    code = "NO_DOCUMENT"


class Document(Struct, frozen=True):
    id: bytes
    seq: int
    kind: str
    name: str
    text: str
    created: int
    changed: int
    more: Mapping[str, Any] = {}
    """Fields of other programs': kept when it is changed here."""


class Unreadable(Struct, frozen=True):
    """A document that does not open here, and why: shown beside the others, so that nothing is lost unseen."""

    id: bytes
    seq: int
    error: DecryptFailed


def seal_document(owner: Identity, enclave: bytes, fields: Mapping[str, Any], nonce: bytes) -> str:
    """A content for the log. `fields`: `kind`, `name` and `text`, and what else a program keeps with them."""
    for field in FIELDS:
        if not isinstance(fields.get(field), str):
            raise MisuseError(f"{field}: expected a text")
    plaintext = compact_json(dict(fields)).encode()
    if len(plaintext) > MAX_PLAINTEXT:
        raise MisuseError(f"a document is at most {MAX_PLAINTEXT} bytes: this one is {len(plaintext)}")
    return seal_private(owner.key, enclave, plaintext, nonce)


def open_document(owner: Identity, enclave: bytes, entry: Entry) -> Document:
    """DecryptFailed where it was sealed with another key or changed, Truncated, or NoDocument."""
    if entry.content is None:
        raise NoDocument("its content is erased")
    raw = open_private(owner.key, enclave, entry.content)
    try:
        fields = strict_json(raw.decode())
    except (InvalidCommit, UnicodeDecodeError):
        raise NoDocument("what is sealed is not JSON") from None
    if not isinstance(fields, dict) or any(not isinstance(fields.get(name), str) for name in FIELDS):
        raise NoDocument(f"expected an object with {', '.join(FIELDS)}")
    kind, name, text = (fields.pop(field) for field in FIELDS)
    return Document(entry.id, entry.seq, kind, name, text, entry.created, entry.changed, fields)


def plain(document: Document) -> dict[str, Any]:
    """The fields that are sealed."""
    return {**document.more, "kind": document.kind, "name": document.name, "text": document.text}


def search(documents: Iterable[Document], words: str) -> list[Document]:
    """Those in whose name, kind or text every word stands, whatever its case."""
    wanted = words.casefold().split()
    return [each for each in documents if all(word in _haystack(each) for word in wanted)]


def _haystack(document: Document) -> str:
    return f"{document.kind}\n{document.name}\n{document.text}".casefold()
