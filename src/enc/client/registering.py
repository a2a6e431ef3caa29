"""Registering: what a node, an owner or a person makes known in a registry, and what an owner proves by it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.directory import Directory, Record
from enc.client.errors import Distrust
from enc.client.flow import Flow, Pause
from enc.client.history import History
from enc.client.lineage import learned
from enc.client.link import Link
from enc.client.passing import passing
from enc.core.content import parse_migrate
from enc.core.encoding import MAX_INT, compact_json
from enc.core.envelope import RequestType
from enc.core.errors import (
    EncError,
    EnclaveNotFound,
    IdentityNotFound,
    MisuseError,
    NodeNotFound,
    PeerError,
    TreeSizeNotFound,
)
from enc.core.migrate_chain import MAX_LINKS
from enc.core.migrate_chain import Link as Step
from enc.core.owner_proof import Holding, OwnerProof, build_owner_proof, check_owner_proof, find_passage
from enc.core.policy import Policy
from enc.core.reg_entry import wire_enclave, wire_identity, wire_node
from enc.core.tree_head import check_head, wire_head
from enc.core.types import Event, Receipt, TreeHead


class Words(Struct, frozen=True):
    """What an owner says of an enclave; None leaves what stands there."""

    app: str | None = None
    desc: str | None = None
    meta: Mapping[str, Any] | None = None


def register_node(directory: Directory, uris: Sequence[str]) -> Flow[Receipt | None]:
    """Where the identity of the registry's link, a node's own, is reached; None if that is known already."""
    link = directory.link
    try:
        known = yield from directory.node(link.identity.public)
        if [each.uri for each in known.endpoints] == list(uris):
            return None
    except NodeNotFound:
        pass
    content = wire_node(link.identity.public, uris, protocols=sorted({uri.partition(":")[0] for uri in uris}))
    return (yield from link.send(link.prepare("Reg_Node", compact_json(content))))


def register_identity(
    directory: Directory, enclaves: Mapping[str, bytes], sub_pub: bytes | None = None
) -> Flow[Receipt | None]:
    """Which enclaves an identity has, by label, and the key that others seal to; None if that is known already."""
    link = directory.link
    try:
        known = yield from directory.lookup(link.identity.public, fresh=True)
        if (dict(known.enclaves), known.sub_pub) == (dict(enclaves), sub_pub):
            return None
    except IdentityNotFound:
        pass
    content = wire_identity(link.identity.public, enclaves, sub_pub)
    receipt = yield from link.send(link.prepare("Reg_Identity", compact_json(content)))
    directory.forget(link.identity.public)
    return receipt


def register_enclave(
    directory: Directory, link: Link, words: Words | None = None, heads: Sequence[TreeHead] = ()
) -> Flow[Receipt | None]:
    """Where an enclave is, said by its owner: with the Migrates since the last entry, and an owner proof if somebody
    else made that. None if all of it is known already. More Migrates than one entry may bring make several.

    `heads`: of former sequencers. Under one of them an owner who moved the enclave before they were registered is shown
    to have been the owner then. The head that the registration rests on is pinned: whoever goes on from an older copy,
    as an owner before might, is seen to do so.
    """
    yield from link.head()
    rules, events = yield from passing(link)
    receipt, registry, has_more = None, directory.link, True
    while has_more:
        record = yield from _record(directory, link.enclave)
        content, has_more = yield from _entry(link, record, words or Words(), rules, events, heads)
        if content is None:
            return None
        receipt = yield from registry.send(registry.prepare("Reg_Enclave", compact_json(content)))
        directory.forget(link.enclave)
    yield from link.head()
    return receipt


def _entry(
    link: Link, record: Record | None, words: Words, rules: Policy, events: Sequence[Event], heads: Sequence[TreeHead]
) -> Flow[tuple[dict[str, Any] | None, bool]]:
    """The next entry, None if there is nothing to say; and whether there are more Migrates than one entry may bring."""
    manifest, me = events[0], link.identity.public
    known = Holding(manifest, rules, manifest.from_, 0, manifest.sequencer)
    if record is not None:
        known = replace(known, holder=record.holder, proved_size=record.proved_size, sequencer=record.sequencer)
    steps, known = _steps((yield from learned(link)), known, me, events)
    said = _said(words, record)
    if record is not None and not steps and record.holder == me and _words(record) == said:
        return None, False
    has_more = len(steps) > MAX_LINKS
    steps, known = yield from _chain(link, known, steps[:MAX_LINKS], events, heads)
    if has_more and me != known.holder:
        raise MisuseError(
            f"over {MAX_LINKS} Migrates since the registry's entry, and the last of those that one entry may bring is "
            f"{known.holder.hex()}'s, who must register the enclave first"
        )
    if not has_more:
        known = replace(known, sequencer=link.known_sceptic().sequencer)
    proof = None if me == known.holder else (yield from _owner_proof(link, known, events))
    about: dict[str, Any] = {"app": said.app or "", "desc": said.desc or "", "meta": said.meta}
    return wire_enclave(manifest, owner_proof=proof, links=steps, sequencer=known.sequencer, **about), has_more


def _record(directory: Directory, enclave: bytes) -> Flow[Record | None]:
    try:
        return (yield from directory.record(enclave))
    except EnclaveNotFound:
        return None


def _words(record: Record) -> Words:
    return Words(record.entry.app, record.entry.desc, dict(record.entry.meta))


def _said(words: Words, record: Record | None) -> Words:
    before = Words("", "", {}) if record is None else _words(record)
    fields = {name: getattr(words, name) for name in words.__struct_fields__}
    return replace(before, **{name: value for name, value in fields.items() if value is not None})


def _steps(history: History, known: Holding, me: bytes, events: Sequence[Event]) -> tuple[list[Step], Holding]:
    """The Migrates since the term of the sequencer that the registry knows of; and what is known at its start.

    Of several terms it is the last from which the ownership came to its owners of now: the registry asks that those
    who passed it on did so under the sequencer that it knows.
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


