"""Registers nodes, identities and enclaves in a registry, with the owner's proofs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.enclave.ownership_history import ownership_history
from enc.client.errors import Distrust
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.registry.registry_client import RegistryClient, RegistryRecord
from enc.client.verify.sequencer_history import History
from enc.client.wire.flow import Flow, Pause
from enc.core.errors import (
    EncError,
    EnclaveNotFound,
    IdentityNotFound,
    MisuseError,
    NodeNotFound,
    PeerError,
    TreeSizeNotFound,
)
from enc.core.primitives.encoding import MAX_INT, compact_json
from enc.core.primitives.types import Event, Receipt, TreeHead
from enc.core.registry.migrate_chain import MAX_LINKS
from enc.core.registry.migrate_chain import Link as Step
from enc.core.registry.owner_proof import OwnerProof, build_owner_proof, check_owner_proof, find_passage
from enc.core.registry.ownership import KnownOwnership
from enc.core.registry.reg_entry import wire_enclave, wire_identity, wire_node
from enc.core.rules.content import parse_migrate
from enc.core.rules.policy_types import Policy
from enc.core.session.envelope import RequestType
from enc.core.trees.tree_head import check_head, wire_head


class EnclaveDescription(Struct, frozen=True):
    """An owner's description of an enclave; None keeps the registered value."""

    app: str | None = None
    desc: str | None = None
    meta: Mapping[str, Any] | None = None


def register_node(registry_client: RegistryClient, uris: Sequence[str]) -> Flow[Receipt | None]:
    """Register the URIs of the node whose key is this identity.

    None if they are registered already.
    """
    reader = registry_client.reader
    try:
        known = yield from registry_client.node(reader.identity.public)
        if [each.uri for each in known.endpoints] == list(uris):
            return None
    except NodeNotFound:
        pass
    content = wire_node(reader.identity.public, uris, protocols=sorted({uri.partition(":")[0] for uri in uris}))
    return (yield from reader.session.send(reader.session.prepare("Reg_Node", compact_json(content))))


def register_identity(
    registry_client: RegistryClient, enclaves: Mapping[str, bytes], sub_pub: bytes | None = None
) -> Flow[Receipt | None]:
    """Register an identity's enclaves, by label, and its sub key; None if registered already."""
    reader = registry_client.reader
    try:
        known = yield from registry_client.lookup(reader.identity.public, fresh=True)
        if (dict(known.enclaves), known.sub_pub) == (dict(enclaves), sub_pub):
            return None
    except IdentityNotFound:
        pass
    content = wire_identity(reader.identity.public, enclaves, sub_pub)
    receipt = yield from reader.session.send(reader.session.prepare("Reg_Identity", compact_json(content)))
    registry_client.forget(reader.identity.public)
    return receipt


def register_enclave(
    registry_client: RegistryClient,
    reader: EnclaveReader,
    description: EnclaveDescription | None = None,
    heads: Sequence[TreeHead] = (),
) -> Flow[Receipt | None]:
    """Register where an enclave is, as its owner; return None if all of it is registered already.

    Includes the Migrates since the last entry, and an owner proof if another identity made that
    entry. More Migrates than one entry may contain make several entries. `heads`: of former
    sequencers; one of them proves that an owner who moved the enclave before being registered was
    the owner then. The head on which the registration rests is pinned, so a continuation from an
    older copy, as a former owner might try, is detected.
    """
    yield from reader.session.head()
    rules, events = yield from ownership_history(reader)
    receipt, registry, has_more = None, registry_client.reader, True
    while has_more:
        record = yield from _record(registry_client, reader.enclave)
        content, has_more = yield from _entry(reader, record, description or EnclaveDescription(), rules, events, heads)
        if content is None:
            return None
        receipt = yield from registry.session.send(registry.session.prepare("Reg_Enclave", compact_json(content)))
        registry_client.forget(reader.enclave)
    yield from reader.session.head()
    return receipt


