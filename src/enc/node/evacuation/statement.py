"""The node's signed request that owners move their enclaves to another node, kept in a file."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock

import structlog
from msgspec import Struct
from msgspec.json import Decoder, encode

from enc.core.errors import InvalidProof, MisuseError, Unavailable
from enc.core.primitives.encoding import decode_json
from enc.core.primitives.signer import Signer
from enc.core.registry.evacuation import (
    Evacuation,
    WireEvacuation,
    check_evacuation,
    parse_evacuation,
    sign_evacuation,
    wire_evacuation,
)
from enc.runtime.files import write_atomic

_log = structlog.get_logger("enc.evacuation")


class _Stored(Struct):
    evacuation: WireEvacuation
    source: str


_stored = Decoder(_Stored)


class EvacuationStatement:
    """`current` is what the node states in `/info`, or None. For any thread."""

    def __init__(self, path: Path, key: Signer, clock: Callable[[], int]) -> None:
        """`path`: the file, which exists while the node is evacuated; `clock`: Unix milliseconds."""
        self._path, self._key, self._clock, self._lock = path, key, clock, Lock()
        self.current: Evacuation | None = None
        self.source = ""
        """URL at which the destination reaches this node."""
        self._load()

    def _load(self) -> None:
        try:
            stored = decode_json(self._path.read_bytes(), _stored, InvalidProof)
            found = parse_evacuation(encode(stored.evacuation))
            check_evacuation(found, self._key.public)
        except FileNotFoundError:
            return
        except (OSError, InvalidProof) as e:
            _log.error("evacuation_unreadable", file=str(self._path), reason=str(e), todo="enc node evacuate")
            return
        self.current, self.source = found, stored.source

    def now(self) -> int:
        """Return the node's time in Unix milliseconds."""
        return self._clock()

    def start(self, to: str, to_key: bytes, source: str, deadline: int = 0) -> Evacuation:
        """Sign the statement, store it and return it. A new one for the same node keeps `since`."""
        now = self._clock()
        if deadline and deadline <= now:
            raise MisuseError("deadline: is in the past; give a later date")
        with self._lock:
            before = self.current
            since = now if before is None or before.to_key != to_key else before.since
            found = sign_evacuation(self._key, to, to_key, since, deadline)
            data = encode({"evacuation": wire_evacuation(found), "source": source})
            try:
                write_atomic(self._path, data)
            except OSError as e:
                raise Unavailable(f"{self._path}: cannot be written: {e.strerror}") from None
            self.current, self.source = found, source
        _log.warning("evacuation_started", to=to, to_key=to_key.hex(), deadline=deadline or None)
        return found

    def stop(self) -> bool:
        """Withdraw the statement; return whether there was one."""
        with self._lock:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as e:
                raise Unavailable(f"{self._path}: cannot be removed: {e.strerror}") from None
            was, self.current = self.current is not None, None
        if was:
            _log.warning("evacuation_stopped")
        return was

    def may_copy(self, identity: bytes) -> bool:
        """Return whether an identity may export every log: only the node that the statement names."""
        current = self.current
        return current is not None and current.to_key == identity
