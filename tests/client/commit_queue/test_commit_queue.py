"""A queue: commits survive until their node is back, in order, and none becomes two events."""

import asyncio
import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from msgspec.json import encode

from enc.client import ClientSettings, Distrust, Identity, Unreachable
from enc.client.link.enclave_session import EnclaveSession
from enc.core.errors import EncError, Expired, MisuseError, RateLimited, Unauthorized, Unavailable
from enc.core.log.commit import build_commit
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.signing import Alg
from enc.core.primitives.types import Receipt
from enc.runtime.clock import utc_time
from enc.testing import lying_node
from tests.client.commit_queue.queue_scene import HOUR, MINUTE, NEW, OLD, PEOPLE, Scene, error_of, outcomes


def test_commits_wait_until_their_node_is_back(scene: Scene) -> None:
    back = scene.cut()
    assert outcomes(scene.fill("one", "two", "three").send()) == [["UNREACHABLE"]]
    assert [each.commit.content for each in scene.queue().waiting()] == ["one", "two", "three"]
    back()
    queue = scene.queue()
    results = queue.send()
    assert outcomes(results) == [2, 3, 4]
    assert [each.number for each in results] == [1, 2, 3]
    assert scene.written() == ["one", "two", "three"]
    assert queue.waiting() == []
    assert queue.send() == []


def test_a_lost_answer_makes_no_second_event(scene: Scene) -> None:
    queue = scene.fill("one", "two")
    scene.lose_answers()
    assert outcomes(queue.send()) == [["UNREACHABLE"]]
    assert outcomes(scene.queue().send()) == [2, 3]
    assert scene.written() == ["one", "two"]


def test_a_commit_that_is_added_twice_is_queued_once(scene: Scene) -> None:
    queue, commit = scene.queue(), scene.client().enclave(scene.team.id).prepare("message", "once")
    scene.network.tick(HOUR)
    assert queue.add(commit) == queue.add(commit) == scene.queue().add(commit)
    assert outcomes(queue.send()) == [2]
    assert scene.written() == ["once"]


# Expiry


def test_a_commit_that_expired_is_signed_again(scene: Scene) -> None:
    (before,) = (queue := scene.fill("late")).waiting()
    scene.network.tick(HOUR)
    (found,) = queue.send()
    assert isinstance(found.result, Receipt)
    assert found.result.hash == found.commit.hash != before.commit.hash
    assert (found.commit.type, found.commit.content) == (before.commit.type, before.commit.content)
    assert scene.written() == ["late"]
    assert queue.waiting() == []


def test_tags_stay_when_a_commit_is_signed_again(scene: Scene) -> None:
    queue = scene.queue()
    queue.add(scene.client().enclave(scene.team.id).prepare("message", "late", tags=[["table", "7"]]))
    scene.network.tick(HOUR)
    assert outcomes(queue.send()) == [2]
    assert [item.content for item in scene.team.query(tags={"table": "7"})] == ["late"]


def test_a_commit_that_was_accepted_is_not_signed_again(scene: Scene) -> None:
    queue = scene.fill("once")
    (waiting,) = queue.waiting()
    scene.lose_answers()
    queue.send()
    scene.network.tick(24 * HOUR)
    (found,) = scene.queue().send()
    assert isinstance(found.result, Receipt)
    assert found.commit == waiting.commit
    assert scene.written() == ["once"]


def test_a_commit_that_may_still_be_accepted_is_not_signed_again(scene: Scene) -> None:
    """One that is under way is accepted until SKEW after its expiry."""
    queue = scene.fill("late")
    (waiting,) = queue.waiting()
    scene.network.tick(waiting.commit.exp + 1 - scene.network.now())
    (found,) = queue.send()
    assert isinstance(found.result, Expired)
    assert found.is_waiting
    assert queue.waiting() == [waiting]
    scene.network.tick(MINUTE)
    assert outcomes(queue.send()) == [2]


def test_one_that_is_signed_again_is_on_disk_before_it_is_sent(scene: Scene) -> None:
    queue = scene.fill("late")
    scene.network.tick(HOUR)
    scene.lose_answers(count=1)  # of the expired one
    queue.send()
    seen = list[int]()

    def look(handle: Callable[[], httpx.Response]) -> httpx.Response:
        (waiting,) = scene.queue().waiting()
        seen.append(len(waiting.signed))
        return handle()

    scene.on_commits("old.test", look)
    assert outcomes(queue.send()) == [2]
    assert seen == [1, 2]


