"""Seqs that a log skipped, as an audit finds them: they may still appear later, or are gaps."""

from msgspec import Struct

MAX_MISSING = 1 << 16
"""Maximum number of missing seqs that may still appear later. Further ones are gaps at once."""


class MissingRange(Struct, frozen=True):
    """Events `first` to `last` are missing before event `before`."""

    first: int
    last: int
    before: int

    def __str__(self) -> str:
        many = f"events {self.first} to {self.last} are missing"
        what = f"event {self.first} is missing" if self.first == self.last else many
        previous = f"event {self.first - 1}" if self.first else "nothing"
        return f"{what}: {previous} is followed by event {self.before}"


class MissingSeqs:
    """The seqs that are missing so far, each with the seq of the event that follows the gap."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}

    def skip(self, seqs: range, before: int) -> MissingRange | None:
        """Record that event `before` came instead of `seqs`; return a gap if there are too many to
        wait for."""
        if len(seqs) + len(self._before) > MAX_MISSING:
            return MissingRange(seqs[0], seqs[-1], before)
        self._before.update(dict.fromkeys(seqs, before))
        return None

    def found(self, seq: int) -> bool:
        """Record that a seq appeared after all; return whether it was missing."""
        return self._before.pop(seq, None) is not None

    def has_gap_at(self, seq: int) -> bool:
        """Return whether a gap starts at this seq."""
        before = self._before.get(seq)
        return before is not None and self._before.get(seq - 1) != before

    def take_gaps(self) -> list[MissingRange]:
        """Return what is still missing as gaps, by rising seq, and forget it."""
        gaps: list[MissingRange] = []
        for seq, before in sorted(self._before.items()):
            if gaps and gaps[-1].before == before and gaps[-1].last == seq - 1:
                gaps[-1] = MissingRange(gaps[-1].first, seq, before)
            else:
                gaps.append(MissingRange(seq, seq, before))
        self._before.clear()
        return gaps
