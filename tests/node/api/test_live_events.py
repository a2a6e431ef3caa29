"""Live events reach subscribers in short slices of the loop's time, in turn by their addresses."""

import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from enc.core.rules.v2.access import PolicyV2
from enc.node.api import live_events
from enc.node.api.fair_slots import FairSlots
from enc.node.api.live_events import SLICE_S, Backlog, LiveEvents, Work
from enc.node.api.subscriptions import QuerySubscription, SubscriptionHub
from tests.core.world import give
from tests.node.api.websocket_stage import ROOM, Reader, Socket, Stage, quiet

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def subscribed(stage: Stage, reader: Reader, address: str, count: int = 1) -> Socket:
    socket = Socket(stage, address)
    for i in range(count):
        socket.say(reader.query(f"s{i}", type=["message", "secret"]))
        await socket.until("EOSE")
    return socket


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bitmasks whose read scope was looked up."""
    found, plain = list[int](), PolicyV2.read_scope

    def read_scope(policy: PolicyV2, bitmask: int, *args: Any, **kwargs: Any) -> Any:
        found.append(bitmask)
        return plain(policy, bitmask, *args, **kwargs)

    monkeypatch.setattr(PolicyV2, "read_scope", read_scope)
    return found


async def test_a_slot_changes_nobody_s_rights(lookups: list[int]) -> None:
    stage = Stage()
    enclave = stage.create()
    bob = stage.reader("bob", enclave)
    socket = await subscribed(stage, bob, "a", 5)
    lookups.clear()
    stage.send(enclave, "alice", "Shared", {"key": "topic", "value": 1})
    message = stage.send(enclave, "alice", "message", "after")
    assert [bob.event(found) for found in await socket.rest()] == [message] * 5
    assert lookups == []


async def test_a_gate_is_looked_up_once_for_all_with_equal_rights_and_off_the_loop(lookups: list[int]) -> None:
    stage = Stage(per_connection=30)
    enclave = stage.create()
    bob, carol = stage.reader("bob", enclave), stage.reader("carol", enclave)
    socket, other = await subscribed(stage, bob, "a", 20), await subscribed(stage, carol, "a", 3)
    lookups.clear()
    stage.hands.held = True
    stage.send(enclave, "alice", "Gate", {"alias": "lobby", "state": "closed"})
    await quiet()
    assert lookups == []
    jobs = 0
    while stage.hands.work:
        stage.hands.do(1)
        jobs += 1
        await quiet()
    assert jobs == 2
    stage.hands.held = False
    secret = stage.send(enclave, "alice", "secret", "after")
    assert [bob.event(found) for found in await socket.rest()] == [secret] * 20
    assert len(lookups) == 2
    assert await other.rest() == []  # of secrets she hears nothing, and keeps the right to her own notes


async def test_a_gate_counts_from_its_event_on_whatever_is_written_meanwhile() -> None:
    stage = Stage()
    enclave = stage.create(readers=[*ROOM["readers"], {"type": "GUEST", "reads": "note"}])
    carol = stage.reader("carol", enclave)
    socket = await subscribed(stage, carol, "a")
    stage.hands.held = True
    before = stage.send(enclave, "alice", "message", "before")
    stage.send(enclave, "alice", "Gate", {"alias": "lobby", "state": "closed"})
    stage.send(enclave, "alice", "message", "closed")
    stage.send(enclave, "alice", "Gate", {"alias": "lobby", "state": "open"})
    after = stage.send(enclave, "alice", "message", "open")
    await quiet()
    stage.hands.let_go()
    assert [carol.event(found) for found in await socket.rest()] == [before, after]


async def test_others_hear_on_while_rights_are_looked_up() -> None:
    stage = Stage()
    enclave, other = stage.create(), stage.create(meta={"n": 2})
    bob, alice = stage.reader("bob", enclave), stage.reader("alice", other)
    waiting, socket = await subscribed(stage, bob, "a"), await subscribed(stage, alice, "a")
    stage.hands.held = True
    stage.send(enclave, "alice", "Gate", {"alias": "lobby", "state": "closed"})
    late = stage.send(enclave, "alice", "message", "late")
    message = stage.send(other, "alice", "message", "at once")
    assert [alice.event(found) for found in await socket.rest()] == [message]
    assert await waiting.rest() == []
    stage.hands.let_go()
    assert [bob.event(found) for found in await waiting.rest()] == [late]


async def test_a_subscription_that_is_closed_meanwhile_hears_nothing() -> None:
    stage = Stage()
    enclave = stage.create()
    bob = stage.reader("bob", enclave)
    socket = await subscribed(stage, bob, "a", 2)
    stage.hands.held = True
    stage.send(enclave, "alice", "Grant", give("bob", "reader"))
    message = stage.send(enclave, "alice", "message", "hello")
    await quiet()
    socket.say({"type": "Close", "sub_id": "s0"})
    await quiet()
    stage.hands.let_go()
    assert [(found["sub_id"], bob.event(found)) for found in await socket.rest()] == [("s1", message)]


# Slices


def slow(stage: Stage, monkeypatch: pytest.MonkeyPatch, share: float) -> list[str]:
    """Let each delivery take a share of a slice; return the addresses in the order of deliveries."""
    found, plain = list[str](), SubscriptionHub._deliver

    def deliver(hub: SubscriptionHub, subscription: QuerySubscription, *args: Any) -> None:
        stage.work += SLICE_S * share
        found.append(subscription.address)
        plain(hub, subscription, *args)

    monkeypatch.setattr(SubscriptionHub, "_deliver", deliver)
    return found


async def test_a_slice_ends_and_the_loop_runs_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(per_connection=64)
    enclave = stage.create()
    await subscribed(stage, stage.reader("bob", enclave), "a", 40)
    delivered = slow(stage, monkeypatch, 0.26)
    seen = list[int]()
    stage.talk(enclave, 1)
    while not seen or seen[-1] < 40:
        await asyncio.sleep(0)
        seen.append(len(delivered))
    assert max(b - a for a, b in zip([0, *seen], seen, strict=False)) == 4


async def test_a_slice_ends_also_among_subscriptions_that_are_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(per_connection=64)
    enclave = stage.create()
    await subscribed(stage, stage.reader("bob", enclave), "a", 40)
    await quiet()
    looks = list[str]()

    def live(subscription: QuerySubscription) -> bool:
        stage.work += SLICE_S * 0.26
        looks.append(subscription.sub_id)
        return False

    monkeypatch.setattr(QuerySubscription, "live", property(live, lambda *_: None), raising=False)
    assert max(await growth(stage, enclave, looks, 120)) == 4


async def test_a_slice_ends_also_among_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    enclave = stage.create()
    for i in range(20):
        await subscribed(stage, stage.reader("bob", enclave), f"10.0.0.{i}")
    puts, plain = list[str](), LiveEvents.put

    def put(live: LiveEvents, backlog: Backlog, *args: Any) -> None:
        stage.work += SLICE_S * 0.26
        puts.append(backlog.address)
        plain(live, backlog, *args)

    monkeypatch.setattr(LiveEvents, "put", put)
    delivered = slow(stage, monkeypatch, 0)
    assert max(await growth(stage, enclave, puts, 20)) == 4
    await quiet()
    assert len(delivered) == 60


async def growth(stage: Stage, enclave: bytes, found: list[str], end: int) -> list[int]:
    """Publish three events at once. Return by how much the list grew in each turn of the loop."""
    seen = [0]
    stage.talk(enclave, 3)
    while seen[-1] < end:
        await asyncio.sleep(0)
        seen.append(len(found))
    return [after - before for before, after in pairwise(seen)]


async def test_many_subscriptions_of_one_address_do_not_delay_another_s(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(per_connection=64, subscriptions=300)
    enclave, other = stage.create(), stage.create(meta={"n": 2})
    await subscribed(stage, stage.reader("bob", enclave), "10.0.0.1", 60)
    await subscribed(stage, stage.reader("bob", other), "10.0.0.2")
    delivered = slow(stage, monkeypatch, 0.26)
    stage.talk(enclave, 3)
    stage.talk(other, 1)
    await quiet()
    assert len(delivered) == 181
    assert delivered.index("10.0.0.2") <= 8


async def test_a_backlog_keeps_little_and_the_rest_comes_from_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events, "MAX_BYTES", 10 * live_events.EVENT_BYTES)
    stage = Stage()
    enclave = stage.create()
    bob = stage.reader("bob", enclave)
    socket = await subscribed(stage, bob, "a")
    stage.hands.held = True
    stage.send(enclave, "alice", "Gate", {"alias": "lobby", "state": "closed"})
    await quiet()
    for _ in range(5):
        stage.talk(enclave, 4)
        await quiet()
        assert stage.hub._live.bytes <= 10 * live_events.EVENT_BYTES
    stage.hands.let_go()
    assert [bob.seq(found) for found in await socket.rest()] == list(range(2, 22))
    assert stage.hub._live.bytes == 0


async def test_what_is_published_while_rights_are_looked_up_is_not_missed() -> None:
    """The subscription would go live behind an event that the hub did not pass to it."""
    stage = Stage()
    enclave = stage.create()
    bob = stage.reader("bob", enclave)
    socket = Socket(stage)
    stage.hands.held = True
    socket.say(bob.query("s"))
    for _ in range(2):
        await quiet()
        stage.hands.do(1)
    await quiet()
    stage.hands.do(1)
    stage.talk(enclave, 1)
    stage.hands.let_go()
    assert [bob.seq(found) for found in await socket.rest() if found["type"] == "Event"] == [0, 1]


# Slots


async def test_addresses_get_slots_in_turn() -> None:
    now, held = [0.0], list[str]()
    slots, gate = FairSlots(1, lambda: now[0]), asyncio.Event()

    async def read(address: str) -> None:
        async with slots.hold(address):
            await gate.wait()
            now[0] += 1
            held.append(address)

    tasks = [asyncio.create_task(read(address)) for address in ["crowd"] * 20 + ["one"]]
    await quiet()
    gate.set()
    await asyncio.gather(*tasks)
    assert len(held) == 21
    assert held.index("one") <= 2


async def test_one_address_does_not_hold_all_slots() -> None:
    slots, never, held = FairSlots(8), asyncio.Event(), list[str]()

    async def read(address: str) -> None:
        async with slots.hold(address):
            held.append(address)
            await never.wait()

    tasks = [asyncio.create_task(read(address)) for address in ["crowd"] * 20 + ["one"]]
    await quiet()
    assert held == ["crowd", "crowd", "one"]
    never.set()
    await asyncio.gather(*tasks)
    assert held.count("crowd") == 20


@pytest.mark.parametrize("is_granted", [False, True])
async def test_a_task_that_is_cancelled_frees_its_slot(is_granted: bool) -> None:
    slots, never = FairSlots(1), asyncio.Event()

    async def read() -> None:
        async with slots.hold("a"):
            await never.wait()

    tasks = [asyncio.create_task(read()) for _ in range(3)]
    if is_granted:
        await quiet()
    else:
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(20), slots.hold("b"):
        pass


# Faults


async def unused(address: str, task: Callable[[], object]) -> None:
    raise AssertionError("no step of this test takes long")


async def test_a_fault_in_one_backlog_does_not_end_the_deliveries_of_others() -> None:
    live, done = LiveEvents(), list[str]()
    broken, good = Backlog("a"), Backlog("b")

    def fails(backlog: Backlog) -> Work:
        yield None
        live.take(backlog)
        raise RuntimeError("a fault")

    def works(backlog: Backlog) -> Work:
        while live.take(backlog) is not None:
            done.append(backlog.address)
            yield None

    def arrive(backlog: Backlog, begin: Callable[[Backlog], Work]) -> Iterator[None]:
        live.put(backlog, [], 1, begin)
        yield
        if begin is fails:
            raise RuntimeError("another")

    with capture_logs() as logs:
        for _ in range(2):
            live.spread(arrive(broken, fails))
            live.spread(arrive(good, works))
            live.run(unused)
            await quiet()
    assert (done, live.bytes) == (["b", "b"], 0)
    assert [entry["event"] for entry in logs] == ["internal_error"] * 4


async def test_a_fault_with_one_subscription_does_not_end_live_events() -> None:
    stage = Stage()
    enclave = stage.create()
    bob, carol = stage.reader("bob", enclave), stage.reader("carol", enclave)
    socket, other = await subscribed(stage, bob, "10.0.0.1"), await subscribed(stage, carol, "10.0.0.2")
    (subscription,) = (
        s
        for at in stage.hub._by_enclave[enclave].by_address.values()
        for s in at.subscriptions
        if at.backlog.address == "10.0.0.1"
    )

    def fails(_: QuerySubscription) -> None:
        raise RuntimeError("a fault")

    subscription.on_skipped, subscription.fell_behind = fails, True
    with capture_logs() as logs:
        first = stage.talk(enclave, 1)
        assert [carol.event(m) for m in await other.rest()] == first
    assert [entry["event"] for entry in logs] == ["internal_error"]
    subscription.fell_behind = False
    second = stage.talk(enclave, 1)
    assert [bob.event(m) for m in await socket.rest()] == [*first, *second]
    assert [carol.event(m) for m in await other.rest()] == second
