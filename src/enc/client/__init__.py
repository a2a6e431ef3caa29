"""The client that apps import. It trusts no node: `enc.core` verifies everything."""

from enc.client.async_client import AsyncClient, AsyncEnclave
from enc.client.client import Client, Enclave
from enc.client.deliveries import Delivery
from enc.client.directory import Registry, Resolution
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
from enc.client.evidence import Evidence, check_evidence, load_evidence
from enc.client.facts import EventFact, StateFact
from enc.client.identity import Identity, PassphraseNeeded, WrongPassphrase
from enc.client.items import Item
from enc.client.kinds import KINDS, kind_of, of_kind
from enc.client.members import Member
from enc.client.proof_file import Proof, Statement, check_proof, load_proof
from enc.client.push_body import Notice, PushedBatch
from enc.client.reads import Overview
from enc.client.receiver import Gap, PushReceiver, ReceiverSettings
from enc.client.setup import ClientSettings
from enc.client.slots import Slot
from enc.client.witnesses import Witness, Witnessed
from enc.client.writes import operation

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
