"""Work that several flows need is done by one; the others get its result, its error, or its place."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from enc.client import Fork, Unreachable
from enc.client.evidence.evidence import answer_evidence
from enc.client.link.node_link import NodeLink
from enc.client.registry.registry_client import CACHE_S
from enc.client.wire.flow import Answer, Call, Flow, run, run_async
from enc.client.wire.retrying_caller import RetryingCaller
from enc.client.wire.single_flight import SingleFlight
from enc.core.errors import EncError, EnclaveMigrated
from tests.client.at_once import MANY, Counting, at_once
from tests.client.registry.office import Office
from tests.client.stage import Stage
from tests.core.world import person


def ask(flight: SingleFlight, path: str = "/info") -> Flow[Answer]:
    def work() -> Flow[Answer]:
        return (yield Call(path))

    return flight.run(path, work)


class Slow:
    """Answers each async call after the other tasks have run."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes, self.paths = list(outcomes), list[str]()

    async def send(self, call: Call) -> Answer:
        self.paths.append(call.path)
        outcome = self.outcomes.pop(0) if self.outcomes else Answer(200, b"")
        for _ in range(5):
            await asyncio.sleep(0)
        if outcome == "hang":
            await asyncio.Event().wait()
        if isinstance(outcome, EncError):
            raise outcome
        return outcome if isinstance(outcome, Answer) else Answer(200, b"")


def test_tasks_share_one_call() -> None:
    flight, slow = SingleFlight(), Slow(Answer(200, b"one"), Answer(200, b"two"))

    async def main() -> list[Answer]:
        return await asyncio.gather(*(run_async(ask(flight), slow.send, asyncio.sleep) for _ in range(MANY)))

    assert asyncio.run(main()) == [Answer(200, b"one")] * MANY
    assert slow.paths == ["/info"]
    assert asyncio.run(run_async(ask(flight), slow.send, asyncio.sleep)) == Answer(200, b"two"), "nothing is cached"


def test_other_work_is_done_beside_it() -> None:
    flight, slow = SingleFlight(), Slow()

    async def main() -> None:
        await asyncio.gather(*(run_async(ask(flight, path), slow.send, asyncio.sleep) for path in "ab" * MANY))

    asyncio.run(main())
    assert sorted(slow.paths) == ["a", "b"]


