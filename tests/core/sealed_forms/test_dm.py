"""Sealed forms of direct messages: the worked examples, and forms that must not open."""

import json
from hashlib import sha256
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import DecryptFailed, EncError, InvalidCommit, MisuseError
from enc.core.primitives.encoding import b64, unb64
from enc.core.primitives.sealing import seal_text, shared_key
from enc.core.primitives.signing import PrivateKey
from enc.core.sealed_forms import dm
from tests.core.vectors import KEYS, load

EXAMPLE = load("apps")["dm"]
ALICE, BOB, CAROL = KEYS["alice"], KEYS["bob"], PrivateKey(b"\x07" * 32)
SECRET, NONCE = bytes.fromhex(EXAMPLE["epoch_secret"]), bytes.fromhex(EXAMPLE["nonce"])
_numbers = count()


def nonce() -> bytes:
    return sha256(b"%d" % next(_numbers)).digest()[:24]


def hexed(text: str) -> str:
    return unb64(text, "text").hex()


def test_the_worked_example() -> None:
    assert hexed(dm.seal_epoch(ALICE, BOB.public, 0, SECRET, NONCE).encrypted_secret) == EXAMPLE["epoch_dist_to_bob"]
    assert hexed(dm.seal_epoch(ALICE, ALICE.public, 0, SECRET, NONCE).encrypted_secret) == EXAMPLE["epoch_dist_to_self"]
    chain = dm.EpochChain(SECRET)
    for i, (key, sealed) in enumerate(zip(EXAMPLE["message_keys"], EXAMPLE["messages"], strict=True)):
        assert chain.key(i).hex() == key
        content = json.loads(dm.seal_message(chain, 0, i, EXAMPLE["plaintext"].encode(), NONCE))
        assert hexed(content["ciphertext"]) == sealed
        assert dm.open_message(dm.EpochChain(SECRET), dm.parse_message(content)).decode() == EXAMPLE["plaintext"]
    assert dm.sent_key(ALICE, BOB.public).hex() == EXAMPLE["sent_key_to_bob"]
    greeting = dm.open_invite(BOB, ALICE.public, b64(bytes.fromhex(EXAMPLE["invite"])))
    assert hexed(dm.seal_invite(ALICE, BOB.public, greeting, NONCE)) == EXAMPLE["invite"]


def test_an_epoch_opens_for_its_two_ends_alone() -> None:
    epoch = dm.seal_epoch(ALICE, BOB.public, 4, SECRET, nonce())
    assert dm.open_epoch(BOB, epoch) == SECRET
    with pytest.raises(DecryptFailed):
        dm.open_epoch(CAROL, epoch)
    with pytest.raises(DecryptFailed):
        dm.open_epoch(BOB, replace(epoch, ecdh_pub=CAROL.public.hex()))
    own = dm.seal_epoch(ALICE, ALICE.public, 4, SECRET, nonce())
    assert dm.open_epoch(ALICE, own) == SECRET
    with pytest.raises(DecryptFailed):
        dm.open_epoch(BOB, own)


@pytest.mark.parametrize("pub", ["", "ff" * 32, "ab" * 31, ALICE.public.hex().upper()])
def test_an_epoch_names_a_key(pub: str) -> None:
    with pytest.raises(DecryptFailed, match="ecdh_pub"):
        dm.open_epoch(BOB, replace(dm.seal_epoch(ALICE, BOB.public, 0, SECRET, nonce()), ecdh_pub=pub))


def test_an_epoch_secret_is_32_bytes() -> None:
    with pytest.raises(MisuseError):
        dm.seal_epoch(ALICE, BOB.public, 0, SECRET + b"x", nonce())
    sealed = seal_text(shared_key(ALICE, BOB.public, dm.EPOCH_DIST), b"short", nonce())
    with pytest.raises(DecryptFailed, match="32 bytes"):
        dm.open_epoch(BOB, dm.SealedEpoch(0, sealed, ALICE.public.hex()))


