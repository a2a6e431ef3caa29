"""The messages of a signer: what it answers, and what it refuses."""

import random

import pytest

from enc.core.primitives.signing import PrivateKey, check_ecdsa, check_schnorr
from enc.runtime.keys import signer_wire as wire
from tests.tiers import rounds

KEY, OTHER = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)


def asked(operation: int, body: bytes) -> tuple[int, bytes]:
    """Return the status and the body of an answer."""
    found = wire.answer(KEY, bytes((operation,)) + body)
    assert len(found) <= wire.MAX_ANSWER
    return found[0], found[1:]


def test_every_operation_is_that_of_the_key() -> None:
    digests = [bytes([i]) * 32 for i in range(3)]
    assert asked(wire.PUBLIC, b"") == (wire.DONE, KEY.public)
    assert asked(wire.ECDH, OTHER.public) == (wire.DONE, OTHER.ecdh(KEY.public))
    assert asked(wire.DERIVE, b"a label") == (wire.DONE, KEY.derive("a label"))
    for operation, check in ((wire.SCHNORR, check_schnorr), (wire.ECDSA, check_ecdsa)):
        status, found = asked(operation, b"".join(digests))
        assert (status, len(found)) == (wire.DONE, 3 * 64)
        for i, digest in enumerate(digests):
            check(KEY.public, digest, found[64 * i : 64 * i + 64])


@pytest.mark.parametrize(
    ("operation", "body", "why"),
    [
        (wire.SCHNORR, b"", "digests: expected 32 bytes each"),
        (wire.ECDSA, bytes(33), "digests: expected 32 bytes each"),
        (wire.ECDH, bytes(32), "public key: not a point"),
        (wire.ECDH, b"", "public key: not a point"),
        (wire.DERIVE, b"\xff", "label: not UTF-8"),
        (9, b"", "unknown operation"),
    ],
)
def test_what_it_refuses(operation: int, body: bytes, why: str) -> None:
    status, text = asked(operation, body)
    assert status == wire.REFUSED
    assert text.decode().startswith(why)


@pytest.mark.sweep
def test_any_bytes_get_an_answer_without_the_key() -> None:
    source = random.Random(7)
    for _ in range(rounds(2000)):
        request = source.randbytes(source.choice((0, 1, 2, 33, 34, 65, 300)))
        assert KEY.secret not in wire.answer(KEY, request)
