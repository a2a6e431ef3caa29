"""One contract for every store."""

import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from enc.core.errors import EncError, MisuseError, Unavailable
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import erase, finalize, wire_event
from enc.core.log.filter import Filter, parse_filter
from enc.core.log.receipt import check_receipt
from enc.core.machine.enclave import apply_manifest, judge_manifest
from enc.core.machine.replay import Replay
from enc.core.machine.state import Transition
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event, Receipt
from enc.core.rules.policy import Effects, ReadScope
from enc.core.trees.tree_head import check_bound_head
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.protocol import ReadRights, Store, Usage
from enc.node.store.sqlite import connection, enclave_numbers, purge, search, search_plan, upgrade
from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.batch import Batch
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from tests.core.world import START, person, pub
from tests.node.memory_store import MemoryStore

NODE = person("node")
MANIFEST = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "admin(1)"],
    "readers": [{"type": "MEMBER", "reads": "*"}, {"type": "Sender", "reads": "note"}],
    "grants": [{"event": "Grant", "operator": "owner", "scope": "MEMBER", "trait": "admin"}],
    "slots": [{"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "topic"}],
    "lifecycle": [{"event": "Terminate", "operator": "owner", "ops": ["C"]}],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
        {"event": "note", "operator": "Public", "ops": ["C"]},
    ],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
    "bundle": {"size": 4, "timeout": 1000},
}


