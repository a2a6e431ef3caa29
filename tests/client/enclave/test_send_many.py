"""Many commits: few requests, results in order, and the same care as for a single one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enc.client import Forgery, Unreachable
from enc.client.enclave import send_many
from enc.core.errors import EncError, Expired, MisuseError, RateLimited, Unauthorized, Unavailable
from enc.core.primitives.types import Commit, Receipt
from enc.testing import Identities, LocalNetwork, local_node
from tests.client.scene import Scene
from tests.client.stage import Stage
from tests.core.world import person
from tests.node.served import SMALL
from tests.node.small_v1 import SMALL_V1

COMMITS, ONE = "/commits", "/"
Json = dict[str, Any]


def outcomes(results: list[Receipt | EncError]) -> list[Any]:
    """Return the seq of each receipt, and the code of each error."""
    return [each.seq if isinstance(each, Receipt) else each.code for each in results]


def written(enclave: Any) -> list[str]:
    return [item.content for item in enclave.query(type="message")]


def paths(scene: Scene, work: Callable[[], Any]) -> list[str]:
    """Return the paths of the writes that this work requests."""
    scene.node.calls.clear()
    work()
    return [path for path in scene.node.calls if path in (COMMITS, ONE)]


def messages(enclave: Any, *texts: str) -> list[Commit]:
    return [enclave.prepare("message", text) for text in texts]


def test_many_commits_are_one_request(scene: Scene) -> None:
    bob, results = scene.other(), list[Any]()
    commits = messages(bob, "one", "two", "three")
    assert paths(scene, lambda: results.extend(bob.send_many(commits))) == [COMMITS]
    assert [each.hash for each in results] == [commit.hash for commit in commits]
    assert written(bob)[-3:] == ["one", "two", "three"]


def test_one_that_is_refused_stops_no_other(scene: Scene) -> None:
    first, last = messages(scene.enclave, "first", "last")
    forbidden = scene.enclave.prepare("nothing of the manifest", "")
    receipt, error, other = scene.enclave.send_many([first, forbidden, last])
    assert isinstance(error, Unauthorized)
    assert (receipt.hash, other.hash) == (first.hash, last.hash)


def test_commits_of_several_enclaves(stage: Stage) -> None:
    client = stage.client()
    one, other = client.create({**SMALL, "meta": {"n": 1}}), client.create({**SMALL, "meta": {"n": 2}})
    commits = [*messages(one, "a"), *messages(other, "b"), *messages(one, "c")]
    stage.node.calls.clear()
    assert outcomes(client.commit_many(iter(commits))) == [1, 1, 2]
    assert stage.node.calls.count(COMMITS) == 1


def test_nothing_is_sent_for_no_commits(scene: Scene) -> None:
    assert paths(scene, lambda: scene.enclave.send_many([])) == []


def test_a_commit_of_another_enclave_is_not_sent(scene: Scene) -> None:
    other = scene.stage.create(meta={"n": 2})
    commits = [*messages(scene.enclave, "mine"), *messages(other, "not mine")]
    scene.node.calls.clear()
    with pytest.raises(MisuseError, match="another enclave"):
        scene.enclave.send_many(commits)
    assert scene.node.calls == []


# What a node accepts in one request


def info(scene: Scene, **limits: Any) -> Any:
    """Let the node announce other limits; return a new client's enclave."""
    scene.node.lie("info", lambda answer: {**answer, "limits": limits or None})
    return scene.stage.client().enclave(scene.enclave.id)


@pytest.mark.parametrize("limits", [{}, {"body": 2 << 20}, {"commits_per_request": "many", "body": 1}])
def test_a_node_that_takes_one_at_a_time(scene: Scene, limits: Json) -> None:
    enclave = info(scene, **limits)
    results = list[Any]()
    assert paths(scene, lambda: results.extend(enclave.send_many(messages(enclave, "a", "b")))) == [ONE, ONE]
    assert all(isinstance(each, Receipt) for each in results)


