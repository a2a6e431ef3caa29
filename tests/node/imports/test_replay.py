"""Enclaves that move between nodes, peacefully and by force, back and forth; invariants of their logs."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import encode

from enc.core.errors import EnclaveMigrated, Unauthorized, Unavailable
from enc.core.log.commit import wire_commit
from enc.core.machine.replay import Replay
from enc.core.trees.merkle_log import check_consistency
from enc.core.trees.proof import parse_consistency
from enc.core.trees.tree_head import check_bound_head, parse_head
from enc.node.fsck import check_store
from enc.node.main import check_key
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import LIFETIME, give, move, person
from tests.node.moving import archive_of, done, failure, force, log_of, migrate_commit, order
from tests.node.moving import move as move_to
from tests.node.pushing import PUSHED, register, report, say
from tests.node.served import SMALL, Clock, Enclave, Served, about, bad, good

Nodes = tuple[Served, Served, Served]


@pytest.fixture(params=["memory", "sqlite"])
def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Nodes]:
    """Serve three nodes with one clock. At the end each store must match its logs."""
    clock = Clock()
    with ExitStack() as stack:
        found = []
        for name in ("node", "node2", "node3"):
            store = SqliteStore(tmp_path / f"{name}.db") if request.param == "sqlite" else None
            if store is not None:
                stack.callback(store.close)
            found.append(stack.enter_context(Served(store=store, clock=clock, key=person(name))))
        yield found[0], found[1], found[2]
        for node in found:
            node.settle()  # what is due is erased before the check, not during it
            assert check_store(node.store, node.key.public, None, lambda events: None).differences == []


def audit(enclave: Enclave, by: str = "alice") -> Replay:
    """Return the whole log."""
    replay = Replay(enclave.id)
    for event in log_of(enclave, by):
        replay.add(event)
    replay.finish()
    return replay


def talk(enclave: Enclave, count: int, by: str = "bob") -> None:
    for i in range(count):
        enclave.send(by, "message", f"{i} at {enclave.node.url}")


def heads_of(enclave: Enclave) -> dict[int, dict[str, Any]]:
    """Return the head of every size, from the proofs that contain them."""
    size = good(enclave.node.get(f"/{enclave.id.hex()}/sth"))["ts"]
    return {n: enclave.ask("alice", "Inclusion_Proof", leaf_index=0, tree_size=n)["sth"] for n in range(1, size + 1)}


def test_a_chain_of_moves_by_peace_and_by_force_and_back(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    talk(at_a, 4)
    first = at_a.send("bob", "message", "to be changed elsewhere")
    early = good(a.get(f"/{at_a.id.hex()}/sth"))
    at_b = move_to(at_a, b)
    talk(at_b, 2)
    at_b.send("bob", "Update", "changed", about(first))
    at_c = force(at_b, c)
    talk(at_c, 2)
    back = move_to(at_c, a)
    talk(back, 4)
    replay = audit(back)
    forced_seq = 6 + 1 + 3
    assert replay.sequencers == [
        (a.key.public, 0),
        (b.key.public, 7),
        (c.key.public, forced_seq),
        (a.key.public, forced_seq + 4),
    ]
    assert replay.state == a.store.load(at_a.id)
    late = good(a.get(f"/{at_a.id.hex()}/consistency?from={early['ts']}"))
    before, last = parse_head(encode(early)), parse_head(encode(late["sth"]))
    check_consistency(parse_consistency(encode(late)), before.r, last.r)
    check_bound_head(last, a.key.public, at_a.id)


def test_the_new_node_proves_every_size_that_the_log_ever_had(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 10)
    at_b = move_to(at_a, b)
    old, new = heads_of(at_a), heads_of(at_b)
    assert new.keys() >= old.keys()
    for size, sth in old.items():
        assert sth["r"] == new[size]["r"]
        check_bound_head(parse_head(encode(new[size])), b.key.public, at_a.id)
        state = at_b.ask("alice", "State_Proof", namespace="rbac", key=person("bob").public.hex(), tree_size=size)
        assert state["leaf_index"] == size - 1
    assert heads_of(at_b) == new, "signed once for each size"
    event = log_of(at_a)[3]
    assert at_b.ask("alice", "Bundle_Proof", event_id=event.id.hex())["leaf_index"] == 0


def test_a_node_that_gets_an_enclave_back_keeps_the_heads_that_it_signed(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 6)
    at_b = move_to(at_a, b)
    before = heads_of(at_a)
    talk(at_b, 3)
    back = move_to(at_b, a)
    after = heads_of(back)
    assert {size: after[size] for size in before} == before
    assert len(after) > len(before)


def test_the_old_node_goes_on_reading_and_proving_and_names_the_new_one(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 5)
    at_b = move_to(at_a, b)
    error = at_a.refused("bob", "message", "too late")
    assert isinstance(error, EnclaveMigrated)
    assert error.context == {"new_sequencer": b.key.public.hex()}
    assert len(at_a.query("bob")) == 7
    sth = good(a.get(f"/{at_a.id.hex()}/sth"))
    assert sth["ts"] == audit(at_a).state.log.size, "the Migrate closed its bundle at once"
    assert [event.id for event in log_of(at_a)] == [event.id for event in log_of(at_b)]


def test_an_export_is_for_the_owner_and_for_the_node_that_goes_on(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    for name in ("node2", "node3"):
        assert isinstance(at_a.denied(name, "Export"), Unauthorized)
    a.submit(migrate_commit(at_a, b))
    assert isinstance(at_a.denied("node3", "Export"), Unauthorized)
    assert isinstance(at_a.denied("bob", "Export"), Unauthorized)
    assert at_a.ask("node2", "Export")["seq"] == 1
    assert isinstance(at_a.denied("node2", "Checkpoint"), Unauthorized)


def test_a_hold_lets_a_busy_enclave_be_moved(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 2)
    checkpoint = at_a.ask("alice", "Checkpoint", hold=30)
    assert isinstance(at_a.refused("bob", "message", "in between"), Unavailable)
    a.submit(at_a.commit("alice", "Migrate", {"new_sequencer": b.key.public.hex(), **named(checkpoint)}))
    assert isinstance(at_a.refused("bob", "message", "after"), EnclaveMigrated), "the hold has ended"
    done(b, log_of(at_a)[-1], a.url)
    talk(at_a.at(b), 1)


def named(checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {"prev_seq": checkpoint["seq"], "ct_root": checkpoint["ct_root"]}


def test_a_paused_enclave_arrives_paused(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    at_a.send("alice", "Pause")
    at_b = move_to(at_a, b)
    assert at_b.refused("bob", "message", "hush").code == "ENCLAVE_PAUSED"
    at_c = force(at_b, c)
    assert at_c.refused("bob", "message", "hush").code == "ENCLAVE_PAUSED"
    at_c.send("alice", "Resume")
    talk(at_c, 1)
    audit(at_c)


def test_erased_contents_arrive_erased_and_statuses_with_them(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    one, two = at_a.send("bob", "message", "one"), at_a.send("bob", "message", "two")
    at_a.send("bob", "Update", "one again", about(one))
    at_a.send("bob", "Delete", {"reason": "author"}, about(two))
    soon = ("auto-delete", str(a.clock.now + 2 * LIFETIME))
    at_a.send("bob", "message", "three", soon)
    at_b = move_to(at_a, b)
    assert at_b.refused("bob", "Update", "x", about(two)).code == "EVENT_DELETED"
    at_b.send("bob", "Update", "one for good", about(one))
    b.clock.tick(3 * LIFETIME)
    b.settle()
    at_c = force(at_b, c)
    gone = [event.seq for event in log_of(at_c) if event.content is None]
    assert gone == [1, 2, 3, 5]
    assert [item["status"] for item in at_c.query("bob", type="message")] == ["updated", "active"]
    audit(at_c)


def test_a_new_owner_moves_it_and_the_old_one_may_not(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    at_a.send("alice", "Transfer", give("carol", "owner"))
    assert at_a.refused("alice", "Migrate", {}).code in ("INVALID_COMMIT", "UNAUTHORIZED")
    at_b = move_to(at_a, b, by="carol")
    events = log_of(at_b, "carol")
    error = failure(c, migrate_commit(at_b, c, "alice", events), archive=archive_of(events))
    assert error["code"] == "UNAUTHORIZED"
    at_c = force(at_b, c, by="carol")
    at_c.send("carol", "Move", move("dave", "PENDING", "MEMBER"))
    assert c.store.usage(person("carol").public).events == len(log_of(at_c, "carol"))
    audit(at_c, "carol")


def test_duplicates_are_known_on_the_new_node(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    commit = at_a.commit("bob", "message", "once")
    receipt = a.submit(commit)
    at_b = move_to(at_a, b)
    error = bad(b.post(wire_commit(commit)))
    assert error.code == "DUPLICATE"
    assert error.context["receipt"]["id"] == receipt.id.hex()
    talk(at_b, 1)


def test_bundles_are_sealed_by_the_new_sequencer_alone(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    at_b = move_to(at_a, b)
    talk(at_b, 1)
    size = good(b.get(f"/{at_a.id.hex()}/sth"))["ts"]
    b.clock.tick(5000)
    for node in (a, b):
        node.settle()
    assert good(b.get(f"/{at_a.id.hex()}/sth"))["ts"] == size + 1
    assert good(a.get(f"/{at_a.id.hex()}/sth"))["ts"] == size
    audit(at_b)


def test_a_forced_move_leaves_out_what_the_old_node_sequenced_later_and_it_may_not_take_that_back(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 6)
    at_b = force(at_a, b, upto=4)
    talk(at_b, 1)
    b.submit(migrate_commit(at_b, a))
    error = failure(a, log_of(at_b)[-1], b.url)
    assert (error["code"], error["seq"]) == ("ENCLAVE_EXISTS", 5)
    assert len(log_of(at_a)) == 7, "what it holds is as it was"


def test_a_node_that_was_passed_over_takes_it_back_if_what_it_holds_is_a_prefix(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    talk(at_a, 6)
    a.clock.tick(6000)
    a.settle()  # it seals its last bundle, and signs that head
    before = heads_of(at_a)
    at_b = force(at_a, b)
    talk(at_b, 2)
    back = move_to(at_b, a)
    assert {size: head for size, head in heads_of(back).items() if size in before} == before
    talk(back, 1)
    audit(back)


def test_a_shorter_log_than_is_held_is_not_taken(nodes: Nodes) -> None:
    a, b, _ = nodes
    at_a = a.create(SMALL)
    at_b = move_to(at_a, b)
    talk(at_b, 2)
    back = move_to(at_b, a)
    talk(back, 2)
    events = log_of(back)[:4]  # as the other node had it
    error = failure(a, migrate_commit(back, a, events=events), archive=archive_of(events))
    assert (error["code"], error["seq"]) == ("ENCLAVE_EXISTS", 4)
    assert len(log_of(back)) == 7


def test_a_forced_migrate_may_follow_one_whose_new_sequencer_finalised_nothing(nodes: Nodes) -> None:
    a, b, c = nodes
    at_a = a.create(SMALL)
    talk(at_a, 2)
    a.submit(migrate_commit(at_a, b))
    at_c = force(at_a, c)
    talk(at_c, 1)
    assert [key for key, _ in audit(at_c).sequencers] == [a.key.public, c.key.public]
    assert order(b, log_of(at_a)[-1], a.url).status_code == 202, "a split, which clients notice"


def test_who_hears_of_events_is_what_the_log_says_when_it_comes_back(nodes: Nodes) -> None:
    """The node had it without an endpoint; one was registered at another node."""
    a, b, _ = nodes
    at_a = a.create(PUSHED)
    say(at_a, "nobody hears")
    at_b = move_to(at_a, b)
    register(at_b, "vera", "dataview")
    say(at_b, "pushed by the other node")
    assert report(b, "vera").waiting_events == 1
    back = move_to(at_b, a)
    say(back, "pushed by this one")
    assert report(a, "vera").waiting_events == 1


def test_a_restarted_node_goes_on_with_what_it_took_in(tmp_path: Path) -> None:
    clock = Clock()
    store = SqliteStore(tmp_path / "b.db")
    with Served(clock=clock) as a:
        at_a = a.create(SMALL)
        talk(at_a, 5)
        with Served(store=store, clock=clock, key=person("node2")) as b:
            at_b = move_to(at_a, b)
            status = done(b, log_of(at_a)[-1], a.url)
        store.close()
        store = SqliteStore(tmp_path / "b.db")
        with Served(store=store, clock=clock, key=person("node2")) as b:
            assert done(b, log_of(at_a)[-1], a.url) == status
            talk(at_b.at(b), 2)
            audit(at_b.at(b))
    store.close()


def test_a_node_from_which_everything_moved_away_knows_its_key(
    nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, c = nodes
    move_to(a.create(SMALL), b)
    check_key(a.store, a.key)
    check_key(b.store, b.key)
    assert "key_of_no_enclave" not in capsys.readouterr().out
    check_key(a.store, c.key)
    assert "key_of_no_enclave" in capsys.readouterr().out
