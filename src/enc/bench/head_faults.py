"""Faults of signed heads alone: the log itself is valid."""

from enc.bench.faulty_behaviour import FaultyBehaviour
from enc.bench.log import Log
from enc.bench.script import Act, Script
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import TreeHead


class _HeadFault(FaultyBehaviour):
    """A head of `size` with another root than the log's."""

    def size(self, log: Log) -> int:
        """Return the first size that covers the planted position."""
        return log.bundle_of(self.place)

    def _forged(self, log: Log) -> TreeHead:
        size = self.size(log)
        self.seq_wrong = log.bundles[size - 1].last_seq
        return log.head(size, root=log.other_root(size, self.rng.randbytes(32)))


class WrongLogRoot(_HeadFault):
    done = "the archive's sth has another root than the log"

    def size(self, log: Log) -> int:
        return len(log.bundles)

    def hidden(self, log: Log) -> frozenset[int]:
        return frozenset([self.size(log)])

    def sth(self, log: Log) -> TreeHead:
        return self._forged(log)


class HeadNotOnLog(_HeadFault):
    done = "a collected head has another root than the log of that size"

    def size(self, log: Log) -> int:
        """Return a size other than the last, which the archive itself has."""
        return min(super().size(log), len(log.bundles) - 1)

    def hidden(self, log: Log) -> frozenset[int]:
        return frozenset([self.size(log)])

    def heads(self, log: Log) -> list[TreeHead]:
        return [self._forged(log)]


class ForkedHeads(_HeadFault):
    done = "two collected heads of one size have different roots"

    def heads(self, log: Log) -> list[TreeHead]:
        return [log.head(self.size(log)), self._forged(log)]


class BrokenConsistency(FaultyBehaviour):
    """The event at the planted position is signed and shown, and then replaced."""

    def forks(self, place: int) -> bool:
        return place == self.place

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        """Pause soon after, so that the log outgrows the head that it contradicts."""
        if place != self.place + 1 or state.bundle is None:
            return clock
        return max(clock, state.bundle.deadline(state.policy.bundle))

    def act(self, place: int, script: Script, now: int) -> Act:
        return script.act(place, now, plain=place == self.place)

    def _head(self, log: Log) -> TreeHead | None:
        return log.earlier[0].header.sth

    def hidden(self, log: Log) -> frozenset[int]:
        head = self._head(log)
        return frozenset([head.ts] if head else [])

    def heads(self, log: Log) -> list[TreeHead]:
        head = self._head(log)
        self.done = (
            f"an earlier archive ends with another event {self.place}, under a head that the log does not extend"
        )
        return [head] if head else []
