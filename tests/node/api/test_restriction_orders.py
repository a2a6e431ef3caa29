"""What an operator forbids takes effect at once, leaves the right to leave, and survives restarts."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.json import decode, encode
from websockets.sync.client import connect

from enc.core.errors import EncError, EnclaveNotFound, MisuseError, Unavailable
from enc.core.log.commit import wire_commit
from enc.node.api import restriction_orders
from enc.node.config import NodeConfig, ProxySettings
from enc.node.fsck import check_store
from enc.node.store.restrictions import Restriction
from enc.runtime.unix_sockets.frame_server import Peer
from tests.core.world import pub
from tests.node.api.http_requests import BODIES, migrate
from tests.node.imports.import_orders import OLD
from tests.node.moving import archive_of, done, ended, force, log_of, migrate_commit, order
from tests.node.pushing import CONFIG, room, say
from tests.node.served import DEV, NODE, SMALL, Enclave, Served, bad, sqlite

OPERATOR = Peer(1, 0)
LEAVING = {"Export", "Checkpoint"}


def ordered(node: Served, name: str, **params: Any) -> Any:
    return node.node.operations.perform(name, params, OPERATOR)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Served]:
    with Served(store=sqlite(tmp_path)) as node:
        yield node


@pytest.fixture
def enclave(node: Served) -> Enclave:
    enclave = node.create(SMALL, bundle={"size": 1, "timeout": 5000})
    enclave.send("alice", "message", "hello")
    return enclave


def codes(enclave: Enclave, name: str) -> dict[str, str]:
    """Return the code of the answer to each type of sealed request."""
    found = {}
    for type_, body in BODIES.items():
        response = enclave.ask_raw(name, type_, **body)
        found[type_] = "" if response.status_code == 200 else bad(response).code
    return found


def public(enclave: Enclave) -> list[int]:
    paths = (f"/{enclave.id.hex()}/sth", f"/{enclave.id.hex()}/consistency?from=1&to=1")
    return [enclave.node.get(path).status_code for path in paths]


# Bans


def test_a_banned_identity_may_do_nothing_but_leave(node: Served, enclave: Enclave) -> None:
    assert ordered(node, "ban", target=pub("alice"), reason="spam")["until"] is None
    for commit in (enclave.commit("alice", "message", "again"), node.manifest({**SMALL, "meta": {"n": 99}})):
        error = bad(node.post(wire_commit(commit)))
        assert (error.code, error.status) == ("BANNED", 403)
        assert error.message == "the operator of this node has banned this identity"
    assert {type_ for type_, code in codes(enclave, "alice").items() if code != "BANNED"} == LEAVING
    assert public(enclave) == [200, 200]
    assert len(enclave.ask("alice", "Export")["events"]) == 2
    migrate(enclave, "node2")


def test_only_the_author_of_a_signature_is_banned(node: Served, enclave: Enclave) -> None:
    ordered(node, "ban", target=pub("alice"))
    commit = enclave.commit("alice", "message", "not signed by alice")
    assert bad(node.post({**wire_commit(commit), "sig": "00" * 64})).code == "INVALID_SIGNATURE"
    assert enclave.ask_raw("bob", "Query", filter={}).status_code == 200


def test_a_ban_ends_by_itself_and_by_order(node: Served, enclave: Enclave) -> None:
    until = ordered(node, "ban", target=pub("alice"), seconds=60)["until"]
    assert until == node.clock.now + 60_000
    assert [each["target"] for each in ordered(node, "bans")["items"]] == [pub("alice")]
    node.clock.tick(60_000)
    enclave.send("alice", "message", "back")
    assert ordered(node, "bans")["items"] == []
    with pytest.raises(MisuseError, match="is not banned"):
        ordered(node, "unban", target=pub("alice"))
    assert node.store.restrictions.read_all() == [], "an ended ban is dropped from the store"
    ordered(node, "ban", target=pub("alice"))
    assert enclave.refused("alice", "message", "x").code == "BANNED"
    ordered(node, "unban", target=pub("alice"))
    enclave.send("alice", "message", "back again")


def test_bans_are_bounded_and_listed_in_pages(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restriction_orders, "MAX_BANS", 5)
    monkeypatch.setattr(restriction_orders, "MAX_PAGE", 2)
    for n in range(5):
        ordered(node, "ban", target=f"203.0.113.{n}")
    with pytest.raises(MisuseError, match="there are 5 bans; lift some"):
        ordered(node, "ban", target="203.0.113.9")
    ordered(node, "ban", target="203.0.113.1", reason="again")
    first = ordered(node, "bans")
    assert ([each["target"] for each in first["items"]], first["next"]) == (
        ["203.0.113.0", "203.0.113.1"],
        "203.0.113.1",
    )
    last = ordered(node, "bans", after="203.0.113.3")
    assert [each["target"] for each in last["items"]] == ["203.0.113.4"]
    assert "next" not in last


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"target": "example.com"}, "'example.com': expected an identity"),
        ({"target": "203.0.113.7", "seconds": 0}, "seconds: 0: expected 1 to 10000000000"),
        ({"target": "203.0.113.7", "seconds": -1}, "seconds: -1: expected"),
        ({"target": "203.0.113.7", "reason": "x" * 201}, "reason: expected up to 200 characters"),
        ({}, "ban: Object missing required field `target`"),
    ],
)
def test_wrong_bans(node: Served, params: dict[str, Any], why: str) -> None:
    with pytest.raises(MisuseError) as caught:
        ordered(node, "ban", **params)
    assert caught.value.message.startswith(why)


def test_a_banned_address_is_refused_and_its_connections_end(node: Served, enclave: Enclave) -> None:
    with connect(node.url.replace("http", "ws")) as peer:
        ordered(node, "ban", target="127.0.0.0/8")
        assert node.server.peers.count == 0
        with pytest.raises(Exception, match=r"."):
            peer.recv(timeout=30)
    error = bad(node.get("/info"))
    assert (error.code, error.status) == ("BANNED", 403)
    assert node.admin("/health/live").status_code == 200
    ordered(node, "unban", target="127.0.0.0/8")
    assert node.get("/info").status_code == 200


def test_behind_a_proxy_the_forwarded_address_is_banned() -> None:
    config: NodeConfig = structs.replace(DEV, proxy=ProxySettings(trusted=("127.0.0.1",)))
    with Served(config) as node:
        enclave = node.create(SMALL)
        ordered(node, "ban", target="203.0.113.7")
        ordered(node, "ban", target="127.0.0.1")
        peer = {"x-forwarded-for": "203.0.113.7"}
        commit = enclave.commit("alice", "message", "x")
        for response in (node.get("/info", headers=peer), node.post(wire_commit(commit), headers=peer)):
            assert bad(response).code == "BANNED"
            assert response.headers["connection"] == "close"
        other = {"x-forwarded-for": "203.0.113.8"}
        assert node.get("/info", headers=other).status_code == 200
        node.submit(commit, headers=other)
        with connect(node.url.replace("http", "ws"), additional_headers=peer) as socket:
            assert decode(socket.recv(timeout=30))["code"] == "BANNED"
        with connect(node.url.replace("http", "ws"), additional_headers=other) as socket:
            ordered(node, "ban", target="203.0.113.8")
            assert decode(socket.recv(timeout=30))["code"] == "BANNED"


# Suspension


def test_a_suspended_enclave_gives_proofs_and_lets_its_owner_leave(node: Served, enclave: Enclave) -> None:
    ordered(node, "suspend", enclave=enclave.id.hex(), reason="court_order")
    error = enclave.refused("alice", "message", "again")
    assert (error.code, error.status, error.context) == ("ENCLAVE_SUSPENDED", 403, {"reason": "court_order"})
    found = codes(enclave, "alice")
    assert {type_ for type_, code in found.items() if code != "ENCLAVE_SUSPENDED"} == {"Inclusion_Proof", *LEAVING}
    assert public(enclave) == [200, 200]
    assert enclave.denied("bob", "Export").code == "UNAUTHORIZED"
    assert node.get("/health").status_code == 200
    migrate(enclave, "node2")


def test_a_full_suspension_lets_nobody_have_content(node: Served, enclave: Enclave) -> None:
    ordered(node, "suspend", enclave=enclave.id.hex(), is_full=True)
    found = codes(enclave, "alice")
    assert {type_ for type_, code in found.items() if code != "ENCLAVE_SUSPENDED"} == {"Inclusion_Proof"}
    content = {"new_sequencer": pub("node2"), "prev_seq": 1, "ct_root": "00" * 32}
    assert enclave.refused("alice", "Migrate", content).code == "ENCLAVE_SUSPENDED"
    assert public(enclave) == [200, 200]


def test_a_resumed_enclave_is_served_as_before(node: Served, enclave: Enclave) -> None:
    other = node.create(SMALL)
    ordered(node, "suspend", enclave=enclave.id.hex())
    other.send("alice", "message", "other enclaves go on")
    (found,) = ordered(node, "suspended")["items"]
    assert (found["target"], found["reason"], found["is_full"]) == (enclave.id.hex(), "other", False)
    ordered(node, "resume", enclave=enclave.id.hex())
    enclave.send("alice", "message", "again")
    assert ordered(node, "suspended")["items"] == []
    with pytest.raises(MisuseError, match="is not suspended"):
        ordered(node, "resume", enclave=enclave.id.hex())


@pytest.mark.parametrize(
    ("operation", "params", "error", "why"),
    [
        ("suspend", {"enclave": "00" * 32}, EnclaveNotFound, "is not on this node"),
        ("suspend", {"enclave": "xyz"}, MisuseError, "enclave: 'xyz': expected 64 hex digits"),
        ("suspend", {"enclave": "00" * 32, "reason": "no"}, MisuseError, "reason: 'no': expected one of illegal, "),
        ("purge", {"enclave": "00" * 32}, EnclaveNotFound, "is not on this node"),
        ("resume", {"enclave": "00" * 32}, MisuseError, "is not suspended"),
    ],
)
def test_wrong_orders_about_enclaves(
    node: Served, operation: str, params: dict[str, Any], error: type[EncError], why: str
) -> None:
    with pytest.raises(error, match=why):
        ordered(node, operation, **params)


def test_a_pull_leaves_a_suspended_enclave_out_until_it_is_resumed() -> None:
    with Served(CONFIG) as node:
        first, second = room(node), room(node)
        say(first, "from the first")
        say(second, "from the second")
        body = {"url": "https://hooks.example/push", "push_seq": [1, 2]}

        def pulled() -> list[str]:
            batches = second.ask("vera", "Pull", **body)
            return [part["enclave"] for batch in batches for part in batch.get("push", {}).get("enclaves", ())]

        assert pulled() == [first.id.hex(), second.id.hex()]
        ordered(node, "suspend", enclave=first.id.hex())
        assert pulled() == [second.id.hex()]
        assert first.denied("vera", "Pull", **body).code == "ENCLAVE_SUSPENDED"
        ordered(node, "resume", enclave=first.id.hex())
        assert pulled() == [first.id.hex(), second.id.hex()]


# Subscriptions


@pytest.mark.parametrize("operation", ["ban", "suspend", "purge"])
def test_live_subscriptions_end_with_the_reason(node: Served, enclave: Enclave, operation: str) -> None:
    other = node.create(SMALL)
    with connect(node.url.replace("http", "ws")) as peer:
        for each, name in ((enclave, "alice"), (other, "alice")):
            peer.send(encode({**each.request(name, "Query", filter={}), "sub_id": each.id.hex()[:8]}))
        seen = [decode(peer.recv(timeout=30)) for _ in range(5)]
        assert [message["type"] for message in seen].count("EOSE") == 2
        node.until(lambda: all(s.live for s in _subscriptions(node)))
        params = {"target": pub("alice")} if operation == "ban" else {"enclave": enclave.id.hex()}
        ordered(node, operation, **params)
        reason = {"ban": "banned", "suspend": "enclave_suspended", "purge": "enclave_purged"}[operation]
        closed = decode(peer.recv(timeout=30))
        assert (closed["type"], closed["reason"]) == ("Closed", reason)
        if operation == "ban":
            assert decode(peer.recv(timeout=30))["reason"] == "banned"
            return
        other.send("alice", "message", "the other one goes on")
        assert decode(peer.recv(timeout=30))["type"] == "Event"
        peer.send(encode({**enclave.request("alice", "Query", filter={}), "sub_id": "again"}))
        code = {"suspend": "ENCLAVE_SUSPENDED", "purge": "ENCLAVE_PURGED"}[operation]
        assert decode(peer.recv(timeout=30))["code"] == code


def test_an_order_that_the_sequencer_runs_late_takes_effect_all_the_same(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, go_on = node.node.sequencer.call, threading.Event()

    def slow(work: Any) -> Any:
        began = threading.Event()

        def run() -> Any:
            began.set()
            assert go_on.wait(30)
            return work()

        def cancel() -> bool:
            go_on.set()
            return False

        future = call(run)
        assert began.wait(30)
        monkeypatch.setattr(future, "cancel", cancel)
        return future

    with connect(node.url.replace("http", "ws")) as peer:
        peer.send(encode({**enclave.request("alice", "Query", filter={}), "sub_id": "one"}))
        node.until(lambda: any(s.live for s in _subscriptions(node)))
        monkeypatch.setattr(restriction_orders, "WAIT_S", 0)
        monkeypatch.setattr(node.node.sequencer, "call", slow)
        ordered(node, "suspend", enclave=enclave.id.hex())
        assert _subscriptions(node) == []


def _subscriptions(node: Served) -> list[Any]:
    return [
        subscription
        for listeners in node.node.hub._by_enclave.values()
        for at in listeners.by_address.values()
        for subscription in at.subscriptions
    ]


# Purges


def test_of_a_purged_enclave_only_the_tombstone_is_left(node: Served, enclave: Enclave) -> None:
    ordered(node, "suspend", enclave=enclave.id.hex())
    ordered(node, "purge", enclave=enclave.id.hex())
    assert set(codes(enclave, "alice").values()) == {"ENCLAVE_PURGED"}
    assert public(enclave) == [410, 410]
    assert len(node.node.states) == 0
    for commit in (enclave.commit("alice", "message", "x"), enclave.manifest):
        error = bad(node.post(wire_commit(commit)))
        assert (error.code, error.status) == ("ENCLAVE_PURGED", 410)
    node.settle()
    assert ordered(node, "suspended")["items"] == []
    assert [each["target"] for each in ordered(node, "purged")["items"]] == [enclave.id.hex()]
    assert node.store.count() == 0
    with node.store.database.readers.lend() as db:  # type: ignore[attr-defined]
        assert db.execute("SELECT manifest, purged FROM enclaves").fetchall() == [("", 2)]
        assert db.execute("SELECT count(*) FROM states").fetchone() == (0,)
    assert check_store(node.store, NODE.public, None, lambda n: None).differences == []
    with pytest.raises(EncError, match="has deleted this enclave"):
        ordered(node, "purge", enclave=enclave.id.hex())


def test_a_purge_that_reached_the_disk_although_it_failed_ends_the_enclave(
    node: Served, enclave: Enclave, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge = node.store.purge_by_order

    def fail(enclave: bytes, order: Restriction) -> None:
        purge(enclave, order)
        raise Unavailable("the disk did not confirm it")

    monkeypatch.setattr(node.store, "purge_by_order", fail)
    with pytest.raises(Unavailable):
        ordered(node, "purge", enclave=enclave.id.hex())
    for commit in (enclave.commit("alice", "message", "x"), enclave.manifest):
        assert bad(node.post(wire_commit(commit))).code == "ENCLAVE_PURGED"
    assert check_store(node.store, NODE.public, None, lambda n: None).differences == []


def test_an_import_of_a_purged_enclave_or_by_a_banned_identity_is_refused(tmp_path: Path) -> None:
    with Served(key=OLD) as old, Served(store=sqlite(tmp_path)) as new:
        enclave = old.create(SMALL)
        old.submit(migrate_commit(enclave, new))
        migrated = log_of(enclave)[-1]
        ordered(new, "ban", target=pub("alice"))
        assert bad(order(new, migrated, old.url)).code == "BANNED"
        ordered(new, "unban", target=pub("alice"))
        done(new, migrated, old.url)
        ordered(new, "purge", enclave=enclave.id.hex())
        new.settle()
        assert bad(order(new, migrated, old.url)).code == "ENCLAVE_PURGED"
        assert bad(order(new, migrated, archive=archive_of(log_of(enclave)))).code == "ENCLAVE_PURGED"


def test_an_import_that_is_under_way_does_not_bring_a_purged_enclave_back(tmp_path: Path) -> None:
    with Served(key=OLD) as old, Served(store=sqlite(tmp_path)) as new:
        enclave = old.create(SMALL)
        force(enclave, new)
        old_log = log_of(enclave.at(new))
        again = migrate_commit(enclave.at(new), new)
        with new.held_up():
            import_ = decode(order(new, again, archive=archive_of(old_log)).content)["import"]
            purge = Restriction(kind="purge", target=enclave.id.hex(), made_at=0)
            new.node.restrictions.add(purge)  # as an order does, once the sequencer is free
        assert ended(new, import_)["error"]["code"] == "ENCLAVE_PURGED"


def test_restrictions_survive_a_restart(tmp_path: Path) -> None:
    with Served(store=sqlite(tmp_path)) as node:
        gone, held = node.create(SMALL), node.create(SMALL)
        ordered(node, "ban", target=pub("bob"))
        ordered(node, "ban", target="203.0.113.0/24", seconds=60)
        ordered(node, "suspend", enclave=held.id.hex(), reason="malware")
        ordered(node, "purge", enclave=gone.id.hex())
    node.store.close()
    with Served(store=sqlite(tmp_path)) as node:
        assert held.at(node).refused("alice", "message", "x").context == {"reason": "malware"}
        assert gone.at(node).refused("alice", "message", "x").code == "ENCLAVE_PURGED"
        assert [each["target"] for each in ordered(node, "bans")["items"]] == ["203.0.113.0/24", pub("bob")]
    node.store.close()


def test_a_terminated_and_purged_enclave_can_be_purged_by_order(node: Served, enclave: Enclave) -> None:
    enclave.send("alice", "Terminate")
    node.clock.tick(31 * 86_400_000)
    node.settle()
    assert enclave.refused("alice", "message", "x").code == "ENCLAVE_TERMINATED"
    ordered(node, "purge", enclave=enclave.id.hex())
    assert enclave.refused("alice", "message", "x").code == "ENCLAVE_PURGED"
    assert node.store.count() == 0
    assert check_store(node.store, NODE.public, None, lambda n: None).differences == []
