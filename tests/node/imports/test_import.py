"""Import orders: who may give them, what they contain, and every way in which a source can lie."""

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
import zstandard
from msgspec.json import decode, encode
from msgspec.structs import replace

from enc.core.errors import EnclaveNotFound
from enc.core.log.commit import build_commit, wire_commit
from enc.core.log.event import erase, finalize, wire_event
from enc.core.machine.archive import header_of, write_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.hashing import EMPTY_HASH
from enc.core.primitives.types import Commit, Event
from enc.node.config import Admission, Config, Imports, Rates
from enc.node.fsck import check_store
from enc.node.imports import source_node as source_module
from enc.node.imports.replay import StagedReplay
from tests.core.world import GROUP, LIFETIME, START, World, move, person, pub
from tests.node.moving import WITH_ARCHIVE, Telling, archive_of, done, ended, failure, head, imported, order
from tests.node.served import DEV, Clock, Json, Served, bad

OLD, NEW = person("node2"), person("node")


@pytest.fixture
def node() -> Iterator[Served]:
    with Served() as served:
        yield served
        report = check_store(served.store, NEW.public, None, lambda events: None)
        assert report.differences == []


def world(**changes: Any) -> World:
    """A log of node2's: bob writes, updates and deletes."""
    made = World({**GROUP, "bundle": {"size": 3, "timeout": 5000}, **changes}, node="node2")
    made.send("alice", "Move", move("bob", "OUTSIDER", "MEMBER"))
    first = made.send("bob", "message", "one")
    made.send("bob", "Update", "two", tags=(("r", first.id.hex()),))
    second = made.send("bob", "message", "three")
    made.send("bob", "Delete", {"reason": "author"}, tags=(("r", second.id.hex()),))
    made.send("bob", "message", "four")
    made.send("bob", "message", "five", tags=(("auto-delete", str(START + 90_000_000)),))
    return made


def moved(made: World | None = None, **wrong: Any) -> World:
    """The same with a peaceful Migrate to this node."""
    made = made or world()
    made.send("alice", "Migrate", made.migrate("node", **wrong))
    return made


