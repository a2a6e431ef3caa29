"""fsck over many enclaves: usage, purges, and who signed the heads."""

from collections.abc import Iterator
from typing import Any

import pytest

from enc.core.errors import Unavailable
from enc.core.machine.enclave import seal
from enc.core.trees.tree_head import sign_head
from enc.node.fsck import Difference, Report, check_enclave
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.node.store.stored_enclave_reader import StoredEnclaveReader
from enc.testing.memory_store import MemoryStore
from tests.core.world import World, person, pub
from tests.node.fsck.stores import Change, Damaged, but, check, ended, group, ignore_progress, keep, live, search
from tests.node.store_host import NODE, Host

# Checks over many enclaves, and outside the log


def test_one_enclaves_difference_does_not_end_the_check_of_the_others(damaged: Damaged) -> None:
    damaged.run("DELETE FROM events WHERE k = k(9); DELETE FROM bundles WHERE e = {idle}")
    damaged.run("UPDATE node SET enclaves = 0")
    report = damaged.check()
    names = {enclave: name for name, enclave in damaged.names.items()} | {b"": ""}
    assert {names[d.enclave] for d in report.differences} == {"life", "idle", ""}
    assert report.enclaves == len(damaged.names)


def test_only_the_enclaves_that_are_named_are_checked(damaged: Damaged) -> None:
    damaged.run("DELETE FROM events WHERE k = k(9)")
    store = SqliteStore(damaged.path)
    life, idle = damaged.names["life"], damaged.names["idle"]
    assert check(store, [idle]) == Report(1, 1, [])
    assert [d.enclave for d in check(store, [idle, life, bytes(32)]).differences] == [life, bytes(32)]
    store.close()


