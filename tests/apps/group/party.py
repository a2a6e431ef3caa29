"""A group on a stage, and its people, each with devices of their own."""

from collections.abc import Callable
from typing import Any

from enc.apps.group import Group
from enc.client import Enclave
from enc.core.primitives.types import Commit, Receipt
from tests.client.stage import Stage
from tests.core.world import person


def pubkey(name: str) -> bytes:
    return person(name).public


class Party:
    """alice creates the group; `bob` and `carol` are members."""

    def __init__(self, stage: Stage, *names: str, **options: Any) -> None:
        self.stage = stage
        self.alice = Group.create(stage.client("alice"), topic="plans", **options)
        self.id = self.alice.id
        for name in names or ("bob", "carol"):
            self.alice.invite(pubkey(name), notify=False)

    def device(self, name: str, **options: Any) -> Group:
        """Return a new device with only the identity's key and its own pins."""
        client = self.stage.client(name, pins=None)
        return Group(client, self.id, clock=lambda: self.stage.clock.now, **options)

    def texts(self, name: str) -> list[str | None]:
        """Return the conversation as a new device of this person reads it."""
        group = self.device(name, heal=False)
        group.sync()
        return [entry.text for entry in group.entries() if not entry.is_deleted]


class Crossing(Enclave):
    """An enclave in which something happens just before the next commit arrives."""

    def __init__(self, inner: Enclave, meanwhile: Callable[[], Any]) -> None:
        super().__init__(inner._client, inner._reader)
        self._meanwhile: Callable[[], Any] | None = meanwhile

    def send(self, commit: Commit) -> Receipt:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().send(commit)


def cross(group: Group, meanwhile: Callable[[], Any]) -> Group:
    """Make something happen between the client's last read and its next send."""
    group._enclave = Crossing(group._enclave, meanwhile)
    return group
