"""Two people, two nodes, two devices each: all see the same thread, and no node has seen its
plaintext.
"""

import json
import random
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count, product
from pathlib import Path

import pytest

from enc.apps.dm import Mailbox, ThreadEntry
from enc.apps.people.address_book import Place
from enc.client import Client, Identity
from enc.core.errors import EncError, Unauthorized
from enc.core.primitives.encoding import unb64
from enc.core.primitives.sealing import shared_key
from enc.core.sealed_forms import dm
from tests.apps.dm.conftest import mirrored
from tests.apps.searching import Search, found, kept
from tests.node.running import RunningNode

MARK = "quince-7c41d2e9-medlar-5b0a9f13-"
"""The start of every text: a search for it finds any text."""
MESSAGES = 500


class Person:
    """A person with two devices; the second may be off."""

    def __init__(self, node: RunningNode, stack: ExitStack) -> None:
        self.node, self.stack, self.identity = node, stack, Identity.new()
        first = Mailbox.create(self._client())
        self.place = Place(first.enclave.id, node.url)
        self.devices = [first, self.device()]
        self.key = self.identity.public

    def _client(self) -> Client:
        return self.stack.enter_context(Client(self.node.url, self.identity, pins=None))

    def device(self) -> Mailbox:
        return Mailbox(self._client(), self.place.enclave)

    def secrets(self, other: bytes) -> Iterator[bytes]:
        """Return what must be found nowhere: the key, keys derived from it, and every epoch's and
        message's secret.
        """
        key = self.identity.private_key()
        yield key.secret
        yield dm.sent_key(key, other)
        yield shared_key(key, key.public, "enc:dm:sent:root")
        for each, label in product((other, key.public), (dm.EPOCH_DIST, dm.INVITE)):
            yield shared_key(key, each, label)
        peer = self.devices[0]._fold.peer(other)
        for n, secret in peer.own._secrets.items():
            yield secret
            yield from peer.own.chain(n).derived


class Conversation:
    def __init__(self, alice: Person, bob: Person) -> None:
        self.alice, self.bob, self.random = alice, bob, random.Random(7)
        self.texts: dict[bytes, str | None] = {}
        """The current text of every message that arrived, by its id."""
        self.refused, self._numbers = 0, count()

    def text(self) -> str:
        return f"{MARK}{next(self._numbers)} {self.random.choice(['ja', 'nein ☃', 'vielleicht', 'x' * 300])}"

    def meet(self) -> None:
        alice, bob = self.alice, self.bob
        alice.devices[0].add(bob.key, bob.place, greeting=self.text())
        (invite,) = (bob.devices[0].sync(), bob.devices[0].invites())[1]
        self.texts[invite.id] = invite.greeting
        bob.devices[0].accept(alice.key)

    def step(self, i: int) -> None:
        """Send a message, and sometimes do something else, from any device that is on: bob's second
        is off half of the time.
        """
        me, other = self.random.sample([self.alice, self.bob], 2) if i else (self.bob, self.alice)
        is_off = me is self.bob and i // 25 % 2 == 1
        device = me.devices[0 if is_off else self.random.randrange(2)]
        text = self.text()
        self._try(lambda: self._record(device.send(other.key, text), text))
        if self.random.random() < 0.15:
            self._revise(device, other)

    def _revise(self, device: Mailbox, other: Person) -> None:
        thread = device.thread(other.key)
        mine = [entry for entry in thread if entry.state == "delivered" and entry.kind == "message"]
        if not mine:
            return
        entry, text = self.random.choice(mine), self.text()
        if self.random.random() < 0.6:
            self._try(lambda: self._record(device.edit(other.key, entry.ref, text), text))
        else:
            self._try(lambda: self._record(device.retract(other.key, entry.ref), None))

    def _record(self, entry: ThreadEntry, text: str | None) -> None:
        self.texts[entry.id] = text

    def _try(self, act) -> None:  # type: ignore[no-untyped-def]
        try:
            act()
        except Unauthorized:
            self.refused += 1

    def events(self, i: int) -> None:
        """Do something else."""
        alice, bob = self.alice, self.bob
        if i == 180:
            alice.devices[1].block(bob.key)
        if i == 220:
            alice.devices[0].unblock(bob.key)
        if i in (120, 350):
            alice.devices[0].rotate(bob.key)
        if i in (121, 400):
            bob.devices[0].rotate(alice.key)


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Conversation, Path]]:
    """Run the whole conversation, with both nodes still running."""
    home = tmp_path_factory.mktemp("converging")
    with RunningNode(home / "a") as a, RunningNode(home / "b") as b, ExitStack() as stack:
        talk = Conversation(Person(a, stack), Person(b, stack))
        talk.meet()
        for i in range(MESSAGES):
            talk.events(i)
            talk.step(i)
        for person in (talk.alice, talk.bob):
            for device in person.devices:
                device.sync()
        yield talk, home