def test_a_request_has_as_many_as_the_node_takes(scene: Scene) -> None:
    enclave = info(scene, commits_per_request=2, body=2 << 20)
    assert paths(scene, lambda: enclave.send_many(messages(enclave, *"abcde"))) == [COMMITS, COMMITS, ONE]
    assert written(enclave)[-5:] == [*"abcde"]


def test_a_request_has_as_many_bytes_as_the_node_takes(scene: Scene) -> None:
    enclave, sizes = info(scene, commits_per_request=100, body=2000), list[int]()
    scene.node.arrives = lambda request: sizes.append(len(request.read())) if request.url.path == COMMITS else None
    enclave.send_many(messages(enclave, *"abcdefgh"))
    assert len(sizes) > 1
    assert max(sizes) <= 2000
    assert written(enclave)[-8:] == [*"abcdefgh"]


def test_a_request_is_bounded_whatever_the_node_announces(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_many, "MAX_COMMITS", 2)
    enclave = info(scene, commits_per_request=1 << 40, body=1 << 40)
    assert paths(scene, lambda: enclave.send_many(messages(enclave, *"abcd"))) == [COMMITS, COMMITS]


def test_a_node_that_refuses_the_request_is_sent_one_at_a_time(scene: Scene) -> None:
    """As one that was replaced by an older one since the client asked it."""

    def refuse(answer: Any) -> Any:
        raise Unauthorized("no such path")

    scene.node.lie("commits", refuse)
    results = scene.enclave.send_many(messages(scene.enclave, "a", "b", "c"))
    assert all(isinstance(each, Receipt) for each in results)
    assert written(scene.enclave)[-3:] == ["a", "b", "c"]


# Lost answers, and nodes that are busy


