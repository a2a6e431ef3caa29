"""A receiver as an ASGI app: its answers, its limits, and its state after a kill."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from enc.client import PushReceiver
from enc.client.receive import app as receiver_app
from enc.client.receive.inbox_file import Db
from enc.core.primitives.sealing import push_key
from enc.core.primitives.types import Event
from enc.core.session.envelope import is_challenge_answer, seal_challenge
from tests.client.pushing import HOOK, Post, note, push
from tests.client.running_receiver import JSON, RunningReceiver
from tests.client.serving_app import served
from tests.client.stage import URL
from tests.core.world import person
from tests.node.served import NODE


def test_a_push_over_http_is_handed_over(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.receiver()
    with served(receiver.app) as http:
        answer = http.post("/hook", content=push(1, *events), headers=JSON)
        assert (answer.status_code, answer.json()) == (200, {"type": "Taken"})
        assert post.seqs(receiver) == [0, 1]
        bob = person("bob").public
        asked = seal_challenge(push_key(NODE, bob), NODE.public, bob, HOOK, bytes(32), bytes(24))
        answer = http.post("/hook", json=asked)
        assert (answer.status_code, is_challenge_answer(bytes(32), answer.content)) == (200, True)
    assert receiver._is_closed


def test_a_handler_that_awaits_runs_on_the_server_s_loop(post: Post) -> None:
    events, loops = post.enclave(["one"]), set[Any]()

    async def handle(event: Event, db: Db) -> None:
        loops.add(asyncio.get_running_loop())
        await asyncio.to_thread(lambda: None)
        note(event, db)

    receiver = post.receiver(handle)
    with served(receiver.app) as http:
        assert http.post("/hook", content=push(1, *events), headers=JSON).status_code == 200
        assert post.seqs(receiver) == [0, 1]
        assert loops == {receiver.worker.loop}


def test_a_handler_may_use_the_loop_s_threads_while_pushes_wait_for_it(post: Post) -> None:
    events = post.enclave(["one"])

    async def handle(event: Event, db: Db) -> None:
        if event.seq == 0:
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
            while not receiver.worker._work:
                await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        note(event, db)

    receiver = post.receiver(handle)
    with served(receiver.app) as http:
        assert http.post("/hook", content=push(1, events[0]), headers=JSON).status_code == 200
        assert http.post("/hook", content=push(2, events[1]), headers=JSON).status_code == 200
        assert post.seqs(receiver) == [0, 1]


def test_a_push_to_another_path_is_logged_with_the_one_that_is_expected(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a proxy that removes a prefix."""
    with served(post.receiver().app) as http:
        for method, path in (("GET", "/favicon.ico"), ("POST", "/" + "x" * 200), ("POST", "/other")):
            assert http.request(method, path, content=b"{}", headers=JSON).status_code == 404
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    shown = "/" + "x" * 99
    assert found == [
        f"a request to '{shown}' was rejected: pushes are accepted at '/hook'; a proxy must keep the URL's path"
    ]


def test_what_http_says_no_to(post: Post) -> None:
    good = push(1, *post.enclave())
    with served(post.receiver(max_body=2 * len(good)).app) as http:
        for status, method, path, headers, content in (
            (404, "POST", "/", JSON, good),
            (404, "POST", "/hook/", JSON, good),
            (404, "GET", "/", {}, b""),
            (405, "GET", "/hook", {}, b""),
            (405, "PUT", "/hook", JSON, good),
            (415, "POST", "/hook", {}, good),
            (415, "POST", "/hook", {"content-type": "text/plain"}, good),
            (415, "POST", "/hook", {**JSON, "content-encoding": "gzip"}, good),
            (413, "POST", "/hook", JSON, good * 3),
            (400, "POST", "/hook", JSON, b"garbage"),
            (400, "POST", "/hook", JSON, b""),
            (403, "POST", "/hook", JSON, push(1, key=person("node2"))),
            (200, "POST", "/hook", {"content-type": "application/json; charset=utf-8"}, good),
        ):
            answer = http.request(method, path, headers=headers, content=content)
            assert answer.status_code == status, (path, headers)
            assert answer.headers["content-type"] == "application/json"
            assert set(answer.json()) <= {"type", "code", "message"}
            assert ("allow" in answer.headers) == (status == 405)

        def drip() -> Iterator[bytes]:
            for _ in range(3):
                yield good

        assert http.post("/hook", headers=JSON, content=drip()).status_code == 413


def test_what_cannot_be_taken_now_says_when_to_come_again(post: Post) -> None:
    events = post.enclave(["one"])
    receiver = post.receiver(max_early=0)
    with served(receiver.app) as http:
        answer = http.post("/hook", content=push(2, *events), headers=JSON)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["code"] == "UNAVAILABLE"


def call(receiver: PushReceiver, *messages: Any, **scope: Any) -> list[Any]:
    """Return the app's answer to one request."""
    said, given = list[Any](), list(messages)

    async def receive() -> Any:
        if not given:
            await asyncio.Event().wait()
        return given.pop(0)

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"content-type", b"application/json")]
    asked = {"type": "http", "method": "POST", "path": "/hook", "headers": headers, **scope}
    asyncio.run(receiver.app(asked, receive, send))
    return said


