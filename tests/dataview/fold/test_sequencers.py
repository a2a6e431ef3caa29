"""Which sequencer an event belongs to."""

import pytest

from enc.dataview.fold.sequencers import Handover, SignerHistory, sequencer_at, spans, with_handovers

A: SignerHistory = [("a", 0)]


@pytest.mark.parametrize(
    ("history", "handovers", "expected"),
    [
        (A, [], A),
        (A, [Handover(5, "a", "b", False)], [("a", 0), ("b", 6)]),
        (A, [Handover(5, "b", "b", True)], [("a", 0), ("b", 5)]),
        (A, [Handover(5, "b", "b", False)], A),  # a stranger takes over
        (A, [Handover(5, "c", "b", True)], A),  # signed by neither the old nor the new sequencer
        (A, [Handover(9, "b", "c", False), Handover(5, "a", "b", False)], [("a", 0), ("b", 6), ("c", 10)]),
        ([("a", 0), ("b", 6)], [Handover(5, "a", "b", False)], [("a", 0), ("b", 6)]),  # the same Migrate twice
        ([("a", 0), ("b", 5)], [Handover(5, "b", "b", True)], [("a", 0), ("b", 5)]),  # the same takeover twice
        ([("b", 8)], [Handover(5, "a", "b", False)], [("a", 0), ("b", 6)]),  # from before the known history
        ([("b", 8)], [Handover(5, "a", "c", False)], [("b", 8)]),
        ([], [Handover(5, "a", "b", False)], []),
    ],
)
def test_histories(history: SignerHistory, handovers: list[Handover], expected: SignerHistory) -> None:
    assert with_handovers(history, handovers) == expected


def test_places() -> None:
    history = [("a", 3), ("b", 6)]
    assert [sequencer_at(history, seq) for seq in (0, 3, 5, 6, 99)] == ["a", "a", "a", "b", "b"]
    assert sequencer_at([], 1) is None
    assert spans(history) == [("a", 0, 6), ("b", 6, None)]
    assert spans([]) == []
