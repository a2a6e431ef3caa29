"""Making epochs, which admins do. However a race ends, one epoch of the current members counts."""

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from enc.apps.group.errors import NotSealable, TooManyMembers
from enc.apps.group.group_reader import GroupReader
from enc.apps.group.rights import check_admin
from enc.apps.group.views import EpochView
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import CommitLimits, Receipt
from enc.core.sealed_forms.group_envelope import NONCE12, SECRET
from enc.core.sealed_forms.group_ratchet import propose
from enc.core.sealed_forms.group_state import Randomness

RACES = 64
"""Races lost in a row before a client gives up: in each, another event was accepted first."""


MAX_EPOCH = CommitLimits().content - 1024
"""Bytes of an epoch as JSON: leaves room for the rest of an event's content."""


def randomness() -> Randomness:
    return Randomness(os.urandom(SECRET), PrivateKey(os.urandom(SECRET)), _fresh(SECRET), _fresh(NONCE12))


def _fresh(size: int) -> Iterator[bytes]:
    while True:
        yield os.urandom(size)


class EpochMaker(GroupReader):
    def rotate(self) -> EpochView:
        """Make a new epoch, as an admin; return the one that counts: ours, or one that came
        first.
        """
        with self._lock:
            self._pull()
            self._check_admin()
            return self._renew()

    def _renew(self) -> EpochView:
        before = self._fold.epochs.state.n
        for _ in range(RACES):
            self._write("rotate", {"epoch": self._proposed(self._fold.membership.members)})
            found = self._fold.last_epoch()
            if found is not None and found.n is not None and found.n > before and not self._needs_epoch():
                return found
        raise NotSealable("the group changed faster than an epoch could be made: try again")

    def _heal(self) -> None:
        if self._may_renew() and self._needs_epoch():
            self._pull()  # another admin's client may have been faster
            if self._may_renew() and self._needs_epoch():
                self._renew()

    def _may_renew(self) -> bool:
        me = self._fold.myself()
        return me.is_member and me.is_admin and self._fold.membership.lifecycle in ("active", "migrated")

    def _needs_epoch(self) -> bool:
        return self._fold.is_stale or not self._fold.can_seal

    def _check_admin(self) -> None:
        check_admin(self._fold.myself(), "may make an epoch")

    def _proposed(self, members: frozenset[bytes]) -> Any:
        """Return the envelope of our next epoch for these members."""
        subs = self._sub_keys(members) if self._sub_keys is not None else {}
        envelope, _, _ = propose(self._fold.epochs.state, members, self.me, randomness(), subs)
        found = msgspec.to_builtins(envelope)
        if len(compact_json(found)) > MAX_EPOCH:
            raise TooManyMembers(
                f"too many members for one epoch: with {len(envelope.fill)} new tree nodes it is longer than an event "
                "may be"
            )
        return found

    def _move(self, target: bytes, from_: str, to: str) -> Receipt:
        """Write a Move, as an admin, with an epoch for the members after it."""
        content: dict[str, Any] = {"target": target.hex(), "from": from_, "to": to}
        members = self._fold.membership.members
        after = members | {target} if to == "MEMBER" else members - {target}
        if after != members and self.me in after:
            self._check_admin()
            content["epoch"] = self._proposed(after)
        receipt = self._write("Move", content)
        self._heal()
        return receipt
