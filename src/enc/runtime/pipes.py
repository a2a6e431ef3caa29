"""Pipes to child processes with a time limit: a process that is stopped neither reads nor writes, and
its pipes stay open.
"""

import os
import select
import time


class PipeTimeout(OSError):
    """The other end was not ready in time."""


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll, left_s = select.poll(), deadline - time.monotonic()
    poll.register(descriptor, event)
    if not poll.poll(max(left_s, 0) * 1000):
        raise PipeTimeout("the process did not answer in time")


def read_in_time(descriptor: int, size: int, deadline: float) -> bytes:
    """Return `size` bytes, or fewer at the end of the input. Raises PipeTimeout at the deadline, which
    is by `time.monotonic`.
    """
    data = b""
    while len(data) < size:
        _wait(descriptor, select.POLLIN, deadline)
        more = os.read(descriptor, size - len(data))
        if not more:
            break
        data += more
    return data


def write_in_time(descriptor: int, data: bytes, deadline: float) -> None:
    """Write all of the data to a descriptor that does not block. Raises PipeTimeout at the deadline."""
    left = memoryview(data)
    while left:
        _wait(descriptor, select.POLLOUT, deadline)
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:  # a pipe may be ready for less than it is given
            continue
