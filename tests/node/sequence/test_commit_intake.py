"""The commit intake: groups commits that arrive together, and passes on a single one at once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.node.sequence.admission import MAX_GROUP
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies


class Loop:
    """An event loop whose clock advances only when a test moves it."""

    def __init__(self) -> None:
        self.now, self.soon, self.later = 100.0, list[Callable[[], None]](), list[tuple[float, Handle]]()

    def time(self) -> float:
        return self.now

    def call_soon(self, work: Callable[[], None]) -> "Handle":
        handle = Handle(work)
        self.soon.append(handle.run)
        return handle

    def call_at(self, when: float, work: Callable[[], None]) -> "Handle":
        handle = Handle(work)
        self.later.append((when, handle))
        return handle

    def run(self, until: float) -> None:
        self.now = until
        due = [handle.run for when, handle in self.later if when <= until]
        self.later = [(when, handle) for when, handle in self.later if when > until]
        work, self.soon = [*self.soon, *due], []
        for each in work:
            each()


class Handle:
    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._is_cancelled = work, False

    def cancel(self) -> None:
        self._is_cancelled = True

    def run(self) -> None:
        if not self._is_cancelled:
            self._work()


class Groups:
    def __init__(self) -> None:
        self.sizes: list[int] = []

    def submit(self, arrivals: list[Any]) -> None:
        self.sizes.append(len(arrivals))


def intake_and_loop() -> tuple[CommitIntake, Loop, list[int]]:
    loop, groups = Loop(), Groups()
    replies = CommitReplies(loop, 1000)  # type: ignore[arg-type]
    intake = CommitIntake(loop, groups, replies, gather_s=4)  # type: ignore[arg-type]
    return intake, loop, groups.sizes


def submit(intake: CommitIntake, count: int = 1, address: str = "") -> None:
    for _ in range(count):
        intake.submit(b"{}", lambda result, commit_hash: None, address)


def test_a_commit_that_comes_alone_goes_in_the_same_turn() -> None:
    intake, loop, sizes = intake_and_loop()
    submit(intake)
    loop.run(100.0)
    assert sizes == [1]
    submit(intake)
    loop.run(104.0)
    submit(intake)
    loop.run(200.0)
    assert sizes == [1, 1, 1]


def test_what_comes_soon_after_a_group_waits_for_the_next() -> None:
    intake, loop, sizes = intake_and_loop()
    submit(intake, 2)
    loop.run(100.0)
    submit(intake)
    loop.run(102.0)
    submit(intake, 3)
    loop.run(103.9)
    assert sizes == [2]
    loop.run(104.0)
    assert sizes == [2, 4]


def test_a_full_group_does_not_wait() -> None:
    intake, loop, sizes = intake_and_loop()
    submit(intake)
    loop.run(100.0)
    submit(intake, MAX_GROUP + 1)
    assert sizes == [1, MAX_GROUP]
    loop.run(103.9)
    assert sizes == [1, MAX_GROUP]
    loop.run(104.0)
    assert sizes == [1, MAX_GROUP, 1]


def test_an_address_that_sends_much_leaves_places_to_others() -> None:
    intake, _, _ = intake_and_loop()
    submit(intake, 500, "mallory")
    with pytest.raises(Unavailable):
        submit(intake, 1, "mallory")
    submit(intake, 1, "bob")
    assert intake.waiting == 501


def test_on_a_real_loop_every_commit_is_passed_on() -> None:
    async def passed() -> int:
        done, groups = asyncio.Event(), Groups()
        loop = asyncio.get_running_loop()
        intake = CommitIntake(loop, groups, CommitReplies(loop, 1000))  # type: ignore[arg-type]
        submit(intake)
        while groups.sizes != [1]:
            await asyncio.sleep(0)
        submit(intake, 5)
        asyncio.get_running_loop().call_later(1, done.set)
        while sum(groups.sizes) < 6 and not done.is_set():
            await asyncio.sleep(0)
        return sum(groups.sizes)

    assert asyncio.run(passed()) == 6
