"""The sealed forms of a personal enclave against worked examples that another program made."""

import json
from typing import Any

import pytest

from enc.client import Identity
from enc.core.errors import DecryptFailed
from enc.core.primitives.encoding import strict_json
from enc.core.primitives.signing import PrivateKey
from enc.core.sealed_forms import personal
from enc.core.sealed_forms.personal import Handoff, OpenedNotice
from tests.core.vectors import KEYS, load

EXAMPLE = load("personal")
PEOPLE = KEYS | {name: PrivateKey(bytes.fromhex(pair["priv"])) for name, pair in EXAMPLE["sub_keys"].items()}


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def test_sub_keys() -> None:
    for name, pair in EXAMPLE["sub_keys"].items():
        key = Identity(KEYS[name.removesuffix("_sub")]).sub_key()
        assert (key.secret.hex(), key.public.hex()) == (pair["priv"], pair["pub"])


@pytest.mark.parametrize("example", EXAMPLE["private"])
def test_private_documents(example: Any) -> None:
    key, enclave, plaintext = PEOPLE[example["owner"]], raw(example["enclave"]), example["plaintext"].encode()
    assert personal.private_key(key, enclave).hex() == example["key"]
    assert personal.seal_private(key, enclave, plaintext, raw(example["nonce"])) == example["content"]
    assert personal.open_private(key, enclave, example["content"]) == plaintext


@pytest.mark.parametrize("example", EXAMPLE["notices"])
def test_notices(example: Any) -> None:
    sender, to = PEOPLE[example["sender"]], PEOPLE[example["to"]]
    tags = tuple(map(tuple, example.get("tags", ())))
    found = personal.open_notice(to, (sender.public,), example["content"], tags)
    assert personal.seal_notice(sender, to.public, found, raw(example["nonce"])) == example["content"]
    fields = dict(example["payload"])
    if "handoff" in fields:
        fields["handoff"] = Handoff(**fields["handoff"])
    assert found == OpenedNotice(**fields)


@pytest.mark.parametrize("example", EXAMPLE["handoffs"])
def test_handoffs(example: Any) -> None:
    sender, to, handoff = PEOPLE[example["sender"]], PEOPLE[example["to"]], Handoff(**example["handoff"])
    assert personal.seal_handoff(sender, to.public, raw(example["secret"]), raw(example["nonce"])) == handoff
    assert personal.open_handoff(to, handoff).hex() == example["secret"]


@pytest.mark.parametrize("example", EXAMPLE["refused"], ids=lambda example: example["why"])
def test_what_is_refused_and_how(example: Any) -> None:
    tags = tuple(map(tuple, example["tags"]))
    with pytest.raises(DecryptFailed) as found:
        personal.open_notice(KEYS["bob"], (KEYS["alice"].public,), example["content"], tags)
    assert found.value.code == example["code"]


def test_every_form_and_every_kind_has_an_example() -> None:
    kinds = {example["payload"]["kind"] for example in EXAMPLE["notices"]}
    assert kinds >= set(personal.KINDS)
    assert any(kind.startswith("x-") for kind in kinds)
    fields = {name for example in EXAMPLE["notices"] for name in example["payload"]}
    assert fields == set(OpenedNotice.__struct_fields__)
    assert {json.loads(e["content"])["scheme"] for e in EXAMPLE["notices"]} == {personal.SCHEME}
    assert all(isinstance(strict_json(example["content"]), dict) for example in EXAMPLE["private"])
