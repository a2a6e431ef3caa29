"""Registers enclaves after their ownership has changed (docs/protocol.md, section 23.6).

The new owner's client does so as soon as it sees that it is the owner, and the giver's before it
gives the ownership away, if the registry has no proof of hers. So a former owner's evidence is older
than the registry's. Nothing here fails or delays what the caller asked for: a failure is logged,
kept, and tried again after a later request.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from enc.client.enclave.ownership_history import concerns_owners
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.enclave_session import EnclaveSession
from enc.client.registry.due_registrations import DueRegistrations
from enc.client.registry.ownership_proofs import NotOwnerError
from enc.client.registry.register import register_enclave
from enc.client.registry.registry_client import RegistryClient
from enc.client.wire.flow import Flow
from enc.core.errors import EncError, EnclaveNotFound, EventPending, TreeSizeNotFound
from enc.core.primitives.types import Commit

logger = logging.getLogger("enc.client.registration")

MAX_KNOWN = 4096
"""Enclaves of which a client remembers what it has registered."""
MAX_PAUSE_S = 600.0
"""Longest time between two attempts, in seconds; they start with one second and double."""
_GIVEN = ("Transfer", "Transfer_Owner")


class _Due(Struct):
    """`seq`: the latest event that may have changed the owners; `done`: the latest such event that
    is registered.
    """

    seq: int = -1
    done: int = -1
    is_gain: bool = True
    """Whether this identity became the owner. If it only changed the other owners, the enclave is
    registered again only if the entry belongs to this identity.
    """
    failures: int = 0
    after: float = 0.0
    reason: str = ""
    is_running: bool = False
    proved_until: float = 0.0
    """Until then, a commit that is sent again, also in the other version, needs no further proof.
    """


class AutoRegistration:
    """`registry_client`: one that does not wait for a registry. `forget` drops what another client
    of the registry has cached. `clock`: monotonic seconds."""

    def __init__(
        self,
        registry_client: RegistryClient,
        due: DueRegistrations,
        forget: Callable[[bytes], None],
        clock: Callable[[], float],
    ) -> None:
        self._registry_client, self._stored, self._forget, self._clock = registry_client, due, forget, clock
        self._known: OrderedDict[bytes, _Due] = OrderedDict()

    def reason(self, enclave: bytes) -> str:
        """Return why the registration that is due has failed so far; empty if none is due."""
        return self._due(enclave).reason

    # Called by sessions

    def before_send(self, session: EnclaveSession, commit: Commit) -> Flow[None]:
        """Prove the giver's ownership, if the enclave is registered without a proof of it."""
        due = self._due(session.enclave)
        if not _transfers(commit) or self._clock() < due.proved_until:
            return
        due.proved_until = self._clock() + 1.0
        try:
            record = yield from self._registry_client.record(session.enclave)
            flow = register_enclave(
                self._registry_client,
                EnclaveReader(session),
                is_patient=False,
                refresh=not record.known.proved_root,
            )
            if record.holder == session.identity.public and (yield from flow) is not None:
                self._forget(session.enclave)
        except EnclaveNotFound:
            return
        except EncError as e:
            logger.warning(
                "enclave %s: its registry has no recent proof that you own it: %s", session.enclave.hex(), e.message
            )

    def notice(self, session: EnclaveSession, commit: Commit, seq: int) -> None:
        """Note that the enclave must be registered, if this identity may be its owner by the event,
        or if it may have changed the other owners by it."""
        if not concerns_owners(commit):
            return
        me = session.identity.public
        is_own = commit.from_ == me and not _transfers(commit)
        is_gain = commit.from_ != me and _transfers(commit) and me.hex() in (commit.content or "").lower()
        due = self._due(session.enclave)
        if seq > max(due.seq, due.done) and (is_own or is_gain):
            due.is_gain = is_gain or (due.is_gain and due.seq > due.done)
            due.seq, due.after = seq, 0.0

    # Called after each request

    def attempt(self, reader: EnclaveReader) -> Flow[None]:
        """Register the enclave if that is due."""
        due = self._due(reader.enclave)
        if due.seq <= due.done or due.is_running or self._clock() < due.after:
            return
        seq, due.is_running = due.seq, True
        try:
            if due.is_gain or (yield from self._is_held(reader)):
                flow = register_enclave(self._registry_client, reader, is_patient=False)
                if (yield from flow) is not None:
                    self._forget(reader.enclave)
        except NotOwnerError:
            self._settle(reader.enclave, due, seq)
        except EncError as e:
            self._postpone(reader.enclave, due, e)
        else:
            self._settle(reader.enclave, due, seq)
        finally:
            due.is_running = False

    def _is_held(self, reader: EnclaveReader) -> Flow[bool]:
        try:
            record = yield from self._registry_client.record(reader.enclave)
        except EnclaveNotFound:
            return False
        return record.holder == reader.identity.public

    def _settle(self, enclave: bytes, due: _Due, seq: int) -> None:
        due.done, due.failures, due.after, due.reason = max(due.done, seq), 0, 0.0, ""
        self._stored.remove(enclave)

    def _postpone(self, enclave: bytes, due: _Due, error: EncError) -> None:
        due.after = self._clock() + min(2.0**due.failures, MAX_PAUSE_S)
        due.failures = min(due.failures + 1, 16)
        if due.reason != error.message:
            level = logging.INFO if isinstance(error, EventPending | TreeSizeNotFound) else logging.WARNING
            logger.log(level, "enclave %s is not registered as yours yet: %s", enclave.hex(), error.message)
        due.reason = error.message
        self._stored.add(enclave)

    def _due(self, enclave: bytes) -> _Due:
        due = self._known.get(enclave)
        if due is None:
            due = self._known[enclave] = _Due(seq=0 if self._stored.has(enclave) else -1)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)
        return due


def _transfers(commit: Commit) -> bool:
    """Return whether it may transfer the ownership."""
    return commit.type in _GIVEN or (commit.type == "AC_Bundle" and '"Transfer"' in (commit.content or ""))
