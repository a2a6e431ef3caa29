"""Following an enclave: what is co-signed, and what never is."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from enc.client import Identity, check_evidence, load_evidence
from enc.core.errors import Unavailable
from enc.core.primitives.types import TreeHead
from enc.core.trees.tree_head import sign_head, wire_head
from enc.testing.lying_node import LyingNode
from enc.witness import watcher
from enc.witness.evidence_store import MAX_ANSWER, MAX_OF_ENCLAVE
from enc.witness.watcher import MAX_WAITING
from tests.client.migration.moving import AT_B, B, C, Moving
from tests.client.scene import instead
from tests.client.stage import URL, Stage
from tests.core.world import person
from tests.witness.staged_witness import StagedWitness


def verdict(post: StagedWitness, filed: Any) -> Any:
    """Return what an evidence file shows, after checking that disk and wire agree."""
    body = post.ask("GET", f"/evidence/{filed['id']}").content
    path = post.folder / "evidence" / f"enc-evidence-{filed['kind']}-{filed['id']}.json"
    assert path.read_bytes() == body
    found = check_evidence(load_evidence(body))
    assert found.convicts == filed["convicts"]
    return found


def test_each_new_head_is_co_signed_once(moving: Moving, post: StagedWitness) -> None:
    assert post.get("/heads") == []
    assert post.poll() == "ok"
    assert post.poll() == "ok"
    assert post.sizes() == [2]
    moving.grow(moving.node, "five")
    moving.grow(moving.node, "six")
    assert post.poll() == "ok"
    assert post.sizes() == [2, 4]
    last = post.cosigned()[-1]
    assert (last.head, last.sequencer, last.seen) == (
        moving.enclave.head(),
        moving.node.key.public,
        moving.stage.clock.now,
    )


def test_an_empty_log_is_not_co_signed(moving: Moving, tmp_path: Path) -> None:
    young = moving.stage.create(meta={"n": 2})
    post = StagedWitness(moving.stage, young.id, tmp_path / "young")
    assert post.poll() == "ok"
    assert post.sizes() == []
    assert post.get(f"/heads/{young.hex}", 404)["code"] == "ENCLAVE_NOT_FOUND"
    moving.stage.close_bundle()
    post.poll()
    assert post.sizes() == [1]
    post.close()


def lies(moving: Moving) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Return for each lie its kind of evidence and its cause; the witness has seen a log of two bundles."""
    node, enclave = moving.node, moving.enclave.id

    def shows(ts: int, root: bytes | None = None, t: int | None = None, **changes: Any) -> Callable[[], Any]:
        def lie() -> None:
            honest = node.proofs(enclave).sth()
            head = wire_head(node.head(enclave, ts, root or bytes.fromhex(honest["r"]), t))
            node.lie("sth", lambda _: {**head, **changes})

        return lie

    return {
        "two roots of one size": ("fork", shows(2, b"x" * 32)),
        "a smaller log": ("rollback", shows(1)),
        "an empty log": ("rollback", shows(0)),
        "a larger log that does not extend it": ("inconsistent", shows(5, b"x" * 32)),
        "another enclave's head": ("foreign", shows(3, bound_sig="00" * 64)),
        "a head that names no enclave": ("foreign", shows(3, bound_sig=None)),
        "rubbish": ("answer", lambda: node.lie("sth", lambda _: {"t": -1})),
    }


LIES = "two roots of one size|a smaller log|an empty log|a larger log that does not extend it|another enclave's head"
LIES += "|a head that names no enclave|rubbish"


@pytest.mark.parametrize("name", LIES.split("|"))
def test_a_lie_is_never_co_signed_and_becomes_evidence(moving: Moving, post: StagedWitness, name: str) -> None:
    post.poll()
    before = post.cosigned()
    kind, lie = lies(moving)[name]
    lie()
    assert post.poll() == "disputed"
    assert post.cosigned() == before
    (filed,) = post.evidence()
    assert (filed["kind"], filed["enclave"]) == (kind, moving.enclave.hex)
    assert verdict(post, filed).convicts == (kind in ("fork", "rollback")), "the smaller log is dated later here"
    (status,) = post.get("/enclaves")["enclaves"]
    assert (status["state"], status["evidence"], status["size"]) == ("disputed", 1, 2)
    assert status["why"]
    assert post.poll() == "disputed"
    assert len(post.evidence()) == 1, "the same lie again is the same evidence"
    moving.node.be_honest()
    moving.grow(moving.node, "five")
    assert post.poll() == "ok"
    assert post.sizes() == [2, 3]
    assert post.get("/enclaves")["enclaves"][0]["evidence"] == 1


