"""A line of a conversation, as a chat shows it: in words, before it has colours and a place."""

from msgspec import Struct

from enc.cli.output import visible, when

YOU = "you"


class Line(Struct, frozen=True, kw_only=True):
    """Who says it, and what it says; a text has lines of its own."""

    timestamp: int
    who: str = ""
    """"" if it is no person's word."""
    text: str
    number: str = ""
    """By which commands name it."""
    marks: str = ""
    """What is to be known of it: edited, delivered, …"""
    quote: str = ""
    """What it answers."""
    is_notice: bool = False
    is_faint: bool = False
    """There is no text to read, but a word about it."""
    is_trouble: bool = False
    """The marks say that something went wrong."""
    is_passing: bool = False
    """Something more of it will come; who reads it later need not see this one."""
    key: str = ""
    """What it is about. It takes the place of a line about the same, if that is the last one."""

    def plain(self) -> str:
        text = self.text.replace("\n", "\n    ")
        said = f"{self.who}: {text}" if self.who else f"* {text}"
        if self.is_notice:
            said = f"[announcement] {said}"
        quote = f"(re {self.quote})" if self.quote else ""
        parts = (self.number, when(self.timestamp), said, quote, self.marks)
        return "  ".join(part for part in parts if part)


def shown_text(text: str) -> str:
    """What somebody wrote, with its lines, and without what would command a terminal."""
    return "\n".join(map(visible, text.split("\n")))
