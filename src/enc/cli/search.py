"""What is searched for, as flags say it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

import typer

from enc.core.errors import MisuseError

Types = Annotated[list[str] | None, typer.Option("--type", metavar="TYPE", help="Of this type; may be repeated.")]
Authors = Annotated[list[str] | None, typer.Option("--author", metavar="ID", help="By this identity; may be repeated.")]
Ids = Annotated[list[str] | None, typer.Option("--id", metavar="ID", help="With this id; may be repeated.")]
Seqs = Annotated[
    str | None, typer.Option("--seq", metavar="A:B", help="In these places of the log, both included; A:, :B or N too.")
]
SearchTags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME[=VALUE]", help="With this tag; may be repeated: all names, any value of each."),
]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="At this time or later: an ISO time, or Unix milliseconds.")
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.")]


def as_tag(text: str) -> tuple[str, ...]:
    """NAME or NAME=VALUE."""
    name, equals, value = text.partition("=")
    return (name, value) if equals else (name,)


def as_tags(texts: Sequence[str]) -> dict[str, Any]:
    """The filter's tags: the values of each name, or that it is there."""
    found: dict[str, list[str]] = {}
    for name, *values in map(as_tag, texts):
        found.setdefault(name, []).extend(values)
    return {name: values or True for name, values in found.items()}


def as_seq(text: str) -> Any:
    """N, A:B, A: or :B."""
    first, colon, last = text.partition(":")
    if not all(part == "" or part.isdecimal() for part in (first, last)) or not (first or last):
        raise MisuseError("--seq: expected N, A:B, A: or :B")
    if not colon:
        return int(first)
    return {**({"start_at": int(first)} if first else {}), **({"end_at": int(last)} if last else {})}


def as_ms(text: str, flag: str) -> int:
    """Unix milliseconds; an ISO time without an offset is local time."""
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
    """What `Enclave.query` and `Enclave.subscribe` take."""
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