def forced(made: World, by: str = "alice", **wrong: Any) -> Commit:
    """Return a Migrate that no node has finalised."""
    return made.commit(by, "Migrate", made.migrate("node", **wrong), at=LIFETIME // 2)


def nothing_is_kept(node: Served, made: World) -> None:
    enclave = made.state.enclave
    assert node.store.load(enclave) is None
    assert node.store.events(enclave, 0, 100) == []
    assert node.store.count() == 0
    node.settle()
    assert isinstance(bad(node.get(f"/{enclave.hex()}/sth")), EnclaveNotFound)
    assert node.store.usage(person("alice").public).events == 0


# Orders


def test_a_peaceful_move_is_pulled_page_by_page(node: Served) -> None:
    made = moved()
    with Telling(OLD, made.events, page=3) as source:
        status = done(node, made.events[-1], source.url)
        assert source.asked == [0, 3, 6]
    assert status["events"] == status["total"] == 9
    assert status["receipt"]["seq"] == 8
    assert bytes.fromhex(status["receipt"]["sequencer"]) == OLD.public
    assert node.store.load(made.state.enclave) == made.state


def test_a_forced_move_is_finalised_here(node: Served) -> None:
    made = world()
    commit = forced(made)
    status = done(node, commit, archive=archive_of(made.events))
    assert bytes.fromhex(status["receipt"]["sequencer"]) == NEW.public
    assert bytes.fromhex(status["import"]) == commit.hash
    state = node.store.load(made.state.enclave)
    assert state is not None
    assert (state.seq, state.sequencer, state.migrated) == (8, NEW.public, True)


@pytest.mark.parametrize("has_migrate", [True, False])
def test_a_final_migrate_may_come_with_an_archive(node: Served, has_migrate: bool) -> None:
    made = moved()
    events = made.events if has_migrate else made.events[:-1]
    done(node, made.events[-1], archive=archive_of(events))
    assert node.store.load(made.state.enclave) == made.state


def test_the_same_order_again_is_done_already(node: Served) -> None:
    made = world()
    commit, archive = forced(made), archive_of(made.events)
    first = done(node, commit, archive=archive)
    again = order(node, commit, archive=archive)
    assert (again.status_code, decode(again.content)) == (200, first)
    node.clock.tick(10_000_000)  # long past exp
    assert decode(order(node, commit, archive=b"anything").content) == first


def test_the_same_order_while_it_runs_joins_it(node: Served) -> None:
    made = moved()
    with Telling(OLD, made.events) as source:
        with node.held_up():
            first = order(node, made.events[-1], source.url)
            second = order(node, made.events[-1], source.url)
            assert first.status_code == second.status_code == 202
            assert decode(first.content) == decode(second.content)
            assert decode(first.content)["status"] == "running"
            assert decode(node.get(f"/import/{made.events[-1].hash.hex()}").content)["total"] == 9
        assert ended(node, made.events[-1].hash.hex())["status"] == "done"
        assert source.asked == [0]


def test_a_failed_order_may_be_given_again(node: Served) -> None:
    made = moved()
    with Telling(OLD, made.events[:-1], seq=7) as source:
        assert failure(node, made.events[-1], source.url)["code"] == "INVALID_ARCHIVE"
    nothing_is_kept(node, made)
    with Telling(OLD, made.events) as source:
        done(node, made.events[-1], source.url)


def test_an_import_that_nobody_ordered(node: Served) -> None:
    assert isinstance(bad(node.get("/import/" + "ab" * 32)), EnclaveNotFound)
    assert isinstance(bad(node.get("/import/xyz")), EnclaveNotFound)


def refused(node: Served, wire: Any, source: str | None = "http://127.0.0.1:1", archive: bytes | None = None) -> Any:
    if archive is not None:
        return bad(node.post(encode({"migrate": wire}) + b"\n" + archive, "/import", headers=WITH_ARCHIVE))
    return bad(node.post({"migrate": wire, **({} if source is None else {"source": source})}, "/import"))


def test_orders_that_do_not_prove_themselves(node: Served) -> None:
    made = moved()
    migrate = made.events[-1]
    wire = wire_event(migrate)
    for wrong, code, message in [
        ({**wire, "sig": "00" * 64}, "INVALID_SIGNATURE", "sig"),
        ({**wire, "seq_sig": "00" * 64}, "INVALID_SIGNATURE", "seq_sig"),
        ({**wire, "seq": 7}, "INVALID_SIGNATURE", "seq_sig"),
        ({**wire, "id": "00" * 32}, "INVALID_HASH", "id"),
        ({**wire, "exp": wire["exp"] + 1}, "INVALID_HASH", "hash"),
        ({**wire, "enclave": "00" * 32}, "INVALID_HASH", "hash"),
        (wire_event(made.events[0]), "INVALID_COMMIT", "expected a Migrate"),
        (wire_event(made.events[2]), "INVALID_COMMIT", "expected a Migrate"),
        ({"type": "Migrate"}, "INVALID_COMMIT", "hash"),
        (5, "INVALID_QUERY", "object"),
    ]:
        error = refused(node, wrong)
        assert (error.code, message in error.message) == (code, True), error
    unsigned = {**wire_commit(forced(world())), "sig": "00" * 64}
    assert refused(node, unsigned, archive=b"x").code == "INVALID_SIGNATURE"
    elsewhere = world()
    elsewhere.send("alice", "Migrate", elsewhere.migrate("node3"))
    error = refused(node, wire_event(elsewhere.events[-1]))
    assert (error.code, error.message) == ("INVALID_COMMIT", "migrate: new_sequencer: expected this node's key")


def test_orders_without_a_log_or_with_two(node: Served) -> None:
    made = moved()
    wire, commit = wire_event(made.events[-1]), wire_commit(forced(world()))
    assert refused(node, wire, None).code == "INVALID_QUERY"
    assert "finalised" in refused(node, commit).message
    both = encode({"migrate": wire, "source": "http://127.0.0.1:1"}) + b"\nx"
    assert bad(node.post(both, "/import", headers=WITH_ARCHIVE)).code == "INVALID_QUERY"
    assert bad(node.post(encode({"migrate": wire}), "/import", headers=WITH_ARCHIVE)).code == "INVALID_QUERY"
    assert bad(node.post(b"{", "/import")).code == "INVALID_QUERY"
    unknown = {"migrate": wire, "source": "http://127.0.0.1:1", "more": 1}
    assert bad(node.post(unknown, "/import")).code == "INVALID_QUERY"
    assert node.node.importer._jobs == {}


def test_an_order_over_the_limit(node: Served) -> None:
    too_long = b'{"migrate":"' + b"x" * (2 << 20)
    for headers in ({}, WITH_ARCHIVE):
        assert bad(node.post(too_long, "/import", headers=headers)).status == 413


def test_an_expired_migrate_is_refused_before_its_archive_is_read(node: Served) -> None:
    made = world()
    commit = forced(made)
    node.clock.tick(LIFETIME * 2)
    assert refused(node, wire_commit(commit), archive=b"anything").code == "EXPIRED"


# What the operator decides, before anything is fetched


def not_asked(config: Config, made: World, code: str, part: str) -> None:
    with Telling(OLD, made.events) as source, Served(config) as node:
        error = refused(node, wire_event(made.events[-1]), source.url)
        assert (error.code, part in error.message) == (code, True), error
        assert source.asked == []
        assert node.node.importer._jobs == {}


def test_who_may_not_found_enclaves_may_not_bring_any() -> None:
    made = moved()
    closed = replace(DEV, admission=Admission(create="closed"))
    not_asked(closed, made, "UNAUTHORIZED", "does not create enclaves")
    listed = replace(DEV, admission=Admission(create="allowlist", allow=(pub("bob"),)))
    not_asked(listed, made, "UNAUTHORIZED", "does not create enclaves")
    allowed = replace(DEV, admission=Admission(create="allowlist", allow=(pub("alice"),)))
    with Telling(OLD, made.events) as source, Served(allowed) as node:
        done(node, made.events[-1], source.url)


def test_quotas_are_asked_before_anything_is_fetched() -> None:
    made = moved()
    few = replace(DEV, admission=Admission(max_events=8))
    not_asked(few, made, "UNAUTHORIZED", "quota of events on this node: 8")
    with Telling(OLD, made.events) as source:
        with Served(replace(DEV, admission=Admission(max_events=9, max_enclaves=1))) as node:
            done(node, made.events[-1], source.url)
            other = moved(world(meta={"n": 2}))
            error = refused(node, wire_event(other.events[-1]), source.url)
            assert "quota of enclaves" in error.message
        size = sum(len(event.content or "") for event in made.events)
        with Served(replace(DEV, admission=Admission(max_bytes=size - 1))) as node:
            error = failure(node, made.events[-1], source.url)
            assert (error["code"], "quota of bytes" in error["message"]) == ("UNAUTHORIZED", True)
            nothing_is_kept(node, made)


def test_a_quota_of_bytes_ends_an_import_as_soon_as_it_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.node.imports.replay.SLICE_EVENTS", 1)
    made = moved()
    most = len(made.events[0].content or "") + 1
    with Telling(OLD, made.events) as source, Served(replace(DEV, admission=Admission(max_bytes=most))) as node:
        status = imported(node, made.events[-1], source.url)
        assert (status["status"], status["events"]) == ("failed", 1)


def test_rates_are_the_owner_s() -> None:
    made = moved()
    rates, admission = Rates(identity_per_s=0.001, identity_burst=1), Admission(create="closed")
    with Served(Config(port=0, rates=rates, admission=admission)) as node:
        for code in ("UNAUTHORIZED", "RATE_LIMITED"):
            assert refused(node, wire_event(made.events[-1]), "https://example.com/").code == code


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "https://127.0.0.1/",
        "https://10.1.2.3/",
        "https://[::1]/",
        "https://user@example.com/",
        "https://example.com:80/",
        "ftp://example.com/",
    ],
)
def test_a_source_obeys_the_rules_for_endpoints(url: str) -> None:
    made = moved()
    with Served(Config(port=0)) as node:
        assert refused(node, wire_event(made.events[-1]), url).code == "INVALID_ENDPOINT_URL"


