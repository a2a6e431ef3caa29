"""Generates one enclave's log: the script chooses the events, the kernel's state machine applies
them.

Lines are spooled as they are made, each with its content: erasures are known only at the end.
Memory is bounded by the enclave's current state and the number of its bundles.
"""

from random import Random
from typing import IO

import msgspec

from enc.bench.clock import Clock
from enc.bench.group_script import GroupScript
from enc.bench.log import Earlier, Log, ProvedBundle, SignedBundle
from enc.bench.manifests import manifest_of
from enc.bench.node_behaviour import NodeBehaviour
from enc.bench.people import NODES, key_of
from enc.bench.plan import Plan
from enc.bench.recent_messages import RecentMessage, RecentMessages
from enc.bench.script import Act, Script
from enc.bench.state_memory import StateMemory
from enc.bench.v1_script import V1Script
from enc.core.log.commit import build_commit, build_manifest
from enc.core.log.event import finalize, wire_event
from enc.core.machine import enclave as machine
from enc.core.machine.state import EnclaveState, Transition
from enc.core.primitives.hashing import log_leaf
from enc.core.primitives.types import Commit, Event
from enc.core.rules.policy_types import Effects
from enc.core.trees.merkle_log import Edge
from enc.core.trees.tree_head import sign_head

_NOTHING = Effects()
_CHANGES_NO_RIGHTS = frozenset(["Update", "Delete", "Shared", "Own"])


