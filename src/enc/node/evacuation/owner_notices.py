"""Notices that tell owners of the evacuation: the node seals and signs them, a command sends them."""

import os
from typing import Any

from msgspec import Struct

from enc.core.errors import InvalidQuery, MisuseError
from enc.core.log.commit import build_commit, wire_commit
from enc.core.machine.state import EnclaveState
from enc.core.primitives.encoding import unhex
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import check_public_key
from enc.core.primitives.types import Commit
from enc.core.registry.evacuation import Evacuation
from enc.core.sealed_forms.personal import EVACUATION, OpenedNotice, seal_notice
from enc.node.control.operations import Operations
from enc.node.evacuation.notice_log import NoticeLog, NoticeOutcome, NoticeResult
from enc.node.evacuation.owners import NOTICE, app_of
from enc.node.evacuation.statement import EvacuationStatement
from enc.node.read.access import Access
from enc.node.store.store_interface import Store
from enc.runtime.clock import utc_time

LIFETIME_MS, RENEW_MS = 1_800_000, 60_000
"""How long a notice may be sent, and the rest of that time with which it is not returned again."""
MAX_PREPARED = 1024
MAX_REASON = 300
"""Characters of a reason that are kept."""
MAX_PAGE = 500


class NoticeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`recipient`: the key to seal to; `store`: the owner's personal store; `enclave`: one that the
    owner has here, of `count`.
    """

    owner: str
    recipient: str
    store: str
    enclave: str
    count: int


class OutcomeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    owner: str
    result: NoticeResult
    store: str = ""
    reason: str = ""


class NoticesPage(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: str = ""
    limit: int = MAX_PAGE


class OwnerNotices:
    """For the thread of the control socket."""

    def __init__(
        self, statement: EvacuationStatement, log: NoticeLog, store: Store, key: Signer, *, restored: str
    ) -> None:
        """`restored`: why the node signs nothing; empty if it signs."""
        self._statement, self._log, self._store, self._key = statement, log, store, key
        self._restored = restored
        self._prepared: dict[tuple[Evacuation, NoticeParams], Commit] = {}
        """Notices by what they were made of: one whose receipt was lost is sent again as it was."""

    def add_to(self, operations: Operations) -> None:
        operations.add("evacuation-notice", NoticeParams, self._make, changes=False)
        operations.add("record-evacuation-notice", OutcomeParams, self._record)
        operations.add("evacuation-notices", NoticesPage, self._page, changes=False)

    def _current(self) -> Evacuation:
        if self._statement.current is None:
            raise MisuseError("no evacuation is going on: enc node evacuate --to URL")
        return self._statement.current

    def _make(self, params: NoticeParams) -> dict[str, Any]:
        """Return the notice as a commit to the owner's store; of an owner who was notified, none."""
        current = self._current()
        if self._restored:
            raise MisuseError("the node is restored and signs nothing: see `enc node adopt`")
        known = self._log.outcomes(current).get(params.owner)
        if known is not None and known.result == "notified":
            raise MisuseError(f"owner: {params.owner} was notified at {utc_time(known.at)}")
        made = self._prepared.get((current, params))
        if made is None or made.exp < self._statement.now() + RENEW_MS:
            made = self._sealed(current, params)
            while len(self._prepared) >= MAX_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[(current, params)] = made
        return wire_commit(made)

    def _sealed(self, current: Evacuation, params: NoticeParams) -> Commit:
        recipient = unhex(params.recipient, 32, "recipient", InvalidQuery)
        check_public_key(recipient, "recipient", InvalidQuery)
        state = self._owned(params)
        notice = OpenedNotice(
            kind=EVACUATION,
            enclave_id=params.enclave,
            enclave_kind=app_of(state) or "enclave",
            inviter=self._key.public.hex(),
            greeting=_greeting(current, params.count),
        )
        content = seal_notice(self._key, recipient, notice, os.urandom(NONCE_SIZE))
        store = unhex(params.store, 32, "store", InvalidQuery)
        return build_commit(self._key, store, NOTICE, content, self._statement.now() + LIFETIME_MS)

    def _owned(self, params: NoticeParams) -> EnclaveState:
        """Return the enclave; raise MisuseError unless the owner can move it away from here."""
        state = self._store.load(unhex(params.enclave, 32, "enclave", InvalidQuery))
        owner = unhex(params.owner, 32, "owner", InvalidQuery)
        if state is None or state.sequencer != self._key.public or state.lifecycle == "terminated":
            raise MisuseError(f"enclave: {params.enclave} is not on this node")
        if not Access(self._store, state, owner).is_owner:
            raise MisuseError(f"owner: {params.owner} does not own the enclave {params.enclave}")
        return state

    def _record(self, params: OutcomeParams) -> None:
        unhex(params.owner, 32, "owner", InvalidQuery)
        at, reason = self._statement.now(), params.reason[:MAX_REASON]
        outcome = NoticeOutcome(params.owner, params.result, at, params.store, reason)
        self._log.record(self._current(), outcome)

    def _page(self, params: NoticesPage) -> dict[str, Any]:
        current = self._statement.current
        limit = min(max(params.limit, 1), MAX_PAGE)
        known = {} if current is None else self._log.outcomes(current)
        page = sorted(owner for owner in known if owner > params.after)[:limit]
        return {"notices": [known[owner] for owner in page], "more": len(page) == limit}


def _greeting(current: Evacuation, count: int) -> str:
    """Return the sentence for the owner: it is as short as the destination's URL allows."""
    what = "your enclave" if count == 1 else f"your {count} enclaves"
    until = f" by {utc_time(current.deadline)}" if current.deadline else ""
    return f"This node asks you to move {what} to another node{until}: enc migrate --all --to {current.to}"
