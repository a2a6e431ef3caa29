"""`Personal`: one person's store, used from any of its owner's devices."""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from enc.apps.people.address_book import AddressBook, Place
from enc.apps.people.announcing import announce, own_place
from enc.apps.people.lookup import Person, known
from enc.apps.personal import profile as profiles
from enc.apps.personal.audience import Audience, audience
from enc.apps.personal.dataviews import DATAVIEW, Dataview, dataviews
from enc.apps.personal.documents import (
    BOOK_KIND,
    Document,
    Unreadable,
    open_document,
    plain,
    seal_document,
    search,
)
from enc.apps.personal.inbox import NoticeInbox
from enc.apps.personal.ledger import NOTICE, PRIVATE, PUBLIC, TYPES, Ledger, LedgerEntry
from enc.apps.personal.notice_verification import CONFIRMERS, Confirmer, Received
from enc.apps.personal.open_notice import opened_handoff
from enc.apps.personal.profile import Profile
from enc.apps.personal.send_notice import NoPersonalStore, make_notice, notify
from enc.client import Client, Identity, of_kind
from enc.client.clients.wiring import manifest_content
from enc.client.enclave.templates import template
from enc.client.enclave.writes import Id, as_bytes
from enc.core.errors import DecryptFailed, EnclaveNotFound, EventDeleted, EventNotFound, MisuseError
from enc.core.primitives.hashing import content_hash, enclave_id
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.types import Receipt
from enc.core.sealed_forms.personal import Handoff
from enc.core.trees.state_key import gate_slot

LABEL, GATE = "personal", "notices"
FIRST_STORE, ENC_V = "enc:personal:store:", 2
MAX_REVIEWED = 256
"""Notices that one call verifies: anyone may write one."""


def find_place(client: Client, book: AddressBook | None) -> Place | None:
    """Return where the identity's own store is: from the book, from the registry, or because it is
    the first one that the identity created on the client's node. The book remembers the latter.
    """
    place = own_place(client, LABEL, book)
    if place is not None or not client.url:
        return place
    manifest = manifest_content(_manifest(client.identity, client.seq_pub()), client.identity)
    id_ = enclave_id(ENC_V, client.identity.public, content_hash(manifest), ())
    try:
        client.enclave(id_, at=client.url).head()
    except EnclaveNotFound:
        return None
    if book is not None:
        book.set_own(client.identity.public, LABEL, Place(id_, client.url))
    return Place(id_)


def _manifest(identity: Identity, node: bytes | None) -> dict[str, Any]:
    """Return the manifest of the identity's first store on a node, which any device with the key
    can compute again; without `node`, that of another store.
    """
    manifest = template(LABEL, identity.public)
    manifest["meta"]["nonce"] = secrets.token_hex(8) if node is None else first_nonce(identity, node)
    return manifest


def first_nonce(identity: Identity, node: bytes) -> str:
    """Return the nonce of the identity's first store on the node with this key."""
    return identity.key.derive(f"{FIRST_STORE}{node.hex()}")[:8].hex()


