"""Whether a queue's endpoint is confirmed, and until when the queue is held."""

from enc.node.store.push_interface import ChallengeResult, DeliveryResult
from tests.core.world import person
from tests.node.push_host import URL, due, listen, queued
from tests.node.store_host import Host


def state(host: Host) -> tuple[str, int | None, int]:
    (report,) = host.store.queue_reports()
    return report.state, report.confirmed_at, report.held_until


def test_an_endpoint_is_unconfirmed_at_first(host: Host) -> None:
    q = queued(host)
    assert state(host) == ("unconfirmed", None, 0)
    (one,) = host.store.due(host.now, 10)
    assert (one.queue, one.confirmed_at, one.challenges, one.missing, one.registrar > 0) == (q, None, 0, 0, True)
    assert host.store.totals().unconfirmed == 1


def test_challenges_that_fail_hold_the_queue_and_one_that_is_answered_confirms_it(host: Host) -> None:
    q, now = queued(host), host.now
    for count in (1, 2):
        host.store.record_results([ChallengeResult(q, now, "status 404", now + 10 * count)])
        assert state(host) == ("challenge failed", None, now + 10 * count)
        assert due(host, now + 10 * count - 1) == []
        (one,) = host.store.due(now + 10 * count, 10)
        assert one.challenges == count
    (report,) = host.store.queue_reports()
    assert (report.waiting, report.last_error, report.last_error_at) == (3, "status 404", now)
    host.store.record_results([ChallengeResult(q, now + 30)])
    assert state(host) == ("confirmed", now + 30, 0)
    (one,) = host.store.due(now + 30, 10)
    assert (one.push_seq, one.tries, one.confirmed_at, one.challenges) == (1, 0, now + 30, 0)
    assert host.store.totals().unconfirmed == 0


def test_a_suspension_keeps_the_batch_and_ends_the_confirmation(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now)])
    assert host.store.record_results([DeliveryResult(q, 1, now, "status 410", now, 0, now + 50)]) == []
    assert state(host) == ("suspended", None, now + 50)
    assert due(host, now + 49) == []
    assert due(host, now + 50) == [(1, 0)]
    host.store.record_results([ChallengeResult(q, now + 50, "status 500", now + 60)])
    assert state(host) == ("suspended", None, now + 60)
    host.store.record_results([ChallengeResult(q, now + 60)])
    assert state(host) == ("confirmed", now + 60, 0)
    dead = DeliveryResult(q, 1, now, "status 410", None, 0, now + 99)
    assert host.store.record_results([dead]) == [], "a suspension is no death, even at the last attempt"


def test_answers_404_in_a_row_are_counted(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([DeliveryResult(q, 1, now, "status 404", now + 1, missing=1)])
    assert host.store.due(now, 10)[0].missing == 1
    host.store.record_results([DeliveryResult(q, 2, now, "status 404", now + 1, missing=2)])
    assert host.store.due(now, 10)[0].missing == 2
    host.store.record_results([DeliveryResult(q, 3, now)])
    assert host.store.due(now + 1, 10)[0].missing == 0


def test_a_failed_delivery_holds_the_queue_until_one_succeeds(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now, address="192.0.2.1")])
    host.store.record_results([DeliveryResult(q, 1, now, "status 500", now + 5, failures=4, resume_at=now + 30)])
    assert state(host) == ("confirmed", now, now + 30)
    assert due(host, now + 29) == []
    (one,) = host.store.due(now + 30, 10)
    assert (one.push_seq, one.failures, one.confirmed_to) == (2, 4, "192.0.2.1")
    host.store.record_results([DeliveryResult(q, 2, now + 30)])
    (one,) = host.store.due(now + 30, 10)
    assert (one.failures, state(host)) == (0, ("confirmed", now, 0))