def test_the_answer_to_one_that_was_signed_again_may_be_lost_too(scene: Scene) -> None:
    queue = scene.fill("late")
    scene.network.tick(HOUR)
    scene.lose_answers(count=1)
    queue.send()
    losing = iter([False, True])
    scene.on_commits("old.test", lambda handle: lost(handle) if next(losing, False) else handle())
    assert outcomes(queue.send()) == [["UNREACHABLE"]]
    scene.network.tick(HOUR)
    assert outcomes(scene.queue().send()) == [2]
    assert scene.written() == ["late"]


def lost(handle: Callable[[], httpx.Response]) -> httpx.Response:
    handle()
    raise httpx.ReadError("connection reset")


@pytest.mark.parametrize("other", ["gets an answer", "gets none"])
def test_two_programs_do_not_sign_the_same_commit_again(scene: Scene, other: str) -> None:
    """The other one does it right after a node has told the first that the commit expired."""
    first, second = scene.fill("late"), scene.queue()
    scene.network.tick(HOUR)
    steps = iter(["the first's", "expired", "signed again"])

    def interrupt(handle: Callable[[], httpx.Response]) -> httpx.Response:
        step, answer = next(steps, ""), handle()
        if step == "the first's":
            assert outcomes(second.send()) == ([2] if other == "gets an answer" else [["UNREACHABLE"]])
        if step == "signed again" and other == "gets none":
            raise httpx.ReadError("connection reset")
        return answer

    scene.on_commits("old.test", interrupt)
    (found,) = first.send()
    assert isinstance(found.result, Unavailable)
    assert outcomes(first.send()) == ([] if other == "gets an answer" else [2])
    assert scene.written() == ["late"]


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_a_commit_signed_by_a_clock_that_is_ahead_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, alg: Alg
) -> None:
    """Signed again before it can expire, it might become two events."""
    queue, bob = scene.queue(), scene.client(settings=ClientSettings(alg=alg))
    with monkeypatch.context() as patch:
        real = scene.network.now
        patch.setattr(scene.network, "now", lambda: real() + 2 * HOUR)
        early = scene.client(settings=ClientSettings(alg=alg)).enclave(scene.team.id).prepare("message", "early")
    queue.add(early)
    queue.add(bob.enclave(scene.team.id).prepare("message", "next"))
    (found,) = queue.send()
    error = error_of(found)
    assert outcomes([found]) == [["INVALID_COMMIT"]]
    assert error.message.startswith("exp: more than an hour ahead of the node's clock")
    assert utc_time(early.exp - HOUR) in error.message
    assert queue.rejected() == []
    assert queue.waiting()[0].signed == (early,)
    scene.network.tick(2 * HOUR)
    assert outcomes(queue.send()) == [2, 3]
    assert scene.written() == ["early", "next"]


def test_a_node_that_never_takes_a_commit_of_the_distant_future(scene: Scene) -> None:
    queue = scene.queue()
    queue.add(build_commit(PEOPLE["bob"].key, scene.team.id, "message", "x", MAX_INT))
    assert outcomes(queue.send()) == [["INVALID_COMMIT"]]


# What a node rejects, and what it does not take now


def test_a_rejected_commit_is_set_aside_and_stops_no_other(scene: Scene) -> None:
    queue, bob = scene.queue(), scene.client().enclave(scene.team.id)
    number = queue.add(bob.prepare("Terminate", ""))
    queue.add(bob.prepare("message", "next"))
    rejected, accepted = queue.send()
    assert isinstance(rejected.result, Unauthorized)
    assert (rejected.number, rejected.is_waiting) == (number, False)
    assert isinstance(accepted.result, Receipt)
    (kept,) = scene.queue().rejected()
    assert isinstance(kept.error, Unauthorized)
    assert (kept.number, kept.commit, kept.error.message) == (number, rejected.commit, rejected.result.message)
    assert queue.waiting() == []


