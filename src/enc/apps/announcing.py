"""Making an app's enclave known in the registry: where it is, and that it is one's own."""

from enc.apps.address_book import AddressBook, Place
from enc.client import Client, Enclave
from enc.core.errors import IdentityNotFound

MAX_NAME = 256
"""Characters of a name that a search looks through."""


def announce(client: Client, enclave: Enclave, label: str, name: str | None = None) -> bool:
    """Register the enclave as the identity's `label`, under a display name if there is one; False without a registry.

    Other labels and the key to seal to stay as they are registered; whoever is new there gets its sub-key.
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
    """The identity's own enclave of this label, as the registry has it."""
    if not client.has_registry:
        return None
    try:
        return client.lookup(client.identity.public).enclaves.get(label)
    except IdentityNotFound:
        return None


def own_place(client: Client, label: str, book: AddressBook | None) -> Place | None:
    """Where the identity's own enclave of this label is, as the book or else the registry has it.

    It names a node only if that is not the client's.
    """
    place = book.own(client.identity.public, label) if book is not None else None
    if place is not None:
        return Place(place.enclave, place.node if place.node != client.url else None)
    enclave = registered(client, label)
    return None if enclave is None else Place(enclave)
