"""What is left of an evacuation: the state of each enclave, and the owners who have to move it."""

import time
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from enc.core.machine.state import EnclaveState
from enc.core.registry.evacuation import Evacuation
from enc.node.evacuation.copy_orders import CopyOrders
from enc.node.evacuation.owners import owners, personal_store
from enc.node.store.store_interface import Store

PAGE_S = 2.0
"""Seconds after which a page ends: to find the owners of one enclave may take a good part of one."""


class EnclaveReport(Struct, frozen=True, omit_defaults=True):
    """`result`: moved (to the destination), elsewhere (at another node), terminated; or, if it is
    still here, warm, copying, failed, refused or cold. `behind`: events that the copy lacks.
    """

    enclave: str
    result: str
    events: int
    behind: int = 0
    reason: str = ""
    sequencer: str = ""
    owners: list[str] = []
    """Who can move it, if it is still here."""
    store_of: str = ""
    """Whose personal store it is, wherever it is now; `created` is its time in Unix milliseconds."""
    created: int = 0


class Report:
    """Reads the reports of enclaves from the store. For any thread."""

    def __init__(self, store: Store, seq_pub: bytes, orders: CopyOrders) -> None:
        self._store, self._seq_pub, self._orders = store, seq_pub, orders

    def page(self, to: Evacuation | None, after: bytes, limit: int) -> tuple[list[EnclaveReport], bool]:
        """Return the reports of up to `limit` enclaves with ids above `after`, at least one if there is
        one, and whether there may be more.
        """
        found, until = list[EnclaveReport](), time.monotonic() + PAGE_S
        for report in self._reports(to, after):
            found.append(report)
            if len(found) == limit or time.monotonic() >= until:
                return found, True
        return found, False

    def _reports(self, to: Evacuation | None, after: bytes) -> Iterator[EnclaveReport]:
        for enclave in self._store.enclaves():
            if enclave <= after:
                continue
            state = self._store.load(enclave)
            if state is not None:
                manifest = personal_store(self._store, state) if state.lifecycle != "terminated" else None
                found = self._report(state, to)
                whose = ("", 0) if manifest is None else (manifest.from_.hex(), manifest.timestamp)
                yield replace(found, store_of=whose[0], created=whose[1])

    def _report(self, state: EnclaveState, to: Evacuation | None) -> EnclaveReport:
        enclave, events = state.enclave.hex(), state.seq + 1
        if state.sequencer != self._seq_pub:
            is_there = to is not None and state.sequencer == to.to_key
            return EnclaveReport(enclave, "moved" if is_there else "elsewhere", events, sequencer=state.sequencer.hex())
        if state.lifecycle == "terminated":
            return EnclaveReport(enclave, "terminated", events)
        copy, who = self._orders.statuses.get(state.enclave), [owner.hex() for owner in owners(self._store, state)]
        if copy is None:
            return EnclaveReport(enclave, "cold", events, events, owners=who)
        behind = max(events - copy.events, 0)
        return EnclaveReport(enclave, copy.status, events, behind, copy.reason, owners=who)
