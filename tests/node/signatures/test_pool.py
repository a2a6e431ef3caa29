"""Signatures checked by other processes: the same verdicts in the same order, even if a process dies."""

import os
import signal
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from enc.core.log.commit import build_commit
from enc.core.primitives.types import Commit
from enc.node.signatures import pool as module
from enc.node.signatures.pool import SignaturePool
from enc.node.signatures.worker import verdicts
from tests.core.world import START, person


def commits(count: int) -> tuple[list[Commit], list[bool]]:
    """Return commits of which every third is forged and every fourth is signed with ECDSA."""
    found, signed = [], []
    for i in range(count):
        commit = build_commit(person("alice"), bytes(32), "note", str(i), START, alg="schnorr" if i % 4 else "ecdsa")
        is_signed = i % 3 != 0
        found.append(commit if is_signed else replace(commit, sig=commit.sig[:-1] + bytes([commit.sig[-1] ^ 1])))
        signed.append(is_signed)
    return found, signed


@pytest.fixture(params=[0, 1, 3])
def verifiers(request: pytest.FixtureRequest) -> Iterator[SignaturePool]:
    made = SignaturePool(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 12, 13, 300])
def test_verdicts_are_right_and_in_order(verifiers: SignaturePool, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PART", 64)
    some, signed = commits(count)
    assert verifiers.check(some) == signed
    assert verifiers.check(some) == signed


def test_a_key_that_is_no_point_has_signed_nothing(verifiers: SignaturePool) -> None:
    some, _ = commits(8)
    assert verifiers.check([replace(commit, from_=b"\xff" * 32) for commit in some]) == [False] * 8


def test_a_process_that_dies_is_replaced_and_nobody_notices() -> None:
    verifiers = SignaturePool(2)
    some, signed = commits(40)
    assert verifiers.check(some) == signed
    before = {process.pid for process in verifiers._processes}
    for process in list(verifiers._processes):
        process._process.kill()
        process._process.wait()
    assert verifiers.check(some) == signed
    assert verifiers.check(some) == signed
    assert not before & {process.pid for process in verifiers._processes}
    verifiers.close()


def test_processes_outlive_a_signal_to_all_and_end_with_their_input() -> None:
    verifiers = SignaturePool(1)
    (process,) = verifiers._processes
    some, signed = commits(8)
    assert verifiers.check(some) == signed  # by now it has set the signals that it ignores
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(process.pid, number)
    assert verifiers.check(some) == signed
    assert verifiers._processes == [process]
    verifiers.close()
    assert process._process.returncode == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core only")
def test_processes_run_on_the_cores_that_they_are_given() -> None:
    core = max(os.sched_getaffinity(0))
    verifiers = SignaturePool(1, {core})
    assert os.sched_getaffinity(verifiers._processes[0].pid) == {core}
    verifiers.close()


def test_a_process_that_cannot_be_started_again_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    verifiers = SignaturePool(2)
    some, signed = commits(40)
    verifiers._processes[0]._process.kill()
    verifiers._processes[0]._process.wait()

    def fail() -> None:
        raise OSError(11, "no more processes")

    with monkeypatch.context() as patch:
        patch.setattr(verifiers, "_start", fail)
        for _ in range(3):
            assert verifiers.check(some) == signed
    assert verifiers.check(some) == signed
    assert all(process._process.poll() is None for process in verifiers._processes)
    verifiers.close()


# Processes that are stopped: their pipes stay open


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only briefly for a process that has answered before."""
    monkeypatch.setattr(module, "ANSWER_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("count", [40, 1200])  # the second is more than a pipe holds
def test_a_stopped_process_is_killed_and_replaced_and_its_commits_are_checked(count: int) -> None:
    verifiers = SignaturePool(2, max_part=count)
    some, signed = commits(40)
    assert verifiers.check(some) == signed
    stopped = list(verifiers._processes)
    for process in stopped:
        os.kill(process.pid, signal.SIGSTOP)
    with capture_logs() as logs:
        assert verifiers.check(some * (count // 40)) == signed * (count // 40)
    assert [process._process.returncode for process in stopped] == [-signal.SIGKILL] * 2
    assert [entry["reason"] for entry in logs] == ["the process did not answer in time"] * 2
    assert verifiers.failures == 2
    assert verifiers.check(some) == signed
    assert verifiers.failures == 2
    verifiers.close()


@pytest.mark.usefixtures("impatient")
def test_a_probe_finds_stopped_and_dead_processes_and_replaces_them() -> None:
    verifiers = SignaturePool(3)
    assert verifiers.probe() == 0
    for process, number in zip(verifiers._processes, (signal.SIGSTOP, signal.SIGKILL), strict=False):
        os.kill(process.pid, number)
    assert verifiers.probe() == 2
    assert verifiers.probe() == 0
    verifiers.close()


def test_a_probe_finds_a_process_that_judges_wrongly(monkeypatch: pytest.MonkeyPatch) -> None:
    verifiers = SignaturePool(1)
    monkeypatch.setattr(module, "KNOWN", module.KNOWN[:-1] + b"\xff")
    assert verifiers.probe() == 1
    verifiers.close()


def test_a_pool_without_processes_has_none_that_fails() -> None:
    assert SignaturePool(0).probe() == 0


def test_the_known_signature_is_valid() -> None:
    assert verdicts(module.KNOWN) == b"\x01"
