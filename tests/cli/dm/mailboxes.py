"""People with mailboxes, and the threads in them."""

from pathlib import Path
from typing import Any

from enc.cli.common import profiles
from enc.client import Identity
from tests.cli.people import Person
from tests.node.running import RunningNode

Pair = tuple[Person, Person]


def with_mailbox(home: Path, node: RunningNode) -> Person:
    """Return a person with a key, a node and a mailbox."""
    person = Person(home)
    person.key().parent.mkdir(parents=True)
    Identity.new().save(person.key())
    for name, value in (("node", node.url), ("identity", str(person.key()))):
        profiles.store(person.config, "default", name, value)
    (made,) = person.ask_json("dm", "create")
    person.mailbox, person.hex = made["mailbox"], made["identity"]  # type: ignore[attr-defined]
    return person


def know(person: Person, name: str, other: Any) -> None:
    person.ask("me", "know", name, other.hex, "--mailbox", other.mailbox)


def thread_of(person: Person, who: str) -> list[tuple[Any, ...]]:
    return [(each["text"], each["state"], each["edited"]) for each in person.ask_json("dm", "read", who)]
