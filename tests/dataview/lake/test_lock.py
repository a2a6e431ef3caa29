"""One writer per lake: with real processes, one of which is killed."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.dataview.lake.lock import NAME, LakeLock, local_directory

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from enc.dataview.lake.lock import LakeLock
with LakeLock(sys.argv[1]).locked("enc dataview run"):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that holds the lake until its standard input ends."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command, pipe = [sys.executable, "-c", HOLDER, str(root)], subprocess.PIPE
    with subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_second_writer_is_told_who_the_first_is_until_that_ends_or_is_killed(tmp_path: Path) -> None:
    lake, writer = tmp_path / "new" / "lake", LakeLock(str(tmp_path / "new" / "lake"))
    with holder(lake) as process:
        with pytest.raises(MisuseError, match=rf"`enc dataview run` \(process {process.pid} on .* since 2"):
            writer.acquire("build")
        with pytest.raises(MisuseError, match="one writer"), LakeLock(f"file://{lake}").locked("upkeep"):
            pass
        process.communicate()
        writer.acquire("build")
        writer.release()
    with holder(lake) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with writer.locked("build"):
            assert json.loads((lake / NAME).read_text())["pid"] == os.getpid()


def test_a_holder_that_claimed_nothing_does_not_hide_that_the_one_before_was_killed(tmp_path: Path) -> None:
    """For example a command that failed before Spark started."""
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
    lock, released = LakeLock(str(tmp_path)), []
    for claims in (False, True, False):
        with lock.locked("build"):
            released.append(lock.was_released)
            if claims:
                lock.claimed()
    with lock.locked("build"):
        released.append(lock.was_released)
    assert released == [False, False, True, True]


def test_one_writer_may_hold_it_several_times_over(tmp_path: Path) -> None:
    one, two = LakeLock(str(tmp_path)), LakeLock(str(tmp_path))
    with one.locked("run"), one.locked("build"):
        pass
    with one.locked("run"):
        with one.locked("build"):
            pass
        with pytest.raises(MisuseError, match=r"`run` \(process"):
            two.acquire("upkeep")
    with two.locked("upkeep"):
        pass


def test_who_holds_it_and_does_not_say_so(tmp_path: Path) -> None:
    with LakeLock(str(tmp_path)).locked("run"):
        for said in ("", "[]", "{}", "\x00"):
            (tmp_path / NAME).write_text(said)
            with pytest.raises(MisuseError, match="another process holds its lock"):
                LakeLock(str(tmp_path)).acquire("build")


def test_what_cannot_be_a_lake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MisuseError, match="cannot create a lake here"):
        LakeLock(str(tmp_path / "file")).acquire("run")


def test_an_address_has_no_lock() -> None:
    assert local_directory("s3a://bucket/lake") is None
    assert local_directory("file:///a%20b/lake") == Path("/a b/lake")
    assert local_directory("lake") == Path("lake")
    assert local_directory("a/b:c") == Path("a/b:c")
    with LakeLock("s3a://bucket/lake").locked("run"), LakeLock("s3a://bucket/lake").locked("run"):
        pass
