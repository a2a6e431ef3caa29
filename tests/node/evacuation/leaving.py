"""Two served nodes: one that is evacuated, and its destination."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from enc.core.registry.warm_copy_order import OrderedCopy, WarmCopyOrder, wire_order
from enc.node.config import ImportSettings
from enc.runtime.unix_sockets.frame_server import Peer
from enc.testing.clock import Clock
from tests.core.world import GROUP, move, person
from tests.node.served import DEV, Enclave, Json, Served

OLD, NEW = person("node2"), person("node")
TURNS = 3000


class Pair(Struct, frozen=True):
    old: Served
    new: Served

    def order(self, *enclaves: Enclave, seq: int | None = None, **changes: Any) -> Any:
        """Send an order of the old node, as it sends it itself; return the response."""
        copies = tuple(OrderedCopy(each.id, self.last(each) if seq is None else seq) for each in enclaves)
        fields: dict[str, Any] = {"at": self.new.clock.now, "source": self.old.url, "to_key": NEW.public, **changes}
        key = fields.pop("key", OLD)
        order = WarmCopyOrder(node=key.public, enclaves=copies, **fields)
        return self.new.post(encode(wire_order(key, order)), "/warm-copies")

    def last(self, enclave: Enclave) -> int:
        state = self.old.store.load(enclave.id)
        assert state is not None
        return state.seq

    def evacuate(self) -> None:
        self.old.node.statement.start(self.new.url, NEW.public, self.old.url)

    def warm(self, enclave: Enclave) -> None:
        """Order a copy and wait until it is complete."""
        seq = self.last(enclave)
        assert self.order(enclave).status_code == 200
        wait_for(lambda: self.order(enclave).json()["copies"][0]["events"] == seq + 1)

    def confirmed(self, enclave: Enclave, seq: int, root: str) -> Any:
        asked = {"enclave": enclave.id.hex(), "seq": seq, "ct_root": root}
        return self.new.post(encode(asked), "/warm-copies/confirm")

    def checkpoint(self, enclave: Enclave) -> Json:
        return dict(enclave.ask("alice", "Checkpoint", hold=0))


@contextmanager
def pair(folder: Path, **imports: Any) -> Iterator[Pair]:
    """Yield the two nodes; the destination allows copies unless `ahead_from` says otherwise."""
    clock = Clock()
    settings = ImportSettings(**{"ahead_from": (OLD.public.hex(),), **imports})
    old_config = replace(DEV, data=str(folder / "old"))
    new_config = replace(DEV, data=str(folder / "new"), imports=settings)
    for each in (old_config, new_config):
        each.data_path.mkdir()
    with Served(old_config, clock=clock, key=OLD) as old, Served(new_config, clock=clock, key=NEW) as new:
        old.on_loop(old.node._ordering.cancel)  # tests order by themselves
        yield Pair(old, new)


def group(node: Served, messages: int = 20) -> Enclave:
    """Create an enclave where bob has written."""
    enclave = node.create({**GROUP, "bundle": {"size": 4, "timeout": 5000}})
    enclave.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    for n in range(messages):
        enclave.send("bob", "message", f"message {n}")
    return enclave


def wait_for(holds: Callable[[], bool]) -> None:
    for _ in range(TURNS):
        if holds():
            return
    raise AssertionError("it never came")


def perform(node: Served, name: str, **params: Any) -> Any:
    """Run an operation of the control socket."""
    return node.node.operations.perform(name, params, Peer(pid=1, uid=0))
