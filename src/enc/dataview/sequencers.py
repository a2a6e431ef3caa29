"""Who may have finalised which event of an enclave, as far as its log tells. Pure; no Spark.

A history is a list of (key, from_seq): each key finalises from that seq on. The first key that is seen counts as the
enclave's; after that, only a Migrate names another.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

History = list[tuple[str, int]]


class Handover(Struct, frozen=True, order=True):
    """A Migrate: finalised at `seq` by `by`, naming `to`. `entitled`: its author is known as an owner."""

    seq: int
    by: str
    to: str
    entitled: bool


def sequencer_at(history: Sequence[tuple[str, int]], seq: int) -> str | None:
    """Whose event `seq` is; what lies before all that is known counts as the first key's."""
    if not history:
        return None
    return next((key for key, first in reversed(history) if first <= seq), history[0][0])


def extend(history: History, handovers: Iterable[Handover]) -> History:
    """The history with these Migrates, whichever of them count.

    One that the sequencer of its place finalised counts. So does one by which an owner lets another node take over,
    which that node itself finalises. One from before all that is known counts if it names the first key.
    """
    for handover in sorted(handovers):
        current = sequencer_at(history, handover.seq)
        if current is None:
            continue
        if handover.by == handover.to and (handover.to, handover.seq) in history:
            continue  # a taking over that is known
        if handover.by == current:
            history = _with(history, handover.to, handover.seq + 1)
        elif handover.by == handover.to and handover.entitled:
            history = _with(history, handover.to, handover.seq)
        elif handover.seq < history[0][1] and handover.to == history[0][0]:
            history = [(handover.by, 0), (handover.to, handover.seq + 1), *history[1:]]
    return history


def _with(history: History, key: str, first: int) -> History:
    earlier = [each for each in history if each[1] < first]
    later = [each for each in history if each[1] > first]
    # What is known of later places came from Migrates too, and stands.
    return [*earlier, (key, first), *later]


def spans(history: History) -> list[tuple[str, int, int | None]]:
    """The same as half-open ranges of seq, from 0 to no end."""
    starts = [0, *(first for _, first in history[1:])][: len(history)]
    return [(key, start, end) for (key, _), start, end in zip(history, starts, [*starts[1:], None], strict=False)]
