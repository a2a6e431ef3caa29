"""fsck: a store that is as its logs say is clean, and whatever else is done to it is found and named."""

# ruff: noqa: S608 - what damages a store is put together from parts

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode
from msgspec.structs import replace

from enc.core.errors import Unavailable
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.filter import Filter
from enc.core.machine.enclave import seal
from enc.core.machine.replay import Replay
from enc.core.machine.state import ClosedBundle, EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, Receipt, TreeHead
from enc.core.rules.content import revised_id
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from enc.node.fsck import Difference, Report, check_enclave, check_store
from enc.node.store.enclave_reader import EnclaveReader
from enc.node.store.events import SearchItem
from enc.node.store.protocol import ReadRights, Store
from enc.node.store.push_protocol import DeliveryResult
from enc.node.store.sqlite import event_index as ids
from enc.node.store.sqlite.check import WRONG
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import GROUP, World, give, move, person, pub
from tests.node.memory_store import MemoryStore
from tests.node.moving import take_in
from tests.node.push_host import OTHER, URL, found, listen, say, spread
from tests.node.store_host import NODE, Host


def group(name: str) -> dict[str, Any]:
    """A group's manifest with small bundles; the name makes it another enclave."""
    return {**GROUP, "bundle": {"size": 5, "timeout": 1000}, "meta": {"description": name}}


