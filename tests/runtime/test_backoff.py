"""Pauses between tries, and when the tries end."""

import pytest

from enc.core.errors import RateLimited, Unavailable
from enc.runtime.backoff import Backoff, RetryPauses

PAUSES = RetryPauses(first_s=0.1, max_s=5.0)


def test_each_pause_is_twice_the_last_up_to_a_maximum() -> None:
    pauses, found = RetryPauses(first_s=1.0, max_s=5.0), [0.0]
    for _ in range(5):
        found.append(pauses.after(found[-1]))
    assert found[1:] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_pauses_of_zero_stay_zero() -> None:
    assert RetryPauses(first_s=0.0, max_s=0.0).after(0.0) == 0.0


def test_patience_begins_with_the_first_failure_and_not_before() -> None:
    now = [0.0]
    backoff, error = Backoff(10, lambda: now[0], PAUSES), Unavailable("gone")
    now[0] = 1000.0  # a long idle time is not a failure
    assert backoff.wait(error) > 0
    now[0] = 1009.0
    backoff.wait(error)
    now[0] = 1010.0
    with pytest.raises(Unavailable):
        backoff.wait(error)
    backoff.reset()
    now[0] = 5000.0
    assert backoff.wait(error) > 0


def test_waits_double_and_start_again_after_a_success() -> None:
    backoff, error = Backoff(1000, lambda: 0.0, PAUSES), Unavailable("gone")
    assert [backoff.wait(error) for _ in range(8)] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    backoff.reset()
    assert backoff.wait(error) == 0.1


def test_an_error_may_ask_for_a_longer_wait_but_not_beyond_the_maximum() -> None:
    backoff = Backoff(1000, lambda: 0.0, PAUSES)
    assert backoff.wait(RateLimited("slow", retry_after_ms=700)) == 0.7
    assert backoff.wait(RateLimited("slow", retry_after_ms=10**9)) == 5.0
    assert backoff.wait(RateLimited("slow", retry_after_ms="soon")) == 0.4
