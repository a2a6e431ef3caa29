"""Real nodes, a registry on one of them, and people who move enclaves between the others."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from enc.client import Client, Identity, Registry
from enc.client.enclave.templates import template
from enc.node.ops import key_file
from tests.client.settings import with_settings
from tests.node.running import RunningNode


class Town(Struct, frozen=True):
    """Nodes by name, and the registry that lists them."""

    nodes: dict[str, RunningNode]
    registry: Registry
    home: Path

    def client(self, who: Identity, at: str | None = None, **more: object) -> Client:
        """Return a client with its own pins, for one node or for the node that the registry names."""
        more.setdefault("url", self.nodes[at].url if at else None)
        options = with_settings({"pins": self.home / "pins" / who.hex, "registry": self.registry, **more})
        return Client(identity=who, **options)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        """Return the registry in the form of a setting."""
        key = (self.registry.seq_pub or b"").hex()
        return f"{self.registry.url}#{self.registry.enclave.hex()}:{key}"


@contextmanager
def town(home: Path, *names: str) -> Iterator[Town]:
    """Yield a registry on its own node, and nodes that are registered in it."""
    with RunningNode(home / "registry") as first, Client(first.url, Identity.new(), pins=None) as creator:
        registry = creator.create("registry")
        enclave = registry.id
    with ExitStack() as stack:
        node = stack.enter_context(RunningNode(home / "registry", "--registry", enclave.hex()))
        where = Registry(url=node.url, enclave=enclave, seq_pub=node.seq_pub)
        nodes = {name: stack.enter_context(RunningNode(home / name)) for name in names}
        found = Town(nodes, where, home)
        for each in nodes.values():
            introduce(found, each)
        yield found


def introduce(place: Town, node: RunningNode) -> None:
    key = key_file.load(node.data / "node.key")
    with Client(identity=Identity(key), registry=place.registry, pins=None) as client:
        client.register_node([node.url])


def create_team(client: Client, **changes: Any) -> Any:
    manifest = template("team", client.identity.public)
    return client.create(
        {**manifest, "bundle": {"size": 4, "timeout": 200}, "meta": {"name": Identity.new().hex}, **changes}
    )