class Host:
    """A store with a sequencer on it, driven by hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.now, self.outcomes, self.steps = store, START, list[CommitOutcome](), list[Step]()
        self.sequencer = Sequencer(
            store, NODE, lambda: self.now, deliver=self.outcomes.extend, publish=self.steps.extend
        )

    def found(self, name: str = "alice", **changes: Any) -> bytes:
        manifest = {**changes} if changes.get("enc_v") == 1 else {**MANIFEST, **changes}
        commit = build_manifest(person(name), compact_json(manifest), self.now + 60_000, enc_v=manifest["enc_v"])
        self.run(commit)
        return commit.enclave

    def commit(self, enclave: bytes, name: str, type_: str, content: Any = "", *tags: tuple[str, ...]) -> Any:
        self.now += 1
        text = content if isinstance(content, str) else compact_json(content)
        state = self.store.load(enclave)
        enc_v = state.policy.enc_v if state else 2
        return build_commit(person(name), enclave, type_, text, self.now + 60_000, tags, enc_v=enc_v)

    def run(self, *commits: Any) -> list[Receipt | EncError]:
        self.outcomes.clear()
        self.sequencer.run_once([AdmittedCommit(commit) for commit in commits])
        return [outcome for _, outcome in self.outcomes]

    def send(self, *what: Any) -> Event:
        commit = self.commit(*what)
        (receipt,) = self.run(commit)
        assert isinstance(receipt, Receipt), receipt
        check_receipt(receipt, commit, NODE.public)
        found = self.store.committed(commit.enclave, commit.hash, commit.exp)
        assert found is not None
        return found


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Host:
    return Host(store)


EVERYTHING = ReadRights(b"", ReadScope({}, "all"), lambda event, subject: True)


def seqs(store: Store, enclave: bytes, readable: ReadRights = EVERYTHING, **filter_: Any) -> list[int]:
    return [item.seq for item in store.find(enclave, parse_filter(filter_), readable)]


def live(host: Host) -> tuple[bytes, list[Event]]:
    """A small life: bundles closed by size and by time, an Update, a Delete, a slot, tags."""
    enclave = host.found()
    first = host.send(enclave, "alice", "message", "one", ("r", "ab"), ("k",))
    second = host.send(enclave, "alice", "message", "two", ("r", "cd", "reply"))
    host.send(enclave, "bob", "note", "by an outsider")
    host.send(enclave, "alice", "Update", "one, again", ("r", first.id.hex()))
    host.now += 5000
    host.send(enclave, "alice", "Delete", {"reason": "author"}, ("r", second.id.hex()))
    host.send(enclave, "alice", "Shared", {"key": "topic", "value": "plans"})
    return enclave, host.store.events(enclave, 0, 100)


NO_EFFECTS = Effects()


class Log:
    """A log written by hand: nothing is signed, and hashes are what a test wants them to be."""

    def __init__(self, *stores: Store, **changes: Any) -> None:
        self.stores, self.steps = stores, list[Step]()
        commit = build_manifest(person("alice"), compact_json({**MANIFEST, **changes}), START + 60_000)
        policy, effects = judge_manifest(commit)
        event = finalize(commit, NODE, START, 0)
        self.enclave, self.founding = commit.enclave, apply_manifest(event, policy, effects)
        self.state = self.founding.state
        self.steps.append(Step(transition=self.founding, event=event, effects=effects, subject="Manifest"))
        self.events = [event]

    def add(self, type_: str = "message", *, subject: str = "", effects: Effects = NO_EFFECTS, **fields: Any) -> Event:
        """The next event; it is of the subject type `subject`, or else of its own."""
        seq = self.state.seq + 1
        digest = sha256(self.enclave + seq.to_bytes(8, "big"))
        event = Event(
            **{
                "hash": sha256(digest),
                "enclave": self.enclave,
                "from_": b"A" * 32,
                "type": type_,
                "content": f"number {seq}",
                "content_hash": b"",
                "exp": START + 60_000,
                "tags": (),
                "sig": digest * 2,
                "id": digest,
                "timestamp": START + 10 * seq,
                "sequencer": NODE.public,
                "seq": seq,
                "seq_sig": digest * 2,
                **fields,
            }
        )
        event = replace(event, content_hash=sha256((event.content or "").encode()))
        self.state = replace(self.state, seq=seq, min_timestamp=event.timestamp)
        step = Step(transition=Transition(state=self.state), event=event, effects=effects, subject=subject or type_)
        self.steps.append(step)
        self.events.append(event)
        return event

    def revise(self, type_: str, target: Event, **fields: Any) -> Event:
        """An Update or a Delete."""
        supersedes = (target.id,) if type_ == "Update" else ()
        effects, tags = Effects(supersedes=supersedes, erases=(target.id,)), (("r", target.id.hex()),)
        return self.add(type_, subject=target.type, effects=effects, tags=tags, **fields)

    def write(self) -> None:
        for store in self.stores:
            store.write(self.steps, START)
        self.steps.clear()


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
    log.write(), other.write()
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
    log.write(), other.write()
    for _ in range(5):
        other.add()
        other.write()
    for event in events:
        found = store.event(log.enclave, event.id)
        assert found is not None
        assert found.event == event
        assert seqs(store, log.enclave, id=event.id.hex()) == [event.seq]
        assert seqs(store, log.enclave, **{"from": event.from_.hex()}) == [event.seq]
        own = ReadRights(event.from_, ReadScope({}, "own"), lambda event, subject: False)
        assert seqs(store, log.enclave, own) == [event.seq]
    both = [author.hex() for author in authors[1:]]
    assert seqs(store, log.enclave, **{"from": both}) == [2, 3]
    assert seqs(store, log.enclave, **{"from": (same + b"?" * 24).hex()}) == []
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
    assert seqs(store, log.enclave, tags={"r": "a"}) == [1]  # not 3, though it is spelled alike


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
    host.found("bob", meta={"n": 2})
    assert host.store.usage(bob).enclaves == 1
    assert host.store.count() == 2


def test_auto_delete(host: Host) -> None:
    enclave = host.found()
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
    if batches > 1:  # it was written before it had a tag of its own
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
    enclave = host.found(meta={"n": 2})
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
    enclaves = [host.found(meta={"n": n}) for n in range(3)]
    for enclave in (enclaves[1], enclaves[2], enclaves[0]):
        host.send(enclave, "alice", "Terminate")
    assert host.store.terminated(host.now, 2) == [enclaves[1], enclaves[2]]


def test_overdue(host: Host) -> None:
    enclave = host.found()
    assert host.store.overdue(START + 999, 10) == []
    assert host.store.overdue(START + 1000, 10) == [enclave]
    host.now += 10
    later = host.found(meta={"n": 2})
    assert host.store.overdue(START + 1010, 10) == [enclave, later]
    assert host.store.overdue(START + 1010, 1) == [enclave]


def test_the_clock_is_the_highest_that_was_seen(store: Store) -> None:
    store.write([], 5)
    store.write([], 3)
    assert store.clock() == 5


# Searches: every way through the indexes gives what a look at each event gives

PEOPLE = [bytes([n]) * 32 for n in range(1, 5)]
REACHES = ["none", "own", "some", "all"]


def random_log(rng: random.Random, *stores: Store) -> Log:
    log = Log(*stores)
    for _ in range(160):
        target = rng.choice(log.events)
        if rng.random() < 0.2 and target.type in ("message", "note") and target.content is not None:
            done = log.revise(rng.choice(["Update", "Delete"]), target, from_=rng.choice(PEOPLE))
            log.events[target.seq] = erase(target)
            if done.type == "Delete":
                log.events[target.seq] = replace(log.events[target.seq], type="deleted")
        else:
            names = rng.choices(["k", "r", "q"], k=rng.randrange(4))
            tags = tuple((name, *([rng.choice("abc")] if rng.random() < 0.7 else [])) for name in names)
            log.add(rng.choice(["message", "note", "rare"]), from_=rng.choice(PEOPLE), tags=tags)
        if rng.random() < 0.1:
            log.write()
    log.write()
    return log


def random_filter(rng: random.Random, log: Log) -> Filter:
    some: dict[str, Callable[[], Any]] = {
        "id": lambda: [rng.choice(log.events).id.hex() for _ in range(rng.randrange(1, 9))],
        "seq": lambda: [rng.randrange(200) for _ in range(9)] if rng.random() < 0.3 else span(rng, 0, 170),
        "type": lambda: rng.sample(["message", "note", "rare", "Update", "Delete", "none"], rng.randrange(1, 4)),
        "from": lambda: [each.hex() for each in rng.sample(PEOPLE, rng.randrange(1, 3))],
        "tags": lambda: {name: rng.choice([True, "a", ["b", "c"]]) for name in rng.sample("krq", rng.randrange(1, 3))},
        "timestamp": lambda: span(rng, START, START + 1700),
    }
    chosen = rng.sample(sorted(some), rng.choice([0, 1, 1, 2, 3]))
    return parse_filter({"reverse": rng.random() < 0.5, **{name: some[name]() for name in chosen}})


def span(rng: random.Random, low: int, high: int) -> dict[str, int]:
    ends = {rng.choice(["start_at", "start_after"]): rng.randrange(low, high)}
    ends |= {rng.choice(["end_at", "end_before"]): rng.randrange(low, high)}
    return dict(rng.sample(sorted(ends.items()), rng.randrange(1, 3)))


def random_reader(rng: random.Random) -> ReadRights:
    types = {type_: rng.choice(REACHES) for type_ in rng.sample(["message", "note", "rare"], rng.randrange(4))}
    scope: Any = ReadScope(types, rng.choice(REACHES))  # type: ignore[arg-type]
    return ReadRights(rng.choice([*PEOPLE, b""]), scope, lambda event, subject: event.seq % 3 == 0)


def watched(items: Callable[..., Any], given: set[int]) -> Callable[..., Any]:
    """Search.items, with the keys of the rows that it is given."""

    def observe_write(self: search.Search, rows: list[Any]) -> Any:
        given.update(row[0] for row in rows)
        return items(self, rows)

    return observe_write


def reaches(reader: ReadRights) -> set[str]:
    return {*reader.scope.types.values(), reader.scope.others}


WAYS = [
    {},
    {"MAX_WASTE": -1},
    {"MAX_WASTE": -1, "MAX_RANGES": 0},
    {"MAX_WASTE": -1, "MAX_PROBE": 1},
    {"MAX_WASTE": 20, "PAGE_ROWS": 7},
    {"MAX_WASTE": -1, "PAGE_ROWS": 2, "PAGE_BYTES": 20},
]


@pytest.mark.parametrize("limits", WAYS, ids=str)
def test_every_way_finds_what_a_look_at_each_event_finds(
    limits: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in limits.items():
        monkeypatch.setattr(search if name.startswith("PAGE") else search_plan, name, value)
    rng, memory, store = random.Random(str(limits)), MemoryStore(), SqliteStore(tmp_path / "enc.db")
    log, found = random_log(rng, memory, store), 0
    Log(memory, store, meta={"n": "an enclave beside it"}).write()
    given = set[int]()
    monkeypatch.setattr(search.Search, "items", watched(search.Search.items, given))
    for _ in range(300):
        filter_, reader = random_filter(rng, log), random_reader(rng)
        expected = list(memory.find(log.enclave, filter_, reader))
        given.clear()
        items = list(store.find(log.enclave, filter_, reader))
        assert [item.seq for item in items] == [item.seq for item in expected], (filter_, reader)
        if not filter_.ids and not isinstance(filter_.seqs, frozenset) and "some" not in reaches(reader):
            assert len(given) == len(items), (filter_, reader)  # nothing was read that was not wanted
        assert [msgspec.json.decode(item.json) for item in items] == [
            msgspec.json.decode(item.json) for item in expected
        ]
        found += len(items)
    assert found > 1000
    store.close()


# SQLite alone


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


def effort(store: SqliteStore, work: Callable[[], Any]) -> tuple[Any, int]:
    """What the work gives, and how many steps SQLite's machine makes for it."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.clock()  # one connection is open, and so it is the one that is lent
    (db,) = store.database.readers._idle
    db.set_progress_handler(step, 1)
    result = work()
    db.set_progress_handler(None, 0)
    return result, steps


