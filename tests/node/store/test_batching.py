"""How waiting events become batches: none is lost or repeated, batches are bounded, and no enclave delays another."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from enc.node.store.push_interface import BatchLimits
from enc.node.store.sqlite.push.batching import BatchDraft, OutboxRun, batches_of

MANY = BatchLimits()


def run(enclave: str, first: int, *sizes: int) -> OutboxRun[str]:
    return OutboxRun(enclave, first, list(accumulate(sizes)), "P")


def notice_run(enclave: str, first: int, count: int, **types: int) -> OutboxRun[str]:
    return OutboxRun(enclave, first, [1] * count, "N", types)


def runs(waiting: list[OutboxRun[str]], limits: BatchLimits = MANY) -> list[list[tuple[str, int, int]]]:
    return [draft.runs for draft in batches_of(waiting, limits)]


def test_nothing_makes_no_batch() -> None:
    assert batches_of([], MANY) == []


def test_runs_that_follow_each_other_become_one() -> None:
    assert runs([run("a", 1, 5, 5), run("b", 7, 5), run("a", 3, 5), run("a", 9, 5)]) == [
        [("a", 1, 3), ("a", 9, 1), ("b", 7, 1)]
    ]


def test_five_hundred_events_or_four_mebibytes() -> None:
    assert runs([run("a", 0, *[1] * 1001)]) == [[("a", 0, 500)], [("a", 500, 500)], [("a", 1000, 1)]]
    mebibyte = 1 << 20
    assert runs([run("a", 0, *[mebibyte] * 5)]) == [[("a", 0, 4)], [("a", 4, 1)]]


def test_an_event_that_is_larger_than_a_batch_goes_alone() -> None:
    limits = BatchLimits(events=10, bytes=100)
    assert runs([run("a", 0, 10, 101, 10, 10)], limits) == [[("a", 0, 1)], [("a", 1, 1)], [("a", 2, 2)]]
    assert runs([run("a", 0, 500), run("b", 0, 500)], limits) == [[("a", 0, 1)], [("b", 0, 1)]]
    assert runs([run("a", 0, 80, 10), run("b", 0, 10)], limits) == [[("a", 0, 2), ("b", 0, 1)]]


def test_one_enclave_has_at_most_half_of_a_batch_while_others_wait() -> None:
    limits = BatchLimits(events=10, bytes=1000)
    assert runs([run("a", 0, *[1] * 20), run("b", 0, *[1] * 20)], limits)[:2] == [
        [("a", 0, 5), ("b", 0, 5)],
        [("a", 5, 5), ("b", 5, 5)],
    ]
    assert runs([run("a", 0, *[100] * 9), run("b", 0, 1)], limits) == [[("a", 0, 9), ("b", 0, 1)]]
    assert runs([run("a", 0, *[300] * 4), run("b", 0, *[300] * 4)], limits)[0] == [("a", 0, 1), ("b", 0, 1)]


def test_who_had_no_turn_comes_first_in_the_next_batch() -> None:
    limits = BatchLimits(events=4, bytes=1000)
    waiting = [run(name, 0, *[1] * 4) for name in "abc"]
    assert runs(waiting, limits) == [
        [("a", 0, 2), ("b", 0, 2)],
        [("c", 0, 2), ("a", 2, 2)],
        [("b", 2, 2), ("c", 2, 2)],
    ]


def test_a_few_events_do_not_wait_for_the_many_of_another() -> None:
    waiting = [run("a", 0, *[1] * 50_000), *(run(f"small {i}", 0, 1) for i in range(200))]
    first = runs(waiting)[0]
    assert len(first) == 201
    assert first[0] == ("a", 0, 300)  # the rest of the batch, when no other enclave waits


def test_an_enclave_has_one_notice_about_its_latest_event() -> None:
    (draft,) = batches_of(
        [
            notice_run("a", 1, 2, x=2),
            notice_run("b", 5, 1, y=9),
            notice_run("a", 4, 1, y=1),
            notice_run("a", 5, 1, x=3),
        ],
        MANY,
    )
    assert draft.notices == [("a", 5, {"x": 3, "y": 1}), ("b", 5, {"y": 9})]
    assert (draft.runs, draft.events) == ([], 2)
    assert draft.bytes > 0


def test_events_and_notices_go_together_and_notices_are_bounded_too() -> None:
    limits = BatchLimits(events=3)
    drafts = batches_of([run("a", 0, 1, 1), *(notice_run(f"n{i}", 1, 1, x=1) for i in range(7))], limits)
    assert [(draft.pushed, len(draft.notices), draft.events) for draft in drafts] == [(2, 3, 5), (0, 3, 3), (0, 1, 1)]


ENCLAVES = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.lists(st.integers(1, 120), min_size=1, max_size=9), max_size=6), max_size=4
)


@given(logs=ENCLAVES, events=st.integers(1, 12), size=st.integers(1, 200), order=st.randoms(use_true_random=False))
def test_each_event_goes_once_in_order_and_within_the_limits(logs, events, size, order) -> None:
    limits = BatchLimits(events=events, bytes=size)
    waiting, expected, sizes = dict[str, list[OutboxRun[str]]](), dict[str, list[int]](), dict[tuple[str, int], int]()
    for name, lengths in logs.items():
        seq = 0
        for each in lengths:
            waiting.setdefault(name, []).append(run(name, seq, *each))
            expected.setdefault(name, []).extend(range(seq, seq + len(each)))
            sizes |= {(name, seq + i): length for i, length in enumerate(each)}
            seq += len(each) + 1
    line = [name for name, runs_ in waiting.items() for _ in runs_]
    order.shuffle(line)
    drafts = batches_of([waiting[name].pop(0) for name in line], limits)
    seen = dict[str, list[int]]()
    for draft in drafts:
        check(draft, limits, sizes)
        for name, first, count in draft.runs:
            seen.setdefault(name, []).extend(range(first, first + count))
    assert seen == expected


def check(draft: BatchDraft[str], limits: BatchLimits, sizes: dict[tuple[str, int], int]) -> None:
    names = [(name, seq) for name, first, count in draft.runs for seq in range(first, first + count)]
    assert 0 < len(names) == draft.pushed <= limits.events
    assert sum(sizes[each] for each in names) == draft.bytes
    assert draft.bytes <= limits.bytes or len(names) == 1
