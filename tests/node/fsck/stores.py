"""Stores with logs of every kind, to be checked and damaged."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.msgpack import encode
from msgspec.structs import replace

from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.filter import Filter
from enc.core.log.withheld import sign_withheld
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Event, Receipt
from enc.core.rules.content import revised_id
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head
from enc.node.fsck import Report, check_store
from enc.node.store.events import SearchItem
from enc.node.store.push_interface import DeliveryResult
from enc.node.store.restrictions import Restriction
from enc.node.store.spent_requests import SpentRequest
from enc.node.store.sqlite import event_index
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.node.store.store_interface import ReadRights, Store
from tests.core.registry_world import REGISTRY, TEAM, House, identity_entry, node_entry
from tests.core.world import GROUP, World, give, move, person, pub
from tests.node.moving import take_in
from tests.node.push_host import OTHER, create, listen, say, spread
from tests.node.store_host import NODE, Host


def group(name: str) -> dict[str, Any]:
    """Return a group's manifest with small bundles; another name makes another enclave."""
    return {**GROUP, "bundle": {"size": 5, "timeout": 1000}, "meta": {"description": name}}


def live(host: Host) -> bytes:
    """Write a long history: nearly every type, contents erased in every way, bundles closed by size, event and clock.

    Events by seq: 2 is updated twice, 5 deleted, 6 and its Update 7 erased by time, 9 has unusual tags.
    """
    life = host.create(**group("life"))
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
    """Add a log that another node kept until this one took it over by force, and signed heads for its events."""
    world = World(group("moved in"), node="node2")
    world.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    for i in range(5):
        world.send("bob", "message", f"elsewhere {i}")
    world.send("alice", "Migrate", world.migrate("node"), node="node", takeover=True)
    world.send("bob", "message", "here")
    keep(store, world.events, "node")
    return world.state.enclave


def taken_in(store: Store) -> bytes:
    """Add a log that came whole, by a peaceful Migrate, and is charged to its owner; one content was erased."""
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
    enclave = host.create(**group("moved away"))
    host.send(enclave, "alice", "message", "before")
    replay = Replay()
    for event in host.store.events(enclave, 0, 10):
        replay.add(event)
    root = replay.checkpoint_root().hex()
    host.send(enclave, "alice", "Migrate", {"new_sequencer": pub("node2"), "prev_seq": 1, "ct_root": root})
    return enclave


def ended(host: Host, name: str) -> bytes:
    enclave = host.create(**group(name))
    host.send(enclave, "alice", "message", "before the end", ("k", "v"))
    host.send(enclave, "alice", "Terminate")
    return enclave


def purged_by_order(host: Host) -> bytes:
    """Add an enclave that the operator has purged while people wrote to it."""
    enclave = host.create(**group("purged by order"))
    for n in range(9):
        host.send(enclave, "alice", "message", f"{n}", ("k", "v"))
    host.store.purge_by_order(enclave, Restriction(kind="purge", target=enclave.hex(), made_at=host.now))
    while not host.store.purge(enclave, 5):
        pass
    host.sequencer.forget(enclave)
    return enclave


def soon_gone(host: Host) -> bytes:
    """Add an Update whose content is erased with its target's, and is still stored."""
    enclave = host.create(**group("soon gone"))
    event = host.send(enclave, "alice", "message", "one", ("auto-delete", str(host.now + 90_000)))
    host.send(enclave, "alice", "Update", "two", ("r", event.id.hex()))
    return enclave


def withheld(host: Host) -> bytes:
    """Add an enclave whose contents 1 and 2 are withheld and kept aside, and 3 is destroyed."""
    enclave = host.create(**group("withheld"))
    for text in ("unlawful", "soon gone", "worse"):
        event = host.send(enclave, "alice", "message", text, ("auto-delete", str(host.now + 90_000)))
        statement = sign_withheld(NODE, enclave, event.id, "court_order", host.now)
        host.store.withhold(enclave, event.id, statement, "case 12", keep=text != "worse")
    return enclave


