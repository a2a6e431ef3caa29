"""What a client does, apart from how it waits: a generator that yields steps and is sent what they bring.

Each thing a client can do is written once as a Flow; `run` drives it by blocking, `run_async` by awaiting. A call that
fails is raised inside the flow, at its `yield`, so that flows decide what is tried again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from enc.core.errors import EncError, MisuseError

PIECE = 1 << 18
"""Bytes of a file that are sent at once."""


class Call(Struct, frozen=True):
    """One HTTP request."""

    path: str
    body: bytes | None = None
    """None: a GET."""
    base: str | None = None
    """The URL of another node than the client's own."""
    file: Path | None = None
    """What follows the body, as it lies on disk."""
    kind: str = "application/json"
    """The media type of the whole."""

    def pieces(self) -> Iterator[bytes]:
        """The body and the file, piece by piece."""
        yield self.body or b""
        if self.file is not None:
            try:
                with self.file.open("rb") as file:
                    while piece := file.read(PIECE):
                        yield piece
            except OSError as e:
                raise MisuseError(f"{self.file}: {e.strerror}") from None


class Answer(Struct, frozen=True):
    status: int
    body: bytes


class Pause(Struct, frozen=True):
    seconds: float


class Work(Struct, frozen=True):
    """Something that takes a while and waits for nothing: who awaits has it done by a thread."""

    run: Callable[[], Any]


T = TypeVar("T")
Flow = Generator[Call | Pause | Work, Any, T]


def ask(call: Call) -> Flow[Answer]:
    """The answer to one call."""
    answer: Answer = yield call
    return answer


def work(run: Callable[[], T]) -> Flow[T]:
    """What the work returns."""
    done: T = yield Work(run)
    return done


def run(flow: Flow[T], send: Callable[[Call], Answer], sleep: Callable[[float], None]) -> T:
    def do(step: Call | Pause | Work) -> Any:
        if isinstance(step, Call):
            return send(step)
        return step.run() if isinstance(step, Work) else sleep(step.seconds)

    try:
        step = next(flow)
        while True:
            try:
                done = do(step)
            except EncError as e:
                step = flow.throw(e)
            else:
                step = flow.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def run_async(
    flow: Flow[T], send: Callable[[Call], Awaitable[Answer]], sleep: Callable[[float], Awaitable[None]]
) -> T:
    async def do(step: Call | Pause | Work) -> Any:
        if isinstance(step, Call):
            return await send(step)
        return await (asyncio.to_thread(step.run) if isinstance(step, Work) else sleep(step.seconds))

    try:
        step = next(flow)
        while True:
            try:
                done = await do(step)
            except EncError as e:
                step = flow.throw(e)
            else:
                step = flow.send(done)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
