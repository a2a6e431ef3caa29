"""Direct messages that are sent again after an error are stored and delivered once."""

from contextlib import suppress

import pytest

from enc.apps.dm import Mailbox
from enc.client import SendAttempt, Unreachable
from enc.core.errors import Expired
from tests.apps.dm.conftest import Street
from tests.apps.losing import Losing


def losing(mailbox: Mailbox, *fates: str) -> Losing:
    mailbox._outbox._own = found = Losing(mailbox.enclave, *fates)
    return found


@pytest.mark.parametrize("fate", ["answer", "request"])
def test_a_message_is_sent_again_and_arrives_once(street: Street, fate: str) -> None:
    alice, bob = street.friends()
    link, attempt = losing(alice.mailbox, fate, fate), SendAttempt()
    for _ in range(2):
        with pytest.raises(Unreachable) as error:
            alice.mailbox.send(bob.key, "once", attempt=attempt)
        assert error.value.context["kept"] is False
    assert alice.mailbox.send(bob.key, "once", attempt=attempt).state == "delivered"
    assert len(set(link.tried)) == 1, "the same bytes"
    alice.mailbox.send(bob.key, "next")
    assert alice.texts(bob) == bob.texts(alice) == ["hi", "hello", "once", "next"]


def test_another_device_may_have_delivered_it_meanwhile(street: Street) -> None:
    alice, bob = street.friends()
    losing(alice.mailbox, "answer")
    attempt = SendAttempt()
    with suppress(Unreachable):
        alice.mailbox.send(bob.key, "once", attempt=attempt)
    alice.device().repair()
    assert alice.mailbox.send(bob.key, "once", attempt=attempt).state == "delivered"
    assert alice.texts(bob)[2:] == bob.texts(alice)[2:] == ["once"]


def test_a_commit_that_has_expired_is_signed_again(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = street.friends()
    link, attempt = losing(alice.mailbox, "request"), SendAttempt()
    with suppress(Unreachable):
        alice.mailbox.send(bob.key, "once", attempt=attempt)
    old, honest = attempt.commit, link.send

    def send(commit: object) -> object:
        if commit is old:
            raise Expired("too late")
        return honest(commit)  # type: ignore[arg-type]

    monkeypatch.setattr(link, "send", send)
    assert alice.mailbox.send(bob.key, "once", attempt=attempt).state == "delivered"
    assert bob.texts(alice)[2:] == ["once"]


def test_repair_of_one_contact_leaves_the_others(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = street.friends()

    def fail(*_: object) -> None:
        raise Unreachable("away")

    with monkeypatch.context() as patch, suppress(Unreachable):
        patch.setattr(alice.mailbox._outbox, "settle", fail)
        alice.mailbox.send(bob.key, "once")
    assert alice.mailbox.repair(street.somebody().key) == []
    assert [each.text for each in alice.mailbox.repair(bob.key)] == ["once"]