def test_a_rejected_commit_may_be_tried_again(scene: Scene) -> None:
    scene.team.move(PEOPLE["bob"].public, "MEMBER", "OUTSIDER")
    queue = scene.fill("let me in")
    assert outcomes(queue.send()) == ["UNAUTHORIZED"]
    assert queue.send() == []
    scene.team.move(PEOPLE["bob"].public, "OUTSIDER", "MEMBER")
    queue.retry(1)
    assert outcomes(queue.send()) == [4]
    assert queue.rejected() == []


def test_a_commit_may_be_discarded(scene: Scene) -> None:
    queue = scene.fill("one", "two")
    queue.discard(1)
    assert outcomes(queue.send()) == [2]
    assert scene.written() == ["two"]
    for change in (queue.discard, queue.retry):
        with pytest.raises(MisuseError, match="commit 1"):
            change(1)


def test_nothing_passes_a_waiting_commit_of_its_enclave(scene: Scene) -> None:
    other = scene.create()
    queue = scene.fill("one", "two")
    scene.fill("elsewhere", enclave=other)
    refusals = iter([RateLimited("slow down", retry_after_ms=1000)])

    def refuse(handle: Callable[[], httpx.Response]) -> httpx.Response:
        error: EncError | None = next(refusals, None)
        return handle() if error is None else httpx.Response(error.status, content=encode(error.to_wire()))

    scene.on_commits("old.test", refuse)
    assert outcomes(queue.send()) == [2, ["RATE_LIMITED"]]
    assert (scene.written(), scene.written(other)) == ([], ["elsewhere"])
    assert outcomes(queue.send()) == [2, 3]
    assert scene.written() == ["one", "two"]


def test_a_paused_enclave_is_waited_for(scene: Scene) -> None:
    queue = scene.fill("later")
    scene.team.pause()
    assert outcomes(queue.send()) == [["ENCLAVE_PAUSED"]]
    scene.team.resume()
    assert outcomes(queue.send()) == [4]


def answer_once(scene: Scene, status: int, wire: dict[str, Any]) -> None:
    answers = iter([httpx.Response(status, content=encode(wire))])
    scene.on_commits("old.test", lambda handle: next(answers, None) or handle())


def test_an_answer_that_is_no_judgement_rejects_nothing(scene: Scene) -> None:
    """As of a server that does not serve the node under this name."""
    queue = scene.fill("one")
    answer_once(scene, 421, {"type": "Error", "code": "HOST_NOT_SERVED", "message": "not here"})
    assert outcomes(queue.send()) == [["HOST_NOT_SERVED"]]
    assert outcomes(queue.send()) == [2]


