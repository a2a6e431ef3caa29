"""A node's notice that asks an owner to move: confirmed only as the word of the node that has the enclave."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from enc.apps import Personal
from enc.apps.personal import NotConfirmed, Received
from enc.client import Client, Enclave, Identity
from enc.core.sealed_forms.personal import EVACUATION, OpenedNotice, seal_notice
from enc.node.control.client import call
from enc.node.ops import key_file
from tests.apps.personal.conftest import Street


@pytest.fixture
def ada(street: Street) -> Personal:
    """Return a store at node "a"."""
    return street.store(street.client(known=False))


def node_of(street: Street, name: str) -> Identity:
    return Identity(key_file.load(street.place.nodes[name].data / "node.key"))


@contextmanager
def evacuated(street: Street) -> Iterator[None]:
    """Node "a" asks its owners to move to "b"."""
    old, new = street.place.nodes["a"], street.place.nodes["b"]
    call(old.data, "evacuate", {"to": new.url, "to_key": new.seq_pub.hex(), "source": old.url})
    try:
        yield
    finally:
        call(old.data, "stop-evacuation")


def received(
    street: Street, to: Personal, author: Identity, about: Enclave, inviter: Identity | None = None
) -> Received:
    """Send such a notice; return it as its recipient sees it next."""
    inviter = inviter or author
    notice = OpenedNotice(
        kind=EVACUATION, enclave_id=about.hex, enclave_kind="x", inviter=inviter.hex, greeting="Please go."
    )
    owner = to.client.identity
    content = seal_notice(author.key, owner.public, notice, os.urandom(24))
    with Client(street.place.nodes["a"].url, author, pins=None) as sender:
        sender.enclave(to.enclave.id).commit("notice", content)
    device = Personal(street.client(owner, known=False, pins=None), to.enclave.id)
    return device.notices(discard=False)[-1]


def test_the_node_s_word_is_confirmed_and_shown_as_its_word(street: Street, ada: Personal) -> None:
    node = node_of(street, "a")
    with evacuated(street):
        found = received(street, ada, node, ada.enclave)
        assert (found.state, found.reason, found.notice.kind) == ("confirmed", "", EVACUATION)
        assert found.text == f"the node with the key {node.hex} says: Please go."


def test_nobody_else_s_word_is(street: Street, ada: Personal) -> None:
    node, mallory = node_of(street, "a"), Identity.new()
    with evacuated(street):
        for author in (mallory, node_of(street, "b")):
            found = received(street, ada, author, ada.enclave)
            assert (found.state, found.reason) == ("pending", "its author is not the node that has the enclave now")
            with pytest.raises(NotConfirmed):
                assert found.notice
        found = received(street, ada, mallory, ada.enclave, inviter=node)
        assert (found.state, found.reason) == ("refuted", "inviter: not the author of the notice")
        assert found.text == f"the sender {mallory.hex} says: Please go."


def test_it_is_about_an_enclave_of_the_recipient_on_that_node(street: Street, ada: Personal) -> None:
    node, other = node_of(street, "a"), street.store(street.client(known=False))
    with evacuated(street):
        found = received(street, ada, node, other.enclave)
        assert (found.state, found.reason) == ("pending", "you may not move that enclave")
        nowhere = street.store(street.client(at="b", known=False)).enclave
        assert received(street, ada, node, nowhere).state == "pending"


def test_it_is_pending_once_the_node_no_longer_states_it(street: Street, ada: Personal) -> None:
    found = received(street, ada, node_of(street, "a"), ada.enclave)
    assert (found.state, "no longer states" in found.reason) == ("pending", True)


def test_it_is_pending_once_the_enclave_has_left_the_node(street: Street, ada: Personal, tmp_path: Path) -> None:
    """Also to a device that does not know of the move: the node that was left still answers reads."""
    node, log = node_of(street, "a"), street.group(ada.client)
    with evacuated(street):
        assert received(street, ada, node, log).state == "confirmed"
        log.migrate(street.place.nodes["b"].url, tmp_path)
        found = received(street, ada, node, log)
        assert (found.state, found.reason) == ("pending", "its author is not the node that has the enclave now")
