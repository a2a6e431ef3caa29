"""Withheld contents on the screens of chats, and as JSON."""

from typing import Any, cast

from enc.apps.dm import ThreadEntry
from enc.apps.group import GroupEntry
from enc.apps.personal.documents import ContentWithheld, NoDocument, Unreadable
from enc.cli.common.output import format_time
from enc.cli.dm.view import line_of, wire_entry
from enc.cli.group.view import GroupView, wire
from enc.cli.me.documents import _why
from enc.core.log.withheld import sign_withheld, wire_withheld
from tests.core.world import START, person

BOB = person("bob").public
STATEMENT = sign_withheld(person("node"), b"\x01" * 32, b"\x02" * 32, "abuse", START)
TEXT = f"withheld by the node since {format_time(START)}: abuse"


def test_direct_messages() -> None:
    entry = ThreadEntry(START, b"\x02" * 32, BOB, None, "received", withheld=STATEMENT)
    line = line_of(entry, person("alice").public, "bob")
    assert (line.text, line.is_faint, line.is_error) == (f"[{TEXT}]", True, False)
    assert wire_entry(entry)["withheld"] == wire_withheld(STATEMENT)


def test_group_messages() -> None:
    entry = GroupEntry(id=b"\x02" * 32, seq=5, kind="message", author=BOB, timestamp=START, withheld=STATEMENT)
    assert GroupView(cast(Any, None), {})._text(entry) == f"[{TEXT}]"
    assert wire(entry)["withheld"] == wire_withheld(STATEMENT)


def test_documents() -> None:
    assert _why(Unreadable(b"", 3, ContentWithheld(STATEMENT))) == TEXT
    assert _why(Unreadable(b"", 3, NoDocument("content: erased"))) == "cannot be opened: content: erased"
