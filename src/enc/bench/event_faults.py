"""Faults of an event: its signatures, content, author's rights, position, time or sequencer."""

from msgspec.structs import replace

from enc.bench.faulty_behaviour import FaultyBehaviour
from enc.bench.node_behaviour import Wire
from enc.bench.people import NODES, key_of
from enc.bench.plan import Plan
from enc.bench.script import Act, Script
from enc.bench.state_memory import StateMemory
from enc.core.machine.state import EnclaveState
from enc.core.primitives import hashing
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Event
from enc.core.rules.policy_types import Effects


class _PlainFault(FaultyBehaviour):
    """At the planted position is a message that no later event refers to."""

    def act(self, place: int, script: Script, now: int) -> Act:
        return script.act(place, now, plain=place == self.place)


class ForgedSignature(_PlainFault):
    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._field = self.rng.choice(["sig", "seq_sig"])
        self._stranger = key_of(plan.seed, "stranger", plan.number)
        self.done = f"{self._field} is made with another key"

    def commit(self, place: int, commit: Commit) -> Commit:
        if place != self.place or self._field != "sig":
            return commit
        return replace(commit, sig=self._stranger.sign(commit.alg, commit.hash))

    def finalize(self, place: int, commit: Commit, key: PrivateKey, timestamp: int) -> Event:
        event = super().finalize(place, commit, key, timestamp)
        if place != self.place or self._field != "seq_sig":
            return event
        forged = self._stranger.sign_schnorr(hashing.event_hash(timestamp, event.seq, key.public, commit.sig))
        return replace(event, seq_sig=forged, id=hashing.sha256(forged))


class AlteredContent(_PlainFault):
    done = "the archive has another content than the one that was signed"

    def altered(self) -> frozenset[int]:
        return frozenset([self.place])

    def shown(self, place: int, wire: Wire) -> None:
        wire["content"] += " not"


class ErasureWithoutCause(AlteredContent):
    done = "the content is erased, but no event erased it"

    def shown(self, place: int, wire: Wire) -> None:
        wire["content_hash"] = hashing.content_hash(wire["content"]).hex()
        wire["content"] = None


class UnauthorisedEvent(FaultyBehaviour):
    def act(self, place: int, script: Script, now: int) -> Act:
        if place != self.place:
            return super().act(place, script, now)
        act = script.overstep()
        self.done = f"a {act.type} by {act.author.public.hex()}, who had no right to it, was accepted"
        return act

    def judge(self, place: int, state: EnclaveState, commit: Commit, memory: StateMemory) -> Effects:
        return Effects() if place == self.place else super().judge(place, state, commit, memory)


class MissingEvent(FaultyBehaviour):
    is_provable = False

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.done = f"there is no event {self.place}: after {self.place - 1} comes {self.place + 1}"

    def seq(self, place: int) -> int:
        return place + (place >= self.place)


class Reordering(FaultyBehaviour):
    """Swaps two events at the first position where the open bundle has room for both."""

    is_provable = False
    _first: int | None = None

    def begin(self, place: int, state: EnclaveState) -> None:
        bundle = state.bundle
        if self._first is None and place >= self.place and bundle and bundle.count + 2 <= state.policy.bundle.size:
            self._first = self.seq_wrong = place
            self.done = f"event {place + 1} comes before event {place}"

    def _is_pair(self, place: int) -> bool:
        return self._first is not None and 0 <= place - self._first < 2

    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        return state.min_timestamp if self._is_pair(place) else clock

    def act(self, place: int, script: Script, now: int) -> Act:
        return script.act(place, now, plain=self._is_pair(place))

    def seq(self, place: int) -> int:
        if self._first is None or not self._is_pair(place):
            return place
        return 2 * self._first + 1 - place


class FallingTimestamp(_PlainFault):
    def time(self, place: int, clock: int, state: EnclaveState) -> int:
        if place != self.place:
            return clock
        fall = self.rng.randint(1, 20_000)
        self.done = f"its timestamp is {fall} ms below that of event {place - 1}"
        return state.min_timestamp - fall


class SequencerChange(_PlainFault):
    """A node that never was the sequencer continues the log."""

    def sequencer(self, place: int, expected: bytes) -> bytes:
        if place != self.place:
            return expected
        others = [i for i in range(NODES) if i not in self.plan.nodes]
        key = key_of(self.plan.seed, "node", self.rng.choice(others)).public
        self.done = f"from here on {key.hex()} is the sequencer, without a Migrate"
        return key


class OldSequencer(_PlainFault):
    """The previous event is a Migrate, but the old sequencer continues the log."""

    def sequencer(self, place: int, expected: bytes) -> bytes:
        if place != self.place:
            return expected
        key = key_of(self.plan.seed, "node", self.plan.nodes[0]).public
        self.done = f"{key.hex()} continues after a Migrate to {expected.hex()}"
        return key
