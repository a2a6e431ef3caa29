"""Which sequencer may finalise which event of an enclave, according to its log. Pure; no Spark.

A history is a list of (key, from_seq): each key finalises from that seq on. The first key seen
counts as the enclave's sequencer; after that, only a Migrate names another.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

SignerHistory = list[tuple[str, int]]


class Handover(Struct, frozen=True, order=True):
    """A Migrate, finalised at `seq` by `by`, that names `to`. `entitled`: its author is known to be
    an owner.
    """

    seq: int
    by: str
    to: str
    entitled: bool


def sequencer_at(history: Sequence[tuple[str, int]], seq: int) -> str | None:
    """Return the sequencer of `seq`. Events before the known history count as the first key's."""
    if not history:
        return None
    return next((key for key, first in reversed(history) if first <= seq), history[0][0])


def with_handovers(history: SignerHistory, handovers: Iterable[Handover]) -> SignerHistory:
    """Return the history extended by the valid ones of these Migrates.

    A Migrate counts if the sequencer of its position finalised it. It also counts if an owner lets
    another node take over and that node itself finalised it. A Migrate before the known history
    counts if it names the first key.
    """
    for handover in sorted(handovers):
        current = sequencer_at(history, handover.seq)
        if current is None:
            continue
        if handover.by == handover.to and (handover.to, handover.seq) in history:
            continue  # a takeover that is known already
        if handover.by == current:
            history = _with(history, handover.to, handover.seq + 1)
        elif handover.by == handover.to and handover.entitled:
            history = _with(history, handover.to, handover.seq)
        elif handover.seq < history[0][1] and handover.to == history[0][0]:
            history = [(handover.by, 0), (handover.to, handover.seq + 1), *history[1:]]
    return history


def _with(history: SignerHistory, key: str, first: int) -> SignerHistory:
    earlier = [each for each in history if each[1] < first]
    later = [each for each in history if each[1] > first]
    # Later entries come from Migrates too, and stay valid.
    return [*earlier, (key, first), *later]


def spans(history: SignerHistory) -> list[tuple[str, int, int | None]]:
    """Return the history as half-open ranges of seq, from 0 to no end."""
    starts = [0, *(first for _, first in history[1:])][: len(history)]
    return [(key, start, end) for (key, _), start, end in zip(history, starts, [*starts[1:], None], strict=False)]
