"""The clock of timestamps."""

import time

from enc.runtime.clock import now_ms


def test_it_counts_unix_milliseconds() -> None:
    before = time.time()
    assert int(before * 1000) <= now_ms() <= int(time.time() * 1000) + 1
