"""A node that is down for longer than the patience: followers that ask for it are informed, and
continue when it is back.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from enc.apps.group import Group, following
from enc.client import Client, Identity, Registry, Unreachable
from enc.client.subscribe import subscription
from enc.core.errors import EncError
from enc.runtime.backoff import RetryPauses
from tests.node.running import RunningNode


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    running = RunningNode(tmp_path / "node")
    yield running
    running.kill()


def back(node: RunningNode) -> RunningNode:
    """Start the same node at the same address again."""
    return RunningNode(node.data, "--port", str(urlsplit(node.url).port))


def test_who_waits_without_end_is_told_and_goes_on(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (subscription, following):
        monkeypatch.setattr(module, "PAUSES", RetryPauses(max_s=0.05))
    ann = Identity.new()
    with Client(node.url, ann, pins=None, patience=0) as hers, Client(node.url, ann, pins=None) as other:
        group = Group.create(other)
        device = Group(hers, group.id)
        device.sync()
        with device.follow(patience=math.inf) as changes:
            group.say("before")
            assert next(changes).kind == "message"
            node.kill()
            lost = next(changes)
            assert (lost.kind, lost.id, lost.seq) == ("offline", b"", device.status().seq)
            assert lost.what != "offline"
            with back(node):
                assert next(changes).kind == "online"
                group.say("after")
                heard = next(changes)
                assert heard.entry is not None
                assert heard.entry.text == "after"
                changes.close()


def test_who_begins_while_the_node_is_away(node: RunningNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSES", RetryPauses(max_s=0.05))
    with Client(node.url, Identity.new(), pins=None, patience=0) as client:
        group = Group.create(client)
        group.sync()
        node.kill()
        with group.follow(patience=math.inf) as changes:
            assert next(changes).kind == "offline"
            with back(node):
                assert next(changes).kind == "online"


def test_else_the_client_s_patience_ends_it(node: RunningNode) -> None:
    with Client(node.url, Identity.new(), pins=None, patience=0) as client:
        group = Group.create(client)
        group.sync()
        with group.follow() as changes:
            group.say("before")
            assert next(changes).kind == "message"
            node.kill()
            with pytest.raises(Unreachable):
                next(changes)


def test_a_group_is_created_though_the_registry_is_away(node: RunningNode) -> None:
    nowhere = Registry(url="http://127.0.0.1:1", enclave=bytes(32), seq_pub=node.seq_pub)
    with Client(node.url, Identity.new(), pins=None, patience=0, registry=nowhere) as client:
        group = Group.create(client)
        assert group.unannounced
        assert group.say("hello").seq
        with pytest.raises(EncError):
            group.announce_place()
