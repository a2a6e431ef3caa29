"""How large one enclave may become: events and bytes, what stays possible over a quota, and restarts."""

from pathlib import Path
from typing import Any

import pytest

from enc.core.errors import Unauthorized
from enc.core.log.commit import build_commit
from enc.core.log.event import wire_event
from enc.core.primitives.types import Receipt
from enc.node.limits.growth import MAX_BYTES, is_growth
from enc.node.limits.quota import MIN_RESERVE, EnclaveQuota, StorageRules
from enc.node.sequence.sequencer import Sequencer, SequencerSettings
from enc.node.store.sqlite.store import SqliteStore
from enc.testing.clock import Clock
from enc.testing.memory_store import MemoryStore
from tests.core import world_v1
from tests.core.world import move, person, pub
from tests.node.admission_setup import admitting
from tests.node.imports.import_orders import OLD, moved, nothing_is_kept, refused, world
from tests.node.moving import ExportNode, archive_of, done, failure
from tests.node.served import SMALL, Served, about, sqlite
from tests.node.store_host import NODE, Host


def fill(node: Served) -> None:
    """Set a quota of events that every enclave has used up."""
    node.on_loop(lambda: node.node.apply(admitting(max_events_per_enclave=1)))


def test_a_quota_of_events_holds_for_all_members_together() -> None:
    with Served(admitting(max_events_per_enclave=3)) as node:
        enclave, other = node.create(SMALL), node.create(SMALL, "carol")
        assert [enclave.send(name, "message", "x").seq for name in ("alice", "bob")] == [1, 2]
        error = enclave.refused("bob", "message", "y")
        assert (error.status, error.code) == (403, "UNAUTHORIZED")
        assert "admission.max_events_per_enclave is 3" in error.message
        assert other.send("bob", "message", "another enclave has its own").seq == 1


def test_what_frees_space_and_lets_people_leave_is_accepted_over_a_quota() -> None:
    with Served() as node:
        enclave = node.create(SMALL)
        receipt = enclave.send("bob", "message", "x" * 100)
        enclave.send("alice", "Grant", {"target": pub("bob"), "trait": "helper"})
        fill(node)
        for type_, content in (
            ("Grant", {"target": pub("bob"), "trait": "admin"}),
            ("Shared", {"key": "topic", "value": 1}),
            ("Move", move("erin", "OUTSIDER", "PENDING")),
            ("message", ""),
        ):
            assert "max_events_per_enclave" in enclave.refused("alice", type_, content).message, type_
        assert enclave.refused("bob", "Update", "shorter", about(receipt)).code == "UNAUTHORIZED"
        enclave.send("bob", "Delete", {"reason": "author"}, about(receipt))
        enclave.send("alice", "Revoke", {"target": pub("bob"), "trait": "helper"})
        enclave.send("alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
        for type_ in ("Pause", "Resume", "Terminate"):
            enclave.send("alice", type_)


def test_an_event_is_deleted_once() -> None:
    with Served() as node:
        enclave = node.create(SMALL)
        receipt = enclave.send("bob", "message", "x")
        fill(node)
        enclave.send("bob", "Delete", {"reason": "author"}, about(receipt))
        assert enclave.refused("bob", "Delete", {"reason": "author"}, about(receipt)).code != ""


def test_an_enclave_over_its_quota_can_move_away() -> None:
    with Served() as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "x")
        fill(node)
        point = enclave.ask("alice", "Checkpoint")
        content = {"new_sequencer": pub("node2"), "prev_seq": point["seq"], "ct_root": point["ct_root"]}
        assert enclave.send("alice", "Migrate", content).seq == 2


def test_commits_that_let_people_leave_are_bounded_as_well() -> None:
    quota = EnclaveQuota(events=80)
    pause, terminate = (build_commit(person("alice"), bytes(32), type_, "", 1) for type_ in ("Pause", "Terminate"))
    most = 80 + 10 + MIN_RESERVE["events"]
    quota.check(most, 0, pause)
    quota.check(10 * most, 0, terminate)
    with pytest.raises(Unauthorized):
        quota.check(most + 1, 0, pause)


@pytest.mark.parametrize(
    ("type_", "content", "tags", "grows"),
    [
        ("Delete", "", (), False),
        ("Delete", "", (("k", "x" * 4000),) * 5, True),
        ("Terminate", "x" * (MAX_BYTES + 1), (), True),
        ("Revoke_Self", "", (), False),
        ("Force_Move", '{"to":"0x0"}', (), False),
        ("Move", '{"to":"MEMBER"}', (), True),
        ("Move", "no JSON", (), True),
        ("AC_Bundle", '{"operations":[]}', (), True),
        ("Manifest", "", (), True),
    ],
)
def test_which_commits_grow_an_enclave(type_: str, content: str, tags: Any, grows: bool) -> None:
    assert is_growth(build_commit(person("alice"), bytes(32), type_, content, 1, tags)) is grows


def test_a_quota_of_bytes_counts_tags_and_states_too(tmp_path: Path) -> None:
    with Served(admitting(max_bytes_per_enclave=20_000), sqlite(tmp_path)) as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "", *[("k", "x" * 4000)] * 3)
        assert "admission.max_bytes_per_enclave is 20000" in enclave.refused("bob", "message", "x" * 4000).message
        enclave.send("bob", "message", "x" * 100)
        node.clock.tick(10_000)
        node.settle()  # the bundle is closed, and its tree is stored
        assert node.store.size(enclave.id) > 12_000 + 3 * 800


