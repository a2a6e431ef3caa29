"""A signer in another process, behind a Unix socket: the side of the program that it signs for.

Each thread that uses it takes a connection of its own, so none waits for another. If the process
ends and another takes its place, the signer connects again: all operations are deterministic, so
repeating one does no harm. While no process answers, every operation fails at once, and a thread
tries to connect until one succeeds.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from enc.core.errors import EncError, InvalidCommit, MisuseError
from enc.core.primitives.signer import SignerUnavailable
from enc.core.primitives.signing import Alg, PrivateKey, is_public_key
from enc.runtime.keys import signer_wire as wire
from enc.runtime.unix_sockets import frames, unix_socket

TIMEOUT_S = 2.0
RETRY_S = 0.25
"""Pause between two attempts to reach a signer that does not answer."""
RETRY_AFTER_MS = 1000
"""Milliseconds after which callers should try again."""


class _Failed(Exception):
    """The signer did not answer, or not as one does. `is_stale`: its connection was closed."""

    def __init__(self, why: str, is_stale: bool = False) -> None:
        super().__init__(why)
        self.why, self.is_stale = why, is_stale


class _Connection:
    def __init__(self, path: Path, timeout_s: float) -> None:
        self._open, self._timeout_s = ExitStack(), timeout_s
        try:
            self._socket = self._open.enter_context(unix_socket.connect(path, timeout_s))
        except TimeoutError:
            raise _Failed(f"does not answer within {timeout_s:g} seconds") from None
        except OSError as e:
            raise _Failed(f"cannot be reached: {e.strerror or e}") from None

    def call(self, operation: int, body: bytes, size: int) -> bytes:
        """Return the answer's body of `size` bytes; raise _Failed, or MisuseError if it refuses."""
        try:
            answer = frames.exchange(self._socket, wire.message(operation, body), wire.MAX_ANSWER)
        except TimeoutError:
            raise _Failed(f"does not answer within {self._timeout_s:g} seconds") from None
        except OSError as e:
            raise _Failed(f"has closed the connection: {e.strerror or e}", is_stale=True) from None
        except EOFError:
            raise _Failed("has closed the connection", is_stale=True) from None
        except frames.NotAFrame:
            raise _Failed("does not speak the signer's protocol") from None
        if answer[0] == wire.REFUSED:
            raise MisuseError(f"signer: {answer[1:].decode(errors='replace')}")
        if answer[0] != wire.DONE or len(answer) != 1 + size:
            raise _Failed("does not speak the signer's protocol")
        return answer[1:]

    def close(self) -> None:
        self._open.close()

    __del__ = close  # identities are not closed, so their signers are not either