def test_a_source_s_name_is_judged_by_its_addresses_each_time_it_is_called() -> None:
    made = moved()
    answers = iter([["93.184.216.34"], ["93.184.216.34", "127.0.0.1"]])

    inner = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **more: Any) -> list[Any]:
        if host != "moves.example":
            return inner(host, port, *args, **more)
        return [(2, 1, 6, "", (address, port)) for address in next(answers)]

    with Served(Config(port=0)) as node, patch("enc.runtime.endpoints.socket.getaddrinfo", resolve):
        error = failure(node, made.events[-1], "https://moves.example/")
        assert error["code"] == "INVALID_ENDPOINT_URL"
        nothing_is_kept(node, made)


def test_a_source_whose_name_is_nowhere(node: Served) -> None:
    made = moved()
    error = refused(node, wire_event(made.events[-1]), "https://nowhere.invalid/")
    assert (error.code, error.status) == ("UPSTREAM_UNREACHABLE", 502)


def test_a_source_that_does_not_answer(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", (0, 0))
    made = moved()
    with Telling(OLD, made.events) as source:
        pass
    error = failure(node, made.events[-1], source.url)
    assert error["code"] == "UPSTREAM_UNREACHABLE"
    nothing_is_kept(node, made)


def test_a_source_that_is_busy_is_asked_again(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", (0, 0))
    busy = encode({"type": "Error", "code": "UNAVAILABLE", "message": "busy", "retry_after_ms": 1})
    made = moved()
    with Telling(OLD, made.events, answer=lambda n: (503, busy) if n < 2 else None) as source:
        done(node, made.events[-1], source.url)
        assert source.asked == [-1, -1, 0]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (403, encode({"type": "Error", "code": "UNAUTHORIZED", "message": "<b>secret</b>"}), "UNAUTHORIZED"),
        (400, encode({"type": "Error", "code": "<b>", "message": ""}), "an error"),
        (200, b"{}", "cannot open the source's answer"),
        (200, encode({"type": "Response", "content": "AAAA"}), "cannot open the source's answer"),
        (302, b"", "status 302"),
    ],
)
def test_a_source_that_answers_something_else(
    node: Served, monkeypatch: pytest.MonkeyPatch, status: int, body: bytes, said: str
) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    made = moved()
    with Telling(OLD, made.events, answer=lambda n: (status, body)) as source:
        error = failure(node, made.events[-1], source.url)
    assert said in error["message"]
    assert "secret" not in error["message"]
    nothing_is_kept(node, made)