def test_erasure_makes_room_in_bytes(tmp_path: Path) -> None:
    with Served(admitting(max_bytes_per_enclave=20_000), sqlite(tmp_path)) as node:
        enclave = node.create(SMALL)
        receipt = enclave.send("bob", "message", "é" * 6000)
        before = node.store.size(enclave.id)
        assert enclave.refused("bob", "message", "x" * 6000).code == "UNAUTHORIZED"
        enclave.send("bob", "Delete", {"reason": "author"}, about(receipt))
        assert before - 12_000 < node.store.size(enclave.id) < before - 10_000
        enclave.send("bob", "message", "x" * 6000)


def test_quotas_hold_after_a_restart(tmp_path: Path) -> None:
    clock, store = Clock(), sqlite(tmp_path)
    quotas = admitting(max_events_per_enclave=3, max_bytes_per_enclave=20_000)
    with Served(quotas, store, clock) as node:
        enclave = node.create(SMALL)
        enclave.send("bob", "message", "x" * 10_000)
        size = store.size(enclave.id)
    store.close()
    store = sqlite(tmp_path)
    assert store.size(enclave.id) == size
    with Served(quotas, store, clock) as node:
        enclave.node = node
        assert "max_bytes" in enclave.refused("bob", "message", "x" * 10_000).message
        enclave.send("bob", "message", "x")
        assert "max_events" in enclave.refused("bob", "message", "x").message
    store.close()


@pytest.mark.parametrize(("quota", "accepted"), [({"events": 4}, 3), ({"bytes": 9000}, 2), ({}, 6)])
def test_quotas_hold_inside_one_batch(tmp_path: Path, quota: dict[str, int], accepted: int) -> None:
    host = Host(SqliteStore(tmp_path / "enc.db"))
    enclave, other = host.create(), host.create("carol", meta={"n": 2})
    rules = StorageRules(enclave_quota=EnclaveQuota(**quota))
    host.sequencer = Sequencer(
        host.store, NODE, lambda: host.now, deliver=host.outcomes.extend, settings=SequencerSettings(storage=rules)
    )
    commits = [host.commit(enclave, name, "note", "x" * 1500) for name in ("alice", "bob") * 3]
    outcomes = host.run(*commits, host.commit(other, "bob", "note", "x"))
    assert [isinstance(found, Receipt) for found in outcomes] == [True] * accepted + [False] * (6 - accepted) + [True]
    assert host.store.size(enclave) <= quota.get("bytes", 1 << 30)
    host.store.close()


def test_a_bundle_of_operations_over_the_quota_stores_no_tree() -> None:
    store = MemoryStore()
    with Served(store=store) as node:
        enclave = node.create(SMALL)
        fill(node)
        size = store.size(enclave.id)
        operations = [{"type": "Grant", "target": pub(name), "trait": "helper"} for name in ("bob",) * 40]
        assert "max_events" in enclave.refused("alice", "AC_Bundle", {"operations": operations}).message
        assert store.size(enclave.id) == size


def test_version_1() -> None:
    with Served() as node:
        content = world_v1.manifest(world_v1.PERSONAL_V1, world_v1.initial(alice="Owner"))
        enclave = node.create(content)
        fill(node)
        grant = world_v1.has("vera", "DataView")
        assert "max_events_per_enclave" in enclave.refused("alice", "Grant", grant).message
        enclave.send("alice", "Terminate")


# Imports


def test_an_import_of_too_many_events_is_refused_before_anything_is_fetched() -> None:
    made = moved()
    most = len(made.events)
    with Served(admitting(max_events_per_enclave=most - 1)) as node:
        for error in (
            refused(node, wire_event(made.events[-1])),
            refused(node, wire_event(made.events[-1]), archive=archive_of(made.events)),
        ):
            assert (error.code, f"max_events_per_enclave is {most - 1}" in error.message) == ("UNAUTHORIZED", True)
        nothing_is_kept(node, made)
    with Served(admitting(max_events_per_enclave=most)) as node, ExportNode(OLD, made.events) as source:
        assert done(node, made.events[-1], source=source.url)["status"] == "done"


@pytest.mark.parametrize("has_archive", [False, True])
def test_an_import_of_too_many_bytes_stops(tmp_path: Path, has_archive: bool) -> None:
    made = world()
    made.send("bob", "message", "x" * 20_000)
    moved(made)
    store = sqlite(tmp_path)
    with Served(admitting(max_bytes_per_enclave=20_000), store) as node, ExportNode(OLD, made.events) as source:
        how: Any = {"archive": archive_of(made.events)} if has_archive else {"source": source.url}
        error = failure(node, made.events[-1], **how)
        assert (error["code"], "max_bytes_per_enclave is 20000" in error["message"]) == ("UNAUTHORIZED", True)
        nothing_is_kept(node, made)
    store.close()


def test_an_imported_enclave_has_its_size(tmp_path: Path) -> None:
    made, store = moved(), sqlite(tmp_path)
    with Served(store=store) as node, ExportNode(OLD, made.events) as source:
        done(node, made.events[-1], source=source.url)
        rows = store.database.rows("SELECT sum(length(head) + coalesce(length(CAST(content AS BLOB)), 0)) FROM events")
        nodes = store.database.rows("SELECT sum(length(hash) + length(record)) FROM tree_nodes")
        assert store.size(made.state.enclave) == rows[0][0] + nodes[0][0]
    store.close()


def test_reserves_do_not_apply_to_imports() -> None:
    with pytest.raises(Unauthorized):
        EnclaveQuota(events=5).check(6, 0)
    EnclaveQuota(events=5).check(5, 1 << 50)
