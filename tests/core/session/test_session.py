"""Sessions: a token's time and owner, the keys that follow from it, and what is sealed under them."""

import pickle
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enc.core.errors import DecryptFailed, EncError, InvalidSession, MisuseError, SessionExpired
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.sealing import open_sealed, open_text, push_key, seal, seal_text, shared_key
from enc.core.primitives.signing import CURVE_ORDER, PrivateKey, add_multiple
from enc.core.session.session import (
    Token,
    TransportKeys,
    check_token,
    client_keys,
    node_keys,
    open_session,
    parse_token,
)
from tests.core.strategies import examples, flips, hashes
from tests.core.vectors import KEYS

ALICE, BOB, NODE, OTHER = KEYS["alice"], KEYS["bob"], KEYS["node"], KEYS["node2"]
ENCLAVE, FOREIGN = b"\x0e" * 32, b"\x0f" * 32
EXPIRES = 1_790_000_000
SESSION = open_session(ALICE, EXPIRES)
TOKEN = SESSION.token
NONCE = bytes(range(24))

private_keys = st.integers(1, CURVE_ORDER - 1).map(lambda number: PrivateKey(number.to_bytes(32, "big")))


# The token


@examples()
@given(private_keys, st.integers(0, 2**32 - 1))
def test_a_token_is_its_identitys_and_its_key_fits(identity: PrivateKey, expires: int) -> None:
    session = open_session(identity, expires)
    check_token(session.token, identity.public, expires)
    sig = identity.sign_schnorr(sha256(b"enc:session:" + expires.to_bytes(4, "big")).digest())
    assert session.from_ == identity.public
    assert session.token.r == sig[:32]
    assert session.token.session_pub == session.key.public
    s = int.from_bytes(sig[32:], "big")
    assert int.from_bytes(session.key.secret, "big") in (s, CURVE_ORDER - s)
    assert parse_token(session.token.hex()) == session.token
    assert open_session(identity, expires).token == session.token


@pytest.mark.parametrize("late", [-7260, -7200, -1, 0, 1, 59])
def test_a_token_holds_from_two_hours_before_to_a_minute_after(late: int) -> None:
    check_token(TOKEN, ALICE.public, EXPIRES + late)


@pytest.mark.parametrize("late", [60, 61, 7200, 10**9])
def test_a_token_past_its_time_is_expired(late: int) -> None:
    with pytest.raises(SessionExpired):
        check_token(TOKEN, ALICE.public, EXPIRES + late)


@pytest.mark.parametrize("early", [7261, 7262, 10**9])
def test_a_token_for_longer_than_two_hours_is_refused(early: int) -> None:
    with pytest.raises(InvalidSession):
        check_token(TOKEN, ALICE.public, EXPIRES - early)


def test_a_token_at_the_ends_of_its_clock() -> None:
    check_token(open_session(ALICE, 2**32 - 1).token, ALICE.public, 2**32 - 1)
    check_token(open_session(ALICE, 0).token, ALICE.public, 0)
    for expires in (-1, 2**32, 2**40):
        with pytest.raises(MisuseError):
            open_session(ALICE, expires)


@pytest.mark.parametrize(
    "identity",
    [BOB.public, NODE.public, (5).to_bytes(32, "big"), bytes(32), b"\xff" * 32, TOKEN.session_pub, TOKEN.r],
    ids=["bob", "node", "no point", "zeros", "ones", "session_pub", "r"],
)
def test_a_token_is_no_other_identitys(identity: bytes) -> None:
    with pytest.raises(InvalidSession):
        check_token(TOKEN, identity, EXPIRES)


def test_every_bit_of_a_token_counts() -> None:
    for changed in flips(bytes.fromhex(TOKEN.hex())):
        token = parse_token(changed.hex())
        with pytest.raises((InvalidSession, SessionExpired)):
            check_token(token, ALICE.public, EXPIRES)
        # Within the token's time only the equation can reject it.
        with pytest.raises(InvalidSession):
            check_token(token, ALICE.public, token.expires)


def test_the_time_in_a_token_cannot_be_moved() -> None:
    for expires in (EXPIRES - 1, EXPIRES + 1, EXPIRES + 7000):
        with pytest.raises(InvalidSession):
            check_token(Token(TOKEN.r, TOKEN.session_pub, expires), ALICE.public, EXPIRES)


