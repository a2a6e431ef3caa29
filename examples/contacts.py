"""Contacts: two people exchange one link each, and a second device has the same names and conversations."""

from pathlib import Path
from tempfile import TemporaryDirectory

from local_node import local_node

from enc import Client, Identity
from enc.apps import AddressBook, Mailbox, Personal
from enc.apps.people import InvalidCard, card_enclave, find, parse_card, sign_card, store_card
from enc.apps.personal import sync_book
from enc.runtime.clock import now_ms


def card_of(client: Client, name: str, book: AddressBook) -> str:
    """Create a store and a mailbox, and return the contact card."""
    store, mailbox = Personal.create(client, display_name=name, book=book), Mailbox.create(client, book=book)
    enclaves = {"personal": card_enclave(store.enclave), "dm": card_enclave(mailbox.enclave)}
    return sign_card(client.identity, name, now_ms(), enclaves)


with local_node() as node_a, local_node() as node_b, TemporaryDirectory() as folder:
    ada, bob = Identity.new(), Identity.new()
    laptop, phone, bobs = (AddressBook(Path(folder) / name / "contacts.json") for name in ("laptop", "phone", "bob"))
    with Client(node_a, ada, pins=None) as at_a, Client(node_b, bob, pins=None) as at_b:
        hers, his = card_of(at_a, "Ada", laptop), card_of(at_b, "Bob", bobs)
        print("Bob's card:", his[:24] + "…", len(his), "characters")
        try:
            parse_card(his[:40] + "AAAA" + his[44:], now_ms())
        except InvalidCard as error:
            print("An altered card is rejected:", error.message)

        # The card says who Bob is and where his mailbox is, on a node that Ada has never used.
        person = find(his, laptop, at_a)
        assert person.card is not None
        store_card(laptop, person.card)
        mailbox = Mailbox.find(at_a, book=laptop)
        mailbox.add(person.identity, person.places["dm"], greeting="Hi, it is Ada")

        answers = Mailbox.find(at_b, book=bobs)
        answers.sync()
        answers.accept(ada.public, store_card(bobs, parse_card(hers, now_ms())).places["dm"])
        answers.send(ada.public, "Hello, Ada")

        print("Sealed for her other devices:", sync_book(Personal.find(at_a, book=laptop), laptop).sent, "entries")

    with Client(node_a, ada, pins=None) as on_phone:  # has the key and the node, and nothing else
        sync_book(Personal.find(on_phone, book=phone), phone)
        print("Her phone knows:", ", ".join(contact.name for contact in phone.contacts()))
        same = Mailbox.find(on_phone, book=phone)
        same.sync()
        for entry in same.thread(find("bob", phone).identity):
            print(f"  {'Ada' if entry.author == ada.public else 'Bob'}: {entry.text}")
