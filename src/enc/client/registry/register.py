"""Registers nodes, identities and enclaves in a registry, with the owner's proofs."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from enc.client.enclave.ownership_history import ownership_history
from enc.client.errors import Distrust
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.registry.ownership_proofs import OwnershipProver
from enc.client.registry.registry_client import RegistryClient, RegistryRecord
from enc.client.wire.flow import Flow
from enc.core.errors import (
    EnclaveNotFound,
    EventPending,
    IdentityNotFound,
    InvalidProof,
    MisuseError,
    NodeNotFound,
    TreeSizeNotFound,
)
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Event, Receipt, TreeHead
from enc.core.registry.migrate_chain import MAX_LINKS
from enc.core.registry.owner_proof import OwnerProof
from enc.core.registry.ownership import KnownOwnership
from enc.core.registry.reg_entry import wire_enclave, wire_identity, wire_node
from enc.core.rules.policy_types import Policy


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
    *,
    is_patient: bool = True,
    refresh: bool = False,
) -> Flow[Receipt | None]:
    """Register where an enclave is, as its owner; return None if all of it is registered already.

    Includes the Migrates since the last entry, and an owner proof if one can be had: another
    identity's entry requires it, and it outdates what former owners have. More Migrates than one
    entry may contain make several entries. `heads`: of former sequencers; one of them proves that
    an owner who moved the enclave before being registered was the owner then. The head on which the
    registration rests is pinned, so a continuation from an older copy, as a former owner might try,
    is detected.

    Unless `is_patient`, does not wait for a bundle that shows the ownership. With `refresh`, a new
    proof alone is worth an entry.
    """
    yield from reader.session.head()
    rules, events = yield from ownership_history(reader)
    prover = OwnershipProver(reader, events, (yield from fetch_history(reader.session)), heads)
    receipt, registry, has_more = None, registry_client.reader, True
    while has_more:
        record = yield from _record(registry_client, reader.enclave)
        entry = _Entry(reader, prover, rules, record, description or EnclaveDescription(), is_patient, refresh)
        content, has_more = yield from entry.content()
        if content is None:
            return receipt
        receipt = yield from registry.session.send(registry.session.prepare("Reg_Enclave", compact_json(content)))
        registry_client.forget(reader.enclave)
    yield from reader.session.head()
    return receipt


class _Entry(Struct, frozen=True):
    """The next entry of an enclave."""

    reader: EnclaveReader
    prover: OwnershipProver
    rules: Policy
    record: RegistryRecord | None
    description: EnclaveDescription
    is_patient: bool
    refresh: bool

    def content(self) -> Flow[tuple[dict[str, Any] | None, bool]]:
        """Return the entry (None if nothing is new), and whether more Migrates are left for
        another.
        """
        record, me = self.record, self.reader.identity.public
        known = _known(self.prover.manifest, self.rules, record)
        steps, merged = self.prover.steps(known), _merged(self.description, record)
        is_same = record is not None and not steps and known.holder == me and _description(record) == merged
        is_current = is_same and known.sequencer == self._sequencer and not self.refresh
        if is_current and not (yield from self.prover.is_due(known)):
            return None, False
        has_more = len(steps) > MAX_LINKS
        links, known = yield from self.prover.chain(known, steps[:MAX_LINKS])
        if has_more and me != known.holder:
            raise MisuseError(
                f"more than {MAX_LINKS} Migrates since the registry's entry; the last one that fits into one entry "
                f"belongs to {known.holder.hex()}, who must register the enclave first"
            )
        proof = None if has_more else (yield from self._proof(known))
        if is_same and proof is None:
            return None, False
        about: dict[str, Any] = {"app": merged.app or "", "desc": merged.desc or "", "meta": merged.meta}
        sequencer = known.sequencer if has_more else self._sequencer
        content = wire_enclave(self.prover.manifest, owner_proof=proof, links=links, sequencer=sequencer, **about)
        return content, has_more

    @property
    def _sequencer(self) -> bytes:
        return self.reader.session.known_verifier().sequencer

    def _proof(self, known: KnownOwnership) -> Flow[OwnerProof | None]:
        """Return a proof under the newest head. The holder's entry is valid without one."""
        if known.holder != self.reader.identity.public or known.sequencer != self._sequencer:
            return (yield from self.prover.current(known, is_patient=self.is_patient))
        try:
            return (yield from self.prover.current(known, is_patient=False))
        except Distrust:
            raise
        except (EventPending, InvalidProof, TreeSizeNotFound):  # no head, or none that is later than what is known
            return None


def _known(manifest: Event, rules: Policy, record: RegistryRecord | None) -> KnownOwnership:
    known = KnownOwnership.of(manifest, rules, None)
    return known if record is None else replace(known, forced_from=record.forced_from, **asdict(record.known))


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
