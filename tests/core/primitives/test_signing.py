"""Keys and the two signature schemes, partly against plain integer arithmetic on the curve."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import InvalidCommit, InvalidProof, InvalidSignature, MisuseError
from enc.core.primitives.signing import (
    CURVE_ORDER,
    PrivateKey,
    add_generator,
    add_multiple,
    check_ecdsa,
    check_ecdsa_point,
    check_public_key,
    check_schnorr,
    check_signature,
    is_public_key,
)
from tests.core.strategies import examples, flips, hashes
from tests.core.vectors import KEYS

N = CURVE_ORDER
P = 2**256 - 2**32 - 977
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
DIGEST = bytes(range(32))
ALICE, BOB = KEYS["alice"], KEYS["bob"]

Point = tuple[int, int] | None


def add(a: Point, b: Point) -> Point:
    if a is None or b is None:
        return b if a is None else a
    if a[0] == b[0] and (a[1] + b[1]) % P == 0:
        return None
    slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, P) if a == b else (b[1] - a[1]) * pow(b[0] - a[0], -1, P)
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def affine(scalar: int) -> tuple[int, int]:
    """Return the point of a private key, which is never the point at infinity."""
    point = times(G, scalar)
    assert point is not None
    return point


def times(point: Point, scalar: int) -> Point:
    found: Point = None
    while scalar:
        if scalar & 1:
            found = add(found, point)
        point, scalar = add(point, point), scalar >> 1
    return found


def compressed(point: Point) -> bytes | None:
    return None if point is None else bytes([2 + point[1] % 2]) + be(point[0])


def be(number: int) -> bytes:
    return number.to_bytes(32, "big")


def number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


scalars = st.integers(1, N - 1) | st.sampled_from([1, 2, 3, N // 2, N // 2 + 1, N - 2, N - 1])
keys = scalars.map(lambda scalar: PrivateKey(be(scalar)))


# Keys


@examples()
@given(scalars)
def test_a_private_key_is_kept_in_even_form(scalar: int) -> None:
    key, (x, y) = PrivateKey(be(scalar)), affine(scalar)
    assert key.public == be(x)
    assert number(key.secret) == (scalar if y % 2 == 0 else N - scalar)
    assert affine(number(key.secret))[1] % 2 == 0


@examples()
@given(scalars, hashes)
def test_a_key_and_its_negative_are_the_same_identity(scalar: int, digest: bytes) -> None:
    one, other = PrivateKey(be(scalar)), PrivateKey(be(N - scalar))
    assert (one.public, one.secret) == (other.public, other.secret)
    assert one.sign_schnorr(digest) == other.sign_schnorr(digest)
    assert one.sign_ecdsa(digest) == other.sign_ecdsa(digest)
    assert one.ecdh(BOB.public) == other.ecdh(BOB.public)


@pytest.mark.parametrize("secret", [be(0), be(N), be(N + 1), be(2**256 - 1)], ids=["0", "n", "n+1", "2^256-1"])
def test_a_secret_outside_1_to_n_minus_1_is_misuse(secret: bytes) -> None:
    with pytest.raises(MisuseError):
        PrivateKey(secret)


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
def test_a_secret_of_another_length_is_misuse(size: int) -> None:
    with pytest.raises(MisuseError):
        PrivateKey(b"\x01" * size)


def test_a_refused_secret_is_not_in_the_message() -> None:
    secret = b"\xab" * 31
    with pytest.raises(MisuseError) as caught:
        PrivateKey(secret)
    assert secret.hex() not in str(caught.value)
    assert repr(secret) not in str(caught.value)


def test_repr_shows_the_identity_and_no_secret() -> None:
    assert ALICE.public.hex() in repr(ALICE)
    for text in (repr(ALICE), str(ALICE), f"{ALICE}", repr([ALICE]), repr({"key": ALICE})):
        assert ALICE.secret.hex() not in text
        assert repr(ALICE.secret) not in text


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_key_is_not_pickled(protocol: int) -> None:
    with pytest.raises(MisuseError):
        pickle.dumps(ALICE, protocol)
    with pytest.raises(MisuseError):
        pickle.dumps({"inside": [ALICE]}, protocol)


def test_a_key_is_not_copied_by_the_way_of_pickling() -> None:
    with pytest.raises(MisuseError):
        copy.deepcopy(ALICE)


def test_which_32_bytes_are_public_keys() -> None:
    assert is_public_key(ALICE.public)
    assert is_public_key(be(G[0]))
    off_curve = [x for x in range(1, 60) if pow(x**3 + 7, (P - 1) // 2, P) != 1]
    on_curve = [x for x in range(1, 60) if x not in off_curve]
    assert len(off_curve) > 10
    assert len(on_curve) > 10
    assert all(is_public_key(be(x)) for x in on_curve)
    assert not any(is_public_key(be(x)) for x in off_curve)


@pytest.mark.parametrize(
    "public",
    [
        be(0),
        be(P),
        be(P + 1),
        be(2**256 - 1),
        b"",
        ALICE.public[:-1],
        ALICE.public + b"\x00",
        b"\x02" + ALICE.public,
        b"\x04" + bytes(64),
    ],
    ids=["0", "p", "p + 1", "2^256-1", "empty", "31 bytes", "33 bytes", "compressed", "uncompressed"],
)
def test_what_is_no_public_key(public: bytes) -> None:
    assert not is_public_key(public)
    with pytest.raises(InvalidCommit, match=r"^from: "):
        check_public_key(public, "from")
    with pytest.raises(InvalidProof, match=r"^sequencer: "):
        check_public_key(public, "sequencer", InvalidProof)


def test_check_public_key_passes_a_point() -> None:
    check_public_key(ALICE.public, "from")


# Signatures


@examples()
@given(keys, hashes)
def test_signatures_check_and_are_deterministic(key: PrivateKey, digest: bytes) -> None:
    again = PrivateKey(key.secret)
    for alg in ("schnorr", "ecdsa"):
        sig = key.sign(alg, digest)
        assert len(sig) == 64
        assert sig == again.sign(alg, digest)
        check_signature(alg, key.public, digest, sig)
    check_schnorr(key.public, digest, key.sign_schnorr(digest))
    check_ecdsa(key.public, digest, key.sign_ecdsa(digest))
    check_ecdsa_point(b"\x02" + key.public, digest, key.sign_ecdsa(digest))


@examples()
@given(keys, hashes)
def test_ecdsa_signatures_have_a_low_s_and_a_high_one_is_refused(key: PrivateKey, digest: bytes) -> None:
    sig = key.sign_ecdsa(digest)
    s = number(sig[32:])
    assert 1 <= s <= N // 2
    with pytest.raises(InvalidSignature):
        check_ecdsa(key.public, digest, sig[:32] + be(N - s))


@examples()
@given(keys, hashes)
def test_no_scheme_takes_the_other_ones_signature(key: PrivateKey, digest: bytes) -> None:
    with pytest.raises(InvalidSignature):
        check_signature("ecdsa", key.public, digest, key.sign_schnorr(digest))
    with pytest.raises(InvalidSignature):
        check_signature("schnorr", key.public, digest, key.sign_ecdsa(digest))


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_every_single_bit_counts(alg) -> None:
    sig = ALICE.sign(alg, DIGEST)
    for changed in flips(sig):
        with pytest.raises(InvalidSignature):
            check_signature(alg, ALICE.public, DIGEST, changed)
    for changed in flips(DIGEST):
        with pytest.raises(InvalidSignature):
            check_signature(alg, ALICE.public, changed, sig)
    for changed in flips(ALICE.public):
        with pytest.raises(InvalidSignature):
            check_signature(alg, changed, DIGEST, sig)
    with pytest.raises(InvalidSignature):
        check_signature(alg, BOB.public, DIGEST, sig)


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
@pytest.mark.parametrize(
    "sig",
    [bytes(64), b"\xff" * 64, be(N) + be(1), be(1) + be(N), be(0) + be(1), be(1) + be(0), be(P) + be(1)],
    ids=["zeros", "ones", "r = n", "s = n", "r = 0", "s = 0", "r = p"],
)
def test_signatures_out_of_range_are_refused(alg, sig: bytes) -> None:
    with pytest.raises(InvalidSignature):
        check_signature(alg, ALICE.public, DIGEST, sig)


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_wrong_lengths_are_refused(alg) -> None:
    sig = ALICE.sign(alg, DIGEST)
    for wrong in (b"", sig[:-1], sig[:32], sig + b"\x00", sig * 2):
        with pytest.raises(InvalidSignature):
            check_signature(alg, ALICE.public, DIGEST, wrong)
    for wrong in (b"", DIGEST[:-1], DIGEST + b"\x00"):
        with pytest.raises(InvalidSignature):
            check_signature(alg, ALICE.public, wrong, sig)
    for wrong in (b"", ALICE.public[:-1], ALICE.public + b"\x00", b"\x02" + ALICE.public):
        with pytest.raises(InvalidSignature):
            check_signature(alg, wrong, DIGEST, sig)
    for size in (0, 31, 33):
        with pytest.raises(MisuseError):
            ALICE.sign(alg, bytes(size))


@pytest.mark.parametrize("size", [0, 1, 31, 32, 34, 65])
def test_an_ecdsa_key_is_a_compressed_point(size: int) -> None:
    with pytest.raises(InvalidSignature):
        check_ecdsa_point((b"\x02" + ALICE.public + bytes(32))[:size], DIGEST, ALICE.sign_ecdsa(DIGEST))


def test_ecdsa_is_checked_against_the_even_point() -> None:
    sig = ALICE.sign_ecdsa(DIGEST)
    with pytest.raises(InvalidSignature):
        check_ecdsa_point(b"\x03" + ALICE.public, DIGEST, sig)


def test_a_key_that_is_no_point_fails_as_a_signature() -> None:
    for alg in ("schnorr", "ecdsa"):
        with pytest.raises(InvalidSignature):
            check_signature(alg, be(5), DIGEST, ALICE.sign(alg, DIGEST))


# ECDH and points


@examples(50)
@given(scalars, scalars)
def test_ecdh_is_symmetric_and_is_the_x_coordinate(one: int, other: int) -> None:
    a, b = PrivateKey(be(one)), PrivateKey(be(other))
    assert a.ecdh(b.public) == b.ecdh(a.public)
    assert a.ecdh(b.public) == be(affine(one * other % N)[0])
    assert a.ecdh(b"\x02" + b.public) == a.ecdh(b"\x03" + b.public) == a.ecdh(b.public)


@pytest.mark.parametrize(
    "public",
    [b"", be(0), be(5), be(P), ALICE.public[:-1], b"\x02" + be(5), b"\x04" + ALICE.public, b"\x00" * 33, bytes(65)],
    ids=repr,
)
def test_ecdh_refuses_what_is_no_point(public: bytes) -> None:
    with pytest.raises(InvalidCommit):
        BOB.ecdh(public)


@examples(50)
@given(keys, st.integers(0, N - 1) | st.sampled_from([0, 1, N - 1]))
def test_add_generator_is_scalar_arithmetic(key: PrivateKey, scalar: int) -> None:
    total = (number(key.secret) + scalar) % N
    assert add_generator(key.public, be(scalar)) == compressed(times(G, total))
    if total:
        assert (add_generator(key.public, be(scalar)) or b"")[1:] == PrivateKey(be(total)).public


@examples(50)
@given(keys, st.integers(1, N - 1), keys)
def test_add_multiple_is_scalar_arithmetic(base: PrivateKey, scalar: int, key: PrivateKey) -> None:
    total = (number(base.secret) + scalar * number(key.secret)) % N
    assert add_multiple(base.public, be(scalar), key.public) == compressed(times(G, total))
    if total:
        assert (add_multiple(base.public, be(scalar), key.public) or b"")[1:] == PrivateKey(be(total)).public


def test_no_point_where_the_sum_is_infinity() -> None:
    assert add_generator(ALICE.public, be(N - number(ALICE.secret))) is None
    assert add_multiple(ALICE.public, be(N - 1), ALICE.public) is None


def test_no_point_where_an_argument_is_none() -> None:
    assert add_generator(be(5), be(1)) is None
    assert add_generator(ALICE.public, be(N)) is None
    assert add_multiple(be(5), be(1), ALICE.public) is None
    assert add_multiple(ALICE.public, be(1), be(5)) is None
    assert add_multiple(ALICE.public, be(0), ALICE.public) is None
    assert add_multiple(ALICE.public, be(N), ALICE.public) is None
    assert add_multiple(ALICE.public[:-1], be(1), ALICE.public) is None
    assert add_multiple(ALICE.public, be(1), ALICE.public + b"\x00") is None


def test_a_point_added_to_itself() -> None:
    double = compressed(times(G, 2 * number(ALICE.secret) % N))
    assert add_multiple(ALICE.public, be(1), ALICE.public) == double


@pytest.mark.parametrize("size", [31, 33])
def test_a_scalar_of_another_length_is_refused(size: int) -> None:
    scalar = b"\x01" * size
    with pytest.raises(MisuseError):
        add_generator(ALICE.public, scalar)
    with pytest.raises(MisuseError):
        add_multiple(ALICE.public, scalar, BOB.public)
