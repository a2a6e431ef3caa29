"""The owners of an enclave, as its log shows them, and whose personal store it is."""

from collections.abc import Iterator

from enc.core.errors import EncError
from enc.core.log.filter import Filter
from enc.core.machine.state import EnclaveState
from enc.core.primitives.types import Event
from enc.core.rules.policy_types import ReadScope
from enc.node.read.access import Access
from enc.node.store.store_interface import ReadRights, Store

MAX_CANDIDATES = 10_000
"""Events of access rights that are looked at, the newest first."""
MAX_OWNERS = 16
NOTICE = "notice"
"""Type of the notices in personal stores."""
PERSONAL = "personal"
MAX_APP = 64
"""Characters of an app's name."""


def owners(store: Store, state: EnclaveState) -> list[bytes]:
    """Return the identities that may move the enclave, at most MAX_OWNERS of them.

    Among those whom the Manifest or one of the newest events of access rights names.
    """
    found = list[bytes]()
    for identity in dict.fromkeys(_candidates(store, state)):
        if Access(store, state, identity).is_owner:
            found.append(identity)
            if len(found) == MAX_OWNERS:
                break
    return found


def _candidates(store: Store, state: EnclaveState) -> Iterator[bytes]:
    policy = state.policy
    yield from (event.from_ for event in store.events(state.enclave, 0, 1))
    yield from policy.initial_members
    everything = ReadRights(identity=bytes(32), scope=ReadScope({}, "all"), each=lambda event, subject: True)
    asked = Filter(types=frozenset(policy.dialect.access_types), limit=MAX_CANDIDATES, reverse=True)
    for count, item in enumerate(store.find(state.enclave, asked, everything)):
        if count == MAX_CANDIDATES:
            return
        for event in store.events(state.enclave, item.seq, 1):
            yield from _affected(state, event)


def _affected(state: EnclaveState, event: Event) -> list[bytes]:
    try:
        return list(state.policy.dialect.affected_identities(event))
    except EncError:  # an erased content names nobody
        return []


def app_of(state: EnclaveState) -> str:
    """Return the app that the Manifest names; empty if it names none."""
    meta = state.policy.manifest.get("meta")
    app = meta.get("app") if isinstance(meta, dict) else None
    return app if isinstance(app, str) and len(app) <= MAX_APP else ""


def personal_store(store: Store, state: EnclaveState) -> Event | None:
    """Return the Manifest if the enclave is the personal store of the Manifest's author, as the
    template makes it.
    """
    if app_of(state) != PERSONAL or NOTICE not in state.policy.content_types:
        return None
    manifest = next(iter(store.events(state.enclave, 0, 1)))
    return manifest if list(state.policy.initial_members) == [manifest.from_] else None
