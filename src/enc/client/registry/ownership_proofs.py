"""Builds the proofs by which a registry judges an owner's registration (docs/protocol.md, sections
23.4 and 23.5), from the answers of the enclave's node."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from enc.client.enclave.ownership_history import concerns_owners
from enc.client.errors import Distrust
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.verify.sequencer_history import History
from enc.client.wire.flow import Flow, Pause
from enc.core.errors import EncError, EventPending, InvalidProof, MisuseError, PeerError, TreeSizeNotFound
from enc.core.primitives.encoding import MAX_INT
from enc.core.primitives.types import Event, TreeHead
from enc.core.registry.migrate_chain import Link
from enc.core.registry.owner_proof import (
    FormerOwner,
    OwnerProof,
    build_owner_proof,
    build_start,
    check_owner_proof,
    find_passage,
)
from enc.core.registry.ownership import KnownOwnership
from enc.core.rules.content import parse_migrate
from enc.core.session.envelope import RequestType
from enc.core.trees.tree_head import wire_head

MAX_STARTS = 16
"""Most former owners from whom a passage is tried."""
_NO_WAY = "no event that you may read passed it on from an owner whom the registry knows"


class NotOwnerError(MisuseError):
    """This identity does not own the enclave."""


class OwnershipProver:
    """`events`: from `ownership_history`. `heads`: of former sequencers."""

    def __init__(
        self, reader: EnclaveReader, events: Sequence[Event], history: History, heads: Sequence[TreeHead]
    ) -> None:
        self._reader, self._events, self._history, self._heads = reader, events, history, heads

    @property
    def manifest(self) -> Event:
        return self._events[0]

    def is_due(self, known: KnownOwnership) -> Flow[bool]:
        """Return whether somebody became or ceased to be an owner since the latest proof.

        Then a former owner may have evidence that is newer than the registry's.
        """
        changes = [event for event in self._events[1:] if concerns_owners(event) or known.policy.new_owners(event)]
        if not changes or not known.proved_root:
            return bool(changes)
        if changes[-1].timestamp != known.proved_at or not known.proved_size:
            return changes[-1].timestamp > known.proved_at
        try:
            _, anchor = yield from self._reader.place(changes[-1].id)
        except EventPending:
            return True
        return anchor.index >= known.proved_size

    def steps(self, known: KnownOwnership) -> list[Event]:
        """Return the Migrates since the last term of the sequencer on record; if the log does not
        know that one, of one that a forced Migrate left."""
        terms = [term.sequencer for term in self._history.terms()]
        for base in (known.current, *reversed(known.forced_from)):
            if base.sequencer in terms:
                last = max(i for i, key in enumerate(terms) if key == base.sequencer)
                return [move.event for move in self._history.moves[last:]]
        return []

    def chain(self, known: KnownOwnership, steps: Sequence[Event]) -> Flow[tuple[list[Link], KnownOwnership]]:
        """Return the links, and what is known after them.

        Each has a proof if its author is not the holder, if a forced Migrate on record must be
        taken back first, and, if a head is there, if it is itself forced.
        """
        chain, terms = list[Link](), [term.sequencer for term in self._history.terms()]
        for event in steps:
            migrate, proof = parse_migrate(event), None
            is_needed = event.from_ != known.holder or known.sequencer not in terms
            if is_needed or event.sequencer != known.sequencer:
                proof = yield from self._former(known, event, is_needed)
            if proof is not None:
                known = check_owner_proof(proof, event.from_, known)
            known = known.moved(event, migrate)
            chain.append(Link(event, proof))
        return chain, known

    def _former(self, known: KnownOwnership, migrate: Event, is_needed: bool) -> Flow[OwnerProof | None]:
        """Prove, under the latest suitable head of the old sequencer, that a Migrate's author was
        the owner.

        The log under such a head is the same at every node, so the current node provides the paths.
        """
        for head in sorted(self._heads, key=lambda head: head.ts, reverse=True):
            try:
                known.signed(head)
                proof = yield from self._under(migrate.from_, head)
                return (yield from self._started(proof, known, migrate.from_, migrate.seq))
            except Distrust:
                raise
            except (PeerError, NotOwnerError):
                continue
        if not is_needed:
            return None
        raise MisuseError(
            f"Migrate {migrate.seq}: the registry's entry belongs to {known.holder.hex()}, and no head of "
            f"{known.sequencer.hex()} is available under which the Migrate's author owns the enclave: give an "
            "archive from the time when they owned it"
        )

    def current(self, known: KnownOwnership, *, is_patient: bool) -> Flow[OwnerProof]:
        """Prove that this identity owns the enclave, under the newest head; if patient, wait until
        a closed bundle shows it."""
        me, backoff = self._reader.identity.public, self._reader.node.caller.backoff()
        sequencer = self._reader.session.known_verifier().sequencer
        if sequencer not in (known.sequencer, *(left.sequencer for left in known.forced_from)):
            raise MisuseError(
                f"the registry has the enclave at {known.sequencer.hex()}, and no Migrate that you may read leads from "
                f"there to {sequencer.hex()}"
            )
        if not known.forced_from and not any(self._ways(known, me, MAX_INT)):
            raise NotOwnerError(f"you do not own the enclave: {_NO_WAY}")
        while True:
            try:
                proof = yield from self._newest(known)
                return (yield from self._started(proof, known, me, MAX_INT))
            except MisuseError:
                raise
            except EncError as e:
                if not is_patient:
                    raise
                pause = backoff.wait(e)
            yield Pause(pause)

    # The way from an owner whom the registry knows

    def _ways(
        self, known: KnownOwnership, owner: bytes, before: int
    ) -> Iterator[tuple[bytes | None, tuple[Event, ...]]]:
        """Yield passages to the owner, each with the identity that `start` must show, if one must."""
        since = [event for event in self._events[1:] if known.proved_at <= event.timestamp and event.seq < before]
        direct = find_passage(known.policy, since, known.holder, owner)
        if direct is not None:
            yield None, direct
        if known.proved_root:
            givers = [event.from_ for event in reversed(since) if known.policy.new_owners(event)]
            starts: list[bytes] = list(dict.fromkeys([owner, *givers]))[:MAX_STARTS]
        else:
            starts = sorted(known.policy.new_owners(self.manifest))
        for start in starts:
            way = find_passage(known.policy, since, start, owner)
            if way is not None and start != known.holder:
                yield (start if known.proved_root else None), way

    def _started(self, proof: OwnerProof, known: KnownOwnership, owner: bytes, before: int) -> Flow[OwnerProof]:
        """Return the proof with the first passage that the registry will accept."""
        base = known.signed(proof.sth)
        error: EncError = NotOwnerError(f"you do not own the enclave: {_NO_WAY}")
        for giver, passage in self._ways(base, owner, before):
            try:
                start = None if giver is None else (yield from self._start(base, giver))
                found = replace(proof, passage=passage, start=start)
                check_owner_proof(found, owner, known)
                return found
            except Distrust:
                raise
            except PeerError as e:
                error = e
        raise error

    def _start(self, known: KnownOwnership, giver: bytes) -> Flow[FormerOwner]:
        """Return a proof of an identity's rights under the known root."""
        size = known.proved_size or (yield from self._size_of(known.proved_root))
        return build_start((yield from self._state(giver, size)))

    def _size_of(self, root: bytes) -> Flow[int]:
        """Return the number of bundles that a forced Migrate took over with this root."""
        for move in self._history.moves:
            if move.is_forced and parse_migrate(move.event).ct_root == root:
                _, anchor = yield from self._reader.place(move.event.id)
                return anchor.index
        raise InvalidProof("proved_root: neither proved nor taken over in this log")

    # Answers of the node

    def _newest(self, known: KnownOwnership) -> Flow[OwnerProof]:
        """Return an owner proof under the newest head, without a passage."""
        key = self._reader.identity.public.hex()
        state = yield from self._asked("/state", "State_Proof", {"namespace": "rbac", "key": key})
        if not isinstance(state.get("sth"), dict):
            raise TreeSizeNotFound("no bundle is closed yet")
        proof = yield from self._built(state, state["sth"].get("ts"))
        if not known.policy.is_owner(int.from_bytes(proof.smt_proof.v or b"", "big")):
            _, anchor = yield from self._reader.place(self._events[-1].id)  # EventPending while its bundle is open
            if anchor.index < proof.sth.ts:
                raise NotOwnerError("you do not own the enclave, by the state after its last closed bundle")
            raise EventPending("the bundle that shows the ownership has just been closed")
        return proof

    def _under(self, owner: bytes, head: TreeHead) -> Flow[OwnerProof]:
        """Return an owner proof under a head that another sequencer signed, without a passage."""
        state = yield from self._state(owner, head.ts)
        return (yield from self._built({**state, "sth": wire_head(head)}, head.ts))

    def _state(self, identity: bytes, size: int) -> Flow[dict[str, Any]]:
        """Return an identity's rights after `size` bundles, with the last of these bundles' leaf."""
        asked = {"namespace": "rbac", "key": identity.hex(), "tree_size": size}
        state = yield from self._asked("/state", "State_Proof", asked)
        last = {"leaf_index": size - 1, "tree_size": size}
        return {**state, "inclusion": (yield from self._asked("/inclusion", "Inclusion_Proof", last))}

    def _built(self, state: dict[str, Any], size: object) -> Flow[OwnerProof]:
        bundle = yield from self._asked("/bundle", "Bundle_Proof", {"event_id": self.manifest.id.hex()})
        asked = {"leaf_index": 0, "tree_size": size}
        return build_owner_proof(state, bundle, (yield from self._asked("/inclusion", "Inclusion_Proof", asked)))

    def _asked(self, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[dict[str, Any]]:
        found = msgspec.json.decode((yield from self._reader.session.ask(path, type_, body)))
        return found if isinstance(found, dict) else {}
