"""The sender's process: `python -m enc.node.push.sender_process`, between two pipes.

It ends when its input ends, and so with the node, whatever ends the node. It ignores signals sent
to the whole process group.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import structlog
from msgspec import ValidationError

from enc.node.push.host_limits import HostRates
from enc.node.push.schedule import Bounds, Schedule
from enc.node.push.sender import PushSender
from enc.node.push.sender_pipe import (
    LENGTH,
    MAX_RESULTS,
    Alive,
    AskKey,
    DeliveryResults,
    FromSender,
    Key,
    ResultsStored,
    Start,
    ToSender,
    length,
    packed,
    read_to_sender,
)
from enc.node.store.push_interface import PushResult
from enc.node.store.sqlite.push.reader import PushReader
from enc.runtime.checked_http import authorities
from enc.runtime.checked_http_async import EndpointCaller
from enc.runtime.log_throttle import LogThrottle
from enc.runtime.logs import setup_logs
from enc.runtime.signals import ignore_stop_signals

NICE = 10
GRACE_S = 2.0
"""How long running requests may take after the sender was asked to stop."""
MIN_LOOK_S, MAX_LOOK_S = 0.02, 0.25

T = TypeVar("T")


class NodePipe:
    """The node, as the sender sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._keys: dict[bytes, asyncio.Future[bytes]] = {}
        self._stored: asyncio.Future[bool] | None = None

    async def read(self) -> ToSender | None:
        """Return the next message; None at the end."""
        try:
            head = await self._reader.readexactly(LENGTH.size)
            message: ToSender = read_to_sender(await self._reader.readexactly(length(head)))
            return message
        except (asyncio.IncompleteReadError, OSError, ValueError, ValidationError):
            return None

    async def follow(self) -> None:
        """Dispatch messages until the end."""
        while (message := await self.read()) is not None:
            if isinstance(message, Key) and (key := self._keys.pop(message.identity, None)) is not None:
                _resolve(key, message.key)
            if isinstance(message, ResultsStored) and self._stored is not None:
                _resolve(self._stored, message.is_durable)

    async def stay_alive(self, every_s: float) -> None:
        """Write Alive regularly, unless the node has not read what was written before."""
        while True:
            await asyncio.sleep(every_s)
            if not self._writer.transport.get_write_buffer_size():
                self.write(Alive())

    async def key_of(self, identity: bytes) -> bytes:
        if identity not in self._keys:
            self._keys[identity] = asyncio.get_running_loop().create_future()
            self.write(AskKey(identity))
        return await asyncio.shield(self._keys[identity])

    async def store_results(self, results: tuple[PushResult, ...]) -> bool:
        self._stored = asyncio.get_running_loop().create_future()
        self.write(DeliveryResults(results))
        return await self._stored

    def write(self, message: FromSender) -> None:
        """Write a message. The unwritten data is bounded: an AskKey for each running request, and
        one message of results, and an Alive.
        """
        self._writer.write(packed(message))

    async def close(self) -> None:
        with suppress(OSError):
            await self._writer.drain()
            self._writer.close()
            await self._writer.wait_closed()


def _resolve(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


async def _open_pipe() -> NodePipe:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", 0))
    out = asyncio.StreamReaderProtocol(
        asyncio.StreamReader()
    )  # for flow control of the output; nothing is read from it
    transport, _ = await loop.connect_write_pipe(lambda: out, os.fdopen(1, "wb", 0))
    return NodePipe(reader, asyncio.StreamWriter(transport, out, None, loop))


def _bounds(start: Start) -> Bounds:
    return Bounds(
        connections=start.connections,
        unsent_bytes=start.unsent_bytes,
        slow_ms=int(start.timeout_s * 1000) // 6,
        host=HostRates(
            requests_per_s=start.host_per_s, bytes_per_s=start.host_bytes_per_s, at_a_time=start.host_connections
        ),
        confirmed_ms=None if start.confirmed_s is None else int(start.confirmed_s * 1000),
        max_hold_ms=None if start.max_hold_s is None else int(start.max_hold_s * 1000),
        tries=start.tries,
        first_retry_ms=int(start.first_retry_s * 1000),
        max_retry_ms=int(start.max_retry_s * 1000),
    )


def _sender(start: Start, reads: PushReader, pipe: NodePipe) -> PushSender:
    schedule = Schedule(_bounds(start))
    schedule.remember_failing(reads.failing(schedule.bounds.known))
    caller = EndpointCaller(
        timeout_s=start.timeout_s,
        most=start.connections,
        allow_private=start.allow_private,
        tls=authorities(start.ca_file, "push.ca_file"),
    )
    look_s = min(max(min(start.interval_s, start.first_retry_s) / 4, MIN_LOOK_S), MAX_LOOK_S)
    return PushSender(schedule, reads, pipe, caller, start.seq_pub, look_s=look_s)


async def _run() -> None:
    pipe = await _open_pipe()
    start = await pipe.read()
    if not isinstance(start, Start):
        return
    setup_logs(start.log_level, start.log_format, throttle=LogThrottle())
    reads = PushReader(Path(start.store))
    sender = _sender(start, reads, pipe)
    running = asyncio.create_task(sender.run())
    following = asyncio.create_task(pipe.follow())
    living = asyncio.create_task(pipe.stay_alive(start.alive_s))
    await asyncio.wait((running, following), return_when=asyncio.FIRST_COMPLETED)
    sender.stop()
    await running
    left = await sender.finish(GRACE_S)
    living.cancel()
    for i in range(0, len(left), MAX_RESULTS):
        pipe.write(DeliveryResults(left[i : i + MAX_RESULTS]))
    await pipe.close()


def main() -> None:
    ignore_stop_signals()
    os.nice(NICE)
    code = 1
    try:
        asyncio.run(_run())
        code = 0
    except Exception as e:
        structlog.get_logger("enc.push.sender").error("internal_error", where="sender", exc_info=e)
    finally:
        sys.stderr.flush()
        os._exit(code)  # a running name lookup in a thread would keep the process alive


if __name__ == "__main__":
    main()