def live(host: Host) -> bytes:
    """A long life: nearly every type, contents erased in every way, bundles closed by size, by an event, by the clock.

    Which event is which (seq): 2 updated twice, 5 deleted, 6 and its Update 7 gone by time, 9 the one with odd tags.
    """
    life = host.found(**group("life"))
    host.send(life, "alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    twice = host.send(life, "bob", "message", "first words", ("k", "v"))
    host.send(life, "bob", "Update", "second words", ("r", twice.id.hex()))
    host.send(life, "bob", "Update", "third words", ("r", twice.id.hex(), "target"))
    deleted = host.send(life, "alice", "message", "regretted", ("k", "v"), ("t",))
    soon = host.send(life, "bob", "message", "soon gone", ("auto-delete", str(host.now + 90_000)))
    host.send(life, "bob", "Update", "gone with it", ("r", soon.id.hex()))
    host.send(life, "alice", "Delete", {"reason": "author"}, ("r", deleted.id.hex()))
    host.send(life, "bob", "message", "ünï \ud7ff\U0001f600\0", ("k", "v"), ("k", "w"), ("k",), ("t", "", "x"))
    args = (life, "reaction", "by another curve", host.now + 60_000)
    (receipt,) = host.run(build_commit(person("bob"), *args, alg="ecdsa"))
    assert isinstance(receipt, Receipt)
    host.now += 2000
    host.run()  # the clock closes the bundle
    host.send(life, "alice", "Grant", give("bob", "admin"))
    operations = [{"type": "Move", **move("carol", "OUTSIDER", "MEMBER")}, {"type": "Grant", **give("carol", "muted")}]
    host.send(life, "bob", "AC_Bundle", {"operations": operations})
    host.now += 2000  # the next event closes the bundle
    host.send(life, "alice", "Gate", {"alias": "applications", "state": "closed"})
    host.send(life, "alice", "Shared", {"key": "topic", "value": "plans"})
    host.send(life, "bob", "Own", {"key": "profile", "value": {"name": "Bob"}})
    host.send(life, "alice", "Pause")
    host.send(life, "alice", "Resume")
    later = ("auto-delete", str(host.now + 90_000))
    host.send(life, "alice", "message", "still there", later)
    host.send(life, "alice", "Shared", {"key": "topic", "value": None}, later)
    host.store.erase([(life, soon.id)])
    return life


def moved_in(store: Store) -> bytes:
    """A log that another node kept until this one took it over by force, signing heads for what was there."""
    world = World(group("moved in"), node="node2")
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    for i in range(5):
        world.send("bob", "message", f"elsewhere {i}")
    world.send("alice", "Migrate", world.migrate("node"), node="node", takeover=True)
    world.send("bob", "message", "here")
    keep(store, world.events, "node")
    return world.state.enclave


def taken_in(store: Store) -> bytes:
    """A log that came whole, by a peaceful Migrate, and counts as its owner's; with a content that was erased."""
    world = World(group("taken in"), node="node2")
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    event = world.send("bob", "message", "elsewhere")
    world.send("bob", "Update", "still elsewhere", tags=(("r", event.id.hex()),))
    world.send("alice", "Migrate", world.migrate("node"))
    take_in(store, world.events, "dave")
    return world.state.enclave


def keep(store: Store, events: list[Event], *signers: str) -> EnclaveState:
    """Write a log as a node does that takes it over; the heads are signed by one after the other, then by the last."""
    replay, log = Replay(), Edge()
    for event in events:
        transition, effects = replay.add(event)
        target = replay.store.target(revised_id(event)) if event.type in ("Update", "Delete") else None
        heads = []
        for bundle in transition.closed:
            key = person(signers[min(log.size, len(signers) - 1)])
            log = log.append(log_leaf(bundle.events_root, bundle.state_hash))[0]
            heads.append(sign_head(key, event.enclave, event.timestamp, log.size, log.root()))
        subject = transition.state.policy.subject(event, target).type
        step = Step(transition=transition, event=event, effects=effects, subject=subject, heads=tuple(heads))
        store.write([step], event.timestamp)
    return replay.state


def moved_away(host: Host) -> bytes:
    enclave = host.found(**group("moved away"))
    host.send(enclave, "alice", "message", "before")
    replay = Replay()
    for event in host.store.events(enclave, 0, 10):
        replay.add(event)
    root = replay.checkpoint_root().hex()
    host.send(enclave, "alice", "Migrate", {"new_sequencer": pub("node2"), "prev_seq": 1, "ct_root": root})
    return enclave


def ended(host: Host, name: str) -> bytes:
    enclave = host.found(**group(name))
    host.send(enclave, "alice", "message", "before the end", ("k", "v"))
    host.send(enclave, "alice", "Terminate")
    return enclave


def soon_gone(host: Host) -> bytes:
    """An Update whose content goes with its target's, and is still there."""
    enclave = host.found(**group("soon gone"))
    event = host.send(enclave, "alice", "message", "one", ("auto-delete", str(host.now + 90_000)))
    host.send(enclave, "alice", "Update", "two", ("r", event.id.hex()))
    return enclave


def pushed(host: Host) -> bytes:
    """Endpoints, batches in every state, and what waits in the outbox; vera hears all of it and nick that it is there.

    Of vera's five batches the first was delivered and forgotten, the second is delivered, the third dead.
    """
    enclave = found(host, "pushed")
    listen(host, enclave, "vera", "ear", OTHER)
    host.send(enclave, "alice", "Revoke", {"target": pub("vera"), "trait": "ear"})
    listen(host, enclave, "nick", "watch")
    listen(host, enclave, "vera")
    for _ in range(5):
        say(host, enclave, 2)
        spread(host)
    (queue,) = [each.queue for each in host.store.queue_reports(enclave) if each.identity == person("vera").public]
    host.store.record_results(
        [
            DeliveryResult(queue, 1, 5),
            DeliveryResult(queue, 2, 9),
            DeliveryResult(queue, 3, 9, "gone"),
            DeliveryResult(queue, 4, 5, "x", 7),
        ]
    )
    host.store.delete_settled(5, 5)
    say(host, enclave, 3)
    return enclave


def registry(host: Host) -> bytes:
    """Two enclaves, one of them updated and sold; a node; an identity that is not registered any more."""
    founding = build_manifest(person("alice"), compact_json(REGISTRY), host.now + 60_000)
    host.run(founding)
    houses = [House({**TEAM, "meta": {"n": n}}) for n in range(2)]
    for house in houses:
        house.talk()
        host.send(founding.enclave, "alice", "Reg_Enclave", house.entry(app="chat", desc="A house"))
    houses[0].transfer("alice", "bob")
    host.send(founding.enclave, "bob", "Reg_Enclave", houses[0].entry(owner_proof=houses[0].proof("bob"), app="blog"))
    host.send(founding.enclave, "node", "Reg_Node", node_entry("node"))
    gone = host.send(founding.enclave, "carol", "Reg_Identity", identity_entry("carol"))
    host.send(founding.enclave, "carol", "Delete", {"reason": "author"}, ("r", gone.id.hex()))
    return founding.enclave


def fill(host: Host) -> dict[str, bytes]:
    """A store with one enclave of each kind."""
    names = {"moved in": moved_in(host.store), "moved away": moved_away(host), "purged": ended(host, "purged")}
    names |= {"terminated": ended(host, "terminated"), "soon gone": soon_gone(host)}
    names["pushed"] = pushed(host)
    names["idle"] = host.found(**group("one bundle, closed by the clock"))
    host.now += 5000
    host.run()
    while not host.store.purge(names["purged"]):
        pass
    names["registry"] = registry(host)
    names["taken in"] = taken_in(host.store)
    names["life"] = live(host)
    return names


def nothing(events: int) -> None:
    """Nobody watches."""


def check(store: Store, enclaves: list[bytes] | None = None) -> Report:
    return check_store(store, NODE.public, enclaves, nothing)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


def test_a_store_that_is_as_its_logs_say_is_clean(store: Store) -> None:
    names = fill(Host(store))
    told: list[int] = []
    report = check_store(store, NODE.public, None, told.append)
    assert report.differences == []
    assert report.enclaves == len(names)
    assert report.events == sum(told) == sum(len(store.events(enclave, 0, 100)) for enclave in names.values())


# Any store: what it answers is held to the log

Change = Callable[..., Any]
"""Given an honest answer and the arguments of the question, another answer."""


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def but(**fields: Any) -> Callable[[Any], Any]:
    """Other fields; a function is given the old value."""
    return lambda old: replace(old, **{k: v(getattr(old, k)) if callable(v) else v for k, v in fields.items()})


def never(answer: Any) -> None:
    """There is no answer."""


def asked(*question: Any, gives: Callable[[Any], Any]) -> Change:
    """Another answer to one question."""
    return lambda honest, enclave, *args: gives(honest) if args == question else honest


def event(seq: int, gives: Callable[[Any], Any]) -> Change:
    """Another answer about one event."""

    def change(honest: Any, enclave: bytes, *args: Any) -> Any:
        if isinstance(honest, list):
            return [e for e in (gives(e) if e.seq == seq else e for e in honest) if e]
        return gives(honest) if honest and getattr(honest, "event", honest).seq == seq else honest

    return change


def search(by: str, seq: int, gives: Callable[[Any], Any] = never) -> Change:
    """Another answer about one event where one searches by this field."""

    def change(
        found: Iterator[SearchItem], enclave: bytes, filter_: Filter, readable: ReadRights
    ) -> Iterator[SearchItem]:
        values = [value for _, value in filter_.tags]
        fields = {"type": filter_.types, "author": filter_.authors, "tag": any(values), "tag name": None in values}
        names = [name for name, value in fields.items() if value]
        names += ["read rights"] if readable.scope.others == "none" else []
        for item in found:
            kept = gives(item) if (names or ["seq"]) == [by] and item.seq == seq else item
            if kept is not None:
                yield kept

    return change


LIES: list[tuple[str, Change, int | None, str]] = [
    ("load", lambda state, *_: None, None, "the store has no such enclave"),
    ("events", event(7, never), 7, "the event is missing"),
    ("events", event(0, never), 0, "the event is missing"),
    ("events", event(19, never), 19, "the event is missing"),
    ("events", lambda events, *_: [], 0, "the event is missing"),
    ("events", event(9, but(content="other words")), 9, "content: not the one that was signed"),
    ("events", event(9, but(hash=flip)), 9, "INVALID_HASH"),
    ("events", event(9, but(sig=flip)), 9, "INVALID_SIGNATURE"),
    ("events", event(9, but(seq_sig=flip)), 9, "INVALID_SIGNATURE: seq_sig"),
    ("events", event(9, but(id=flip)), 9, "INVALID_HASH: id"),
    ("events", event(9, but(exp=lambda exp: exp + 1)), 9, "INVALID_HASH"),
    ("events", event(9, but(tags=())), 9, "INVALID_HASH"),
    ("events", event(9, but(timestamp=lambda t: t + 1)), 9, "INVALID_SIGNATURE: seq_sig"),
    ("event", event(9, never), 9, "not found by its id"),
    ("event", event(9, but(event=but(content="other words"))), 9, "not found by its id"),
    ("committed", event(9, never), 9, "not found by its commit's hash"),
    ("committed", event(9, but(timestamp=0)), 9, "not found by its commit's hash"),
    ("target", lambda target, *_: target and replace(target, from_=b""), 0, "not found as a target"),
    ("event", event(2, but(updated_by=flip)), 2, "a search by seq"),
    ("event", event(5, but(status="active")), 5, "a search by seq does not find it"),
    ("event", event(9, but(status="deleted")), 9, "a search by seq finds it but must not"),
    ("find", search("seq", 9), 9, "a search by seq does not find it"),
    ("find", search("seq", 2, but(updated_by=flip)), 2, "a search by seq: not what the log implies"),
    ("find", search("seq", 2, but(updated_by=None)), 2, "a search by seq: not what the log implies"),
    ("find", search("seq", 9, but(rest=b"{")), 9, "a search by seq: not what the log implies"),
    ("find", search("type", 9), 9, "a search by type does not find it"),
    ("find", search("author", 9), 9, "a search by author does not find it"),
    ("find", search("tag", 9), 9, "a search by tag does not find it"),
    ("find", search("tag name", 9), 9, "a search by tag does not find it"),
    ("find", search("read rights", 3), 3, "a search by read rights does not find it"),
    ("find", search("type", 9, but(seq=5)), 5, "a search by type finds it but must not"),
    ("find", lambda items, *_: reversed(list(items)), None, "a search by seq returns a wrong order"),
    ("ids", lambda ids, *_: ids[:-1], 0, "ids from here on"),
    ("read_node", lambda record, *_: flip(record), 4, "tree node"),
    ("read_hash", asked(1, 0, gives=flip), 9, "log node 1, 0"),
    ("read_hash", asked(0, 4, gives=flip), 17, "log node 0, 4"),
    ("bundle", asked(1, gives=never), 5, "bundle 1: missing"),
    *[
        ("bundle", asked(1, gives=but(**{name: change})), 5, "bundle 1: not what the log implies")
        for name, change in [
            ("index", 2),
            ("first_seq", 6),
            ("count", 4),
            ("events_root", flip),
            ("state_hash", flip),
        ]
    ],
    ("bundle", asked(5, gives=lambda _: ClosedBundle(5, 18, 2, b"", b"")), 19, "bundle 5: must not exist"),
    ("bundle_of", asked(5, gives=never), 5, "the bundle that holds it: missing"),
    ("bundle_of", asked(9, gives=never), 9, "the bundle that holds it: missing"),
    ("bundle_of", asked(18, gives=lambda _: ClosedBundle(5, 18, 2, b"", b"")), 18, "still open"),
    ("bundle_of", asked(19, gives=lambda _: ClosedBundle(5, 18, 2, b"", b"")), 19, "still open"),
    ("head", asked(2, gives=never), 5, "head of size 2: missing"),
    ("head", asked(2, gives=but(ts=3)), 5, "head of size 2: not what the log implies"),
    ("head", asked(2, gives=but(r=flip)), 5, "head of size 2: not what the log implies"),
    ("head", asked(2, gives=but(t=0)), 5, "head of size 2: sth"),
    ("head", asked(2, gives=but(sig=flip)), 5, "head of size 2: sth: not signed"),
    ("head", asked(2, gives=but(bound_sig=flip)), 5, "head of size 2: sth: bound_sig"),
    ("head", asked(2, gives=but(bound_sig=None)), 5, "head of size 2: sth: bound_sig is missing"),
    ("head", asked(6, gives=lambda _: TreeHead(0, 6, b"", b"")), 19, "head of size 6: must not exist"),
    ("head", asked(gives=never), 19, "latest head"),
]

STATES: list[tuple[str, Any, int | None, str]] = [
    ("enclave", flip, 19, "state: enclave"),
    ("policy", but(states=()), 19, "state: policy"),
    ("seq", 18, 19, "state: seq"),
    ("seq", 20, 20, "the event is missing"),
    ("min_timestamp", lambda min_timestamp: min_timestamp + 1, 19, "state: min_timestamp"),
    ("min_timestamp", lambda min_timestamp: min_timestamp - 1, 19, "state: min_timestamp"),
    ("min_timestamp", lambda min_timestamp: min_timestamp + 1000, 19, "missing"),
    ("sequencer", flip, 19, "state: sequencer"),
    ("lifecycle", "paused", 19, "state: lifecycle"),
    ("migrated", True, 19, "state: migrated"),
    ("log", but(size=4), 19, "state: log"),
    ("bundle", None, 19, "state: bundle"),
    ("bundle", but(last_id=flip), 19, "state: bundle"),
    ("root", flip, 19, "state: root"),
    ("pending", lambda pending: {}, 19, "state: pending"),
]
LIES += [
    ("endpoints", lambda endpoints, *_: {(b"V", "view"): "x"}, None, f"endpoint of 56 as view: {WRONG}"),
]
LIES += [
    ("load", lambda state, *_, n=name, c=change: but(**{n: c})(state), seq, what) for name, change, seq, what in STATES
]


@pytest.mark.parametrize(("method", "change", "seq", "what"), LIES, ids=[f"{i}-{lie[0]}" for i, lie in enumerate(LIES)])
def test_an_answer_that_is_not_what_the_log_gives(method: str, change: Change, seq: int | None, what: str) -> None:
    store = MemoryStore()
    life = live(Host(store))
    honest = getattr(store, method)
    setattr(store, method, lambda *args: change(honest(*args), *args))
    with pytest.raises(Difference) as caught:
        check_enclave(store, life, NODE.public, nothing)
    assert (caught.value.enclave, caught.value.seq) == (life, seq)
    assert what in caught.value.what
    assert life.hex() in str(caught.value)
    assert seq is None or f"seq {seq}: " in str(caught.value)


# SQLite: each column of each table


def other(head: bytes, field: str) -> bytes:
    """JSON with another first digit or letter in one field."""
    at = re.search(rf'"{field}":[\["]*'.encode(), head).end()
    return head[:at] + (b"2" if head[at : at + 1] == b"1" else b"1") + head[at + 1 :]


class Damaged:
    """A store's file, to be damaged by SQL and checked."""

    def __init__(self, path: Path, names: dict[str, bytes]) -> None:
        self.path, self.names = path, names

    def run(self, sql: str) -> None:
        """`{life}` and so on are numbers of enclaves, `k(seq)` is the key of an event of `life`."""
        db = sqlite3.connect(self.path, isolation_level=None)
        numbers = {enclave: e for e, enclave in db.execute("SELECT e, enclave FROM enclaves")}
        of = {name.replace(" ", "_"): numbers[enclave] for name, enclave in self.names.items()}
        db.create_function("k", 1, lambda seq: of["life"] << 40 | seq)
        db.create_function("flip", 2, lambda blob, at: blob[:at] + flip(blob[at:]))
        db.create_function("other", 2, other)
        db.create_function("runs", 3, lambda *run: encode(([run], [])))
        db.create_function("notice", 3, lambda e, seq, n: encode(([], [(e, seq, {"message": n})])))
        db.executescript(sql.format(**of))
        changes = db.total_changes
        db.close()
        assert changes > 0, "the SQL damages nothing"

    def check(self) -> Report:
        store = SqliteStore(self.path)
        try:
            return check(store)
        finally:
            store.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """A sound store with one enclave of each kind, and ids both in their index and on their way there."""
    path = tmp_path_factory.mktemp("fsck") / "enc.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "GENERATION", 16)
        patch.setattr(ids, "STRIDE", 1)
        store = SqliteStore(path)
        names = fill(Host(store))
        store.close()
    return Damaged(path, names)


@pytest.fixture
def damaged(filled: Damaged, tmp_path: Path) -> Damaged:
    shutil.copy(filled.path, tmp_path / "enc.db")
    return Damaged(tmp_path / "enc.db", filled.names)


def test_the_store_to_be_damaged_is_clean_and_every_table_has_rows(damaged: Damaged) -> None:
    assert damaged.check().differences == []
    with closing(sqlite3.connect(damaged.path)) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        empty = [table for table in tables if not db.execute(f"SELECT 1 FROM {table}").fetchone()]
    assert empty == []


ROW = "auto_delete, target, updated_by, content_hash, head, content FROM events WHERE k = k(9)"
COPY = "SELECT {at}, c, from8, hash8, exp, timestamp, " + ROW
ROOT = "e = {life} AND hash = (SELECT state_hash FROM bundles WHERE e = {life} AND i = 4)"
SWAP = "UPDATE events SET k = CASE k WHEN -k(9) THEN k(10) ELSE k(9) END WHERE k < 0"
VERA = f"identity = x'{pub('vera')}' AND url = '{URL}'"
OF_VERA = f"q = (SELECT q FROM queues WHERE {VERA})"
WAITS = f"push_seq = 4 AND {OF_VERA}"
NONE, LOG = "a row without an enclave", "not what the log implies"

# Enclave (none: the store), seq, part of the message, SQL
DAMAGE: list[tuple[str, int | None, str, str]] = [
    ("life", 19, "clock", "UPDATE node SET clock = clock - 3000"),
    ("", None, "the number of enclaves", "UPDATE node SET enclaves = enclaves + 1"),
    ("", None, f"tags: {NONE}", "UPDATE enclaves SET e = 1000 WHERE e = {life}"),
    ("life", None, "the store has no such enclave", "UPDATE enclaves SET e = 1000 WHERE e = {life}"),
    ("life", 0, f"manifest: {LOG}", "UPDATE enclaves SET manifest = manifest || ' ' WHERE e = {life}"),
    ("life", None, "cannot be read", "UPDATE enclaves SET manifest = 'x' WHERE e = {life}"),
    ("life", 19, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = 5 WHERE e = {life}"),
    ("terminated", 2, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = NULL WHERE e = {terminated}"),
    ("terminated", 2, f"terminated_at: {LOG}", "UPDATE enclaves SET terminated_at = 5 WHERE e = {terminated}"),
    ("purged", None, "terminated_at is missing", "UPDATE enclaves SET terminated_at = NULL WHERE e = {purged}"),
    ("life", None, "purged, but not terminated", "UPDATE enclaves SET purged = 1 WHERE e = {life}"),
    ("", None, "the number of enclaves", "UPDATE enclaves SET purged = 1 WHERE e = {terminated}"),
    ("terminated", None, "purged, but rows of kinds are left", "UPDATE enclaves SET purged = 2 WHERE e = {terminated}"),
    ("purged", 0, "the event is missing", "UPDATE enclaves SET purged = 0 WHERE e = {purged}"),
    ("", None, "the number of enclaves", "DELETE FROM enclaves WHERE e = {life}"),
    ("", None, f"states: {NONE}", "DELETE FROM enclaves WHERE e = {life}"),
    ("", None, "the number of enclaves", "INSERT INTO enclaves VALUES (1000, zeroblob(32), '', NULL, 0, NULL)"),
    # states
    ("life", None, "the store has no such enclave", "UPDATE states SET e = 1000 WHERE e = {life}"),
    ("", None, f"states: {NONE}", "UPDATE states SET e = 1000 WHERE e = {life}"),
    ("life", 19, f"state: seq: {LOG}", "UPDATE states SET state = flip(state, 1) WHERE e = {life}"),
    ("life", None, "cannot be read", "UPDATE states SET state = x'' WHERE e = {life}"),
    ("life", 19, f"states.deadline: {LOG}", "UPDATE states SET deadline = deadline + 1 WHERE e = {life}"),
    ("life", 19, f"states.deadline: {LOG}", "UPDATE states SET deadline = NULL WHERE e = {life}"),
    ("idle", 0, f"states.deadline: {LOG}", "UPDATE states SET deadline = 5 WHERE e = {idle}"),
    ("purged", None, "states.deadline is left", "UPDATE states SET deadline = 5 WHERE e = {purged}"),
    ("life", None, "the store has no such enclave", "DELETE FROM states WHERE e = {life}"),
    ("", None, f"states: {NONE}", "INSERT INTO states VALUES (1000, x'', NULL)"),
    # kinds
    ("life", 10, f"events.c: {LOG}", "UPDATE kinds SET c = 1000 WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        10,
        "kinds: the event's row is missing",
        "UPDATE kinds SET e = 1000 WHERE e = {life} AND type = 'reaction'",
    ),
    ("", None, f"kinds: {NONE}", "UPDATE kinds SET e = 1000 WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        10,
        "kinds: the event's row is missing",
        "UPDATE kinds SET type = 'x' WHERE e = {life} AND type = 'reaction'",
    ),
    ("life", 10, "kinds: the event's row is", "UPDATE kinds SET subject = 'x' WHERE e = {life} AND type = 'reaction'"),
    (
        "life",
        3,
        "kinds: the event's row is missing",
        "UPDATE kinds SET subject = 'x' WHERE e = {life} AND type = 'Update'",
    ),
    ("life", None, "kinds: message/message", "UPDATE kinds SET live = 9 WHERE e = {life} AND type = 'message'"),
    ("life", None, "kinds: message/message", "UPDATE kinds SET total = live WHERE e = {life} AND type = 'message'"),
    ("life", 10, "kinds: the event's row is missing", "DELETE FROM kinds WHERE e = {life} AND type = 'reaction'"),
    ("life", None, "kinds: new/new", "INSERT INTO kinds VALUES (1000, {life}, 'new', 'new', 0, 0)"),
    ("", None, f"kinds: {NONE}", "INSERT INTO kinds VALUES (1000, 1000, 'new', 'new', 0, 0)"),
    # events
    ("life", 9, "the event is missing", "UPDATE events SET k = k(100) WHERE k = k(9)"),
    ("life", 19, "the event is missing", "UPDATE events SET k = k(10000) WHERE k = k(19)"),
    ("life", 9, f"events.c: {LOG}", "UPDATE events SET c = c + 1 WHERE k = k(9)"),
    ("life", 9, f"status: {LOG}", "UPDATE events SET c = -c WHERE k = k(9)"),
    ("life", 5, "tags: a row is missing", "UPDATE events SET c = -c WHERE k = k(5)"),
    ("life", 9, f"events.from8: {LOG}", "UPDATE events SET from8 = from8 + 1 WHERE k = k(9)"),
    ("life", 9, "not found by its commit's hash", "UPDATE events SET hash8 = hash8 + 1 WHERE k = k(9)"),
    ("life", 9, "not found by its commit's hash", "UPDATE events SET exp = exp + 1 WHERE k = k(9)"),
    ("life", 9, f"events.timestamp: {LOG}", "UPDATE events SET timestamp = timestamp + 1 WHERE k = k(9)"),
    ("life", 18, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = auto_delete + 1 WHERE k = k(18)"),
    ("life", 18, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = NULL WHERE k = k(18)"),
    ("soon gone", 2, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = {soon_gone} << 40 | 2"),
    ("life", 6, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = k(6)"),
    ("life", 19, f"events.auto_delete: {LOG}", "UPDATE events SET auto_delete = 5 WHERE k = k(19)"),
    ("life", 4, f"events.target: {LOG}", "UPDATE events SET target = target + 1 WHERE k = k(4)"),
    ("life", 4, f"events.target: {LOG}", "UPDATE events SET target = NULL WHERE k = k(4)"),
    ("life", 8, f"events.target: {LOG}", "UPDATE events SET target = k(5) WHERE k = k(8)"),
    ("life", 2, f"status: {LOG}", "UPDATE events SET updated_by = flip(updated_by, 0) WHERE k = k(2)"),
    ("life", 2, f"status: {LOG}", "UPDATE events SET updated_by = NULL WHERE k = k(2)"),
    ("life", 5, f"events.updated_by: {LOG}", "UPDATE events SET updated_by = zeroblob(32) WHERE k = k(5)"),
    ("life", 9, f"status: {LOG}", "UPDATE events SET updated_by = zeroblob(32) WHERE k = k(9)"),
    *[
        ("life", 9, what, f"UPDATE events SET head = other(head, '{field}') WHERE k = k(9)")
        for field, what in [
            ("id", "INVALID_HASH: id"),
            ("hash", "INVALID_HASH: hash"),
            ("from", "INVALID_HASH: hash"),
            ("sequencer", "INVALID_SIGNATURE: seq_sig"),
            ("sig", "INVALID_SIGNATURE"),
            ("seq_sig", "INVALID_SIGNATURE: seq_sig"),
            ("enclave", "an event of another enclave"),
            ("type", "INVALID_HASH: hash"),
            ("seq", "another event is in its place"),
            ("timestamp", "INVALID_SIGNATURE: seq_sig"),
            ("exp", "INVALID_HASH: hash"),
            ("tags", "INVALID_HASH: hash"),
        ]
    ],
    ("life", 10, "cannot be read", "UPDATE events SET head = other(head, 'alg') WHERE k = k(10)"),
    ("life", 9, "cannot be read", "UPDATE events SET head = substr(head, 2) WHERE k = k(9)"),
    (
        "life",
        9,
        f"events.head: {LOG}",
        "UPDATE events SET head = CAST(replace(head, ':9,', ': 9,') AS BLOB) WHERE k = k(9)",
    ),
    ("life", 9, f"events.content_hash: {LOG}", "UPDATE events SET content_hash = flip(content_hash, 0) WHERE k = k(9)"),
    ("life", 5, "INVALID_HASH", "UPDATE events SET content_hash = flip(content_hash, 0) WHERE k = k(5)"),
    ("life", 9, "INVALID_HASH: hash", "UPDATE events SET content = content || '.' WHERE k = k(9)"),
    ("life", 9, "content: erased without", "UPDATE events SET content = NULL WHERE k = k(9)"),
    ("life", 1, "a Move is never erased", "UPDATE events SET content = NULL WHERE k = k(1)"),
    ("life", 9, "cannot be read", "UPDATE events SET content = CAST(x'ff' AS TEXT) WHERE k = k(9)"),
    ("life", 2, "event 3 removed it", "UPDATE events SET content = 'first words' WHERE k = k(2)"),
    ("life", 3, "event 4 removed it", "UPDATE events SET content = 'second words' WHERE k = k(3)"),
    ("life", 5, "event 8 removed it", "UPDATE events SET content = 'regretted' WHERE k = k(5)"),
    ("life", 9, "the event is missing", "DELETE FROM events WHERE k = k(9)"),
    ("life", 0, "the event is missing", "DELETE FROM events WHERE k = k(0)"),
    ("life", 19, "the event is missing", "DELETE FROM events WHERE k = k(19)"),
    ("life", 0, "the event is missing", "DELETE FROM events WHERE k BETWEEN k(0) AND k(19)"),
    ("life", 20, "another event is in its place", f"INSERT INTO events {COPY.replace('{at}', 'k(20)')}"),
    ("life", 9000, "beyond the end of the log", f"INSERT INTO events {COPY.replace('{at}', 'k(9000)')}"),
    ("", None, f"events: {NONE}", f"INSERT INTO events {COPY.replace('{at}', '1000 << 40')}"),
    ("purged", None, "rows of events are left", f"INSERT INTO events {COPY.replace('{at}', '{purged} << 40')}"),
    ("life", 9, "the event is missing", f"UPDATE events SET k = -k WHERE k IN (k(9), k(10)); {SWAP}"),
    # ids and recent_ids
    ("moved in", 0, "not found by its id", "UPDATE ids SET id8 = id8 + 1 WHERE k = {moved_in} << 40"),
    ("", None, "ids: a row without an event", "UPDATE ids SET id8 = id8 + 1 WHERE k = k(0)"),
    ("moved in", 0, "not found by its id", "UPDATE ids SET k = k + 1 WHERE k = {moved_in} << 40"),
    ("moved in", 0, "not found by its id", "DELETE FROM ids WHERE k = {moved_in} << 40"),
    ("", None, "ids: a row without an event", "INSERT INTO ids VALUES (5, k(9))"),
    ("", None, "ids: a row without an event", "INSERT INTO ids VALUES (5, k(90))"),
    ("life", 19, "not found by its id", "UPDATE recent_ids SET id = flip(id, 31) WHERE k = k(19)"),
    ("life", 19, "not found by its id", "UPDATE recent_ids SET k = k(18) WHERE k = k(19)"),
    ("life", 19, "not found by its id", "DELETE FROM recent_ids WHERE k = k(19)"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), k(9))"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), k(90))"),
    ("", None, "recent_ids: a row without an event", "INSERT INTO recent_ids VALUES (1000, zeroblob(32), 1000 << 40)"),
    # tags
    ("life", 9, "tags: a row is missing", "UPDATE tags SET e = 1000 WHERE e = {life} AND seq = 9"),
    ("", None, f"tags: {NONE}", "UPDATE tags SET e = 1000 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "UPDATE tags SET t8 = t8 + 1 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "UPDATE tags SET seq = 90 WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: a row is missing", "DELETE FROM tags WHERE e = {life} AND seq = 9"),
    ("life", 9, "tags: there are too many rows", "INSERT INTO tags VALUES ({life}, 5, 9)"),
    ("life", 90, "tags: there are too many rows", "INSERT INTO tags VALUES ({life}, 5, 90)"),
    ("life", 5, "too many rows", "INSERT INTO tags SELECT e, t8, 5 FROM tags WHERE e = {life} AND seq = 9"),
    ("purged", None, "rows of tags are left", "INSERT INTO tags VALUES ({purged}, 5, 0)"),
    # pending
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET e = 1000 WHERE e = {life}"),
    ("", None, f"pending: {NONE}", "UPDATE pending SET e = 1000 WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET key = flip(key, 20) WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "UPDATE pending SET value = zeroblob(32) WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "DELETE FROM pending WHERE e = {life}"),
    ("life", 19, f"state: pending: {LOG}", "INSERT INTO pending VALUES ({life}, zeroblob(21), NULL)"),
    ("purged", None, "rows of pending are left", "INSERT INTO pending VALUES ({purged}, zeroblob(21), NULL)"),
    # tree_nodes
    ("life", 4, "missing", "UPDATE tree_nodes SET e = 1000 WHERE e = {life}"),
    ("", None, f"tree_nodes: {NONE}", "UPDATE tree_nodes SET e = 1000 WHERE e = {life}"),
    ("life", 17, "missing", f"UPDATE tree_nodes SET hash = flip(hash, 0) WHERE {ROOT}"),
    ("life", 17, LOG, f"UPDATE tree_nodes SET record = flip(record, 30) WHERE {ROOT}"),
    ("life", 17, "missing", f"DELETE FROM tree_nodes WHERE {ROOT}"),
    ("life", None, "tree_nodes: there are too many", "INSERT INTO tree_nodes VALUES ({life}, zeroblob(32), x'00')"),
    ("purged", None, "rows of tree_nodes are left", "INSERT INTO tree_nodes VALUES ({purged}, zeroblob(32), x'00')"),
    # log_nodes
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET e = 1000 WHERE e = {life} AND level = 0 AND i = 2"),
    ("", None, f"log_nodes: {NONE}", "UPDATE log_nodes SET e = 1000 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET level = 9 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 11, "log node 0, 2: missing", "UPDATE log_nodes SET i = 9 WHERE e = {life} AND level = 0 AND i = 2"),
    ("life", 13, f"log node 2, 0: {LOG}", "UPDATE log_nodes SET hash = flip(hash, 9) WHERE e = {life} AND level = 2"),
    ("life", 13, "log node 1, 1: missing", "DELETE FROM log_nodes WHERE e = {life} AND level = 1 AND i = 1"),
    ("life", None, "log_nodes: there are too many", "INSERT INTO log_nodes VALUES ({life}, 0, 5, zeroblob(32))"),
    ("purged", None, "rows of log_nodes are left", "INSERT INTO log_nodes VALUES ({purged}, 0, 5, zeroblob(32))"),
    # bundles
    ("life", 10, "bundle 2: missing", "UPDATE bundles SET e = 1000 WHERE e = {life} AND i = 2"),
    ("", None, f"bundles: {NONE}", "UPDATE bundles SET e = 1000 WHERE e = {life} AND i = 2"),
    ("life", 13, "bundle 4: missing", "UPDATE bundles SET i = 7 WHERE e = {life} AND i = 4"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET first_seq = 6 WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET count = 4 WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET events_root = flip(events_root, 0) WHERE e = {life} AND i = 1"),
    ("life", 5, f"bundle 1: {LOG}", "UPDATE bundles SET state_hash = flip(state_hash, 0) WHERE e = {life} AND i = 1"),
    ("life", 5, "head of size 2: sth", "UPDATE bundles SET head = flip(head, 100) WHERE e = {life} AND i = 1"),
    ("life", 9, "cannot be read", "UPDATE bundles SET head = x'00' WHERE e = {life} AND i = 1"),
    ("life", 5, f"head of size 2: {LOG}", "UPDATE bundles SET head = (SELECT head FROM bundles WHERE e = {life})"),
    ("life", 5, "bundle 1: missing", "DELETE FROM bundles WHERE e = {life} AND i = 1"),
    ("idle", 0, "bundle 0: missing", "DELETE FROM bundles WHERE e = {idle}"),
    (
        "life",
        19,
        "bundle 5: must not",
        "INSERT INTO bundles SELECT e, 5, 18, 2, x'', x'', head FROM bundles WHERE e = {life} LIMIT 1",
    ),
    (
        "life",
        None,
        "bundles: there are",
        "INSERT INTO bundles SELECT e, 50, 90, 2, x'', x'', head FROM bundles WHERE e = {life} AND i = 4",
    ),
    ("purged", None, "rows of bundles are left", "INSERT INTO bundles VALUES ({purged}, 0, 0, 1, x'', x'', x'')"),
    ("purged", None, "rows of kinds are left", "INSERT INTO kinds VALUES (1000, {purged}, 'new', 'new', 0, 0)"),
    # records
    *[
        ("registry", 6, "record of enclave", f"UPDATE records SET {change} WHERE kind = 'enclave'")
        for change in (
            "entry = NULL",
            "holder = flip(holder, 0)",
            "proved_size = proved_size + 1",
            "moved_at = moved_at + 1",
            "sequencer = flip(sequencer, 0)",
            "manifest = flip(manifest, 0)",
            "creator = flip(creator, 0)",
            "app = 'other'",
            "text = 'other'",
            "kind = 'node'",
            "key = flip(key, 31)",
        )
    ],
    ("registry", 6, "record of identity", "UPDATE records SET entry = zeroblob(32) WHERE kind = 'identity'"),
    ("registry", 6, "record of identity", "DELETE FROM records WHERE kind = 'identity'"),
    ("registry", 6, "record of node", "DELETE FROM records WHERE kind = 'node'"),
    (
        "registry",
        None,
        "records: there are too many",
        "INSERT INTO records SELECT e, kind, zeroblob(32), NULL, holder, 0, x'', -1, x'', x'', '', '' "
        "FROM records LIMIT 1",
    ),
    (
        "registry",
        6,
        "listing of enclave",
        "INSERT INTO records SELECT e, kind, zeroblob(32), x'00', holder, 0, x'', -1, x'', x'', '', '' FROM records "
        "WHERE kind = 'enclave' LIMIT 1",
    ),
    ("", None, f"records: {NONE}", "UPDATE records SET e = 1000"),
    (
        "purged",
        None,
        "rows of records are left",
        "INSERT INTO records VALUES ({purged}, 'node', x'', x'', x'', 0, x'', -1, x'', x'', '', '')",
    ),
    # charges
    ("", None, f"usage of {pub('dave')}", "UPDATE charges SET identity = flip(identity, 0) WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('bob')}: events", "UPDATE charges SET last_seq = 1 WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('dave')}: enclaves", "UPDATE charges SET first_seq = 1 WHERE e = {taken_in}"),
    ("", None, f"usage of {pub('dave')}", "DELETE FROM charges"),
    ("", None, f"charges: {NONE}", "UPDATE charges SET e = 1000"),
    ("purged", None, "rows of charges are left", "INSERT INTO charges VALUES ({purged}, 0, 1, x'')"),
    # usage
    ("", None, f"{pub('bob')}: events", "UPDATE usage SET identity = flip(identity, 0)"),
    ("", None, f"{pub('alice')}: enclaves", "UPDATE usage SET enclaves = enclaves + 1"),
    ("", None, f"{pub('alice')}: enclaves", "UPDATE usage SET enclaves = enclaves - 1"),
    ("", None, f"{pub('bob')}: events", "UPDATE usage SET events = events - 1"),
    ("", None, f"{pub('bob')}: bytes", "UPDATE usage SET bytes = 5"),
    ("", None, "cannot be read", "UPDATE usage SET events = 'x'"),
    ("", None, f"{pub('bob')}: events", "DELETE FROM usage"),
    ("", None, f"{'00' * 32}: enclaves", "INSERT INTO usage VALUES (zeroblob(32), 1, 0, 0)"),
    # endpoints
    ("pushed", None, f"as watch: {LOG}", f"UPDATE endpoints SET url = '{OTHER}' WHERE trait = 'watch'"),
    ("", None, "endpoints: a row without a queue", "UPDATE endpoints SET url = 'x' WHERE trait = 'watch'"),
    ("pushed", None, f"as ear: {LOG}", "UPDATE endpoints SET trait = 'ear' WHERE trait = 'watch'"),
    ("pushed", None, f"as watch: {LOG}", "UPDATE endpoints SET identity = flip(identity, 0) WHERE trait = 'watch'"),
    ("pushed", None, f"as watch: {LOG}", "DELETE FROM endpoints WHERE trait = 'watch'"),
    ("life", None, f"as watch: {LOG}", "UPDATE endpoints SET e = {life} WHERE trait = 'watch'"),
    ("", None, f"endpoints: {NONE}", "UPDATE endpoints SET e = 1000"),
    ("purged", None, "rows of endpoints are left", "INSERT INTO endpoints VALUES ({purged}, x'', 'x', 'x')"),
    # queues
    ("", None, "batches: a row without a queue", f"UPDATE queues SET q = 1000 WHERE {VERA}"),
    ("", None, "endpoints: a row without a queue", f"UPDATE queues SET identity = flip(identity, 0) WHERE {VERA}"),
    ("", None, "endpoints: a row without a queue", f"UPDATE queues SET url = 'x' WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET push_seq = push_seq + 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET push_seq = push_seq - 1 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET waiting = waiting + 1 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET waiting_events = 5 WHERE {VERA}"),
    ("", None, "its counts of batches", f"UPDATE queues SET dead = 0, forgotten = 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET delivered = delivered + 1 WHERE {VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE queues SET forgotten = forgotten + 1 WHERE {VERA}"),
    ("", None, "delivered: more batches are stored", f"UPDATE queues SET delivered = 0, forgotten = 2 WHERE {VERA}"),
    ("", None, "batches: a row without a queue", f"DELETE FROM queues WHERE {VERA}"),
    ("", None, "outbox: a row for queue", f"DELETE FROM queues WHERE {VERA}"),
    ("", None, "push_seq: not", "INSERT INTO queues (identity, url, push_seq) VALUES (x'', 'x', 1)"),
    # audiences and outbox
    ("", None, "outbox 1: cannot be read", "UPDATE audiences SET a = a + 1000"),
    ("", None, "outbox 1: cannot be read", "UPDATE audiences SET members = x'00'"),
    (
        "",
        None,
        "outbox: a row for queue 99",
        "UPDATE audiences SET members = x'92916390'; UPDATE outbox SET types = NULL",
    ),
    ("", None, "outbox 1: cannot be read", "DELETE FROM audiences"),
    ("", None, f"outbox: {NONE}", "UPDATE outbox SET e = 1000"),
    ("", None, "outbox 1: refers to an enclave that does not exist", "UPDATE outbox SET e = 1000"),
    ("", None, "outbox: an event twice", "UPDATE outbox SET first_seq = first_seq - 1"),
    ("", None, "outbox 1: refers to a missing event", "UPDATE outbox SET first_seq = first_seq + 1"),
    ("", None, "outbox 1: cannot be read", "UPDATE outbox SET a = 1000"),
    ("", None, "outbox 1: cannot be read", "UPDATE outbox SET sizes = x'c0'"),
    ("", None, "outbox 1: refers to no event", "UPDATE outbox SET sizes = x'90'"),
    ("", None, "outbox 1: refers to a missing event", "UPDATE outbox SET sizes = x'9401010101'"),
    ("", None, "outbox 1: type_seq: missing", "UPDATE outbox SET types = NULL"),
    ("", None, "outbox 1: type_seq: more events", "UPDATE outbox SET types = x'81a76d6573736167650e'"),
    ("", None, "outbox 1: type_seq: more events", "UPDATE outbox SET types = x'81a76d65737361676500'"),
    ("purged", None, "rows of outbox are left", "UPDATE outbox SET e = {purged}"),
    # batches
    ("", None, "batches: a row without a queue", f"UPDATE batches SET q = 1000 WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "its counts of batches", f"UPDATE batches SET push_seq = 9, q = 1 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE batches SET push_seq = 9 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "push_seq: not the sum", f"UPDATE batches SET push_seq = 0 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "batch 2: an event twice", f"UPDATE batches SET push_seq = 1 WHERE push_seq = 5 AND {OF_VERA}"),
    ("", None, "batch 4: cannot be read", f"UPDATE batches SET runs = x'00' WHERE push_seq = 4 AND {OF_VERA}"),
    ("", None, "batch 4: events: wrong count", f"UPDATE batches SET runs = x'929090' WHERE {WAITS}"),
    (
        "",
        None,
        "batch 4: refers to a missing event",
        f"UPDATE batches SET runs = runs({{pushed}}, 90, 2) WHERE {WAITS}",
    ),
    (
        "",
        None,
        "batch 4: refers to a missing event",
        f"UPDATE batches SET runs = runs({{pushed}}, 17, 2) WHERE {WAITS}",
    ),
    ("", None, "batch 4: refers to an enclave that", f"UPDATE batches SET runs = runs(1000, 1, 2) WHERE {WAITS}"),
    ("", None, "batch 4: an event twice", f"UPDATE batches SET runs = runs({{pushed}}, 8, 2) WHERE {WAITS}"),
    ("", None, "batch 4: events: wrong", f"UPDATE batches SET runs = runs({{pushed}}, 11, 1) WHERE {WAITS}"),
    (
        "",
        None,
        "batch 1: refers to a missing event",
        "UPDATE batches SET runs = notice({pushed}, 90, 1) WHERE NOT " + OF_VERA,
    ),
    (
        "",
        None,
        "batch 1: type_seq: more events",
        "UPDATE batches SET runs = notice({pushed}, 9, 99) WHERE NOT " + OF_VERA,
    ),
    ("", None, "its counts of batches", f"UPDATE batches SET events = 3 WHERE {WAITS}"),
    ("", None, "batch 3: events: wrong", f"UPDATE batches SET events = 3 WHERE push_seq = 3 AND {OF_VERA}"),
    ("", None, "its counts of batches", f"UPDATE batches SET state = 1, settled_at = 5 WHERE {WAITS}"),
    ("", None, "batch 2: neither", f"UPDATE batches SET state = 3 WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "batch 2: neither", f"UPDATE batches SET settled_at = NULL WHERE push_seq = 2 AND {OF_VERA}"),
    ("", None, "batch 4: neither", f"UPDATE batches SET settled_at = 5 WHERE {WAITS}"),
    ("", None, "its counts of batches", f"DELETE FROM batches WHERE {WAITS}"),
    ("", None, "its counts of batches", f"DELETE FROM batches WHERE push_seq = 3 AND {OF_VERA}"),
]


@pytest.mark.parametrize(("name", "seq", "what", "sql"), DAMAGE, ids=[sql for *_, sql in DAMAGE])
def test_whatever_is_done_to_a_row_is_found(damaged: Damaged, name: str, seq: int | None, what: str, sql: str) -> None:
    damaged.run(sql)
    enclave = damaged.names[name] if name else b""
    found = damaged.check().differences
    assert [d for d in found if (d.enclave, d.seq) == (enclave, seq) and what in d.what], [str(d) for d in found]


INDEXES = [
    ("events_kind", "events", "c", "k = k(9)"),
    ("events_author", "events", "from8", "k = k(9)"),
    ("events_hash", "events", "hash8", "k = k(9)"),
    ("events_auto_delete", "events", "auto_delete", "k = k(18)"),
    ("events_target", "events", "target", "k = k(4)"),
    ("bundles_first_seq", "bundles", "first_seq", "e = {life} AND i = 1"),
    ("states_deadline", "states", "deadline", "e = {life}"),
    ("enclaves_terminated", "enclaves", "terminated_at", "e = {terminated}"),
    ("batches_waiting", "batches", "next_try", WAITS),
    ("batches_oldest", "batches", "made_at", WAITS),
    ("batches_settled", "batches", "settled_at", f"push_seq = 2 AND {OF_VERA}"),
    ("batches_dead", "batches", "q", "state = 2"),
]


@pytest.mark.parametrize(("index", "table", "column", "where"), INDEXES, ids=[index for index, *_ in INDEXES])
def test_an_index_that_disagrees_with_its_table(
    damaged: Damaged, index: str, table: str, column: str, where: str
) -> None:
    """The column is changed with the index and changed back without it: every row is right, and the index is not."""
    damaged.run(f"UPDATE {table} SET {column} = {column} + 1 WHERE {where}")
    with closing(sqlite3.connect(damaged.path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        (row,) = db.execute("SELECT * FROM sqlite_master WHERE name = ?", (index,)).fetchall()
        db.execute("DELETE FROM sqlite_master WHERE name = ?", (index,))
    damaged.run(f"UPDATE {table} SET {column} = {column} - 1 WHERE {where}")
    with closing(sqlite3.connect(damaged.path, isolation_level=None)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    found = damaged.check().differences
    assert [d for d in found if d.enclave == b"" and "integrity_check" in d.what and index in d.what]


def test_a_file_with_a_page_that_is_none(damaged: Damaged) -> None:
    size = damaged.path.stat().st_size
    with damaged.path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 4096)
    found = damaged.check().differences
    assert "integrity_check" in found[0].what
    assert found[0].enclave == b""


def test_a_purge_that_has_begun_may_leave_rows(damaged: Damaged) -> None:
    store = SqliteStore(damaged.path)
    try:
        assert not store.purge(damaged.names["terminated"], limit=2)
        assert check(store).differences == []
    finally:
        store.close()


# What is asked of many enclaves, and beside the log


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
        store.find = lambda *args, change=change: change(honest(*args), *args)
        with pytest.raises(Difference, match=f"seq {seq}: a search by type does not find it"):
            check_enclave(store, life, NODE.public, nothing)


@pytest.mark.parametrize("name", ["enclaves", "events", "bytes"])
@pytest.mark.parametrize("more", [1, -1])
def test_without_a_purge_usage_is_known_exactly(name: str, more: int) -> None:
    store = MemoryStore()
    host = Host(store)
    host.send(host.found(**group("plain")), "alice", "message", "ünï")
    assert check(store).differences == []
    honest = store.usage
    store.usage = lambda identity: but(**{name: getattr(honest(identity), name) + more})(honest(identity))
    (found,) = check(store).differences
    assert (found.enclave, found.seq) == (b"", None)
    assert f"usage of {pub('alice')}: {name}" in found.what


def test_of_an_erased_content_the_size_is_not_known() -> None:
    store = MemoryStore()
    live(Host(store))
    honest = store.usage
    store.usage = lambda identity: but(bytes=lambda size: size + 1)(honest(identity))
    assert check(store).differences == []
    store.usage = lambda identity: but(bytes=0)(honest(identity))
    assert len(check(store).differences) == 2


def test_what_a_damaged_log_cannot_tell_is_not_held_against_usage() -> None:
    store = MemoryStore()
    host = Host(store)
    first, _ = host.found(**group("first")), host.found(**group("second"))
    honest = store.events
    store.events = lambda enclave, *args: [] if enclave == first else honest(enclave, *args)
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
    check_enclave(store, enclave, NODE.public, nothing)
    honest = getattr(store, method)
    setattr(store, method, lambda *args: change(honest(*args), *args))
    with pytest.raises(Difference, match=what):
        check_enclave(store, enclave, NODE.public, nothing)


def test_a_log_in_which_the_nodes_key_has_no_part() -> None:
    store = MemoryStore()
    life = live(Host(store))
    with pytest.raises(Difference, match="this node's key does not occur in the log"):
        check_enclave(store, life, person("node2").public, nothing)


def test_a_log_that_was_moved_here_and_not_gone_on_with() -> None:
    """This node signed its heads, and its own clock need not have shown another's times."""
    store, world = MemoryStore(), World(group("moved"), node="node2")
    world.send("alice", "Migrate", world.migrate("node"))
    keep(store, world.events, "node")
    store.clock = lambda: 0
    check_enclave(store, world.state.enclave, NODE.public, nothing)


def moved_on() -> World:
    """A log that this node began (0 and 1), node2 went on with (2), and node3 took by force (3)."""
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
        check_enclave(store, world.state.enclave, NODE.public, nothing)
        return
    with pytest.raises(Difference, match=what) as caught:
        check_enclave(store, world.state.enclave, NODE.public, nothing)
    assert caught.value.seq == seq


@pytest.mark.parametrize(("signer", "is_clean"), [("node2", True), ("node3", False), ("node", False)])
def test_a_head_of_a_bundle_that_the_clock_closed_elsewhere(signer: str, is_clean: bool) -> None:
    store, world = MemoryStore(), moved_on()
    state = keep(store, world.events[:3], "node")
    transition = seal(state, state.min_timestamp + 1000, EnclaveReader(store, state.enclave))
    assert transition is not None
    log = transition.state.log
    head = sign_head(person(signer), state.enclave, transition.state.min_timestamp, log.size, log.root())
    store.write([Step(transition=transition, heads=(head,))], transition.state.min_timestamp)
    if is_clean:
        check_enclave(store, state.enclave, NODE.public, nothing)
        return
    with pytest.raises(Difference, match="head") as caught:
        check_enclave(store, state.enclave, NODE.public, nothing)
    assert caught.value.seq == 2


def test_a_head_of_another_enclave_of_the_same_node() -> None:
    store = MemoryStore()
    host = Host(store)
    life = live(host)
    honest = store.head
    store.head = lambda enclave, size=None: (
        (head := honest(enclave, size)) and sign_head(NODE, bytes(32), head.t, head.ts, head.r)
    )
    with pytest.raises(Difference, match="bound_sig"):
        check_enclave(store, life, NODE.public, nothing)


def test_a_bundle_that_is_overdue_and_not_sealed_is_no_difference() -> None:
    store = MemoryStore()
    host = Host(store)
    life = live(host)
    store.write([], host.now + 10_000)
    check_enclave(store, life, NODE.public, nothing)


def test_a_store_that_cannot_be_asked() -> None:
    class Silent(MemoryStore):
        def enclaves(self) -> Iterator[bytes]:
            raise Unavailable("no disk")

    with pytest.raises(Unavailable):
        check(Silent())
