"""What both stores promise about pushing: who is queued what, in which batches, and what becomes of them."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import wire_event
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, Receipt
from enc.core.rules.policy import Effects, EndpointChange
from enc.node.store.protocol import Store
from enc.node.store.push_protocol import (
    BatchLimits,
    DeadBatch,
    DeliveryResult,
    EventRange,
    Notice,
    PushBatch,
    PushTotals,
    Recipient,
)
from enc.node.store.sqlite import delivery_results, fan_out, push_reads
from enc.node.store.sqlite.push_reader import PushReader, read_reports, redeliver_at
from enc.node.store.sqlite.store import SqliteStore
from tests.core import world_v1
from tests.core.world import gated, give, grant, init, move, path, person, pub, rule
from tests.node.memory_store import MemoryStore
from tests.node.store.test_store import START, Host, Log, effort

URL, OTHER = "https://one.example/push", "https://two.example/push"

PUSHED: dict[str, Any] = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "admin(1)", "view(2)", "watch(3)", "ear(4)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [
        path("OUTSIDER", "MEMBER", "owner"),
        path("MEMBER", "OUTSIDER", "owner", preserve=True),
        path("MEMBER", "OUTSIDER", "admin"),
    ],
    "grants": [
        grant("Grant", ["owner"], "view watch ear admin", "OUTSIDER MEMBER"),
        grant("Revoke", ["owner", "Self"], "view watch ear", "OUTSIDER MEMBER"),
    ],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [rule("Shared", "MEMBER", "C U D", key="topic")],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
    "customs": [
        rule("message", "MEMBER", "C"),
        rule("message", "Sender", "U D"),
        rule("message", "view", "P"),
        rule("message", "watch", "N"),
        rule("note", "Public", "C"),
        rule("note", "watch", "N"),
        rule("gated", "MEMBER", "C"),
        rule("gated", "view", "P", **gated("feed", "owner")),
        rule("mine", "Public", "C"),
        rule("mine", "Sender", "P"),
        rule("Grant", "ear", "P"),
        rule("Revoke", "ear", "N"),
        rule("Terminate", "view", "P"),
        rule("Migrate", "view", "P"),
        rule("silent", "MEMBER", "C"),
    ],
    "init": init(alice="MEMBER owner", bob="MEMBER"),
    "bundle": {"size": 4, "timeout": 1000},
}


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "enc.db")
    yield store
    store.close()


@pytest.fixture
def host(store: Store) -> Host:
    return Host(store)


def found(host: Host, name: str = "", **changes: Any) -> bytes:
    content = compact_json({**PUSHED, "meta": {"description": name}, **changes})
    commit = build_manifest(person("alice"), content, host.now + 60_000)
    (receipt,) = host.run(commit)
    assert isinstance(receipt, Receipt), receipt
    return commit.enclave


def listen(host: Host, enclave: bytes, name: str, trait: str = "view", url: str = URL) -> Event:
    return host.send(enclave, "alice", "Grant", give(name, trait, endpoint=url))


def say(host: Host, enclave: bytes, count: int, type_: str = "message", by: str = "bob", text: str = "") -> None:
    """Events of one transaction."""
    commits = [host.commit(enclave, by, type_, f"{text}{i}") for i in range(count)]
    assert all(isinstance(outcome, Receipt) for outcome in host.run(*commits))


def all_batches(store: Store, name: str, url: str = URL) -> list[PushBatch]:
    return store.list_batches(person(name).public, url, 0, 1 << 62, 10_000)


def spread(host: Host, limits: BatchLimits = BatchLimits()) -> None:  # noqa: B008
    while host.store.fan_out(host.now, limits):
        pass


def pushed(host: Host, name: str, url: str = URL, enclave: bytes | None = None) -> list[int]:
    """The seqs of all events that a queue has, once all that waits is in batches; each once and in order."""
    spread(host)
    batches = all_batches(host.store, name, url)
    assert [batch.push_seq for batch in batches] == list(range(1, len(batches) + 1))
    runs = [run for batch in batches for run in batch.runs if enclave in (None, run.enclave)]
    return [seq for run in runs for seq in range(run.first_seq, run.first_seq + run.count)]


def notices(host: Host, name: str, url: str = URL) -> list[Notice]:
    spread(host)
    return [notice for batch in all_batches(host.store, name, url) for notice in batch.notices]


# Who hears


def test_an_endpoint_hears_from_the_next_event_on_and_by_its_rights(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    listen(host, enclave, "nick", "watch")
    say(host, enclave, 2)
    say(host, enclave, 1, "silent")
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4, 6]
    assert pushed(host, "nick") == []
    assert notices(host, "nick") == [Notice(enclave, 6, {"message": 3})]
    assert host.store.endpoints(enclave) == {
        (person("vera").public, "view"): URL,
        (person("nick").public, "watch"): URL,
    }
    assert host.store.endpoints(bytes(32)) == {}


def test_an_enclave_without_endpoints_queues_nothing(host: Host) -> None:
    enclave = found(host)
    host.send(enclave, "alice", "Grant", give("vera", "view"))
    say(host, enclave, 3)
    spread(host)
    assert host.store.queue_reports() == []
    assert host.store.totals() == PushTotals()


def test_the_grant_itself_goes_by_the_endpoints_before_it_and_a_new_url_takes_over(host: Host) -> None:
    enclave = found(host)
    first = listen(host, enclave, "vera", "ear")
    second = listen(host, enclave, "vera", "ear", OTHER)
    third = listen(host, enclave, "nick", "view")
    assert (first.seq, second.seq, third.seq) == (1, 2, 3)
    assert pushed(host, "vera") == [2]
    assert pushed(host, "vera", OTHER) == [3]
    assert host.store.endpoints(enclave)[person("vera").public, "ear"] == OTHER
    assert [(each.url, each.push_seq) for each in host.store.queue_reports(identity=person("vera").public)] == [
        (URL, 1),
        (OTHER, 1),
    ]


def test_within_one_transaction_each_event_sees_the_endpoints_before_it(host: Host) -> None:
    enclave = found(host)
    commits = [
        host.commit(enclave, "bob", "message", "nobody hears"),
        host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=URL)),
        host.commit(enclave, "bob", "message", "vera hears"),
        host.commit(enclave, "alice", "Grant", give("vera", "view", endpoint=OTHER)),
        host.commit(enclave, "bob", "message", "elsewhere"),
        host.commit(enclave, "alice", "Revoke", give("vera", "view")),
        host.commit(enclave, "bob", "message", "nobody hears"),
    ]
    assert all(isinstance(outcome, Receipt) for outcome in host.run(*commits))
    assert pushed(host, "vera") == [3]
    assert pushed(host, "vera", OTHER) == [5]
    assert host.store.endpoints(enclave) == {}


def test_an_identity_hears_once_at_each_of_its_urls(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera", "view", URL)
    listen(host, enclave, "vera", "watch", URL)
    listen(host, enclave, "vera", "ear", OTHER)
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4]  # she hears of the last Grant by the right that it gives
    assert pushed(host, "vera", OTHER) == [4]
    assert notices(host, "vera") == []  # P outranks N


def test_events_with_several_audiences_stay_in_order(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    listen(host, enclave, "nick", "watch")
    for type_ in ("message", "gated", "message", "gated"):
        say(host, enclave, 1, type_)
    assert pushed(host, "vera") == [3, 4, 5, 6]


def test_the_author_may_hear_what_others_do_not(host: Host) -> None:
    enclave = found(host)
    for name in ("vera", "nick"):
        listen(host, enclave, name)
    for name in ("vera", "nick", "vera", "bob"):
        say(host, enclave, 1, "mine", name)
    assert pushed(host, "vera") == [3, 5]
    assert pushed(host, "nick") == [4]


def test_a_gate_ends_and_opens_delivery_from_its_own_event_on(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    say(host, enclave, 1, "gated")
    host.send(enclave, "alice", "Gate", {"alias": "feed", "state": "closed"})
    say(host, enclave, 1, "gated")
    operations = [{"type": "Gate", "alias": "feed", "state": "open"}]
    host.send(enclave, "alice", "AC_Bundle", {"operations": operations})
    say(host, enclave, 1, "gated")
    assert pushed(host, "vera") == [2, 6]


def test_rights_that_change_without_an_endpoint(host: Host) -> None:
    """An endpoint stays with its trait, and brings what all traits of its identity give."""
    enclave = found(host)
    listen(host, enclave, "vera", "ear")
    say(host, enclave, 1)
    host.send(enclave, "alice", "Grant", give("vera", "view"))
    say(host, enclave, 1)
    host.send(enclave, "alice", "Shared", {"key": "topic", "value": "x"})
    say(host, enclave, 1)
    host.send(enclave, "alice", "Revoke", give("vera", "view"))
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3, 4, 6]
    assert [notice.seq for notice in notices(host, "vera")] == [7]


def ending(*what: Any) -> Any:
    return pytest.param(what, id=what[1])


@pytest.mark.parametrize(
    "what",
    [
        ending("alice", "Revoke", give("vera", "view")),
        ending("vera", "Revoke", give("vera", "view")),
        ending("carol", "Move", move("vera", "MEMBER", "OUTSIDER")),
        ending("alice", "AC_Bundle", {"operations": [{"type": "Revoke", **give("vera", "view")}]}),
    ],
)
def test_who_loses_the_trait_loses_the_endpoint(host: Host, what: tuple[Any, ...]) -> None:
    enclave = found(host, init=init(alice="MEMBER owner", bob="MEMBER", carol="MEMBER admin", vera="MEMBER"))
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    last = host.send(enclave, *what).seq
    host.send(enclave, "alice", "Grant", give("vera", "view"))  # the trait comes back, the endpoint does not
    say(host, enclave, 1)
    assert pushed(host, "vera") == [2]
    assert host.store.endpoints(enclave) == {}
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    assert pushed(host, "vera") == [2, last + 4]


def test_a_move_that_keeps_traits_keeps_the_endpoint(host: Host) -> None:
    enclave = found(host, init=init(alice="MEMBER owner", bob="MEMBER", vera="MEMBER"))
    listen(host, enclave, "vera")
    host.send(enclave, "alice", "Move", move("vera", "MEMBER", "OUTSIDER"))
    say(host, enclave, 1)
    assert pushed(host, "vera") == [3]


def test_version_1_registers_and_revokes_by_roles(store: Store) -> None:
    host = Host(store)
    schema = [
        *world_v1.PERSONAL_V1,
        world_v1.row("Revoke_Self", "DataView", "C", "DataView"),
        world_v1.row("Grant_Push", "Owner", "C", "DataView"),
    ]
    state = world_v1.initial(alice="Owner")
    state["DataView"] = [{"identity": pub("nick"), "endpoint": OTHER}]
    content = world_v1.manifest(schema, state)
    manifest = build_manifest(person("alice"), compact_json(content), host.now + 60_000, enc_v=1)

    def send(name: str, type_: str, content: Any) -> None:
        host.now += 1
        text = content if isinstance(content, str) else compact_json(content)
        exp = host.now + 60_000
        (receipt,) = host.run(build_commit(person(name), manifest.enclave, type_, text, exp, enc_v=1))
        assert isinstance(receipt, Receipt), receipt

    host.run(manifest)
    send("alice", "public", "nick hears")
    send("alice", "Grant_Push", world_v1.has("vera", "DataView", endpoint=URL))
    send("alice", "public", "both hear")
    send("vera", "Revoke_Self", {"role": "DataView"})
    send("alice", "public", "nick hears")
    assert pushed(host, "nick", OTHER) == [1, 3, 5]
    assert pushed(host, "vera") == [3]


def test_a_terminate_goes_out_and_ends_all_endpoints(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    last = host.send(enclave, "alice", "Terminate").seq
    assert host.store.endpoints(enclave) == {}
    assert host.store.queue_reports(enclave) == []
    assert pushed(host, "vera") == [last]


def test_after_a_migrate_what_is_queued_still_goes(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    say(host, enclave, 1)
    checkpoint = host.sequencer.checkpoint(enclave, 0)
    content = {"new_sequencer": pub("node2"), "prev_seq": checkpoint.seq, "ct_root": checkpoint.ct_root.hex()}
    host.send(enclave, "alice", "Migrate", content)
    (refused,) = host.run(host.commit(enclave, "bob", "message", "too late"))
    assert not isinstance(refused, Receipt)
    assert pushed(host, "vera") == [2, 3]


def test_a_purge_takes_what_was_not_in_a_batch(host: Host) -> None:
    enclave, other = found(host), found(host, "other")
    for each in (enclave, other):
        listen(host, each, "vera")
        say(host, each, 2)
    spread(host)
    say(host, enclave, 1)
    say(host, other, 1)
    host.send(enclave, "alice", "Terminate")
    while not host.store.purge(enclave, 2):
        pass
    assert host.store.endpoints(enclave) == {}
    assert pushed(host, "vera", enclave=enclave) == [2, 3]
    assert pushed(host, "vera", enclave=other) == [2, 3, 4]


# type_seq


def test_type_seq_counts_every_event_of_a_type_also_across_batches_of_a_transaction(host: Host) -> None:
    enclave = found(host)
    say(host, enclave, 3)  # before anybody listens
    listen(host, enclave, "nick", "watch")
    commits = [
        host.commit(enclave, "bob", "message", "4"),
        host.commit(enclave, "bob", "note", "1"),
        host.commit(enclave, "bob", "silent", "unheard"),
        host.commit(enclave, "bob", "message", "5"),
    ]
    host.run(*commits)
    assert notices(host, "nick") == [Notice(enclave, 8, {"message": 5, "note": 1})]
    say(host, enclave, 2, "note")
    assert notices(host, "nick")[1:] == [Notice(enclave, 10, {"note": 3})]


def test_updates_and_deletes_count_under_their_own_types(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "nick", "watch")
    first = host.send(enclave, "bob", "message", "one")
    second = host.send(enclave, "bob", "message", "two")
    update = host.commit(enclave, "bob", "Update", "one, again", ("r", first.id.hex()))
    delete = host.commit(enclave, "bob", "Delete", {"reason": "author"}, ("r", second.id.hex()))
    host.run(update, delete, host.commit(enclave, "bob", "message", "three"))
    assert notices(host, "nick") == [Notice(enclave, 6, {"message": 3, "Update": 1, "Delete": 1})]


def test_a_type_is_counted_over_all_that_its_events_are_about(host: Host) -> None:
    """An Update of a message and one of a note are of one type; nobody hears of the one of a `silent`."""
    rules = [*PUSHED["customs"], rule("note", "Sender", "U"), rule("silent", "Sender", "U")]
    enclave = found(host, customs=rules)
    listen(host, enclave, "nick", "watch")
    targets = [host.send(enclave, "bob", type_, "x") for type_ in ("message", "note", "silent")]
    updates = [host.commit(enclave, "bob", "Update", "y", ("r", each.id.hex())) for each in targets]
    host.run(*updates)
    assert notices(host, "nick")[-1].type_seq["Update"] == 2
    host.run(host.commit(enclave, "bob", "Update", "z", ("r", targets[2].id.hex())))
    host.send(enclave, "bob", "Update", "z", ("r", targets[0].id.hex()))
    assert notices(host, "nick")[-1] == Notice(enclave, 9, {"Update": 5})


# Batches


def test_push_seq_goes_on_over_spreads_and_enclaves_and_a_restart(tmp_path: Path) -> None:
    host = Host(SqliteStore(tmp_path / "enc.db"))
    enclaves = [found(host, name) for name in "ab"]
    for enclave in enclaves:
        listen(host, enclave, "vera")
    for i in range(4):
        say(host, enclaves[i % 2], 1)
        spread(host)
    say(host, enclaves[0], 1)
    host.store.close()
    again = Host(SqliteStore(tmp_path / "enc.db"))
    again.now = host.now + 10
    say(again, enclaves[0], 1)  # with an audience that the last process had numbered
    assert pushed(again, "vera", enclave=enclaves[0]) == [2, 3, 4, 5]
    assert pushed(again, "vera", enclave=enclaves[1]) == [2, 3]
    assert [batch.push_seq for batch in all_batches(again.store, "vera")] == [1, 2, 3, 4, 5]
    again.store.close()


def test_what_waits_becomes_as_many_batches_as_it_needs(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    say(host, enclave, 25)
    spread(host, BatchLimits(events=10))
    assert [batch.runs for batch in all_batches(host.store, "vera")] == [
        (EventRange(enclave, 2, 10),),
        (EventRange(enclave, 12, 10),),
        (EventRange(enclave, 22, 5),),
    ]


def test_the_bytes_of_a_batch_are_those_of_the_events_json(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    text = '"\n\\ü\U0001f600'
    say(host, enclave, 4, text=text)
    events = host.store.events(enclave, 2, 4)
    size = sum(len(compact_json(wire_event(event)).encode()) for event in events[:2])
    spread(host, BatchLimits(bytes=size))
    assert [batch.runs for batch in all_batches(host.store, "vera")] == [
        (EventRange(enclave, 2, 2),),
        (EventRange(enclave, 4, 2),),
    ]
    say(host, enclave, 2, text=text)
    spread(host, BatchLimits(bytes=size - 1))
    assert [batch.runs for batch in all_batches(host.store, "vera")][2:] == [
        (EventRange(enclave, 6, 1),),
        (EventRange(enclave, 7, 1),),
    ]


def test_one_spread_takes_a_bounded_part_of_the_outbox(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    for _ in range(5):
        say(host, enclave, 1)
    assert host.store.fan_out(host.now, BatchLimits(rows=3)) is True
    assert len(all_batches(host.store, "vera")) == 1
    assert host.store.fan_out(host.now, BatchLimits(rows=3)) is False
    assert host.store.fan_out(host.now, BatchLimits(rows=3)) is False
    assert [batch.runs for batch in all_batches(host.store, "vera")] == [
        (EventRange(enclave, 2, 3),),
        (EventRange(enclave, 5, 2),),
    ]


def test_a_batch_is_not_made_before_an_earlier_one(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    first = host.now + 500  # a time that no commit has come at
    for at in (first, first - 400, first + 9):
        say(host, enclave, 1)
        host.store.fan_out(at, BatchLimits())
    assert [batch.made_at for batch in all_batches(host.store, "vera")] == [first, first, first + 9]
    assert host.store.due(first, 10)[0].push_seq == 1


def test_pushed_gives_the_batches_that_are_asked_for(host: Host) -> None:
    enclave = found(host)
    listen(host, enclave, "vera")
    for _ in range(5):
        say(host, enclave, 1)
        spread(host)
    vera = person("vera").public

    def numbers(*what: Any) -> list[int]:
        return [batch.push_seq for batch in host.store.list_batches(*what)]

    assert numbers(vera, URL, 2, 4, 10) == [2, 3, 4]
    assert numbers(vera, URL, 2, 1 << 70, 2) == [2, 3]
    assert numbers(vera, OTHER, 1, 9, 10) == numbers(person("nick").public, URL, 1, 9, 10) == []
    (queue,) = host.store.queue_reports()
    assert host.store.batch(queue.queue, 3) == host.store.list_batches(vera, URL, 3, 3, 1)[0]
    assert host.store.batch(queue.queue, 6) is host.store.batch(99, 1) is None


# What becomes of them


def queued(host: Host, batches: int = 3) -> int:
    """A queue with this many batches; its number."""
    enclave = found(host)
    listen(host, enclave, "vera")
    for _ in range(batches):
        host.now += 10
        say(host, enclave, 2)
        spread(host)
    (report,) = host.store.queue_reports()
    assert (report.push_seq, report.waiting, report.waiting_events) == (batches, batches, 2 * batches)
    return report.queue


def due(host: Host, at: int | None = None) -> list[tuple[int, int]]:
    return [(each.push_seq, each.tries) for each in host.store.due(host.now if at is None else at, 10)]


def test_batches_go_in_order_and_a_failed_one_waits_for_its_own_retry(host: Host) -> None:
    q, now = queued(host), host.now
    assert due(host) == [(1, 0)]
    assert host.store.record_results([DeliveryResult(q, 1, now, "503", now + 1000)]) == []
    assert due(host) == [(2, 0)]
    host.store.record_results([DeliveryResult(q, 2, now)])
    assert due(host) == [(3, 0)]
    assert due(host, now + 1000) == [(3, 0)]  # it has been due for longer
    host.store.record_results([DeliveryResult(q, 3, now, "hung up", now + 500)])
    assert due(host) == []
    assert due(host, now + 499) == []
    assert due(host, now + 500) == [(3, 1)]
    host.store.record_results([DeliveryResult(q, 3, now + 500)])
    assert due(host, now + 1000) == [(1, 1)]
    (report,) = host.store.queue_reports()
    assert (report.waiting, report.waiting_events, report.delivered, report.dead) == (1, 2, 2, 0)
    assert (report.last_error, report.last_error_at) == ("hung up", now)
    assert report.oldest == all_batches(host.store, "vera")[0].made_at


def test_an_outcome_of_a_batch_that_does_not_wait_changes_nothing(host: Host) -> None:
    q, now = queued(host), host.now
    outcomes = [DeliveryResult(q, 1, now), DeliveryResult(q, 2, now, "gone")]
    assert host.store.record_results(outcomes) == [DeadBatch(q, 2, person("vera").public, URL, "gone")]
    before = host.store.queue_reports()
    again = [
        *outcomes,
        DeliveryResult(q, 1, now, "late", now),
        DeliveryResult(q, 2, now),
        DeliveryResult(q, 9, now),
        DeliveryResult(99, 1, now),
    ]
    assert host.store.record_results(again) == []
    assert host.store.queue_reports() == before
    assert (before[0].waiting, before[0].delivered, before[0].dead) == (1, 1, 1)
    assert host.store.record_results([]) == []


def test_an_error_is_kept_in_part(host: Host) -> None:
    q = queued(host)
    host.store.record_results([DeliveryResult(q, 1, host.now, "x" * 10_000, host.now)])
    assert host.store.queue_reports()[0].last_error == "x" * 200


def test_dead_batches_are_delivered_again_on_request(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([DeliveryResult(q, n, now, "gone", now) for n in (1, 2)])
    host.store.record_results([DeliveryResult(q, n, now, "gone") for n in (1, 2)])
    assert due(host) == [(3, 0)]
    vera = person("vera").public
    assert host.store.redeliver(now + 5, person("nick").public) == 0
    assert host.store.redeliver(now + 5, vera, OTHER) == 0
    assert host.store.redeliver(now + 5, vera, URL) == 2
    assert host.store.redeliver(now + 5) == 0
    host.store.record_results([DeliveryResult(q, 3, now)])
    assert due(host, now + 4) == []
    assert due(host, now + 5) == [(1, 0)]
    (report,) = host.store.queue_reports()
    assert (report.waiting, report.waiting_events, report.dead, report.delivered) == (2, 4, 0, 1)


def test_retention_forgets_what_was_settled_and_nothing_else(host: Host) -> None:
    q, now = queued(host, 6), host.now
    host.store.record_results(
        [
            DeliveryResult(q, 1, now - 10),
            DeliveryResult(q, 2, now),
            DeliveryResult(q, 3, now - 10, "x"),
            DeliveryResult(q, 4, now, "x"),
        ]
    )
    host.store.record_results([DeliveryResult(q, 5, now, "x", now)])

    def kept() -> list[int]:
        return [batch.push_seq for batch in all_batches(host.store, "vera")]

    assert host.store.delete_settled(now - 11, now - 11) is False
    assert kept() == [1, 2, 3, 4, 5, 6]
    assert host.store.delete_settled(now - 10, now - 11) is False
    assert kept() == [2, 3, 4, 5, 6]
    assert host.store.delete_settled(now, now, 2) is True
    assert len(kept()) == 4 - 1
    assert host.store.delete_settled(now, now, 2) is False
    assert kept() == [5, 6]
    (report,) = host.store.queue_reports()
    assert (report.push_seq, report.waiting, report.delivered, report.dead) == (6, 2, 2, 0)
    assert host.store.delete_settled(1 << 50, 1 << 50) is False


def test_due_gives_one_batch_of_each_queue_and_goes_on_after_a_page(host: Host) -> None:
    enclave = found(host)
    for i in range(5):
        listen(host, enclave, "vera", "view", f"https://{i}.example/")
        listen(host, enclave, f"v{i}")
    say(host, enclave, 1)
    spread(host)
    say(host, enclave, 1)
    spread(host)
    first = host.store.due(host.now, 4)
    second = host.store.due(host.now, 4, first[-1].queue)
    assert (len(first), len(second)) == (4, 2)  # vera's old urls have had nothing since
    found_ = first + second
    assert [each.queue for each in found_] == sorted({each.queue for each in found_})
    assert {each.push_seq for each in found_} == {1}
    assert all(each.bytes > 500 for each in found_)
    assert host.store.due(host.now, 4, second[-1].queue) == []


def test_reports_by_enclave_and_identity_and_totals(host: Host) -> None:
    one, two = found(host, "one"), found(host, "two")
    listen(host, one, "vera")
    listen(host, two, "vera", "view", OTHER)
    listen(host, two, "nick")
    say(host, two, 2)
    spread(host)
    vera, nick = person("vera").public, person("nick").public

    def keys(**what: Any) -> list[tuple[bytes, str]]:
        return [(each.identity, each.url) for each in host.store.queue_reports(**what)]

    everything = sorted([(vera, URL), (vera, OTHER), (nick, URL)])
    assert keys() == everything
    assert keys(limit=2) == everything[:2]
    assert keys(enclave=one) == [(vera, URL)]
    assert keys(enclave=two) == sorted([(vera, OTHER), (nick, URL)])
    assert keys(identity=vera) == [(vera, URL), (vera, OTHER)]
    assert keys(enclave=two, identity=vera) == [(vera, OTHER)]
    assert keys(enclave=bytes(32)) == []
    q = host.store.queue_reports(two, nick)[0].queue
    made = host.now
    host.now += 50
    say(host, two, 1)
    spread(host)
    host.store.record_results([DeliveryResult(q, 1, host.now), DeliveryResult(q, 2, host.now, "x")])
    assert host.store.totals() == PushTotals(queues=3, waiting=2, dead=1, delivered=1, oldest=made)
    waits = [each.waiting for each in host.store.queue_reports()]
    assert sorted(waits) == [0, 0, 2]
    assert [each.oldest for each in host.store.queue_reports() if not each.waiting] == [None, None]


# A store that is written by hand


def step_with(log: Log, audience: tuple[Recipient, ...]) -> None:
    log.add()
    log.steps[-1] = replace(log.steps[-1], recipients=audience)


def test_runs_of_one_audience_are_one_row_and_a_gap_begins_another(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log, other = Log(store), Log(store, meta={"n": 2})
    one = (Recipient(b"V" * 32, URL, "P"),)
    two = (Recipient(b"N" * 32, URL, "N"), *one)
    for audience in (one, one, (), one, two, two):
        step_with(log, audience)
        step_with(other, one)
    both = [step for pair in zip(log.steps, other.steps, strict=True) for step in pair]
    store.write(both, START)
    rows = store.database.rows("SELECT e, first_seq, a, types IS NOT NULL FROM outbox ORDER BY o")
    assert rows == [(1, 1, 1, 0), (2, 1, 1, 0), (1, 4, 1, 0), (1, 5, 2, 1)]
    store.fan_out(START)
    assert [batch.runs for batch in store.list_batches(b"V" * 32, URL, 1, 9, 9)] == [
        (EventRange(log.enclave, 1, 2), EventRange(log.enclave, 4, 3), EventRange(other.enclave, 1, 6))
    ]
    assert [batch.notices for batch in store.list_batches(b"N" * 32, URL, 1, 9, 9)] == [
        (Notice(log.enclave, 6, {"message": 6}),)
    ]
    store.close()


def test_audiences_that_nothing_names_are_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MAX_AUDIENCES", 3)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    kept = (Recipient(b"V" * 32, URL, "P"),)
    for i in range(8):
        step_with(log, (Recipient(b"V" * 32, f"https://{i}.example/", "P"),))
        step_with(log, kept)
        log.write()
        store.fan_out(START)
        assert store.database.rows("SELECT count(*) FROM audiences")[0][0] <= 4
    batches = store.list_batches(b"V" * 32, URL, 1, 99, 99)
    assert [run.first_seq for batch in batches for run in batch.runs] == [2, 4, 6, 8, 10, 12, 14, 16]
    store.close()


def test_one_spread_takes_a_bounded_number_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "MAX_EVENTS", 5)
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    audience = (Recipient(b"V" * 32, URL, "P"),)
    for _ in range(3):
        for _ in range(3):
            step_with(log, audience)
        log.write()
    assert [store.fan_out(START), store.fan_out(START), store.fan_out(START)] == [True, False, False]
    assert [batch.runs[0].count for batch in store.list_batches(b"V" * 32, URL, 1, 9, 9)] == [6, 3]
    store.close()


def test_a_write_or_a_spread_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    log = Log(store)
    log.write()
    audience = (Recipient(b"V" * 32, URL, "P"),)
    change = Effects(endpoints=(EndpointChange(b"V" * 32, "view", URL),))
    log.add(effects=change)
    log.steps[-1] = replace(log.steps[-1], recipients=audience)
    steps = list(log.steps)
    db, tables = store.database.writer.db, ("outbox", "audiences", "endpoints", "queues", "batches")

    def counts() -> list[int]:
        return [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608

    db.execute("CREATE TEMP TRIGGER no BEFORE INSERT ON outbox BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(Exception, match="SQLITE_CONSTRAINT"):
        store.write(steps, START)
    assert counts() == [0, 0, 0, 0, 0]
    db.execute("DROP TRIGGER no")
    store.write(steps, START)
    assert counts() == [1, 1, 1, 1, 0]
    db.execute("CREATE TEMP TRIGGER no BEFORE DELETE ON outbox BEGIN SELECT raise(ABORT, 'no'); END")
    with pytest.raises(Exception, match="SQLITE_CONSTRAINT"):
        store.fan_out(START)
    assert counts() == [1, 1, 1, 1, 0]
    db.execute("DROP TRIGGER no")
    assert store.fan_out(START) is False
    assert counts() == [0, 1, 1, 1, 1]
    assert store.endpoints(log.enclave) == {(b"V" * 32, "view"): URL}
    store.close()


# What it costs


def plan(db: sqlite3.Connection, sql: str) -> list[str]:
    args: Any = {"now": 1, "limit": 1, "after": 0} if ":now" in sql else (1,) * sql.count("?")
    return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", args)]


def test_the_plans(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    db = store.database.writer.db
    for sql, index in {
        "SELECT o, e, first_seq, a, sizes, types FROM outbox ORDER BY o LIMIT ?": "SCAN outbox",
        "DELETE FROM outbox WHERE o <= ?": "INTEGER PRIMARY KEY",
        push_reads.BATCHES: "sqlite_autoindex_batches_1 (q=? AND push_seq>? AND push_seq<?)",
        "SELECT min(made_at) FROM batches WHERE state = 0": "SEARCH batches USING INDEX batches_oldest",
        delivery_results.FIND: "sqlite_autoindex_batches_1 (q=? AND push_seq=?)",
        delivery_results.OLD: "batches_settled (state=? AND settled_at<?)",
        delivery_results.REVIVE: "batches_dead (q=?)",
        "SELECT identity, trait, url FROM endpoints WHERE e = ?": "PRIMARY KEY (e=?)",
    }.items():
        (*_, step) = plan(db, sql)
        assert index in step, sql
    steps = plan(db, push_reads.DUE)
    assert sum("SEARCH batches USING INDEX batches_waiting (q>?)" in step for step in steps) == 2
    assert sum("INDEX batches_waiting (q=? AND next_try<?)" in step for step in steps) == 1
    assert not any("SCAN batches" in step or "SCAN queues" in step or "TEMP B-TREE" in step for step in steps)
    for where, search in (
        ("", "SCAN queues"),
        (" WHERE identity = ?", "SEARCH queues USING INDEX sqlite_autoindex_queues_1 (identity=?)"),
    ):
        steps = plan(db, f"{push_reads.REPORTS}{where}")
        assert (steps[0], steps[-1]) == (search, "SEARCH batches USING INDEX batches_waiting (q=?)")
    store.close()


def test_settled_batches_and_those_behind_the_first_cost_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q, now = queued(host, 2), host.now
    _, few = effort(store, lambda: store.due(now + 10, 10))
    fields = "q, push_seq + 10 * i, made_at, runs, events, bytes, {}, tries, {}, {}"
    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
    into = "INSERT INTO batches (q, push_seq, made_at, runs, events, bytes, state, tries, next_try, settled_at)"
    for state, next_try, at in ((1, "next_try", "5"), (0, "next_try + i", "NULL")):
        some = f"SELECT {fields.format(state, next_try, at)} FROM batches, n WHERE push_seq = {state + 1}"  # noqa: S608
        store.database.writer.db.execute(f"{numbers} {into} {some}")
    found, many = effort(store, lambda: store.due(now + 10, 10))
    assert [(each.queue, each.push_seq) for each in found] == [(q, 1)]
    assert many < few + 50
    store.close()


# Other processes


def test_a_reader_in_another_process_sees_what_is_committed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)
    reader = PushReader(tmp_path / "enc.db")
    assert reader.due(host.now, 10) == store.due(host.now, 10)
    batch = reader.batch(q, 1)
    assert batch == store.batch(q, 1)
    assert batch is not None
    (run,) = batch.runs
    assert reader.items(run.enclave, run.first_seq, run.count) == store.items(run.enclave, run.first_seq, run.count)
    store.record_results([DeliveryResult(q, 1, host.now), DeliveryResult(q, 2, host.now, "x")])
    assert [each.push_seq for each in reader.due(host.now, 10)] == [3]
    assert reader.batch(q, 9) is None
    reader.close()
    assert read_reports(tmp_path / "enc.db") == store.queue_reports()
    assert redeliver_at(tmp_path / "enc.db", host.now, url=OTHER) == 0
    assert redeliver_at(tmp_path / "enc.db", host.now, person("vera").public) == 1
    assert due(host) == [(2, 0)]
    assert host.store.queue_reports()[0].dead == 0
    store.close()


def test_a_purged_enclave_is_gone_for_a_reader_too(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)
    reader = PushReader(tmp_path / "enc.db")
    batch = reader.batch(q, 1)
    assert batch is not None
    (run,) = batch.runs
    assert reader.items(run.enclave, run.first_seq, run.count)
    host.send(run.enclave, "alice", "Terminate")
    store.purge(run.enclave, 1)
    assert reader.items(run.enclave, run.first_seq, run.count) == []
    assert reader.batch(q, 1) == batch
    reader.close()
    store.close()


def test_what_became_of_a_batch_need_not_wait_for_the_disk_and_commits_do(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "enc.db")
    host = Host(store)
    q = queued(host)

    def waits() -> bool:
        return store.database.writer.db.execute("PRAGMA synchronous").fetchone() == (2,)

    assert waits()
    store.record_results([DeliveryResult(q, 1, host.now)])
    assert not waits()
    store.write([], host.now)
    assert waits()
    store.close()
