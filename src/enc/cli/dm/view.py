"""Presentation of direct messages: lines of a chat for people, objects for programs."""

from typing import TYPE_CHECKING, Any

from enc.cli.chat.line import YOU, ChatLine, visible_lines
from enc.cli.common.output import visible, wire_statement, withheld_text

if TYPE_CHECKING:
    from enc.apps.dm import ThreadEntry

_MARKS = {"pending": "…", "delivered": "✓", "refused": "✗", "removed": "✓ (deleted by them)"}


def line_of(entry: "ThreadEntry", me: bytes, name: str) -> ChatLine:
    """Return a chat line; `name` is the contact's."""
    is_mine = entry.author == me
    marks = ["(edited)"] if entry.is_edited else []
    if is_mine and entry.state in _MARKS:
        marks.append(_MARKS[entry.state])
    if entry.code and entry.state != "unreadable":
        marks.append(entry.code)
    return ChatLine(
        timestamp=entry.at,
        who=YOU if is_mine else visible(name),
        text=_text(entry),
        marks=" ".join(marks),
        is_faint=entry.text is None or entry.state in ("retracted", "unreadable"),
        is_error=entry.state == "refused" or bool(entry.code),
        is_transient=entry.state == "pending",
        key=entry.ref.hex(),
    )


def _text(entry: "ThreadEntry") -> str:
    if entry.state == "retracted":
        return "(retracted)"
    if entry.state == "unreadable":
        return f"(cannot be read: {entry.code})"
    if entry.withheld is not None:
        return f"[{withheld_text(entry.withheld.reason, entry.withheld.ts)}]"
    text = "(not here yet)" if entry.text is None else visible_lines(entry.text)
    return f"(invites) {text}" if entry.kind == "invite" else text


def wire_entry(entry: "ThreadEntry") -> dict[str, Any]:
    return {
        "id": entry.id.hex(),
        "at": entry.at,
        "author": entry.author.hex(),
        "text": entry.text,
        "state": entry.state,
        "edited": entry.is_edited,
        "code": entry.code,
        "kind": entry.kind,
        "withheld": wire_statement(entry.withheld),
    }