def test_an_error_on_the_way_to_the_node_rejects_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new node of an enclave may refuse to show how it came there."""

    def refuse(self: EnclaveSession) -> Any:
        raise Unauthorized("you may not read the Migrate")
        yield

    queue = scene.fill("one")
    with monkeypatch.context() as patch:
        patch.setattr(EnclaveSession, "verifier", refuse)
        assert outcomes(queue.send()) == [["UNAUTHORIZED"]]
    assert outcomes(queue.send()) == [2]


def test_it_waits_for_a_node_that_comes_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    back, until = scene.cut(), scene.network.now() + 20_000
    sleep = scene.network.sleep

    def pass_time(seconds: float) -> None:
        sleep(seconds)
        if scene.network.now() >= until:
            back()

    monkeypatch.setattr(scene.network, "sleep", pass_time)
    queue = scene.fill("one", "two")
    assert outcomes(queue.send(patience=10)) == [["UNREACHABLE"]]
    assert outcomes(queue.send(patience=math.inf)) == [2, 3]
    assert scene.network.now() < until + 10_000


def test_patience_begins_again_with_each_commit_that_is_sent(scene: Scene) -> None:
    queue = scene.fill(*"abcdefgh")
    turns = iter(range(100))

    def refuse_every_other(handle: Callable[[], httpx.Response]) -> httpx.Response:
        error = RateLimited("slow down", retry_after_ms=3000)
        return handle() if next(turns) % 2 else httpx.Response(429, content=encode(error.to_wire()))

    scene.on_commits("old.test", refuse_every_other)
    assert outcomes(queue.send(patience=5)) == [2, 3, 4, 5, 6, 7, 8, 9]


def test_the_client_s_patience_is_the_default(scene: Scene) -> None:
    scene.fill("one")
    scene.cut()
    before = scene.network.now()
    assert outcomes(scene.queue(patience=30).send()) == [["UNREACHABLE"]]
    assert 15_000 < scene.network.now() - before <= 30_000


def test_a_lie_stops_only_its_enclave(scene: Scene) -> None:
    with lying_node("liar.test", network=scene.network) as liar, liar.client(PEOPLE["bob"]) as bob:
        notes = bob.create("notes")
        liar.lie("Receipt", lambda receipt: {**receipt, "seq": 99})
        queue = scene.queue()
        queue.add(notes.prepare("note", "to a liar"), at=liar.url)
        scene.fill("to an honest one")
        with pytest.raises(Distrust):
            queue.send(patience=60)
        assert scene.written() == ["to an honest one"]
        assert [each.commit.content for each in queue.waiting()] == ["to a liar"]


# Moves


@pytest.mark.parametrize("old", ["answers", "is gone"])
def test_the_enclave_moves_while_a_commit_waits(scene: Scene, old: str) -> None:
    """The commit also expires meanwhile: the old node says so before it says where the enclave is."""
    queue = scene.fill("one", "two")
    scene.team.migrate(NEW, scene.folder)
    scene.network.tick(HOUR)
    if old == "is gone":
        pins = scene.folder / "pins"
        list(scene.client(pins=pins).enclave(scene.team.id).query())  # has seen the Migrate
        scene.cut()
        queue = scene.queue(pins=pins)
    assert outcomes(queue.send()) == [3, 4]
    assert scene.written() == ["one", "two"]


def test_one_that_the_new_node_accepted_is_not_sent_twice(scene: Scene) -> None:
    """The program forgets that the enclave has moved. The old node only says that the commit expired."""
    scene.team.migrate(NEW, scene.folder)
    queue = scene.fill("once")
    scene.lose_answers("new.test")
    assert outcomes(queue.send()) == [["UNREACHABLE"]]
    scene.network.tick(HOUR)
    (found,) = scene.queue().send()
    assert isinstance(found.result, Receipt)
    assert found.result.hash == found.commit.hash
    assert scene.written() == ["once"]


def test_an_enclave_at_another_node(scene: Scene) -> None:
    with scene.network.client(NEW, PEOPLE["bob"]) as bob:
        notes = bob.create("notes")
        queue = scene.queue(nodes=[])
        queue.add(notes.prepare("note", "there"), at=NEW + "/")
        assert outcomes(queue.send()) == [1]
        assert [each.content for each in notes.query(type="note")] == ["there"]


@pytest.mark.parametrize("wrong", [NEW, "http://gone.test"])
def test_the_client_s_node_may_be_asked_before_a_wrong_url(scene: Scene, wrong: str) -> None:
    queue = scene.queue(nodes=[])
    queue.add(scene.client().enclave(scene.team.id).prepare("message", "here"), at=wrong)
    (found,) = queue.send()
    assert found.is_waiting
    assert outcomes(queue.send(own_node_first=True)) == [2]
    assert scene.written() == ["here"]


def test_urls_are_asked_after_a_client_s_node_that_is_not_the_enclave_s(scene: Scene) -> None:
    """That node also says that the commit expired, so it may be signed again before."""
    with scene.network.client(NEW, PEOPLE["bob"]) as bob:
        notes = bob.create("notes")
        queue = scene.queue(nodes=[])
        for text in ("one", "two"):
            queue.add(notes.prepare("note", text), at=NEW)
        scene.network.tick(HOUR)
        back = scene.cut("new.test")
        assert outcomes(queue.send(own_node_first=True)) == [["ENCLAVE_NOT_FOUND"]]  # of the client's node
        back()
        assert outcomes(queue.send(own_node_first=True)) == [1, 2]
        assert [each.content for each in notes.query(type="note")] == ["one", "two"]


def test_a_client_s_node_that_is_known_to_be_another_one_hides_no_error(scene: Scene) -> None:
    def answer_and_leave(handle: Callable[[], httpx.Response]) -> httpx.Response:
        scene.cut("new.test")
        return handle()

    with scene.network.client(NEW, PEOPLE["bob"]) as bob:
        notes = bob.create("notes")
        queue = scene.queue(nodes=[])
        for text in ("one", "two"):
            queue.add(notes.prepare("note", text), at=NEW)
        scene.on_commits("new.test", answer_and_leave)
        assert outcomes(queue.send(own_node_first=True)) == [1, ["UNREACHABLE"]]


def test_an_enclave_that_nobody_knows_is_waited_for(scene: Scene) -> None:
    queue = scene.queue()
    queue.add(scene.client().enclave(bytes(32)).prepare("message", "hello?"))
    assert outcomes(queue.send()) == [["ENCLAVE_NOT_FOUND"]]


# Versions, identities, faces


@pytest.mark.parametrize("lost_answer", range(5))
def test_an_enclave_of_version_1(scene: Scene, lost_answer: int) -> None:
    """Nothing tells the version before the node is asked. The first commit expires."""
    store = scene.client("ada").create("personal-v1")
    queue, bob = scene.queue(), scene.client()
    queue.add(bob.enclave(store.id).prepare("inbox", "hello"))
    scene.network.tick(HOUR)
    queue.add(bob.enclave(store.id).prepare("inbox", "again"))
    numbers = iter(range(100))
    scene.on_commits("old.test", lambda handle: lost(handle) if next(numbers) == lost_answer else handle())
    assert outcomes(queue.send())[-1] == ["UNREACHABLE"]
    assert all(isinstance(each.result, Receipt) for each in queue.send())
    assert [each.content for each in store.query(type="inbox")] == ["hello", "again"]
    assert queue.rejected() == []


def test_a_commit_of_another_identity_is_refused(scene: Scene) -> None:
    queue = scene.queue()
    with pytest.raises(MisuseError, match="another identity"):
        queue.add(scene.team.prepare("message", "ada's"))
    with pytest.raises(MisuseError, match="URL"):
        queue.add(scene.client().enclave(scene.team.id).prepare("message", "x"), at="nowhere")
    assert queue.waiting() == []


def test_what_is_no_commit_is_refused(scene: Scene) -> None:
    wrong: Any = "x"
    with pytest.raises(MisuseError, match="commit: expected a commit from `prepare`, not str"):
        scene.queue().add(wrong)
    good = scene.team.prepare("message", "x")
    for send in (scene.ada.commit_many, scene.team.send_many):
        with pytest.raises(MisuseError, match=r"commits\[1\]: expected a commit from `prepare`, not str"):
            send([good, wrong])


def test_a_temporary_identity_has_no_queue(scene: Scene) -> None:
    """Its key is gone when the client is, so nobody could send what waits."""
    with scene.network.client(OLD) as client, pytest.raises(MisuseError, match="identity: a queue needs one"):
        client.commit_queue(scene.folder / "queue.db")
    assert not (scene.folder / "queue.db").exists()


def test_identities_may_share_a_file(scene: Scene) -> None:
    scene.fill("bob's")
    hers = scene.client("ada").commit_queue(scene.folder / "queue.db")
    with hers:
        hers.add(scene.team.prepare("message", "ada's"))
        assert [each.commit.content for each in hers.waiting()] == ["ada's"]
        with pytest.raises(MisuseError, match="commit 1"):
            hers.discard(1)
        assert outcomes(hers.send()) == [2]
    assert outcomes(scene.queue().send()) == [3]


def test_the_async_queue(scene: Scene) -> None:
    async def run() -> None:
        async with (
            scene.network.async_client(OLD, PEOPLE["bob"], patience=0) as client,
            client.commit_queue(scene.folder / "queue.db") as queue,
        ):
            team = client.enclave(scene.team.id)
            for text in ("one", "two"):
                await queue.add(team.prepare("message", text))
            back = scene.cut()
            (waiting,) = await queue.send()
            assert isinstance(error_of(waiting), Unreachable)
            back()
            assert outcomes(await queue.send()) == [2, 3]
            assert await queue.waiting() == await queue.rejected() == []

    asyncio.run(run())
    assert scene.written() == ["one", "two"]


def test_it_knows_no_key(scene: Scene) -> None:
    me = Identity.new()
    with scene.network.client(OLD, me) as client, client.commit_queue(scene.folder / "other.db") as queue:
        queue.add(client.enclave(scene.team.id).prepare("message", "x"))
    data = (scene.folder / "other.db").read_bytes()
    assert me.public in data
    secret = me.private_key().secret
    assert secret not in data
    assert secret.hex().encode() not in data