def test_a_log_that_was_rewritten_behind_what_was_co_signed(moving: Moving, post: StagedWitness) -> None:
    twin = moving.fork()
    assert post.poll() == "ok"
    assert post.sizes() == [3]
    moving.grow(twin, "on and on")
    moving.stage.node = twin
    assert post.poll() == "disputed"
    assert post.sizes() == [3]
    assert [filed["kind"] for filed in post.evidence()] == ["inconsistent"]
    post.restart()
    assert post.poll() == "disputed"
    assert post.sizes() == [3]


def test_what_goes_wrong_with_one_enclave_reaches_no_other(moving: Moving, tmp_path: Path) -> None:
    other = moving.stage.create(meta={"n": 2})
    moving.stage.close_bundle()
    listed = [f"{each.hex}@{URL}" for each in (moving.enclave, other)]
    post = StagedWitness(moving.stage, moving.enclave.id, tmp_path / "two", enclaves=listed)
    second = post.service.watches[other.id]
    moving.node.lie("sth", lambda sth: {**sth, "r": "00" * 32} if sth["ts"] == 3 else sth)
    assert post.poll() == "disputed"
    post.do(second.poll)
    assert (second.state, [each["enclave"] for each in post.get("/heads")]) == ("ok", [other.hex])
    post.close()


@pytest.mark.parametrize("fault", ["refuses", "is gone", "answers no JSON", "never ends"])
def test_a_node_that_does_not_answer_is_no_liar(moving: Moving, post: StagedWitness, fault: str) -> None:
    post.poll()
    node = moving.stage.node

    def gone(request: httpx.Request) -> None:
        raise httpx.ConnectError("nobody there")

    if fault == "refuses":
        node.lie("sth", instead(Unavailable("later")))
    elif fault == "is gone":
        node.arrives = gone
    elif fault == "answers no JSON":
        node.wire = lambda request, response: httpx.Response(502, content=b"<html>")
    else:
        node.wire = lambda request, response: httpx.Response(200, content=b" " * ((16 << 20) + 1))
    assert post.poll() == "silent"
    assert (post.evidence(), post.sizes()) == ([], [2])
    moving.stage.node = node.copy()
    assert post.poll() == "ok"


def test_an_enclave_that_is_not_there(moving: Moving, tmp_path: Path) -> None:
    post = StagedWitness(moving.stage, bytes(32), tmp_path / "nothing")
    assert post.poll() == "stuck"
    assert "ENCLAVE_NOT_FOUND" in post.get("/enclaves")["enclaves"][0]["why"]
    post.close()


def test_the_sequencer_may_be_known_before(moving: Moving, tmp_path: Path) -> None:
    right, wrong = moving.node.key.public.hex(), C.public.hex()
    for key, state in ((right, "ok"), (wrong, "disputed")):
        post = StagedWitness(
            moving.stage, moving.enclave.id, tmp_path / key, enclaves=[f"{moving.enclave.hex}@{URL}#{key}"]
        )
        assert post.poll() == state
        assert bool(post.sizes()) == (state == "ok")
        post.close()


# Moves


def test_a_move_is_followed(moving: Moving, post: StagedWitness, tmp_path: Path) -> None:
    follower = StagedWitness(moving.stage, moving.enclave.id, tmp_path / "follower", "carol", nodes=(AT_B,))
    follower.poll()
    new = moving.stage.others["b.test"] = moving.depart()
    assert follower.poll(2) == "ok"  # the last head of the old node, and then why there is no other
    assert follower.sizes() == [2, 3, 3], "the same log, signed by both"
    moving.write(new, "there")
    moving.stage.close_bundle()
    assert follower.poll() == "ok"
    assert [each.sequencer for each in follower.cosigned()] == [moving.node.key.public] * 2 + [B.public] * 2
    (status,) = follower.get("/enclaves")["enclaves"]
    assert (status["node"], status["sequencer"], status["size"]) == (AT_B, B.public.hex(), 4)
    assert follower.evidence() == []
    follower.restart()
    assert follower.poll() == "ok", "it begins at the given node, and follows the move"
    assert follower.sizes()[-1] == 4
    follower.close()
    post.poll()
    assert post.poll() == "stuck", "this witness has no registry to look in"
    assert post.sizes() == [3]


