"""Flags that select events, and their conversion to the client's filter."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from enc.core.errors import MisuseError

Types = Annotated[
    list[str] | None, typer.Option("--type", metavar="TYPE", help="Events of this type; may be repeated.")
]
Authors = Annotated[
    list[str] | None, typer.Option("--author", metavar="WHO", help="Events by this identity; may be repeated.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option(
        "--id", metavar="ID", help="The event with this id, or with its first 8 or more digits; may be repeated."
    ),
]
Seqs = Annotated[
    str | None, typer.Option("--seq", metavar="A:B", help="Range of seq, both ends included; or A:, :B, or N alone.")
]
SearchTags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="NAME[=VALUE]",
        help="Events with this tag; may be repeated: all names must match, with any of their values.",
    ),
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="At this time or later: an ISO time, or Unix milliseconds.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")]


def as_tag(text: str) -> tuple[str, ...]:
    """Parse NAME or NAME=VALUE."""
    name, equals, value = text.partition("=")
    return (name, value) if equals else (name,)


def as_tags(texts: Sequence[str]) -> dict[str, Any]:
    """Return the filter's tags: for each name its values, or True if any value matches."""
    found: dict[str, list[str]] = {}
    for name, *values in map(as_tag, texts):
        found.setdefault(name, []).extend(values)
    return {name: values or True for name, values in found.items()}


def as_seq(text: str) -> Any:
    """Parse N, A:B, A: or :B. Raises MisuseError."""
    first, colon, last = text.partition(":")
    if not all(part == "" or part.isdecimal() for part in (first, last)) or not (first or last):
        raise MisuseError("--seq: expected N, A:B, A: or :B")
    if not colon:
        return int(first)
    return {**({"start_at": int(first)} if first else {}), **({"end_at": int(last)} if last else {})}


def as_ms(text: str, flag: str) -> int:
    """Parse Unix milliseconds or an ISO time; without an offset it is local time. Raises MisuseError."""
    if text.isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise MisuseError(f"{flag}: expected a time such as 2026-01-31T12:00, or Unix milliseconds") from None


def as_search(
    types: list[str] | None = None,
    authors: list[str] | None = None,
    tags: list[str] | None = None,
    ids: list[str] | None = None,
    seq: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> dict[str, Any]:
    """Return keyword arguments for `Enclave.query` and `Enclave.subscribe`."""
    times = {
        **({"start_at": as_ms(since, "--since")} if since else {}),
        **({"end_before": as_ms(until, "--until")} if until else {}),
    }
    return {
        "type": types or None,
        "author": authors or None,
        "tags": as_tags(tags) if tags else None,
        "id": ids or None,
        "seq": as_seq(seq) if seq is not None else None,
        "timestamp": times or None,
    }
