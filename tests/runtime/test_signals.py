"""Stop signals, each test in a process of its own: they belong to the main thread of a process."""

import signal
import subprocess
import sys

import pytest

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def exit_code(code: str, number: int) -> int:
    code = f"import asyncio, os\nfrom enc.runtime.signals import *\nnumber = {int(number)}\n{code}"
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode


@BOTH
def test_the_first_signal_sets_the_event_and_the_second_ends_the_process(number: int) -> None:
    code = "stop = stop_event()\nos.kill(os.getpid(), number)\nassert stop.is_set()\nos.kill(os.getpid(), number)\n"
    assert exit_code(code, number) == -number


@BOTH
def test_an_ignored_signal_does_nothing(number: int) -> None:
    assert exit_code("ignore_stop_signals()\nos.kill(os.getpid(), number)\n", number) == 0


@BOTH
def test_a_process_can_end_as_the_signal_would_have_ended_it(number: int) -> None:
    assert exit_code("ignore_stop_signals()\nend_by_signal(number)\n", number) == -number


@BOTH
@pytest.mark.parametrize("make", ["asyncio.new_event_loop", "__import__('uvloop').new_event_loop"])
def test_an_event_loop_gets_the_signal_until_the_block_ends(number: int, make: str) -> None:
    code = f"""
async def main():
    got = asyncio.Queue()
    with stop_signals_to(lambda *args: got.put_nowait(args), asyncio.get_running_loop()):
        os.kill(os.getpid(), number)
        assert await got.get() == (number, None)
    end_on_next_signal()
    os.kill(os.getpid(), number)
    await asyncio.sleep(10)
asyncio.Runner(loop_factory={make}).run(main())
"""
    assert exit_code(code, number) == -number