def test_a_takeover_that_loses_what_was_co_signed_is_not_followed(moving: Moving, tmp_path: Path) -> None:
    post = StagedWitness(moving.stage, moving.enclave.id, tmp_path / "follower", nodes=(AT_B,))
    old = moving.node.copy()
    moving.grow(moving.node, "five")
    post.poll()
    moving.stage.others["b.test"] = moving.taken_over(node=old)
    moving.node.take(moving.node.migrate(moving.enclave.id, person("alice"), B))
    moving.stage.node = moving.stage.others["b.test"]
    assert post.poll() in ("stuck", "disputed")
    assert post.sizes() == [3]
    assert {each.sequencer for each in post.cosigned()} == {old.key.public}
    post.close()


# Submitted heads


def other_head(moving: Moving, ts: int, root: bytes = b"x" * 32, key: LyingNode | None = None) -> TreeHead:
    return (key or moving.node).head(moving.enclave.id, ts, root, moving.stage.clock.now)


def test_a_head_that_fits_is_consistent(moving: Moving, post: StagedWitness) -> None:
    old = moving.enclave.head()
    for _ in range(2):  # first unknown, then known
        found = post.submit(old)
        assert (found.status_code, found.json()) == (200, {"verdict": "consistent"})
    moving.grow(moving.node, "five")
    newer = moving.enclave.head()
    assert post.submit(newer, moving.node.key.public).json() == {"verdict": "consistent"}
    assert post.sizes() == [2, 3], "a submitted head makes it poll"
    moving.grow(moving.node, "six")
    post.poll()
    calls = len(moving.node.calls)
    assert post.submit(newer).json() == {"verdict": "consistent"}
    assert len(moving.node.calls) == calls, "it does not ask about a head that it has co-signed"


