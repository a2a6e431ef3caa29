"""How queued events become batches, and the results of deliveries."""

from pathlib import Path
from typing import Any

from enc.core.log.event import wire_event
from enc.core.primitives.encoding import compact_json
from enc.node.store.push_interface import (
    BatchLimits,
    DeadBatch,
    DeliveryResult,
    EventRange,
    PushTotals,
)
from enc.node.store.sqlite.store import SqliteStore
from tests.core.world import person
from tests.node.push_host import OTHER, URL, all_batches, create, due, listen, pushed, queued, say, spread
from tests.node.store_host import Host


def test_push_seq_goes_on_over_spreads_and_enclaves_and_a_restart(tmp_path: Path) -> None:
    host = Host(SqliteStore(tmp_path / "enc.db"))
    enclaves = [create(host, name) for name in "ab"]
    for enclave in enclaves:
        listen(host, enclave, "vera")
    for i in range(4):
        say(host, enclaves[i % 2], 1)
        spread(host)
    say(host, enclaves[0], 1)
    host.store.close()
    again = Host(SqliteStore(tmp_path / "enc.db"))
    again.now = host.now + 10
    say(again, enclaves[0], 1)  # with an audience that the previous process had numbered
    assert pushed(again, "vera", enclave=enclaves[0]) == [2, 3, 4, 5]
    assert pushed(again, "vera", enclave=enclaves[1]) == [2, 3]
    assert [batch.push_seq for batch in all_batches(again.store, "vera")] == [1, 2, 3, 4, 5]
    again.store.close()


def test_what_waits_becomes_as_many_batches_as_it_needs(host: Host) -> None:
    enclave = create(host)
    listen(host, enclave, "vera")
    say(host, enclave, 25)
    spread(host, BatchLimits(events=10))
    assert [batch.runs for batch in all_batches(host.store, "vera")] == [
        (EventRange(enclave, 2, 10),),
        (EventRange(enclave, 12, 10),),
        (EventRange(enclave, 22, 5),),
    ]


def test_the_bytes_of_a_batch_are_those_of_the_events_json(host: Host) -> None:
    enclave = create(host)
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
    enclave = create(host)
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
    enclave = create(host)
    listen(host, enclave, "vera")
    first = host.now + 500  # a time at which no commit arrived
    for at in (first, first - 400, first + 9):
        say(host, enclave, 1)
        host.store.fan_out(at, BatchLimits())
    assert [batch.made_at for batch in all_batches(host.store, "vera")] == [first, first, first + 9]
    assert host.store.due(first, 10)[0].push_seq == 1


def test_pushed_gives_the_batches_that_are_asked_for(host: Host) -> None:
    enclave = create(host)
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


# Results of deliveries


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
    enclave = create(host)
    for i in range(5):
        listen(host, enclave, "vera", "view", f"https://{i}.example/")
        listen(host, enclave, f"v{i}")
    say(host, enclave, 1)
    spread(host)
    say(host, enclave, 1)
    spread(host)
    first = host.store.due(host.now, 4)
    second = host.store.due(host.now, 4, first[-1].queue)
    assert (len(first), len(second)) == (4, 2)  # vera's old URLs get no more events
    found_ = first + second
    assert [each.queue for each in found_] == sorted({each.queue for each in found_})
    assert {each.push_seq for each in found_} == {1}
    assert all(each.bytes > 500 for each in found_)
    assert host.store.due(host.now, 4, second[-1].queue) == []


def test_reports_by_enclave_and_identity_and_totals(host: Host) -> None:
    one, two = create(host, "one"), create(host, "two")
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
    assert host.store.totals() == PushTotals(queues=3, waiting=2, dead=1, delivered=1, oldest=made, unconfirmed=1)
    waits = [each.waiting for each in host.store.queue_reports()]
    assert sorted(waits) == [0, 0, 2]
    assert [each.oldest for each in host.store.queue_reports() if not each.waiting] == [None, None]