def test_an_answer_that_does_not_end(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    monkeypatch.setattr(source_module, "MAX_PAGE_BYTES", 1000)
    made = moved()
    with Telling(OLD, made.events) as source:
        assert "over 1000 bytes" in failure(node, made.events[-1], source.url)["message"]


def test_a_log_that_is_larger_than_this_node_takes() -> None:
    made = moved()
    with Telling(OLD, made.events) as source, Served(replace(DEV, imports=Imports(total_bytes=3000))) as node:
        assert "size limit" in failure(node, made.events[-1], source.url)["message"]
        nothing_is_kept(node, made)


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


def commit(made: World, name: str, type_: str, content: Any, at: int, tags: Any = (), **more: Any) -> Commit:
    text = content if isinstance(content, str) else compact_json(content)
    exp = more.get("exp", START + at + LIFETIME)
    return build_commit(person(name), made.state.enclave, type_, text, exp, tags)


Lie = Callable[[World], list[Any]]
"""From a log that ends with its Migrate, the forged log that the source serves."""


def put(seq: int, make: Callable[[World], Any]) -> Lie:
    """Return the log with one event replaced."""

    def told(made: World) -> list[Any]:
        events: list[Any] = list(made.events)
        events[seq] = make(made)
        return events

    return told


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
        "stands in the log already",
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
    "an erasure without a cause": (put(6, lambda m: erase(m.events[6])), 6, "INVALID_ARCHIVE", "erased without"),
    "an erased Update without a cause": (put(3, lambda m: erase(m.events[3])), 3, "INVALID_ARCHIVE", "erased without"),
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
    with Telling(OLD, tell(made), page=4) as source:
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
    with Telling(OLD, events) as source:
        done(node, made.events[-1], source.url)
    assert [e.seq for e in node.store.events(made.state.enclave, 0, 99) if e.content is None] == [2, 4, 7]


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
    with Telling(OLD, made.events, twist=lambda body: body.update(twisted)) as source:
        error = failure(node, made.events[-1], source.url)
    assert (error["code"], said in error["message"]) == ("INVALID_ARCHIVE", True), error
    nothing_is_kept(node, made)


def test_more_events_than_were_asked_for(node: Served) -> None:
    made = moved()
    events = [*made.events, made.events[-1]]
    with Telling(OLD, events, seq=8) as source:
        error = failure(node, made.events[-1], source.url)
    assert "too many" in error["message"]


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
        with Telling(OLD, made.events, twist=lambda body, sth=wrong: body.update(sth=sth)) as source:
            error = failure(node, made.events[-1], source.url)
        assert (error["code"], "sth" in error["message"]) == ("INVALID_ARCHIVE", True), error
        nothing_is_kept(node, made)
    right = head(OLD, enclave, size, root)
    with Telling(OLD, made.events, twist=lambda body: body.update(sth=right)) as source:
        done(node, made.events[-1], source.url)


# Archives


def told(made: World, lines: Sequence[Event], **changes: Any) -> bytes:
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
    "another enclave": (lambda m, a: told(m, m.events, enclave=bytes(32)), "enclave: expected the Migrate's"),
    "too few events": (lambda m, a: told(m, m.events[:-1]), "says 8 events, there are 7"),
    "too many events": (lambda m, a: told(m, m.events, events=9), "events: 9, but"),
    "another checkpoint": (lambda m, a: told(m, m.events, checkpoint_root=bytes(32)), "not the log's checkpoint"),
    "other sequencers": (lambda m, a: told(m, m.events, sequencers=((NEW.public, 0),)), "sequencers"),
    "another version": (lambda m, a: told(m, m.events, enc_v=1), "enc_v"),
    "a bomb": (lambda m, a: zstandard.compress(b"0" * (8 << 20)), "over 1000000 bytes"),
}


