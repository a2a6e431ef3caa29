"""Whether the accused key itself signed a log up to an event, and what is given as the reason if not."""

from enc.client.evidence.log_attribution import LogAttribution
from enc.core.log.commit import build_commit
from enc.core.log.event import finalize
from enc.core.machine.fault import Fault
from enc.core.primitives.hashing import sha256
from enc.core.primitives.types import Event
from tests.core.world import START, person, pub

UNFIT = Fault(kind="sequencer_change", seq=1, what="the Migrate is not valid")
GONE = Fault(kind="erasure_without_cause", seq=2, what="its content is missing")
COMPLETE = "that the log is complete"
COPY = "that event 0 is of the same log: anyone may have sent the accused a copy of the Manifest"
ENDS = ("that the log goes on as the fault requires: it ends before",)


def event(seq: int, by: str, type_: str = "message") -> Event:
    commit = build_commit(person("alice"), sha256(b"enclave"), type_, f"event {seq}", START + 60_000)
    return finalize(commit, person(by), START + seq, seq)


def attributed(*signers: str, key: str = "node2") -> LogAttribution:
    """Return the attribution to `key` of a log whose events these nodes signed, in order."""
    found = LogAttribution(person(key).public)
    for seq, by in enumerate(signers):
        found.add(event(seq, by), ())
    return found


def own(by: str, seq: int) -> tuple[str, ...]:
    """Return why the log is not node2's own."""
    covers = f"no Migrate or head that {pub('node2')} signed covers it"
    return (f"that the log is {pub('node2')}'s own: {pub(by)} signed event {seq}, and {covers}",)


def test_a_log_binds_the_key_that_signed_all_of_it_up_to_its_last_event() -> None:
    found = attributed("node2", "node2", "node2")
    assert [found.unbound(number) for number in range(5)] == [(), (), (), ENDS, ENDS]


def test_events_of_others_do_not_bind_the_key_from_the_first_one_on() -> None:
    found = attributed("node2", "node", "node2", "node3", "node3")
    reasons = [(), own("node", 1), own("node", 1), own("node", 1)]
    assert [found.unbound(number) for number in range(4)] == reasons


def test_a_head_binds_the_key_to_what_others_signed_before_it_alone() -> None:
    def reasons(covered: int, *signers: str) -> list[tuple[str, ...]]:
        found = attributed(*signers)
        found.cover(covered)
        return [found.unbound(number) for number in range(len(signers))]

    assert reasons(1, "node", "node", "node2") == [(), own("node", 1), own("node", 1)]
    assert reasons(2, "node", "node", "node2") == [(), (), ()]
    assert reasons(1, "node", "node2", "node") == [(), (), own("node", 2)]
    assert reasons(1, "node", "node3", "node2") == [(), own("node3", 1), own("node3", 1)]
    found = attributed("node", "node", "node2")
    found.cover(2)
    found.cover(1)  # a smaller head takes nothing back
    assert found.unbound(2) == ()


def test_a_migrate_that_fits_binds_who_signed_it_to_everything_before_it() -> None:
    found = attributed("node", "node")
    found.add(event(2, "node2", "Migrate"), ())
    assert found.unbound(2) == ()
    unfit = attributed("node", "node")
    unfit.add(event(2, "node2", "Migrate"), [UNFIT])
    assert unfit.unbound(2) == own("node", 0)


def test_a_migrate_after_a_gap_binds_nobody_to_what_others_signed_before_it() -> None:
    found = attributed("node", "node")
    found.add(event(3, "node2"), ())
    found.add(event(4, "node2", "Migrate"), ())
    assert found.unbound(1) == own("node", 0)


def test_a_log_that_is_incomplete_binds_up_to_there() -> None:
    found = attributed("node2", "node2", "node2")
    found.add(event(4, "node2"), ())
    found.add(event(6, "node2"), ())
    assert found.unbound(2) == ()
    assert found.unbound(3) == found.unbound(4) == (f"{COMPLETE}: event 3 is not at its seq",)


def test_a_log_without_a_content_that_it_needs_binds_up_to_there() -> None:
    found = attributed("node2", "node2")
    found.add(event(2, "node2"), [UNFIT, GONE])
    found.add(event(3, "node2"), [Fault(kind="erasure_without_cause", seq=3, what="another")])
    assert found.unbound(1) == ()
    assert found.unbound(2) == found.unbound(3) == ("that the log is unaltered: event 2: its content is missing",)


def test_event_0_before_a_migrate_that_does_not_fit_it_may_be_a_copy() -> None:
    def moved(at: int) -> LogAttribution:
        found = attributed(*["node2"] * at)
        found.add(event(at, "node2", "Migrate"), [UNFIT])
        return found

    may_be = moved(1)
    assert (may_be.unbound(0), may_be.unbound(1)) == (
        (),
        (COPY,),
    )
    may_be.cover(1)  # a head of the copy covers event 0 alone
    assert may_be.unbound(1) == (COPY,)
    may_be.cover(2)
    assert may_be.unbound(1) == ()
    assert moved(2).unbound(2) == ()


def test_a_head_of_one_bundle_may_be_of_a_copy_if_another_key_signed_event_0() -> None:
    assert attributed("node", "node2").may_be_of_copy(1)
    assert attributed("node", "node2", "node3").may_be_of_copy(1)
    assert not attributed("node", "node2").may_be_of_copy(2)
    assert not attributed("node2", "node").may_be_of_copy(1)
    assert not attributed("node2", "node2").may_be_of_copy(1)


def listed(*seqs: int) -> LogAttribution:
    found = LogAttribution(person("node").public)
    for seq in seqs:
        found.add(event(seq, "node"), ())
    return found


def test_a_list_is_faulty_if_a_head_covers_an_event_that_is_not_at_its_seq() -> None:
    assert not listed(0, 1, 2).is_list_faulty(3)
    assert [listed(0, 1, 3, 4).is_list_faulty(events) for events in (2, 3, 4)] == [False, True, True]


def test_a_list_is_not_faulty_for_a_repetition_that_the_head_may_cover() -> None:
    assert not listed(0, 1, 1, 2).is_list_faulty(4)
    assert not listed(0, 1, 1, 2, 2).is_list_faulty(4)
    assert [listed(0, 1, 3, 4, 4).is_list_faulty(events) for events in (4, 5)] == [True, False]


def test_a_list_without_a_valid_manifest_at_its_start_is_not_faulty() -> None:
    def damaged(at: int) -> LogAttribution:
        found = LogAttribution(person("node").public)
        for number, seq in enumerate((0, 1, 3)):
            found.add(event(seq, "node"), [UNFIT] if number == at else ())
        return found

    assert [damaged(at).is_list_faulty(3) for at in (0, 1)] == [False, True]
