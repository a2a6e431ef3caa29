"""The client that apps import. It trusts no node: `enc.core` verifies everything.

Each name is imported on first access: a program that needs only a key does not load HTTP and WebSockets.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from enc.client.clients.async_client import AsyncClient, AsyncEnclave
    from enc.client.clients.async_commit_queue import AsyncCommitQueue
    from enc.client.clients.async_table import AsyncTable
    from enc.client.clients.client import Client, Enclave
    from enc.client.clients.commit_queue import CommitQueue
    from enc.client.clients.table import Table
    from enc.client.clients.wiring import ClientSettings
    from enc.client.commit_queue.queue_file import QueuedCommit
    from enc.client.commit_queue.queue_sender import QueueResult
    from enc.client.enclave.combined_reads import Overview
    from enc.client.enclave.deliveries import Delivery
    from enc.client.enclave.event_proof import EventProof
    from enc.client.enclave.kinds import KINDS, kind_of, of_kind
    from enc.client.enclave.members import Member
    from enc.client.enclave.push_body import Notice, PushedBatch
    from enc.client.enclave.send_attempt import SendAttempt
    from enc.client.enclave.slots import Slot
    from enc.client.enclave.table import Change, Row
    from enc.client.enclave.writes import operation
    from enc.client.errors import (
        Distrust,
        Equivocation,
        ForeignSequencer,
        Forgery,
        Fork,
        LostRange,
        NotWitnessed,
        Rollback,
        SplitBrain,
        TimedOut,
        TooManyMoves,
        Unreachable,
    )
    from enc.client.evidence.check_evidence import check_evidence
    from enc.client.evidence.evidence import Evidence, load_evidence
    from enc.client.keys.identity import Identity, PassphraseNeeded, Signer, SocketSigner, WrongPassphrase
    from enc.client.receive.receiver import Gap, PushReceiver, ReceiverSettings
    from enc.client.registry.registry_client import Registry, Resolution
    from enc.client.verify.facts import EventFact, StateFact
    from enc.client.verify.items import Item
    from enc.client.verify.proof_file import Proof, Statement, check_proof, load_proof
    from enc.client.witness.witnesses import Witness, Witnessed

__all__ = [
    "KINDS",
    "AsyncClient",
    "AsyncCommitQueue",
    "AsyncEnclave",
    "AsyncTable",
    "Change",
    "Client",
    "ClientSettings",
    "CommitQueue",
    "Delivery",
    "Distrust",
    "Enclave",
    "Equivocation",
    "EventFact",
    "EventProof",
    "Evidence",
    "ForeignSequencer",
    "Forgery",
    "Fork",
    "Gap",
    "Identity",
    "Item",
    "LostRange",
    "Member",
    "NotWitnessed",
    "Notice",
    "Overview",
    "PassphraseNeeded",
    "Proof",
    "PushReceiver",
    "PushedBatch",
    "QueueResult",
    "QueuedCommit",
    "ReceiverSettings",
    "Registry",
    "Resolution",
    "Rollback",
    "Row",
    "SendAttempt",
    "Signer",
    "Slot",
    "SocketSigner",
    "SplitBrain",
    "StateFact",
    "Statement",
    "Table",
    "TimedOut",
    "TooManyMoves",
    "Unreachable",
    "Witness",
    "Witnessed",
    "WrongPassphrase",
    "check_evidence",
    "check_proof",
    "kind_of",
    "load_evidence",
    "load_proof",
    "of_kind",
    "operation",
]

_NAMES = {
    "clients.async_client": "AsyncClient AsyncEnclave",
    "clients.async_commit_queue": "AsyncCommitQueue",
    "clients.async_table": "AsyncTable",
    "clients.client": "Client Enclave",
    "clients.commit_queue": "CommitQueue",
    "clients.table": "Table",
    "clients.wiring": "ClientSettings",
    "commit_queue.queue_file": "QueuedCommit",
    "commit_queue.queue_sender": "QueueResult",
    "enclave.deliveries": "Delivery",
    "enclave.event_proof": "EventProof",
    "enclave.kinds": "KINDS kind_of of_kind",
    "enclave.members": "Member",
    "enclave.push_body": "Notice PushedBatch",
    "enclave.combined_reads": "Overview",
    "enclave.send_attempt": "SendAttempt",
    "enclave.slots": "Slot",
    "enclave.table": "Change Row",
    "enclave.writes": "operation",
    "errors": "Distrust Equivocation ForeignSequencer Forgery Fork LostRange NotWitnessed "
    "Rollback SplitBrain TimedOut TooManyMoves Unreachable",
    "evidence.check_evidence": "check_evidence",
    "evidence.evidence": "Evidence load_evidence",
    "keys.identity": "Identity PassphraseNeeded Signer SocketSigner WrongPassphrase",
    "receive.receiver": "Gap PushReceiver ReceiverSettings",
    "registry.registry_client": "Registry Resolution",
    "verify.facts": "EventFact StateFact",
    "verify.items": "Item",
    "verify.proof_file": "Proof Statement check_proof load_proof",
    "witness.witnesses": "Witness Witnessed",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}


if not TYPE_CHECKING:  # type checkers would accept every name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            return getattr(import_module(f"enc.client.{_HOMES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