FEW = b"F" * 32
"""Who wrote ten events at the end of a long log."""
NOBODY = ReadRights(b"", ReadScope({}, "none"), lambda event, subject: False)
SELECTIVE: list[tuple[dict[str, Any], ReadRights]] = [
    ({"from": FEW.hex()}, EVERYTHING),
    ({"from": FEW.hex(), "reverse": True}, EVERYTHING),
    ({"type": "rare"}, EVERYTHING),
    ({"type": "rare", "tags": {"often": True}}, EVERYTHING),
    ({"tags": {"k": "late"}}, EVERYTHING),
    ({"tags": {"k": ["late", "never"]}}, EVERYTHING),
    ({"tags": {"seldom": True}}, EVERYTHING),
    ({"tags": {"often": "yes", "k": "late"}}, EVERYTHING),
    ({"tags": {"k": "late"}, "from": FEW.hex(), "type": "rare"}, EVERYTHING),
    ({"tags": {"often": True}, "from": FEW.hex()}, EVERYTHING),
    ({"seq": "the last ten"}, EVERYTHING),
    ({"timestamp": "the last ten"}, EVERYTHING),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({}, "own"))),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "own", "rare": "own"}, "none"))),
    ({}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "none"}, "own"))),
    ({"reverse": True}, replace(NOBODY, identity=FEW, scope=ReadScope({"message": "none"}, "own"))),
    ({}, replace(NOBODY, scope=ReadScope({"message": "none", "Manifest": "none"}, "all"))),
    ({}, replace(EVERYTHING, scope=ReadScope({"rare": "some"}, "none"))),
]


