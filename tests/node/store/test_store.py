"""The contract of every store: logs, events, bundles, usage, erasure and purges."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from enc.core.log.event import erase, wire_event
from enc.core.log.filter import Filter, parse_filter
from enc.core.machine.memory import EnclaveMemory
from enc.core.machine.replay import Replay
from enc.core.rules.policy_types import ReadScope
from enc.core.trees.tree_head import check_bound_head
from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite import search_plan
from enc.node.store.store_interface import ReadRights, Store, Usage
from tests.core.world import START, person, pub
from tests.node.store_host import EVERYTHING, NODE, Host, Log, live, seqs


def test_nothing_is_there_at_first(store: Store) -> None:
    nobody = bytes(32)
    assert list(store.enclaves()) == []
    assert (store.count(), store.clock(), store.usage(nobody)) == (0, 0, Usage(0, 0, 0))
    assert (store.overdue(1 << 50, 10), store.expired(1 << 50, 10), store.terminated(1 << 50, 10)) == ([], [], [])
    assert store.load(nobody) is None
    assert store.is_purged(nobody) is False
    assert_nothing_is_read(store, nobody, nobody)


def assert_nothing_is_read(store: Store, enclave: bytes, event_id: bytes) -> None:
    assert store.event(enclave, event_id) is None
    assert store.target(enclave, event_id) is None
    assert store.committed(enclave, bytes(32), 0) is None
    assert store.events(enclave, 0, 10) == []
    assert store.ids(enclave, 0, 10) == []
    assert seqs(store, enclave) == []
    assert seqs(store, enclave, id=event_id.hex()) == []
    assert (store.bundle(enclave, 0), store.bundle_of(enclave, 0), store.head(enclave)) == (None, None, None)
    for read in (lambda: store.read_node(enclave, bytes(32)), lambda: store.read_hash(enclave, 0, 0)):
        with pytest.raises(KeyError):
            read()


def test_a_log_that_was_kept_replays_to_the_state_that_was_kept(host: Host) -> None:
    enclave, events = live(host)
    replay = Replay(enclave)
    for event in events:
        replay.add(event)
    state = host.store.load(enclave)
    assert state is not None
    assert state.log == replay.finish().log
    assert state.root == replay.state.root
    assert dict(state.pending) == dict(replay.state.pending)
    assert (state.seq, state.sequencer, state.lifecycle) == (6, NODE.public, "active")
    assert isinstance(replay.store, EnclaveMemory)
    assert [host.store.bundle(enclave, i) for i in range(3)] == [*replay.store.bundles, None]


def test_statuses_and_erased_contents(host: Host) -> None:
    enclave, events = live(host)
    found = [host.store.event(enclave, event.id) for event in events]
    assert [item and (item.status, item.updated_by) for item in found] == [
        ("active", None),
        ("updated", events[4].id),
        ("deleted", None),
        *[("active", None)] * 4,
    ]
    assert [event.content is None for event in events] == [False, True, True, False, False, False, False]


def test_every_bundle_has_a_head_that_the_node_signed_and_no_other(host: Host) -> None:
    enclave, _ = live(host)
    latest = host.store.head(enclave)
    assert latest is not None
    assert latest.ts == 2
    for size in (1, 2):
        head = host.store.head(enclave, size)
        assert head is not None
        assert head.ts == size
        check_bound_head(head, NODE.public, enclave)
    assert latest == host.store.head(enclave, 2)
    assert host.store.head(enclave, 3) is None
    assert host.store.head(enclave, 0) is None


def test_the_bundle_of_an_event(host: Host) -> None:
    enclave, _ = live(host)
    found = [host.store.bundle_of(enclave, seq) for seq in range(7)]
    assert [bundle and bundle.index for bundle in found] == [0, 0, 0, 0, 1, None, None]


def test_find_by_every_field(host: Host) -> None:
    enclave, events = live(host)
    ids = [event.id.hex() for event in events]
    filters: list[dict[str, Any]] = [
        {},
        {"reverse": True},
        {"id": ids[3]},
        {"id": [ids[1], ids[2], ids[4]]},
        {"seq": 1},
        {"seq": [0, 2, 3, 77]},
        {"seq": {"start_after": 1, "end_before": 5}},
        {"seq": {"start_at": 9, "end_at": 3}},
        {"type": "message"},
        {"type": ["message", "note", "Update"], "reverse": True},
        {"from": pub("bob")},
        {"from": [pub("bob"), pub("alice")], "type": "note"},
        {"tags": {"r": "ab"}},
        {"tags": {"r": ["ab", "cd"]}},
        {"tags": {"k": True}},
        {"tags": {"r": True, "k": True}},
        {"timestamp": {"start_at": START + 2, "end_at": START + 4}},
        {"timestamp": {"start_after": START + 4}},
        {"timestamp": {"end_before": START}},
    ]
    for wire in filters:
        filter_ = parse_filter(wire)
        expected = [event.seq for event in events if filter_.matches(event) and event.seq != 2]
        assert seqs(host.store, enclave, **wire) == expected[:: -1 if filter_.reverse else 1], wire


def test_find_gives_only_what_may_be_read(host: Host) -> None:
    enclave, _ = live(host)
    own = ReadRights(person("bob").public, ReadScope({"note": "own"}, "none"), lambda event, subject: False)
    assert seqs(host.store, enclave, own) == [3]
    messages = ReadRights(b"", ReadScope({"message": "all"}, "none"), lambda event, subject: False)
    assert seqs(host.store, enclave, messages) == [1, 4, 5]
    some = ReadRights(b"", ReadScope({}, "some"), lambda event, subject: event.seq == 6)
    assert seqs(host.store, enclave, some) == [6]
    nothing = ReadRights(person("alice").public, ReadScope({}, "none"), lambda event, subject: True)
    assert seqs(host.store, enclave, nothing) == []


ODD = ['"quoted" \\ and / \x00\x1f\x7f', "ünï \u2028\u2029 \U0001f9ff", "", "100% %b %d", " " * 5]


def test_an_item_is_the_event_as_the_wire_spells_it(store: Store) -> None:
    log = Log(store)
    for content in ODD:
        log.add(content=content)
    log.add("odd.type-1", alg="ecdsa")
    log.add(tags=(("k",), ("r", "ab", "reply"), ("ü%", '"\\', "\x00")), alg="ecdsa")
    log.add(content=None, tags=(("k", "v"),))
    log.add(content=None, alg="ecdsa", exp=(1 << 53) - 1)
    updated = log.add(content="to be updated")
    update = log.revise("Update", updated)
    log.write()
    log.events[updated.seq] = erase(updated)
    items = list(store.find(log.enclave, Filter(limit=100), EVERYTHING))
    for item, event in zip(items, log.events, strict=True):
        wire = {"event": tagged_as_json(wire_event(event)), "status": "active"}
        if event.seq == updated.seq:
            wire |= {"status": "updated", "updated_by": update.id.hex()}
        assert msgspec.json.decode(item.event) == wire["event"]
        assert msgspec.json.decode(item.json) == wire
        assert (item.seq, item.id, item.status) == (event.seq, event.id, wire["status"])
        assert item.updated_by == (update.id if event.seq == updated.seq else None)
    assert store.events(log.enclave, 0, 100) == log.events
    assert store.ids(log.enclave, 2, 3) == [event.id for event in log.events[2:5]]


def tagged_as_json(wire: dict[str, Any]) -> dict[str, Any]:
    return {**wire, "tags": [list(tag) for tag in wire["tags"]]}


def test_a_range_of_seqs_ends_where_the_log_does(store: Store) -> None:
    first, second = Log(store, meta={"n": 1}), Log(store, meta={"n": 2})
    for log in (first, second):
        log.add()
        log.write()
    for start, count in [(0, 1 << 60), (1, 1 << 60), (2, 5), (1 << 40, 5), ((1 << 53) - 1, 5), (0, 0)]:
        expected = first.events[start : start + count]
        assert store.events(first.enclave, start, count) == expected
        assert store.ids(first.enclave, start, count) == [event.id for event in expected]
    far = {"start_at": 1 << 40}
    assert seqs(store, first.enclave, seq=far) == seqs(store, first.enclave, seq=[1 << 40, (1 << 53) - 1]) == []


def test_a_commit_is_found_by_its_hash_and_its_expiry(store: Store) -> None:
    log, other = Log(store), Log(store, meta={"n": 2})
    event = log.add(hash=b"h" * 32)
    twin = log.add(hash=b"h" * 8 + b"x" * 24)
    log.write()
    other.write()
    assert store.committed(log.enclave, event.hash, event.exp) == event
    assert store.committed(log.enclave, twin.hash, twin.exp) == twin
    asked = [event, twin, replace(event, hash=b"h" * 8 + b"y" * 24), replace(twin, exp=twin.exp + 1)]
    assert store.committed_among(asked[:3]) == {event.hash: event, twin.hash: twin}
    assert all(store.committed_among(none) == {} for none in (asked[2:3], asked[3:], []))
    assert store.committed(log.enclave, b"h" * 8 + b"y" * 24, event.exp) is None
    assert store.committed(log.enclave, event.hash, event.exp + 1) is None
    assert store.committed(other.enclave, event.hash, event.exp) is None


@pytest.mark.parametrize("generation", [1, 1000])
@pytest.mark.parametrize("waste", [-1, 1000])
def test_hashes_that_begin_alike_are_told_apart(
    store: Store, waste: int, generation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", waste)
    monkeypatch.setattr(ids, "GENERATION", generation)
    monkeypatch.setattr(ids, "STRIDE", 1)
    log, other = Log(store), Log(store, meta={"n": 2})
    same = b"8 bytes!"
    authors = [same + bytes([n]) * 24 for n in range(3)]
    events = [log.add(from_=author, id=author[:8] + author[9:] + b"i") for author in authors]
    elsewhere = other.add(from_=authors[0], id=same + b"e" * 24)
    log.write()
    other.write()
    for _ in range(5):
        other.add()
        other.write()
    for event in events:
        found = store.event(log.enclave, event.id)
        assert found is not None
        assert found.event == event
        assert seqs(store, log.enclave, id=event.id.hex()) == [event.seq]
        assert seqs(store, log.enclave, EVERYTHING, **{"from": event.from_.hex()}) == [event.seq]
        own = ReadRights(event.from_, ReadScope({}, "own"), lambda event, subject: False)
        assert seqs(store, log.enclave, own) == [event.seq]
    both = [author.hex() for author in authors[1:]]
    assert seqs(store, log.enclave, EVERYTHING, **{"from": both}) == [2, 3]
    assert seqs(store, log.enclave, EVERYTHING, **{"from": (same + b"?" * 24).hex()}) == []
    assert store.event(log.enclave, elsewhere.id) is None
    assert store.event(log.enclave, same + b"?" * 24) is None


@pytest.mark.parametrize("waste", [-1, 1000])
def test_tags_with_one_name_and_value_are_found_once(store: Store, waste: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", waste)
    log = Log(store)
    log.add(tags=(("r", "a"), ("r", "a", "twice"), ("r", "b")))
    log.add(tags=(("r",),))
    log.add(tags=(("r\0a",),))
    log.write()
    assert seqs(store, log.enclave, tags={"r": ["a", "b"]}) == [1]
    assert seqs(store, log.enclave, tags={"r": True}) == [1, 2]
    assert seqs(store, log.enclave, tags={"r": ""}) == []
    assert seqs(store, log.enclave, tags={"r": "a"}) == [1]  # not 3, though its bytes are similar


EMPTY = [{"id": []}, {"seq": []}, {"type": []}, {"from": []}, {"tags": {"k": []}}]


@pytest.mark.parametrize("wire", EMPTY)
def test_an_empty_list_matches_nothing(store: Store, wire: dict[str, Any]) -> None:
    log = Log(store)
    log.add(tags=(("k", "v"),))
    log.write()
    assert seqs(store, log.enclave, **wire) == []


def test_usage_counts_what_was_ever_accepted(host: Host) -> None:
    alice, bob = person("alice").public, person("bob").public
    enclave, events = live(host)
    size = len((events[0].content or "").encode())
    assert host.store.usage(alice) == Usage(1, 6, size + sum(map(len, ["one", "two", "one, again"])) + 19 + 31)
    assert host.store.usage(bob) == Usage(0, 1, len("by an outsider"))
    host.send(enclave, "bob", "note", "ünï")
    assert host.store.usage(bob) == Usage(0, 2, len("by an outsider") + 5)
    host.create("bob", meta={"n": 2})
    assert host.store.usage(bob).enclaves == 1
    assert host.store.count() == 2


def test_auto_delete(host: Host) -> None:
    enclave = host.create()
    when = host.now + 100_000
    event = host.send(enclave, "alice", "message", "soon gone", ("auto-delete", str(when)))
    update = host.send(enclave, "alice", "Update", "gone too", ("r", event.id.hex()))
    slot = host.send(enclave, "alice", "Shared", {"key": "topic", "value": 1}, ("auto-delete", str(when)))
    later = host.send(enclave, "alice", "message", "later", ("auto-delete", str(when + 1)))
    assert host.store.expired(when - 1, 10) == []
    assert host.store.expired(when + 1, 1) == [(enclave, update.id)]
    assert host.store.expired(when + 1, 10) == [(enclave, update.id), (enclave, later.id)]
    host.store.erase([(enclave, event.id), (enclave, later.id)])
    assert host.store.expired(when + 1, 10) == []
    contents = {e.seq: e.content for e in host.store.events(enclave, 0, 10)}
    assert (contents[event.seq], contents[update.seq], contents[later.seq]) == (None, None, None)
    assert contents[slot.seq] is not None
    found = host.store.target(enclave, event.id)
    assert found is not None
    assert found.auto_delete


@pytest.mark.parametrize("batches", [1, 3])
def test_an_update_goes_when_its_target_would_or_earlier(store: Store, batches: int) -> None:
    log = Log(store)

    def write() -> None:
        if batches > 1:
            log.write()

    early, late = (("auto-delete", str(START + 70_000)),), (("auto-delete", str(START + 90_000)),)
    first, second = log.add(tags=early), log.add(tags=late)
    write()
    plain = log.revise("Update", first)
    sooner = log.revise("Update", second)
    write()
    log.events[-1] = sooner = replace(sooner, tags=(*sooner.tags, *early))
    if batches == 1:
        log.steps[-1] = replace(log.steps[-1], event=sooner)
    log.write()
    expected = [(log.enclave, plain.id), (log.enclave, sooner.id)]
    if batches > 1:  # it was stored before it got a tag of its own
        assert store.expired(START + 70_000, 10) == expected[:1]
        assert store.expired(START + 90_000, 10) == expected
    else:
        assert store.expired(START + 70_000, 10) == expected
    again = log.revise("Update", first)
    log.write()
    assert (log.enclave, again.id) in store.expired(START + 70_000, 10)


def test_what_is_gone_already_is_no_error(host: Host) -> None:
    enclave, events = live(host)
    host.store.erase([(bytes(32), bytes(32)), (enclave, bytes(32)), (enclave, events[2].id), (enclave, events[3].id)])
    contents = [event.content for event in host.store.events(enclave, 0, 10)]
    assert [content is None for content in contents] == [False, True, True, True, False, False, False]
    host.store.erase([(enclave, events[3].id)])
    host.store.erase([])


def test_purge_leaves_a_tombstone(host: Host) -> None:
    alice = person("alice").public
    host.now += 1
    other, events = live(host)
    enclave = host.create(meta={"n": 2})
    for i in range(9):
        host.send(enclave, "alice", "message", f"number {i}", ("k", str(i)), ("auto-delete", str(host.now + 70_000)))
    ended = host.send(enclave, "alice", "Terminate")
    assert host.store.overdue(1 << 50, 10) == [other, enclave]
    assert not host.store.is_purged(enclave)
    assert host.store.terminated(ended.timestamp - 1, 10) == []
    assert host.store.terminated(ended.timestamp, 10) == [enclave]
    used, calls = host.store.usage(alice), 1
    ids = host.store.ids(enclave, 0, 20)
    while not host.store.purge(enclave, 5):
        assert host.store.is_purged(enclave)
        assert host.store.terminated(ended.timestamp, 10) == [enclave]
        assert_nothing_is_read(host.store, enclave, ids[-1])
        assert host.store.expired(1 << 50, 10) == []
        calls += 1
    assert calls == 1 or calls > 10
    assert host.store.terminated(1 << 50, 10) == []
    assert host.store.overdue(1 << 50, 10) == [other]
    assert_nothing_is_read(host.store, enclave, ids[-1])
    state = host.store.load(enclave)
    assert state is not None
    assert state.lifecycle == "terminated"
    assert host.store.events(other, 0, 10) == events
    assert sorted([enclave, other]) == list(host.store.enclaves())
    assert host.store.count() == 1
    assert host.store.usage(alice) == Usage(used.enclaves - 1, used.events, used.bytes)
    assert host.store.purge(enclave)
    assert host.store.purge(bytes(32))
    assert host.store.count() == 1
    assert host.store.usage(alice).enclaves == used.enclaves - 1


def test_terminated_gives_the_oldest_first(host: Host) -> None:
    enclaves = [host.create(meta={"n": n}) for n in range(3)]
    for enclave in (enclaves[1], enclaves[2], enclaves[0]):
        host.send(enclave, "alice", "Terminate")
    assert host.store.terminated(host.now, 2) == [enclaves[1], enclaves[2]]


def test_overdue(host: Host) -> None:
    enclave = host.create()
    assert host.store.overdue(START + 999, 10) == []
    assert host.store.overdue(START + 1000, 10) == [enclave]
    host.now += 10
    later = host.create(meta={"n": 2})
    assert host.store.overdue(START + 1010, 10) == [enclave, later]
    assert host.store.overdue(START + 1010, 1) == [enclave]


def test_the_clock_is_the_highest_that_was_seen(store: Store) -> None:
    store.write([], 5)
    store.write([], 3)
    assert store.clock() == 5


def test_a_loaded_state_knows_which_gates_are_closed(host: Host) -> None:
    gates = [{"type": "MEMBER", "reads": f"g{i}", "alias": f"g{i}", "gate": {"operator": "MEMBER"}} for i in range(9)]
    enclave = host.create(readers=[{"type": "MEMBER", "reads": "*"}, *gates])
    for alias, state in [("g0", "closed"), ("g1", "closed"), ("g7", "closed"), ("g1", "open"), ("g8", "closed")]:
        host.send(enclave, "alice", "Gate", {"alias": alias, "state": state})
    loaded = host.store.load(enclave)
    assert loaded is not None
    assert loaded.closed_gates == {"g0", "g7", "g8"}
    assert host.steps[-1].transition.state.closed_gates == loaded.closed_gates
