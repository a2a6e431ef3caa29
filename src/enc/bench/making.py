"""One enclave from its Manifest to its end: the script says what happens, the kernel's state machine orders it.

Lines go to a spool as they are made, each with its content: what is erased is known only at the end. Memory is bounded
by the enclave's present state and the number of its bundles.
"""

from random import Random
from typing import IO

import msgspec

from enc.bench.circle_script import CircleScript
from enc.bench.clock import Clock
from enc.bench.conduct import Conduct
from enc.bench.constitution import manifest_of
from enc.bench.group_script import GroupScript
from enc.bench.log import Bundle, Earlier, Log, Witnessed
from enc.bench.people import NODES, key_of
from enc.bench.plan import Plan
from enc.bench.recent import Message, Recent
from enc.bench.script import Act, Script
from enc.bench.shelf import Shelf
from enc.core import enclave as machine
from enc.core.commit import build_commit, build_manifest
from enc.core.enclave import EnclaveState, Transition
from enc.core.event import finalize, wire_event
from enc.core.hashing import log_leaf
from enc.core.merkle_log import Edge
from enc.core.policy import Effects
from enc.core.tree_head import sign_head
from enc.core.types import Commit, Event

_NOTHING = Effects()
_CHANGES_NO_RIGHTS = frozenset(["Update", "Delete", "Shared", "Own"])