def _is_passed_on(known: Holding, steps: Sequence[Step], me: bytes, events: Sequence[Event]) -> bool:
    """Whether, from one Migrate to the next and after the last, the ownership came to who signed it, and to me."""
    for author, before in [*((step.event.from_, step.event.seq) for step in steps), (me, MAX_INT)]:
        if author != known.holder and _passage(known, events, author, before) is None:
            return False
        known = replace(known, holder=author, moved_at=before)
    return True


def _passage(known: Holding, events: Sequence[Event], owner: bytes, before: int = MAX_INT) -> tuple[Event, ...] | None:
    """How the ownership came from the holder to an owner, since the last Migrate that the holder signed."""
    since = [event for event in events if event.seq == 0 or known.moved_at < event.seq < before]
    return find_passage(known.policy, since, known.holder, owner)


def _chain(
    link: Link, known: Holding, steps: Sequence[Step], events: Sequence[Event], heads: Sequence[TreeHead]
) -> Flow[tuple[list[Step], Holding]]:
    """The Migrates, each that the holder before did not sign with a proof for its author; and what is known by them."""
    chain = list[Step]()
    for step in steps:
        author = step.event.from_
        if author != known.holder:
            step = Step(step.event, (yield from _former_proof(link, known, step.event, events, heads)))
        size = known.proved_size if step.owner_proof is None else step.owner_proof.sth.ts
        new = parse_migrate(step.event).new_sequencer
        known = replace(known, holder=author, proved_size=size, sequencer=new, moved_at=step.event.seq)
        chain.append(step)
    return chain, known


def _former_proof(
    link: Link, known: Holding, migrate: Event, events: Sequence[Event], heads: Sequence[TreeHead]
) -> Flow[OwnerProof]:
    """That a Migrate's author owned the enclave before it: under a head of the sequencer before, the latest that tells.

    The log under such a head is the same at every node, so the present one gives the paths.
    """
    owner = migrate.from_
    passage = _passage(known, events, owner, migrate.seq)
    for head in sorted(heads, key=lambda head: head.ts, reverse=True):
        try:
            check_head(head, known.sequencer)
            proof = yield from _proof_under(link, known.manifest, owner, head)
            proof = replace(proof, passage=passage or ())
            check_owner_proof(proof, owner, known)
            return proof
        except Distrust:
            raise
        except PeerError:
            continue
    raise MisuseError(
        f"Migrate {migrate.seq}: the registry's entry is {known.holder.hex()}'s, and no head of "
        f"{known.sequencer.hex()} is here under which the Migrate's author owns the enclave: give an archive that was "
        "made when they did"
    )


def _owner_proof(link: Link, known: Holding, events: Sequence[Event]) -> Flow[OwnerProof]:
    """That this identity owns the enclave; waits, with patience, until a closed bundle says so."""
    me, backoff = link.identity.public, link.node.courier.backoff()
    passage = _passage(known, events, me)
    if passage is None:
        raise MisuseError("you do not own the enclave: nothing that you may read passed it on from the entry's holder")
    while True:
        try:
            proof = replace((yield from _proof(link, known.manifest)), passage=passage)
            check_owner_proof(proof, me, known)
            return proof
        except EncError as e:
            pause = backoff.wait(e)
        yield Pause(pause)


def _proof(link: Link, manifest: Event) -> Flow[OwnerProof]:
    """Under the newest head."""
    key = link.identity.public.hex()
    state = yield from _asked(link, "/state", "State_Proof", {"namespace": "rbac", "key": key})
    if not isinstance(state.get("sth"), dict):
        raise TreeSizeNotFound("no bundle is closed yet")
    return (yield from _built(link, manifest, state, state["sth"].get("ts")))


def _proof_under(link: Link, manifest: Event, owner: bytes, head: TreeHead) -> Flow[OwnerProof]:
    """Under a head that another sequencer has signed."""
    asked = {"namespace": "rbac", "key": owner.hex(), "tree_size": head.ts}
    state = yield from _asked(link, "/state", "State_Proof", asked)
    last = {"leaf_index": head.ts - 1, "tree_size": head.ts}
    inclusion = yield from _asked(link, "/inclusion", "Inclusion_Proof", last)
    state = {**state, "sth": wire_head(head), "inclusion": inclusion}
    return (yield from _built(link, manifest, state, head.ts))


def _built(link: Link, manifest: Event, state: dict[str, Any], size: object) -> Flow[OwnerProof]:
    bundle = yield from _asked(link, "/bundle", "Bundle_Proof", {"event_id": manifest.id.hex()})
    asked = {"leaf_index": 0, "tree_size": size}
    return build_owner_proof(state, bundle, (yield from _asked(link, "/inclusion", "Inclusion_Proof", asked)))


def _asked(link: Link, path: str, type_: RequestType, body: dict[str, Any]) -> Flow[dict[str, Any]]:
    found = msgspec.json.decode((yield from link.ask(path, type_, body)))
    return found if isinstance(found, dict) else {}
