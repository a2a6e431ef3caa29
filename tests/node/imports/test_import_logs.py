"""Imported logs: forged logs and archives are rejected, and nothing of them is kept."""

import socket
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast
from unittest.mock import patch

import pytest
import zstandard
from msgspec.json import encode
from msgspec.structs import replace

from enc.core.log.commit import wire_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.archive import write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.replay import Replay
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import Event
from enc.node.config import ImportSettings
from enc.node.imports.replay import StagedReplay
from enc.testing.memory_store import MemoryStore
from tests.core.world import GROUP, LIFETIME, START, World, move, person, pub, withheld
from tests.node.imports.import_orders import NEW, OLD, commit, commit_of, forced, moved, nothing_is_kept, refused, world
from tests.node.moving import WITH_ARCHIVE, ExportNode, archive_of, done, ended, failure, head, order
from tests.node.served import DEV, Clock, Json, Served

# Lies: each is caught with the seq named, and nothing is kept


def twist(event: Event, **changes: Any) -> Json:
    return {**wire_event(event), **changes}


def signed(made: World, seq: int, **changes: Any) -> Event:
    """Return what the old node signs instead of an event: another timestamp, place, or commit."""
    event = made.events[seq]
    commit = changes.pop("commit", event)
    return finalize(
        commit, changes.pop("key", OLD), changes.get("timestamp", event.timestamp), changes.get("place", seq)
    )


Lie = Callable[[World], list[Any]]
"""From a log that ends with its Migrate, the forged log that the source serves."""


def put(seq: int, make: Callable[[World], Any]) -> Lie:
    """Return the log with one event replaced."""

    def forge(made: World) -> list[Any]:
        events: list[Any] = list(made.events)
        events[seq] = make(made)
        return events

    return forge


