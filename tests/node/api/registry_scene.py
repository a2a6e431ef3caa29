"""A node that serves a registry, and people who register."""

from itertools import count
from typing import Any

from enc.core.log.commit import build_manifest
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Receipt
from enc.node.config import NodeConfig, RegistrySettings
from tests.core.registry_world import REGISTRY, TEAM, House
from tests.core.world import START, Json, init, person
from tests.node.served import Enclave, Served, bad, good

GONE = {"reason": "author"}


def registry_id(manifest: Json = REGISTRY) -> bytes:
    """Return the id of olga's registry, which is known before it is created."""
    return build_manifest(person("olga"), compact_json(manifest), START, enc_v=manifest["enc_v"]).enclave


def serving(registry: bytes | None, **more: Any) -> NodeConfig:
    return NodeConfig(port=0, dev=True, registry=RegistrySettings(enclave=registry.hex() if registry else ""), **more)


class Scene:
    """A node with a registry on it."""

    def __init__(self, node: Served, manifest: Json = REGISTRY) -> None:
        self.node, self._numbers = node, count(1)
        commit = node.manifest(manifest, "olga")
        node.submit(commit)
        self.registry = Enclave(node, commit)

    def get(self, path: str, **more: Any) -> Any:
        return good(self.node.get(path, **more))

    def bad(self, path: str) -> tuple[int, str]:
        error = bad(self.node.get(path))
        return error.status, error.code

    def house(self, by: str = "alice", **changes: Any) -> House:
        """Return an enclave on the node `node`, which this registry never sees."""
        manifest = {**TEAM, "meta": {"n": next(self._numbers)}, "init": init(**{by: "OUTSIDER owner"}), **changes}
        house = House(manifest, by=by)
        house.talk()
        return house

    def register(self, house: House, by: str = "alice", **more: Any) -> Receipt:
        return self.registry.send(by, "Reg_Enclave", house.entry(**more))

    def close_bundle(self) -> None:
        self.node.clock.tick(2000)
        self.node.settle()


def rests_on(scene: Scene, receipt: Receipt) -> Json:
    return {
        "enclave": scene.registry.id.hex(),
        "id": receipt.id.hex(),
        "seq": receipt.seq,
        "timestamp": receipt.timestamp,
    }
