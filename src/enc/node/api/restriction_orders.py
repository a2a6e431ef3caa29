"""The operator's orders to ban, suspend and purge, as operations of the control socket.

An order is stored first, on the sequencer's thread: no commit of the enclave or identity is ordered
after it. Then what it ends is ended: subscriptions, WebSockets and connections.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct, to_builtins

from enc.core.errors import EnclaveNotFound, MisuseError
from enc.core.log.withheld import REASONS
from enc.node.control.operations import Operations
from enc.node.limits.ban_target import format_target, parse_target
from enc.node.limits.restrictions import Restrictions
from enc.node.sequence.sequencer import Sequencer
from enc.node.store.restrictions import Restriction
from enc.node.store.store_interface import Store

MAX_BANS = 100_000
MAX_REASON = 200
"""Characters of the reason of a ban."""
MAX_PAGE = 5000
"""Restrictions of one answer."""
WAIT_S = 30.0

_HEX64 = re.compile(r"[0-9a-f]{64}").fullmatch


class BanParams(Struct, frozen=True, forbid_unknown_fields=True):
    target: str
    seconds: float | None = None
    reason: str = ""


class TargetParams(Struct, frozen=True, forbid_unknown_fields=True):
    target: str


class SuspendParams(Struct, frozen=True, forbid_unknown_fields=True):
    enclave: str
    reason: str = "other"
    is_full: bool = False


class EnclaveParams(Struct, frozen=True, forbid_unknown_fields=True):
    enclave: str


class PageParams(Struct, frozen=True, forbid_unknown_fields=True):
    after: str = ""
    """The target after which the page begins."""


class RestrictionOrders:
    """For the thread of the control socket."""

    def __init__(
        self,
        restrictions: Restrictions,
        store: Store,
        sequencer: Sequencer,
        now: Callable[[], int],
        enforce: Callable[[], None],
        sweep: Callable[[], None],
    ) -> None:
        """`enforce` ends what is forbidden now, and returns when it has ended. `sweep`: called on the
        sequencer's thread, has purges continued soon.
        """
        self._restrictions, self._store, self._sequencer = restrictions, store, sequencer
        self._now, self._enforce, self._sweep = now, enforce, sweep

    def add_to(self, operations: Operations) -> None:
        operations.add("ban", BanParams, self._ban)
        operations.add("unban", TargetParams, self._unban)
        operations.add("bans", PageParams, self._bans, changes=False)
        operations.add("suspend", SuspendParams, self._suspend)
        operations.add("resume", EnclaveParams, self._resume)
        operations.add("suspended", PageParams, self._suspended, changes=False)
        operations.add("purge", EnclaveParams, self._purge)
        operations.add("purged", PageParams, self._purged, changes=False)

    # Bans

    def _ban(self, params: BanParams) -> dict[str, Any]:
        target, now = format_target(parse_target(params.target)), self._now()
        if params.seconds is not None and not 1 <= params.seconds <= 1e10:
            raise MisuseError(f"seconds: {params.seconds:g}: expected 1 to 10000000000")
        if len(params.reason) > MAX_REASON:
            raise MisuseError(f"reason: expected up to {MAX_REASON} characters")
        self._drop_ended()
        if len(self._restrictions.bans) >= MAX_BANS and self._restrictions.bans.get(target) is None:
            raise MisuseError(f"there are {MAX_BANS} bans; lift some, or ban a network in place of its addresses")
        until = None if params.seconds is None else now + int(params.seconds * 1000)
        ban = Restriction(kind="ban", target=target, made_at=now, until=until, reason=params.reason)
        self._put(ban)
        return _wire(ban)

    def _unban(self, params: TargetParams) -> dict[str, Any]:
        target = format_target(parse_target(params.target))
        self._drop_ended()
        if (ban := self._restrictions.bans.get(target)) is None:
            raise MisuseError(f"{target}: is not banned; `enc node bans` lists the bans")
        self._remove_bans([target])
        return _wire(ban)

    def _bans(self, params: PageParams) -> dict[str, Any]:
        ended = {ban.target for ban in self._restrictions.bans.ended()}
        return _page([ban for ban in self._restrictions.bans.all() if ban.target not in ended], params.after)

    def _drop_ended(self) -> None:
        if ended := self._restrictions.bans.ended():
            self._remove_bans([ban.target for ban in ended])

    def _remove_bans(self, targets: list[str]) -> None:
        def work() -> None:
            self._store.restrictions.remove("ban", targets)
            for target in targets:
                self._restrictions.bans.remove(target)

        self._on_sequencer(work)

    # Enclaves

    def _suspend(self, params: SuspendParams) -> dict[str, Any]:
        if params.reason not in REASONS:
            raise MisuseError(f"reason: {params.reason!r}: expected one of {', '.join(REASONS)}")
        enclave = self._existing(params.enclave)
        self._restrictions.check_not_purged(enclave)
        order = Restriction(
            kind="suspension",
            target=enclave.hex(),
            made_at=self._now(),
            reason=params.reason,
            is_full=params.is_full,
        )
        self._put(order)
        return _wire(order)

    def _resume(self, params: EnclaveParams) -> dict[str, Any]:
        enclave = _enclave(params.enclave)
        if not self._restrictions.is_suspended(enclave):
            raise MisuseError(f"{enclave.hex()}: is not suspended; `enc node suspended` lists those that are")

        def work() -> None:
            self._store.restrictions.remove("suspension", [enclave.hex()])
            self._restrictions.end_suspension(enclave)

        self._on_sequencer(work)
        return {"enclave": enclave.hex()}

    def _suspended(self, params: PageParams) -> dict[str, Any]:
        return _page(self._restrictions.suspended, params.after)

    def _purge(self, params: EnclaveParams) -> dict[str, Any]:
        enclave = self._existing(params.enclave)
        order = Restriction(kind="purge", target=enclave.hex(), made_at=self._now())

        def work() -> None:
            try:
                self._store.purge_by_order(enclave, order)
            finally:  # also after a failure: the transaction may have reached the disk
                self._sequencer.forget(enclave)
                if self._store.restrictions.find("purge", enclave.hex()) is not None:
                    self._restrictions.add(order)
            self._store.restrictions.remove("suspension", [enclave.hex()])
            self._restrictions.end_suspension(enclave)
            self._sweep()

        self._restrictions.check_not_purged(enclave)
        self._on_sequencer(work)
        self._enforce()
        return _wire(order)

    def _purged(self, params: PageParams) -> dict[str, Any]:
        return _page(self._restrictions.purged, params.after)

    def _existing(self, text: str) -> bytes:
        enclave = _enclave(text)
        if not self._store.has(enclave):
            raise EnclaveNotFound(f"enclave {enclave.hex()}: is not on this node")
        return enclave

    # Taking effect

    def _put(self, one: Restriction) -> None:
        def work() -> None:
            self._store.restrictions.put(one)
            self._restrictions.add(one)

        self._on_sequencer(work)
        self._enforce()

    def _on_sequencer(self, work: Callable[[], None]) -> None:
        self._sequencer.wait_for(work, WAIT_S)


def _enclave(text: str) -> bytes:
    if not _HEX64(text.lower()):
        raise MisuseError(f"enclave: {text!r}: expected 64 hex digits")
    return bytes.fromhex(text)


def _page(found: Iterable[Restriction], after: str) -> dict[str, Any]:
    """Return a page of restrictions by target, and the target after which the next page begins."""
    left = sorted((one for one in found if one.target > after), key=lambda one: one.target)
    page = left[:MAX_PAGE]
    more = {"next": page[-1].target} if len(left) > len(page) else {}
    return {"items": [_wire(one) for one in page], **more}


def _wire(one: Restriction) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(one)
    return found
