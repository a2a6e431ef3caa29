"""A registry at its own node, for clients on a stage."""

from typing import Any

import pytest

from enc.client import Identity, Registry
from enc.testing.lying_node import Json, LyingNode
from tests.client.stage import Stage
from tests.core.world import person

KEY = person("registrar")
AT = "http://registry.test"


class Office:
    """A registry at its own node, and a registered enclave of alice's."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.node = stage.others["registry.test"] = LyingNode(stage.clock, KEY)
        self.id = stage.client("otto", url=AT).create("registry").id
        self.node.registry = self.id
        self.where = Registry(url=AT, enclave=self.id, seq_pub=KEY.public)
        self.enclave = stage.create()
        self.enter_node(stage.node, "http://node.test")
        self.alice().enclave(self.enclave.id).register(app="test")
        self.close_bundle()

    def client(self, name: str = "bob", **more: Any) -> Any:
        return self.stage.client(name, **{"registry": self.where, "url": None, **more})

    def alice(self, **more: Any) -> Any:
        return self.client("alice", url="http://node.test", **more)

    def enter_node(self, node: LyingNode, *uris: str) -> Any:
        kind = self.stage.client("x", registry=self.where)
        inner = kind if self.stage.face == "sync" else kind._inner
        inner._setup.identity = inner._setup.registry_client.reader.session.identity = Identity(node.key)
        return kind.register_node(uris)

    def close_bundle(self) -> None:
        self.stage.clock.tick(6000)
        self.node.settle()

    def entry(self, kind: str, key: bytes) -> Json:
        """Return what an honest registry answers now."""
        found: Json = {}
        self.node.lie(kind, lambda answer: found.update(answer))
        getattr(self.client(pins=None), {"resolve": "resolve", "identity": "lookup"}[kind])(key)
        self.node.be_honest()
        return found

    def refused(self, error: type[Exception], **more: Any) -> Any:
        with pytest.raises(error) as found:
            self.client(**more).resolve(self.enclave.id)
        return found.value