def test_a_lost_answer_makes_no_second_event(scene: Scene) -> None:
    lost = list[str]()

    def lose(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        if request.url.path == COMMITS and not lost:
            lost.append(COMMITS)
            raise httpx.ReadError("connection reset")
        return response

    scene.node.wire = lose
    enclave = scene.stage.client(patience=60.0).enclave(scene.enclave.id)
    results = enclave.send_many(messages(enclave, "a", "b", "c"))
    assert lost
    assert scene.stage.naps == []  # the first of them is sent alone at once
    first = results[0].seq
    assert outcomes(results) == [first, first + 1, first + 2]
    assert written(enclave)[-3:] == ["a", "b", "c"]


def test_commits_sent_again_get_their_first_receipts(scene: Scene) -> None:
    commits = messages(scene.enclave, "a", "b")
    assert scene.enclave.send_many(commits) == scene.enclave.send_many(commits)
    assert scene.enclave.send_many([*commits, *commits])[:2] == scene.enclave.send_many(commits)


def test_what_the_node_cannot_take_now_is_sent_again_in_order(scene: Scene) -> None:
    busy = iter([2, 1])

    def refuse_last(answer: Json) -> None:
        for number in range(next(busy, 0)):
            answer["results"][-1 - number] = RateLimited("too many", retry_after_ms=50).to_wire()

    enclave = scene.stage.client(patience=60.0).enclave(scene.enclave.id)
    commits = messages(enclave, *"abcde")
    scene.node.lie("commits", refuse_last)
    results = enclave.send_many(commits)
    assert [each.hash for each in results] == [commit.hash for commit in commits]


class Busy:
    """A node that accepts so many commits of each request, and refuses the others for the moment."""

    def __init__(self, scene: Scene, most: int) -> None:
        self.lines, self._left, take = 0, 0, scene.node._take

        def arrives(request: httpx.Request) -> None:
            self._left = most if request.url.path == COMMITS else 1

        def take_some(commit: Commit) -> bytes:
            self.lines += 1
            self._left -= 1
            if self._left < 0:
                raise RateLimited("too many", retry_after_ms=1)
            return take(commit)

        scene.node.arrives = arrives
        scene.node._take = take_some  # type: ignore[method-assign]


def test_the_order_in_the_log_is_that_of_the_list(scene: Scene) -> None:
    enclave = info(scene, commits_per_request=4, body=2 << 20)
    Busy(scene, 2)
    results = enclave.send_many(messages(enclave, *"abcdefgh"))
    assert all(isinstance(each, Receipt) for each in results)
    assert written(enclave)[-8:] == [*"abcdefgh"]


def test_a_busy_node_gets_smaller_requests(scene: Scene) -> None:
    busy, commits = Busy(scene, 2), messages(scene.enclave, *map(str, range(40)))
    assert all(isinstance(each, Receipt) for each in scene.enclave.send_many(commits))
    assert busy.lines < 3 * len(commits)


def test_a_change_of_owners_is_sent_alone(scene: Scene) -> None:
    transfer = scene.enclave.prepare("Transfer", {"target": person("bob").public.hex(), "trait": "owner"})
    commits = [*messages(scene.enclave, "a", "b"), transfer, *messages(scene.enclave, "c", "d")]
    assert paths(scene, lambda: scene.enclave.send_many(commits)) == [COMMITS, ONE, COMMITS]


def test_a_node_that_does_not_answer_is_not_asked_for_each(scene: Scene) -> None:
    enclave = scene.stage.client().enclave(scene.enclave.id)
    enclave.head()
    commits, asked = messages(enclave, *"abcdef"), list[str]()

    def fail(request: httpx.Request) -> None:
        asked.append(request.url.path)
        raise httpx.ConnectError("refused")

    scene.node.arrives = fail
    results = enclave.send_many(commits)
    assert all(isinstance(each, Unreachable) for each in results)
    assert (len(results), asked) == (6, [COMMITS, ONE])
    scene.node.arrives = lambda request: None
    assert all(isinstance(each, Receipt) for each in enclave.send_many(commits))


def test_an_enclave_without_a_node_stops_no_other(stage: Stage) -> None:
    client = stage.client()
    gone, here = client.create({**SMALL, "meta": {"n": 1}}), client.create({**SMALL, "meta": {"n": 2}})
    commits = [each for pair in zip(messages(gone, *"abc"), messages(here, *"def"), strict=True) for each in pair]
    stage.node.lie("commits", lambda answer: None)
    taken = stage.node._take

    def hold(commit: Commit) -> bytes:
        if commit.enclave == gone.id:
            raise Unavailable("held", retry_after_ms=1000)
        return taken(commit)

    stage.node._take = hold  # type: ignore[method-assign]
    assert outcomes(client.commit_many(commits)) == ["UNAVAILABLE", 1, "UNAVAILABLE", 2, "UNAVAILABLE", 3]


# Moves


@pytest.fixture
def network() -> Iterator[LocalNetwork]:
    """Yield a network of two nodes."""
    net = LocalNetwork()
    with local_node("old.test", network=net), local_node("new.test", network=net):
        yield net


@pytest.mark.parametrize("old", ["answers", "is gone"])
def test_the_enclave_is_followed_to_its_new_node(network: LocalNetwork, tmp_path: Path, old: str) -> None:
    people = Identities()
    ada = network.client("http://old.test", people["ada"])
    bob = network.client("http://old.test", people["bob"], nodes=["http://new.test"], patience=60)
    with ada, bob:
        team = ada.create("team")
        team.move(people["bob"].public, "OUTSIDER", "MEMBER")
        here = bob.enclave(team.id)
        assert outcomes(here.send_many(messages(here, "one", "two"))) == [2, 3]
        late = messages(here, "three", "four", "five")
        team.migrate("http://new.test", tmp_path)
        list(here.query())  # bob sees the Migrate
        if old == "is gone":
            network.sites.pop("old.test")
        assert outcomes(here.send_many(late)) == [5, 6, 7]
        assert written(here) == ["one", "two", "three", "four", "five"]


def watched(network: LocalNetwork, host: str) -> list[bytes]:
    """Return the bodies with commits that a node gets from now on."""
    bodies, handle = list[bytes](), network.sites[host].handle

    def watch(request: httpx.Request) -> httpx.Response:
        bodies.extend([request.read()] if b'"exp"' in request.read() else [])
        return handle(request)

    network.sites[host].handle = watch  # type: ignore[method-assign]
    return bodies


def test_each_node_gets_only_commits_of_its_enclaves(network: LocalNetwork, tmp_path: Path) -> None:
    with network.client("http://old.test", Identities()["ada"], nodes=["http://new.test"]) as ada:
        moved, stays = ada.create("team"), ada.create("team")
        moved.migrate("http://new.test", tmp_path)
        old, new = watched(network, "old.test"), watched(network, "new.test")
        commits = [*messages(stays, *"abc"), *messages(moved, *"def"), *messages(stays, *"gh")]
        assert outcomes(ada.commit_many(commits)) == [1, 2, 3, 2, 3, 4, 4, 5]
        assert (written(moved), written(stays)) == ([*"def"], [*"abcgh"])
        assert not any(moved.hex.encode() in body for body in old)
        assert not any(stays.hex.encode() in body for body in new)


def test_a_node_that_is_known_to_be_left_gets_none(network: LocalNetwork, tmp_path: Path) -> None:
    with network.client("http://old.test", Identities()["ada"], nodes=["http://new.test"]) as ada:
        team = ada.create("team")
        same = ada.enclave(team.id)
        same.commit("message", "here")
        team.migrate("http://new.test", tmp_path)
        bodies = watched(network, "old.test")
        assert outcomes(same.send_many(messages(same, "a", "b", "c"))) == [3, 4, 5]
        assert bodies == []


def test_a_move_of_which_the_client_knows_nothing(network: LocalNetwork, tmp_path: Path) -> None:
    ada, other = (network.client("http://old.test", Identities()["ada"], nodes=["http://new.test"]) for _ in "ab")
    with ada, other:
        team = ada.create("team")
        same = other.enclave(team.id)
        same.send_many(messages(same, "one", "two"))
        team.migrate("http://new.test", tmp_path)
        assert outcomes(same.send_many(messages(same, "three", "four", "five"))) == [4, 5, 6]
        assert same.url == "http://new.test"


# Versions, expiry, lies


def test_the_enclave_s_version_is_found_out_once(stage: Stage) -> None:
    enclave = stage.client().create(SMALL_V1)
    alike = stage.client().enclave(enclave.id)
    commits = [alike.prepare("message", text) for text in "abcd"]
    stage.node.calls.clear()
    results = alike.send_many(commits)
    assert outcomes(results) == [1, 2, 3, 4]
    assert [path for path in stage.node.calls if path in (COMMITS, ONE)].count(COMMITS) == 2


def test_an_expired_commit_is_refused_alone(scene: Scene) -> None:
    late = scene.enclave.prepare("message", "late")
    scene.stage.clock.tick(3_600_000)
    expired, receipt = scene.enclave.send_many([late, scene.enclave.prepare("message", "in time")])
    assert isinstance(expired, Expired)
    assert isinstance(receipt, Receipt)


LIES: dict[str, Callable[[Json], Any]] = {
    "one too few": lambda answer: {"results": answer["results"][:1]},
    "one too many": lambda answer: {"results": answer["results"] * 2},
    "in another order": lambda answer: {"results": answer["results"][::-1]},
    "another seq": lambda answer: {"results": [{**each, "seq": 99} for each in answer["results"]]},
    "no receipt and no error": lambda answer: {"results": [{}, {}]},
    "no list": lambda answer: {"results": "none"},
    "no object": lambda answer: [],
}


@pytest.mark.parametrize("lie", LIES)
def test_results_that_cannot_be_true(scene: Scene, lie: str) -> None:
    scene.node.lie("commits", LIES[lie])
    with pytest.raises(Forgery):
        scene.enclave.send_many(messages(scene.enclave, "a", "b"))


def test_a_duplicate_without_a_receipt_is_an_error(scene: Scene) -> None:
    scene.node.lie("commits", lambda answer: {"results": [{"type": "Error", "code": "DUPLICATE", "message": ""}] * 2})
    assert outcomes(scene.enclave.send_many(messages(scene.enclave, "a", "b"))) == ["DUPLICATE"] * 2
