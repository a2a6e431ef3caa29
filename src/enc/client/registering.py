"""Registering: what a node, an owner or a person makes known in a registry, and what an owner proves by it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from enc.client.directory import Directory, Record
from enc.client.flow import Flow, Pause
from enc.client.history import History
from enc.client.lineage import learned
from enc.client.link import Link
from enc.client.passing import passing
from enc.core.encoding import compact_json
from enc.core.errors import EncError, EnclaveNotFound, IdentityNotFound, MisuseError, NodeNotFound, TreeSizeNotFound
from enc.core.migrate_chain import Link as Step
from enc.core.owner_proof import Holding, OwnerProof, build_owner_proof, check_owner_proof, find_passage
from enc.core.reg_entry import wire_enclave, wire_identity, wire_node
from enc.core.types import Event, Receipt


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


def register_enclave(directory: Directory, link: Link, words: Words | None = None) -> Flow[Receipt | None]:
    """Where an enclave is, said by its owner: with the Migrates since the last entry, and an owner proof if somebody
    else made that. None if all of it is known already.

    The head that says so is pinned: whoever goes on from an older copy, as an owner before might, is seen to do so.
    """
    yield from link.head()
    rules, events = yield from passing(link)
    manifest, me = events[0], link.identity.public
    record = yield from _record(directory, link.enclave)
    known = Holding(manifest, rules, manifest.from_, 0, manifest.sequencer)
    if record is not None:
        known = replace(known, holder=record.holder, proved_size=record.proved_size, sequencer=record.sequencer)
    steps = _steps((yield from learned(link)), known.sequencer)
    said = _said(words or Words(), record)
    if record is not None and not steps and record.holder == me and _words(record) == said:
        return None
    known = replace(known, sequencer=link.known_witness().sequencer)
    proof = None if me == known.holder else (yield from _owner_proof(link, known, events))
    about: dict[str, Any] = {"app": said.app or "", "desc": said.desc or "", "meta": said.meta}
    content = wire_enclave(manifest, owner_proof=proof, links=steps, sequencer=known.sequencer, **about)
    registry = directory.link
    receipt = yield from registry.send(registry.prepare("Reg_Enclave", compact_json(content)))
    directory.forget(link.enclave)
    yield from link.head()
    return receipt


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


def _steps(history: History, known: bytes) -> list[Step]:
    """The Migrates since the term of the sequencer that the registry knows of."""
    keys = [term.sequencer for term in history.terms()]
    if known not in keys:
        return []
    return [Step(move.event) for move in history.moves[len(keys) - 1 - keys[::-1].index(known) :]]


def _owner_proof(link: Link, known: Holding, events: Sequence[Event]) -> Flow[OwnerProof]:
    """That this identity owns the enclave; waits, with patience, until a closed bundle says so."""
    me, backoff = link.identity.public, link.node.courier.backoff()
    passage = find_passage(known.policy, events, known.holder, me)
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
    key = link.identity.public.hex()
    state = msgspec.json.decode((yield from link.ask("/state", "State_Proof", {"namespace": "rbac", "key": key})))
    bundle = msgspec.json.decode((yield from link.ask("/bundle", "Bundle_Proof", {"event_id": manifest.id.hex()})))
    if not isinstance(state, dict) or not isinstance(state.get("sth"), dict) or not isinstance(bundle, dict):
        raise TreeSizeNotFound("no bundle is closed yet")
    asked = {"leaf_index": 0, "tree_size": state["sth"].get("ts")}
    inclusion = msgspec.json.decode((yield from link.ask("/inclusion", "Inclusion_Proof", asked)))
    return build_owner_proof(state, bundle, inclusion if isinstance(inclusion, dict) else {})
