"""Random histories of a group: all readers agree, and nobody opens what is not theirs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from enc.apps.group import GroupFold, Keys
from enc.client import Identity
from enc.core.errors import EncError
from enc.core.primitives.encoding import strict_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Event
from enc.core.sealed_forms.group_envelope import Envelope, Wrap, parse_envelope, unwrap
from enc.core.sealed_forms.group_state import next_secret, node_key
from tests.apps.group.circle import Circle, pubkey
from tests.core.world import give, move, person
from tests.tiers import rounds

PEOPLE = ("alice", "bob", "carol", "dave", "erin", "frank", "grace")
OPS = (
    "invite",
    "remove",
    "block",
    "unblock",
    "leave",
    "join",
    "appoint",
    "dismiss",
    "rotate",
    "race",
    "outdated",
    "say",
)

steps = st.lists(
    st.tuples(st.sampled_from(OPS), st.sampled_from(PEOPLE), st.sampled_from(PEOPLE)), min_size=8, max_size=24
)


class Spy:
    """A person with the whole log, their own keys, and every secret they made or could derive."""

    def __init__(self, name: str, made: list[bytes]) -> None:
        self._keys = {key.public.hex(): key for key in (person(name), Identity(person(name)).sub_key())}
        self.secrets: set[bytes] = set()
        for secret in made:
            self._learn(secret)

    def _learn(self, secret: bytes) -> None:
        """Add a secret, its key, and the secrets above it on any path."""
        for _ in range(len(PEOPLE)):
            if secret in self.secrets:
                return
            self.secrets.add(secret)
            key = node_key(secret)
            self._keys[key.public.hex()] = key
            secret = next_secret(secret)

    def read(self, envelopes: list[Envelope]) -> None:
        """Open all that can be opened, until nothing new is found."""
        known = -1
        while known != len(self.secrets):
            known = len(self.secrets)
            for envelope in envelopes:
                for wrap in _wraps(envelope):
                    key = self._keys.get(wrap.to)
                    if key is not None:
                        self._try(key, envelope, wrap)

    def _try(self, key: PrivateKey, envelope: Envelope, wrap: Wrap) -> None:
        try:
            self._learn(unwrap(key, bytes.fromhex(envelope.eph), wrap))
        except EncError:
            return

    def knows(self, root_secret: bytes) -> bool:
        return root_secret in self.secrets


def _wraps(envelope: Envelope) -> list[Wrap]:
    or_wraps = envelope.or_wraps or ()
    return [envelope.self_, *(w for f in envelope.fill for w in f.wraps), *(r.wrap for r in envelope.path), *or_wraps]


def envelopes_of(events: list[Event]) -> list[Envelope]:
    """Return all epochs of the log, whether they count or not: a spy reads those too."""
    found = []
    for event in events:
        if event.type in ("Move", "rotate"):
            epoch = strict_json(event.content or "").get("epoch")
            if epoch is not None:
                found.append(parse_envelope(epoch))
    return found


def is_admin(circle: Circle, name: str) -> bool:
    who = circle.public.membership.person(pubkey(name))
    return who.is_member and who.is_admin


def act(circle: Circle, op: str, actor: str, target: str) -> None:
    """Do one step if the rules allow it; otherwise nothing."""
    states = {"invite": ("OUTSIDER", "MEMBER"), "remove": ("MEMBER", "OUTSIDER"), "block": ("MEMBER", "BLOCKED")}
    if op in ("leave", "join"):
        way = ("MEMBER", "OUTSIDER") if op == "leave" else ("OUTSIDER", "MEMBER")
        attempt(circle, actor, "Move", move(actor, *way))
    elif op in ("appoint", "dismiss"):
        attempt(circle, actor, "Grant" if op == "appoint" else "Revoke", give(target, "admin"))
    elif op == "unblock":
        attempt(circle, actor, "Move", move(target, "BLOCKED", "OUTSIDER"))
    elif op == "say":
        say(circle, actor)
    elif is_admin(circle, actor):
        if op in states:
            after = circle.members | {pubkey(target)} if op == "invite" else circle.members - {pubkey(target)}
            if pubkey(actor) in after:
                epoch = circle.propose(actor, after)
                attempt(circle, actor, "Move", move(target, *states[op], epoch=epoch))
        else:
            race(circle, op, actor, target)


def race(circle: Circle, op: str, actor: str, target: str) -> None:
    """Make an epoch; or two at once; or one before a member left."""
    before, members = circle.state, circle.members
    first = circle.propose(actor, members)
    if op == "race" and target != actor and is_admin(circle, target):
        attempt(circle, target, "rotate", {"epoch": circle.propose(target, members, before)})
    if op == "outdated":
        attempt(circle, target, "Move", move(target, "MEMBER", "OUTSIDER"))
    attempt(circle, actor, "rotate", {"epoch": first})


def say(circle: Circle, name: str) -> None:
    fold = circle.fold(name)
    if fold.can_seal:
        attempt(circle, name, "message", circle.seal(name, f"event {len(circle.events)}"))


def attempt(circle: Circle, by: str, type_: str, content: Any) -> None:
    if not circle.world.code(by, type_, content):
        circle.send(by, type_, content)


@pytest.mark.sweep
@settings(max_examples=rounds(40), deadline=None)
@given(steps)
def test_everybody_agrees_and_opens_what_is_theirs_and_nothing_else(history: list[tuple[str, str, str]]) -> None:
    circle = Circle("bob", "carol", "dave", "erin", "frank")
    circle.send("alice", "Grant", give("bob", "admin"))
    circle.open("auto_join")
    for op, actor, target in history:
        act(circle, op, actor, target)
    folds = {name: circle.fold(name) for name in PEOPLE}
    public = circle.public
    members = members_of(circle)
    for fold in folds.values():
        assert fold.epochs.state == public.epochs.state
        assert [view.counts for view in fold.epochs.views] == [view.counts for view in public.epochs.views]
        assert [view.why for view in fold.epochs.views] == [view.why for view in public.epochs.views]
        assert fold.membership.members == public.membership.members
    check_secrets(circle, folds, members)
    for name, fold in folds.items():
        for entry in fold.messages.all():
            assert entry.epoch is not None
            assert (entry.text == f"event {entry.seq}") == (pubkey(name) in members[entry.epoch]), entry.why


def members_of(circle: Circle) -> list[frozenset[bytes]]:
    """Return the members of each epoch that counts."""
    fold, found = GroupFold(Keys(bytes(32))), list[frozenset[bytes]]()
    for event in circle.events:
        change = fold.apply(event)
        if change.epoch is not None and change.epoch.counts:
            found.append(fold.membership.members)
    return found


def check_secrets(circle: Circle, folds: dict[str, Any], members: list[frozenset[bytes]]) -> None:
    """Each epoch's secret is the same for its members, and unknown to everyone else, whatever they
    hold.
    """
    envelopes = envelopes_of(circle.events)
    spies = {name: Spy(name, circle.made[name].secrets if name in circle.made else []) for name in PEOPLE}
    for spy in spies.values():
        spy.read(envelopes)
    for made in circle.public.epochs.counted:
        inside = [name for name in PEOPLE if pubkey(name) in members[made.n]]
        roots = {msgspec.structs.astuple(folds[name].epochs.secret(made.n))[1] for name in inside}
        assert len(roots) == 1
        (root,) = roots
        for name in PEOPLE:
            assert folds[name].epochs.secret(made.n) is None or name in inside
            assert spies[name].knows(root) == (name in inside), f"{name} and epoch {made.n}"
