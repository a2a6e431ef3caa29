"""An identity whose private key a signer holds: everything works, and nothing asks for the key."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.apps import Mailbox, Personal
from enc.client import Client, ClientSettings, Identity, Signer
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.derivation import hkdf
from enc.core.primitives.signing import Alg, PrivateKey
from enc.testing.local_node import LocalNode, local_node
from tests.client.keys.opaque_signer import OpaqueSigner

KEY = PrivateKey(b"\x7a" * 32)


@pytest.fixture
def signer() -> OpaqueSigner:
    return OpaqueSigner(KEY)


@pytest.fixture
def node() -> Iterator[LocalNode]:
    with local_node() as node:
        yield node


def test_a_private_key_is_a_signer(signer: OpaqueSigner) -> None:
    both: list[Signer] = [signer, KEY]
    assert Identity(both[0]) == Identity(both[1])
    assert KEY.derive("enc:sub-key") == hkdf(KEY.secret, "enc:sub-key")
    assert Identity(signer).sub_key().public == Identity(KEY).sub_key().public


@pytest.mark.parametrize("alg", ["schnorr", "ecdsa"])
def test_a_client_signs_and_reads_with_it(node: LocalNode, signer: OpaqueSigner, alg: Alg) -> None:
    with node.client(Identity(signer), settings=ClientSettings(alg=alg)) as client:
        notes = client.create("notes")
        notes.commit("note", "a text")
        assert [item.content for item in notes.query(type="note")] == ["a text"]
    assert signer.used[alg] >= 2


def test_the_apps_seal_and_open_with_it(node: LocalNode, signer: OpaqueSigner) -> None:
    with node.client(Identity(signer)) as client:
        mine = Personal.create(client, display_name="Ada")
        mine.add("Diary", "It rained.")
        assert [each.text for each in mine.documents("rained")] == ["It rained."]
        Mailbox.create(client)
    assert signer.used["derive"] >= 2


def test_its_key_can_be_neither_saved_nor_exported(signer: OpaqueSigner, tmp_path: Path) -> None:
    me = Identity(signer)
    with pytest.raises(MisuseError, match="its signer does not reveal the private key"):
        me.save(tmp_path / "me.key")
    with pytest.raises(MisuseError, match="its signer does not reveal the private key"):
        me.private_key()
    assert Identity(KEY).private_key() is KEY
    assert list(tmp_path.iterdir()) == []


def test_a_signer_that_does_not_answer_fails_the_call_alone(node: LocalNode, signer: OpaqueSigner) -> None:
    class Failing(OpaqueSigner):
        fails = False

        def sign(self, alg: Alg, digest: bytes, /) -> bytes:
            if self.fails:
                raise Unavailable("the signer does not answer", retry_after_ms=1000)
            return super().sign(alg, digest)

    failing = Failing(KEY)
    with node.client(Identity(failing)) as client:
        notes = client.create("notes")
        failing.fails = True
        with pytest.raises(Unavailable, match="the signer does not answer"):
            notes.commit("note", "lost")
        failing.fails = False
        notes.commit("note", "kept")
        assert [item.content for item in notes.query(type="note")] == ["kept"]


def test_a_client_shows_the_public_key_alone(signer: OpaqueSigner) -> None:
    assert repr(Identity(signer)) == f"Identity({KEY.public.hex()})"
    with Client("http://127.0.0.1:1", Identity(signer)) as client:
        assert client.identity.public == KEY.public
