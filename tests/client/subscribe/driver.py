"""Drives a feed on a simulated node, message by message."""

from typing import Any

from msgspec.json import encode

from enc.client.enclave.search import as_filter
from enc.client.subscribe.feed import Feed
from enc.testing.lying_node import Json
from enc.testing.lying_socket import Socket
from tests.client.scene import Scene
from tests.client.stage import TURNS


class Driver:
    """Drives a feed on a simulated node, message by message. `seqs`: the events returned."""

    def __init__(self, scene: Scene, after: int | None = -1, **search: Any) -> None:
        self.scene, self.seqs = scene, list[int]()
        reader = scene.enclave._reader
        self.feed = Feed(reader, scene.enclave._run(reader.session.verifier()), as_filter(search), after)

    def connect(self) -> None:
        self.socket = Socket(self.scene.node)
        self.send(*self.feed.connected())

    def send(self, *messages: str) -> None:
        for message in messages:
            self.socket.take(message)

    def lose(self) -> None:
        self.socket.close()

    def take(self, message: Json) -> None:
        turn = self.feed.receive(encode(message).decode())
        self.seqs += [item.seq for item in turn.items]
        self.send(*turn.send)

    def step(self) -> None:
        self.take(self.socket.waiting.popleft())

    def pump(self) -> list[int]:
        """Process all waiting messages; return the seqs so far."""
        for _ in range(TURNS):
            if not self.socket.waiting:
                return self.seqs
            self.step()
        raise AssertionError("it asks without end")

    @property
    def asked(self) -> list[str]:
        """Return the type and the subscription of each message that this connection has sent."""
        return [f"{message['type']} {message['sub_id']}" for message in self.socket.received]

    def write(self, *texts: str) -> None:
        for text in texts:
            self.scene.enclave.commit("message", text)
