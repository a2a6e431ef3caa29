"""Bounds the JSON in the contents that rules read, before any of it is parsed.

A content of 1 MiB may hold half a million values, and parsing them by the protocol's strict rules
takes up to half a second on a thread that all commits need.
"""

import re
from itertools import islice

from enc.core.errors import InvalidCommit
from enc.core.primitives.types import REGISTRY_TYPES, Commit
from enc.core.rules.dialects import READ_BY_RULES

PARSED = READ_BY_RULES - {"Manifest"}
"""A Manifest has a bound of its own, and is parsed apart."""
MAX_PARTS, MAX_BUNDLE_PARTS, MAX_VALUE_PARTS = 256, 32_768, 8_192
"""Most strings, commas, colons and opening brackets: of one operation, of an AC_Bundle (nearly twice
what 1,000 operations need) or a Move (which may carry a group's epoch), and of what may hold a value
of any form.
"""
_MOST = {
    **dict.fromkeys(("AC_Bundle", "Move"), MAX_BUNDLE_PARTS),
    **dict.fromkeys(("Shared", "Own", *REGISTRY_TYPES), MAX_VALUE_PARTS),
}

_part = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[,:\[{]', re.DOTALL).finditer
"""Matches a string also without its end, so that no text is read twice."""


def check_parts(commit: Commit) -> None:
    """Raise InvalidCommit if the content has too many parts. Reads no more than those."""
    text, most = commit.content or "", _MOST.get(commit.type, MAX_PARTS)
    if commit.type not in PARSED or len(text) <= most:
        return
    if next(islice(_part(text), most, None), None) is not None:
        raise InvalidCommit(
            f"content: this node accepts at most {most:,} strings, commas, colons and brackets in the JSON "
            f"of a {commit.type}; put large data into an event of a type of your own, or into one string"
        )
