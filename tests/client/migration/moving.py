"""A scene whose enclave moves: successors, takeovers, and clients that follow."""

from typing import Any

from enc.client.verify.pins import FilePins, Pin
from enc.core.log.commit import build_commit
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Receipt
from enc.testing.lying_node import LyingNode
from tests.client.scene import Scene
from tests.core.world import LIFETIME, person

B, C = person("node-b"), person("node-c")


AT_B, AT_C = "http://b.test", "http://c.test"


class Moving(Scene):
    """The scene, with nodes that continue its log."""

    def pinned(self) -> Pin:
        pin = FilePins(self.stage.pins).load(self.enclave.id)
        assert pin is not None
        return pin

    def depart(self, to: PrivateKey = B, by: str = "alice", node: LyingNode | None = None) -> LyingNode:
        """Let the node accept a peaceful Migrate; return the successor."""
        node = node or self.node
        taken = node.take(node.migrate(self.enclave.id, person(by), to))
        assert isinstance(taken, Receipt), taken
        return node.successor(self.enclave.id, to)

    def taken_over(
        self, to: PrivateKey = B, by: str = "alice", node: LyingNode | None = None, **changes: Any
    ) -> LyingNode:
        """Return a forced Migrate from a copy of a node's current log."""
        node = node or self.node
        return node.successor(self.enclave.id, to, node.migrate(self.enclave.id, person(by), to, **changes))

    def follower(self, name: str = "alice", **more: Any) -> Any:
        """Return a client with the same pins that knows the other nodes."""
        return self.stage.client(name, nodes=[AT_B, AT_C], **more).enclave(self.enclave.id)

    def remaining(self) -> Any:
        """Return a client that stays at the first node, whatever address is recorded."""
        return self.stage.client("bob", uses_recorded=False).enclave(self.enclave.id)

    def stranger(self, url: str, name: str = "bob", **more: Any) -> Any:
        """Return a client of another node's URL."""
        return self.stage.client(name, url=url, **more).enclave(self.enclave.id)

    def read(self, enclave: Any) -> Any:
        return texts(enclave)

    def see_head(self, enclave: Any) -> Any:
        return enclave.head()

    def say(self, enclave: Any) -> Any:
        return enclave.commit("message", "hello")

    def write(self, node: LyingNode, text: str, by: str = "bob") -> Receipt:
        exp = self.stage.clock.now + LIFETIME
        taken = node.take(build_commit(person(by), self.enclave.id, "message", text, exp))
        assert isinstance(taken, Receipt), taken
        return taken


def texts(enclave: Any) -> list[str | None]:
    return [item.content for item in enclave.query(type="message")]


OWNS = (2 | 1 << 8 | 1 << 9).to_bytes(32)
"""The bitmask of a MEMBER who is owner and admin."""


SAID = ["one", None, "three", "four"]
"""The contents of the scene's messages; the second was updated."""
