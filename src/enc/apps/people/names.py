"""Names that a user gives to people and groups."""

import string
import unicodedata

from enc.core.errors import MisuseError

MAX_NAME = 64
SCHEME = "enc:"
"""Start of a link."""


def folded(name: str) -> str:
    """Return the key under which a name is stored: without case, composition and width."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name.strip()).casefold())


def check_name(name: str) -> str:
    """Return the name as it is stored; raise MisuseError if it could be mistaken for a key, a link
    or a flag.
    """
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise MisuseError(f"name: expected 1 to {MAX_NAME} printable characters")
    if is_key(name) or name.startswith("-") or is_link(name):
        raise MisuseError("name: must not look like a key, a link or a flag")
    return name


def is_key(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdefABCDEF" for c in text)


def is_link(word: str) -> bool:
    """Return whether a word is an `enc:` link, of whatever kind, as it was pasted."""
    return bare_link(word).startswith(SCHEME)


def bare_link(word: str) -> str:
    """Return a pasted link without surrounding white space and angle brackets."""
    return word.strip(string.whitespace + "<>‹›\u00a0")
