"""The retrying caller: what it retries, how long it waits, when it gives up; nothing happens twice."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import TimedOut, Unreachable
from enc.client.wire import retrying_caller as module
from enc.client.wire import transport as transport_module
from enc.client.wire.flow import Answer, Call, run
from enc.client.wire.retrying_caller import RetryingCaller
from enc.client.wire.transport import Transport
from enc.core.errors import (
    Duplicate,
    EncError,
    Expired,
    InternalError,
    RateLimited,
    SessionExpired,
    Unauthorized,
    Unavailable,
)
from enc.testing.lying_node import Json
from tests.client.scene import Scene
from tests.client.stage import Stage
from tests.core.world import person

GOOD = Answer(200, b"good")


def refusal(error: EncError) -> Answer:
    return Answer(error.status, encode(error.to_wire()))


class Outcomes:
    """The outcomes of the calls in turn, and the pauses between them."""

    def __init__(self, *answers: Answer | EncError, patience: float = 30.0) -> None:
        self.answers, self.naps, self.now = list(answers), list[float](), 1000.0
        self.calls = 0
        self._caller = RetryingCaller(patience, lambda: self.now)

    def send(self, call: Call) -> Answer:
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, EncError):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds

    def request(self) -> bytes:
        return run(self._caller.request(Call("/")), self.send, self.sleep)


def test_a_good_answer_is_asked_for_once() -> None:
    road = Outcomes(GOOD)
    assert road.request() == b"good"
    assert (road.calls, road.naps) == (1, [])


@pytest.mark.parametrize(
    "bad",
    [
        Unreachable("gone"),
        TimedOut("late"),
        refusal(Unavailable("full")),
        refusal(RateLimited("slow")),
        Answer(502, b"<html>Bad Gateway</html>"),
        Answer(500, b"{}"),
        Answer(404, b'{"detail": "not found"}'),
        Answer(204, b""),
    ],
    ids=str,
)
def test_what_passes_is_tried_again(bad: Answer | EncError) -> None:
    road = Outcomes(bad, bad, GOOD)
    assert road.request() == b"good"
    assert road.naps == [0.1, 0.2]


@pytest.mark.parametrize(
    "error", [Unauthorized("no"), Expired("late"), Duplicate("again"), InternalError("oh")], ids=lambda e: e.code
)
def test_what_stays_is_raised_as_the_node_named_it(error: EncError) -> None:
    road = Outcomes(refusal(error))
    with pytest.raises(type(error), match=error.message):
        road.request()
    assert road.calls == 1


def test_a_code_of_a_later_version_is_kept() -> None:
    road = Outcomes(Answer(418, encode({"type": "Error", "code": "TEAPOT", "message": "short and stout"})))
    with pytest.raises(EncError, match="short and stout") as caught:
        road.request()
    assert caught.value.code == "TEAPOT"


@pytest.mark.parametrize("error", [RateLimited, Unavailable])
def test_the_node_says_when_to_try_again(error: type[EncError]) -> None:
    road = Outcomes(refusal(error("wait", retry_after_ms=1700)), refusal(error("wait", retry_after_ms=1)), GOOD)
    assert road.request() == b"good"
    assert road.naps == [1.7, 0.2], "a wait shorter than our own pause is ignored"


def test_no_node_says_to_wait_for_an_hour() -> None:
    road = Outcomes(refusal(Unavailable("wait", retry_after_ms=3_600_000)), GOOD)
    assert road.request() == b"good"
    assert road.naps == [module.PAUSES.max_s]


def test_each_wait_is_twice_the_one_before_up_to_a_bound() -> None:
    road = Outcomes(Unreachable("gone"), patience=60.0)
    with pytest.raises(Unreachable):
        road.request()
    assert road.naps[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert set(road.naps[6:]) == {module.PAUSES.max_s}


@pytest.mark.parametrize("patience", [0.05, 0.5, 3.0, 30.0])
def test_patience_is_over_in_time(patience: float) -> None:
    road = Outcomes(Unreachable("first"), Unreachable("last"), patience=patience)
    with pytest.raises(Unreachable):
        road.request()
    assert sum(road.naps) < patience
    assert sum(road.naps) >= patience - module.PAUSES.max_s * 2


def test_without_patience_it_is_tried_once() -> None:
    road = Outcomes(Unreachable("gone"), patience=0.0)
    with pytest.raises(Unreachable):
        road.request()
    assert road.calls == 1


def test_the_last_error_is_the_one_that_is_told() -> None:
    road = Outcomes(Unreachable("gone"), refusal(RateLimited("slow")), patience=1.0)
    with pytest.raises(RateLimited):
        road.request()


# Over HTTP


def transport(answer: Any) -> Transport:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        response: httpx.Response = answer
        return response

    return Transport("http://node.test/", 10.0, httpx.Client(transport=httpx.MockTransport(handle), trust_env=False))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (httpx.ConnectTimeout("x"), TimedOut),
        (httpx.ReadTimeout("x"), TimedOut),
        (httpx.PoolTimeout("x"), TimedOut),
        (httpx.ConnectError("x"), Unreachable),
        (httpx.ReadError("x"), Unreachable),
        (httpx.RemoteProtocolError("x"), Unreachable),
        (httpx.DecodingError("x"), Unreachable),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_what_a_lost_answer_is_called(error: Exception, told: type[EncError]) -> None:
    with pytest.raises(told, match=r"node\.test"):
        transport(error).send(Call("/info"))


def test_an_answer_that_comes_in_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part arrives in time, but the whole answer does not."""
    now = [0.0]

    class Drips(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                now[0] += 9.0
                yield b" "

    monkeypatch.setattr(transport_module, "time", type("time", (), {"monotonic": lambda: now[0]}))
    with pytest.raises(TimedOut):
        transport(httpx.Response(200, stream=Drips())).send(Call("/info"))
    assert now[0] <= 10.0 * (transport_module.ANSWER_TIMEOUTS + 1)


def test_the_bound_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_ANSWER", 10)
    assert transport(httpx.Response(200, content=b"0123456789")).send(Call("/info")).body == b"0123456789"
    with pytest.raises(Unreachable, match="more than 10 bytes"):
        transport(httpx.Response(200, content=b"0123456789a")).send(Call("/info"))


# A commit whose answer is lost


class Loses:
    """Loses the first answers to commits, after the node has accepted them."""

    def __init__(self, answers: int) -> None:
        self.left, self.sent = answers, list[bytes]()

    def __call__(self, request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if b'"exp"' in request.content:
            self.sent.append(request.content)
            self.left -= 1
            if self.left >= 0:
                raise httpx.ReadError("lost")
        return response


def patient(stage: Stage, scene: Scene) -> Any:
    return stage.client("bob", patience=30.0).enclave(scene.enclave.id)


@pytest.mark.parametrize("lost", [1, 2, 4])
def test_a_commit_whose_answer_is_lost_becomes_one_event(stage: Stage, scene: Scene, lost: int) -> None:
    """The same bytes are sent again, and the receipt is that of the first."""
    e, wire = patient(stage, scene), Loses(lost)
    scene.node.wire = wire
    receipt = e.commit("message", "once")
    assert len(wire.sent) == lost + 1
    assert len(set(wire.sent)) == 1
    assert [item.id for item in e.query(type="message", author=person("bob").public)] == [receipt.id]
    assert receipt.seq == 8


def test_a_commit_that_was_not_taken_is_taken_later(stage: Stage, scene: Scene) -> None:
    e, left = patient(stage, scene), [2]
    e.head()

    def lost(request: httpx.Request) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise httpx.ConnectError("no node")

    scene.node.arrives = lost
    assert e.commit("message", "once").seq == 8
    assert [item.seq for item in e.query(seq={"start_at": 8})] == [8]


def test_patience_that_is_over_leaves_a_commit_that_can_be_sent_again(stage: Stage, scene: Scene) -> None:
    """A prepared commit becomes one event, however often it is sent, also by another program."""
    e = stage.client("bob").enclave(scene.enclave.id)
    commit = e.prepare("message", "once")
    scene.node.wire = Loses(1)
    with pytest.raises(Unreachable):
        e.send(commit)
    later = stage.client("bob").enclave(scene.enclave.id)
    assert later.send(commit) == later.send(commit) == e.send(commit)
    assert [item.content for item in e.query(seq={"start_at": 8})] == ["once"]


def test_a_duplicate_without_a_receipt_is_told(stage: Stage, scene: Scene) -> None:
    """For example of a commit that was signed with the other algorithm."""

    def refuse(_: Json) -> Json:
        raise Duplicate("taken before")

    scene.lie("Receipt", refuse)
    with pytest.raises(Duplicate):
        scene.enclave.commit("message", "x")


def test_a_nested_receipt_does_no_harm(stage: Stage, scene: Scene) -> None:
    """Nested so deep that it can be decoded but not encoded again."""
    for depth in range(900, 1000):
        deep = b"[" * depth + b"]" * depth
        body = b'{"type":"Error","code":"DUPLICATE","message":"","receipt":{"x":%b}}' % deep
        scene.node.wire = lambda request, response, body=body: httpx.Response(409, content=body)  # type: ignore[misc]
        with pytest.raises(EncError):
            scene.enclave.commit("message", "x")


def test_reads_are_tried_again_too(stage: Stage, scene: Scene) -> None:
    lost = [3]

    def wire(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        lost[0] -= 1
        if lost[0] >= 0:
            raise httpx.ReadTimeout("late")
        return response

    e = patient(stage, scene)
    e.head()
    scene.node.wire = wire
    assert len(list(e.query())) == 8
    assert stage.naps == [0.1, 0.2, 0.4]


def test_a_session_that_the_node_holds_for_over_is_renewed_once(stage: Stage, scene: Scene) -> None:
    """The node's clock is ahead; if by too much, a new session does not help either."""
    e, reader, ours = scene.enclave, stage.reader(scene.enclave), stage.clock.now
    assert len(list(e.query())) == 8
    stage.clock.now += 3_700_000
    reader.session.now = lambda: ours
    with pytest.raises(SessionExpired):
        list(e.query())
    ours = stage.clock.now - 1_000_000
    asked = len(scene.node.calls)
    assert len(list(e.query())) == 8
    assert len(scene.node.calls) == asked + 2, "rejected once, then sent once in a new session"


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br"])
def test_an_answer_in_an_encoding_that_was_not_asked_for_is_not_read(encoding: str) -> None:
    answer = httpx.Response(200, headers={"content-encoding": encoding}, stream=httpx.ByteStream(b"x"))
    with pytest.raises(Unreachable, match="an encoding that was not requested"):
        transport(answer).send(Call("/info"))
