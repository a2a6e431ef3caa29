"""The client that apps import. It trusts no node: `enc.core` verifies everything."""

from enc.client.clients.async_client import AsyncClient, AsyncEnclave
from enc.client.clients.client import Client, Enclave
from enc.client.clients.setup import ClientSettings
from enc.client.enclave.deliveries import Delivery
from enc.client.enclave.kinds import KINDS, kind_of, of_kind
from enc.client.enclave.members import Member
from enc.client.enclave.push_body import Notice, PushedBatch
from enc.client.enclave.reads import Overview
from enc.client.enclave.slots import Slot
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
from enc.client.keys.identity import Identity, PassphraseNeeded, WrongPassphrase
from enc.client.receive.receiver import Gap, PushReceiver, ReceiverSettings
from enc.client.registry.registry_client import Registry, Resolution
from enc.client.verify.facts import EventFact, StateFact
from enc.client.verify.items import Item
from enc.client.verify.proof_file import Proof, Statement, check_proof, load_proof
from enc.client.witness.witnesses import Witness, Witnessed

__all__ = [
    "KINDS",
    "AsyncClient",
    "AsyncEnclave",
    "Client",
    "ClientSettings",
    "Delivery",
    "Distrust",
    "Enclave",
    "Equivocation",
    "EventFact",
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
    "ReceiverSettings",
    "Registry",
    "Resolution",
    "Rollback",
    "Slot",
    "SplitBrain",
    "StateFact",
    "Statement",
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