@pytest.mark.parametrize(("wire", "readable"), SELECTIVE)
def test_what_one_may_not_read_or_did_not_ask_for_costs_nothing(
    wire: dict[str, Any], readable: ReadRights, sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", 50)
    monkeypatch.setattr(search_plan, "MAX_PROBE", 50)
    efforts = []
    for length in (200, 2000):
        log = Log(sqlite, meta={"length": length})
        for i in range(length):
            log.add(tags=(("often", "yes"),) if i % 2 else ())
        last = [log.add("rare", from_=FEW, tags=(("k", "late"), ("often", "yes"), ("seldom",))) for _ in range(10)]
        log.write()
        starts = {"seq": last[0].seq, "timestamp": last[0].timestamp}
        asked = {k: {"start_at": starts[k]} if k in starts else v for k, v in wire.items()} | {"limit": 1000}
        found, steps = effort(sqlite, lambda log=log, asked=asked: seqs(sqlite, log.enclave, readable, **asked))
        assert sorted(found) == [event.seq for event in last]
        efforts.append(steps)
    assert efforts[1] < efforts[0] * 1.5
    assert efforts[1] < 6000


def test_deleted_events_cost_nothing(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_plan, "MAX_WASTE", 50)
    log = Log(sqlite)
    doomed = [log.add(tags=(("k", "v"),)) for _ in range(1000)]
    for event in doomed:
        log.revise("Delete", event, from_=FEW)
    log.add("rare", tags=(("k", "v"),))
    log.write()
    for wire in ({"type": ["message", "rare"]}, {"tags": {"k": "v"}}, {"seq": {"end_at": 1000}, "limit": 1}):
        found, steps = effort(sqlite, lambda wire=wire: seqs(sqlite, log.enclave, **wire))
        assert found == ([0] if "seq" in wire else [2001])
        assert steps < 2000


def plan(db: sqlite3.Connection, sql: str) -> list[str]:
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * sql.count("?"))]


