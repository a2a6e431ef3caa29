"""Contact cards and logs of address books as the worked examples have them."""

from typing import Any

import pytest

from enc.apps.people import InvalidCard, parse_card, sign_card
from enc.apps.people.book_entries import wire_changes
from enc.apps.people.contact_card import MAILBOX, STORE
from enc.apps.personal.book_log import BookState, fold_book
from enc.apps.personal.store import first_nonce
from enc.client import Identity
from tests.core.vectors import load
from tests.core.world import person

FOUND = load("contacts")


@pytest.mark.parametrize("example", FOUND["cards"], ids=lambda example: example["payload"]["name"])
def test_a_card(example: dict[str, Any]) -> None:
    payload = example["payload"]
    card = parse_card(example["link"], payload["at"])
    assert (card.key.hex(), card.name, card.at) == (payload["key"], payload["name"], payload["at"])
    for label, field in ((STORE, "store"), (MAILBOX, "mailbox")):
        place = card.places.get(label)
        given = payload.get(field)
        assert (place and (place.enclave.hex(), place.node)) == (given and (given["enclave"], given["node"]))
    assert sign_card(Identity(person("alice")), card.name, card.at, card.enclaves, card.registry) == example["link"]


@pytest.mark.parametrize("example", FOUND["refused_cards"], ids=lambda example: example["why"])
def test_a_refused_card(example: dict[str, Any]) -> None:
    with pytest.raises(InvalidCard):
        parse_card(example["link"], example["now"])


@pytest.mark.parametrize("example", FOUND["books"], ids=lambda example: example["shows"])
def test_a_book(example: dict[str, Any]) -> None:
    events = [(each["seq"], bytes([each["seq"]]) * 32, each["text"]) for each in example["events"]]
    assert wire_changes(fold_book(BookState(), events).entries) == example["entries"]
    if not example["deleted"]:
        state = BookState()
        for each in events:  # as a device that reads each event when it comes
            state = fold_book(state, [each])
        assert wire_changes(state.entries) == example["entries"]


def test_the_nonce_of_the_first_store() -> None:
    example = FOUND["first_store"]
    assert first_nonce(Identity(person(example["owner"])), bytes.fromhex(example["node"])) == example["nonce"]