class Personal:
    """The store of `client`'s identity in this enclave. Each call reads only the log's new events.

    `node`: the URL of its node, if it is not the client's. `book`: names, and where people's
    enclaves are. `confirmers`: verify further kinds of notices, `x-…` or others.
    """

    def __init__(
        self,
        client: Client,
        enclave: Id,
        *,
        node: str | None = None,
        book: AddressBook | None = None,
        random: Callable[[int], bytes] = os.urandom,
        confirmers: Mapping[str, Confirmer] | None = None,
    ) -> None:
        self.client, self.enclave = client, client.enclave(enclave, at=node)
        self._book, self._random = book, random
        self._ledger = Ledger(client.identity.public)
        self._inbox = NoticeInbox(client, book, {**CONFIRMERS, **(confirmers or {})})

    @classmethod
    def create(
        cls,
        client: Client,
        *,
        display_name: str | None = None,
        bundle: Mapping[str, int] | None = None,
        again: bool = False,
        **more: Any,
    ) -> "Personal":
        """Create a store on the client's node, and enter it in the registry and the book, if given.

        A display name is public: it is part of the profile, which a registry's search finds. Raise
        MisuseError if registry or book already know a store, unless `again` is set. Other devices
        find the first store on a node by the key alone, unless it has bundles of another size.
        """
        book, is_plain = more.get("book"), bundle is None
        if not again and (find_place(client, book) if is_plain else own_place(client, LABEL, book)) is not None:
            raise MisuseError("you already have a personal store")
        manifest = _manifest(client.identity, client.seq_pub() if is_plain and not again else None)
        found = client.create({**manifest, "bundle": dict(bundle or manifest["bundle"])})
        store = cls(client, found.id, **more)
        if store._book is not None:
            store._book.set_own(client.identity.public, LABEL, Place(found.id, client.url or None))
        if display_name is not None:
            found.shared(profiles.KEY, {"display_name": display_name})
        store.announce(display_name)
        return store

    @classmethod
    def find(cls, client: Client, *, book: AddressBook | None = None, **more: Any) -> "Personal":
        """Return the identity's own store from the book or the registry, or the first one on the
        client's node; raise NoPersonalStore if unknown."""
        place = find_place(client, book)
        if place is None:
            raise NoPersonalStore("no personal store of yours is known here: create one, or give its enclave")
        return cls(client, place.enclave, node=place.node, book=book, **more)

    def announce(self, display_name: str | None = None) -> bool:
        """Register the store if the client has a registry. Repeat it if that failed or for a new
        one.
        """
        return announce(self.client, self.enclave, LABEL, display_name)

    def refresh(self) -> None:
        """Read new events."""
        for item in self.enclave.query(type=list(TYPES), seq={"start_at": self._ledger.last + 1}):
            self._ledger.apply(item)

    def _entries(self, type_: str) -> list[LedgerEntry]:
        self.refresh()
        return self._ledger.entries(type_)

    # The profile

    def profile(self) -> Profile:
        return profiles.from_slot(self.enclave.read_shared(profiles.KEY))

    def set_profile(self, **changes: Any) -> Receipt:
        """Change fields: `display_name`, `bio`, `avatar`, or an app's own. None removes a field."""
        receipt = self.enclave.shared(profiles.KEY, profiles.changed(self.profile(), changes))
        if "display_name" in changes:
            self.announce(changes["display_name"] or "")
        return receipt

    # Posts: public, through a dataview

    def post(self, text: str, **more: Any) -> Receipt:
        return self.enclave.commit(PUBLIC, of_kind("post", text=text, **more))

    def edit_post(self, post: Id, text: str, **more: Any) -> Receipt:
        return self.enclave.update(post, of_kind("post", text=text, **more))

    def delete_post(self, post: Id) -> Receipt:
        return self.enclave.delete(post)

    def audience(self) -> Audience:
        """Return who can see the posts now, by the manifest and the log."""
        return audience(self.enclave, PUBLIC, self.client.identity.public)

    def posts(self) -> list[LedgerEntry]:
        """Return the posts, the oldest first."""
        return self._entries(PUBLIC)

    # Documents: private

    def add(self, name: str, text: str, *, kind: str = "note", **more: Any) -> Receipt:
        """Store a document, sealed."""
        if kind == BOOK_KIND:
            raise MisuseError(f"kind: {BOOK_KIND} is for the address book")
        return self.enclave.commit(PRIVATE, self._sealed({**more, "kind": kind, "name": name, "text": text}))

    def change(self, document: Id, *, name: str | None = None, text: str | None = None) -> Receipt:
        """Replace the given fields of a document. The old content is erased."""
        before = plain(self.document(document))
        changes = {key: value for key, value in (("name", name), ("text", text)) if value is not None}
        return self.enclave.update(document, self._sealed({**before, **changes}))

    def remove(self, document: Id) -> Receipt:
        """Delete a document or a notice."""
        return self.enclave.delete(document)

    def document(self, document: Id) -> Document:
        self.refresh()
        entry = self._ledger.get(as_bytes(document, "document"))
        if entry is None or entry.type != PRIVATE:
            raise EventNotFound("no such document")
        return open_document(self.client.identity, self.enclave.id, entry)

    def documents(self, words: str = "") -> list[Document]:
        """Return the documents that open, the oldest first; with `words`, only those that contain
        all of them in name, kind or text. The address book is not among them.
        """
        found = [each for each in self._opened() if isinstance(each, Document) and each.kind != BOOK_KIND]
        return search(found, words)

    def unreadable(self) -> list[Unreadable]:
        """Return the documents that do not open with this identity's key, and why."""
        return [each for each in self._opened() if isinstance(each, Unreadable)]

    def _opened(self) -> list[Document | Unreadable]:
        return [self._open(entry) for entry in self._entries(PRIVATE)]

    def _open(self, entry: LedgerEntry) -> Document | Unreadable:
        try:
            return open_document(self.client.identity, self.enclave.id, entry)
        except DecryptFailed as e:
            return Unreadable(entry.id, entry.seq, e)

    def _sealed(self, fields: Mapping[str, Any]) -> str:
        return seal_document(self.client.identity, self.enclave.id, fields, self._random(NONCE_SIZE))

    # Notices

    def notify(
        self,
        to: Id | Person,
        kind: str,
        enclave_id: Id,
        enclave_kind: str,
        *,
        secret: bytes | None = None,
        place: Place | None = None,
        **optional: Any,
    ) -> Receipt:
        """Write a notice to a person's store: at `place`, or where the registry has it.

        `optional`: `epoch_n`, which a `secret` needs; `topic`, `greeting`, `manifest_hash`,
        `move_ref`; `inviter`, if the action in question was not done by this identity.
        """
        whom = known(to, self._book, self.client)
        fields = {"enclave_id": enclave_id, "enclave_kind": enclave_kind, **optional}
        notice = make_notice(kind, fields, self.client.identity.public)
        return notify(self.client, whom, notice, secret=secret, place=place, random=self._random)

    def inbox(self) -> list[LedgerEntry]:
        """Return all notices, still sealed."""
        return self._entries(NOTICE)

    def notices(self, *, discard: bool = True, limit: int = MAX_REVIEWED) -> list[Received]:
        """Return notices, each verified with its source: confirmed, pending or refuted.

        At most `limit`, of as many authors as possible; `inbox` returns all, unverified. With
        `discard`, refuted ones are also deleted, and the next call does not return them.
        """
        if limit < 1:
            raise MisuseError(f"limit: expected at least 1, not {limit}")
        found = self._inbox.review(self._inbox.chosen(self._entries(NOTICE), limit))
        for each in found:
            if discard and each.state == "refuted":
                with suppress(EventDeleted, EventNotFound):  # another device was faster
                    self.remove(each.id)
        return found

    def handoff(self, received: Received) -> bytes:
        """Return the secret that a confirmed notice hands over; raise NotConfirmed or a
        DecryptFailed.
        """
        handoff = received.notice.handoff
        if not isinstance(handoff, Handoff):
            raise DecryptFailed("handoff: the notice has none")
        return opened_handoff(self.client, received.author, handoff)

    def set_open(self, is_open: bool) -> Receipt:
        """Open or close the gate `notices`."""
        return self.enclave.gate(GATE, open=is_open)

    def is_open(self) -> bool:
        """Return whether the gate is open, proved as of the last closed bundle."""
        return self.enclave.state("kv", gate_slot(GATE)).value is None

    # Dataviews: services that get pushes of public events, and notifications of notices

    def grant_dataview(self, identity: Id, *, endpoint: str | None = None) -> Receipt:
        return self.enclave.grant(identity, DATAVIEW, endpoint=endpoint)

    def revoke_dataview(self, identity: Id) -> Receipt:
        return self.enclave.revoke(identity, DATAVIEW)

    def dataviews(self) -> list[Dataview]:
        """Return the services that have a grant by the log, and whether it is proved yet."""
        return dataviews(self.enclave, self.client.identity.public)
