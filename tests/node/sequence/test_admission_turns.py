"""Commits that take long to check take turns by address, and do not delay others."""

from collections.abc import Sequence
from typing import Any

import pytest

from enc.core.errors import EncError, EnclaveNotFound
from enc.core.log.commit import build_commit, parse_commit, wire_commit
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit
from enc.node.sequence import admission
from enc.node.sequence.admission import LONG_BODY, MAX_GROUP, Admission, Arrival, Rejection
from enc.node.sequence.admitted import AdmittedCommit
from enc.node.signatures.pool import SignaturePool
from tests.core.world import START, person
from tests.node.served import PATIENCE_S

COLD = b"c" * 32
"""An enclave whose state must be loaded for each commit."""


class Checks:
    """Admission with checks that take a known time; also its sequencer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = list[str]()
        self.rejected = list[Rejection]()
        signatures = SignaturePool(0)
        self.admission = Admission(self, self, self.rejected.extend, signatures, lambda: self.now)  # type: ignore[arg-type]

    def parse(self, body: bytes) -> Commit:
        return parse_commit(body)

    def is_quick(self, commit: Commit) -> bool:
        return commit.enclave != COLD

    def check_before_signature(self, commit: Commit) -> None:
        if commit.enclave == COLD:
            self.now += 1
        if commit.type == "unknown":
            raise EnclaveNotFound("no such enclave on this node")

    def check_after_signature(self, admitted: AdmittedCommit) -> AdmittedCommit:
        if len(admitted.commit.content or "") >= LONG_BODY:
            self.now += 1
        return admitted

    def submit(self, admitted: Sequence[AdmittedCommit]) -> None:
        self.order += [each.sender for each in admitted]

    def finish(self) -> None:
        while self.admission.run_long():
            pass


def arrival(name: str, address: str, *, enclave: bytes = bytes(32), size: int = 5, type_: str = "note") -> Arrival:
    commit = build_commit(person("alice"), enclave, type_, "x" * size, START, ((name, ""),))
    return compact_json(wire_commit(commit)).encode(), name, address


def test_a_quick_commit_does_not_wait_for_long_ones_of_another_address() -> None:
    checks = Checks()
    checks.admission.run_once([arrival(f"cold {i}", "mallory", enclave=COLD) for i in range(5)])
    checks.admission.run_once([arrival(f"large {i}", "eve", size=LONG_BODY) for i in range(5)])
    checks.admission.run_once([arrival("quick", "bob")])
    assert (checks.order, checks.now) == (["quick"], 0)
    checks.finish()
    assert sorted(checks.order[1:]) == [*(f"cold {i}" for i in range(5)), *(f"large {i}" for i in range(5))]


def test_addresses_take_turns_by_the_time_that_their_commits_took() -> None:
    checks = Checks()
    checks.admission.run_once([arrival(f"cold {i}", "mallory", enclave=COLD) for i in range(50)])
    checks.admission.run_once([arrival(f"bob {i}", "bob", size=LONG_BODY) for i in range(3)])
    checks.finish()
    assert checks.order.index("bob 2") <= 5


def test_the_commits_of_an_address_stay_in_order() -> None:
    checks = Checks()
    names = ["first", "second", "third"]
    checks.admission.run_once(
        [arrival("first", "bob"), arrival("second", "bob", enclave=COLD), arrival("third", "bob")]
    )
    checks.admission.run_once([arrival("fourth", "bob")])
    assert checks.order == ["first"]
    checks.finish()
    assert checks.order == [*names, "fourth"]
    checks.admission.run_once([arrival("fifth", "bob")])
    assert checks.order[-1] == "fifth"


def test_a_long_commit_does_not_pass_an_earlier_one_whose_signature_is_being_checked() -> None:
    checks = Checks()
    check = checks.admission._signatures.check

    def check_late(commits: Sequence[Commit]) -> list[bool]:
        checks.finish()
        return check(commits)

    checks.admission._signatures.check = check_late  # type: ignore[method-assign]
    checks.admission.run_once([arrival("first", "bob"), arrival("second", "bob", enclave=COLD)])
    checks.finish()
    assert checks.order == ["first", "second"]


def test_a_commit_that_arrives_when_the_thread_has_found_none_is_checked_before_it_ends() -> None:
    checks = Checks()
    admission, run_long = checks.admission, checks.admission.run_long

    def find_none_then_stop() -> bool:
        found = run_long()
        if not admission._is_stopping:
            admission.run_once([arrival("late", "bob", enclave=COLD)])
            admission._is_stopping = True
        return found

    admission.run_long = find_none_then_stop  # type: ignore[method-assign]
    admission._arrived.set()
    admission._run_long()
    assert checks.order == ["late"]


def test_a_long_commit_that_is_rejected_gets_its_answer_in_turn() -> None:
    checks = Checks()
    checks.admission.run_once(
        [arrival("gone", "mallory", enclave=COLD, type_="unknown"), (b"{" * LONG_BODY, "junk", "m")]
    )
    assert checks.rejected == []
    checks.finish()
    codes = {sender: error.code for sender, error, _ in checks.rejected}
    assert codes == {"gone": "ENCLAVE_NOT_FOUND", "junk": "INVALID_COMMIT"}


def test_a_fault_in_the_check_of_signatures_answers_all_of_the_group() -> None:
    checks = Checks()

    def fail(commits: Any) -> list[bool]:
        raise OSError("no process")

    checks.admission._signatures.check = fail  # type: ignore[method-assign]
    checks.admission.run_once([arrival(f"quick {i}", "bob") for i in range(3)])
    assert [(sender, error.code) for sender, error, _ in checks.rejected] == [
        (f"quick {i}", "INTERNAL_ERROR") for i in range(3)
    ]
    assert isinstance(checks.rejected[0][1], EncError)


def test_a_fault_in_the_check_of_a_long_commit_answers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(commit: Commit) -> bool:
        raise OSError("a fault")

    checks = Checks()
    checks.admission.run_once([arrival("large", "eve", size=LONG_BODY)])
    with monkeypatch.context() as patch:
        patch.setattr(admission, "is_signed", fail)
        checks.finish()
    assert [(sender, error.code) for sender, error, _ in checks.rejected] == [("large", "INTERNAL_ERROR")]
    checks.admission.run_once([arrival("next", "eve", size=LONG_BODY)])
    checks.finish()
    assert checks.order == ["next"]


def test_the_thread_of_long_commits_answers_probes_until_it_ends() -> None:
    checks = Checks()
    cancelled = checks.admission.probe_long()
    assert cancelled.cancel()
    checks.admission.start()
    assert checks.admission.probe_long().result(PATIENCE_S) is None
    checks.admission.submit([arrival("large", "eve", size=LONG_BODY)])
    assert checks.admission.probe_long().result(PATIENCE_S) is None
    checks.admission.stop()
    assert checks.order == ["large"]


def test_all_that_was_submitted_is_checked_before_the_thread_ends() -> None:
    checks = Checks()
    checks.admission.start()
    count = 2 * MAX_GROUP
    for i in range(count):
        checks.admission.submit([arrival(f"cold {i}", f"address {i % 3}", enclave=COLD)])
    checks.admission.stop()
    assert len(checks.order) == count