ERRORS = [
    Unreachable("gone"),
    EnclaveMigrated("moved", new_sequencer="ab"),
    Fork("two logs", answer_evidence("fork", bytes(32), bytes(32), "two logs", b"")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_tasks_share_an_error_each_as_its_own(error: EncError) -> None:
    flight, slow = SingleFlight(), Slow(error)

    async def main() -> list[Any]:
        flows = [run_async(ask(flight), slow.send, asyncio.sleep) for _ in range(MANY)]
        return await asyncio.gather(*flows, return_exceptions=True)

    found = asyncio.run(main())
    assert slow.paths == ["/info"]
    assert len({id(each) for each in found}) == MANY
    for each in found:
        assert type(each) is type(error)
        assert (each.message, each.context, str(each)) == (error.message, error.context, str(error))
        assert vars(each) == vars(error)


def test_another_task_takes_over_from_a_cancelled_one() -> None:
    flight, slow = SingleFlight(), Slow("hang", Answer(200, b"two"))

    async def main() -> list[Answer]:
        first, *others = (asyncio.create_task(run_async(ask(flight), slow.send, asyncio.sleep)) for _ in range(MANY))
        for _ in range(10):
            await asyncio.sleep(0)
        first.cancel()
        found = await asyncio.gather(*others)
        assert first.cancelled()
        return found

    assert asyncio.run(main()) == [Answer(200, b"two")] * (MANY - 1)
    assert slow.paths == ["/info"] * 2


def test_a_cancelled_task_that_waits_disturbs_nobody() -> None:
    flight, slow = SingleFlight(), Slow(Answer(200, b"one"))

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(run_async(ask(flight), slow.send, asyncio.sleep)) for _ in range(MANY)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(main())
    assert isinstance(found.pop(1), asyncio.CancelledError)
    assert found == [Answer(200, b"one")] * (MANY - 1)


def test_what_is_forgotten_is_asked_for_again() -> None:
    flight, slow = SingleFlight(), Slow(Answer(200, b"old"), Answer(200, b"new"))

    async def main() -> tuple[Answer, Answer]:
        first = asyncio.create_task(run_async(ask(flight), slow.send, asyncio.sleep))
        await asyncio.sleep(0)
        flight.forget("/info")
        second = asyncio.create_task(run_async(ask(flight), slow.send, asyncio.sleep))
        return await first, await second

    assert asyncio.run(main()) == (Answer(200, b"old"), Answer(200, b"new"))


def test_threads_ask_a_node_for_its_key_once() -> None:
    """The first answer comes after all threads have begun."""
    node = NodeLink(RetryingCaller(0.0, lambda: 0.0, "http://node.test"), None)
    calls, begun, all_begun = list[str](), list[int](), threading.Event()
    body = b'{"seq_pub":"%s"}' % person("node").public.hex().encode()

    def send(call: Call) -> Answer:
        calls.append(call.path)
        assert all_begun.wait(30)
        return Answer(200, body)

    def first_request(_: int) -> bytes:
        begun.append(1)
        if len(begun) == MANY:
            all_begun.set()
        return run(node.seq_pub(), send, lambda seconds: None)

    with ThreadPoolExecutor(MANY) as threads:
        assert set(threads.map(first_request, range(MANY))) == {person("node").public}
    assert calls == ["/info"]


# Clients


@pytest.fixture
def office(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stage = Stage("async", tmp_path, monkeypatch)
    yield Office(stage)
    stage.close()


def test_first_commits_ask_for_the_key_once(office: Office) -> None:
    client = office.stage.client("bob", pins=None)
    counting, enclave = Counting(client), client._inner.enclave(office.enclave.id)
    at_once(office.stage, lambda: enclave.commit("message", "hello"))
    assert counting.paths.count("http://node.test/info") == 1
    assert len(counting.paths) == 1 + MANY


def test_first_requests_by_a_registry_ask_it_once(office: Office) -> None:
    client = office.client("bob", pins=None)
    counting, enclave = Counting(client), client._inner.enclave(office.enclave.id)
    at_once(office.stage, lambda: enclave.commit("message", "hello"))
    asked = [path for path in counting.paths if "/resolve/" in path]
    office.stage.clock.tick(round(CACHE_S * 1000))
    counting.paths.clear()
    at_once(office.stage, lambda: client._inner.resolve(office.enclave.id))
    assert len(asked) <= 2, "to locate it, and to see whether it has moved"
    assert len([path for path in counting.paths if "/resolve/" in path]) == 1


def test_commits_that_find_a_move_look_for_the_new_node_once(office: Office) -> None:
    stage = office.stage
    client = stage.client("bob", nodes=["http://b.test"])
    counting, enclave = Counting(client), client._inner.enclave(office.enclave.id)
    at_once(office.stage, lambda: enclave.head())
    node = stage.node
    node.take(node.migrate(office.enclave.id, person("alice"), person("node-b")))
    stage.others["b.test"] = node.successor(office.enclave.id, person("node-b"))
    counting.paths.clear()
    receipts = at_once(office.stage, lambda: enclave.commit("message", "there"))
    assert {receipt.sequencer for receipt in receipts} == {person("node-b").public}
    assert counting.paths.count("http://b.test/info") == 1


def test_a_new_node_proves_itself_once(office: Office) -> None:
    office.enclave.head()
    node = office.stage.node
    node.take(node.migrate(office.enclave.id, person("alice"), person("node-b")))
    office.stage.others["b.test"] = node.successor(office.enclave.id, person("node-b"))
    client = office.stage.client("bob", url="http://b.test")
    counting, enclave = Counting(client), client._inner.enclave(office.enclave.id)
    at_once(office.stage, lambda: enclave.head())
    assert counting.paths.count("http://b.test/bundle") == 1


def test_a_lookup_after_a_change_does_not_share_one_from_before_it(office: Office) -> None:
    client = office.client("bob", pins=None)._inner
    counting = Counting(office.stage._clients[-1])

    async def main() -> None:
        first = asyncio.create_task(client.resolve(office.enclave.id))
        while not any("/resolve/" in path for path in counting.paths):
            await asyncio.sleep(0)
        client._setup.registry_client.forget(office.enclave.id)
        await asyncio.gather(first, client.resolve(office.enclave.id))

    office.stage._runner.run(main())
    assert len([path for path in counting.paths if "/resolve/" in path]) == 2