def test_all_devices_converge(over: tuple[Conversation, Path]) -> None:
    talk, _ = over
    for me, other in ((talk.alice, talk.bob), (talk.bob, talk.alice)):
        fresh = me.device()
        fresh.sync()
        first, second = me.devices
        assert first.thread(other.key) == second.thread(other.key) == fresh.thread(other.key)
        assert first.contacts() == second.contacts() == fresh.contacts()
        assert [device.refusals for device in (first, second, fresh)] == [[], [], []]
    threads = talk.alice.devices[0].thread(talk.bob.key), talk.bob.devices[0].thread(talk.alice.key)
    assert mirrored(threads[0]) == mirrored(threads[1])
    assert {entry.id: entry.text for entry in threads[0] if entry.state != "refused"} == talk.texts


def test_it_was_a_conversation(over: tuple[Conversation, Path]) -> None:
    """The test covers enough of the other acts."""
    talk, _ = over
    alice, bob = talk.alice.devices[0], talk.bob.devices[0]
    thread = bob.thread(talk.alice.key)
    states = [entry.state for entry in thread]
    assert len(thread) == MESSAGES + 1
    assert states.count("refused") > 10 < talk.refused
    assert states.count("retracted") > 10 < sum(entry.is_edited for entry in thread)
    assert alice.contact(talk.bob.key).own_epoch == alice.contact(talk.bob.key).given_epoch == 2
    assert not list(alice._fold.pending()) + list(bob._fold.pending())


def test_no_node_has_seen_a_word_or_a_key(over: tuple[Conversation, Path]) -> None:
    """No plaintext or secret is in the files, in any value of the databases, or in the logs."""
    talk, _ = over
    nodes = [talk.alice.node, talk.bob.node]
    secrets = [*talk.alice.secrets(talk.bob.key), *talk.bob.secrets(talk.alice.key)]
    assert len(set(secrets)) > 400
    assert found(nodes, {"a text": MARK.encode(), **{f"secret {i}": each for i, each in enumerate(secrets)}}) == set()
    # The search works: it finds an enclave's id and sealed contents, in journals and in whole
    # values.
    item = next(talk.bob.devices[0].enclave.query(type="message", reverse=True))
    sealed = dm.parse_message(json.loads(item.content or "")).ciphertext
    there = found(nodes, {"mailbox": talk.bob.place.enclave, "sealed": unb64(sealed, "")[:32]})
    assert {each.split(" in ")[0] for each in there} == {"mailbox", "sealed"}
    assert {each for each in there if ": " in each}, "in a value too"
    assert {where for node in nodes for where, _ in kept(node)} >= {"a.stderr", "b.stderr"}


@pytest.mark.parametrize("shift", range(6))
def test_the_search_finds_what_is_there(shift: int) -> None:
    search = Search({"mark": MARK.encode(), "secret": bytes(range(32))})
    said, secret = b"x" * shift + f'{{"text":"{MARK}1 ja"}}'.encode(), bytes(range(32))
    for raw in (said, b"y" * shift + secret + b"z"):
        for text in (raw, b64encode(raw), raw.hex().encode(), raw.hex().upper().encode()):
            assert search(b"before" + text) == {"mark" if raw is said else "secret"}


def test_errors_tell_no_text(over: tuple[Conversation, Path]) -> None:
    talk, _ = over
    with pytest.raises(EncError) as caught:
        talk.alice.devices[0].edit(talk.bob.key, b"\0" * 32, f"{MARK}secret")
    assert MARK not in str(caught.value)
