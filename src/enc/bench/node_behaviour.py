"""The behaviour of the node that sequences an enclave. The base class follows the rules; each fault
overrides one point."""

from typing import Any

from enc.bench.fault_kinds import Planted
from enc.bench.log import Log
from enc.bench.script import Act, Script
from enc.bench.state_memory import StateMemory
from enc.core.log.event import finalize
from enc.core.machine import enclave as machine
from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Event, TreeHead
from enc.core.rules.policy_types import Effects

Wire = dict[str, Any]


class NodeBehaviour:
    """Methods are called in this order for each position of a log, then for the whole log."""

    proves: int | None = None
    """The bundle of which heads.jsonl must prove an event."""
    is_provable = True
    """Whether each event's seq agrees with its position in a bundle; otherwise nothing is
    proved.
    """

    def begin(self, place: int, state: EnclaveState) -> None:
        """Called before the next event is made."""

    def forks(self, place: int) -> bool:
        """Return whether another event is sequenced here first, in a log that is then abandoned."""
        return False

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        return clock

    def act(self, place: int, script: Script, now: int) -> Act:
        return script.act(place, now, plain=False)

    def commit(self, place: int, commit: Commit) -> Commit:
        return commit

    def judge(self, place: int, state: EnclaveState, commit: Commit, memory: StateMemory) -> Effects:
        return machine.judge(state, commit, memory, sequencer=state.sequencer)

    def sequencer(self, place: int, expected: bytes) -> bytes:
        return expected

    def seq(self, place: int) -> int:
        return place

    def finalize(self, place: int, commit: Commit, key: PrivateKey, timestamp: int) -> Event:
        return finalize(commit, key, timestamp, self.seq(place))

    def apply(self, state: EnclaveState, event: Event, effects: Effects, memory: StateMemory) -> list[Transition]:
        return [machine.apply(state, event, effects, memory)]

    def close(self, before: EnclaveState, transition: Transition, memory: StateMemory) -> Transition:
        """Return a step that closes bundles; its tree nodes are already in memory."""
        return transition

    # The whole log

    def altered(self) -> frozenset[int]:
        """Return the positions of events that the archive shows differently from what was
        signed.
        """
        return frozenset()

    def shown(self, place: int, wire: Wire) -> None:
        """Change `wire` to what the archive shows."""

    def sth(self, log: Log) -> TreeHead:
        """Return the head in the archive's header."""
        return log.head(len(log.bundles))

    def hidden(self, log: Log) -> frozenset[int]:
        """Return the sizes without a collected head."""
        return frozenset()

    def heads(self, log: Log) -> list[TreeHead]:
        """Return additional collected heads."""
        return []

    def planted(self, log: Log) -> Planted | None:
        return None