def test_a_token_that_anyone_can_compute_passes_the_check_so_only_the_keys_prove_the_identity() -> None:
    """Any r gives a session_pub that fits; its private key is what the forger lacks.

    A token alone therefore authenticates nobody: a request counts only once its content opens under the session's keys.
    """
    challenge = sha256(b"BIP0340/challenge").digest()
    message = sha256(b"enc:session:" + EXPIRES.to_bytes(4, "big")).digest()
    e = int.from_bytes(sha256(challenge * 2 + BOB.public + ALICE.public + message).digest(), "big") % CURVE_ORDER
    point = add_multiple(BOB.public, e.to_bytes(32, "big"), ALICE.public)
    assert point is not None
    forged = Token(BOB.public, point[1:], EXPIRES)
    check_token(forged, ALICE.public, EXPIRES)
    keys = node_keys(forged, NODE, ENCLAVE)
    for known in (open_session(BOB, EXPIRES), SESSION):
        assert client_keys(known, NODE.public, ENCLAVE) != keys


@pytest.mark.parametrize(
    "text",
    [
        "",
        TOKEN.hex()[:-1],
        TOKEN.hex()[:-2],
        TOKEN.hex() + "0",
        TOKEN.hex() + "00",
        TOKEN.hex().upper(),
        "0x" + TOKEN.hex()[2:],
        " " + TOKEN.hex(),
        TOKEN.hex() + "\n",
        "g" * 136,
        "\u0660" * 136,
        TOKEN.hex().encode(),
        bytes.fromhex(TOKEN.hex()),
        None,
        5,
        True,
        [TOKEN.hex()],
        {"session": TOKEN.hex()},
    ],
    ids=range(18),
)
def test_a_token_has_one_spelling(text: object) -> None:
    with pytest.raises(InvalidSession, match=r"^session: "):
        parse_token(text)


def test_the_layout_of_a_token() -> None:
    raw = bytes.fromhex(TOKEN.hex())
    assert len(raw) == 68
    assert raw == TOKEN.r + TOKEN.session_pub + EXPIRES.to_bytes(4, "big")


# Keys


@examples(50)
@given(private_keys, private_keys, hashes, st.integers(0, 2**32 - 1))
def test_client_and_node_derive_the_same_keys(
    identity: PrivateKey, node: PrivateKey, enclave: bytes, expires: int
) -> None:
    session = open_session(identity, expires)
    keys = client_keys(session, node.public, enclave)
    assert keys == node_keys(session.token, node, enclave)
    assert len({keys.query, keys.response}) == 2
    assert len(keys.query) == len(keys.response) == 32


def test_keys_differ_by_enclave_node_session_and_direction() -> None:
    found = []
    for identity in (ALICE, BOB):
        for expires in (EXPIRES, EXPIRES + 1):
            for node in (NODE, OTHER):
                for enclave in (ENCLAVE, FOREIGN):
                    keys = client_keys(open_session(identity, expires), node.public, enclave)
                    found += [keys.query, keys.response]
    assert len(set(found)) == len(found) == 32
    assert push_key(NODE, ALICE.public) not in found


def test_a_node_cannot_derive_the_keys_of_another_node() -> None:
    assert node_keys(TOKEN, OTHER, ENCLAVE) != client_keys(SESSION, NODE.public, ENCLAVE)


def test_what_is_no_point_gives_no_keys() -> None:
    for public in ((5).to_bytes(32, "big"), bytes(32), b"\xff" * 32):
        with pytest.raises(InvalidSession):
            node_keys(Token(TOKEN.r, public, EXPIRES), NODE, ENCLAVE)
        with pytest.raises(EncError):
            client_keys(SESSION, public, ENCLAVE)


def test_a_signer_key_gives_away_the_session_key() -> None:
    """The tweak is public: this is why enclaves are not isolated from each other within a session."""
    tweak = int.from_bytes(sha256(TOKEN.session_pub + NODE.public + ENCLAVE).digest(), "big") % CURVE_ORDER
    signer = (int.from_bytes(SESSION.key.secret, "big") + tweak) % CURVE_ORDER
    keys = client_keys(SESSION, NODE.public, ENCLAVE)
    assert hkdf(PrivateKey(signer.to_bytes(32, "big")).ecdh(NODE.public), "enc:query") == keys.query
    recovered = PrivateKey(((signer - tweak) % CURVE_ORDER).to_bytes(32, "big"))
    assert recovered.secret == SESSION.key.secret


def test_push_keys_are_the_same_from_both_sides() -> None:
    assert push_key(NODE, ALICE.public) == push_key(ALICE, NODE.public)
    assert push_key(NODE, ALICE.public) == shared_key(ALICE, NODE.public, "enc:push")
    assert push_key(NODE, ALICE.public) != push_key(NODE, BOB.public) != push_key(OTHER, BOB.public)


