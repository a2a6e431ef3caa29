"""fsck reports every answer of a store that contradicts its logs."""

from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.machine.state import ClosedBundle
from enc.core.primitives.types import TreeHead
from enc.node.fsck import Difference, check_enclave, check_store
from enc.node.store.sqlite.check import WRONG
from enc.node.store.store_interface import Store
from enc.testing.memory_store import MemoryStore
from tests.node.fsck.stores import Change, asked, but, event, fill, flip, ignore_progress, live, never, search
from tests.node.store_host import NODE, Host


def test_a_store_that_is_as_its_logs_say_is_clean(store: Store) -> None:
    names = fill(Host(store))
    progress: list[int] = []
    report = check_store(store, NODE.public, None, progress.append)
    assert report.differences == []
    assert report.enclaves == len(names)
    assert report.events == sum(progress) == sum(len(store.events(enclave, 0, 100)) for enclave in names.values())


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
        check_enclave(store, life, NODE.public, ignore_progress)
    assert (caught.value.enclave, caught.value.seq) == (life, seq)
    assert what in caught.value.what
    assert life.hex() in str(caught.value)
    assert seq is None or f"seq {seq}: " in str(caught.value)
