"""Flows: what a client does, separate from how it waits.

A Flow is a generator that yields steps and receives their results. Each client operation is written
once as a Flow; `run` drives it by blocking, `run_async` by awaiting. A failed call is raised inside
the flow, at its `yield`, so the flow itself decides what to retry.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from enc.core.errors import EncError, MisuseError

PIECE = 1 << 18
"""Bytes of a file that are sent in one piece."""


class Call(Struct, frozen=True):
    """One HTTP request."""

    path: str
    body: bytes | None = None
    """None: a GET."""
    base: str | None = None
    """URL of a node other than the client's own."""
    file: Path | None = None
    """File on disk that is sent after the body."""
    kind: str = "application/json"
    """Media type of body and file together."""

    def pieces(self) -> Iterator[bytes]:
        """Yield the body and the file, piece by piece."""
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
    """Slow work that does no I/O through the flow; `run_async` runs it in a thread."""

    run: Callable[[], Any]


class Wait(Struct, frozen=True):
    """The end of what another flow does."""

    end: "Future[Any]"


T = TypeVar("T")
Step = Call | Pause | Work | Wait
Flow = Generator[Step, Any, T]


def ask(call: Call) -> Flow[Answer]:
    """Return the answer to one call."""
    answer: Answer = yield call
    return answer


def work(run: Callable[[], T]) -> Flow[T]:
    """Return the result of the work."""
    done: T = yield Work(run)
    return done


def wait(end: "Future[T]") -> Flow[T]:
    """Return the result of what another flow does."""
    found: T = yield Wait(end)
    return found


def run(flow: Flow[T], send: Callable[[Call], Answer], sleep: Callable[[float], None]) -> T:
    def do(step: Step) -> Any:
        if isinstance(step, Call):
            return send(step)
        if isinstance(step, Wait):
            return step.end.result()
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
    finally:
        flow.close()  # after an interruption, so that nobody waits for it


async def run_async(
    flow: Flow[T], send: Callable[[Call], Awaitable[Answer]], sleep: Callable[[float], Awaitable[None]]
) -> T:
    async def do(step: Step) -> Any:
        if isinstance(step, Call):
            return await send(step)
        if isinstance(step, Wait):
            return await asyncio.wrap_future(step.end)
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
    finally:
        flow.close()  # after an interruption, so that nobody waits for it
