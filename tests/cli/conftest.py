"""One node for all tests of the commands, and people who use it."""

import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from unittest.mock import patch

import pytest
from typer import testing
from typer.main import get_command

from enc.cli.common import profiles
from enc.client import Client, Identity
from tests.cli.group_people import Friend, Friends, let_in
from tests.cli.people import Person, team
from tests.node.running import RunningNode

_numbers = count(1)


@pytest.fixture(scope="package", autouse=True)
def _once() -> Iterator[None]:
    """Build the tree of commands once for all commands that run in this process."""
    with patch.object(testing, "_get_command", cache(get_command)):
        yield


@pytest.fixture(scope="session")
def running_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("cli") / "node") as node:
        yield node


@pytest.fixture(scope="session")
def creator(running_node: RunningNode) -> Iterator[Client]:
    """Yield the client that creates the enclaves for tests."""
    with Client(running_node.url, Identity.new(), pins=None) as client:
        yield client


@pytest.fixture
def anybody(tmp_path: Path) -> Person:
    """Return a person without a key, a node or an enclave."""
    return Person(tmp_path / "home")


@pytest.fixture
def alice(anybody: Person, creator: Client) -> Person:
    """Return a person with a key, a node, and a new enclave of her own."""
    return settled(anybody, creator)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, creator: Client) -> Person:
    """Return a person like `alice`, for tests that change nothing."""
    return settled(Person(tmp_path_factory.mktemp("reader") / "home"), creator)


def settled(person: Person, creator: Client) -> Person:
    manifest = team(creator.identity.hex, meta={"n": next(_numbers)})
    (person.home / "team.json").write_text(manifest)
    enclave = creator.create(json.loads(manifest))
    person.key().parent.mkdir(parents=True)
    creator.identity.save(person.key())
    for name, value in (("node", creator.url), ("identity", str(person.key())), ("enclave", enclave.hex)):
        profiles.store(person.config, "default", name, value)
    return person


@pytest.fixture
def friend(tmp_path: Path, running_node: RunningNode) -> Friends:
    """Return a function that creates people who may meet in a group."""
    return lambda name: Friend(tmp_path / name, running_node.url)


@pytest.fixture
def ann(friend: Friends) -> Friend:
    """Return the owner of a group."""
    ann = friend("ann")
    ann.group = ann.one("create", "plans", "--topic", "the summer")["enclave"]
    return ann


@pytest.fixture
def bob(ann: Friend, friend: Friends) -> Friend:
    """Return a member of ann's group."""
    return let_in(ann, friend("bob"), "bob")