def test_an_epoch_travels_in_a_content_and_in_a_tag() -> None:
    epoch = dm.seal_epoch(ALICE, BOB.public, 7, SECRET, nonce())
    assert dm.parse_epoch(json.loads(json.dumps(dm.wire_epoch(epoch)))) == epoch
    assert dm.parse_epoch_tag(dm.epoch_tag(epoch)) == epoch


@pytest.mark.parametrize(
    "tag", [(), ("epoch",), ("epoch", "0", "x"), ("epoch", "0", "x", "y", "z"), ("e", "0", "x", "y")]
)
def test_an_epoch_tag_has_four_parts(tag) -> None:
    with pytest.raises(InvalidCommit):
        dm.parse_epoch_tag(tag)


@pytest.mark.parametrize("n", ["", "-1", "01", "x", "1.0", " 1", "²", "9007199254740992", "9" * 5000])
def test_an_epoch_tags_number_has_one_spelling(n: str) -> None:
    with pytest.raises(InvalidCommit):
        dm.parse_epoch_tag(("epoch", n, "", ""))


@pytest.mark.parametrize("n", [-1, 2**53, "0", None, True, 1.5])
def test_numbers_are_bounded(n) -> None:
    with pytest.raises(InvalidCommit):
        dm.parse_epoch({"n": n, "encrypted_secret": "", "ecdh_pub": ""})
    for field in ("epoch", "sender_seq"):
        with pytest.raises(InvalidCommit):
            dm.parse_message({"epoch": 0, "sender_seq": 0, "ciphertext": "", field: n})


def test_each_message_has_a_key_of_its_own() -> None:
    chain = dm.EpochChain(SECRET)
    keys = [chain.key(i) for i in range(100)]
    assert len(set(keys)) == 100
    assert [dm.EpochChain(SECRET).key(i) for i in (99, 0, 50)] == [keys[99], keys[0], keys[50]]
    sealed = dm.parse_message(json.loads(dm.seal_message(chain, 0, 3, b"hi", nonce())))
    with pytest.raises(DecryptFailed):
        dm.open_message(chain, replace(sealed, sender_seq=4))
    with pytest.raises(DecryptFailed):
        dm.open_message(dm.EpochChain(bytes(32)), sealed)


def test_a_hostile_number_derives_nothing() -> None:
    chain = dm.EpochChain(SECRET)
    for number in (-1, dm.MAX_SENDER_SEQ + 1, 2**53 - 1):
        with pytest.raises(InvalidCommit, match="sender_seq"):
            chain.key(number)
    assert not chain._keys


def test_an_invite_opens_for_its_two_ends_alone() -> None:
    sealed = dm.seal_invite(ALICE, BOB.public, "hallo, Bär", nonce())
    assert dm.open_invite(BOB, ALICE.public, sealed) == "hallo, Bär"
    for key, sender in ((CAROL, ALICE.public), (BOB, CAROL.public)):
        with pytest.raises(DecryptFailed):
            dm.open_invite(key, sender, sealed)
    with pytest.raises(DecryptFailed, match="not UTF-8 text"):
        dm.open_invite(BOB, ALICE.public, seal_text(shared_key(ALICE, BOB.public, dm.INVITE), b"\xff", nonce()))


def test_an_own_copy_opens_for_its_owner_and_contact_alone() -> None:
    sealed = dm.seal_sent(ALICE, BOB.public, b"mine", nonce())
    assert dm.open_sent(ALICE, BOB.public, sealed) == b"mine"
    for key, to in ((ALICE, CAROL.public), (BOB, ALICE.public), (BOB, BOB.public)):
        with pytest.raises(DecryptFailed):
            dm.open_sent(key, to, sealed)


@given(st.binary(max_size=80))
def test_garbage_is_refused(raw: bytes) -> None:
    for open_ in (
        lambda text: dm.open_invite(BOB, ALICE.public, text),
        lambda text: dm.open_sent(ALICE, BOB.public, text),
        lambda text: dm.open_message(dm.EpochChain(SECRET), dm.SealedMessage(0, 0, text)),
        lambda text: dm.open_epoch(BOB, dm.SealedEpoch(0, text, ALICE.public.hex())),
    ):
        with pytest.raises(EncError):
            open_(b64(raw))
        with pytest.raises(EncError):
            open_(raw.hex() + "!")
