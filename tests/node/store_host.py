"""A sequencer over a store without threads, and logs written by hand."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from enc.core.errors import EncError
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize
from enc.core.log.filter import parse_filter
from enc.core.log.receipt import check_receipt
from enc.core.machine.enclave import apply_manifest, judge_manifest
from enc.core.machine.state import Transition
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event, Receipt
from enc.core.rules.policy_types import Effects, ReadScope
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.steps import Step
from enc.node.store.store_interface import ReadRights, Store
from tests.core.world import START, person, pub

NODE = person("node")
MANIFEST: dict[str, Any] = {
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
    """A store with a sequencer, driven by hand."""

    def __init__(self, store: Store) -> None:
        self.store, self.now, self.outcomes, self.steps = store, START, list[CommitOutcome](), list[Step]()
        self.sequencer = Sequencer(
            store, NODE, lambda: self.now, deliver=self.outcomes.extend, publish=self.steps.extend
        )

    def create(self, name: str = "alice", **changes: Any) -> bytes:
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


def downgrade_to_5(path: Path) -> None:
    """Turn a closed store into one of version 5 of the schema."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(
            "DROP TRIGGER withheld_ended; DROP TRIGGER withheld_purged; DROP TABLE withheld_contents; "
            "DROP INDEX events_withheld; ALTER TABLE events DROP COLUMN withheld; "
            "DROP TRIGGER sizes_begin; DROP TRIGGER sizes_event; DROP TRIGGER sizes_content; DROP TRIGGER sizes_node; "
            "DROP TABLE sizes; DROP TABLE provenance; "
            "ALTER TABLE node DROP COLUMN writes; ALTER TABLE node DROP COLUMN shown; "
            "DROP TABLE restrictions; PRAGMA user_version = 5;"
        )


EVERYTHING = ReadRights(b"", ReadScope({}, "all"), lambda event, subject: True)


def seqs(store: Store, enclave: bytes, readable: ReadRights = EVERYTHING, **filter_: Any) -> list[int]:
    return [item.seq for item in store.find(enclave, parse_filter(filter_), readable)]


def live(host: Host) -> tuple[bytes, list[Event]]:
    """Write a small history: bundles closed by size and by time, an Update, a Delete, a slot, tags."""
    enclave = host.create()
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
    """A log written by hand: nothing is signed, and the test chooses the hashes."""

    def __init__(self, *stores: Store, **changes: Any) -> None:
        self.stores, self.steps = stores, list[Step]()
        commit = build_manifest(person("alice"), compact_json({**MANIFEST, **changes}), START + 60_000)
        policy, effects = judge_manifest(commit)
        event = finalize(commit, NODE, START, 0)
        self.enclave, self.creation = commit.enclave, apply_manifest(event, policy, effects)
        self.state = self.creation.state
        self.steps.append(Step(transition=self.creation, event=event, effects=effects, subject="Manifest"))
        self.events = [event]

    def add(self, type_: str = "message", *, subject: str = "", effects: Effects = NO_EFFECTS, **fields: Any) -> Event:
        """Add the next event; its subject type is `subject`, by default its own type."""
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
        """Add an Update or a Delete."""
        supersedes = (target.id,) if type_ == "Update" else ()
        effects, tags = Effects(supersedes=supersedes, erases=(target.id,)), (("r", target.id.hex()),)
        return self.add(type_, subject=target.type, effects=effects, tags=tags, **fields)

    def write(self) -> None:
        for store in self.stores:
            store.write(self.steps, START)
        self.steps.clear()


def effort(store: SqliteStore, work: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of the work, and the number of steps of SQLite's virtual machine that it takes."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    store.clock()  # only one connection is open, so the work uses it
    (db,) = store.database.readers._idle
    db.set_progress_handler(step, 1)
    result = work()
    db.set_progress_handler(None, 0)
    return result, steps


@contextmanager
def failing_commit(store: SqliteStore) -> Iterator[None]:
    """Let every COMMIT fail: it violates a constraint that SQLite checks only then."""
    db = store.database.writer.db
    db.executescript(
        "PRAGMA foreign_keys = ON; CREATE TABLE IF NOT EXISTS kept (x PRIMARY KEY);"
        "CREATE TABLE IF NOT EXISTS promised (x REFERENCES kept (x) DEFERRABLE INITIALLY DEFERRED);"
        "CREATE TRIGGER broken AFTER UPDATE ON node BEGIN INSERT INTO promised VALUES (1); END;"
    )
    yield
    db.executescript("DROP TRIGGER broken; PRAGMA foreign_keys = OFF;")