def test_labels_separate_keys() -> None:
    labels = ["enc:query", "enc:response", "enc:push", "enc:query\x00", ""]
    assert len({hkdf(b"secret", label) for label in labels}) == len(labels)
    assert hkdf(b"secret", "l", 64)[:32] == hkdf(b"secret", "l")


# Secrets are not printed


def test_no_repr_shows_a_secret() -> None:
    keys = client_keys(SESSION, NODE.public, ENCLAVE)
    secrets = [SESSION.key.secret, ALICE.secret, keys.query, keys.response]
    for thing in (SESSION, keys, SESSION.key, [SESSION, keys], {"session": SESSION}, TOKEN):
        for text in (repr(thing), str(thing), f"{thing}", f"{thing!r}"):
            for secret in secrets:
                assert secret.hex() not in text
                assert repr(secret)[2:-1] not in text
    assert SESSION.from_.hex() in repr(SESSION)


def test_a_session_is_not_pickled() -> None:
    with pytest.raises(MisuseError):
        pickle.dumps(SESSION)


def test_a_failure_to_open_names_neither_key_nor_content() -> None:
    key, sealed = b"\x5a" * 32, seal(b"\xa5" * 32, b"plain secret", NONCE)
    with pytest.raises(DecryptFailed) as caught:
        open_sealed(key, sealed)
    assert key.hex() not in str(caught.value)
    assert sealed.hex() not in str(caught.value)
    assert caught.value.__suppress_context__


# Sealing

KEY = sha256(b"key").digest()


@examples()
@given(hashes, st.binary(max_size=300), st.binary(min_size=24, max_size=24))
def test_what_is_sealed_opens(key: bytes, plaintext: bytes, nonce: bytes) -> None:
    sealed = seal(key, plaintext, nonce)
    assert sealed[:24] == nonce
    assert len(sealed) == len(plaintext) + 40
    assert open_sealed(key, sealed) == plaintext
    assert open_text(key, seal_text(key, plaintext, nonce)) == plaintext


def test_every_bit_of_what_is_sealed_counts() -> None:
    sealed = seal(KEY, b"hello", NONCE)
    for changed in flips(sealed):
        with pytest.raises(DecryptFailed):
            open_sealed(KEY, changed)
    for changed in flips(KEY):
        with pytest.raises(DecryptFailed):
            open_sealed(changed, sealed)


def test_what_is_cut_or_too_short_does_not_open() -> None:
    sealed = seal(KEY, b"hello", NONCE)
    for size in range(len(sealed)):
        with pytest.raises(DecryptFailed):
            open_sealed(KEY, sealed[:size])
    with pytest.raises(DecryptFailed):
        open_sealed(KEY, sealed + b"\x00")
    empty = seal(KEY, b"", NONCE)
    assert len(empty) == 40
    assert open_sealed(KEY, empty) == b""
    with pytest.raises(DecryptFailed):
        open_sealed(KEY, empty[:-1])


@pytest.mark.parametrize("text", ["", "AA", "AAAA", "A" * 60, "-_" * 40, None, 5, [], b"AAAA", " "], ids=repr)
def test_sealed_text_is_standard_base64(text: object) -> None:
    with pytest.raises(DecryptFailed):
        open_text(KEY, text)


def test_other_spellings_of_sealed_text_are_refused() -> None:
    text = seal_text(KEY, b"hell", NONCE)
    assert text.endswith("=")
    for other in (
        text.rstrip("="),
        text + "=",
        text + "\n",
        " " + text,
        text.replace("+", "-").replace("/", "_") + " ",
    ):
        with pytest.raises(DecryptFailed):
            open_text(KEY, other)


@pytest.mark.parametrize("size", [0, 12, 23, 25, 32])
def test_a_nonce_of_another_length_is_misuse(size: int) -> None:
    with pytest.raises(MisuseError):
        seal(KEY, b"", bytes(size))


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_sealing_with_a_key_of_another_length_is_misuse(size: int) -> None:
    with pytest.raises(MisuseError):
        seal(bytes(size), b"", NONCE)


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_opening_with_a_key_of_another_length_is_misuse(size: int) -> None:
    with pytest.raises(MisuseError):
        open_sealed(bytes(size), seal(KEY, b"", NONCE))


def test_the_directions_do_not_open_each_other() -> None:
    keys = client_keys(SESSION, NODE.public, ENCLAVE)
    swapped = TransportKeys(keys.response, keys.query)
    for one, other in ((keys, swapped), (swapped, keys)):
        with pytest.raises(DecryptFailed):
            open_sealed(other.query, seal(one.query, b"x", NONCE))