def test_heads_between_those_that_were_seen(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    moving.grow(moving.node, "five")
    between = moving.enclave.head()
    moving.grow(moving.node, "six")
    post.poll()
    assert post.sizes() == [2, 4]
    assert post.submit(between).json() == {"verdict": "consistent"}
    found = post.submit(other_head(moving, 3)).json()
    assert found["verdict"] == "contradiction"
    assert [filed["kind"] for filed in post.evidence()] == ["inconsistent"]
    assert verdict(post, post.evidence()[0]).proved


def test_another_log_of_one_size_convicts(moving: Moving, post: StagedWitness) -> None:
    twin = moving.fork()
    post.poll()
    found = post.submit(twin.head(moving.enclave.id, 3, bytes.fromhex(twin.proofs(moving.enclave.id).sth()["r"])))
    assert found.json()["verdict"] == "contradiction"
    (filed,) = post.evidence()
    assert (filed["id"], filed["kind"], filed["convicts"]) == (found.json()["evidence"], "fork", True)
    assert "different roots" in verdict(post, filed).proved[0]
    assert post.sizes() == [3]
    assert post.get("/enclaves")["enclaves"][0]["state"] == "disputed"


def test_a_log_that_the_node_does_not_show_the_witness(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    found = post.submit(other_head(moving, 9))
    assert found.json()["verdict"] == "contradiction"
    assert [filed["kind"] for filed in post.evidence()] == ["rollback"]
    verdict(post, post.evidence()[0])
    assert post.sizes() == [2]


def test_what_nobody_signed_is_no_evidence_and_asks_nobody(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    calls, head = len(moving.node.calls), moving.enclave.head()
    calls = len(moving.node.calls)
    stranger = Identity.new().key
    forged = [
        (replace(head, r=b"y" * 32), None),
        (replace(head, bound_sig=None), None),
        (sign_head(moving.node.key, bytes(32), head.t, 3, b"z" * 32), None),
        (sign_head(stranger, moving.enclave.id, head.t, 3, b"z" * 32), None),
    ]
    for each, signer in forged:
        found = post.submit(each, signer)
        assert (found.status_code, found.json()["code"]) == (400, "INVALID_SIGNATURE")
    assert len(moving.node.calls) == calls
    known = post.submit(sign_head(stranger, moving.enclave.id, head.t, 3, b"z" * 32), stranger.public)
    assert (known.status_code, known.json()["code"]) == (400, "INVALID_SIGNATURE")
    assert (post.evidence(), post.sizes()) == ([], [2])


def test_a_forged_head_is_the_first_thing_that_it_hears_of(moving: Moving, post: StagedWitness) -> None:
    found = post.submit(replace(moving.enclave.head(), r=b"y" * 32))
    assert (found.status_code, found.json()["code"], post.evidence()) == (400, "INVALID_SIGNATURE", [])


def test_heads_of_a_former_sequencer(moving: Moving, tmp_path: Path) -> None:
    post = StagedWitness(moving.stage, moving.enclave.id, tmp_path / "follower", nodes=(AT_B,))
    post.poll()
    old, before = moving.node, moving.enclave.head()
    new = moving.stage.others["b.test"] = moving.depart()
    post.poll(2)
    moving.write(new, "there")
    moving.stage.close_bundle()
    post.poll()
    assert post.submit(before, old.key.public).json() == {"verdict": "consistent"}
    late = post.submit(other_head(moving, 4), old.key.public).json()
    assert late["verdict"] == "contradiction"
    assert [filed["kind"] for filed in post.evidence()] == ["split"]
    other = post.submit(other_head(moving, 1), old.key.public).json()
    assert other["verdict"] == "contradiction"
    assert {filed["kind"] for filed in post.evidence()} == {"split", "inconsistent"}
    for filed in post.evidence():
        verdict(post, filed)
    post.close()


def test_a_node_that_is_away_cannot_be_compared_with(moving: Moving, post: StagedWitness) -> None:
    post.poll()

    def gone(request: httpx.Request) -> None:
        raise httpx.ConnectError("nobody there")

    moving.node.arrives = gone
    found = post.submit(other_head(moving, 1))
    assert (found.status_code, found.json()["code"]) == (502, "UPSTREAM_UNREACHABLE")
    assert post.evidence() == []


def test_so_many_heads_wait_to_be_compared(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    head = other_head(moving, 1)

    async def at_once() -> list[Any]:
        async with post.watch._lock:  # as while a node does not answer
            waiting = [asyncio.ensure_future(post.watch.compare(None, head)) for _ in range(MAX_WAITING + 2)]
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 2:
                done, _ = await asyncio.wait(waiting, timeout=0)
        return await asyncio.gather(*waiting, return_exceptions=True)

    found = post.do(at_once)
    assert [isinstance(each, Unavailable) for each in found] == [False] * MAX_WAITING + [True] * 2
    assert post.submit(head).json()["verdict"] == "contradiction", "there is space again"


def test_a_node_that_takes_its_time_is_not_waited_for(
    moving: Moving, post: StagedWitness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "WHOLE_S", 0.0)

    async def never(flow: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(post.watch, "_run", never)
    assert post.poll() == "silent"
    assert "TIMED_OUT" in post.watch.why


def test_evidence_is_bounded_and_what_convicts_is_not_crowded_out(
    moving: Moving, post: StagedWitness, stage: Stage
) -> None:
    post.poll()
    for n in range(MAX_OF_ENCLAVE + 5):
        rubbish = {"rubbish": "x" * (n + 1)}
        moving.node.lie("sth", partial(lambda answer, _: answer, rubbish))
        post.poll()
    # the answers differ, not the fault: so each is another piece of evidence
    assert len(post.evidence()) == MAX_OF_ENCLAVE
    moving.node.be_honest()
    found = post.submit(other_head(moving, 2)).json()
    assert found["evidence"]
    assert len(post.evidence()) == MAX_OF_ENCLAVE + 1
    for n in range(MAX_OF_ENCLAVE):
        last = post.submit(other_head(moving, 2, bytes([n]) * 32)).json()
    assert last == {"verdict": "contradiction", "message": last["message"], "evidence": None}
    assert len(post.evidence()) == 2 * MAX_OF_ENCLAVE


def test_a_long_answer_is_kept_in_part(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    moving.node.lie("sth", lambda _: {"rubbish": "x" * 3 * MAX_ANSWER})
    post.poll()
    (filed,) = post.evidence()
    assert len(post.ask("GET", f"/evidence/{filed['id']}").content) < 2 * MAX_ANSWER


def test_a_file_that_a_crash_left_unwritten_is_written(moving: Moving, post: StagedWitness) -> None:
    post.poll()
    post.submit(other_head(moving, 2))
    (path,) = (post.folder / "evidence").iterdir()
    body = path.read_bytes()
    path.unlink()
    post.restart()
    assert path.read_bytes() == body