class LogMaker:
    """`run` makes the log; then `log`, `state` and `checkpoint_root` describe it."""

    def __init__(self, plan: Plan, behaviour: NodeBehaviour, spool: IO[bytes]) -> None:
        self.plan, self.behaviour, self._spool = plan, behaviour, spool
        self._recent = RecentMessages()
        self._memory = StateMemory(self._recent)
        self._script: Script = (V1Script if plan.enc_v == 1 else GroupScript)(plan, self._recent)
        self._clock = Clock(plan)
        self._rng: Random = plan.random("witness")
        self._keys = {key.public: key for key in (key_of(plan.seed, "node", i) for i in range(NODES))}
        self._nodes = [key_of(plan.seed, "node", i).public for i in plan.nodes]
        self._allowed: set[tuple[str, bytes]] = set()
        """Type and author of content events allowed since rights last changed."""
        self._ids: list[bytes] = []
        """Event ids of the open bundle."""
        self._edge = Edge()
        self._create()

    def run(self) -> Log:
        for place in range(1, self.plan.events):
            self._add_event(place)
            if place == self.plan.earlier:
                self._pull()
        if self.plan.is_sealed or not self.log.bundles:
            self._seal()
        self.checkpoint_root = machine.checkpoint_root(self.state, self._memory)
        return self.log

    def _create(self) -> None:
        plan, now = self.plan, self._clock.tick()
        owner = key_of(plan.seed, "person", self._script.owner)
        act = self._script.creation(manifest_of(plan, owner.public))
        commit = build_manifest(owner, act.content, self._clock.expiry(), enc_v=plan.enc_v)
        policy, effects = machine.judge_manifest(commit)
        event = finalize(commit, self._keys[self._nodes[0]], now, 0)
        self.log = Log(enclave=event.enclave, enc_v=plan.enc_v, keys=self._keys, created_at=now)
        self._step(None, machine.apply_manifest(event, policy, effects), event)
        self._record(0, act, event)

    def _add_event(self, place: int) -> None:
        behaviour, state = self.behaviour, self.state
        behaviour.begin(place, state)
        now = behaviour.time(place, self._clock.tick(), state)
        self._clock.now = max(now, self._clock.now)
        if behaviour.forks(place):
            self._fork(place, now)
        if place in self.plan.moves:
            to = self._nodes[self.plan.moves.index(place) + 1]
            act = self._script.migrate(to, state.seq, machine.checkpoint_root(state, self._memory))
        else:
            act = behaviour.act(place, self._script, now)
        commit = behaviour.commit(place, self._commit(act))
        effects = self._judge(place, commit)
        key = self._keys[behaviour.sequencer(place, state.sequencer)]
        event = behaviour.finalize(place, commit, key, now)
        *before, transition = behaviour.apply(state, event, effects, self._memory)
        for step in before:
            self._step(self.state, step, None)
        self._step(self.state, transition, event)
        if event.type in state.policy.predefined and event.type not in _CHANGES_NO_RIGHTS:
            self._allowed.clear()
        self._record(place, act, event)

    def _commit(self, act: Act) -> Commit:
        return build_commit(
            act.author,
            self.log.enclave,
            act.type,
            act.content,
            self._clock.expiry(),
            act.tags,
            alg=act.alg,
            enc_v=self.plan.enc_v,
        )

    def _judge(self, place: int, commit: Commit) -> Effects:
        """Judge an event. Content events depend only on type and author, so one result serves
        many.
        """
        asked = commit.type, commit.from_
        if asked in self._allowed:
            return _NOTHING
        effects = self.behaviour.judge(place, self.state, commit, self._memory)
        if commit.type not in self.state.policy.predefined:
            self._allowed.add(asked)
        return effects

    # Steps

    def _step(self, before: EnclaveState | None, transition: Transition, event: Event | None) -> None:
        """Store a step; one that only closes a bundle has no event."""
        self._memory.put(transition)
        if event is not None:
            self._ids.append(event.id)
        if transition.closed:
            if before is not None:
                transition = self.behaviour.close(before, transition, self._memory)
            self._close(transition, before.sequencer if before is not None else transition.state.sequencer, event)
        self.state = transition.state

    def _close(self, transition: Transition, sequencer: bytes, event: Event | None) -> None:
        """Store the bundles that a step closed. Of two, or of one without the event, the first
        ended before it.
        """
        for closed in transition.closed:
            ids, self._ids = self._ids[: closed.count], self._ids[closed.count :]
            is_last = event is not None and ids[-1] == event.id
            by, last = (event.sequencer, event.seq) if event and is_last else (sequencer, self.log.last_seq)
            leaf = log_leaf(closed.events_root, closed.state_hash)
            self._edge = self._edge.append(leaf)[0]
            self.log.bundles.append(SignedBundle(leaf, self._edge.root(), last, transition.state.min_timestamp, by))
            if self._proves(closed.index):
                self.log.proved_bundle = ProvedBundle(
                    closed.index, last, tuple(ids), closed.events_root, closed.state_hash
                )

    def _proves(self, index: int) -> bool:
        """Return whether to store this bundle for a proof: a random one, or the one the fault
        needs.
        """
        if self.behaviour.proves is not None:
            return index == self.behaviour.proves
        return self._rng.random() < 1 / (index + 1)

    def _record(self, place: int, act: Act, event: Event) -> None:
        """Store what later events need of this one, and write its line."""
        log = self.log
        log.places, log.last_seq, log.time = place + 1, event.seq, event.timestamp
        if not log.sequencers or log.sequencers[-1][0] != event.sequencer:
            log.sequencers.append((event.sequencer, event.seq))
        if (about := act.about) is not None:
            log.erased_by[about.place if about.latest is None else about.latest] = place
            about.latest = place
            if act.type == "Delete":
                self._recent.remove(about)
        elif act.by >= 0:
            self._recent.add(RecentMessage(event.id, act.by, event.from_, event.type, place))
        elif act.gone_at is not None:
            log.gone_at[place] = act.gone_at
        self._spool.write(line_of(event))

    def _seal(self) -> None:
        """Close the open bundle at its deadline."""
        if self.state.bundle is not None:
            deadline = self.state.bundle.deadline(self.state.policy.bundle)
            sealed = machine.seal(self.state, deadline, self._memory)
            if sealed is not None:
                self._step(self.state, sealed, None)

    # Archives of a shorter log

    def _pull(self) -> None:
        root = machine.checkpoint_root(self.state, self._memory)
        header = self.log.header(self.log.head(len(self.log.bundles)), root)
        self.log.earlier.append(Earlier(header, self.log.places, self.log.time))

    def _fork(self, place: int, now: int) -> None:
        """Add an archive with another event at this position and a head over it, outside the
        log.
        """
        commit = self._commit(self._script.act(place, now, plain=True))
        effects = self._judge(place, commit)
        key = self._keys[self.state.sequencer]
        event = finalize(commit, key, now, place)
        taken = machine.apply(self.state, event, effects, self._memory)
        self._memory.add(taken.tree_nodes)
        state = taken.state
        if state.bundle is not None:
            sealed = machine.seal(state, state.bundle.deadline(state.policy.bundle), self._memory)
            state = sealed.state if sealed is not None else state
        head = sign_head(key, state.enclave, state.min_timestamp, state.log.size, state.log.root())
        header = msgspec.structs.replace(
            self.log.header(head, state.log.root()), events=place + 1, checkpoint_seq=event.seq
        )
        self.log.earlier.append(Earlier(header, place, now, (line_of(event),)))


def line_of(event: Event) -> bytes:
    return msgspec.json.encode(wire_event(event)) + b"\n"
