"""Sealed forms of a personal enclave: the worked examples, and each rule broken alone."""

import json
from hashlib import sha256
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from enc.core.errors import DecryptFailed, EncError, InvalidCommit, MisuseError
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import encrypt, shared_key
from enc.core.primitives.signing import PrivateKey
from enc.core.sealed_forms import personal
from enc.core.sealed_forms.personal import OpenedNotice
from tests.core.vectors import KEYS, load

EXAMPLE = load("apps")["personal"]
ALICE, BOB, CAROL = KEYS["alice"], KEYS["bob"], PrivateKey(b"\x07" * 32)
ENCLAVE = bytes.fromhex(EXAMPLE["enclave"])
NOTICE = OpenedNotice(kind="group_invite", enclave_id="ab" * 32, enclave_kind="group", inviter=ALICE.public.hex())
_numbers = count()


def nonce() -> bytes:
    return sha256(b"%d" % next(_numbers)).digest()[:24]


def test_the_worked_examples_keys() -> None:
    assert personal.private_key(ALICE, ENCLAVE).hex() == EXAMPLE["private_key_alice"]
    assert shared_key(ALICE, BOB.public, personal.NOTICE).hex() == EXAMPLE["notice_key"]
    assert shared_key(ALICE, BOB.public, personal.HANDOFF).hex() == EXAMPLE["handoff_key"]


def test_a_private_document_opens_for_its_owner_in_its_enclave() -> None:
    content = personal.seal_private(ALICE, ENCLAVE, b"diary", nonce())
    assert set(json.loads(content)) == {"ciphertext", "nonce"}
    assert personal.open_private(ALICE, ENCLAVE, content) == b"diary"
    for key, enclave in ((BOB, ENCLAVE), (ALICE, bytes(32))):
        with pytest.raises(DecryptFailed):
            personal.open_private(key, enclave, content)


def sealed(notice: OpenedNotice = NOTICE) -> str:
    return personal.seal_notice(ALICE, BOB.public, notice, nonce())


def opened(content: str, tags=(), senders=(ALICE.public,), key: PrivateKey = BOB) -> OpenedNotice:
    return personal.open_notice(key, senders, content, tags)


def test_a_notice_says_to_its_recipient_what_its_sender_said() -> None:
    whole = replace(
        NOTICE,
        handoff=personal.seal_handoff(ALICE, BOB.public, bytes(32), nonce()),
        epoch_n=3,
        topic="Töpfern",
        greeting="hallo",
        manifest_hash="cd" * 32,
        move_ref="ef" * 32,
    )
    for notice in (NOTICE, whole):
        content = sealed(notice)
        outside = json.loads(content)
        assert set(outside) == {"ciphertext", "nonce", "sender_pub", "scheme", "encrypted"}
        assert (outside["scheme"], outside["encrypted"]) == ("personal:notice", True)
        assert opened(content) == notice
    with pytest.raises(DecryptFailed):
        opened(content, key=CAROL)


def test_a_notice_is_sealed_by_its_author_or_the_authors_sub_key() -> None:
    assert opened(sealed(), senders=(CAROL.public, ALICE.public)) == NOTICE
    with pytest.raises(DecryptFailed, match="sender_pub"):
        opened(sealed(), senders=(CAROL.public,))


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "other"},
        {"encrypted": False},
        {"encrypted": "yes"},
        {"sender_pub": "ff"},
        {"sender_pub": CAROL.public.hex()},
        {"nonce": ""},
        {"nonce": "ab" * 24},
        {"ciphertext": ""},
        {"ciphertext": "abc"},
        {"ciphertext": "AB" * 40},
        {"ciphertext": "ab" * 40},
        {"ciphertext": 7},
    ],
)
def test_an_outside_that_does_not_fit_is_refused(change) -> None:
    outside = json.loads(sealed())
    assert opened(json.dumps(outside)) == NOTICE
    with pytest.raises(DecryptFailed):
        opened(json.dumps({**outside, **change}))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "spam"}, "kind"),
        ({"kind": "x-"}, "kind"),
        ({"enclave_id": "ab"}, "enclave_id"),
        ({"enclave_kind": ""}, "enclave_kind"),
        ({"inviter": "AB" * 32}, "inviter"),
        ({"handoff": personal.Handoff("", "", "", "")}, "epoch_n"),
        ({"epoch_n": -1}, "epoch_n"),
        ({"manifest_hash": "x"}, "manifest_hash"),
        ({"move_ref": "x"}, "move_ref"),
    ],
)
def test_each_field_of_a_notice_has_its_rule(change, field: str) -> None:
    with pytest.raises(InvalidCommit, match=f"^{field}"):
        sealed(replace(NOTICE, **change))
    payload = {
        name: personal._plain(getattr(replace(NOTICE, **change), name))
        for name in OpenedNotice.__struct_fields__
        if getattr(replace(NOTICE, **change), name) is not UNSET
    }
    with pytest.raises(DecryptFailed, match=field):
        opened(forged(compact_json(payload).encode()))


