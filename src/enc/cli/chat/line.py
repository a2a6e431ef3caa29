"""A line of a conversation, before it gets colours and a layout."""

from msgspec import Struct

from enc.cli.common.output import format_time, visible

YOU = "you"


class ChatLine(Struct, frozen=True, kw_only=True):
    """One entry of a conversation. Its text may have several lines."""

    timestamp: int
    who: str = ""
    """The author's name; "" for a line without an author."""
    text: str
    number: str = ""
    """The number by which commands refer to it."""
    marks: str = ""
    """Its state: edited, delivered, …"""
    quote: str = ""
    """The entry that it answers."""
    is_notice: bool = False
    is_faint: bool = False
    """The text is a placeholder: the real one cannot be shown."""
    is_error: bool = False
    """The marks report an error."""
    is_transient: bool = False
    """A later line about the same entry will replace this one; a log can leave it out."""
    key: str = ""
    """Identifies the entry. A line replaces the last line on the screen if both have the same key."""

    def plain(self) -> str:
        text = self.text.replace("\n", "\n    ")
        entry = f"{self.who}: {text}" if self.who else f"* {text}"
        if self.is_notice:
            entry = f"[announcement] {entry}"
        quote = f"(re {self.quote})" if self.quote else ""
        parts = (self.number, format_time(self.timestamp), entry, quote, self.marks)
        return "  ".join(part for part in parts if part)


def visible_lines(text: str) -> str:
    """Return a text with its line breaks, and with all other control characters escaped."""
    return "\n".join(map(visible, text.split("\n")))
