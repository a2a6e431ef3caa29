"""The membership of a group: everyone's State and traits, from its log and its rules alone.

The same state machine that runs a node (`enc.core.machine.enclave`) judges every event, against the state
before it. Events that the rules forbid raise ReplayFailed: an honest node would have rejected them.
Nothing that a node says about the state is used.

A deleted event is not shown; only its seq is missing. So a seq may stay empty if an allowed Delete
names an event that was never shown: there must be as many of these as empty seqs, each Delete after
its own.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from msgspec.structs import replace

from enc.apps.group.errors import NotAGroup
from enc.apps.group.group_state import GroupState
from enc.apps.group.manifest import GATES, check_group
from enc.apps.group.views import GroupMember
from enc.core.errors import EncError, InvalidArchive, ReplayFailed
from enc.core.log.event import check_time, target_of
from enc.core.machine.enclave import apply_manifest, judge, judge_manifest
from enc.core.machine.replay import SeenCommits
from enc.core.machine.state import EnclaveState, view
from enc.core.primitives.types import Event, Target
from enc.core.rules.content import content_object, revised_id
from enc.core.rules.policy_types import Effects, turned

SEALED = ("message", "notice", "reaction")
"""Types whose contents are sealed; these may also be deleted."""


_NOTHING = Effects()


class Membership:
    """`apply` each event, in order; `skip` a seq that is not shown."""

    def __init__(self, enclave: bytes | None = None) -> None:
        self._enclave = enclave
        self._replayed, self._seen_commits = GroupState(), SeenCommits()
        self._nodes: set[bytes] = set()
        """The keys of the sequencers so far, and of the one expected next."""
        self._state: EnclaveState | None = None
        self._allowed: set[tuple[str, bytes, bytes]] = set()
        """Type, author and sequencer of content events allowed since the state last changed."""
        self._people: dict[bytes, GroupMember] = {}
        self.members: frozenset[bytes] = frozenset()
        self.topic: Any = None
        self.gaps: list[int] = []
        """Seqs that are not shown."""
        self.unseen: dict[bytes, int] = {}
        """Events that were deleted and never shown, with the time of their Delete."""

    @property
    def seq(self) -> int:
        """The seq of the last event; -1 before the first."""
        return self._state.seq if self._state else -1

    @property
    def lifecycle(self) -> str:
        return "active" if self._state is None else "migrated" if self._state.migrated else self._state.lifecycle

    @property
    def sequencer(self) -> bytes:
        """The key of the node that sequences the next event."""
        return self._state.sequencer if self._state else b""

    def person(self, identity: bytes) -> GroupMember:
        return self._people.get(identity) or GroupMember(identity, "OUTSIDER")

    def people(self) -> list[GroupMember]:
        return list(self._people.values())

    def gates(self) -> Mapping[str, bool]:
        """Return for each gate whether it is open."""
        if self._state is None:
            return dict.fromkeys(GATES, True)
        return {alias: alias not in self._state.closed_gates for alias in GATES}

    def author_of(self, event_id: bytes) -> bytes | None:
        target = self._replayed.targets.get(event_id)
        return None if target is None else target.from_

    # Applying events

    def skip(self, seq: int) -> None:
        """Note that no event is shown with this seq."""
        if self._state is None or seq != self.seq + 1:
            raise InvalidArchive(f"seq: {seq} is not the next one")
        self._state = replace(self._state, seq=seq, migrated=False)
        self.gaps.append(seq)

    def apply(self, event: Event) -> Effects:
        """Apply the next event, whose signatures were checked. Raise ReplayFailed or NotAGroup."""
        try:
            effects = self._apply(event)
        except NotAGroup:
            raise
        except EncError as e:
            raise ReplayFailed(event.seq, e) from e
        self._seen_commits.add(event)
        self._nodes.add(event.sequencer)
        if effects.new_sequencer:
            self._nodes.add(effects.new_sequencer)
        self._explain(event, effects)
        self._replayed.targets[event.id] = target_of(event)
        self._note(event)
        return effects

    def _apply(self, event: Event) -> Effects:
        self._check_order(event)
        if self._state is None:
            policy, effects = judge_manifest(event)
            check_group(policy.manifest)
            self._state = replace(apply_manifest(event, policy, effects).state, pending={})
        else:
            effects = self._judge(self._state, event)
            migrates = effects.lifecycle == "migrated"
            self._state = replace(
                self._state,
                seq=event.seq,
                min_timestamp=event.timestamp,
                sequencer=effects.new_sequencer or event.sequencer,
                lifecycle=self._state.lifecycle if migrates else effects.lifecycle or self._state.lifecycle,
                migrated=migrates,
                closed_gates=turned(self._state.closed_gates, effects.gates),
            )
        self._replayed.leaves |= effects.leaves(event.id)
        return effects

    def _check_order(self, event: Event) -> None:
        if event.seq != self.seq + 1:
            raise InvalidArchive(f"seq: expected {self.seq + 1}")
        enclave = self._state.enclave if self._state else self._enclave
        if enclave is not None and event.enclave != enclave:
            raise InvalidArchive("enclave: an event of another enclave")
        check_time(event)  # else a commit could be put in again once its hash is forgotten
        if self._state is None:
            return
        if event.timestamp < self._state.min_timestamp:
            raise InvalidArchive("timestamp: before the previous event's")
        if self._seen_commits.is_duplicate(event):
            raise InvalidArchive("the commit is already in the log")

    def _judge(self, state: EnclaveState, event: Event) -> Effects:
        """Judge an event. For content events only type, author, sequencer and state matter, so one
        judgement is reused for all that are alike."""
        asked = event.type, event.from_, event.sequencer
        if asked in self._allowed:
            return _NOTHING
        effects = self._judged(state, event)
        if event.type in state.policy.predefined:
            self._allowed.clear()
        else:
            self._allowed.add(asked)
        return effects

    def _judged(self, state: EnclaveState, event: Event) -> Effects:
        if event.type in ("Update", "Delete") and revised_id(event) not in self._replayed.targets:
            return self._judge_unseen(state, event)
        return self._asked(state, event)

    def _asked(self, state: EnclaveState, event: Event) -> Effects:
        return judge(state, event, self._replayed, sequencer=event.sequencer, takeover=True, checkpoint=False)

    def _judge_unseen(self, state: EnclaveState, event: Event) -> Effects:
        """Judge a revision whose target is not shown: any deletable type, by its author or
        another.
        """
        if len(self.unseen) >= len(self.gaps) and revised_id(event) not in self.unseen:
            return self._asked(state, event)  # rejected: no empty seq is left for its target
        refusal: EncError | None = None
        for type_, author in product(SEALED, (event.from_, bytes(32))):
            self._replayed.guess = Target(type_, author)
            try:
                effects = self._asked(state, event)
            except EncError as e:
                refusal = e
                continue
            finally:
                self._replayed.guess = None
            if event.type == "Delete":
                self.unseen[revised_id(event)] = event.timestamp
            return effects
        raise refusal or InvalidArchive("tags: the target is not shown")

    def _explain(self, event: Event, effects: Effects) -> None:
        """Record why contents are missing: a later Update or Delete, an auto-delete time, or a
        statement of the node."""
        for gone in effects.erases:
            self._seen_commits.explain(gone)
        if event.content is None:
            target = self._replayed.targets.get(revised_id(event)) if event.type == "Update" else None
            if not target_of(event).auto_delete and not (target and target.auto_delete):
                self._seen_commits.add_unexplained(event)

    # People

    def _note(self, event: Event) -> None:
        """Update States and traits, the topic and profiles."""
        if event.type in ("Shared", "Own"):
            content = content_object(event)
            if event.type == "Shared":
                self.topic = content["value"]
            else:
                self._put(replace(self.person(event.from_), profile=content["value"]))
            return
        changed = [self._look(identity) for identity in self._concerned(event)]
        for person in changed:
            self._put(person)
        if any((person.identity in self.members) != person.is_member for person in changed):
            joined = {person.identity for person in changed if person.is_member}
            self.members = (self.members - {person.identity for person in changed}) | joined

    def _concerned(self, event: Event) -> Iterator[bytes]:
        assert self._state is not None  # noqa: S101  # an event was applied
        policy = self._state.policy
        if event.type == "Manifest":
            yield from policy.initial_members
        elif event.type in policy.dialect.access_types and event.type != "Gate":
            yield from dict.fromkeys(policy.dialect.affected_identities(event))

    def _look(self, identity: bytes) -> GroupMember:
        assert self._state is not None  # noqa: S101  # an event was applied
        policy, mask = self._state.policy, view(self._state, self._replayed).bitmask(identity)
        return replace(self.person(identity), state=policy.state_of(mask), traits=tuple(policy.traits_of(mask)))

    def _put(self, person: GroupMember) -> None:
        if person == GroupMember(person.identity, "OUTSIDER"):
            self._people.pop(person.identity, None)
        else:
            self._people[person.identity] = person

    # Events that are not shown

    def withheld(self) -> int | None:
        """Return a seq whose event or content is missing without a Delete, an Update or a statement
        of the node; None if there is none.

        Call it at the end of the log.
        """
        return self.gaps[-1] if len(self.gaps) > len(self.unseen) else self._seen_commits.unexplained(self._nodes)

    def is_settled(self, timestamp: int) -> bool:
        """Return whether, by the log's later events, every bundle up to this time must be
        closed.
        """
        return self._state is not None and self._state.min_timestamp >= timestamp + self._state.policy.bundle.timeout
