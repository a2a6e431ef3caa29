"""Writing: one method per write, its commit on the wire, and a verified receipt."""

import json
from typing import Any

import pytest

from enc.client import Identity, operation
from enc.client.enclave.writes import SALT_BYTES, as_bytes, as_hex, as_tags
from enc.client.link import enclave_session
from enc.client.link.node_link import NodeLink
from enc.client.verify.pins import MemoryPins
from enc.client.wire.retrying_caller import RetryingCaller
from enc.core.errors import MisuseError, StateMismatch, Unauthorized
from enc.core.log.receipt import build_receipt
from enc.core.primitives.types import Receipt
from tests.client.scene import Scene
from tests.client.stage import Stage
from tests.core.world import person, pub

ID = b"\x07" * 32
BOB = person("bob").public


@pytest.mark.parametrize(
    ("call", "type_", "content", "tags"),
    [
        (lambda e: e.prepare("message", "text"), "message", "text", ()),
        (lambda e: e.prepare("message", {"b": 1, "a": [2]}), "message", '{"a":[2],"b":1}', ()),
        (lambda e: e.prepare("message", [1, "é"]), "message", '[1,"é"]', ()),
        (lambda e: e.prepare("message", "", tags=[["k", "v"]]), "message", "", (("k", "v"),)),
        (lambda e: e.prepare("message", "", tags=(tag for tag in [("k",)])), "message", "", (("k",),)),
    ],
)
def test_what_a_commit_holds(scene: Scene, call: Any, type_: str, content: str, tags: Any) -> None:
    commit = call(scene.enclave)
    assert (commit.type, commit.content, commit.tags) == (type_, content, tags)
    assert (commit.enclave, commit.from_) == (scene.enclave.id, person("alice").public)


