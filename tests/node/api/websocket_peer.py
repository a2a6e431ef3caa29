"""Clients on a real WebSocket of a running node."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from msgspec.json import decode, encode
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Receipt, Tags
from tests.core.world import Json, person
from tests.node.api.websocket_stage import ROOM, Reader
from tests.node.running import RunningNode
from tests.plain_http import NO_TLS

PATIENCE = 60
"""Seconds after which an expected message counts as lost."""


NOTHING: Json = {"id": "00" * 32}
"""A filter that no event matches."""


_numbers = itertools.count()


def now() -> int:
    return time.time_ns() // 1_000_000


class Room:
    """A new enclave on a running node."""

    def __init__(self, node: RunningNode, **changes: Any) -> None:
        self.node = node
        content = compact_json({**ROOM, "meta": {"n": next(_numbers)}, **changes})
        manifest = build_manifest(person("alice"), content, now() + 600_000)
        self.enclave = manifest.enclave
        self.post(manifest)

    def commit(self, name: str, type_: str, content: Any = None, tags: Tags = (), **more: Any) -> Commit:
        """Return a new commit, unique unless its content is given."""
        content = f"{next(_numbers)}" if content is None else content
        text = content if isinstance(content, str) else compact_json(content)
        return build_commit(person(name), self.enclave, type_, text, now() + 600_000, tags, **more)

    def say(self, count: int, name: str = "alice", size: int = 0) -> list[Commit]:
        return [self.commit(name, "message", f"{next(_numbers)} {'x' * size}") for _ in range(count)]

    def post(self, commit: Commit) -> Receipt:
        """Write it by HTTP; it must be accepted."""
        answer = httpx.post(self.node.url, content=encode(wire_commit(commit)), timeout=PATIENCE, verify=NO_TLS)
        assert answer.status_code == 200, answer.text
        receipt = parse_receipt(answer.content)
        check_receipt(receipt, commit, self.node.seq_pub)
        return receipt

    def send(self, *what: Any) -> Receipt:
        return self.post(self.commit(*what))

    def reader(self, name: str, duration: int = 7200) -> Reader:
        return Reader(name, self.enclave, self.node.seq_pub, now() // 1000, duration)

    def end(self, type_: str) -> Receipt:
        """End the enclave: Pause, Terminate or Migrate it."""
        if type_ != "Migrate":
            return self.send("alice", type_, "")
        alice = self.reader("alice")
        checkpoint = alice.ask(self.node.url, "/checkpoint", "Checkpoint")
        content = {"new_sequencer": person("node2").public.hex()}
        return self.send(
            "alice", "Migrate", {**content, "prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]}
        )


class Peer:
    """A client on one WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, *messages: Json | Commit | str | bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            for message in messages:
                plain = wire_commit(message) if isinstance(message, Commit) else message
                await self.socket.send(plain if isinstance(plain, str | bytes) else encode(plain).decode())

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE):
            text = await self.socket.recv()
        assert isinstance(text, str)
        message: Json = decode(text)
        return message

    async def until(self, type_: str) -> list[Json]:
        """Return all messages up to and including the first of this type."""
        found = [await self.next()]
        while found[-1]["type"] != type_:
            found.append(await self.next())
        return found

    async def take(self, count: int) -> list[Json]:
        return [await self.next() for _ in range(count)]

    async def ended(self) -> tuple[list[Json], int]:
        """Return the remaining messages, and the code that the node closed with."""
        found: list[Json] = []
        try:
            while True:
                found.append(await self.next())
        except ConnectionClosed as e:
            return found, e.rcvd.code if e.rcvd else 1006

    async def lives(self, room: Room) -> bool:
        """Return whether this connection still answers a commit."""
        await self.say(room.commit("alice", "message"))
        return (await self.until("Receipt"))[-1]["type"] == "Receipt"


@asynccontextmanager
async def peer(node: RunningNode, path: str = "/", **options: Any) -> AsyncIterator[Peer]:
    url = node.url.replace("http", "ws", 1) + path
    defaults: Json = {"max_size": None, "compression": None, "proxy": None, "open_timeout": PATIENCE}
    async with connect(url, **{**defaults, **options}) as socket:
        yield Peer(socket)


def events(reader: Reader, messages: Sequence[Json]) -> list[int]:
    return [reader.seq(message) for message in messages if message["type"] == "Event"]


def metric(node: RunningNode, name: str) -> float:
    for line in httpx.get(f"{node.url}/metrics", timeout=PATIENCE, verify=NO_TLS).text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


async def eventually(node: RunningNode, name: str, value: float) -> None:
    """Wait until the node's metric has this value."""
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient(timeout=PATIENCE, verify=NO_TLS) as client:
        while True:
            text = (await client.get(f"{node.url}/metrics")).text
            if f"\n{name} {value}\n" in text:
                return
