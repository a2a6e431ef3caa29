"""The epochs of a group: which count, for everybody alike, and which of their secrets are ours.

An epoch counts iff the event stands (the roll has taken it), its author is an admin member after it, it carries no
`auto-delete` tag, its content is strict JSON, and `enc.core.group_ratchet.accept` finds in it exactly what the tree
and the state dictate. A secret that did not come to us, or does not fit, changes nothing of that.
"""

from typing import Any

from msgspec import UNSET, Struct
from msgspec.structs import replace

from enc.apps.group.roll import Roll
from enc.apps.group.views import EpochView
from enc.core.commit import auto_delete_at
from enc.core.content import content_object
from enc.core.errors import DecryptFailed, EncError, InvalidCommit
from enc.core.group_envelope import Envelope, parse_envelope, unwrap
from enc.core.group_message import Chain
from enc.core.group_ratchet import NO_EPOCH, Epoch, Secrets, State, accept, consume, consume_handoff
from enc.core.signing import PrivateKey
from enc.core.types import Event

CARRIERS = ("Move", "AC_Bundle", "rotate")
"""Types whose content may carry an epoch."""


class Counted(Struct, frozen=True):
    """An epoch that counts. Of its members nothing is kept: there may be as many epochs as members."""

    n: int
    seq: int
    event_id: bytes
    author: bytes
    envelope: Envelope
    is_ours: bool
    """We are one of its members."""


class Keys(Struct, frozen=True):
    """What a device opens epochs with: the identity's key, or its sub-key alone, or nothing."""

    me: bytes
    identity: PrivateKey | None = None
    sub: PrivateKey | None = None


class Epochs:
    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.state: State = NO_EPOCH
        self.counted: list[Counted] = []
        """By their numbers."""
        self.views: list[EpochView] = []
        self._opened: dict[int, Epoch] = {}
        self._secrets: Secrets = {}
        self._handoffs: dict[bytes, bytes] = {}
        self._chains: dict[tuple[int, bytes], Chain] = {}
        self._derived: dict[int, bytes] = {}
        """Epoch secrets, once somebody's keys were asked for."""

    @property
    def last(self) -> Counted | None:
        return self.counted[-1] if self.counted else None

    def is_stale(self, members: frozenset[bytes]) -> bool:
        return self.state.members != members

    def secret(self, n: int) -> Epoch | None:
        """What we hold of an epoch."""
        return self._opened.get(n)

    def chain(self, n: int, sender: bytes) -> Chain | None:
        """A sender's keys in an epoch; None: its secret is not ours."""
        epoch = self._opened.get(n)
        if epoch is None:
            return None
        found = self._chains.get((n, sender))
        if found is None:
            secret = self._derived.get(n) or self._derived.setdefault(n, epoch.secret)
            found = self._chains[n, sender] = Chain(secret, sender)
        return found

    # What counts

    def take(self, event: Event, roll: Roll) -> EpochView | None:
        """After the roll has taken it. None: it carries no epoch."""
        if event.type not in CARRIERS:
            return None
        try:
            found = _field(event)
            if found is None:
                return None
        except EncError as e:
            return self._keep(EpochView(n=None, seq=event.seq, author=event.from_, counts=False, why=e.message))
        n = found.get("n") if isinstance(found, dict) and type(found.get("n")) is int else None
        try:
            self._count(event, found, roll)
        except EncError as e:
            return self._keep(EpochView(n=n, seq=event.seq, author=event.from_, counts=False, why=e.message))
        opened = EpochView(n=n, seq=event.seq, author=event.from_, counts=True)
        try:
            is_open = self._open(self.counted[-1], self.state)
            return self._keep(replace(opened, is_open=is_open))
        except EncError as e:
            return self._keep(replace(opened, trouble=e.message))

    def _keep(self, view: EpochView) -> EpochView:
        self.views.append(view)
        return view

    def _count(self, event: Event, found: Any, roll: Roll) -> None:
        if auto_delete_at(event) is not None:
            raise InvalidCommit("epoch: what carries it will be deleted")
        if not roll.person(event.from_).is_admin:  # and so a member: no other can be one
            raise InvalidCommit("epoch: its author is no admin after it")
        envelope = parse_envelope(found)
        self.state = accept(self.state, roll.members, event.from_, envelope)
        made = Counted(envelope.n, event.seq, event.id, event.from_, envelope, self._keys.me in roll.members)
        self.counted.append(made)

    # What is ours

    def _open(self, made: Counted, after: State | None = None) -> bool:
        """Whether the secret is ours now. DecryptFailed: it should be, and is not.

        Without the state `after` it, not by the tree: what that does not give at once it never gives.
        """
        if not made.is_ours or (self._keys.identity is None and self._keys.sub is None):
            return False
        epoch = self._consumed(made, after)
        self._opened[made.n] = epoch
        self._secrets = epoch.secrets or self._secrets
        return True

    def _consumed(self, made: Counted, after: State | None) -> Epoch:
        """By the tree; else by a wrap to our sub-key; else by what was handed to us."""
        refusal: EncError = DecryptFailed("epoch: nothing in it is sealed to a key that is here")
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

    def _handed(self, made: Counted) -> list[bytes]:
        return [self._handoffs[made.event_id]] if made.event_id in self._handoffs else []

    def hand(self, event_id: bytes, root_secret: bytes) -> bool:
        """A root secret that came another way; used if the event's epoch counts and the secret gives its root key.

        Whether it opened an epoch that was not open.
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


def _field(event: Event) -> Any:
    """The `epoch` of a content; None where there is none."""
    if event.content is None:
        raise InvalidCommit("content: it is gone")
    content = content_object(event)
    if event.type == "rotate" and "epoch" not in content:
        raise InvalidCommit("epoch: missing")
    return content.get("epoch")
