"""Sealed requests, lifecycle, exports and checkpoints over HTTP."""

from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from msgspec.json import encode

from enc.core.log.commit import wire_commit
from enc.core.log.event import parse_event
from enc.core.machine.replay import Replay
from enc.core.session.envelope import RequestType
from enc.core.session.session import Session, open_session
from enc.node.api.http_api import SEALED_PATHS
from enc.node.config import NodeConfig, RetentionSettings
from tests.core.world import NO_POINT, person, pub
from tests.node.api.http_requests import BODIES, HOUR, again, code, migrate, refused, sealed
from tests.node.served import PATHS, SMALL, Enclave, Json, Served, bad, good, sqlite

# Sealed requests: what every type and path rejects


every_type = pytest.mark.parametrize("type_", BODIES)


def test_bodies_of_every_type_that_the_node_answers() -> None:
    assert set(BODIES) == {"Query", "Pull", *SEALED_PATHS.values()} == set(get_args(RequestType))


@every_type
def test_a_good_request_is_answered(closed: Enclave, type_: str) -> None:
    assert closed.ask("alice", type_, **BODIES[type_]) is not None


@pytest.mark.parametrize("type_", sorted(BODIES.keys() - {"Inclusion_Proof", "Pull", "Deliveries"}))
def test_who_may_read_nothing_is_unauthorized(closed: Enclave, type_: str) -> None:
    assert closed.denied("mallory", type_, **BODIES[type_]).code == "UNAUTHORIZED"


