"""Small real logs, made by the kernel alone, in memory."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from enc.core.log.event import wire_event
from enc.core.machine.archive import Header, write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event
from tests.core.world import GROUP, World, about, move, pub

Json = dict[str, Any]


class Log(Struct):
    """One enclave's events."""

    enclave: str
    enc_v: int
    events: list[Event]

    @property
    def wire(self) -> list[bytes]:
        """Return the events in wire form."""
        return [msgspec.json.encode(wire_event(event)) for event in self.events]

    def unchecked_archive(self, path: Path) -> Path:
        """Write events that would not replay; the header's checkpoint is a dummy."""
        header = Header(
            enclave=bytes.fromhex(self.enclave),
            enc_v=self.enc_v,
            sequencers=((self.events[0].sequencer, 0),),
            events=len(self.events),
            sth=None,
            checkpoint_seq=len(self.events) - 1,
            checkpoint_root=bytes(32),
        )
        path.write_bytes(b"".join(write_archive(header, self.events)))
        return path

    def archive(self, path: Path) -> Path:
        """Write the log to one file."""
        replay = Replay(store=EnclaveMemory())
        for event in self.events:
            replay.add(event)
        path.write_bytes(b"".join(write_archive(header_of(replay, None), self.events)))
        return path


def log_of(world: World) -> Log:
    return Log(world.state.enclave.hex(), world.policy.enc_v, list(world.events))


def small_log(messages: int = 30, name: str = "small") -> Log:
    """Return the log of a group: two join, one leaves; messages, an edit, a deletion, a topic, a profile."""
    world = World({**GROUP, "meta": {"description": name}})
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    world.send("alice", "Move", move("carol", "OUTSIDER", "MEMBER"))
    world.send("alice", "Shared", {"key": "topic", "value": "tables"})
    world.send("bob", "Own", {"key": "profile", "value": {"name": "Bob"}})
    said = [
        world.send("bob" if n % 2 else "carol", "message", f"message {n} of {name}", tags=(("n", str(n)),))
        for n in range(messages)
    ]
    world.send("carol", "Update", "edited", tags=about(said[0]))
    world.send("bob", "Delete", {"reason": "author"}, tags=about(said[1]))
    world.send("carol", "Move", move("carol", "MEMBER", "OUTSIDER"))
    world.send("alice", "Pause", {})
    world.send("alice", "Resume", {})
    return log_of(world)


__all__ = ["Log", "log_of", "pub", "small_log"]
