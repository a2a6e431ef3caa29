"""The epochs of a group: which ones count, the same for everyone, and which secrets we hold.

An epoch counts if and only if the group's rules allow its event, its author is an admin member
after it, it carries no `auto-delete` tag, its content is strict JSON, and
`enc.core.sealed_forms.group_ratchet.accept` finds in it exactly what the tree and the state dictate. Whether its
secret reached us, or fits, does not matter for that.
"""

from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from enc.apps.group.membership import Membership
from enc.apps.group.views import EpochView
from enc.core.errors import DecryptFailed, EncError, InvalidCommit
from enc.core.log.commit import auto_delete_at
from enc.core.primitives.signer import Signer
from enc.core.primitives.types import Event
from enc.core.rules.content import content_object
from enc.core.sealed_forms.group_envelope import Envelope, parse_envelope, unwrap
from enc.core.sealed_forms.group_message import SenderChain
from enc.core.sealed_forms.group_opening import consume, consume_handoff
from enc.core.sealed_forms.group_ratchet import accept
from enc.core.sealed_forms.group_state import NO_EPOCH, HeldEpoch, PublicGroupState, Secrets

CARRIERS = ("Move", "AC_Bundle", "rotate")
"""Types whose content may carry an epoch."""


class CountedEpoch(Struct, frozen=True):
    """An epoch that counts. Its members are not stored: there may be as many epochs as members."""

    n: int
    seq: int
    event_id: bytes
    author: bytes
    envelope: Envelope
    is_ours: bool
    """Whether we are one of its members."""


class Keys(Struct, frozen=True):
    """The keys a device opens epochs with: the identity's key, its sub-key alone, or none."""

    me: bytes
    identity: Signer | None = None
    sub: Signer | None = None


class Epochs:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.state: PublicGroupState = NO_EPOCH
        self.counted: list[CountedEpoch] = []
        """Index: the epoch's number."""
        self.views: list[EpochView] = []
        self._opened: dict[int, HeldEpoch] = {}
        self._secrets: Secrets = {}
        self._handoffs: dict[bytes, bytes] = {}
        self._chains: dict[tuple[int, bytes], SenderChain] = {}
        self._derived: dict[int, bytes] = {}
        """Cached epoch secrets."""

    @property
    def last(self) -> CountedEpoch | None:
        return self.counted[-1] if self.counted else None

    def is_stale(self, members: frozenset[bytes]) -> bool:
        return self.state.members != members

    def secret(self, n: int) -> HeldEpoch | None:
        """Return the epoch as far as we could open it; None if we could not."""
        return self._opened.get(n)

    def chain(self, n: int, sender: bytes) -> SenderChain | None:
        """Return a sender's key chain in an epoch; None if we do not hold the epoch's secret."""
        epoch = self._opened.get(n)
        if epoch is None:
            return None
        found = self._chains.get((n, sender))
        if found is None:
            secret = self._derived.get(n) or self._derived.setdefault(n, epoch.secret)
            found = self._chains[n, sender] = SenderChain(secret, sender)
        return found

    # Which epochs count

    def apply(self, event: Event, membership: Membership) -> EpochView | None:
        """Read the epoch of an event that `membership` has applied; return None if it carries
        none.
        """
        if event.type not in CARRIERS:
            return None
        try:
            found = _field(event)
            if found is None:
                return None
        except EncError as e:
            return self._keep(_uncounted(event, None, e))
        n = found.get("n") if isinstance(found, dict) and type(found.get("n")) is int else None
        try:
            self._count(event, found, membership)
        except EncError as e:
            return self._keep(_uncounted(event, n, e))
        opened = EpochView(n=n, seq=event.seq, author=event.from_, counts=True)
        try:
            is_open = self._open(self.counted[-1], self.state)
            return self._keep(replace(opened, is_open=is_open))
        except EncError as e:
            return self._keep(replace(opened, trouble=e.message))

    def _keep(self, view: EpochView) -> EpochView:
        self.views.append(view)
        return view

    def _count(self, event: Event, found: Any, membership: Membership) -> None:
        if auto_delete_at(event) is not None:
            raise InvalidCommit("epoch: its event has an auto-delete tag")
        if not membership.person(event.from_).is_admin:  # an admin is always a member
            raise InvalidCommit("epoch: its author is not an admin after it")
        envelope = parse_envelope(found)
        self.state = accept(self.state, membership.members, event.from_, envelope)
        made = CountedEpoch(envelope.n, event.seq, event.id, event.from_, envelope, self._keys.me in membership.members)
        self.counted.append(made)

    # Which secrets we hold

    def _open(self, made: CountedEpoch, after: PublicGroupState | None = None) -> bool:
        """Open an epoch; return whether we now hold its secret. Raise DecryptFailed if we should,
        but cannot.

        Without the state `after` it, the tree is not tried: what the tree does not give at once, it
        never gives.
        """
        if not made.is_ours or (self._keys.identity is None and self._keys.sub is None):
            return False
        epoch = self._consumed(made, after)
        self._opened[made.n] = epoch
        self._secrets = epoch.secrets or self._secrets
        return True

    def _consumed(self, made: CountedEpoch, after: PublicGroupState | None) -> HeldEpoch:
        """Open the epoch with the tree, with a wrap to our sub-key, or with a handoff, in this
        order.
        """
        refusal: EncError = DecryptFailed("epoch: nothing in it is sealed to one of our keys")
        if self._keys.identity is not None and after is not None:
            fitting = dict(self._secrets)
            try:
                return consume(after, made.author, made.envelope, self._keys.identity, self._secrets, fitting)
            except EncError as e:
                self._secrets, refusal = fitting, e
        roots = [*self._by_sub_key(made.envelope), *self._handed(made)]
        for root in roots:
            try:
                return consume_handoff(made.envelope, root)
            except EncError as e:
                refusal = e
        raise refusal

    def _by_sub_key(self, envelope: Envelope) -> list[bytes]:
        if self._keys.sub is None or envelope.or_wraps is UNSET:
            return []
        mine, found = self._keys.sub.public.hex(), list[bytes]()
        for wrap in envelope.or_wraps:
            if wrap.to == mine:
                try:
                    found.append(unwrap(self._keys.sub, bytes.fromhex(envelope.eph), wrap))
                except EncError:
                    continue
        return found

    def _handed(self, made: CountedEpoch) -> list[bytes]:
        return [self._handoffs[made.event_id]] if made.event_id in self._handoffs else []

    def add_handoff(self, event_id: bytes, root_secret: bytes) -> bool:
        """Store a root secret from a notice, used if the event's epoch counts and it gives its root
        key.

        Return whether it opened an epoch that was not open.
        """
        self._handoffs[event_id] = root_secret
        for i, view in enumerate(self.views):
            made = self.counted[view.n] if view.counts and view.n is not None else None
            if made is not None and made.event_id == event_id and made.n not in self._opened:
                try:
                    self.views[i] = replace(view, is_open=self._open(made), trouble="")
                    return True
                except EncError:
                    return False
        return False


def _uncounted(event: Event, n: int | None, error: EncError) -> EpochView:
    return EpochView(n=n, seq=event.seq, author=event.from_, counts=False, why=error.message, withheld=event.withheld)


def _field(event: Event) -> Any:
    """Return the `epoch` field of a content; None if there is none."""
    if event.content is None:
        raise InvalidCommit("content: erased" if event.withheld is None else "the node withholds its content")
    content = content_object(event)
    if event.type == "rotate" and "epoch" not in content:
        raise InvalidCommit("epoch: missing")
    return content.get("epoch")
