"""Reconciling notices: what one claims is asked of the enclave it names, and believed only with a proof.

A notice is anybody's word. It is *confirmed* when its source proves what it claims, *pending* while that cannot be
seen yet, and *discarded* when it is refuted, or was not confirmed in time. How a claim is confirmed depends on its
kind: `CONFIRMERS`.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import UNSET, Struct

from enc.apps.address_book import Contact
from enc.client import Client, Enclave, EventFact
from enc.core.content import content_object
from enc.core.errors import (
    EncError,
    EnclaveNotFound,
    IdentityNotFound,
    MisuseError,
    NodeNotFound,
    PeerError,
    WorldError,
)
from enc.core.manifest import parse_manifest
from enc.core.personal import Notice
from enc.core.policy import Policy
from enc.core.types import Event

PENDING_MS = 24 * 60 * 60 * 1000
"""How long after its arrival a notice may wait for its source to show the action."""
SILENT_MS = 30 * PENDING_MS
"""The same where the source cannot be asked at all: that its node is down proves nothing."""
MEMBER, FRIEND = "MEMBER", "FRIEND"
FRIEND_STATE = 2
"""FRIEND in the bits of a mailbox, whose Manifest its contacts may not read: the second of its States."""
MAX_MOVES = 1000
"""Moves of an inviter's that are looked through where a notice names none."""

State = Literal["confirmed", "pending", "discarded"]


class Unconfirmed(PeerError):
    """The source does not show the action, yet."""

    code = "UNCONFIRMED"


class Refuted(PeerError):
    """The source shows that the claim is wrong, for good."""

    code = "REFUTED"


class NotConfirmed(MisuseError):
    """The notice is not confirmed: nothing may be done on its word."""


class Received(Struct, frozen=True):
    """A notice, and what has become of its claim."""

    id: bytes
    seq: int
    author: bytes
    timestamp: int
    state: State
    reason: str = ""
    """Why it is not confirmed."""
    claims: Notice | None = None
    """What it says, by its author's word alone; None where it does not open."""

    @property
    def is_actionable(self) -> bool:
        return self.state == "confirmed"

    @property
    def notice(self) -> Notice:
        """What it says, for who is about to act on it: NotConfirmed unless it is proved."""
        if self.claims is None or not self.is_actionable:
            raise NotConfirmed(f"the notice {self.id.hex()} is {self.state}: {self.reason}")
        return self.claims


class Question(Struct, frozen=True):
    """What a confirmer has to go by. `source`: the enclave that the notice names; `known`: its author, by the book."""

    client: Client
    author: bytes
    notice: Notice
    source: Enclave
    known: Contact | None = None

    @property
    def me(self) -> bytes:
        return self.client.identity.public


Confirmer = Callable[[Question], None]
"""Returns where the claim is proved. Raises Refuted; or Unconfirmed, or any other error of a peer or of the world."""


# A group's invitation: the Move that made the recipient a member


def confirm_group_invite(asked: Question) -> None:
    fact = _move(asked)
    if not _makes_member(fact.event, asked.me):
        raise Refuted("move_ref: not a Move that makes you a member")
    if fact.event.from_.hex() != asked.notice.inviter:
        raise Refuted("inviter: another moved you")
    if fact.status != "active":
        raise Refuted("move_ref: it does not stand")
    member = asked.source.member(asked.me)
    if member.state != MEMBER or member.fact.anchor.index < fact.anchor.index:
        raise Unconfirmed(f"you are {member.state} there")
    told = asked.notice.manifest_hash
    if told is not UNSET and asked.source.manifest().content_hash.hex() != told:
        raise Refuted("manifest_hash: not that of the enclave's Manifest")


def _makes_member(event: Event, who: bytes) -> bool:
    if event.type != "Move":
        return False
    content = content_object(event)
    return (content.get("target"), content.get("to")) == (who.hex(), MEMBER)


def _move(asked: Question) -> EventFact:
    """The Move that the notice names, proved; where it names none, the last one by which the inviter did it."""
    named = asked.notice.move_ref
    if named is not UNSET:
        return asked.source.proof(named, wait=False)
    moves = asked.source.query(type="Move", author=asked.notice.inviter, reverse=True, limit=MAX_MOVES)
    for item in moves:
        if _makes_member(item.event, asked.me):
            return asked.source.proof(item.id, wait=False)
    raise Unconfirmed("the inviter has not made you a member")


# A contact's invitation: that the recipient is a friend in the sender's mailbox


def confirm_dm_invite(asked: Question) -> None:
    if asked.author.hex() != asked.notice.inviter:
        raise Refuted("inviter: a mailbox's owner invites in its own name")
    state_of = _mailbox(asked)
    fact = asked.source.state("rbac", asked.me)
    if state_of(int.from_bytes(fact.value or b"", "big")) != FRIEND:
        raise Unconfirmed("you are no friend in that mailbox")


def _mailbox(asked: Question) -> Callable[[int], str]:
    """How to read a bitmask of the mailbox: by its Manifest, if the registry has it.

    It must be the inviter's, by the registry or by the address book: in a mailbox of another's one may be a friend too.
    """
    policy = _registered_policy(asked) if asked.client.has_registry else None
    if policy is None:
        place = None if asked.known is None else asked.known.places.get("dm")
        if place is None or place.enclave != asked.source.id:
            raise Unconfirmed("enclave_id: neither registry nor address book has it as the inviter's mailbox")
        return lambda bits: FRIEND if bits & 0xFF == FRIEND_STATE else ""
    if asked.author not in policy.initial_members:
        raise Refuted("enclave_id: not a mailbox of the inviter's")
    return policy.state_of


def _registered_policy(asked: Question) -> Policy | None:
    """None where the registry has heard of neither; a mailbox beside the one that the inviter names there waits."""
    try:
        named = asked.client.lookup(asked.author).enclaves.get("dm", asked.source.id)
        if named != asked.source.id:
            raise Unconfirmed("enclave_id: the inviter's registered mailbox is another")
    except IdentityNotFound:
        pass
    try:
        entry = asked.client.resolve(asked.source.id).record.entry
    except (EnclaveNotFound, NodeNotFound):
        return None
    return parse_manifest(entry.manifest_event.content or "")


CONFIRMERS: Mapping[str, Confirmer] = {"group_invite": confirm_group_invite, "dm_invite": confirm_dm_invite}
"""By kind. A kind that has none is never confirmed."""


def judge(ask: Callable[[], None], age_ms: int) -> tuple[State, str]:
    """The verdict on a claim, and why, by what asking its source gives and by how long ago the notice came."""
    try:
        ask()
    except Refuted as e:
        return "discarded", e.message
    except (PeerError, WorldError) as e:
        return waiting(e, age_ms), e.message
    return "confirmed", ""


def waiting(why: EncError, age_ms: int) -> State:
    """What cannot be confirmed now is pending, until its time is over."""
    return "pending" if age_ms <= (SILENT_MS if isinstance(why, WorldError) else PENDING_MS) else "discarded"
