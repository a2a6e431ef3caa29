"""Verification of notices: the enclave that a notice names must prove its claim.

Anyone can write a notice. It is *confirmed* when its source proves what it claims, *refuted* when
it contradicts something that nobody can change, and otherwise *pending*, however long. Nobody can
change the notice's own signed bytes, the event that it names (its id is a hash over it), and the
Manifest of the enclave that it names (likewise). A node that does not answer, an unknown registry
and a state that may change refute nothing. How a claim is confirmed depends on its kind:
`CONFIRMERS`.
"""

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import UNSET, Struct

from enc.apps.people.address_book import Contact
from enc.client import Client, Enclave, EventFact
from enc.core.errors import (
    EnclaveNotFound,
    IdentityNotFound,
    MisuseError,
    NodeNotFound,
    PeerError,
    WorldError,
)
from enc.core.primitives.types import Event
from enc.core.rules.content import content_object
from enc.core.rules.parse_manifest import parse_manifest
from enc.core.rules.policy_types import Policy
from enc.core.sealed_forms.personal import EVACUATION, OpenedNotice

MEMBER, FRIEND = "MEMBER", "FRIEND"
FRIEND_STATE = 2
"""FRIEND in a mailbox's bitmask: the second State. Contacts may not read a mailbox's Manifest."""
MAX_MOVES = 1000
"""Moves of an inviter that are searched if a notice names none."""

NoticeState = Literal["confirmed", "pending", "refuted"]


class Unconfirmed(PeerError):
    """The source does not show the action yet."""

    code = "UNCONFIRMED"


class Refuted(PeerError):
    """The claim contradicts something that nobody can change."""

    code = "REFUTED"


class NotConfirmed(MisuseError):
    """The notice is not confirmed, so nothing may be done because of it."""


class Received(Struct, frozen=True):
    """A notice and the state of its claim."""

    id: bytes
    seq: int
    author: bytes
    timestamp: int
    state: NoticeState
    reason: str = ""
    """Why it is not confirmed."""
    claims: OpenedNotice | None = None
    """Its contents, which nothing has proved; None if it does not open. Unless it is confirmed, its
    author may not have sealed them.
    """

    @property
    def text(self) -> str:
        """What it says, in words for a person; empty if it does not open. Unless the notice is
        confirmed, show it as unproved.
        """
        if self.claims is None:
            return ""
        words = " ".join(each for each in (self.claims.topic, self.claims.greeting) if isinstance(each, str))
        if self.claims.kind != EVACUATION:
            return words
        who = "the node with the key" if self.is_actionable else "the sender"
        return f"{who} {self.author.hex()} says: {words}"

    @property
    def is_actionable(self) -> bool:
        return self.state == "confirmed"

    @property
    def notice(self) -> OpenedNotice:
        """Its contents, for callers that act on them; raises NotConfirmed unless they are
        proved.
        """
        if self.claims is None or not self.is_actionable:
            raise NotConfirmed(f"the notice {self.id.hex()} is {self.state}: {self.reason}")
        return self.claims


class Question(Struct, frozen=True):
    """A confirmer's input. `source`: the enclave the notice names; `known`: its author's
    contact.
    """

    client: Client
    author: bytes
    notice: OpenedNotice
    source: Enclave
    known: Contact | None = None

    @property
    def me(self) -> bytes:
        return self.client.identity.public


Confirmer = Callable[[Question], None]
"""Returns if the claim is proved. Raises Refuted, Unconfirmed, or another PeerError or
WorldError.
"""


# A group's invitation: the Move that made the recipient a member


def confirm_group_invite(asked: Question) -> None:
    fact = _move(asked)
    if not _makes_member(fact.event, asked.me):
        raise Refuted("move_ref: not a Move that makes you a member")
    if fact.event.from_.hex() != asked.notice.inviter:
        raise Refuted("inviter: not the author of the Move")
    if fact.status != "active":
        raise Unconfirmed("move_ref: the Move is not in force")
    member = asked.source.member(asked.me)
    if member.state != MEMBER or member.fact.anchor.index < fact.anchor.index:
        raise Unconfirmed(f"you are {member.state} there")
    claimed = asked.notice.manifest_hash
    if claimed is not UNSET and asked.source.manifest().content_hash.hex() != claimed:
        raise Refuted("manifest_hash: not that of the enclave's Manifest")