@every_type
def test_an_unknown_enclave_is_not_found(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    assert code(node, {**request, "enclave": "00" * 32}, type_) == "ENCLAVE_NOT_FOUND"


@every_type
def test_tokens(node: Served, closed: Enclave, type_: str) -> None:
    def asked(made: Session, **changes: str) -> str:
        request = closed.request("alice", type_, session=made, **BODIES[type_])
        return code(node, {**request, **changes}, type_)

    session = node.session("alice")
    assert asked(session, **{"from": pub("bob")}) == "INVALID_SESSION"
    assert asked(session, **{"from": NO_POINT}) == "INVALID_SESSION"
    assert asked(session, session=node.session("alice", 3599).token.hex()) == "DECRYPT_FAILED"
    assert asked(session, session=node.session("bob").token.hex()) == "INVALID_SESSION"
    for text in ("", "00", session.token.hex().upper(), session.token.hex() + "00", "zz" * 68):
        assert asked(session, session=text) == "INVALID_SESSION"
    assert asked(node.session("alice", -60)) == "SESSION_EXPIRED"
    assert asked(node.session("alice", 7261)) == "INVALID_SESSION"
    for lasts in (-59, 7260):
        good(closed.ask_raw("alice", type_, session=node.session("alice", lasts), **BODIES[type_]))


@every_type
def test_a_token_that_anyone_can_make_opens_nothing(node: Served, closed: Enclave, type_: str) -> None:
    mallory, alice = open_session(person("mallory"), node.clock.now // 1000 + 60), node.session("alice")
    request = closed.request("mallory", type_, session=mallory, **BODIES[type_])
    taken = {**request, "from": pub("alice"), "session": alice.token.hex()}
    assert code(node, taken, type_) == "DECRYPT_FAILED"


@every_type
def test_inside_and_outside_agree(node: Served, closed: Enclave, type_: str) -> None:
    session, other = node.session("alice"), node.session("alice", 60)

    def asked(**inside: Any) -> httpx.Response:
        plaintext = encode({"session": session.token.hex(), **BODIES[type_], **inside})
        return node.post(sealed(session, closed, type_, plaintext), PATHS.get(type_, "/"))

    good(asked())
    good(asked(type=type_))
    assert bad(asked(type="Pull" if type_ != "Pull" else "Query")).code == "INVALID_QUERY"
    assert bad(asked(type=None)).code == "INVALID_QUERY"
    assert bad(asked(session=other.token.hex())).code == "INVALID_SESSION"
    assert bad(asked(session=None)).code == "INVALID_SESSION"


@every_type
def test_contents_that_do_not_open(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    text = request["content"]
    forged = ("B" if text[50] != "B" else "C").join((text[:50], text[51:]))
    for content in ("", "AA==", forged, text + "\n", text[:-4], text.rstrip("=") + "!", "A" * 52):
        assert code(node, {**request, "content": content}, type_) == "DECRYPT_FAILED"


@every_type
def test_plaintexts_that_are_no_object(node: Served, closed: Enclave, type_: str) -> None:
    session = node.session("alice")
    for plaintext in (b"", b"[]", b"null", b'"x"', b"{", b"\xff", b'{"a":"\xff"}', b"[" * 100_000, b'{"a":' * 100_000):
        assert code(node, sealed(session, closed, type_, plaintext), type_) == "INVALID_QUERY"


@every_type
def test_each_path_takes_its_own_types_only(node: Served, closed: Enclave, type_: str) -> None:
    request = closed.request("alice", type_, **BODIES[type_])
    for path in {"/", *SEALED_PATHS} - {PATHS.get(type_, "/")}:
        error = bad(node.post(request, path))
        assert (error.status, error.code) == (400, "INVALID_QUERY")


def test_a_commit_is_taken_at_the_root_only(node: Served, enclave: Enclave) -> None:
    commit = enclave.commit("bob", "message", "x")
    for path in SEALED_PATHS:
        assert bad(node.post(wire_commit(commit), path)).code == "INVALID_QUERY"
    assert node.submit(commit).seq == 1


# Lifecycle


def test_a_paused_enclave_can_be_read_and_resumed(enclave: Enclave) -> None:
    enclave.send("alice", "Pause")
    assert enclave.refused("alice", "Pause").code == "ENCLAVE_PAUSED"
    assert enclave.seqs("bob") == [0, 1]
    enclave.send("alice", "Resume")
    assert enclave.send("bob", "message", "x").seq == 3


def test_a_terminated_enclave_can_be_read_until_its_data_is_gone(tmp_path: Path) -> None:
    store = sqlite(tmp_path)
    config = NodeConfig(port=0, dev=True, retention=RetentionSettings(purge_after_s=3600))
    with Served(config, store) as node:
        enclave, other = node.create(SMALL), node.create(SMALL)
        sent = enclave.commit("bob", "message", "x")
        node.submit(sent)
        enclave.send("alice", "Terminate")
        node.clock.tick(HOUR - 1)
        node.settle()
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
        assert enclave.refused("alice", "Resume").code == "ENCLAVE_TERMINATED"
        assert enclave.seqs("bob") == [0, 1, 2]
        assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 1
        assert enclave.ask("bob", "Bundle_Proof", leaf_index=0)["first_seq"] == 0
        node.clock.tick(1001)  # past the next sweep
        node.settle()
        for type_, body in BODIES.items():
            assert enclave.denied("alice", type_, **body).code == "ENCLAVE_TERMINATED", type_
        for path in ("sth", "consistency?from=1"):
            assert bad(node.get(f"/{enclave.id.hex()}/{path}")).code == "ENCLAVE_TERMINATED"
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
        assert refused(node, again(enclave, node.clock.now)) == "ENCLAVE_EXISTS"
        assert other.seqs("bob") == [0]
    store.close()
    store = sqlite(tmp_path)
    with Served(config, store, node.clock) as node:
        enclave.node = node
        assert enclave.denied("alice", "Query", filter={}).code == "ENCLAVE_TERMINATED"
        assert enclave.refused("bob", "message").code == "ENCLAVE_TERMINATED"
    store.close()


def test_an_enclave_whose_data_goes_while_it_is_read_is_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite(tmp_path)
    with Served(NodeConfig(port=0, dev=True, retention=RetentionSettings(purge_after_s=3600)), store) as node:
        enclave = node.create(SMALL)
        enclave.send("alice", "Terminate")
        node.clock.tick(HOUR + 1)
        node.settle()
        is_purged = store.is_purged
        for type_, body in BODIES.items():
            if type_ == "Pull":  # reads nothing of the enclave that it names
                continue
            seen = iter([False])  # as it was when the answer began
            monkeypatch.setattr(store, "is_purged", lambda found, seen=seen: next(seen, is_purged(found)))
            assert enclave.denied("alice", type_, **body).code == "ENCLAVE_TERMINATED", type_
    store.close()


def test_a_migrated_enclave_names_its_new_sequencer_and_can_be_read(node: Served, enclave: Enclave) -> None:
    assert migrate(enclave, "node2").seq == 1
    for name, type_ in (("bob", "message"), ("alice", "Pause"), ("alice", "Migrate")):
        error = enclave.refused(name, type_)
        assert (error.code, error.context) == ("ENCLAVE_MIGRATED", {"new_sequencer": pub("node2")})
    assert enclave.seqs("bob") == [0, 1]
    assert good(node.get(f"/{enclave.id.hex()}/sth"))["ts"] == 1


# Exports


def exported(enclave: Enclave, **body: Any) -> Json:
    found: Json = enclave.ask("alice", "Export", **body)
    return found


def test_an_export_is_the_whole_log_and_replays(node: Served, enclave: Enclave) -> None:
    gone = enclave.send("bob", "message", "gone").id
    enclave.send("bob", "message", "kept")
    enclave.send("bob", "Delete", '{"reason":"author"}', ("r", gone.hex()))
    answer = exported(enclave)
    replay = Replay(enclave.id)
    for event in answer["events"]:
        replay.add(parse_event(encode(event)))
    replay.finish()
    assert answer["seq"] == replay.state.seq == 3
    assert [event["content"] for event in answer["events"][1:3]] == [None, "kept"]
    assert answer["sth"] == good(node.get(f"/{enclave.id.hex()}/sth"))


def test_an_export_goes_page_by_page(enclave: Enclave) -> None:
    for text in "abcd":
        enclave.send("bob", "message", text)
    whole = exported(enclave)["events"]
    assert [event["seq"] for event in whole] == [0, 1, 2, 3, 4]
    assert exported(enclave, from_seq=1, limit=2)["events"] == whole[1:3]
    assert exported(enclave, from_seq=3)["events"] == whole[3:]
    past = exported(enclave, from_seq=5)
    assert (past["events"], past["seq"]) == ([], 4)


@pytest.mark.parametrize(
    "body", [{"limit": 0}, {"limit": 1001}, {"from_seq": -1}, {"from_seq": 1 << 53}, {"limit": "1"}]
)
def test_an_export_of_what_cannot_be(enclave: Enclave, body: Json) -> None:
    assert enclave.denied("alice", "Export", **body).code == "INVALID_QUERY"
    assert exported(enclave, from_seq=(1 << 53) - 1, limit=1000)["events"] == []


def test_only_who_may_migrate_gets_an_export(enclave: Enclave) -> None:
    for name in ("bob", "carol", "mallory"):
        assert enclave.denied(name, "Export").code == "UNAUTHORIZED"


# Checkpoints


def test_a_checkpoint_is_the_root_that_replay_finds(node: Served, enclave: Enclave) -> None:
    for text in "abcde":
        enclave.send("bob", "message", text)
    replay = Replay(enclave.id)
    for event in node.store.events(enclave.id, 0, 10):
        replay.add(event)
    assert enclave.ask("alice", "Checkpoint") == {"seq": 5, "ct_root": replay.checkpoint_root().hex()}


def test_only_who_may_migrate_gets_a_checkpoint(enclave: Enclave) -> None:
    for name in ("bob", "carol", "mallory"):
        assert enclave.denied(name, "Checkpoint").code == "UNAUTHORIZED"


def test_a_migrate_that_is_not_of_this_checkpoint(enclave: Enclave) -> None:
    right = enclave.ask("alice", "Checkpoint")
    for wrong in ({"prev_seq": 1}, {"ct_root": "00" * 32}):
        content = {"new_sequencer": pub("node2"), "prev_seq": right["seq"], "ct_root": right["ct_root"], **wrong}
        error = enclave.refused("alice", "Migrate", content)
        assert (error.code, error.context) == ("CHECKPOINT_MISMATCH", right)


def test_a_hold_admits_nothing_but_a_migrate(node: Served, enclave: Enclave) -> None:
    other, sent = node.create(SMALL), enclave.commit("bob", "message", "before")
    node.submit(sent)
    found = enclave.ask("alice", "Checkpoint", hold=30)
    for name, type_ in (("bob", "message"), ("alice", "Pause"), ("alice", "Terminate")):
        error = enclave.refused(name, type_)
        assert error.code == "UNAVAILABLE"
        assert 0 < error.context["retry_after_ms"] <= 30_000
    assert refused(node, sent) == "DUPLICATE"
    assert enclave.seqs("bob") == [0, 1]
    assert other.send("bob", "message", "elsewhere").seq == 1
    content = {"new_sequencer": pub("node2"), "prev_seq": found["seq"], "ct_root": found["ct_root"]}
    assert enclave.send("alice", "Migrate", content).seq == 2


def test_a_hold_ends_with_its_time(node: Served, enclave: Enclave) -> None:
    enclave.ask("alice", "Checkpoint", hold=2)
    assert enclave.refused("bob", "message").context == {"retry_after_ms": 1999}
    node.clock.tick(1998)
    assert enclave.send("bob", "message", "x").seq == 1


def test_a_hold_ends_with_the_migrate_that_it_was_for(enclave: Enclave) -> None:
    migrate(enclave, "node2", hold=30)
    assert enclave.refused("bob", "message").code == "ENCLAVE_MIGRATED"


@pytest.mark.parametrize("hold", [-1, 31, 1.5, "1", None, True, 2**53])
def test_a_hold_out_of_bounds(node: Served, enclave: Enclave, hold: Any) -> None:
    assert enclave.denied("alice", "Checkpoint", hold=hold).code == "INVALID_QUERY"
    assert enclave.send("bob", "message", "not held").seq == 1


def test_a_checkpoint_without_a_hold_holds_nothing(enclave: Enclave) -> None:
    enclave.ask("alice", "Checkpoint", hold=0)
    assert enclave.send("bob", "message", "x").seq == 1
