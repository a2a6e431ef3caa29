"""Bounds the JSON in the contents that rules read, before any of it is parsed.

A content of 1 MiB may hold half a million values, and parsing them by the protocol's strict rules
takes up to half a second on a thread that all commits need.
"""

import re
from itertools import islice

from enc.core.errors import InvalidCommit
from enc.core.primitives.types import Commit
from enc.core.rules.dialects import READ_BY_RULES

MAX_PARTS = 32_768
"""Most strings, commas, colons and opening brackets: nearly twice what 1,000 operations need."""
PARSED = READ_BY_RULES - {"Manifest"}
"""A Manifest has a bound of its own, and is parsed apart."""

_part = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[,:\[{]', re.DOTALL).finditer
"""Matches a string also without its end, so that no text is read twice."""


def check_parts(commit: Commit) -> None:
    """Raise InvalidCommit if the content has too many parts. Reads no more than those."""
    text = commit.content or ""
    if commit.type not in PARSED or len(text) <= MAX_PARTS:
        return
    if next(islice(_part(text), MAX_PARTS, None), None) is not None:
        raise InvalidCommit(
            f"content: this node accepts at most {MAX_PARTS:,} strings, commas, colons and brackets in the JSON "
            f"of a {commit.type}; put large data into an event of a type of your own, or into one string"
        )
