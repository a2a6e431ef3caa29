"""The recipients of an event are computed rarely, cached within bounds, and discarded with a failed transaction."""

from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.core.primitives.types import Receipt
from enc.core.rules import policy_types
from enc.node.sequence import recipients as module
from enc.node.store.push_interface import Endpoints, Recipients
from enc.testing.memory_store import MemoryStore
from tests.core.world import give, init, move, person
from tests.node.push_host import OTHER, create, listen, pushed, say
from tests.node.store_host import Host


class Counting(MemoryStore):
    """Counts how often endpoints are asked for, and fails to write on request."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.fails = 0, False

    def endpoints(self, enclave: bytes) -> Endpoints:
        self.asked += 1
        return super().endpoints(enclave)

    def write(self, *what: Any) -> None:
        if self.fails:
            raise Unavailable("no")
        super().write(*what)


class CountingHost(Host):
    store: Counting

    def __init__(self) -> None:
        super().__init__(Counting())


@pytest.fixture
def host() -> CountingHost:
    return CountingHost()


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return, for each time that recipients are judged, the number of identities."""
    calls: list[int] = []

    def recipients(*args: Any) -> Any:
        calls.append(len(args[3]))
        return policy_types.recipients(*args)

    monkeypatch.setattr(module, "recipients", recipients)
    return calls


def audiences(host: Host) -> list[Recipients]:
    return [step.recipients for step in host.steps if step.event is not None]


def test_an_enclave_without_endpoints_is_asked_for_once(host: CountingHost, judged: list[int]) -> None:
    enclave = create(host)
    for _ in range(5):
        say(host, enclave, 3)
    host.send(enclave, "alice", "Grant", give("vera", "view"))
    host.send(enclave, "alice", "Revoke", give("vera", "view"))
    say(host, enclave, 1)
    assert (host.store.asked, judged) == (1, [])
    assert set(audiences(host)) == {()}


def test_each_kind_of_event_is_judged_once_until_rights_change(host: CountingHost, judged: list[int]) -> None:
    enclave = create(host, init=init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER"))
    for i in range(20):
        listen(host, enclave, f"v{i}", "view", f"https://{i}.example/")
    judged.clear()
    host.steps.clear()
    for _ in range(3):
        say(host, enclave, 4)
        say(host, enclave, 4, by="carol")
        host.send(enclave, "bob", "Shared", {"key": "topic", "value": str(host.now)})
        host.send(enclave, "alice", "Move", move("carol", "MEMBER", "OUTSIDER"))  # carol has no endpoint
        host.send(enclave, "alice", "Move", move("carol", "OUTSIDER", "MEMBER"))
    # messages, slots and Moves there and back; all twenty have the same bitmask, so one is judged for all
    assert judged == [1, 1, 1, 1]
    messages = [step.recipients for step in host.steps if step.event is not None and step.event.type == "message"]
    assert len({id(each) for each in messages}) == 1
    assert len(messages[0]) == 20
    host.send(enclave, "alice", "Revoke", give("v0", "ear"))  # it had no endpoints, but might have had
    say(host, enclave, 2)
    assert len(judged) == 6
    assert host.store.asked == 1


def test_equal_audiences_are_one_object(host: CountingHost) -> None:
    enclave = create(host)
    listen(host, enclave, "bob")
    host.steps.clear()
    say(host, enclave, 1, by="alice")
    say(host, enclave, 1, by="bob")  # he has an endpoint himself, and is judged separately
    first, second = audiences(host)
    assert first is second


def test_what_a_failed_batch_did_is_forgotten(host: CountingHost) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    host.store.fails = True
    commits = [
        host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=OTHER)),
        host.commit(enclave, "alice", "Revoke", give("vera", "view")),
    ]
    for commit in commits:
        assert all(isinstance(outcome, Unavailable) for outcome in host.run(commit))
    host.store.fails = False
    say(host, enclave, 1)
    assert pushed(host, "vera") == [2]
    assert pushed(host, "vera", OTHER) == []


def test_an_endpoint_of_an_enclave_that_had_none(host: CountingHost) -> None:
    enclave = create(host)
    say(host, enclave, 1)
    host.store.fails = True
    host.run(host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=OTHER)))
    host.store.fails = False
    say(host, enclave, 1)
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    assert pushed(host, "vera") == [4]
    assert pushed(host, "vera", OTHER) == []


def test_an_event_whose_audience_cannot_be_told_is_refused_alone(
    host: CountingHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    honest = policy_types.recipients

    def broken(*args: Any) -> Any:
        if args[1].type == "note":
            raise RuntimeError("broken")
        return honest(*args)

    monkeypatch.setattr(module, "recipients", broken)
    commits = [host.commit(enclave, "bob", type_, "x") for type_ in ("message", "note", "message")]
    outcomes = host.run(*commits)
    assert [isinstance(outcome, Receipt) for outcome in outcomes] == [True, False, True]
    assert pushed(host, "vera") == [2, 3]


def test_few_enclaves_and_answers_are_remembered(host: CountingHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WITHOUT_ENDPOINTS", 2)
    monkeypatch.setattr(module, "MAX_ENDPOINTS", 4)
    monkeypatch.setattr(module, "MAX_ANSWERS", 2)
    enclaves = [create(host, str(i)) for i in range(8)]
    for enclave in enclaves[:5]:
        listen(host, enclave, "vera")
        listen(host, enclave, "nick", "watch")
    known = host.sequencer._recipients
    for _ in range(2):
        for enclave in enclaves:
            for type_ in ("message", "note", "silent", "gated"):
                say(host, enclave, 1, type_)
            assert len(known._without_endpoints) <= 2
            assert known._weight() <= 4
            assert all(len(each._answers) <= 2 for each in known._known.values())
    for enclave in enclaves[:5]:
        assert pushed(host, "vera", enclave=enclave) == [3, 6, 7, 10]
    for name in ("v0", "v1", "v2", "v3", "v4"):
        listen(host, enclaves[0], name)
    assert list(known._known) == [enclaves[0]]  # one enclave is cached, whatever its size
    assert person("vera").public in {identity for identity, _ in known._known[enclaves[0]].urls}
