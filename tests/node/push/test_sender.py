"""The sender between a store, a node and endpoints that fail in turn; and the node's side of its pipe."""

import asyncio
import os
import select
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec import structs

from enc.core.errors import InternalError, Unavailable
from enc.core.primitives.sealing import push_key
from enc.core.primitives.signer import SignerUnavailable
from enc.core.session.envelope import open_push
from enc.node.config import NodeConfig
from enc.node.push import sender as module
from enc.node.push import supervisor as parent
from enc.node.push.schedule import Bounds, Schedule
from enc.node.push.sender import NO_KEY, NOT_READABLE, PushSender, sealed
from enc.node.push.sender_pipe import (
    LENGTH,
    MAX_MESSAGE,
    MAX_RESULTS,
    AskKey,
    DeliveryResults,
    Key,
    ResultsStored,
    length,
    packed,
    read_from_sender,
)
from enc.node.push.supervisor import PushSupervisor
from enc.node.store.push_interface import DeliveryResult, DueBatch, PushBatch, PushResult
from enc.runtime.backoff import RetryPauses
from tests.client.keys.opaque_signer import OpaqueSigner
from tests.core.world import person
from tests.node.sender_world import NODE, PATIENCE_S, SenderWorld


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0)


def test_everything_goes_out_in_order() -> None:
    world = SenderWorld({1: 5, 2: 3, 7: 1})
    world.run(lambda: world.is_empty)
    for queue, count in ((1, 5), (2, 3), (7, 1)):
        assert [push_seq for one, push_seq in world.posted if one == queue] == list(range(1, count + 1))
    assert all(not outcome.error and outcome.next_try is None for outcome in world.settled)


def test_what_follows_in_a_queue_goes_without_a_look_at_all_queues() -> None:
    world = SenderWorld({3: 50, 4: 50, 9: 1})
    due, looks = world.due, list[int]()

    def counted(now: int, limit: int, after: int = 0) -> list[DueBatch]:
        looks.append(limit)
        return due(now, limit, after)

    world.due = counted  # type: ignore[method-assign]
    world.run(lambda: world.is_empty, look_s=3600.0)
    assert looks[0] == module.PAGE
    assert set(looks[1:]) == {1}


