"""A client with witnesses: which heads it accepts, and how it handles witnesses that disagree."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode

from enc.client import Fork, Identity, NotWitnessed, Rollback, Witness, check_evidence, load_evidence
from enc.client.witness.quorum import MAX_WITNESSES
from enc.client.witness.witnesses import parse_witness, parse_witnesses
from enc.core.errors import InvalidProof, MisuseError
from enc.core.trees.cosigning import cosign, wire_cosigned
from tests.client.at_once import Counting, at_once
from tests.client.migration.moving import AT_B, B, Moving
from tests.client.scene import Scene
from tests.client.stage import FACES, URL, Stage
from tests.core.world import person
from tests.witness.staged_witness import StagedWitness

NAMES = ("bob", "carol", "dave")


class MovingWithWitnesses(Moving):
    """The scene, with three witnesses that have seen all of it."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        super().__init__(stage)
        self.posts = [StagedWitness(stage, self.enclave.id, folder / name, name, nodes=(AT_B,)) for name in NAMES]
        stage.others |= {post.host: post for post in self.posts}  # type: ignore[misc]
        self.poll()

    def poll(self, *which: int) -> None:
        for n in which or range(len(self.posts)):
            self.posts[n].poll()

    def reader(self, k: int | None = 2, count: int = 3, **more: Any) -> Any:
        """Return a client with its own pins that asks the witnesses."""
        witnesses = [post.witness for post in self.posts[:count]]
        more = {"pins": None, "witnesses": witnesses, "k": k, **more}
        return self.stage.client("bob", **more).enclave(self.enclave.id)

    def silence(self, *which: int) -> None:
        for n in which:
            del self.stage.others[self.posts[n].host]

    def instead(self, n: int, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        """Let another node answer for a witness."""

        class Answers:
            def __call__(self, request: httpx.Request) -> httpx.Response:
                return answer(request)

            def settle(self) -> None: ...

        self.stage.others[self.posts[n].host] = Answers()  # type: ignore[assignment]


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Return a stage for the blocking client, unless a test says otherwise: both clients share the code."""
    stage = Stage(getattr(request, "param", "sync"), tmp_path, monkeypatch)
    yield stage
    stage.close()


both = pytest.mark.parametrize("stage", FACES, indirect=True)


@pytest.fixture
def scene(stage: Stage, tmp_path: Path) -> Iterator[MovingWithWitnesses]:
    scene = MovingWithWitnesses(stage, tmp_path)
    yield scene
    for post in scene.posts:
        post.close()


@both
def test_a_head_that_witnesses_have_seen(scene: MovingWithWitnesses) -> None:
    reader = scene.reader()
    assert reader.head().ts == 2
    found = reader.witnessed()
    assert (found.head, found.count, found.k, found.n, found.size) == (reader.head(), 3, 2, 3, 2)
    assert (str(found), found.is_whole) == ("3 of 3", True)
    assert {each.witness for each in found.cosigned} == {post.identity.public for post in scene.posts}
    assert scene.stage.client("alice").enclave(scene.enclave.id).witnessed() is None


@pytest.mark.parametrize("stage", ["async"], indirect=True)
def test_requests_at_the_same_time_share_the_witnesses_answers(scene: MovingWithWitnesses) -> None:
    client = scene.stage.client("bob", pins=None, witnesses=[post.witness for post in scene.posts], k=2)
    counting, enclave = Counting(client), client._inner.enclave(scene.enclave.id)
    assert {head.ts for head in at_once(scene.stage, enclave.head)} == {2}
    assert len([path for path in counting.paths if "/heads/" in path]) == 3


def test_proofs_stand_under_witnessed_heads(scene: MovingWithWitnesses) -> None:
    reader = scene.reader()
    fact = reader.proof(scene.id("one"))
    assert str(reader.witnessed(fact.anchor.head)) == "3 of 3"
    scene.silence(0, 1)
    fresh = scene.reader()
    reads: list[Callable[[], Any]] = [
        fresh.head,
        lambda: fresh.proof(scene.id("one")),
        lambda: fresh.state("rbac", person("bob").public),
        lambda: fresh.bundle(0),
        lambda: list(fresh.query(proof=True)),
        fresh.witnessed,
    ]
    for read in reads:
        with pytest.raises(NotWitnessed):
            read()
    assert [item.seq for item in fresh.query(seq=1)] == [1], "data under no head needs no witness"


def test_what_is_not_witnessed_is_not_believed(scene: MovingWithWitnesses) -> None:
    pins = scene.stage.pins / "apart"
    reader = scene.reader(pins=pins)
    reader.head()
    before = (pins / f"{scene.enclave.hex}.json").read_bytes()
    scene.grow(scene.node, "five")
    scene.silence(0, 1, 2)
    with pytest.raises(NotWitnessed):
        reader.head()
    assert (pins / f"{scene.enclave.hex}.json").read_bytes() == before


def test_too_few_answer(scene: MovingWithWitnesses) -> None:
    scene.silence(0)
    assert str(scene.reader(k=2).witnessed()) == "2 of 3"
    with pytest.raises(NotWitnessed, match="2 of 3 witnesses confirm the log, but 3 are needed") as error:
        scene.reader(k=3).head()
    assert (error.value.code, error.value.context) == ("NOT_WITNESSED", {"witnessed": 2, "needed": 3})
    assert scene.posts[0].host in error.value.message
    with pytest.raises(NotWitnessed):
        scene.reader(k=None).head()


@both
def test_they_are_waited_for(scene: MovingWithWitnesses) -> None:
    scene.silence(0)
    reader, host = scene.reader(k=3, patience=30.0), scene.posts[0].host

    def settle() -> None:
        if len(scene.stage.naps) == 2:
            scene.stage.others[host] = scene.posts[0]  # type: ignore[assignment]

    scene.node.settle = settle  # type: ignore[method-assign]
    assert reader.head().ts == 2
    assert len(scene.stage.naps) == 2


def forged(scene: MovingWithWitnesses, n: int, **changes: Any) -> bytes:
    """Return a witness's answer with one field changed."""
    found = scene.posts[n].ask("GET", f"/heads/{scene.enclave.hex}").content
    return encode({**decode(found), **changes})


@pytest.mark.parametrize(
    "what", ["another's key", "another's word", "a forged head", "another enclave", "no JSON", "nothing", "redirect"]
)
def test_what_is_no_witness_s_word_does_not_count(scene: MovingWithWitnesses, what: str) -> None:
    liar, other = Identity.new(), scene.posts[1]
    head, sequencer = scene.enclave.head(), scene.node.key.public
    strange = cosign(liar.key, scene.enclave.id, sequencer, head, 1)
    root = cosign(scene.posts[0].identity.key, scene.enclave.id, sequencer, head, 1)
    bodies = {
        "another's key": encode(wire_cosigned(strange)),
        "another's word": other.ask("GET", f"/heads/{scene.enclave.hex}").content,
        "a forged head": encode({**wire_cosigned(root), "sth": {**wire_cosigned(root)["sth"], "r": "00" * 32}}),
        "another enclave": forged(scene, 0, enclave="00" * 32),
        "no JSON": b"<html>",
        "nothing": b"",
        "redirect": b"",
    }
    status = 302 if what == "redirect" else 200
    scene.instead(0, lambda _: httpx.Response(status, content=bodies[what], headers={"location": URL}))
    assert str(scene.reader(k=2).witnessed()) == "2 of 3"
    with pytest.raises(NotWitnessed):
        scene.reader(k=3).head()


def test_witnesses_that_are_behind(scene: MovingWithWitnesses) -> None:
    """A head is accepted for a while, and what `k` witnesses have seen is reported."""
    reader = scene.reader(lag=60.0)
    reader.head()
    scene.grow(scene.node, "five")
    scene.poll(0)
    found = reader.witnessed()
    assert (found.head.ts, found.count, found.size, found.is_whole) == (3, 1, 2, False)
    assert str(found) == "1 of 3; 2 have seen 2 of 3 bundles"
    scene.stage.clock.tick(61_000)
    with pytest.raises(NotWitnessed, match="1 of 3 witnesses have seen the log of 3 bundles, but 2 are needed"):
        reader.head()
    scene.poll(1)
    assert str(reader.witnessed()) == "2 of 3"


def test_none_may_be_behind(scene: MovingWithWitnesses) -> None:
    reader = scene.reader(lag=0)
    scene.grow(scene.node, "five")
    scene.stage.clock.tick(1)
    with pytest.raises(NotWitnessed):
        reader.head()
    scene.poll()
    assert reader.head().ts == 3


def test_a_log_of_ever_new_heads_that_no_witness_sees(scene: MovingWithWitnesses) -> None:
    """The node chooses the date, so the client measures the delay itself."""
    reader = scene.reader(lag=60.0)
    reader.head()
    for n in range(12):
        scene.grow(scene.node, f"for you alone {n}")
        scene.stage.clock.tick(5000)
        if n < 5:
            assert reader.head().ts == 3 + n
    with pytest.raises(NotWitnessed):
        reader.head()
    scene.poll(0, 1)
    assert reader.head().ts == 14
    scene.grow(scene.node, "and on")
    assert reader.head().ts == 15, "the lag of a head that is ahead of them now counts anew"


def test_witnesses_that_keep_coming_along(scene: MovingWithWitnesses) -> None:
    """The witnesses are always slightly behind."""
    reader = scene.reader(lag=60.0)
    for n in range(4):
        scene.grow(scene.node, str(n))
        assert reader.witnessed().size == 2 + n
        scene.poll()
        scene.stage.clock.tick(40_000)


def test_a_head_that_is_old_and_that_nobody_saw(scene: MovingWithWitnesses) -> None:
    scene.grow(scene.node, "five")
    scene.stage.clock.tick(61_000)
    with pytest.raises(NotWitnessed):
        scene.reader().head()


def test_answers_are_kept_as_long_as_the_head_is_the_same(scene: MovingWithWitnesses) -> None:
    reader = scene.reader()
    reader.head()
    scene.silence(0, 1, 2)
    assert reader.head().ts == 2
    assert reader.proof(scene.id("one")).anchor.head.ts == 2


def test_one_that_is_silent_is_left_alone_while_the_others_are_enough(scene: MovingWithWitnesses) -> None:
    asked = list[str]()

    def gone(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        raise httpx.ConnectError("nobody there")

    scene.instead(0, gone)
    reader = scene.reader(k=2)
    reader.head()
    for n in range(3):
        scene.grow(scene.node, str(n))
        scene.poll()
        assert reader.witnessed().is_whole
    assert len(asked) == 1
    scene.stage.clock.tick(61_000)
    scene.grow(scene.node, "later")
    scene.poll()
    reader.head()
    assert len(asked) == 2


# Witnesses that disagree


def caught(error: Any) -> Any:
    """Return the verdict for a reader who has only the file."""
    return check_evidence(load_evidence(error.value.evidence.json()))


def split(scene: MovingWithWitnesses) -> Any:
    """Let the node show witnesses another log than clients: of one size, different from the third bundle on."""
    twin = scene.fork()
    for post in scene.posts:
        post.view = twin
    return twin


@both
def test_another_log_of_one_size_convicts(scene: MovingWithWitnesses) -> None:
    split(scene)
    scene.poll()
    with pytest.raises(Fork) as error:
        scene.reader().head()
    verdict = caught(error)
    assert verdict.convicts
    assert "different roots" in verdict.proved[0]
    assert f"the witness {scene.posts[0].identity.hex} co-signed the first, of 3 bundles" in verdict.proved[-1]
    (filed,) = scene.posts[0].evidence()
    assert (filed["kind"], filed["convicts"]) == ("fork", True), "the witness got the evidence"


def test_one_witness_is_enough_to_tell(scene: MovingWithWitnesses) -> None:
    twin = scene.fork()
    scene.posts[2].view = twin
    scene.poll()
    with pytest.raises(Fork) as error:
        scene.reader(k=2).head()
    assert caught(error).convicts


def test_a_larger_log_of_the_witnesses(scene: MovingWithWitnesses) -> None:
    """The witness's head of the same size convicts."""
    twin = split(scene)
    scene.poll()
    scene.grow(twin, "more", "and more")
    scene.poll()
    assert scene.posts[0].sizes() == [2, 3, 4]
    with pytest.raises(Fork) as error:
        scene.reader().head()
    assert caught(error).convicts


def test_a_larger_log_here(scene: MovingWithWitnesses) -> None:
    split(scene)
    scene.poll()
    scene.grow(scene.node, "more")
    with pytest.raises(Fork) as error:
        scene.reader().head()
    verdict = caught(error)
    assert not verdict.convicts
    assert any("no valid consistency proof" in line for line in verdict.proved)
    assert "the witness" in verdict.proved[-1]
    assert [filed["kind"] for filed in scene.posts[0].evidence()] == ["rollback"]


def test_a_log_that_is_shown_here_as_it_was(scene: MovingWithWitnesses) -> None:
    """The node withholds events that it showed to others."""
    old = scene.node.copy()
    scene.grow(scene.node, "five")
    scene.poll()
    scene.stage.node = old
    with pytest.raises(Rollback) as error:
        scene.reader().head()
    verdict = caught(error)
    assert "the witness" in verdict.proved[-1]


def test_a_witness_that_looked_a_moment_later_is_no_contradiction(scene: MovingWithWitnesses) -> None:
    """The node answers, grows, and is seen by the witnesses, all before they are asked."""
    reader, old = scene.reader(), scene.node.copy()
    stale = encode(old.proofs(scene.enclave.id).sth())
    scene.grow(scene.node, "five")
    scene.poll()
    answers = [stale]

    def once(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        is_head = request.url.path.endswith("/sth") and answers
        return httpx.Response(200, content=answers.pop()) if is_head else response

    scene.node.wire = once
    head = reader.head()
    assert (head.ts, str(reader.witnessed(head))) == (2, "3 of 3")
    assert reader.head().ts == 3


def test_evidence_with_another_s_word_in_it_is_none(scene: MovingWithWitnesses) -> None:
    split(scene)
    scene.poll()
    with pytest.raises(Fork) as error:
        scene.reader().head()
    wire = decode(error.value.evidence.json())
    for change in ({"seen": 1}, {"witness": scene.posts[1].identity.hex}, {"sequencer": B.public.hex()}):
        bent = {**wire, "parts": {**wire["parts"], "cosigned": {**wire["parts"]["cosigned"], **change}}}
        with pytest.raises(InvalidProof):
            check_evidence(load_evidence(encode(bent)))
    third = scene.node.head(scene.enclave.id, 3, b"q" * 32)
    other = cosign(scene.posts[0].identity.key, scene.enclave.id, scene.node.key.public, third, 1)
    bent = {**wire, "parts": {**wire["parts"], "cosigned": wire_cosigned(other)}}
    with pytest.raises(InvalidProof, match="neither of the heads"):
        check_evidence(load_evidence(encode(bent)))


# Moves


def test_witnesses_that_are_still_at_the_former_node(scene: MovingWithWitnesses) -> None:
    reader = scene.reader(nodes=[AT_B])
    reader.head()
    new = scene.stage.others["b.test"] = scene.depart()
    scene.write(new, "there")
    scene.stage.close_bundle()
    stranger = scene.reader(url=AT_B)
    assert list(stranger.query(type="message"))
    assert stranger.sequencers()
    found = stranger.witnessed()
    assert (found.head.ts, found.count, found.size) == (4, 0, 2)
    for _ in range(3):
        scene.poll()
    scene.stage.clock.tick(1001)  # an answer is good for a second
    assert str(stranger.witnessed()) == "2 of 3", "the third may not read the Migrate, and has no registry"


def test_witnesses_that_have_followed_a_move_that_is_not_known_here(scene: MovingWithWitnesses) -> None:
    scene.stage.others["b.test"] = scene.depart()
    for _ in range(3):
        scene.poll()
    with pytest.raises(NotWitnessed, match=f"at another sequencer, {B.public.hex()}"):
        scene.reader().head()


# A caller's options


def test_witnesses_are_named_by_url_and_key(scene: Scene) -> None:
    key = person("bob").public
    assert parse_witness(f"http://w/x=y={key.hex()}") == Witness("http://w/x=y", key)
    assert parse_witnesses(f"1 http://a={key.hex()}") == ([Witness("http://a", key)], 1)
    assert parse_witnesses(f"http://a={key.hex()}") == ([Witness("http://a", key)], None)
    for text in ("", "http://a", "http://a=12", f"=={key.hex()}", f"ftp://a={key.hex()}", f"http://a={'00' * 32}"):
        with pytest.raises(MisuseError):
            parse_witness(text)
    for text in ("", "2", f"2 http://a={key.hex()}", f"0 http://a={key.hex()}", f"http://a={key.hex()} 2"):
        with pytest.raises(MisuseError):
            parse_witnesses(text)


def test_what_cannot_be_asked_for(scene: Scene) -> None:
    many = [Witness(f"http://{n}", person(f"w{n}").public) for n in range(MAX_WITNESSES + 1)]
    wrong: list[dict[str, Any]] = [
        {"witnesses": many[:2], "k": 3},
        {"witnesses": many[:2], "k": 0},
        {"witnesses": [], "k": 1},
        {"witnesses": many},
        {"witnesses": [many[0], Witness("http://other", many[0].key)]},
        {"witnesses": many[:1], "lag": -1},
    ]
    for options in wrong:
        with pytest.raises(MisuseError):
            scene.stage.client("bob", **options)
    with pytest.raises(MisuseError):
        Witness("http://a", b"short")
