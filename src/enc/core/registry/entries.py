"""The rules of a registry: which entries are active, and who may replace or delete them
(docs/protocol.md, section 23).

An enclave is a registry iff its Manifest says `"registry": true`, so replay gives the same records
on every machine.

 - each key has one active entry; an entitled author supersedes it with a newer one; no Update; a Delete deregisters
 - a node and an identity register only themselves
 - an enclave's entry belongs to its holder: the creator, until someone else submits an owner proof; the proof under
   the larger, later head wins
 - the sequencer changes only by a chain of Migrate events, and the log's first event never
 - entries are never erased

The manifest's rules for Reg_* types (who may C and D) apply as well, and are checked first.
"""

from collections.abc import Callable
from typing import NoReturn

from msgspec.structs import asdict, replace

from enc.core.errors import EncError, InvalidCommit, InvalidProof, InvalidTarget, RegistryConflict, Unauthorized
from enc.core.log.commit import auto_delete_at, manifest_version
from enc.core.log.event import check_event
from enc.core.primitives.types import REGISTRY_TYPES, Commit, Event, KeyRecord, RecordKind
from enc.core.registry.migrate_chain import check_chain
from enc.core.registry.owner_proof import check_owner_proof
from enc.core.registry.ownership import KnownOwnership
from enc.core.registry.reg_entry import EnclaveEntry, parse_enclave, parse_identity, parse_node
from enc.core.rules.content import revised_id
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Draft, Policy
from enc.core.trees.state_key import DELETED, status_key


def judge_registry(commit: Commit, policy: Policy, draft: Draft) -> None:
    """Judge a commit in a registry. Only the policy judges commits that concern no entry."""
    if commit.type in _JUDGES:
        if auto_delete_at(commit) is not None:
            raise InvalidCommit("tags: an entry of a registry is never erased")
        _JUDGES[commit.type](commit, policy, draft)
    elif commit.type in ("Update", "Delete"):
        _judge_revision(commit, policy, draft)
    else:
        policy.judge(commit, draft)


def _judge_revision(commit: Commit, policy: Policy, draft: Draft) -> None:
    target_id = revised_id(commit)
    target = draft.target(target_id)
    if target is None or target.type not in REGISTRY_TYPES:
        policy.judge(commit, draft)
        return
    if commit.type == "Update":
        raise InvalidTarget(f"a {target.type} cannot be updated: register a new entry instead")
    if draft.leaf(status_key(target_id)) not in (None, DELETED):
        raise InvalidTarget("the entry was superseded: delete the active one")
    # The active entry is its holder's own event, so that Sender is the holder.
    policy.judge(commit, draft)
    draft.erases.clear()
    record = draft.record_of(target_id)
    if record is not None:
        draft.records.append(replace(record, entry=None))


def _enter(draft: Draft, record: KeyRecord) -> None:
    """Make the commit the active entry of its key."""
    before = draft.record(record.kind, record.key)
    if before is not None and before.entry is not None:
        draft.supersedes.append(before.entry)
    draft.records.append(record)


# Nodes and identities


def _judge_node(commit: Commit, policy: Policy, draft: Draft) -> None:
    _register_own_key(commit, policy, draft, "node", parse_node(commit).seq_pub, "seq_pub")


def _judge_identity(commit: Commit, policy: Policy, draft: Draft) -> None:
    _register_own_key(commit, policy, draft, "identity", parse_identity(commit).id_pub, "id_pub")


def _register_own_key(commit: Commit, policy: Policy, draft: Draft, kind: RecordKind, key: bytes, field: str) -> None:
    policy.judge(commit, draft)
    if commit.from_ != key:
        raise Unauthorized(f"content.{field}: only its own key may register it")
    _enter(draft, KeyRecord(kind=kind, key=key, entry=b"", holder=key))


# Enclaves


def _judge_enclave(commit: Commit, policy: Policy, draft: Draft) -> None:
    entry = parse_enclave(commit)
    policy.judge(commit, draft)
    manifest = entry.manifest_event
    record = draft.record("enclave", manifest.enclave)
    if record is not None and record.manifest != manifest.id:
        raise RegistryConflict("manifest_event: the enclave is registered with another log")
    known = _check_entitled(entry, commit.from_, _known_ownership(manifest, record, commit.exp))
    _check_sequencer(entry, known)
    _enter(
        draft,
        KeyRecord(
            kind="enclave",
            key=manifest.enclave,
            entry=b"",
            forced_from=known.forced_from,
            manifest=manifest.id,
            creator=manifest.from_,
            app=entry.app,
            text=entry.text,
            **asdict(known.current),
        ),
    )


def _known_ownership(manifest: Event, record: KeyRecord | None, latest: int) -> KnownOwnership:
    """Return the ownership before this registration; before the first one, by the Manifest."""
    try:
        check_event(manifest, manifest_version(manifest))
        policy = parse_manifest(manifest.content or "")
    except EncError as e:
        raise InvalidCommit(f"manifest_event: {e.message}") from None
    return KnownOwnership.of(manifest, policy, record, latest)


def _check_entitled(entry: EnclaveEntry, submitter: bytes, known: KnownOwnership) -> KnownOwnership:
    """Return the ownership with the submitter as holder, or raise why the submitter may not be
    it."""

    def refuse(message: str) -> NoReturn:
        raise (RegistryConflict if entry.links else Unauthorized)(message)

    try:
        known = check_chain(entry.links, known)
    except InvalidProof as e:
        refuse(f"migrate_events{e.message}")
    if entry.owner_proof is not None:
        try:
            return check_owner_proof(entry.owner_proof, submitter, known)
        except InvalidProof as e:
            refuse(f"owner_proof.{e.message}")
    if submitter != known.holder:
        refuse("neither by the entry's holder nor with an owner proof")
    return known


def _check_sequencer(entry: EnclaveEntry, known: KnownOwnership) -> None:
    """Check that the entry itself names the sequencer on record, so that readers of the entry alone
    see the same."""
    if entry.declared_sequencer != known.sequencer or entry.sequencer not in (None, known.sequencer):
        raise RegistryConflict("sequencer: another than the one on record needs migrate_events")


_JUDGES: dict[str, Callable[[Commit, Policy, Draft], None]] = {
    "Reg_Node": _judge_node,
    "Reg_Enclave": _judge_enclave,
    "Reg_Identity": _judge_identity,
}