@pytest.mark.parametrize("how", BAD_ARCHIVES)
def test_a_bad_archive_leaves_nothing(how: str) -> None:
    made = world()
    make, said = BAD_ARCHIVES[how]
    with Served(replace(DEV, imports=Imports(total_bytes=1_000_000))) as node:
        error = failure(node, forced(made), archive=make(made, archive_of(made.events)))
        assert (error["code"], said in error["message"]) == ("INVALID_ARCHIVE", True), error
        nothing_is_kept(node, made)


def test_an_archive_over_the_limit_is_not_read_to_its_end() -> None:
    made = world()
    with Served(replace(DEV, imports=Imports(archive_bytes=1000))) as node:
        error = refused(node, wire_commit(forced(made)), archive=b"x" * 5000)
        assert (error.status, "archive is over 1000" in error.message) == (413, True)
        assert node.node.importer._jobs == {}
        assert len(node.node.uploads) == 0


def test_a_client_that_goes_away_while_it_sends_leaves_nothing(node: Served) -> None:
    made = world()
    first = encode({"migrate": wire_commit(forced(made))}) + b"\n"
    with socket.create_connection(("127.0.0.1", int(node.url.rpartition(":")[2]))) as sock:
        head_ = f"POST /import HTTP/1.1\r\nhost: x\r\ncontent-type: {WITH_ARCHIVE['content-type']}\r\n"
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
        head_ = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {WITH_ARCHIVE['content-type']}\r\n"
        sock.sendall(head_.encode() + b"content-length: 10000000\r\n\r\n" + b"x" * 100)

        def connection() -> Any:
            return next((c for c in node.server.server_state.connections if c.client[1] == own), None)

        node.until(lambda: connection() is not None and connection()._body == 100)
        node.on_loop(lambda: setattr(connection(), "waiting_since", -1.0))
        sock.sendall(b"x" * 1000)
        node.until(lambda: connection()._body == 1100)
        assert node.on_loop(lambda: connection().waiting_since) == -1.0, "a trickle is not enough"
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


