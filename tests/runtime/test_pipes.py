"""Pipes with a time limit."""

import os
import threading
import time
from collections.abc import Iterator

import pytest

from enc.runtime.pipes import PipeTimeout, read_in_time, write_in_time

LATER = 30.0
LARGE = 1 << 20
"""More than a pipe holds."""


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    yield reads, writes
    for descriptor in (reads, writes):
        os.close(descriptor)


def test_what_is_written_is_read_also_if_it_is_more_than_a_pipe_holds(pipe: tuple[int, int]) -> None:
    data, found = os.urandom(LARGE), list[bytes]()
    deadline = time.monotonic() + LATER
    reader = threading.Thread(target=lambda: found.append(read_in_time(pipe[0], LARGE, deadline)))
    reader.start()
    write_in_time(pipe[1], data, deadline)
    reader.join(LATER)
    assert found == [data]


def test_at_the_end_of_the_input_there_is_less() -> None:
    reads, writes = os.pipe()
    os.write(writes, b"ab")
    os.close(writes)
    assert read_in_time(reads, 3, time.monotonic() + LATER) == b"ab"
    os.close(reads)


@pytest.mark.parametrize("before", [b"", b"ab"])
def test_a_silent_writer(pipe: tuple[int, int], before: bytes) -> None:
    os.write(pipe[1], before)
    with pytest.raises(PipeTimeout):
        read_in_time(pipe[0], 3, time.monotonic() + 0.01)


def test_what_is_there_is_read_after_the_deadline(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"abc")
    assert read_in_time(pipe[0], 3, 0.0) == b"abc"


def test_a_reader_that_does_not_read(pipe: tuple[int, int]) -> None:
    with pytest.raises(PipeTimeout):
        write_in_time(pipe[1], bytes(LARGE), time.monotonic() + 0.01)


def test_a_reader_that_is_gone() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with pytest.raises(BrokenPipeError):
        write_in_time(writes, b"x", time.monotonic() + LATER)
    os.close(writes)
