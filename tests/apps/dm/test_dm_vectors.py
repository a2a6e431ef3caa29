"""The worked examples of direct messages: every sealed form byte by byte, and every rejection with
its code.
"""

import json
from runpy import run_path

import pytest

from enc.apps.dm.epochs import OwnEpochs, next_given, open_epoch
from enc.apps.dm.open_message import open_copy, open_greeting, open_text
from enc.apps.dm.records import parse_record
from enc.core.errors import DecryptFailed, PeerError
from enc.core.sealed_forms import dm
from tests.core.vectors import FOLDER, KEYS, load

EXAMPLE = load("dm")
ALICE, BOB = KEYS["alice"], KEYS["bob"]


def raw(text: str) -> bytes:
    return bytes.fromhex(text)


def own(*secrets: str) -> OwnEpochs:
    made = OwnEpochs()
    for n, secret in enumerate(secrets):
        made.add(n, raw(secret))
    return made


def bobs() -> OwnEpochs:
    return own(*(each["secret"] for each in EXAMPLE["epochs"] if each["to"] == "bob"))


def test_the_file_is_what_its_program_makes() -> None:
    assert run_path(str(FOLDER / "make_dm.py"))["text"]() == (FOLDER / "dm.json").read_text()


@pytest.mark.parametrize("each", EXAMPLE["epochs"], ids=lambda each: f"{each['n']} to {each['to']}")
def test_epochs(each) -> None:
    sender, to = KEYS[each["sender"]], KEYS[each["to"]]
    made = dm.seal_epoch(sender, to.public, each["n"], raw(each["secret"]), raw(each["nonce"]))
    assert dm.wire_epoch(made) == each["content"]
    assert list(dm.epoch_tag(made)) == each["tag"]
    for found in (dm.parse_epoch(each["content"]), dm.parse_epoch_tag(tuple(each["tag"]))):
        assert open_epoch(to, sender.public, found) == raw(each["secret"])


@pytest.mark.parametrize("each", EXAMPLE["messages"], ids=lambda each: f"{each['epoch']}.{each['sender_seq']}")
def test_messages(each) -> None:
    epochs = bobs()
    chain = epochs.chain(each["epoch"])
    assert chain.key(each["sender_seq"]).hex() == each["key"]
    made = dm.seal_message(chain, each["epoch"], each["sender_seq"], each["text"].encode(), raw(each["nonce"]))
    assert json.loads(made) == json.loads(each["content"])
    assert open_text(each["content"], epochs, ()) == each["text"]


@pytest.mark.parametrize("each", EXAMPLE["invites"])
def test_invites(each) -> None:
    sender, to = KEYS[each["sender"]], KEYS[each["to"]]
    assert dm.seal_invite(sender, to.public, each["text"], raw(each["nonce"])) == each["sealed"]
    assert dm.open_invite(to, sender.public, each["sealed"]) == each["text"]
    assert open_greeting(each["sealed"], raw(each["key"])) == each["text"]


@pytest.mark.parametrize("each", EXAMPLE["sent"])
def test_copies(each) -> None:
    owner, to = KEYS[each["owner"]], KEYS[each["to"]].public
    assert dm.sent_key(owner, to).hex() == each["key"]
    assert dm.seal_sent(owner, to, each["text"].encode(), raw(each["nonce"])) == each["sealed"]
    assert open_copy(each["sealed"], raw(each["key"]), ()).decode() == each["text"]


def test_a_copy_is_a_record_or_nothing() -> None:
    good, bad = (each["text"].encode() for each in EXAMPLE["sent"])
    assert parse_record(good).state == "delivered"
    with pytest.raises(DecryptFailed):
        parse_record(bad)


def code(work) -> str:
    with pytest.raises(PeerError) as caught:
        work()
    return caught.value.code


@pytest.mark.parametrize("each", EXAMPLE["refused_messages"], ids=lambda each: each["why"])
def test_refused_messages(each) -> None:
    epochs = bobs()
    epochs.chain(0).key(2)  # what was read before
    assert code(lambda: open_text(each["sealed"], epochs, [own(EXAMPLE["other_secret"])])) == each["code"]


@pytest.mark.parametrize("each", EXAMPLE["refused_epochs"], ids=lambda each: each["why"])
def test_refused_epochs(each) -> None:
    before = next_given(None, 3, raw(EXAMPLE["epoch_before"]["secret"]))

    def take() -> None:
        epoch = dm.parse_epoch_tag(tuple(each["sealed"]))
        next_given(before, epoch.n, open_epoch(ALICE, BOB.public, epoch))

    assert code(take) == each["code"]


@pytest.mark.parametrize("each", EXAMPLE["refused_copies"], ids=lambda each: each["why"])
def test_refused_copies(each) -> None:
    to_bob, to_carol = (raw(sent["key"]) for sent in EXAMPLE["sent"])
    assert code(lambda: open_copy(each["sealed"], to_bob, [to_carol])) == each["code"]