def _makes_member(event: Event, who: bytes) -> bool:
    if event.type != "Move":
        return False
    content = content_object(event)
    return (content.get("target"), content.get("to")) == (who.hex(), MEMBER)


def _move(asked: Question) -> EventFact:
    """Return the proved Move that the notice names; if it names none, the inviter's last such
    Move.
    """
    named = asked.notice.move_ref
    if named is not UNSET:
        return asked.source.proof(named, wait=False)
    moves = asked.source.query(type="Move", author=asked.notice.inviter, reverse=True, limit=MAX_MOVES)
    for item in moves:
        if _makes_member(item.event, asked.me):
            return asked.source.proof(item.id, wait=False)
    raise Unconfirmed("the inviter has not made you a member")


# A contact's invitation: the recipient is a friend in the sender's mailbox


def confirm_dm_invite(asked: Question) -> None:
    if asked.author.hex() != asked.notice.inviter:
        raise Refuted("inviter: not the author of the notice")
    state_of = _mailbox(asked)
    fact = asked.source.state("rbac", asked.me)
    if state_of(int.from_bytes(fact.value or b"", "big")) != FRIEND:
        raise Unconfirmed("you are not a friend in that mailbox")


def _mailbox(asked: Question) -> Callable[[int], str]:
    """Return a function that reads a bitmask of the mailbox, by its Manifest if the registry has
    it.

    The mailbox must be the inviter's, by the registry or the address book: one may also be a friend
    in another person's mailbox.
    """
    policy = _registered_policy(asked) if asked.client.has_registry else None
    if policy is None:
        place = None if asked.known is None else asked.known.places.get("dm")
        if place is None or place.enclave != asked.source.id:
            raise Unconfirmed("enclave_id: neither registry nor address book has it as the inviter's mailbox")
        return lambda bits: FRIEND if bits & 0xFF == FRIEND_STATE else ""
    if asked.author not in policy.initial_members:
        raise Refuted("enclave_id: not the inviter's mailbox")
    return policy.state_of


def _registered_policy(asked: Question) -> Policy | None:
    """Return the mailbox's policy; None if the registry does not know the mailbox.

    Raise Unconfirmed if the inviter has registered another mailbox.
    """
    try:
        named = asked.client.lookup(asked.author).enclaves.get("dm", asked.source.id)
        if named != asked.source.id:
            raise Unconfirmed("enclave_id: not the mailbox that the inviter has registered")
    except IdentityNotFound:
        pass
    try:
        entry = asked.client.resolve(asked.source.id).record.entry
    except (EnclaveNotFound, NodeNotFound):
        return None
    return parse_manifest(entry.manifest_event.content or "")


# A node's request to move enclaves away: the node that serves the enclave states it, too


def confirm_evacuation(asked: Question) -> None:
    if asked.author.hex() != asked.notice.inviter:
        raise Refuted("inviter: not the author of the notice")
    if (asked.source.sequencers().sequencer or asked.source.sequencer()) != asked.author:
        raise Unconfirmed("its author is not the node that has the enclave now")
    if asked.author not in asked.client.evacuations:
        raise Unconfirmed("the node does not state, or no longer states, that owners should move their enclaves")
    if not asked.source.may_migrate():
        raise Unconfirmed("you may not move that enclave")


CONFIRMERS: Mapping[str, Confirmer] = {
    "group_invite": confirm_group_invite,
    "dm_invite": confirm_dm_invite,
    EVACUATION: confirm_evacuation,
}
"""By kind. Notices of other kinds are never confirmed."""


def judge(ask: Callable[[], None]) -> tuple[NoticeState, str]:
    """Return a claim's state and the reason, from asking its source."""
    try:
        ask()
    except Refuted as e:
        return "refuted", e.message
    except (PeerError, WorldError) as e:
        return "pending", e.message
    return "confirmed", ""