def test_more_queues_than_one_look_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow queues at the front must not hide the queues behind them."""

    async def answer(queue: int, push_seq: int) -> str:
        if queue <= 20:
            await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(module, "PAGE", 3)
    monkeypatch.setattr(module, "PAGES", 2)
    world = SenderWorld(dict.fromkeys(range(1, 41), 2))
    world.answer = answer
    world.run(lambda: not any(world.store[queue] for queue in range(21, 41)))
    assert len(world.posted) == 20 + 2 * 20


def test_a_batch_is_not_sent_again_while_its_outcome_is_not_durable() -> None:
    """The store cannot be written for a while, and still reports the batch as due."""
    world = SenderWorld({1: 2})
    refused = iter([False] * 20)
    world.is_durable = lambda: next(refused, True)
    world.run(lambda: world.is_empty)
    assert world.posted == [(1, 1), (1, 2)]
    assert next(refused, None) is None


def test_a_batch_of_a_suspended_enclave_waits_and_later_ones_go_on() -> None:
    """It counts as no failure, and is sent once the enclave is served again."""
    world = SenderWorld({1: 3})
    world.suspended = {1}
    looks, read = 0, world.read

    def resumed(queue: int, push_seq: int) -> None:
        nonlocal looks
        looks += push_seq == 1
        if looks == 3:
            world.suspended = set()
        read(queue, push_seq)

    world.read = resumed
    world.run(lambda: world.is_empty)
    assert world.posted == [(1, 2), (1, 3), (1, 1)]
    assert looks == 3
    assert [(outcome.push_seq, outcome.error) for outcome in world.settled] == [(2, ""), (3, ""), (1, "")]


def test_a_failed_batch_is_tried_until_it_is_dead_and_later_ones_go_on() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        return "status 500" if push_seq == 1 else ""

    world = SenderWorld({1: 3})
    world.answer = answer
    world.run(lambda: world.is_empty, Bounds(first_retry_ms=100_000, max_retry_ms=100_000, tries=1))
    assert world.posted == [(1, 1), (1, 2), (1, 3)]
    assert [(outcome.push_seq, outcome.error, outcome.next_try) for outcome in world.settled] == [
        (1, "status 500", None),
        (2, "", None),
        (3, "", None),
    ]
    world = SenderWorld({1: 3})
    world.answer = answer
    world.run(lambda: world.is_empty, Bounds(first_retry_ms=200, max_retry_ms=200, tries=3))
    assert sorted(world.posted) == [(1, 1)] * 3 + [(1, 2), (1, 3)]
    assert world.posted[:3] == [(1, 1), (1, 2), (1, 3)]
    tried = [outcome for outcome in world.settled if outcome.push_seq == 1]
    assert [None if outcome.next_try is None else outcome.next_try - outcome.at for outcome in tried] == [
        200,
        200,
        None,
    ]


def test_a_queue_whose_endpoint_never_answers_keeps_no_other_waiting() -> None:
    async def answer(queue: int, push_seq: int) -> str:
        if queue == 1:
            await asyncio.Event().wait()
        return ""

    world = SenderWorld({1: 3, 2: 30})
    world.answer = answer
    world.run(lambda: not world.store[2], Bounds(connections=4))
    assert [one for one in world.posted if one[0] == 1] == [(1, 1)]


def test_an_identity_that_is_no_key_fails_alone() -> None:
    world = SenderWorld({1: 1})
    world.has_key = False
    world.run(lambda: bool(world.settled), Bounds(first_retry_ms=100_000, max_retry_ms=100_000))
    assert world.posted == []
    assert world.settled[0].error == NO_KEY


def test_a_damaged_batch_stops_no_other() -> None:
    def read(queue: int, push_seq: int) -> None:
        if queue == 1:
            raise KeyError("a row that is not there")

    world = SenderWorld({1: 1, 2: 4})
    world.read = read
    world.run(lambda: world.is_empty, Bounds(first_retry_ms=1, tries=2))
    assert [push_seq for _, push_seq in world.posted] == [1, 2, 3, 4]
    assert [outcome.error for outcome in world.settled if outcome.queue == 1] == [NOT_READABLE] * 2


@pytest.mark.parametrize("what", ["due", "batch"])
def test_a_store_that_cannot_be_read_counts_against_nobody(what: str) -> None:
    world = SenderWorld({1: 2})
    failures, read = iter([True] * 5), getattr(world, what)

    def failing(*args: int) -> object:
        if next(failures, False):
            raise Unavailable("the store cannot be read")
        return read(*args)

    setattr(world, what, failing)
    world.run(lambda: world.is_empty)
    assert [outcome.error for outcome in world.settled] == ["", ""]
    assert next(failures, None) is None


def test_a_batch_that_is_gone_is_not_missed() -> None:
    world = SenderWorld({1: 1, 2: 1})
    batch = world.batch

    def gone(queue: int, push_seq: int) -> PushBatch | None:
        if queue == 1:
            world.store[1].clear()
            return None
        return batch(queue, push_seq)

    world.batch = gone  # type: ignore[method-assign]
    world.run(lambda: world.is_empty)
    assert world.posted == [(2, 1)]
    assert [outcome.queue for outcome in world.settled] == [2]


def test_keys_are_asked_for_once_and_not_all_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    world = SenderWorld({1: 20, 2: 20})
    world.run(lambda: world.is_empty)
    assert world.keys_asked == 2
    monkeypatch.setattr(module, "MAX_KEYS", 4)
    world = SenderWorld(dict.fromkeys(range(1, 20), 1))
    sender = world.run(lambda: world.is_empty)
    assert len(sender._keys) == 4


def test_what_is_under_way_when_it_stops_is_told_of_if_it_ends_in_time() -> None:
    async def work() -> tuple[PushResult, ...]:
        let_go = asyncio.Event()

        async def answer(queue: int, push_seq: int) -> str:
            await (let_go.wait() if queue == 1 else asyncio.Event().wait())
            return ""

        world = SenderWorld({1: 1, 2: 1})
        world.answer = answer
        sender = PushSender(Schedule(Bounds()), world, world, world, NODE.public, look_s=0.0, clock=world.tick)
        running = asyncio.create_task(sender.run())
        while len(world.posted) < 2:
            await asyncio.sleep(0)
        sender.stop()
        await running
        let_go.set()
        try:
            return await sender.finish(0.05)
        finally:
            for task in sender._tries:
                task.cancel()

    outcomes = [outcome for outcome in asyncio.run(work()) if isinstance(outcome, DeliveryResult)]
    assert [(outcome.queue, outcome.error) for outcome in outcomes] == [(1, "")]


def test_what_was_told_before_it_stops_is_not_told_twice() -> None:
    async def work() -> tuple[PushResult, ...]:
        told = asyncio.Event()

        async def store_results(outcomes: tuple[PushResult, ...]) -> bool:
            told.set()
            return await asyncio.Future()

        world = SenderWorld({1: 1})
        world.store_results = store_results  # type: ignore[method-assign]
        sender = PushSender(Schedule(Bounds()), world, world, world, NODE.public, look_s=0.0, clock=world.tick)
        running = asyncio.create_task(sender.run())
        await told.wait()
        sender.stop()
        await running
        return await sender.finish(PATIENCE_S)

    assert asyncio.run(work()) == ()


def test_a_delivery_opens_as_the_kernel_says() -> None:
    vera = person("vera")
    one = DueBatch(1, 7, vera.public, 'https://hook.example/"q"?a=1', 0, 1)
    body = sealed(NODE.public, one, b'{"push_seq":7}', push_key(NODE, vera.public))
    push = open_push(vera, body)
    assert (push.from_, push.to, push.url, push.body) == (
        NODE.public,
        vera.public,
        one.url,
        {"url": one.url, "push_seq": 7},
    )
    assert body != sealed(NODE.public, one, b'{"push_seq":7}', push_key(NODE, vera.public))


# The node's side


class WaitingSigner(OpaqueSigner):
    """Does not answer the first `failures` requests."""

    failures = 0

    def ecdh(self, public: bytes, /) -> bytes:
        if self.failures:
            self.failures -= 1
            raise SignerUnavailable("the signer does not answer")
        return super().ecdh(public)


class Side:
    """`PushSupervisor` with a process that the test simulates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
        self.settled: list[PushResult] = []
        self.refuse: list[Exception] = []
        self.changed = threading.Condition()
        popen = subprocess.Popen
        self.started = 0

        def start(command: Sequence[str], **how: Any) -> Any:
            with self.changed:
                self.started += 1
                self.changed.notify_all()
            return popen([command[0], "-c", program], **how)

        monkeypatch.setattr(subprocess, "Popen", start)
        config = structs.replace(NodeConfig(), push=structs.replace(NodeConfig().push, interval_s=0.01))
        self.signer = WaitingSigner(NODE)
        self.senders = PushSupervisor(config, self.signer, lambda: True, self.settle)

    def settle(self, outcomes: Sequence[PushResult]) -> None:
        with self.changed:
            if self.refuse:
                raise self.refuse.pop()
            self.settled += outcomes
            self.changed.notify_all()

    def until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_S)