class SocketSigner:
    """Signs through the process that listens at `path` (`enc node signer`, `enc key signer`).

    The constructor connects; it raises SignerUnavailable if nothing answers. Afterwards every
    operation raises SignerUnavailable while no signer answers, or if one with another key does.
    """

    def __init__(
        self, path: Path | str, *, timeout_s: float = TIMEOUT_S, report: Callable[[str | None], None] | None = None
    ) -> None:
        """`timeout_s`: for one operation. `report`: called with the reason when the signer stops
        answering, and with None when it answers again.
        """
        self._path, self._timeout_s, self._report = Path(path), timeout_s, report
        self._idle: list[_Connection] = []
        self._failure: str | None = None
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._public = b""
        try:
            self._idle.append(self._connected())
        except _Failed as e:
            raise self._unavailable(e.why) from None

    @property
    def public(self) -> bytes:
        return self._public

    def sign(self, alg: Alg, digest: bytes, /) -> bytes:
        _check_digests(digest)
        return self._call(_operation(alg), digest, wire.SIGNATURE)

    def sign_all(self, alg: Alg, digests: Sequence[bytes], /) -> list[bytes]:
        """Sign each digest, many with one request."""
        _check_digests(*digests)
        found: list[bytes] = []
        for i in range(0, len(digests), wire.MAX_DIGESTS):
            part = digests[i : i + wire.MAX_DIGESTS]
            joined = self._call(_operation(alg), b"".join(part), wire.SIGNATURE * len(part))
            found += [joined[at : at + wire.SIGNATURE] for at in range(0, len(joined), wire.SIGNATURE)]
        return found

    def ecdh(self, public: bytes, /) -> bytes:
        if (
            len(public) not in (32, 33)
            or public[:-32] not in (b"", b"\x02", b"\x03")
            or not is_public_key(public[-32:])
        ):
            raise InvalidCommit("public key: not a point on secp256k1")
        return self._call(wire.ECDH, public, 32)

    def derive(self, label: str, /) -> bytes:
        encoded = label.encode()
        if len(encoded) > wire.MAX_LABEL:
            raise MisuseError(f"label: over {wire.MAX_LABEL} bytes")
        return self._call(wire.DERIVE, encoded, 32)

    def close(self) -> None:
        """Close the connections. Operations that follow open new ones."""
        self._closed.set()
        while (connection := self._take()) is not None:
            connection.close()

    def __repr__(self) -> str:
        return f"SocketSigner({self._path}, public={self.public.hex()})"

    def _call(self, operation: int, body: bytes, size: int) -> bytes:
        if self._failure is not None:
            raise self._unavailable(self._failure)
        try:
            connection = self._take()
            if connection is not None:
                return self._try(connection, operation, body, size)
        except _Failed as e:
            if not e.is_stale:
                raise self._failed(e.why) from None
        try:  # the process may have been replaced since the connection was opened
            return self._try(self._connected(), operation, body, size)
        except _Failed as e:
            raise self._failed(e.why) from None

    def _take(self) -> _Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _try(self, connection: _Connection, operation: int, body: bytes, size: int) -> bytes:
        try:
            answer = connection.call(operation, body, size)
        except MisuseError:
            self._idle.append(connection)
            raise
        except BaseException:  # also an interrupt: the answer would be taken for that to the next request
            connection.close()
            raise
        self._idle.append(connection)
        return answer

    def _connected(self) -> _Connection:
        """Return a new connection to a process that holds the private key of `public`."""
        connection = _Connection(self._path, self._timeout_s)
        try:
            public = connection.call(wire.PUBLIC, b"", 32)
            if self._public and public != self._public:
                raise _Failed(f"holds another key, {public.hex()}, than the one that this program started with")
            own = PrivateKey(secrets.token_bytes(32))
            if not is_public_key(public) or connection.call(wire.ECDH, own.public, 32) != own.ecdh(public):
                raise _Failed(f"does not hold the private key of {public.hex()}")
        except (_Failed, EncError) as e:
            connection.close()
            raise e if isinstance(e, _Failed) else _Failed(e.message) from None
        self._public = public
        return connection

    # While it does not answer

    def _unavailable(self, why: str) -> SignerUnavailable:
        return SignerUnavailable(f"the signer at {self._path} {why}", retry_after_ms=RETRY_AFTER_MS)

    def _failed(self, why: str) -> SignerUnavailable:
        """Let operations fail from now on until the signer answers again; return the error."""
        with self._lock:
            is_first = self._failure is None
            self._failure = why
        if is_first:
            if self._report is not None:
                self._report(why)
            threading.Thread(target=self._recover, name="signer", daemon=True).start()
        return self._unavailable(why)

    def _recover(self) -> None:
        while not self._closed.wait(RETRY_S):
            try:
                connection = self._connected()
            except _Failed as e:
                self._failure = e.why
                continue
            self._idle.append(connection)
            with self._lock:  # a thread in `_failed` would otherwise set a failure that nobody ends
                self._failure = None
            if self._report is not None:
                self._report(None)
            return


def _check_digests(*digests: bytes) -> None:
    if any(len(each) != wire.DIGEST for each in digests):
        raise MisuseError("a digest must be 32 bytes")


def _operation(alg: Alg) -> int:
    return wire.SCHNORR if alg == "schnorr" else wire.ECDSA
