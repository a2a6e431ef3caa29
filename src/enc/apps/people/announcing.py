"""Registers an app's enclave: where it is, and that it belongs to the identity."""

from enc.apps.people.address_book import AddressBook, Place
from enc.client import Client, Enclave
from enc.core.errors import IdentityNotFound

MAX_NAME = 256
"""Characters of a name that a registry's search covers."""


def announce(client: Client, enclave: Enclave, label: str, name: str | None = None) -> bool:
    """Register the enclave as the identity's `label`, with a display name if one is given.

    Return False if the client has no registry. Other labels and the registered sub-key stay as they
    are; an identity that is new to the registry gets its sub-key registered.
    """
    if not client.has_registry:
        return False
    enclave.register(app=label, meta=None if name is None else {"name": name[:MAX_NAME]})
    enclaves, has_sub_key = dict[str, bytes](), True
    try:
        known = client.lookup(client.identity.public, fresh=True)
        enclaves, has_sub_key = dict(known.enclaves), known.sub_pub is not None
    except IdentityNotFound:
        pass
    client.register_identity({**enclaves, label: enclave.id}, sub_key=has_sub_key)
    return True


def registered(client: Client, label: str) -> bytes | None:
    """Return the identity's own enclave with this label from the registry; None if unknown."""
    if not client.has_registry:
        return None
    try:
        return client.lookup(client.identity.public).enclaves.get(label)
    except IdentityNotFound:
        return None


def own_place(client: Client, label: str, book: AddressBook | None) -> Place | None:
    """Return where the identity's own enclave with this label is, from the book or the registry.

    The node is None if it is the client's own.
    """
    place = book.own(client.identity.public, label) if book is not None else None
    if place is not None:
        return Place(place.enclave, place.node if place.node != client.url else None)
    enclave = registered(client, label)
    return None if enclave is None else Place(enclave)