TALK = """
import os, sys
from enc.node.push.sender_pipe import *
from enc.node.store.push_interface import DeliveryResult
def hear():
    head = sys.stdin.buffer.read(4)
    return read_to_sender(sys.stdin.buffer.read(length(head))) if head else None
def say(message):
    os.write(1, packed(message))
assert isinstance(hear(), Start)
"""


def test_outcomes_are_told_again_until_they_are_kept_and_keys_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"""{TALK}
say(AskKey(bytes.fromhex("{person("vera").public.hex()}")))
key = hear().key.hex()
say(AskKey(b"\\xff" * 32))
assert hear().key == b""
outcomes = DeliveryResults((DeliveryResult(1, 2, 3, key[:60]),))
for expected in (False, False, True):
    say(outcomes)
    assert hear() == ResultsStored(expected)
hear()
"""
    side = Side(monkeypatch, program)
    side.refuse = [InternalError("a fault"), KeyError("a damaged row")]
    side.senders.start()
    side.until(lambda: bool(side.settled))
    side.senders.close()
    key = push_key(NODE, person("vera").public).hex()
    assert side.settled == [DeliveryResult(1, 2, 3, key[:60])]
    assert side.started == 1


def test_a_key_is_given_once_the_signer_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "SIGNER_PAUSE_S", 0.001)
    program = f"""{TALK}
say(AskKey(bytes.fromhex("{person("vera").public.hex()}")))
say(DeliveryResults((DeliveryResult(1, 2, 3, hear().key.hex()[:60]),)))
hear()
hear()
"""
    side = Side(monkeypatch, program)
    side.signer.failures = 3
    side.senders.start()
    side.until(lambda: bool(side.settled))
    side.senders.close()
    key = push_key(NODE, person("vera").public).hex()
    assert side.settled == [DeliveryResult(1, 2, 3, key[:60])]


