"""A network of two nodes without sockets, a team on the first, and bob, who writes to it through a queue."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

from enc.client import Client, CommitQueue, Enclave, QueueResult
from enc.core.errors import EncError
from enc.core.primitives.types import Receipt
from enc.testing import Identities, LocalNetwork, local_node

OLD, NEW = "http://old.test", "http://new.test"
MINUTE, HOUR = 60_000, 3_600_000
PEOPLE = Identities()


class Scene:
    """`team` is ada's; bob is a member. Each `queue` is what a program has after a start."""

    def __init__(self, network: LocalNetwork, folder: Path, stack: ExitStack) -> None:
        self.network, self.folder, self._stack = network, folder, stack
        self.ada = stack.enter_context(network.client(OLD, PEOPLE["ada"], nodes=[NEW]))
        self.team = self.create()

    def create(self) -> Enclave:
        """Return a new team with bob in it."""
        team = self.ada.create("team")
        team.move(PEOPLE["bob"].public, "OUTSIDER", "MEMBER")
        return team

    def client(self, name: str = "bob", **options: Any) -> Client:
        """Return a client that knows nothing yet, and tries once."""
        options = {"nodes": [NEW], "patience": 0, **options}
        return self._stack.enter_context(self.network.client(OLD, PEOPLE[name], **options))

    def queue(self, **options: Any) -> CommitQueue:
        """Return bob's queue in a new program: nothing but its file is left of earlier ones."""
        return self._stack.enter_context(self.client(**options).commit_queue(self.folder / "queue.db"))

    def fill(self, *texts: str, enclave: Enclave | None = None) -> CommitQueue:
        """Return a queue with messages of bob's."""
        queue, bob = self.queue(), self.client()
        for text in texts:
            queue.add(bob.enclave((enclave or self.team).id).prepare("message", text))
        return queue

    def written(self, enclave: Enclave | None = None) -> list[str]:
        return [item.content or "" for item in (enclave or self.team).query(type="message")]

    # The network

    def cut(self, host: str = "old.test") -> Callable[[], None]:
        """Take a node off the network; return what brings it back."""
        site = self.network.sites.pop(host)
        return lambda: self.network.sites.update({host: site})

    def on_commits(self, host: str, act: Callable[[Callable[[], httpx.Response]], httpx.Response]) -> None:
        """Let `act` decide about each commit that reaches a node; it gets what the node would do."""
        site = self.network.sites[host]
        handle = site.handle

        def watch(request: httpx.Request) -> httpx.Response:
            if b'"exp"' not in request.read():
                return handle(request)
            return act(lambda: handle(request))

        site.handle = watch  # type: ignore[method-assign]

    def lose_answers(self, host: str = "old.test", count: int = 1) -> None:
        """Let a node take the next commits, but lose its answers."""
        left = iter(range(count))

        def lose(handle: Callable[[], httpx.Response]) -> httpx.Response:
            answer = handle()
            if next(left, None) is not None:
                raise httpx.ReadError("connection reset")
            return answer

        self.on_commits(host, lose)


@contextmanager
def queue_scene(folder: Path) -> Iterator[Scene]:
    network = LocalNetwork()
    with local_node("old.test", network=network), local_node("new.test", network=network), ExitStack() as stack:
        yield Scene(network, folder, stack)


def outcomes(results: list[QueueResult]) -> list[Any]:
    """Return the seq of each receipt and the code of each error, in brackets if the commit still waits."""
    found = [each.result.seq if isinstance(each.result, Receipt) else each.result.code for each in results]
    return [[code] if each.is_waiting else code for each, code in zip(results, found, strict=True)]


def error_of(result: QueueResult) -> EncError:
    assert isinstance(result.result, EncError)
    return result.result
