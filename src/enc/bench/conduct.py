"""How the node behaves that orders an enclave: here, by the rules. A lie is a conduct that differs in one point."""

from typing import Any

from enc.bench.kinds import Planted
from enc.bench.log import Log
from enc.bench.script import Act, Script
from enc.bench.shelf import Shelf
from enc.core import enclave as machine
from enc.core.enclave import EnclaveState, Transition
from enc.core.event import finalize
from enc.core.policy import Effects
from enc.core.signing import PrivateKey
from enc.core.types import Commit, Event, TreeHead

Wire = dict[str, Any]


class Conduct:
    """Asked in this order for each place of a log, then for the whole."""

    proves: int | None = None
    """The bundle of which an event must be proved in heads.jsonl."""
    is_provable = True
    """An event's seq and its place in a bundle agree: otherwise nobody has asked for a proof."""

    def begin(self, place: int, state: EnclaveState) -> None:
        """The next event is about to be made."""

    def forks(self, place: int) -> bool:
        """Whether another event stands here first, in a log that is then given up."""
        return False

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        return clock

    def act(self, place: int, script: Script, now: int) -> Act:
        return script.act(place, now, plain=False)

    def commit(self, place: int, commit: Commit) -> Commit:
        return commit

    def judge(self, place: int, state: EnclaveState, commit: Commit, shelf: Shelf) -> Effects:
        return machine.judge(state, commit, shelf, sequencer=state.sequencer)

    def sequencer(self, place: int, expected: bytes) -> bytes:
        return expected

    def seq(self, place: int) -> int:
        return place

    def finalize(self, place: int, commit: Commit, key: PrivateKey, timestamp: int) -> Event:
        return finalize(commit, key, timestamp, self.seq(place))

    def apply(self, state: EnclaveState, event: Event, effects: Effects, shelf: Shelf) -> list[Transition]:
        return [machine.apply(state, event, effects, shelf)]

    def close(self, before: EnclaveState, transition: Transition, shelf: Shelf) -> Transition:
        """A step that closes bundles; its nodes are on the shelf."""
        return transition

    # The whole

    def altered(self) -> frozenset[int]:
        """Places of events that the archive shows as they were not signed."""
        return frozenset()

    def shown(self, place: int, wire: Wire) -> None:
        """How it shows them: `wire` is changed."""

    def sth(self, log: Log) -> TreeHead:
        """The head in the archive's header."""
        return log.head(len(log.bundles))

    def hidden(self, log: Log) -> frozenset[int]:
        """Sizes of which nobody has collected a head."""
        return frozenset()

    def heads(self, log: Log) -> list[TreeHead]:
        """Heads that somebody has collected besides."""
        return []

    def planted(self, log: Log) -> Planted | None:
        return None
