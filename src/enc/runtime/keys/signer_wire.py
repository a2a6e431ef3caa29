"""The messages between a signer process and the programs that it signs for.

    request  length(4, of the rest) || operation(1) || body
    answer   length(4, of the rest) || status(1) || body

    operation  body                              body of the answer
    public     nothing                           the public key, 32 bytes
    schnorr    up to 1024 digests of 32 bytes    as many signatures of 64 bytes
    ecdsa      the same                          the same
    ecdh       a public key of 32 or 33 bytes    the shared x-coordinate, 32 bytes
    derive     a label, up to 255 bytes UTF-8    the derived secret, 32 bytes

Answers come in the order of the requests, and a peer may send requests before it has the answers to
earlier ones. Status 0: done; 1: refused, with the reason as text.
"""

from collections.abc import Callable, Mapping

from enc.core.errors import EncError, MisuseError
from enc.core.primitives.signer import Signer
from enc.core.primitives.signing import Alg
from enc.runtime.unix_sockets import frames

PUBLIC, SCHNORR, ECDSA, ECDH, DERIVE = range(5)
DONE, REFUSED = range(2)
DIGEST, SIGNATURE = 32, 64
MAX_DIGESTS = 1024
MAX_LABEL = 255
MAX_REQUEST, MAX_ANSWER = 1 + MAX_DIGESTS * DIGEST, 1 + MAX_DIGESTS * SIGNATURE
"""Most bytes after the length."""


def message(kind: int, body: bytes) -> bytes:
    """Return a request or an answer, without its length."""
    return bytes((kind,)) + body


def framed(kind: int, body: bytes) -> bytes:
    """Return a request or an answer."""
    return frames.framed(message(kind, body))


def answer(key: Signer, request: bytes) -> bytes:
    """Return the answer to a request, both without their lengths."""
    operation = _OPERATIONS.get(request[0]) if request else None
    try:
        if operation is None:
            raise MisuseError("unknown operation")
        return message(DONE, operation(key, request[1:]))
    except EncError as e:
        return message(REFUSED, e.message.encode())


def _signatures(alg: Alg) -> Callable[[Signer, bytes], bytes]:
    def sign(key: Signer, digests: bytes) -> bytes:
        if not digests or len(digests) % DIGEST:
            raise MisuseError("digests: expected 32 bytes each")
        return b"".join(key.sign(alg, digests[i : i + DIGEST]) for i in range(0, len(digests), DIGEST))

    return sign


def _derive(key: Signer, label: bytes) -> bytes:
    try:
        return key.derive(label.decode())
    except UnicodeDecodeError:
        raise MisuseError("label: not UTF-8") from None


def _public(key: Signer, body: bytes) -> bytes:
    return key.public


def _ecdh(key: Signer, public: bytes) -> bytes:
    return key.ecdh(public)


_OPERATIONS: Mapping[int, Callable[[Signer, bytes], bytes]] = {
    PUBLIC: _public,
    SCHNORR: _signatures("schnorr"),
    ECDSA: _signatures("ecdsa"),
    ECDH: _ecdh,
    DERIVE: _derive,
}
