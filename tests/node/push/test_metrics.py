"""Metrics of deliveries."""

from enc.node.ops.metrics import CachedReading, Metrics
from enc.node.store.push_interface import ChallengeResult, DeliveryResult
from tests.node.metrics_page import figures
from tests.node.pushing import CONFIG, report, room, say, settle
from tests.node.served import Served


def test_what_became_of_tries_is_counted() -> None:
    metrics = Metrics()
    metrics.count_deliveries(
        [
            DeliveryResult(1, 1, 0),
            DeliveryResult(1, 2, 0),
            DeliveryResult(2, 1, 0, "status 500", 5),
            DeliveryResult(3, 1, 0, "status 500"),
            DeliveryResult(4, 1, 0, "status 410", None, 0, 9),
            ChallengeResult(4, 0, "status 404", 9),
            ChallengeResult(4, 0),
        ]
    )
    text = metrics.text().decode()
    assert "\nenc_push_delivered_total 2.0\n" in text
    assert "\nenc_push_failed_total 3.0\n" in text
    for name in ("dead", "suspended", "confirmed", "challenges_failed"):
        assert f"\nenc_push_{name}_total 1.0\n" in text


def test_how_all_queues_stand_is_shown() -> None:
    with Served(CONFIG) as node:
        before = figures(node)
    assert [before[f"enc_push_{name}", ""] for name in NAMES] == [0, 0, 0, 0, 0]
    with Served(CONFIG) as node:
        enclave = room(node)
        say(enclave, "one")
        say(enclave, "two")
        settle(node, DeliveryResult(report(node, "vera").queue, 1, node.clock.now, "status 410"))
        node.clock.tick(7000)
        found = figures(node)
    assert [found[f"enc_push_{name}", ""] for name in NAMES[:4]] == [2, 3, 1, 2]
    assert 7 <= found["enc_push_oldest_seconds", ""] < 60


NAMES = ("queues", "waiting_batches", "dead_batches", "unconfirmed_queues", "oldest_seconds")


def test_queues_are_not_counted_anew_for_every_question() -> None:
    now, counted = [100.0], list[int]()

    def count() -> int:
        counted.append(0)
        return len(counted)

    recent = CachedReading(count, 5.0, lambda: now[0])
    assert [recent(), recent()] == [1, 1]
    now[0] = 104.9
    assert recent() == 1
    now[0] = 105.0
    assert [recent(), recent()] == [2, 2]
