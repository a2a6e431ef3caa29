"""A node registers itself in a registry: in the background, until it succeeds, and again when its URL changes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.client import Client, Identity
from enc.client.wire.flow import run
from enc.core.errors import MisuseError, NodeNotFound, Unavailable
from enc.node import main
from enc.node.config import NodeConfig, RegistrySettings
from enc.node.ops import registration
from enc.node.ops.registration import NodeRegistrar
from enc.runtime.backoff import RetryPauses
from tests.client.moved import Town, town
from tests.core.world import person
from tests.node.running import RunningNode

TRIES = 5000
"""The number of requests after which an expected change counts as lost."""


class Directory:
    """A registry with prepared answers, given one after the other."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.calls = list(answers), 0

    def __call__(self) -> None:
        self.calls += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def test_it_is_tried_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "PAUSES", RetryPauses(first_s=0.0))
    directory = Directory(Unavailable("not yet"), ValueError("a fault of ours"), None)
    registrar = NodeRegistrar(directory, ("http://a",))
    registrar.start()
    registrar._thread.join()
    assert directory.calls == 3


def test_it_is_tried_no_more_once_the_node_stops() -> None:
    directory = Directory(Unavailable("not yet"))
    registrar = NodeRegistrar(directory, ("http://a",))
    registrar.stop()
    registrar._thread.start()
    registrar._thread.join()
    assert directory.calls == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town(tmp_path_factory.mktemp("town")) as found:
        yield found


def reached_at(place: Town, seq_pub: bytes, *uris: str) -> None:
    """Poll the registry until it has the node at this URL."""
    with Client(identity=Identity.new(), registry=place.registry, pins=None) as client:
        registry = client._setup.required_registry()
        for _ in range(TRIES):
            try:
                entry = run(registry.node(seq_pub), client._transport.send, lambda seconds: None)
            except NodeNotFound:
                continue
            if tuple(endpoint.uri for endpoint in entry.endpoints) == uris:
                return
    raise AssertionError("it was never registered")


def test_a_node_registers_itself_and_renews_what_has_changed(place: Town, tmp_path: Path) -> None:
    env = {"ENC_NODE_REGISTRY_ANNOUNCE_TO": place.text, "ENC_NODE_PUBLIC_URL": "https://one.example"}
    with RunningNode(tmp_path / "node", env=env) as node:
        reached_at(place, node.seq_pub, "https://one.example")
    env["ENC_NODE_REGISTRY_ENDPOINTS"] = "https://two.example,https://one.example"
    with RunningNode(tmp_path / "node", env=env) as node:
        reached_at(place, node.seq_pub, "https://two.example", "https://one.example")
    assert '"registered"' in node.log()


def test_a_registry_that_is_not_there_does_not_hold_the_node_up(tmp_path: Path) -> None:
    env = {
        "ENC_NODE_REGISTRY_ANNOUNCE_TO": f"http://127.0.0.1:9#{'0' * 64}",
        "ENC_NODE_PUBLIC_URL": "https://one.example",
    }
    with RunningNode(tmp_path / "node", env=env) as node, Client(node.url, Identity.new(), pins=None) as client:
        assert client.create("notes").commit("note", "here").seq == 1


def test_a_node_that_is_reached_nowhere_is_told_so() -> None:
    registry = RegistrySettings(announce_to=f"http://a#{'0' * 64}")
    with pytest.raises(MisuseError, match="so that others can reach the node"):
        main._registrar(NodeConfig(registry=registry), person("node"))
    assert main._registrar(NodeConfig(), person("node")) is None
