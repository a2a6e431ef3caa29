"""Places that no single key can take all of."""

from collections.abc import Hashable
from random import Random

import pytest

from enc.core.errors import MisuseError
from enc.runtime.fair_share import FairShare


def fill(share: FairShare, *keys: Hashable) -> list[int]:
    """Let keys take places in turn until none gets another; return how many each holds."""
    while sum(share.take(key) for key in keys):
        pass
    return [share.held(key) for key in keys]


def test_one_key_takes_half_two_a_third_each_and_so_on() -> None:
    for keys in range(1, 8):
        held = fill(FairShare(840), *range(keys))
        assert held == [840 // (keys + 1)] * keys


def test_a_newcomer_finds_a_place_however_many_one_key_asks_for() -> None:
    share = FairShare(100)
    fill(share, "one")
    assert not share.take("one")
    assert share.take("another")
    assert share.used == 51


def test_all_places_can_be_taken_and_not_one_more() -> None:
    share = FairShare(5)
    assert [share.take(key) for key in range(6)] == [True] * 5 + [False]
    assert not FairShare(0).take("one")
    share = FairShare(1)
    assert share.take("one")
    assert not share.take("another")


def test_places_that_are_released_can_be_taken_again() -> None:
    share = FairShare(10)
    fill(share, "one")
    share.release("one", 2)
    assert (share.held("one"), share.used) == (3, 3)
    assert fill(share, "one") == [5]


def test_amounts_count_as_that_many_places() -> None:
    share = FairShare(100)
    assert not share.take("one", 101)
    assert share.take("one", 30)
    assert not share.take("one", 41)
    assert share.take("one", 20)
    assert not share.take("one")
    assert share.take("another", 50)
    share.release("one", 50)
    assert (share.held("one"), share.used) == (0, 50)


def test_without_a_key_only_the_capacity_counts() -> None:
    share = FairShare(10)
    assert fill(share, None) == [10]
    assert not share.take("one")
    share.release(None, 3)
    assert (share.used, share.take("one")) == (7, True)


def test_no_key_is_kept_without_places() -> None:
    share = FairShare(10)
    for key in range(1_000):
        assert share.take(key)
        share.release(key)
    assert (share.used, share._held) == (0, {})


def test_what_a_key_does_not_hold_it_cannot_release() -> None:
    share = FairShare(10)
    share.take("one")
    with pytest.raises(MisuseError, match="releases 2 places, but holds 1"):
        share.release("one", 2)
    with pytest.raises(MisuseError):
        share.release("another")
    assert share.used == 1
    with pytest.raises(MisuseError, match="must be 0 or more"):
        FairShare(-1)


def test_the_counts_agree_whatever_the_order() -> None:
    random, share, held = Random(7), FairShare(50), dict.fromkeys("abcdef", 0)
    for _ in range(5_000):
        key, amount = random.choice("abcdef"), random.randint(1, 4)
        if random.random() < 0.5:
            free = 50 - sum(held.values())
            assert share.take(key, amount) == (held[key] + amount <= free)
            held[key] += amount if held[key] + amount <= free else 0
        elif held[key] >= amount:
            share.release(key, amount)
            held[key] -= amount
        assert share.used == sum(held.values())
