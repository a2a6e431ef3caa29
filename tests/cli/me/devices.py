"""People with personal stores at a terminal, and their other devices."""

from pathlib import Path
from typing import Any

from enc.cli.common import profiles
from tests.cli.people import Person, with_key


def with_store(home: Path, url: str, name: str, registry: str | None = None) -> Person:
    """Return a person with a key, a personal store and a mailbox."""
    person = with_key(home, url, registry)
    person.ask("me", "create", "--name", name)
    person.ask("dm", "create", "--name", name)
    return person


def device_of(person: Person, home: Path, **settings: str) -> Person:
    """Return another device: it has the person's key and these settings, and nothing else."""
    device = Person(home)
    device.key().parent.mkdir(parents=True)
    device.key().write_bytes(person.key().read_bytes())
    device.key().chmod(0o600)
    for name, value in {**settings, "identity": str(device.key())}.items():
        profiles.store(device.config, "default", name, value)
    return device


def card_of(person: Person, *args: str) -> str:
    return str(person.ask_json("me", "card", *args)[0]["card"])


def identity_of(person: Person) -> str:
    return str(person.ask_json("key", "show")[0]["public"])


def book_of(person: Person) -> dict[str, Any]:
    return {each["name"]: each["identity"] for each in person.ask_json("me", "contacts")}