LIES: dict[str, tuple[Lie, int, str, str]] = {
    "a commit's hash": (put(6, lambda m: twist(m.events[6], hash="00" * 32)), 6, "INVALID_HASH", "hash"),
    "a content": (put(6, lambda m: twist(m.events[6], content="other")), 6, "INVALID_HASH", "hash"),
    "an author": (put(6, lambda m: twist(m.events[6], **{"from": pub("carol")})), 6, "INVALID_HASH", "hash"),
    "a signature": (put(6, lambda m: twist(m.events[6], sig="11" * 64)), 6, "INVALID_SIGNATURE", "sig: "),
    "a forged commit": (
        put(6, lambda m: signed(m, 6, commit=replace(m.events[6], sig=bytes(64)))),
        6,
        "INVALID_SIGNATURE",
        "6: sig: not the author's",
    ),
    "a seq_sig": (put(6, lambda m: twist(m.events[6], seq_sig="11" * 64)), 6, "INVALID_SIGNATURE", "seq_sig"),
    "an id": (put(6, lambda m: twist(m.events[6], id="00" * 32)), 6, "INVALID_HASH", "id"),
    "a timestamp": (
        put(6, lambda m: twist(m.events[6], timestamp=m.events[6].timestamp + 1)),
        6,
        "INVALID_SIGNATURE",
        "seq_sig",
    ),
    "another sequencer": (
        put(6, lambda m: signed(m, 6, key=person("node3"))),
        6,
        "ENCLAVE_MIGRATED",
        "another node is the sequencer",
    ),
    "a gap": (lambda m: [*m.events[:5], *m.events[6:], m.events[-1]], 6, "INVALID_ARCHIVE", "seq: expected 5"),
    "a repeated seq": (put(6, lambda m: m.events[5]), 5, "INVALID_ARCHIVE", "seq: expected 6"),
    "an event of another enclave": (
        put(6, lambda m: moved(world(meta={"n": 9})).events[6]),
        6,
        "INVALID_ARCHIVE",
        "another enclave",
    ),
    "no Manifest first": (put(0, lambda m: signed(m, 6, place=0)), 0, "INVALID_ARCHIVE", "starts with its Manifest"),
    "time that falls": (
        put(6, lambda m: signed(m, 6, timestamp=m.events[5].timestamp - 1)),
        6,
        "INVALID_ARCHIVE",
        "before the previous event's",
    ),
    "time past exp": (
        put(6, lambda m: signed(m, 6, timestamp=m.events[6].exp + 60_001)),
        6,
        "INVALID_ARCHIVE",
        "more than 60 s after exp",
    ),
    "an exp too far": (
        put(6, lambda m: signed(m, 6, commit=commit(m, "bob", "message", "x", 0, exp=START + 4_000_000))),
        6,
        "INVALID_ARCHIVE",
        "more than an hour",
    ),
    "a commit twice": (
        put(6, lambda m: signed(m, 6, commit=m.events[2])),
        6,
        "DUPLICATE",
        "is already in the log",
    ),
    "an unauthorised event": (
        put(6, lambda m: signed(m, 6, commit=commit(m, "mallory", "message", "x", 6))),
        6,
        "UNAUTHORIZED",
        "no entry",
    ),
    "a member who has left": (
        put(6, lambda m: signed(m, 6, commit=commit(m, "bob", "Move", move("bob", "MEMBER", "OUTSIDER"), 6))),
        7,
        "UNAUTHORIZED",
        "no entry",
    ),
    "an unauthorised Migrate": (
        put(6, lambda m: signed(m, 6, commit=commit(m, "bob", "Migrate", m.migrate("node"), 6))),
        6,
        "UNAUTHORIZED",
        "",
    ),
    "a Migrate with another ct_root": (
        put(
            6,
            lambda m: signed(
                m,
                6,
                commit=commit(
                    m, "alice", "Migrate", {"new_sequencer": pub("node3"), "prev_seq": 5, "ct_root": "00" * 32}, 6
                ),
            ),
        ),
        6,
        "CHECKPOINT_MISMATCH",
        "checkpoint",
    ),
    "a target that is not there": (
        put(6, lambda m: signed(m, 6, commit=commit(m, "bob", "Update", "x", 6, (("r", "00" * 32),)))),
        6,
        "EVENT_NOT_FOUND",
        "",
    ),
    "an erasure without a cause": (put(6, lambda m: erase(m.events[6])), 6, "INVALID_ARCHIVE", "missing without"),
    "an erased Update without a cause": (put(3, lambda m: erase(m.events[3])), 3, "INVALID_ARCHIVE", "missing without"),
    "a statement of a stranger": (
        put(6, lambda m: withheld(m.events[6], "bob")),
        6,
        "INVALID_ARCHIVE",
        "missing without",
    ),
    "a withheld Move": (put(1, lambda m: withheld(m.events[1])), 1, "INVALID_ARCHIVE", "never erased"),
    "an erased Move": (put(1, lambda m: erase(m.events[1])), 1, "INVALID_ARCHIVE", "never erased"),
    "an erased Manifest": (put(0, lambda m: erase(m.events[0])), 0, "INVALID_ARCHIVE", "never erased"),
    "an event that is none": (put(6, lambda m: {"id": 5}), 6, "INVALID_ARCHIVE", ""),
    "another Manifest later": (
        put(6, lambda m: signed(m, 6, commit=m.events[0])),
        6,
        "INVALID_COMMIT",
        "a Manifest is event 0",
    ),
    "another ending": (
        put(8, lambda m: signed(m, 8, timestamp=m.events[8].timestamp + 1)),
        8,
        "INVALID_ARCHIVE",
        "does not end with this Migrate",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_source_is_caught_with_the_seq_and_nothing_is_kept(node: Served, lie: str) -> None:
    made = moved()
    tell, seq, code, message = LIES[lie]
    with ExportNode(OLD, tell(made), page=4) as source:
        error = failure(node, made.events[-1], source.url)
    assert (error["code"], error.get("seq")) == (code, seq), error
    assert f"seq {seq}: " in error["message"]
    assert message in error["message"]
    nothing_is_kept(node, made)


def test_erasures_with_a_cause_are_taken(node: Served) -> None:
    made = moved()
    events = list(made.events)
    for seq in (2, 4, 7):  # updated, deleted, auto-delete
        events[seq] = erase(events[seq])
    with ExportNode(OLD, events) as source:
        done(node, made.events[-1], source.url)
    assert [e.seq for e in node.store.events(made.state.enclave, 0, 99) if e.content is None] == [2, 4, 7]


def test_contents_that_the_old_or_the_new_node_withholds_are_taken(node: Served) -> None:
    made = moved()
    events = list(made.events)
    events[3], events[6] = withheld(events[3], "node2"), withheld(events[6], "node")
    with ExportNode(OLD, events) as source:
        done(node, made.events[-1], source.url)
    assert [e.seq for e in node.store.events(made.state.enclave, 0, 99) if e.content is None] == [2, 3, 4, 6]


@pytest.mark.parametrize(
    ("twisted", "said"),
    [
        ({"seq": 7}, "ends at seq 7"),
        ({"seq": 9}, "ends at seq 9"),
        ({"events": []}, "returned no event here"),
        ({"events": None}, "events"),
        ({"sth": {"t": 1, "ts": 1, "r": "x", "sig": "x"}}, "sth"),
    ],
)
def test_a_page_that_does_not_fit(node: Served, twisted: Json, said: str) -> None:
    made = moved()
    with ExportNode(OLD, made.events, twist=lambda body: body.update(twisted)) as source:
        error = failure(node, made.events[-1], source.url)
    assert (error["code"], said in error["message"]) == ("INVALID_ARCHIVE", True), error
    nothing_is_kept(node, made)


def test_more_events_than_were_asked_for(node: Served) -> None:
    made = moved()
    events = [*made.events, made.events[-1]]
    with ExportNode(OLD, events, seq=8) as source:
        error = failure(node, made.events[-1], source.url)
    assert "too many" in error["message"]


def _update(change: Json, body: Json) -> None:
    body.update(change)


def test_a_head_that_is_not_on_the_log(node: Served) -> None:
    made = moved()
    enclave, size = made.state.enclave, made.state.log.size
    root = made.state.log.root()
    for wrong in (
        head(OLD, enclave, size, EMPTY_HASH),
        head(OLD, enclave, size - 1, root),
        head(person("node3"), enclave, size, root),
        head(OLD, bytes(32), size, root),
    ):
        change = {"sth": wrong}
        with ExportNode(OLD, made.events, twist=partial(_update, change)) as source:
            error = failure(node, made.events[-1], source.url)
        assert (error["code"], "sth" in error["message"]) == ("INVALID_ARCHIVE", True), error
        nothing_is_kept(node, made)
    right = head(OLD, enclave, size, root)
    with ExportNode(OLD, made.events, twist=lambda body: body.update(sth=right)) as source:
        done(node, made.events[-1], source.url)


# Archives


def mislabeled(made: World, lines: Sequence[Event], **changes: Any) -> bytes:
    """Return an archive whose header does not match its events."""
    replay = Replay()
    for event in made.events:
        replay.add(event)
    return b"".join(write_archive(replace(header_of(replay, None), **changes), lines))


BAD_ARCHIVES: dict[str, tuple[Callable[[World, bytes], bytes], str]] = {
    "nothing": (lambda m, a: b"", "truncated"),
    "no zstd": (lambda m, a: b"hello", "zstd"),
    "cut off": (lambda m, a: a[:-10], "truncated"),
    "half": (lambda m, a: a[: len(a) // 2], "truncated"),
    "something behind": (lambda m, a: a + b"x", "follows the end"),
    "another frame behind": (lambda m, a: a + a, "follows the end"),
    "no header": (lambda m, a: zstandard.compress(b"{}\n"), "format"),
    "another enclave": (lambda m, a: mislabeled(m, m.events, enclave=bytes(32)), "enclave: expected the Migrate's"),
    "too few events": (lambda m, a: mislabeled(m, m.events[:-1]), "states 8 events, but the archive has 7"),
    "too many events": (lambda m, a: mislabeled(m, m.events, events=9), "events: 9, but"),
    "another checkpoint": (lambda m, a: mislabeled(m, m.events, checkpoint_root=bytes(32)), "not the log's checkpoint"),
    "other sequencers": (lambda m, a: mislabeled(m, m.events, sequencers=((NEW.public, 0),)), "sequencers"),
    "another version": (lambda m, a: mislabeled(m, m.events, enc_v=1), "enc_v"),
    "a bomb": (lambda m, a: zstandard.compress(b"0" * (8 << 20)), "over 1000000 bytes"),
}


@pytest.mark.parametrize("how", BAD_ARCHIVES)
def test_a_bad_archive_leaves_nothing(how: str) -> None:
    made = world()
    make, said = BAD_ARCHIVES[how]
    with Served(replace(DEV, imports=ImportSettings(total_bytes=1_000_000))) as node:
        error = failure(node, forced(made), archive=make(made, archive_of(made.events)))
        assert (error["code"], said in error["message"]) == ("INVALID_ARCHIVE", True), error
        nothing_is_kept(node, made)


def test_an_archive_over_the_limit_is_not_read_to_its_end() -> None:
    made = world()
    with Served(replace(DEV, imports=ImportSettings(archive_bytes=1000))) as node:
        error = refused(node, wire_commit(forced(made)), archive=b"x" * 5000)
        assert (error.status, "archive is over 1000" in error.message) == (413, True)
        assert node.node.importer._jobs == {}
        assert len(node.node.uploads) == 0


def test_a_client_that_goes_away_while_it_sends_leaves_nothing(node: Served) -> None:
    made = world()
    first = encode({"migrate": wire_commit(forced(made))}) + b"\n"
    with socket.create_connection(("127.0.0.1", int(node.url.rpartition(":")[2]))) as sock:
        head_ = f"POST /import HTTP/1.1\r\nhost: localhost\r\ncontent-type: {WITH_ARCHIVE['content-type']}\r\n"
        sock.sendall(head_.encode() + b"content-length: 100000\r\n\r\n" + first + b"some of it")
        node.until(lambda: len(node.node.uploads) == 1)
    node.until(lambda: not len(node.node.uploads))
    assert node.node.importer._jobs == {}
    nothing_is_kept(node, made)
    done(node, forced(made), archive=archive_of(made.events))


@pytest.mark.parametrize("path", ["/import", "/other"])
def test_an_archive_takes_its_time_as_long_as_it_comes(node: Served, path: str) -> None:
    port = int(node.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as sock:
        own = sock.getsockname()[1]
        head_ = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {WITH_ARCHIVE['content-type']}\r\n"
        sock.sendall(head_.encode() + b"content-length: 10000000\r\n\r\n" + b"x" * 100)

        def connection() -> Any:
            return next((c for c in node.connections_state.connections if c.client[1] == own), None)

        node.until(lambda: connection() is not None and connection()._body == 100)
        node.on_loop(lambda: setattr(connection(), "waiting_since", -1.0))
        sock.sendall(b"x" * 1000)
        node.until(lambda: connection()._body == 1100)
        assert node.on_loop(lambda: connection().waiting_since) == -1.0, "a trickle does not extend the time"
        sock.sendall(b"x" * (64 << 10))
        node.until(lambda: connection()._body == 1100 + (64 << 10))
        assert (node.on_loop(lambda: connection().waiting_since) > 0) == (path == "/import")


@pytest.mark.parametrize(
    ("by", "wrong", "code"),
    [
        ("bob", {}, "UNAUTHORIZED"),
        ("alice", {"ct_root": "00" * 32}, "CHECKPOINT_MISMATCH"),
    ],
)
def test_a_forced_migrate_is_judged_like_any_other(node: Served, by: str, wrong: Json, code: str) -> None:
    made = world()
    error = failure(node, forced(made, by, **wrong), archive=archive_of(made.events))
    assert error["code"] == code
    nothing_is_kept(node, made)


def test_a_forced_migrate_that_expires_before_its_log_is_replayed(node: Served) -> None:
    made = world()
    order_ = forced(made)
    inner = StagedReplay.finish

    def late(intake: StagedReplay) -> None:
        inner(intake)
        node.clock.tick(LIFETIME * 3)

    with patch.object(StagedReplay, "finish", late):
        assert failure(node, order_, archive=archive_of(made.events))["code"] == "EXPIRED"
    nothing_is_kept(node, made)


def test_this_node_signs_no_second_ending_of_a_log_that_was_its_own(node: Served) -> None:
    made = World(GROUP, node="node")
    error = failure(node, forced(made), archive=archive_of(made.events))
    assert (error["code"], "second ending" in error["message"]) == ("INVALID_COMMIT", True)


def test_a_manifest_that_this_node_would_not_take() -> None:
    made = world(meta={"text": "x" * 3000})
    limits = replace(DEV.limits, manifest=2000)
    with Served(replace(DEV, limits=limits)) as node:
        error = failure(node, forced(made), archive=archive_of(made.events))
        assert (error["code"], error["seq"]) == ("INVALID_COMMIT", 0)
        assert "for a Manifest, 2000 bytes" in error["message"]


# Logs that the node already holds


def test_an_enclave_that_is_created_here_while_it_is_brought(node: Served) -> None:
    made = moved()
    inner = StagedReplay.finish

    def meanwhile(intake: StagedReplay) -> None:
        inner(intake)
        node.submit(commit_of(made.events[0]))

    with ExportNode(OLD, made.events) as source, patch.object(StagedReplay, "finish", meanwhile):
        error = failure(node, made.events[-1], source.url)
    assert error["code"] == "UNAVAILABLE"
    assert node.store.events(made.state.enclave, 0, 9)[0].sequencer == NEW.public


def test_a_terminated_enclave_stays_so(node: Served) -> None:
    made = world()
    done(node, forced(made), archive=archive_of(made.events))
    end = made.commit("alice", "Terminate", "", at=LIFETIME // 2)
    node.submit(end)
    other = world()
    again = other.commit("alice", "Migrate", other.migrate("node"), at=LIFETIME // 2 + 1)
    assert refused(node, wire_commit(again), archive=b"x").code == "ENCLAVE_TERMINATED"


# Several at once


def test_a_bounded_number_of_imports_at_one_time() -> None:
    made, other, third = moved(), moved(world(meta={"n": 2})), moved(world(meta={"n": 3}))
    go_on = threading.Event()

    def wait(body: Json) -> None:
        go_on.wait(30)

    with (
        Served(replace(DEV, imports=ImportSettings(uploads=2))) as node,
        ExportNode(OLD, made.events, twist=wait) as first,
        ExportNode(OLD, other.events, twist=wait) as second,
    ):
        assert order(node, made.events[-1], first.url).status_code == 202
        assert order(node, other.events[-1], second.url).status_code == 202
        error = refused(node, wire_event(third.events[-1]), first.url)
        assert (error.code, "too many imports" in error.message) == ("UNAVAILABLE", True)
        go_on.set()
        for each in (made, other):
            assert ended(node, each.events[-1].hash.hex())["status"] == "done"
        assert node.store.count() == 2


def test_a_node_that_takes_none() -> None:
    made = moved()
    with Served(replace(DEV, imports=ImportSettings(at_once=0))) as node:
        assert refused(node, wire_event(made.events[-1])).code == "UNAUTHORIZED"


def test_a_node_that_stops_gives_up_what_is_under_way() -> None:
    made = moved()
    asked, go_on = threading.Event(), threading.Event()

    def wait(body: Json) -> None:
        asked.set()
        go_on.wait(30)

    node = Served(clock=Clock())

    def let_go() -> None:
        node.node.importer._stopped.wait(30)
        go_on.set()

    with ExportNode(OLD, made.events, page=2, twist=wait) as source:
        order(node, made.events[-1], source.url)
        assert asked.wait(30)
        node.begin_stop()
        threading.Timer(0, let_go).start()
        node.stop()
    assert node.store.load(made.state.enclave) is None
    assert cast(MemoryStore, node.store)._staged == {}


def test_commits_to_others_go_on_meanwhile(node: Served) -> None:
    made = moved()
    asked, go_on = threading.Event(), threading.Event()

    def wait(body: Json) -> None:
        asked.set()
        go_on.wait(30)

    with ExportNode(OLD, made.events, page=2, twist=wait) as source:
        order(node, made.events[-1], source.url)
        assert asked.wait(30)
        other = node.create(GROUP)
        other.send("alice", "message", "meanwhile")
        go_on.set()
        assert ended(node, made.events[-1].hash.hex())["status"] == "done"
