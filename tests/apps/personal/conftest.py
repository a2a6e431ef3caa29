"""Real nodes, a registry that knows them, and people with stores of their own."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from enc.apps import AddressBook, Personal
from enc.client import Client, Enclave, Identity
from enc.client.enclave.templates import template
from tests.client.moved import Town, town

AT_ONCE = {"size": 1}
"""Bundles that close with each event, so that everything is proved at once."""


class Street:
    """The people of one test: each has a client at node "a" or "b", and a store there."""

    def __init__(self, place: Town, home: Path, stack: ExitStack) -> None:
        self.place, self.home, self._stack = place, home, stack

    def client(self, who: Identity | None = None, at: str | None = "a", *, known: bool = True, **more: Any) -> Client:
        """Create a client; with `known`, it has the registry."""
        options = {"patience": 0.0, **more, **({} if known else {"registry": None})}
        return self._stack.enter_context(self.place.client(who or Identity.new(), at, **options))

    def store(self, client: Client, **more: Any) -> Personal:
        options = {"bundle": AT_ONCE, **more}
        return Personal.create(client, **options)

    def book(self, name: str = "book") -> AddressBook:
        return AddressBook(self.home / name / "contacts.json")

    def group(self, owner: Client) -> Enclave:
        """Create a substitute for a group: only its Moves matter here."""
        manifest = template("team", owner.identity.public)
        found = owner.create({**manifest, "meta": {"n": Identity.new().hex}, "bundle": AT_ONCE})
        if owner.has_registry:
            found.register(app="group")
        return found


@pytest.fixture(scope="package")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("street"), "a", "b") as found:
        yield found


@pytest.fixture
def street(place: Town, tmp_path: Path) -> Iterator[Street]:
    with ExitStack() as stack:
        yield Street(place, tmp_path, stack)
