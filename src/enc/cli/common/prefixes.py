"""Resolves the first digits of keys and ids.

A prefix stands only for one of the keys or ids that the caller gives: anybody can make keys with the same first
digits. Where the key itself is what the user trusts, `check_whole` rejects prefixes.
"""

from collections.abc import Mapping

from enc.core.errors import MisuseError

MIN_DIGITS = 8
"""Least digits of the prefix of a key or an enclave's id: as many as tables and chats show."""
MIN_ENTRY = 4
"""Least digits of the prefix of an entry's id, among entries that the command has read."""
WHOLE = 64
MAX_LISTED = 8
"""Most candidates that an error lists."""

Known = Mapping[bytes, str]
"""Keys or ids, each with a name or another remark; "" if there is none."""


def is_whole(word: str) -> bool:
    return len(word) == WHOLE and _is_hex(word)


def is_prefix(word: str, least: int = MIN_DIGITS) -> bool:
    """Return whether a word may be the start of a key or id, as typed or as `short` prints it."""
    return least <= len(_digits(word)) < WHOLE and _is_hex(_digits(word))


def starting(word: str, known: Known) -> Known:
    """Return those of `known` that start with the word, in order."""
    digits = _digits(word)
    return {id_: known[id_] for id_ in sorted(known) if id_.hex().startswith(digits)}


def pick(word: str, known: Known, kind: str, otherwise: str = "give all 64 hex digits") -> bytes:
    """Return the only one of `known` that starts with the word. Raises MisuseError, with the candidates."""
    found = starting(word, known)
    if not found:
        raise MisuseError(f"{word}: no {kind} starts with this: {otherwise}")
    if len(found) > 1:
        listed = ", ".join(
            f"{id_.hex()} ({name})" if name else id_.hex() for id_, name in [*found.items()][:MAX_LISTED]
        )
        more = f" and {len(found) - MAX_LISTED} more" if len(found) > MAX_LISTED else ""
        raise MisuseError(f"{word}: more than one {kind} starts with this: {listed}{more}; give more digits")
    return next(iter(found))


def check_whole(word: str, what: str) -> None:
    """Raise MisuseError unless the word is a whole key. For keys that the user trusts."""
    if not is_whole(word):
        reason = "; a prefix is not enough, because anybody can make a key that starts with it"
        raise MisuseError(
            f"{what}: expected a whole key, 64 hex digits, not {word!r}{reason if is_prefix(word) else ''}"
        )


def _digits(word: str) -> str:
    return word.strip().removesuffix("…").lower()


def _is_hex(word: str) -> bool:
    return not set(word.lower()) - set("0123456789abcdef")