def _entry(
    reader: EnclaveReader,
    record: RegistryRecord | None,
    description: EnclaveDescription,
    rules: Policy,
    events: Sequence[Event],
    heads: Sequence[TreeHead],
) -> Flow[tuple[dict[str, Any] | None, bool]]:
    """Return the next entry (None if nothing is new), and whether more Migrates are left for
    another.
    """
    manifest, me = events[0], reader.identity.public
    known = KnownOwnership(manifest, rules, manifest.from_, 0, manifest.sequencer)
    if record is not None:
        known = replace(known, holder=record.holder, proved_size=record.proved_size, sequencer=record.sequencer)
    steps, known = _steps((yield from fetch_history(reader.session)), known, me, events)
    merged = _merged(description, record)
    if record is not None and not steps and record.holder == me and _description(record) == merged:
        return None, False
    has_more = len(steps) > MAX_LINKS
    steps, known = yield from _chain(reader, known, steps[:MAX_LINKS], events, heads)
    if has_more and me != known.holder:
        raise MisuseError(
            f"more than {MAX_LINKS} Migrates since the registry's entry; the last one that fits into one entry belongs "
            f"to {known.holder.hex()}, who must register the enclave first"
        )
    if not has_more:
        known = replace(known, sequencer=reader.session.known_verifier().sequencer)
    proof = None if me == known.holder else (yield from _owner_proof(reader, known, events))
    about: dict[str, Any] = {"app": merged.app or "", "desc": merged.desc or "", "meta": merged.meta}
    return wire_enclave(manifest, owner_proof=proof, links=steps, sequencer=known.sequencer, **about), has_more


def _record(registry_client: RegistryClient, enclave: bytes) -> Flow[RegistryRecord | None]:
    try:
        return (yield from registry_client.record(enclave))
    except EnclaveNotFound:
        return None


def _description(record: RegistryRecord) -> EnclaveDescription:
    return EnclaveDescription(record.entry.app, record.entry.desc, dict(record.entry.meta))


def _merged(description: EnclaveDescription, record: RegistryRecord | None) -> EnclaveDescription:
    before = EnclaveDescription("", "", {}) if record is None else _description(record)
    fields = {name: getattr(description, name) for name in description.__struct_fields__}
    return replace(before, **{name: value for name, value in fields.items() if value is not None})


def _steps(
    history: History, known: KnownOwnership, me: bytes, events: Sequence[Event]
) -> tuple[list[Step], KnownOwnership]:
    """Return the Migrates since the term of the registered sequencer, and what is known at its
    start.

    Of several terms, takes the last from which ownership passed to the current owners: the registry
    requires that ownership was passed on under the sequencer that it knows.
    """
    terms = list(history.terms())
    starts = [i for i, term in enumerate(terms) if term.sequencer == known.sequencer]
    if not starts:
        return [], known
    for i in reversed(starts):
        steps = [Step(move.event) for move in history.moves[i:]]
        start = replace(known, moved_at=terms[i].from_seq - 1)
        if _is_passed_on(start, steps, me, events):
            return steps, start
    return [Step(move.event) for move in history.moves[starts[-1] :]], known


def _is_passed_on(known: KnownOwnership, steps: Sequence[Step], me: bytes, events: Sequence[Event]) -> bool:
    """Whether ownership passed to the author of each Migrate in turn, and finally to `me`."""
    for author, before in [*((step.event.from_, step.event.seq) for step in steps), (me, MAX_INT)]:
        if author != known.holder and _passage(known, events, author, before) is None:
            return False
        known = replace(known, holder=author, moved_at=before)
    return True


def _passage(
    known: KnownOwnership, events: Sequence[Event], owner: bytes, before: int = MAX_INT
) -> tuple[Event, ...] | None:
    """Return how ownership passed from the holder to `owner` since the holder's last Migrate."""
    since = [event for event in events if event.seq == 0 or known.moved_at < event.seq < before]
    return find_passage(known.policy, since, known.holder, owner)