class Maker:
    """`run` makes the log; then `log`, `state` and `checkpoint_root` tell of it."""

    def __init__(self, plan: Plan, conduct: Conduct, spool: IO[bytes]) -> None:
        self.plan, self.conduct, self._spool = plan, conduct, spool
        self._recent = Recent()
        self._shelf = Shelf(self._recent)
        self._script: Script = (CircleScript if plan.enc_v == 1 else GroupScript)(plan, self._recent)
        self._clock = Clock(plan)
        self._rng: Random = plan.random("witness")
        self._keys = {key.public: key for key in (key_of(plan.seed, "node", i) for i in range(NODES))}
        self._nodes = [key_of(plan.seed, "node", i).public for i in plan.nodes]
        self._allowed: set[tuple[str, bytes]] = set()
        """Type and author of content events that were allowed since rights last changed."""
        self._ids: list[bytes] = []
        """Of the open bundle."""
        self._edge = Edge()
        self._found()

    def run(self) -> Log:
        for place in range(1, self.plan.events):
            self._take(place)
            if place == self.plan.earlier:
                self._pull()
        if self.plan.is_sealed or not self.log.bundles:
            self._seal()
        self.checkpoint_root = machine.checkpoint_root(self.state, self._shelf)
        return self.log

    def _found(self) -> None:
        plan, now = self.plan, self._clock.tick()
        owner = key_of(plan.seed, "person", self._script.owner)
        act = self._script.founding(manifest_of(plan, owner.public))
        commit = build_manifest(owner, act.content, self._clock.expiry(), enc_v=plan.enc_v)
        policy, effects = machine.judge_manifest(commit)
        event = finalize(commit, self._keys[self._nodes[0]], now, 0)
        self.log = Log(enclave=event.enclave, enc_v=plan.enc_v, keys=self._keys, founded_at=now)
        self._step(None, machine.apply_manifest(event, policy, effects), event)
        self._note(0, act, event)

    def _take(self, place: int) -> None:
        conduct, state = self.conduct, self.state
        conduct.begin(place, state)
        now = conduct.time(place, self._clock.tick(), state)
        self._clock.now = max(now, self._clock.now)
        if conduct.forks(place):
            self._fork(place, now)
        if place in self.plan.moves:
            to = self._nodes[self.plan.moves.index(place) + 1]
            act = self._script.migrate(to, state.seq, machine.checkpoint_root(state, self._shelf))
        else:
            act = conduct.act(place, self._script, now)
        commit = conduct.commit(place, self._commit(act))
        effects = self._judge(place, commit)
        key = self._keys[conduct.sequencer(place, state.sequencer)]
        event = conduct.finalize(place, commit, key, now)
        *before, transition = conduct.apply(state, event, effects, self._shelf)
        for step in before:
            self._step(self.state, step, None)
        self._step(self.state, transition, event)
        if event.type in state.policy.predefined and event.type not in _CHANGES_NO_RIGHTS:
            self._allowed.clear()
        self._note(place, act, event)

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
        """A content event is judged by its type and its author's rights: once for many."""
        asked = commit.type, commit.from_
        if asked in self._allowed:
            return _NOTHING
        effects = self.conduct.judge(place, self.state, commit, self._shelf)
        if commit.type not in self.state.policy.predefined:
            self._allowed.add(asked)
        return effects

    # What a step adds

    def _step(self, before: EnclaveState | None, transition: Transition, event: Event | None) -> None:
        """Keep a step; one that only closes a bundle has no event."""
        self._shelf.put(transition)
        if event is not None:
            self._ids.append(event.id)
        if transition.closed:
            if before is not None:
                transition = self.conduct.close(before, transition, self._shelf)
            self._close(transition, before.sequencer if before is not None else transition.state.sequencer, event)
        self.state = transition.state

    def _close(self, transition: Transition, sequencer: bytes, event: Event | None) -> None:
        """The bundles that a step closed. If there are two, or one before the event, the first ended before it."""
        for closed in transition.closed:
            ids, self._ids = self._ids[: closed.count], self._ids[closed.count :]
            is_last = event is not None and ids[-1] == event.id
            by, last = (event.sequencer, event.seq) if event and is_last else (sequencer, self.log.last_seq)
            leaf = log_leaf(closed.events_root, closed.state_hash)
            self._edge = self._edge.append(leaf)[0]
            self.log.bundles.append(Bundle(leaf, self._edge.root(), last, transition.state.min_timestamp, by))
            if self._is_witnessed(closed.index):
                self.log.witnessed = Witnessed(closed.index, last, tuple(ids), closed.events_root, closed.state_hash)

    def _is_witnessed(self, index: int) -> bool:
        """One bundle, any, or the one that the conduct asks for."""
        if self.conduct.proves is not None:
            return index == self.conduct.proves
        return self._rng.random() < 1 / (index + 1)

    def _note(self, place: int, act: Act, event: Event) -> None:
        """What is remembered of an event once it is made, and its line."""
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
            self._recent.add(Message(event.id, act.by, event.from_, event.type, place))
        elif act.gone_at is not None:
            log.gone_at[place] = act.gone_at
        self._spool.write(line_of(event))

    def _seal(self) -> None:
        """The clock closes the open bundle."""
        if self.state.bundle is not None:
            deadline = self.state.bundle.deadline(self.state.policy.bundle)
            sealed = machine.seal(self.state, deadline, self._shelf)
            if sealed is not None:
                self._step(self.state, sealed, None)

    # Archives of a shorter log

    def _pull(self) -> None:
        root = machine.checkpoint_root(self.state, self._shelf)
        header = self.log.header(self.log.head(len(self.log.bundles)), root)
        self.log.earlier.append(Earlier(header, self.log.places, self.log.time))

    def _fork(self, place: int, now: int) -> None:
        """An event in this place, with a head over it, in an archive that somebody pulled; the log forgets it."""
        commit = self._commit(self._script.act(place, now, plain=True))
        effects = self._judge(place, commit)
        key = self._keys[self.state.sequencer]
        event = finalize(commit, key, now, place)
        taken = machine.apply(self.state, event, effects, self._shelf)
        self._shelf.add(taken.tree_nodes)
        state = taken.state
        if state.bundle is not None:
            sealed = machine.seal(state, state.bundle.deadline(state.policy.bundle), self._shelf)
            state = sealed.state if sealed is not None else state
        head = sign_head(key, state.enclave, state.min_timestamp, state.log.size, state.log.root())
        header = msgspec.structs.replace(
            self.log.header(head, state.log.root()), events=place + 1, checkpoint_seq=event.seq
        )
        self.log.earlier.append(Earlier(header, place, now, (line_of(event),)))


def line_of(event: Event) -> bytes:
    return msgspec.json.encode(wire_event(event)) + b"\n"
