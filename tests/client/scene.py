"""An enclave with some events, and a node that can lie about it."""

from collections.abc import Callable
from typing import Any

from enc.core.errors import (
    EncError,
)
from enc.core.log.commit import build_commit
from enc.core.log.event import wire_event
from enc.core.log.receipt import build_receipt, wire_receipt
from enc.core.primitives.types import Commit, Event, Receipt, Tags
from enc.core.trees.state_key import shared_slot
from enc.testing.lying_node import Alter, Json, LyingNode
from tests.client.stage import Stage, caught
from tests.core.world import LIFETIME, person

TOPIC = shared_slot("topic")


class Scene:
    """An enclave with two closed bundles, of four events and of three, and an open one.

    0 Manifest, 1 "one", 2 "two", 3 topic is "plans" | 4 "three", 5 "two" says "more", 6 topic is "games" | 7 "four"
    """

    def __init__(self, stage: Stage) -> None:
        self.stage, self.enclave = stage, stage.create()
        e = self.enclave
        self.sent: dict[str, Receipt] = {text: e.commit("message", text) for text in ("one", "two")}
        self.sent["plans"] = e.shared("topic", "plans")
        self.sent["three"] = e.commit("message", "three")
        self.sent["more"] = e.update(self.sent["two"].id, "more")
        self.sent["games"] = e.shared("topic", "games")
        stage.close_bundle()
        self.sent["four"] = e.commit("message", "four")
        assert e.head().ts == 2

    @property
    def node(self) -> LyingNode:
        return self.stage.node

    def id(self, text: str) -> bytes:
        return self.sent[text].id

    def event(self, text: str) -> Event:
        """Return the event as the node has it."""
        found = self.node.store.event(self.enclave.id, self.id(text))
        assert found is not None
        return found.event

    def other(self) -> Any:
        """Return the enclave for bob, who has seen nothing of it yet; the pin is shared."""
        return self.stage.client("bob").enclave(self.enclave.id)

    def commit(self, text: str, type_: str = "message", tags: Tags = (), **more: Any) -> Commit:
        """Return what bob would send now."""
        exp = more.pop("exp", self.stage.clock.now + LIFETIME)
        return build_commit(person("bob"), more.pop("enclave", self.enclave.id), type_, text, exp, tags)

    def grow(self, node: LyingNode, *texts: str) -> None:
        """Continue a node's log: one event for each text, and close the bundle."""
        for text in texts:
            assert isinstance(node.take(self.commit(text)), Receipt)
        self.stage.clock.tick(6000)
        node.settle()

    def fork(self) -> LyingNode:
        """Return another node with the same key and a log of the same size, but different events."""
        twin = self.node.copy()
        for node, text in ((self.node, "to you"), (twin, "to others")):
            assert isinstance(node.take(self.commit(text)), Receipt)
        self.stage.clock.tick(6000)
        self.node.settle()
        twin.settle()
        return twin

    def caught(self, error: type, work: Callable[[], Any]) -> Any:
        return caught(self.stage, self.enclave, error, work)

    def lie(self, kind: str, alter: Alter) -> None:
        self.node.lie(kind, alter)

    def show(self, seq: int, event: Event) -> None:
        """Replace one event by another, in every page."""

        def lie(answer: Json) -> None:
            for item in answer["events"]:
                if item["event"]["seq"] == seq:
                    item["event"] = wire_event(event)

        self.lie("Query", lie)

    def alter(self, seq: int, **fields: Any) -> None:
        """Change fields of one event, in every page."""

        def lie(answer: Json) -> None:
            for item in answer["events"]:
                if item["event"]["seq"] == seq:
                    item["event"].update(fields)

        self.lie("Query", lie)


def flip(text: str) -> str:
    """Return another hex text of the same length."""
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def instead(error: EncError) -> Alter:
    """Return a lie that raises this error instead of any answer."""

    def refuse(_: Any) -> Any:
        raise error

    return refuse


def receipt_of(event: Event) -> Json:
    return wire_receipt(build_receipt(event))


def without(answer: Json, *seqs: int) -> Json:
    return {**answer, "events": [item for item in answer["events"] if item["event"]["seq"] not in seqs]}


BY_HEAD: dict[str, Callable[[Any], Any]] = {
    "head": lambda e: e.head(),
    "state": lambda e: e.state("kv", TOPIC),
    "page": lambda e: e.query(proof=True),
    "bundle": lambda e: e.bundle(0),
    "members": lambda e: e.members(),
}
"""Everything that brings a head with it."""