@pytest.mark.parametrize(
    ("root", "path", "status"),
    [
        ("", "/hook", 200),
        ("/api", "/api/hook", 404),
        ("/hook", "/hook", 200),
        ("/hook", "/hook/", 200),
        ("/hook", "/", 200),
        ("/hook", "", 200),
        ("/hook", "/hook/more", 404),
        ("/ho", "/hook", 404),
        ("", "/hook/", 404),
        ("/other", "/", 404),
    ],
)
def test_a_mount_s_prefix_counts_whether_or_not_it_is_part_of_the_path(
    post: Post, root: str, path: str, status: int
) -> None:
    said = call(post.receiver(), part(push(1, *post.enclave())), root_path=root, path=path)
    assert said[0]["status"] == status


@pytest.mark.parametrize("path", ["/api/hook", "/hook"])
def test_a_receiver_below_a_prefix(post: Post, path: str) -> None:
    receiver = post.receiver(url="https://bob.test/api/hook")
    said = call(receiver, part(push(1, *post.enclave(), url=receiver.url)), root_path="/api", path=path)
    assert said[0]["status"] == 200


def part(body: bytes, more: bool = False) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_may_come_in_parts(post: Post) -> None:
    receiver, whole = post.receiver(), push(1, *post.enclave())
    said = call(receiver, part(whole[:10], True), part(whole[10:]))
    assert said[0]["status"] == 200
    assert post.seqs(receiver) == [0]


def test_a_body_that_breaks_off_is_refused(post: Post) -> None:
    said = call(post.receiver(), part(b"{", True), {"type": "http.disconnect"})
    assert said[0]["status"] == 400
    assert b"ended early" in said[1]["body"]


def test_a_body_that_does_not_come_is_not_waited_for(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_app, "BODY_S", 0.0)
    assert call(post.receiver(), part(b"{", True))[0]["status"] == 408


@pytest.mark.parametrize("length", [b"17000000", b"9" * 5000])
def test_a_body_that_says_it_is_too_large_is_not_read(post: Post, length: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    assert call(post.receiver(), headers=headers)[0]["status"] == 413


def test_requests_at_a_time_are_bounded(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_app, "MAX_REQUESTS", 0)
    said = call(post.receiver(), part(b"{}"))
    assert said[0]["status"] == 503
    assert (b"retry-after", b"1") in said[0]["headers"]


def test_requests_whose_bodies_never_end_keep_no_other_address_out(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the address with most of them, the oldest one is ended."""
    monkeypatch.setattr(receiver_app, "MAX_REQUESTS", 3)
    receiver, whole, ended = post.receiver(), push(1, *post.enclave()), list[tuple[str, int]]()

    async def ask(name: str, address: str, *parts: Any) -> None:
        coming = iter(parts)

        async def receive() -> Any:
            found = next(coming, None)
            return found if found is not None else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if "status" in message:
                ended.append((name, message["status"]))

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/hook", "headers": headers, "client": (address, 1)}
        await receiver.app(scope, receive, send)

    async def attack() -> None:
        begun = [("honest", "10.0.0.2"), ("first", "10.0.0.1"), ("second", "10.0.0.1")]
        tasks = [asyncio.ensure_future(ask(name, address, part(b"{", True))) for name, address in begun]
        await asyncio.sleep(0)
        await ask("push", "10.0.0.3", part(whole))
        assert ended == [("first", 408), ("push", 200)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(attack())


def test_a_receiver_that_is_closed_takes_nothing(post: Post) -> None:
    receiver = post.receiver()
    receiver.close()
    assert call(receiver, part(push(1)))[0]["status"] == 503
    said = call(receiver, {"type": "lifespan.startup"}, type="lifespan")
    assert said == [{"type": "lifespan.startup.failed", "message": "this receiver is closed: make a new one"}]


def test_web_sockets_are_closed(post: Post) -> None:
    assert call(post.receiver(), type="websocket") == [{"type": "websocket.close", "code": 1008}]


# In a process of its own


def started(state: Path, **orders: Any) -> RunningReceiver:
    bob = {"secret": person("bob").secret.hex(), "url": HOOK, "nodes": {NODE.public.hex(): URL}}
    return RunningReceiver(state, **{**bob, **orders})


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("when", ["die_in_event", "die_after_event"])
def test_a_receiver_that_is_killed_while_it_hands_over_hands_over_each_event_once(
    post: Post, tmp_path: Path, when: str, group: int
) -> None:
    events, state = post.enclave(["text"] * 9), tmp_path / "killed.db"
    with started(state, group=group, **{when: 5}) as process:
        assert process.take(push(1, *events)) in (200, None)
        process.await_death()
        before = process.seqs()
    assert before == list(range(len(before)))
    assert len(before) <= 5
    with started(state, group=group, tell_at=10) as process:
        process.wait_for(10)
        assert process.take(push(1, *events)) == 200
        assert process.take(push(2, *events)) == 200
        assert process.seqs() == list(range(10))


def test_a_receiver_that_is_killed_before_it_answers_has_what_it_took(post: Post, tmp_path: Path) -> None:
    events, state = post.enclave(["one", "two"]), tmp_path / "killed.db"
    with started(state, die_before_answer=1) as process:
        assert process.take(push(1, *events)) is None
        process.await_death()
    with started(state, tell_at=3) as process:
        process.wait_for(3)
        assert process.take(push(1, *events)) == 200
        assert process.seqs() == [0, 1, 2]


def test_two_processes_cannot_share_a_state_file(post: Post, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with started(tmp_path / "shared.db"):
        with pytest.raises(AssertionError, match="it did not start"):
            started(tmp_path / "shared.db")
        assert "another receiver is using it" in capfd.readouterr().err
