"""Two real nodes, a registry that knows them, and people with a mailbox and several devices
each.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from enc.apps.dm import Mailbox, ThreadEntry
from enc.apps.people.address_book import Place
from enc.client import Client, ClientSettings, Identity
from tests.client.moved import Town, town


class Somebody:
    """One person: a key, a mailbox on node `at`, and devices that know only the key and the
    mailbox.
    """

    def __init__(self, street: "Street", at: str) -> None:
        self.street, self.at, self.identity = street, at, Identity.new()
        self.mailbox = Mailbox.create(self.client())
        self.key = self.identity.public

    def client(self, **more: Any) -> Client:
        node = self.street.town.nodes[self.at]
        settings = ClientSettings(uses_recorded=False)  # a test names nodes that are down
        options = {"pins": None, "patience": 0.0, "settings": settings, **more}
        return self.street.stack.enter_context(Client(node.url, self.identity, **options))

    def device(self, **more: Any) -> Mailbox:
        """Return a new device that has read everything."""
        made = Mailbox(self.client(), self.mailbox.enclave.id, **more)
        made.sync()
        return made

    @property
    def place(self) -> Place:
        return Place(self.mailbox.enclave.id, self.street.town.nodes[self.at].url)

    def thread(self, other: "Somebody") -> list[ThreadEntry]:
        """Return the thread as a new device sees it, after checking that the first one sees the
        same.
        """
        self.mailbox.sync()
        fresh = self.device()
        assert fresh.thread(other.key) == self.mailbox.thread(other.key)
        assert fresh.contacts() == self.mailbox.contacts()
        return fresh.thread(other.key)

    def texts(self, other: "Somebody") -> list[str | None]:
        return [entry.text for entry in self.thread(other)]


class Street:
    def __init__(self, town_: Town, stack: ExitStack) -> None:
        self.town, self.stack = town_, stack

    def somebody(self, at: str = "a") -> Somebody:
        return Somebody(self, at)

    def friends(self) -> tuple[Somebody, Somebody]:
        """Return alice on node a and bob on node b: contacts of each other, with each other's epochs."""
        alice, bob = self.somebody("a"), self.somebody("b")
        alice.mailbox.add(bob.key, bob.place, greeting="hi")
        bob.mailbox.accept(alice.key)
        bob.mailbox.send(alice.key, "hello")
        alice.mailbox.sync()
        return alice, bob


@pytest.fixture(scope="session")
def two_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("dm"), "a", "b") as found:
        yield found


@pytest.fixture
def street(two_nodes: Town, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Street]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with ExitStack() as stack:
        yield Street(two_nodes, stack)


def mirrored(thread: list[ThreadEntry]) -> list[tuple[Any, ...]]:
    """Return what both people see alike: everything that has arrived."""
    return [
        (entry.at, entry.id, entry.author, entry.text, entry.is_edited, entry.state == "retracted")
        for entry in thread
        if entry.state in ("received", "delivered", "retracted")
    ]