def pushed(host: Host) -> bytes:
    """Add endpoints, batches in every state, and waiting events; vera is pushed all events, nick is notified of them.

    Of vera's five batches the first was delivered and removed, the second is delivered, the third dead.
    """
    enclave = create(host, "pushed")
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
    """Add two enclaves, one of them updated and sold; a node; an identity whose entry was deleted."""
    creation = build_manifest(person("alice"), compact_json(REGISTRY), host.now + 60_000)
    host.run(creation)
    houses = [House({**TEAM, "meta": {"n": n}}) for n in range(2)]
    for house in houses:
        house.talk()
        host.send(creation.enclave, "alice", "Reg_Enclave", house.entry(app="chat", desc="A house"))
    houses[0].transfer("alice", "bob")
    host.send(creation.enclave, "bob", "Reg_Enclave", houses[0].entry(owner_proof=houses[0].proof("bob"), app="blog"))
    host.send(creation.enclave, "node", "Reg_Node", node_entry("node"))
    gone = host.send(creation.enclave, "carol", "Reg_Identity", identity_entry("carol"))
    host.send(creation.enclave, "carol", "Delete", {"reason": "author"}, ("r", gone.id.hex()))
    return creation.enclave


def fill(host: Host) -> dict[str, bytes]:
    """Fill a store with one enclave of each kind; return their ids by name."""
    names = {"moved in": moved_in(host.store), "moved away": moved_away(host), "purged": ended(host, "purged")}
    names |= {"terminated": ended(host, "terminated"), "soon gone": soon_gone(host)}
    names["pushed"], names["withheld"] = pushed(host), withheld(host)
    names["idle"] = host.create(**group("one bundle, closed by the clock"))
    host.now += 5000
    host.run()
    while not host.store.purge(names["purged"]):
        pass
    names["purged by order"] = purged_by_order(host)
    names["registry"] = registry(host)
    names["taken in"] = taken_in(host.store)
    names["life"] = live(host)
    host.store.spend(SpentRequest(bytes(32), person("alice").public, host.now + 3_600_000), host.now)
    return names


def filled_file(path: Path) -> dict[str, bytes]:
    """Fill a new store at this path, with ids both in their index and still to be moved there; return the
    ids of its enclaves by name.
    """
    with pytest.MonkeyPatch.context() as patch, closing(SqliteStore(path)) as store:
        patch.setattr(event_index, "GENERATION", 16)
        patch.setattr(event_index, "STRIDE", 1)
        return fill(Host(store))


def ignore_progress(events: int) -> None:
    """Ignore the progress."""


def check(store: Store, enclaves: list[bytes] | None = None) -> Report:
    return check_store(store, NODE.public, enclaves, ignore_progress)


Change = Callable[..., Any]
"""A function of an honest answer and the arguments of the query; it returns another answer."""


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def but(**fields: Any) -> Callable[[Any], Any]:
    """Return a change that replaces fields; a callable gets the old value."""
    return lambda old: replace(old, **{k: v(getattr(old, k)) if callable(v) else v for k, v in fields.items()})


def never(answer: Any) -> None:
    """Return None in place of the answer."""


def asked(*question: Any, gives: Callable[[Any], Any]) -> Change:
    """Return a change of the answer to one query."""
    return lambda honest, enclave, *args: gives(honest) if args == question else honest


def event(seq: int, gives: Callable[[Any], Any]) -> Change:
    """Return a change of the answers about one event."""

    def change(honest: Any, enclave: bytes, *args: Any) -> Any:
        if isinstance(honest, list):
            return [e for e in (gives(e) if e.seq == seq else e for e in honest) if e]
        return gives(honest) if honest and getattr(honest, "event", honest).seq == seq else honest

    return change


def search(by: str, seq: int, gives: Callable[[Any], Any] = never) -> Change:
    """Return a change that affects one event in searches by this field."""

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


def other(head: bytes, field: str) -> bytes:
    """Return the JSON with another first digit or letter in one field."""
    found = re.search(rf'"{field}":[\["]*'.encode(), head)
    assert found is not None
    at = found.end()
    return head[:at] + (b"2" if head[at : at + 1] == b"1" else b"1") + head[at + 1 :]


class Damaged:
    """A store's file, to be damaged by SQL and checked."""

    def __init__(self, path: Path, names: dict[str, bytes]) -> None:
        self.path, self.names = path, names

    def run(self, sql: str) -> None:
        """Run SQL in which `{life}` etc. are numbers of enclaves and `k(seq)` is the key of an event of `life`."""
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