def forged(payload: bytes) -> str:
    number = nonce()
    ciphertext = encrypt(shared_key(ALICE, BOB.public, personal.NOTICE), payload, number)
    outside = {"ciphertext": ciphertext.hex(), "nonce": number.hex(), "sender_pub": ALICE.public.hex()}
    return json.dumps({**outside, "scheme": "personal:notice", "encrypted": True})


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b'{"kind":"group_invite"}', b'{"a":1,"a":1}'])
def test_what_is_sealed_must_be_a_notice(payload: bytes) -> None:
    with pytest.raises(DecryptFailed):
        opened(forged(payload))


def test_experimental_kinds_are_allowed() -> None:
    notice = replace(NOTICE, kind="x-poke")
    assert opened(sealed(notice)) == notice


def test_a_plain_tag_may_not_contradict_what_is_sealed() -> None:
    content = sealed()
    assert opened(content, (("enclave_id", "ab" * 32), ("r", "something"), ("topic", "not sealed"))) == NOTICE
    for tag in (("enclave_id", "cd" * 32), ("enclave_id",), ("kind", "dm_invite"), ("inviter", BOB.public.hex())):
        with pytest.raises(DecryptFailed, match="contradicts"):
            opened(content, (tag,))


def test_a_handoff_opens_for_its_recipient_alone() -> None:
    handoff = personal.seal_handoff(ALICE, BOB.public, b"s" * 32, nonce())
    assert personal.open_handoff(BOB, handoff) == b"s" * 32
    with pytest.raises(DecryptFailed, match="recipient"):
        personal.open_handoff(CAROL, handoff)
    with pytest.raises(DecryptFailed):
        personal.open_handoff(CAROL, replace(handoff, recipient=CAROL.public.hex()))
    with pytest.raises(DecryptFailed, match="ecdh_pub"):
        personal.open_handoff(BOB, replace(handoff, ecdh_pub="ff" * 32))
    with pytest.raises(MisuseError):
        personal.seal_handoff(ALICE, BOB.public, b"short", nonce())
    other = encrypt(shared_key(ALICE, BOB.public, personal.HANDOFF), b"short", bytes(24))
    with pytest.raises(DecryptFailed, match="32 bytes"):
        personal.open_handoff(BOB, replace(handoff, ciphertext=other.hex(), nonce="00" * 24))


def test_the_outer_key_does_not_open_a_handoff() -> None:
    secret = b"s" * 32
    number = nonce()
    under_notice = encrypt(shared_key(ALICE, BOB.public, personal.NOTICE), secret, number)
    handoff = personal.Handoff(BOB.public.hex(), ALICE.public.hex(), under_notice.hex(), number.hex())
    with pytest.raises(DecryptFailed):
        personal.open_handoff(BOB, handoff)


@given(st.text(max_size=60))
def test_garbage_is_refused(text: str) -> None:
    with pytest.raises(EncError):
        opened(text)
    with pytest.raises(EncError):
        personal.open_private(ALICE, ENCLAVE, text)
