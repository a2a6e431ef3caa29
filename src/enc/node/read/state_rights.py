"""Decides which keys of the state an identity may have proved (docs/protocol.md, section 16).

A slot's leaf is the hash of the content that set it, by which a guess of the content can be
tested. So its proof needs the right to read the slot; other keys need the right to read any type.
"""

from functools import cached_property

from msgspec import UNSET

from enc.core.errors import InvalidQuery, Unauthorized
from enc.core.primitives.encoding import unhex
from enc.core.rules.policy_types import Subject
from enc.core.trees.state_key import gate_slot, own_slot, shared_slot
from enc.node.read.access import Access
from enc.node.read.request_bodies import StateKey


class StateRights:
    """The rights of one request, which may name many keys."""

    def __init__(self, access: Access) -> None:
        self._access, self._slots = access, access.state.policy.slots

    def check(self, asked: StateKey) -> None:
        """Raise Unauthorized if this identity may not have the key proved."""
        raw = unhex(asked.key, 32, "key", InvalidQuery)
        if asked.namespace == "rbac" and raw == self._access.identity:
            return
        self._access.check_reads()
        if asked.namespace == "kv" and not self._may_read_slot(raw, asked):
            raise Unauthorized("key: this identity may not read that slot")

    def _may_read_slot(self, raw: bytes, asked: StateKey) -> bool:
        if asked.own is not UNSET:
            owner = unhex(asked.own.identity, 32, "own.identity", InvalidQuery)
            if own_slot(owner, asked.own.key) != raw:
                raise InvalidQuery("own: not the slot of this key")
            return self._reads("Own", asked.own.key, is_author=owner == self._access.identity)
        if raw not in self._known:
            return self._reads_all_own
        found = self._known[raw]
        return found is None or self._reads(*found, is_author=found[0] == "Own")

    @cached_property
    def _known(self) -> dict[bytes, tuple[str, str] | None]:
        """The keys whose meaning is known: type and key of a slot; None for the lifecycle and gates."""
        me, gates = self._access.identity, self._access.state.policy.gates
        return {
            **{shared_slot(key): ("Shared", key) for key in self._slots["Shared"]},
            **{own_slot(me, key): ("Own", key) for key in self._slots["Own"]},
            **{gate_slot(alias): None for alias in gates},
            shared_slot("lifecycle"): None,
        }

    @cached_property
    def _reads_all_own(self) -> bool:
        """Whether the identity may read every Own slot of others: an unknown key may be any of them."""
        return all(self._reads("Own", key, is_author=False) for key in self._slots["Own"])

    def _reads(self, type_: str, key: str, *, is_author: bool) -> bool:
        return "R" in self._access.rights(Subject(type_, key=key), is_author=is_author)