CALLS: dict[str, tuple[Any, str, Any, Any]] = {
    "commit": (lambda e: e.commit("message", "text"), "message", "text", []),
    "update": (lambda e: e.update(ID, "new", tags=[["k"]]), "Update", "new", [["r", ID.hex()], ["k"]]),
    "delete": (lambda e: e.delete(ID), "Delete", {"reason": "author"}, [["r", ID.hex()]]),
    "moderate": (
        lambda e: e.delete(ID.hex(), reason="moderator", note="spam"),
        "Delete",
        {"reason": "moderator", "note": "spam"},
        [["r", ID.hex()]],
    ),
    "move": (
        lambda e: e.move(BOB, "MEMBER", "OUTSIDER"),
        "Move",
        {"target": BOB.hex(), "from": "MEMBER", "to": "OUTSIDER"},
        [],
    ),
    "grant": (lambda e: e.grant(BOB, "admin"), "Grant", {"target": BOB.hex(), "trait": "admin"}, []),
    "grant, pushed": (
        lambda e: e.grant(BOB, "admin", endpoint="https://a.test"),
        "Grant",
        {"target": BOB.hex(), "trait": "admin", "endpoint": "https://a.test"},
        [],
    ),
    "revoke": (lambda e: e.revoke(BOB, "admin"), "Revoke", {"target": BOB.hex(), "trait": "admin"}, []),
    "transfer": (lambda e: e.transfer(BOB, "owner"), "Transfer", {"target": BOB.hex(), "trait": "owner"}, []),
    "gate": (lambda e: e.gate("applications", open=False), "Gate", {"alias": "applications", "state": "closed"}, []),
    "open": (lambda e: e.gate("applications", open=True), "Gate", {"alias": "applications", "state": "open"}, []),
    "shared": (lambda e: e.shared("topic", [1]), "Shared", {"key": "topic", "value": [1]}, []),
    "unset": (lambda e: e.shared("topic", None), "Shared", {"key": "topic", "value": None}, []),
    "own": (lambda e: e.own("profile", {"a": 1}), "Own", {"key": "profile", "value": {"a": 1}}, []),
    "ac_bundle": (
        lambda e: e.ac_bundle([operation("Grant", target=BOB, trait="admin")]),
        "AC_Bundle",
        {"operations": [{"type": "Grant", "target": BOB.hex(), "trait": "admin"}]},
        [],
    ),
    "pause": (lambda e: e.pause(), "Pause", "", []),
    "resume": (lambda e: e.resume(), "Resume", "", []),
    "terminate": (lambda e: e.terminate(), "Terminate", "", []),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_each_call_sends(scene: Scene, name: str) -> None:
    """The calls go to a node that accepts everything."""
    call, type_, content, tags = CALLS[name]
    sent = list[Any]()

    def take(request: Any, response: Any) -> Any:
        sent.append(json.loads(request.content))
        return response

    scene.node.wire = take
    scene.node.take = lambda commit: _receipt(scene, commit)  # type: ignore[method-assign]
    assert isinstance(call(scene.enclave), Receipt)
    (wire,) = sent
    assert wire["type"] == type_
    found = wire["content"] if isinstance(content, str) else json.loads(wire["content"])
    if type_ in ("Shared", "Own"):
        assert len(found.pop("salt")) == 2 * SALT_BYTES
    assert found == content
    assert wire["tags"] == tags


def _receipt(scene: Scene, commit: Any) -> Receipt:
    return build_receipt(scene.node.event(commit, 8))


def test_a_receipt_is_of_what_was_written(scene: Scene) -> None:
    receipt = scene.enclave.commit("message", "text")
    item = scene.enclave.event(receipt.id)
    assert (item.seq, item.content, item.event.hash) == (8, "text", receipt.hash)


def test_the_life_of_an_enclave(scene: Scene) -> None:
    """A node's real rules decide, not the test."""
    e, bob = scene.enclave, scene.other()
    e.move(person("dave").public, "PENDING", "MEMBER")
    e.grant(BOB, "helper")
    e.revoke(BOB, "helper")
    e.ac_bundle([operation("Grant", target=BOB, trait="helper"), operation("Grant", target=BOB, trait="admin")])
    e.gate("applications", open=False)
    bob.own("profile", "Bob")
    bob.update(bob.commit("message", "one").id, "two")
    bob.delete(bob.commit("message", "spam").id)
    e.delete(bob.commit("message", "more spam").id, reason="moderator")
    e.pause()
    e.resume()
    e.transfer(BOB, "owner")
    with pytest.raises(Unauthorized):
        e.terminate()
    with pytest.raises(StateMismatch) as caught:
        bob.move(person("dave").public, "PENDING", "MEMBER")
    assert caught.value.context == {"expected": "PENDING", "actual": "MEMBER"}
    bob.terminate()


def test_the_same_words_twice_are_two_events(stage: Stage, scene: Scene) -> None:
    """Although the clock does not advance."""
    first, second = scene.enclave.commit("message", "again"), scene.enclave.commit("message", "again")
    assert (first.seq, second.seq) == (8, 9)
    assert first.hash != second.hash


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_either_algorithm(stage: Stage, scene: Scene, alg: str) -> None:
    e = stage.client("bob", alg=alg).enclave(scene.enclave.id)
    receipt = e.commit("message", "signed")
    assert receipt.alg == alg
    assert e.event(receipt.id).event.alg == alg
    assert stage.client("bob", alg=alg).create({**e.overview().manifest, "meta": {"n": 3}}).manifest().alg == alg


def test_a_commit_is_sent_where_it_is_for(stage: Stage, scene: Scene) -> None:
    other = stage.create(meta={"n": 2})
    with pytest.raises(MisuseError, match="another enclave"):
        other.send(scene.enclave.prepare("message", "x"))


# Invalid ids, tags and contents


@pytest.mark.parametrize("id_", [ID, ID.hex(), ID.hex().upper(), bytearray(ID), memoryview(ID)])
def test_an_id_is_32_bytes_or_64_hex_digits(id_: Any) -> None:
    assert as_bytes(id_, "event") == ID
    assert as_hex(id_, "event") == ID.hex()


@pytest.mark.parametrize("id_", [b"", ID[1:], "07", "zz" * 32, 32, None, [7] * 32, ID.hex() + "07"], ids=str)
def test_what_is_no_id(id_: Any) -> None:
    with pytest.raises(MisuseError, match="event: expected 32 bytes"):
        as_bytes(id_, "event")


@pytest.mark.parametrize("tags", [["ab"], [[1]], [["r", None]], [b"ab"], ("ab",)], ids=str)
def test_what_are_no_tags(tags: Any) -> None:
    with pytest.raises(MisuseError, match="tags"):
        as_tags(tags)
    with pytest.raises(MisuseError, match="tags"):
        as_tags(iter(tags))


@pytest.mark.parametrize("tags", [5, [5], [["a"], 5], [["a"], None]], ids=str)
def test_tags_that_are_no_lists(tags: Any) -> None:
    with pytest.raises(MisuseError, match="tags: expected lists of strings"):
        as_tags(tags)


@pytest.mark.parametrize("type_", [5, None, b"message", ["message"]], ids=str)
def test_what_is_no_type(scene: Scene, type_: Any) -> None:
    before = len(scene.node.calls)
    for act in (scene.enclave.commit, scene.enclave.prepare):
        with pytest.raises(MisuseError, match="type: expected the name of an event type, such as 'message', not "):
            act(type_, "text")
    assert len(scene.node.calls) == before


@pytest.mark.parametrize("content", [{"x": float("nan")}, {"x": b""}, ["\ud800"], 5.5j], ids=str)
def test_what_is_no_content(scene: Scene, content: Any) -> None:
    before = len(scene.node.calls)
    with pytest.raises(MisuseError):
        scene.enclave.commit("message", content)
    assert len(scene.node.calls) == before


def test_operations() -> None:
    assert operation("Move", target=BOB, from_="MEMBER", to="OUTSIDER") == {
        "type": "Move",
        "target": pub("bob"),
        "from": "MEMBER",
        "to": "OUTSIDER",
    }
    assert operation("Gate", alias="a", state="open") == {"type": "Gate", "alias": "a", "state": "open"}
    with pytest.raises(MisuseError, match="target"):
        operation("Grant", target="bob", trait="admin")


def test_the_same_words_at_the_same_moment_by_two_clients_of_one_identity_are_two_commits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spreads = iter([5, 700, 3])
    monkeypatch.setattr(enclave_session, "randbelow", lambda most: next(spreads))
    pins, identity = MemoryPins(), Identity.new()
    node = NodeLink(RetryingCaller(0, lambda: 0.0), None)
    sessions = [
        enclave_session.EnclaveSession(node, identity, bytes(32), pins, lambda: 1000, "schnorr") for _ in range(2)
    ]
    exps = [session.prepare("message", "hello").exp for session in (*sessions, sessions[1])]
    assert exps == [
        1000 + enclave_session.EXPIRY_MS + 5,
        1000 + enclave_session.EXPIRY_MS + 700,
        1000 + enclave_session.EXPIRY_MS + 701,
    ]