def test_a_node_stops_while_the_signer_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(monkeypatch, f'{TALK}\nsay(AskKey(bytes.fromhex("{person("vera").public.hex()}")))\nhear()')
    side.signer.failures = 1 << 30
    side.senders.start()
    side.until(lambda: side.started > 0)
    side.senders.close()
    assert side.settled == []


@pytest.mark.parametrize(
    "program",
    [
        "",
        "import sys; sys.exit(3)",
        TALK,
        TALK + "os.write(1, b'\\x00\\x00\\x00\\x05hello'); hear()",
        TALK + "os.write(1, b'\\xff\\xff\\xff\\xff'); hear()",
        TALK + "os.write(1, packed(ResultsStored(True))); hear()",
    ],
)
def test_a_sender_that_ends_or_talks_nonsense_is_replaced(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "PAUSES", RetryPauses(max_s=0.0))
    side = Side(monkeypatch, program)
    side.senders.start()
    side.until(lambda: side.started == 3)
    side.senders.close()
    assert not side.senders._thread.is_alive()
    assert side.senders.pid is None


def test_a_sender_that_does_not_stop_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "STOP_S", 0.05)
    program = f"{TALK}say(DeliveryResults((DeliveryResult(1, 1, 1),))); hear(); import time; time.sleep(1000)"
    side = Side(monkeypatch, program)
    side.senders.start()
    side.until(lambda: bool(side.settled))
    pid = side.senders.pid
    assert pid is not None
    descriptor = os.pidfd_open(pid)
    side.senders.close()
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000)
    os.close(descriptor)


def test_without_anything_to_send_there_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(monkeypatch, TALK)
    asked = threading.Semaphore(0)

    def is_due() -> bool:
        asked.release()
        if side.refuse:
            raise side.refuse.pop()
        return False

    side.refuse = [Unavailable("the store cannot be read")]
    side.senders._is_due = is_due
    side.senders.start()
    for _ in range(3):
        assert asked.acquire(timeout=PATIENCE_S)
    side.senders.close()
    assert side.started == 0


def test_a_process_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "PAUSES", RetryPauses(max_s=0.0))
    side = Side(monkeypatch, TALK)
    start, tried = subprocess.Popen, threading.Semaphore(0)

    def fail(*args: Any, **how: Any) -> Any:
        tried.release()
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(subprocess, "Popen", fail)
    side.senders.start()
    for _ in range(3):
        assert tried.acquire(timeout=PATIENCE_S)
    monkeypatch.setattr(subprocess, "Popen", start)
    side.until(lambda: side.started > 0)
    side.senders.close()


def test_closing_what_was_never_started(monkeypatch: pytest.MonkeyPatch) -> None:
    Side(monkeypatch, TALK).senders.close()


def test_messages_are_bounded() -> None:
    assert length(LENGTH.pack(MAX_MESSAGE)) == MAX_MESSAGE
    with pytest.raises(ValueError, match="too long"):
        length(LENGTH.pack(MAX_MESSAGE + 1))
    most = tuple(DeliveryResult(1 << 62, 1 << 62, 1 << 62, "x" * 200, 1 << 62) for _ in range(MAX_RESULTS))
    assert len(packed(DeliveryResults(most))) < MAX_MESSAGE
    for message in (AskKey(bytes(32)), DeliveryResults((DeliveryResult(1, 2, 3, "e", 4),))):
        assert read_from_sender(packed(message)[4:]) == message
    assert {type(message) for message in (Key(b"", b""), ResultsStored(True))} == {Key, ResultsStored}
