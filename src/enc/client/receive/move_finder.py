"""Finds out for a receiver whether an enclave has moved, without a push of the Migrate.

A registry's entry holds the Migrates. A peaceful one is the last event that the former node signed, so
it proves the move as if it had been pushed. Otherwise the new node must prove by its log how it got the
enclave; that needs the right to read there.
"""

from collections.abc import Sequence
from threading import Lock

from enc.client.clients.client import Client
from enc.client.clients.wiring import ClientSettings
from enc.client.errors import Distrust, ForeignSequencer
from enc.client.keys.identity import Identity
from enc.client.registry.registry_client import Registry, Resolution
from enc.client.verify.log_verifier import LogVerifier
from enc.client.verify.pins import Pin, Pins
from enc.client.verify.sequencer_history import History
from enc.core.errors import PeerError, WorldError
from enc.core.primitives.types import Event


class MoveFinder:
    """Stores the moves that it finds in the pins. Safe to use from several threads."""

    def __init__(self, identity: Identity, pins: Pins, registry: Registry | None, timeout: float) -> None:
        self._identity, self._pins, self._registry, self._timeout = identity, pins, registry, timeout
        self._client: Client | None = None
        self._lock = Lock()

    @property
    def has_registry(self) -> bool:
        return self._registry is not None

    def look_up(self, enclave: bytes) -> Resolution | None:
        """Return where the registry says that the enclave is; None if it does not say."""
        if self._registry is None:
            return None
        with self._lock:
            self._client = self._client or self._open(None, registry=self._registry)
        try:
            return self._client.resolve(enclave, fresh=True)
        except Distrust:
            raise
        except (PeerError, WorldError):
            return None

    def pin_moves(self, enclave: bytes, sequencer: bytes, migrates: Sequence[Event]) -> History:
        """Pin the Migrates that lead on from the known sequencer, as far as its own signature and
        those of its successors show; return the history as known then.

        Without a pin, `sequencer` is the known one.
        """
        pin = self._pin(enclave, sequencer)
        for event in migrates:
            if event.seq > pin.history.reach and event.sequencer == pin.history.sequencer:
                LogVerifier(enclave, event.sequencer, self._pins).verify_events([event], b"")
                pin = self._pin(enclave, sequencer)
        return pin.history

    def is_proved_by(self, url: str, seq_pub: bytes, enclave: bytes, sequencer: bytes) -> bool:
        """Whether the node at this URL proves that the enclave moved there from a known sequencer."""
        self._pin(enclave, sequencer)
        try:
            with self._open(url, seq_pub=seq_pub) as client:
                client.enclave(enclave).head()
        except ForeignSequencer:  # perhaps only because this identity may not read there
            return False
        except Distrust:
            raise
        except (PeerError, WorldError):
            return False
        return self._pin(enclave, sequencer).history.knows(seq_pub)

    def close(self) -> None:
        with self._lock:
            if self._client is not None:
                self._client.close()

    def _pin(self, enclave: bytes, sequencer: bytes) -> Pin:
        pin = self._pins.load(enclave)
        if pin is None:
            pin = Pin(sequencer, None)
            self._pins.store(enclave, pin)
        return pin

    def _open(self, url: str | None, *, seq_pub: bytes | None = None, registry: Registry | None = None) -> Client:
        return Client(
            url,
            self._identity,
            seq_pub=seq_pub,
            pins=self._pins,
            timeout=self._timeout,
            patience=0.0,
            registry=registry,
            settings=ClientSettings(uses_recorded=False, auto_register=False),
        )