def test_a_failed_delivery_may_end_the_confirmation_and_keeps_the_batch(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now), ChallengeResult(q, now, "x", now + 9, is_confirmed=True)])
    failed = DeliveryResult(q, 1, now, "status 500", now + 5, failures=1, resume_at=now + 30, must_confirm=True)
    assert host.store.record_results([failed]) == []
    assert state(host) == ("unconfirmed", None, now + 30)
    (one,) = host.store.due(now + 30, 10)
    assert (one.challenges, one.failures) == (0, 1)
    host.store.record_results([ChallengeResult(q, now + 30)])
    assert host.store.due(now + 30, 10)[0].failures == 0


def test_a_renewal_that_fails_keeps_the_confirmation(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now, address="192.0.2.1")])
    for count in (1, 2):
        host.store.record_results([ChallengeResult(q, now + 1, "status 500", now + 50, is_confirmed=True)])
        assert state(host) == ("confirmed", now, 0)
        (one,) = host.store.due(now + 1, 10)
        assert (one.challenges, one.renew_at, one.confirmed_to) == (count, now + 50, "192.0.2.1")
    assert host.store.queue_reports()[0].last_error == "status 500"
    host.store.record_results([ChallengeResult(q, now + 60, address="192.0.2.2")])
    (one,) = host.store.due(now + 60, 10)
    assert (one.challenges, one.renew_at, one.confirmed_to) == (0, 0, "192.0.2.2")


def test_an_operator_ends_the_pause_of_a_confirmed_endpoint(host: Host) -> None:
    q, now = queued(host), host.now
    failed = DeliveryResult(q, 1, now, "status 500", now, failures=4, resume_at=now + 1_000_000)
    host.store.record_results([ChallengeResult(q, now), failed])
    assert due(host) == []
    host.store.redeliver(now)
    (one,) = host.store.due(now, 10)
    assert (one.failures, one.confirmed_at, one.registrar > 0) == (0, now, True)


def test_a_dead_batch_ends_the_confirmation(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now), DeliveryResult(q, 1, now)])
    assert state(host)[0] == "confirmed"
    host.store.record_results([DeliveryResult(q, 2, now, "status 500")])
    assert state(host) == ("unconfirmed", None, 0)


def test_a_registration_ends_a_hold_but_no_confirmation(host: Host) -> None:
    q, now = queued(host), host.now
    (enclave,) = host.store.enclaves()
    host.store.record_results([ChallengeResult(q, now, "status 404", now + 1_000_000)])
    listen(host, enclave, "vera")
    assert state(host) == ("unconfirmed", None, 0)
    host.store.record_results([DeliveryResult(q, 1, now, "status 410", now, 0, now + 1_000_000)])
    listen(host, enclave, "vera")
    assert state(host) == ("suspended", None, 0), "until a challenge is answered"
    host.store.record_results([ChallengeResult(q, now)])
    listen(host, enclave, "vera")
    assert state(host) == ("confirmed", now, 0)


def test_an_operator_ends_holds(host: Host) -> None:
    q, now = queued(host), host.now
    host.store.record_results([ChallengeResult(q, now, "status 404", now + 1_000_000)])
    assert host.store.redeliver(now, person("nick").public) == 0
    assert due(host) == []
    assert host.store.redeliver(now, person("vera").public, URL) == 0
    (one,) = host.store.due(now, 10)
    assert (one.challenges, one.registrar) == (0, 0)


def test_batches_die_that_wait_too_long_for_a_confirmation(host: Host) -> None:
    q = queued(host)
    made = [batch.made_at for batch in host.store.list_batches(person("vera").public, URL, 1, 9, 9)]
    now = host.now + 1000
    assert host.store.expire_unconfirmed(made[0] - 1, now) == 0
    assert host.store.expire_unconfirmed(made[2], now, 2) == 2
    (report,) = host.store.queue_reports()
    assert (report.waiting, report.waiting_events, report.dead) == (1, 2, 2)
    assert (report.last_error, report.last_error_at) == ("the endpoint was not confirmed", now)
    assert host.store.redeliver(now) == 2
    assert host.store.expire_unconfirmed(now - 1, now) == 1, "those that an operator revived wait anew"
    host.store.record_results([ChallengeResult(q, now)])
    assert host.store.expire_unconfirmed(now + 1, now) == 0
