"""People with keys and a node who meet in groups."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from enc.cli.common import profiles
from enc.client import Identity
from tests.cli.people import Person
from tests.cli.seat import Seat, at_terminal


class Friend(Person):
    """A person with a key."""

    group = ""
    """The id of the group that the person created."""

    def __init__(self, home: Path, url: str) -> None:
        super().__init__(home)
        self.identity = Identity.new()
        self.key().parent.mkdir(parents=True)
        self.identity.save(self.key())
        for name, value in (("node", url), ("identity", str(self.key()))):
            profiles.store(self.config, "default", name, value)

    def one(self, *args: str | Path, **more: object) -> dict:
        """Return the only result of an `enc group` command with --json."""
        (found,) = self.ask_json("group", *args, **more)
        return found

    def read(self, group: str = "plans") -> list[tuple[int, str | None]]:
        return [(entry["seq"], entry["text"]) for entry in self.ask_json("group", "read", group)]

    def at_terminal(self, *args: str) -> AbstractContextManager[Seat]:
        return at_terminal(self, *args)


Friends = Callable[[str], Friend]


def introduced(ann: Friend, who: Friend, name: str) -> Friend:
    """Let both know each other, and give `who` the id of ann's group."""
    ann.ask("me", "know", name, who.identity.hex)
    who.ask("me", "know", "ann", ann.identity.hex)
    who.one("add", "plans", ann.group)
    return who


def let_in(ann: Friend, who: Friend, name: str) -> Friend:
    introduced(ann, who, name)
    ann.one("invite", "plans", name, "--no-notice")
    return who
