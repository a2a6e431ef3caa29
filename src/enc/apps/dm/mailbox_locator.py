"""Finds contacts' mailboxes."""

from enc.apps.dm.errors import NoPlace
from enc.apps.dm.peer import Peer
from enc.apps.dm.records import CopyRecord
from enc.apps.people.address_book import Place
from enc.client import Client, Enclave
from enc.core.errors import EnclaveNotFound, IdentityNotFound, NodeNotFound, WorldError

LABEL = "dm"
"""The label of a mailbox in a registry."""


class MailboxLocator:
    """Finds the mailboxes of contacts through `client`, and caches them."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[tuple[bytes, str | None], Enclave] = {}

    def __call__(self, peer: Peer, record: CopyRecord) -> Enclave:
        """Return the contact's mailbox, on the node the registry names, or else on the given
        one.
        """
        place = Place(bytes.fromhex(record.mailbox), record.node) if record.mailbox else peer.known_place
        place = place or self._registered(peer.identity)
        found = self._found.get((place.enclave, place.node))
        if found is None:
            at = None if place.node is None or self._is_registered(place.enclave) else place.node
            found = self._found[place.enclave, place.node] = self._client.enclave(place.enclave, at=at)
        return found

    def _registered(self, identity: bytes) -> Place:
        if self._client.has_registry:
            try:
                enclave = self._client.lookup(identity).enclaves.get(LABEL)
            except IdentityNotFound:
                enclave = None
            if enclave is not None:
                return Place(enclave)
        raise NoPlace("their mailbox is unknown: give its id and the URL of its node")

    def _is_registered(self, enclave: bytes) -> bool:
        if not self._client.has_registry:
            return False
        try:
            self._client.resolve(enclave)
        except (EnclaveNotFound, NodeNotFound, WorldError):  # if the registry is down, use the given node
            return False
        return True