def test_pages_blocks_and_caches_of_any_size(damaged: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    for page, block, searches, cached in ((1, 1, 1, 1), (3, 7, 1000, 2), (7, 1000, 5, 3)):
        monkeypatch.setattr("enc.node.fsck.events.PAGE", page)
        monkeypatch.setattr("enc.node.fsck.searches.BLOCK", block)
        monkeypatch.setattr("enc.node.fsck.searches.BLOCK_SEARCHES", searches)
        monkeypatch.setattr("enc.node.fsck.trees.CACHED", cached)
        assert damaged.check().differences == []


def test_what_a_search_does_not_find_is_told_of_every_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.node.fsck.events.PAGE", 3)
    monkeypatch.setattr("enc.node.fsck.searches.BLOCK", 3)
    store = MemoryStore()
    life, honest = live(Host(store)), store.find
    for seq in (0, 3, 9, 19):
        change = search("type", seq)
        monkeypatch.setattr(store, "find", lambda *args, change=change: change(honest(*args), *args))
        with pytest.raises(Difference, match=f"seq {seq}: a search by type does not find it"):
            check_enclave(store, life, NODE.public, ignore_progress)


@pytest.mark.parametrize("name", ["enclaves", "events", "bytes"])
@pytest.mark.parametrize("more", [1, -1])
def test_without_a_purge_usage_is_known_exactly(name: str, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    host = Host(store)
    host.send(host.create(**group("plain")), "alice", "message", "ünï")
    assert check(store).differences == []
    honest = store.usage
    monkeypatch.setattr(
        store, "usage", lambda identity: but(**{name: getattr(honest(identity), name) + more})(honest(identity))
    )
    (found,) = check(store).differences
    assert (found.enclave, found.seq) == (b"", None)
    assert f"usage of {pub('alice')}: {name}" in found.what


def test_of_an_erased_content_the_size_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    live(Host(store))
    honest = store.usage
    monkeypatch.setattr(store, "usage", lambda identity: but(bytes=lambda size: size + 1)(honest(identity)))
    assert check(store).differences == []
    monkeypatch.setattr(store, "usage", lambda identity: but(bytes=0)(honest(identity)))
    assert len(check(store).differences) == 2


def test_what_a_damaged_log_cannot_tell_is_not_held_against_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    host = Host(store)
    first, _ = host.create(**group("first")), host.create(**group("second"))
    honest = store.events
    monkeypatch.setattr(store, "events", lambda enclave, *args: [] if enclave == first else honest(enclave, *args))
    assert [(d.enclave, d.seq) for d in check(store).differences] == [(first, 0)]


PURGED: list[tuple[str, Change, str]] = [
    ("load", lambda state, *_: but(lifecycle="active")(state), "purged, but not terminated"),
    ("events", lambda events, *_: [1], "purged, but events are found"),
    ("find", lambda items, *_: iter([1]), "purged, but events are found"),
    ("bundle", lambda bundle, *_: 1, "purged, but bundles are found"),
    ("head", lambda head, *_: 1, "purged, but bundles are found"),
    ("endpoints", lambda endpoints, *_: {1: 1}, "purged, but endpoints are found"),
]


@pytest.mark.parametrize(("method", "change", "what"), PURGED)
def test_of_a_purged_enclave_nothing_is_found(method: str, change: Change, what: str) -> None:
    store = MemoryStore()
    enclave = ended(Host(store), "purged")
    store.purge(enclave)
    check_enclave(store, enclave, NODE.public, ignore_progress)
    honest = getattr(store, method)
    setattr(store, method, lambda *args: change(honest(*args), *args))
    with pytest.raises(Difference, match=what):
        check_enclave(store, enclave, NODE.public, ignore_progress)


def test_a_log_in_which_the_nodes_key_has_no_part() -> None:
    store = MemoryStore()
    life = live(Host(store))
    with pytest.raises(Difference, match="this node's key does not occur in the log"):
        check_enclave(store, life, person("node2").public, ignore_progress)


def test_a_log_that_was_moved_here_and_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """This node signed the log's heads; its own clock may be behind the times of another node."""
    store, world = MemoryStore(), World(group("moved"), node="node2")
    world.send("alice", "Migrate", world.migrate("node"))
    keep(store, world.events, "node")
    monkeypatch.setattr(store, "shown", lambda: 0)
    check_enclave(store, world.state.enclave, NODE.public, ignore_progress)


def moved_on() -> World:
    """Return a log that this node began (seqs 0 and 1), node2 continued (2), and node3 took over by force (3)."""
    world = World(group("moved on"))
    world.send("alice", "Migrate", world.migrate("node2"))
    world.send("alice", "message", "elsewhere")
    world.send("alice", "Migrate", world.migrate("node3"), node="node3", takeover=True)
    return world


@pytest.mark.parametrize(
    ("signers", "seq", "what"),
    [
        ("node node2 node3", None, ""),
        ("node node3 node3", None, ""),
        ("node2", 0, "not signed by this sequencer"),
        ("node node node3", 2, "never adopted the log"),
        ("node node4", 2, "not signed by this sequencer"),
        ("node node2 node2", 3, "not signed by this sequencer"),
        ("node node2 node", 3, "never adopted the log"),
    ],
)
def test_a_head_is_signed_by_who_closed_its_bundle(signers: str, seq: int | None, what: str) -> None:
    store, world = MemoryStore(), moved_on()
    keep(store, world.events, *signers.split())
    if seq is None:
        check_enclave(store, world.state.enclave, NODE.public, ignore_progress)
        return
    with pytest.raises(Difference, match=what) as caught:
        check_enclave(store, world.state.enclave, NODE.public, ignore_progress)
    assert caught.value.seq == seq


@pytest.mark.parametrize(("signer", "is_clean"), [("node2", True), ("node3", False), ("node", False)])
def test_a_head_of_a_bundle_that_the_clock_closed_elsewhere(signer: str, is_clean: bool) -> None:
    store, world = MemoryStore(), moved_on()
    state = keep(store, world.events[:3], "node")
    transition = seal(state, state.min_timestamp + 1000, StoredEnclaveReader(store, state.enclave))
    assert transition is not None
    log = transition.state.log
    head = sign_head(person(signer), state.enclave, transition.state.min_timestamp, log.size, log.root())
    store.write([Step(transition=transition, heads=(head,))], transition.state.min_timestamp)
    if is_clean:
        check_enclave(store, state.enclave, NODE.public, ignore_progress)
        return
    with pytest.raises(Difference, match="head") as caught:
        check_enclave(store, state.enclave, NODE.public, ignore_progress)
    assert caught.value.seq == 2


def test_a_head_of_another_enclave_of_the_same_node(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    host = Host(store)
    life = live(host)
    honest = store.head

    def rebound(enclave: bytes, size: int | None = None) -> Any:
        head = honest(enclave, size)
        return head and sign_head(NODE, bytes(32), head.t, head.ts, head.r)

    monkeypatch.setattr(store, "head", rebound)
    with pytest.raises(Difference, match="bound_sig"):
        check_enclave(store, life, NODE.public, ignore_progress)


def test_a_bundle_that_is_overdue_and_not_sealed_is_no_difference() -> None:
    store = MemoryStore()
    host = Host(store)
    life = live(host)
    store.write([], host.now + 10_000)
    check_enclave(store, life, NODE.public, ignore_progress)


def test_a_store_that_cannot_be_asked() -> None:
    class Silent(MemoryStore):
        def enclaves(self) -> Iterator[bytes]:
            raise Unavailable("no disk")

    with pytest.raises(Unavailable):
        check(Silent())