def _chain(
    reader: EnclaveReader,
    known: KnownOwnership,
    steps: Sequence[Step],
    events: Sequence[Event],
    heads: Sequence[TreeHead],
) -> Flow[tuple[list[Step], KnownOwnership]]:
    """Return the Migrates, with a proof for each author that is not the holder, and the new
    holding.
    """
    chain = list[Step]()
    for step in steps:
        author = step.event.from_
        if author != known.holder:
            step = Step(step.event, (yield from _former_proof(reader, known, step.event, events, heads)))
        size = known.proved_size if step.owner_proof is None else step.owner_proof.sth.ts
        new = parse_migrate(step.event).new_sequencer
        known = replace(known, holder=author, proved_size=size, sequencer=new, moved_at=step.event.seq)
        chain.append(step)
    return chain, known


def _former_proof(
    reader: EnclaveReader, known: KnownOwnership, migrate: Event, events: Sequence[Event], heads: Sequence[TreeHead]
) -> Flow[OwnerProof]:
    """Prove, under the latest suitable head of the old sequencer, that a Migrate's author was the
    owner.

    The log under such a head is the same at every node, so the current node provides the paths.
    """
    owner = migrate.from_
    passage = _passage(known, events, owner, migrate.seq)
    for head in sorted(heads, key=lambda head: head.ts, reverse=True):
        try:
            check_head(head, known.sequencer)
            proof = yield from _proof_under(reader, known.manifest, owner, head)
            proof = replace(proof, passage=passage or ())
            check_owner_proof(proof, owner, known)
            return proof
        except Distrust:
            raise
        except PeerError:
            continue
    raise MisuseError(
        f"Migrate {migrate.seq}: the registry's entry belongs to {known.holder.hex()}, and no head of "
        f"{known.sequencer.hex()} is available under which the Migrate's author owns the enclave: give an "
        "archive from the time when they owned it"
    )


def _owner_proof(reader: EnclaveReader, known: KnownOwnership, events: Sequence[Event]) -> Flow[OwnerProof]:
    """Prove that this identity owns the enclave; retries until a closed bundle shows it."""
    me, backoff = reader.identity.public, reader.node.caller.backoff()
    passage = _passage(known, events, me)
    if passage is None:
        raise MisuseError("you do not own the enclave: no event that you may read passed it on from the entry's holder")
    while True:
        try:
            proof = replace((yield from _proof(reader, known.manifest)), passage=passage)
            check_owner_proof(proof, me, known)
            return proof
        except EncError as e:
            pause = backoff.wait(e)
        yield Pause(pause)


def _proof(reader: EnclaveReader, manifest: Event) -> Flow[OwnerProof]:
    """Return an owner proof under the newest head."""
    key = reader.identity.public.hex()
    state = yield from _asked(reader, "/state", "State_Proof", {"namespace": "rbac", "key": key})
    if not isinstance(state.get("sth"), dict):
        raise TreeSizeNotFound("no bundle is closed yet")
    return (yield from _built(reader, manifest, state, state["sth"].get("ts")))


def _proof_under(reader: EnclaveReader, manifest: Event, owner: bytes, head: TreeHead) -> Flow[OwnerProof]:
    """Return an owner proof under a head that another sequencer signed."""
    asked = {"namespace": "rbac", "key": owner.hex(), "tree_size": head.ts}
    state = yield from _asked(reader, "/state", "State_Proof", asked)
    last = {"leaf_index": head.ts - 1, "tree_size": head.ts}
    inclusion = yield from _asked(reader, "/inclusion", "Inclusion_Proof", last)
    state = {**state, "sth": wire_head(head), "inclusion": inclusion}
    return (yield from _built(reader, manifest, state, head.ts))


def _built(reader: EnclaveReader, manifest: Event, state: dict[str, Any], size: object) -> Flow[OwnerProof]:
    bundle = yield from _asked(reader, "/bundle", "Bundle_Proof", {"event_id": manifest.id.hex()})
    asked = {"leaf_index": 0, "tree_size": size}
    return build_owner_proof(state, bundle, (yield from _asked(reader, "/inclusion", "Inclusion_Proof", asked)))


def _asked(reader: EnclaveReader, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[dict[str, Any]]:
    found = msgspec.json.decode((yield from reader.session.ask(path, type_, body)))
    return found if isinstance(found, dict) else {}