def test_the_plans_of_searches(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = search_plan.SearchPlan(
        e=1, low=0, high=99, reverse=False, kinds=[1], own=[], me=5, authors=None, tags=[], rest=0, everything=True
    )
    log = "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"
    kind = "SEARCH events USING INDEX events_kind (c=? AND rowid>? AND rowid<?)"
    author = "SEARCH events USING INDEX events_author (c=? AND from8=? AND rowid>? AND rowid<?)"
    tag = "SEARCH t USING PRIMARY KEY (e=? AND t8=? AND seq>? AND seq<?)"
    row = "SEARCH events USING INTEGER PRIMARY KEY (rowid=?)"
    db = sqlite.database.writer.db
    for reverse in (False, True):
        wanted = replace(wanted, reverse=reverse)
        monkeypatch.setattr(search_plan, "MAX_WASTE", 99)
        assert [plan(db, way.sql) for way in wanted.queries(db)] == [[log]]
        walk = plan(db, replace(wanted, everything=False, own=[2]).queries(db)[0].sql)
        assert walk[0] == log
        monkeypatch.setattr(search_plan, "MAX_WASTE", -1)
        assert [plan(db, way.sql) for way in replace(wanted, kinds=[1, 2]).queries(db)] == [[kind], [kind]]
        assert [plan(db, way.sql) for way in replace(wanted, kinds=[], own=[1]).queries(db)] == [[author]]
        assert [plan(db, way.sql) for way in replace(wanted, authors=[7, 8]).queries(db)] == [[author], [author]]
        many = replace(wanted, kinds=list(range(search_plan.MAX_RANGES)), own=[99], authors=[7, 8]).queries(db)
        assert len(many) == 2
        assert plan(db, many[0].sql)[0] == row  # the keys are sorted, not the rows
        for way in replace(wanted, tags=[[1, 2], [3]], everything=False).queries(db):
            steps = plan(db, way.sql)
            assert steps[:2] == [tag, row]
            assert not any("SCAN" in step and "json_each" not in step for step in steps)
            assert not any("TEMP B-TREE" in step for step in steps)
    lookups = {
        "SELECT 1 FROM events WHERE exp = ? AND hash8 = ? AND k BETWEEN ? AND ?": "events_hash",
        "SELECT 1 FROM events WHERE auto_delete <= ? ORDER BY auto_delete": "events_auto_delete",
        "SELECT 1 FROM events WHERE target = ?": "events_target",
        "SELECT 1 FROM states WHERE deadline <= ? ORDER BY deadline": "states_deadline",
        "SELECT 1 FROM enclaves WHERE terminated_at <= ? AND purged < 2 ORDER BY terminated_at": "enclaves_terminated",
    }
    for sql, index in lookups.items():
        (step,) = plan(db, sql)
        assert step.startswith("SEARCH"), sql
        assert index in step, sql


def test_pages_go_on_from_where_the_last_one_ended(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PAGE_ROWS", 3)
    log = Log(sqlite)
    for _ in range(10):
        log.add()
    log.write()
    found = sqlite.find(log.enclave, Filter(limit=100), EVERYTHING)
    first = [item.seq for item in islice(found, 2)]
    log.add("a new kind")
    log.add()
    log.write()
    assert first + [item.seq for item in found] == list(range(11))
    assert seqs(sqlite, log.enclave)[-2:] == [11, 12]


class Interrupted:
    """A connection on which something happens just before a statement."""

    def __init__(self, db: sqlite3.Connection, statement: str, happens: Callable[[], Any]) -> None:
        self._db, self._statement, self._happens = db, statement, happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if self._statement in sql:
            self._happens()
        return self._db.execute(sql, *args)


def test_a_state_and_what_is_pending_are_of_one_moment(sqlite: SqliteStore) -> None:
    host = Host(sqlite)
    enclave = host.found()
    event = host.send(enclave, "alice", "message", "first")
    before = sqlite.load(enclave)
    assert before is not None
    update = host.commit(enclave, "alice", "Update", "second", ("r", event.id.hex()))
    db = sqlite.database.readers._idle.pop()
    sqlite.database.readers._idle.append(Interrupted(db, "FROM pending", lambda: host.run(update)))  # type: ignore[arg-type]
    found = sqlite.load(enclave)
    after = sqlite.load(enclave)
    assert found is not None
    assert after is not None
    assert (found.seq, dict(found.pending)) == (before.seq, dict(before.pending))
    assert after.seq == before.seq + 1
    assert dict(after.pending) != dict(before.pending)


def test_a_reader_may_read_while_its_rights_are_asked(sqlite: SqliteStore) -> None:
    sqlite.database.readers._slots = connection.Semaphore(1)
    log = Log(sqlite)
    event = log.add()
    log.write()
    some = ReadRights(b"", ReadScope({}, "some"), lambda each, subject: sqlite.event(log.enclave, each.id) is not None)
    found = sqlite.find(log.enclave, Filter(), some)
    assert next(found).seq == 0
    assert sqlite.event(log.enclave, event.id) is not None  # between two items no connection is held
    assert next(found).seq == 1
    sqlite.database.readers._slots.release(connection.MAX_READERS - 1)


# Ids


@pytest.mark.parametrize("stride", [1, 6])
def test_an_event_is_found_by_its_id_wherever_the_id_is_kept(
    stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "GENERATION", 16)
    monkeypatch.setattr(ids, "STRIDE", stride)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    waiting = set[int]()
    for n in range(80):
        log.add()
        log.write()
        if n % 7 == 3:
            store.close()
            store = SqliteStore(tmp_path / "enc.db")
            log.stores = (store,)
        for event in log.events:
            found = store.event(log.enclave, event.id)
            assert found is not None
            assert found.event == event
        waiting.add(len(store.database.cache.ids._latest) + len(store.database.cache.ids._moving))
        rows = store.database.writer.db.execute("SELECT (SELECT count(*) FROM ids), (SELECT count(*) FROM recent_ids)")
        moved, recent = rows.fetchone()
        assert recent <= 2 * 16
        assert moved + recent >= len(log.events)
    assert moved > 40
    assert max(waiting) <= 2 * 16
    store.close()


def test_ids_of_a_purged_enclave_go_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 16)
    monkeypatch.setattr(ids, "STRIDE", 1)
    store = SqliteStore(tmp_path / "enc.db")
    doomed, other = Log(store, meta={"n": 1}), Log(store, meta={"n": 2})
    for _ in range(30):
        doomed.add()
        doomed.write()
    doomed.add("Terminate", effects=Effects(lifecycle="terminated"))
    doomed.write(), other.write()
    while not store.purge(doomed.enclave, 10):
        pass
    for _ in range(60):
        other.add()
        other.write()
    left = store.database.writer.db.execute("SELECT count(*) FROM ids WHERE k >> 40 = 1").fetchone()
    assert left == (0,)
    assert all(store.event(other.enclave, event.id) for event in other.events)
    store.close()


def test_who_reads_what_was_just_committed_finds_its_events_by_their_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a lookup in a registry does: it reads a record, and then the entry that this names."""
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    seen, write = list[bool](), Batch.write

    def looked_at(batch: Batch) -> Callable[[], None]:
        after_commit = write(batch)

        def look() -> None:
            seen.extend(store.event(log.enclave, event.id) is not None for event in log.events)
            after_commit()

        return look

    monkeypatch.setattr(Batch, "write", looked_at)
    log.add()
    log.write()
    assert seen == [True, True]
    store.close()


def test_an_event_that_was_not_written_is_not_found_by_its_id(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    lost = log.add()
    with failing_commit(store), pytest.raises(Unavailable):
        store.write(log.steps, START)
    assert store.event(log.enclave, lost.id) is None
    twin = Log(store)
    twin.steps.clear()
    taken = twin.add(id=sha256(b"in its place"))
    twin.write()
    assert (taken.seq, store.event(log.enclave, lost.id)) == (lost.seq, None)
    assert store.event(log.enclave, taken.id) is not None
    store.close()


def test_a_write_that_fails_moves_no_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 8)
    monkeypatch.setattr(ids, "STRIDE", 1)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    for n in range(40):
        log.add()
        if n % 3 == 0:
            with failing_commit(store), pytest.raises(Unavailable):
                store.write(log.steps, START)
        log.write()
        assert all(store.event(log.enclave, event.id) for event in log.events)
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    assert all(store.event(log.enclave, event.id) for event in log.events)
    store.close()


# Numbers


def test_a_number_of_a_founding_that_failed_is_forgotten(sqlite: SqliteStore) -> None:
    first, second = Log(sqlite, meta={"n": 1}), Log(sqlite, meta={"n": 2})
    first.add("only here")
    with failing_commit(sqlite), pytest.raises(Unavailable):
        sqlite.write(first.steps, START)
    second.add(content="of the second")
    second.write()
    assert sqlite.events(first.enclave, 0, 10) == []
    first.write()
    assert sqlite.events(first.enclave, 0, 10) == first.events
    assert sqlite.events(second.enclave, 0, 10) == second.events
    for log in (first, second):
        assert seqs(sqlite, log.enclave) == [0, 1]
        assert seqs(sqlite, log.enclave, type="Manifest") == [0]
    assert seqs(sqlite, second.enclave, type="only here") == []
    assert seqs(sqlite, first.enclave, type="only here") == [1]


def test_a_number_that_was_looked_up_before_a_purge_is_not_remembered_after_it() -> None:
    known = enclave_numbers.EnclaveNumbers()
    epoch = known.epoch
    known.forget(b"a")
    known.put(b"a", 1, epoch)
    assert known.get(b"a") is None
    known.put(b"a", 1, known.epoch)
    assert known.get(b"a") == 1


def test_few_numbers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclave_numbers, "MAX_NUMBERS", 2)
    known = enclave_numbers.EnclaveNumbers()
    known.put(b"a", 1, 0), known.put(b"b", 2, 0)
    assert known.get(b"a") == 1
    known.put(b"c", 3, 0)
    assert [known.get(name) for name in (b"a", b"b", b"c")] == [1, None, 3]


# Failures


@contextmanager
def failing_commit(store: SqliteStore) -> Iterator[None]:
    """Everything can be written, but not committed: a promise is broken that SQLite checks then."""
    db = store.database.writer.db
    db.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE IF NOT EXISTS kept (x PRIMARY KEY);"
        "CREATE TABLE IF NOT EXISTS promised (x REFERENCES kept (x) DEFERRABLE INITIALLY DEFERRED);"
        "CREATE TRIGGER broken AFTER UPDATE ON node BEGIN INSERT INTO promised VALUES (1); END;"
    )
    yield
    db.executescript("DROP TRIGGER broken; PRAGMA foreign_keys = OFF;")


class Broken:
    """A connection that fails at some statements, with a message that tells too much."""

    def __init__(self, db: sqlite3.Connection, *statements: str) -> None:
        self._db, self._statements = db, statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if any(statement in sql for statement in self._statements):
            raise sqlite3.OperationalError(f"disk I/O error at /secret/path near {sql}")
        return self._db.execute(sql, *args)


def assert_it_goes_on(store: SqliteStore, log: Log) -> None:
    log.write()
    assert store.events(log.enclave, 0, 10_000) == log.events
    assert seqs(store, log.enclave, limit=1000) == [event.seq for event in log.events]


def test_a_write_that_fails_leaves_nothing_and_the_next_one_works(sqlite: SqliteStore) -> None:
    host = Host(sqlite)
    enclave = host.found()
    sqlite.database.writer.db.execute(
        "CREATE TRIGGER broken BEFORE INSERT ON tags BEGIN SELECT RAISE(ABORT, 'disk'); END"
    )
    first = host.commit(enclave, "alice", "message", "no tags")
    second = host.commit(enclave, "alice", "message", "tags", ("k", "v"))
    assert [type(outcome) for outcome in host.run(first, second)] == [Unavailable, Unavailable]
    assert len(sqlite.events(enclave, 0, 10)) == 1
    sqlite.database.writer.db.execute("DROP TRIGGER broken")
    assert [outcome.seq for outcome in host.run(first, second) if isinstance(outcome, Receipt)] == [1, 2]


def test_a_commit_that_fails_leaves_nothing_and_the_next_one_works(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add("new", tags=(("k", "v"),))
    with failing_commit(sqlite), pytest.raises(Unavailable, match=r"^the store cannot be written: SQLITE_CONSTRAINT"):
        sqlite.write(log.steps, START + 99)
    assert (len(sqlite.events(log.enclave, 0, 10)), sqlite.clock(), sqlite.usage(b"A" * 32)) == (1, START, Usage())
    assert_it_goes_on(sqlite, log)


def test_a_full_disk_is_unavailable_until_there_is_room(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    (pages,) = sqlite.database.writer.db.execute("PRAGMA page_count").fetchone()
    sqlite.database.writer.db.execute(f"PRAGMA max_page_count = {pages}")
    for _ in range(100):
        log.add(content="x" * 5000)
    for _ in range(3):
        with pytest.raises(Unavailable, match=r"^the store cannot be written: SQLITE_FULL$"):
            sqlite.write(log.steps, START)
        assert len(sqlite.events(log.enclave, 0, 10)) == 1
    sqlite.database.writer.db.execute("PRAGMA max_page_count = 1000000")
    assert_it_goes_on(sqlite, log)


def test_a_connection_that_cannot_even_roll_back_is_replaced(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add()
    sqlite.database.writer.db = Broken(sqlite.database.writer.db, "COMMIT", "ROLLBACK")  # type: ignore[assignment]
    with pytest.raises(Unavailable) as caught:
        sqlite.write(log.steps, START)
    assert "secret" not in caught.value.message
    assert "COMMIT" not in caught.value.message
    assert_it_goes_on(sqlite, log)
    assert sqlite.database.writer.db.execute("PRAGMA synchronous").fetchone() == (2,)


def test_whatever_a_write_raises_it_leaves_nothing(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    log.add()
    log.add("Update", tags=(("r", "ab" * 32),))
    with pytest.raises(MisuseError):
        sqlite.write(log.steps, START)
    assert len(sqlite.events(log.enclave, 0, 10)) == 1
    del log.steps[1:], log.events[2:]
    assert_it_goes_on(sqlite, log)


def test_a_log_without_its_manifest_is_refused(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    sealed = replace(log.steps[0], event=None)
    with pytest.raises(MisuseError):
        sqlite.write([sealed], START)
    assert sqlite.count() == 0


READS: list[Callable[[SqliteStore, bytes], Any]] = [
    lambda store, enclave: store.clock(),
    lambda store, enclave: store.count(),
    lambda store, enclave: store.usage(enclave),
    lambda store, enclave: store.load(enclave),
    lambda store, enclave: list(store.enclaves()),
    lambda store, enclave: store.overdue(0, 10),
    lambda store, enclave: store.read_node(enclave, enclave),
    lambda store, enclave: store.read_hash(enclave, 0, 0),
    lambda store, enclave: store.target(enclave, enclave),
    lambda store, enclave: store.event(enclave, enclave),
    lambda store, enclave: store.committed(enclave, enclave, 0),
    lambda store, enclave: store.events(enclave, 0, 10),
    lambda store, enclave: store.ids(enclave, 0, 10),
    lambda store, enclave: list(store.find(enclave, Filter(), EVERYTHING)),
    lambda store, enclave: store.bundle(enclave, 0),
    lambda store, enclave: store.bundle_of(enclave, 0),
    lambda store, enclave: store.head(enclave),
    lambda store, enclave: store.expired(0, 1),
    lambda store, enclave: store.terminated(0, 1),
    lambda store, enclave: store.is_purged(enclave),
]


def test_a_read_that_fails_is_unavailable_and_the_next_one_works(sqlite: SqliteStore) -> None:
    log = Log(sqlite)
    log.write()
    for read in READS:
        with suppress(KeyError):
            read(sqlite, log.enclave)
        (db,) = sqlite.database.readers._idle
        sqlite.database.readers._idle = [Broken(db, "SELECT")]  # type: ignore[list-item]
        with pytest.raises(Unavailable, match=r"^the store cannot be read: [A-Za-z_]+$"):
            read(sqlite, log.enclave)
        with suppress(KeyError):
            read(sqlite, log.enclave)


def test_a_file_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    lock = tmp_path / "no such folder" / "enc.db.lock"
    with pytest.raises(Unavailable, match=re.escape(f"{lock}: No such file or directory")):
        SqliteStore(tmp_path / "no such folder" / "enc.db")
    (tmp_path / "enc.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(Unavailable) as caught:
        SqliteStore(tmp_path / "enc.db")
    assert str(tmp_path) not in caught.value.message
    (tmp_path / "enc.db").unlink()
    SqliteStore(tmp_path / "enc.db").close()  # the lock was let go


def test_a_reader_that_cannot_be_opened_is_unavailable(sqlite: SqliteStore, tmp_path: Path) -> None:
    sqlite.database.readers._path = tmp_path / "no such folder" / "enc.db"
    with pytest.raises(Unavailable, match=r"^the store cannot be read: SQLITE_CANTOPEN$"):
        sqlite.clock()
    sqlite.database.readers._path = tmp_path / "enc.db"
    assert sqlite.clock() == 0


# Opening and closing


def test_reopened_it_is_as_it_was(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave, events = live(host)
    before = store.load(enclave)
    store.close()
    store = SqliteStore(tmp_path / "enc.db")
    after = store.load(enclave)
    assert before is not None
    assert after is not None
    for name in ("seq", "min_timestamp", "sequencer", "lifecycle", "migrated", "log", "bundle", "root", "pending"):
        assert getattr(after, name) == getattr(before, name), name
    assert store.events(enclave, 0, 100) == events
    assert store.clock() == host.now
    second = Host(store)
    second.now = host.now
    second.send(enclave, "alice", "message", "goes on")
    store.close()


def test_closed_it_is_one_file_and_refuses_reads_and_writes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    store.load(log.enclave)
    assert (tmp_path / "enc.db-wal").stat().st_size > 0
    with closing(sqlite3.connect(tmp_path / "enc.db")) as other:
        other.execute("SELECT clock FROM node").fetchall()
        store.close()
        assert (tmp_path / "enc.db-wal").stat().st_size == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["enc.db", "enc.db.lock"]
    with pytest.raises(Unavailable, match="closed"):
        store.clock()
    with pytest.raises(Unavailable):
        store.write([], 1)
    store.close()


def test_a_second_process_is_refused_while_the_first_one_lives(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from enc.node.store.sqlite.store import SqliteStore;"
    program += "SqliteStore(Path(sys.argv[1])); print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "enc.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(Unavailable, match="in use by another process"):
            SqliteStore(tmp_path / "enc.db")
        other.kill()
    SqliteStore(tmp_path / "enc.db").close()


def set_version(path: Path, version: int) -> None:
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {version}")
    db.close()


def test_a_database_of_a_newer_program_is_refused(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "enc.db").close()
    set_version(tmp_path / "enc.db", 99)
    with pytest.raises(Unavailable, match="newer version: schema 99"):
        SqliteStore(tmp_path / "enc.db")


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "enc.db")
    db.execute("CREATE TABLE enclaves (x)")
    db.close()
    for version in (0, 1):
        set_version(tmp_path / "enc.db", version)
        with pytest.raises(Unavailable, match="another program"):
            SqliteStore(tmp_path / "enc.db")


def test_an_older_database_is_upgraded_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    store.close()
    set_version(tmp_path / "enc.db", 1)
    steps = ["CREATE TABLE second (x);", "CREATE TABLE third (x); INSERT INTO third VALUES (3);"]
    monkeypatch.setattr(upgrade, "UPGRADES", (steps[0], steps[1] + "CREATE TABLE second (x);"))
    with pytest.raises(Unavailable):
        SqliteStore(tmp_path / "enc.db")
    monkeypatch.setattr(upgrade, "UPGRADES", tuple(steps))
    store = SqliteStore(tmp_path / "enc.db")
    assert store.database.writer.db.execute("PRAGMA user_version").fetchone() == (3,)
    assert store.database.writer.db.execute("SELECT x FROM third").fetchall() == [(3,)]
    assert store.events(log.enclave, 0, 10) == log.events
    store.close()
    SqliteStore(tmp_path / "enc.db").close()


def test_it_waits_for_the_disk_and_keeps_caches_and_logs_small(sqlite: SqliteStore) -> None:
    sqlite.clock()
    (reader,) = sqlite.database.readers._idle

    def says(db: sqlite3.Connection, name: str) -> Any:
        return db.execute(f"PRAGMA {name}").fetchone()[0]

    writer = sqlite.database.writer.db
    assert (says(writer, "journal_mode"), says(writer, "synchronous"), says(writer, "secure_delete")) == ("wal", 2, 1)
    caches = -says(writer, "cache_size") - connection.MAX_READERS * says(reader, "cache_size")
    assert caches * 1024 <= 100 << 20
    assert says(writer, "wal_autocheckpoint") * says(writer, "page_size") <= says(writer, "journal_size_limit")
    assert says(writer, "journal_size_limit") <= 64 << 20
    assert says(reader, "query_only") == 1


def test_an_erased_content_is_nowhere_in_the_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    events = [log.add(content="a secret " * size) for size in (10, 2000)]
    log.write()
    store.erase([(log.enclave, event.id) for event in events])
    store.close()
    assert b"a secret" not in (tmp_path / "enc.db").read_bytes()


TABLES = ("events", "ids", "tags", "pending", "tree_nodes", "log_nodes", "bundles", "kinds")


def count_rows(store: SqliteStore) -> int:
    queries = [f"SELECT count(*) AS n FROM {table}" for table in TABLES]  # noqa: S608
    query = f"SELECT sum(n) FROM ({' UNION ALL '.join(queries)})"  # noqa: S608
    return int(store.database.writer.db.execute(query).fetchone()[0])


def test_a_purge_takes_few_rows_at_a_time(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "GENERATION", 4)
    monkeypatch.setattr(ids, "STRIDE", 1)
    log = Log(sqlite)
    for i in range(20):
        log.add(tags=(("k", str(i)),))
        log.write()
    log.add("Terminate", effects=Effects(lifecycle="terminated"))
    log.write()
    before, is_done = count_rows(sqlite), False
    assert before > 80
    while not is_done:
        is_done = sqlite.purge(log.enclave, 10)
        after = count_rows(sqlite)
        assert before - 10 <= after < before or is_done
        before = after
    assert before == 0


def test_a_purge_takes_few_bytes_at_a_time(sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purge, "MAX_BYTES", 10_000)
    log = Log(sqlite)
    for _ in range(10):
        log.add(content="x" * 4000)
    log.add("Terminate", effects=Effects(lifecycle="terminated"))
    log.write()
    calls = 1
    while not sqlite.purge(log.enclave):
        calls += 1
    assert calls == 5
    assert count_rows(sqlite) == 0


class LateFailure:
    """A connection whose COMMIT is made and then reported as failed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def execute(self, sql: str, *args: Any) -> Any:
        found = self._db.execute(sql, *args)
        if sql == "COMMIT":
            raise sqlite3.OperationalError("disk I/O error")
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


def test_what_a_failed_write_left_on_the_disk_is_found_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.found()
    db, commit = store.database.writer.db, host.commit(enclave, "alice", "message", "made all the same")
    store.database.writer.db = LateFailure(db)  # type: ignore[assignment]
    (outcome,) = host.run(commit)
    store.database.writer.db = db
    assert isinstance(outcome, Unavailable)
    (event,) = store.events(enclave, 1, 10)
    found = store.event(enclave, event.id)
    assert found is not None
    assert found.event == event
    assert host.send(enclave, "alice", "message", "next").seq == 2
    store.close()


def test_a_writer_that_was_given_up_is_opened_again(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    enclave = host.found()
    store.database.writer.db.close()
    store.database.writer._roll_back()
    store.database.writer._is_closed, store.database._cache_is_stale = True, True
    assert host.send(enclave, "alice", "message", "again").seq == 1
    store.close()