def test_another_enclave_under_this_id_is_not_replaced(node: Served) -> None:
    """Its author created it here, too, before the import."""
    made = moved()
    manifest = made.events[0]
    node.submit(replace_event(manifest))
    with Telling(OLD, made.events) as source:
        error = failure(node, made.events[-1], source.url)
    assert (error["code"], error["seq"]) == ("ENCLAVE_EXISTS", 0)
    assert node.store.count() == 1
    assert node.store.events(manifest.enclave, 0, 9)[0].sequencer == NEW.public


def replace_event(event: Event) -> Commit:
    return Commit(**{name: getattr(event, name) for name in Commit.__struct_fields__})


def test_an_enclave_that_is_founded_here_while_it_is_brought(node: Served) -> None:
    made = moved()
    inner = StagedReplay.finish

    def meanwhile(intake: StagedReplay) -> None:
        inner(intake)
        node.submit(replace_event(made.events[0]))

    with Telling(OLD, made.events) as source, patch.object(StagedReplay, "finish", meanwhile):
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


def test_one_import_of_an_enclave_at_a_time_and_a_bounded_number_of_all() -> None:
    made, other, third = moved(), moved(world(meta={"n": 2})), moved(world(meta={"n": 3}))
    go_on = threading.Event()

    def wait(body: Json) -> None:
        go_on.wait(30)

    with (
        Served(replace(DEV, imports=Imports(at_once=2))) as node,
        Telling(OLD, made.events, twist=wait) as first,
        Telling(OLD, other.events, twist=wait) as second,
    ):
        assert order(node, made.events[-1], first.url).status_code == 202
        same = made.commit("alice", "Migrate", {**made.migrate("node"), "prev_seq": 7})
        error = refused(node, wire_commit(same), archive=b"x")
        assert (error.code, "another import of this enclave" in error.message) == ("UNAVAILABLE", True)
        assert order(node, other.events[-1], second.url).status_code == 202
        error = refused(node, wire_event(third.events[-1]), first.url)
        assert (error.code, "too many imports" in error.message) == ("UNAVAILABLE", True)
        go_on.set()
        for each in (made, other):
            assert ended(node, each.events[-1].hash.hex())["status"] == "done"
        assert node.store.count() == 2


def test_a_node_that_takes_none() -> None:
    made = moved()
    with Served(replace(DEV, imports=Imports(at_once=0))) as node:
        assert refused(node, wire_event(made.events[-1])).code == "UNAUTHORIZED"


def test_a_node_that_stops_gives_up_what_is_under_way() -> None:
    made = moved()
    asked, go_on = threading.Event(), threading.Event()

    def wait(body: Json) -> None:
        asked.set()
        go_on.wait(30)

    node = Served(clock=Clock())
    with Telling(OLD, made.events, page=2, twist=wait) as source:
        order(node, made.events[-1], source.url)
        assert asked.wait(30)
        node.begin_stop()
        threading.Timer(0, lambda: (node.node.importer._stopped.wait(30), go_on.set())).start()
        node.stop()
    assert node.store.load(made.state.enclave) is None
    assert node.store._staged == {}


def test_commits_to_others_go_on_meanwhile(node: Served) -> None:
    made = moved()
    asked, go_on = threading.Event(), threading.Event()

    def wait(body: Json) -> None:
        asked.set()
        go_on.wait(30)

    with Telling(OLD, made.events, page=2, twist=wait) as source:
        order(node, made.events[-1], source.url)
        assert asked.wait(30)
        other = node.found(GROUP)
        other.send("alice", "message", "meanwhile")
        go_on.set()
        assert ended(node, made.events[-1].hash.hex())["status"] == "done"
