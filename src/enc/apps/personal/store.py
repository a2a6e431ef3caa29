"""`Personal`: one person's store, on the node and from any of its owner's devices."""

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from enc.apps.address_book import AddressBook, Place
from enc.apps.announcing import announce, own_place
from enc.apps.people import Person, known
from enc.apps.personal import profile as profiles
from enc.apps.personal.dataviews import DATAVIEW, Dataview, dataviews
from enc.apps.personal.documents import Document, Unreadable, open_document, plain, seal_document, search
from enc.apps.personal.inbox import Inbox
from enc.apps.personal.ledger import NOTICE, PRIVATE, PUBLIC, TYPES, Entry, Ledger
from enc.apps.personal.notifying import NoPersonalStore, make_notice, notify
from enc.apps.personal.opening import opened_handoff
from enc.apps.personal.profile import Profile
from enc.apps.personal.reconciling import CONFIRMERS, Confirmer, Received
from enc.client import Client, of_kind
from enc.client.setup import now_ms
from enc.client.templates import template
from enc.client.writes import Id, as_bytes
from enc.core.errors import DecryptFailed, EventDeleted, EventNotFound, MisuseError
from enc.core.personal import Handoff
from enc.core.sealing import NONCE_SIZE
from enc.core.state_key import gate_slot
from enc.core.types import Receipt

LABEL, GATE = "personal", "notices"
MAX_REVIEWED = 256
"""Notices that one call holds against their sources: anybody may write one."""


class Personal:
    """The store of `client`'s identity in this enclave. What is read comes from the log, new events alone each time.

    `node`: its URL, if it is not the client's. `book`: names, and where people's enclaves are. `clock`: Unix
    milliseconds, for the age of notices. `confirmers`: ways to confirm further kinds of notices, `x-…` or others.
    """

    def __init__(
        self,
        client: Client,
        enclave: Id,
        *,
        node: str | None = None,
        book: AddressBook | None = None,
        clock: Callable[[], int] = now_ms,
        random: Callable[[int], bytes] = os.urandom,
        confirmers: Mapping[str, Confirmer] | None = None,
    ) -> None:
        self.client, self.enclave = client, client.enclave(enclave, at=node)
        self._book, self._random = book, random
        self._ledger = Ledger(client.identity.public)
        self._inbox = Inbox(client, book, {**CONFIRMERS, **(confirmers or {})}, clock)

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
        """Found a store on the client's node, and make it known: in the registry, and in the book, as far as they are.

        A display name stands in the profile, which a registry's search can find: it is public. Whoever has a store that
        these know gets another only `again`.
        """
        if not again and own_place(client, LABEL, more.get("book")) is not None:
            raise MisuseError("you have a personal store already")
        manifest = template(LABEL, client.identity.public)
        manifest["meta"]["nonce"] = secrets.token_hex(8)
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
        """The identity's own store, as the book or the registry has it; NoPersonalStore where neither does."""
        place = own_place(client, LABEL, book)
        if place is None:
            raise NoPersonalStore("no personal store of yours is known here: found one, or give its enclave")
        return cls(client, place.enclave, node=place.node, book=book, **more)

    def announce(self, display_name: str | None = None) -> bool:
        """Make the store known in the registry, if there is one; again, if that failed or the registry is a new one."""
        return announce(self.client, self.enclave, LABEL, display_name)

    def refresh(self) -> None:
        """Take what has come since the last time."""
        for item in self.enclave.query(type=list(TYPES), seq={"start_at": self._ledger.last + 1}):
            self._ledger.take(item)

    def _entries(self, type_: str) -> list[Entry]:
        self.refresh()
        return self._ledger.entries(type_)

    # The profile

    def profile(self) -> Profile:
        return profiles.from_slot(self.enclave.read_shared(profiles.KEY))

    def set_profile(self, **changes: Any) -> Receipt:
        """Change fields of it: `display_name`, `bio`, `avatar`, or an app's own. None takes one away."""
        receipt = self.enclave.shared(profiles.KEY, profiles.changed(self.profile(), changes))
        if "display_name" in changes:
            self.announce(changes["display_name"] or "")
        return receipt

    # Posts: public, by way of a dataview

    def post(self, text: str, **more: Any) -> Receipt:
        return self.enclave.commit(PUBLIC, of_kind("post", text=text, **more))

    def edit_post(self, post: Id, text: str, **more: Any) -> Receipt:
        return self.enclave.update(post, of_kind("post", text=text, **more))

    def delete_post(self, post: Id) -> Receipt:
        return self.enclave.delete(post)

    def posts(self) -> list[Entry]:
        """Those that stand, the oldest first."""
        return self._entries(PUBLIC)

    # Documents: private

    def add(self, name: str, text: str, *, kind: str = "note", **more: Any) -> Receipt:
        """Keep a document, sealed."""
        return self.enclave.commit(PRIVATE, self._sealed({**more, "kind": kind, "name": name, "text": text}))

    def change(self, document: Id, *, name: str | None = None, text: str | None = None) -> Receipt:
        """Replace what is given of it. The old content is erased."""
        before = plain(self.document(document))
        changes = {key: value for key, value in (("name", name), ("text", text)) if value is not None}
        return self.enclave.update(document, self._sealed({**before, **changes}))

    def remove(self, document: Id) -> Receipt:
        """Take a document, or a notice, away for good."""
        return self.enclave.delete(document)

    def document(self, document: Id) -> Document:
        self.refresh()
        entry = self._ledger.get(as_bytes(document, "document"))
        if entry is None or entry.type != PRIVATE:
            raise EventNotFound("there is no such document")
        return open_document(self.client.identity, self.enclave.id, entry)

    def documents(self, words: str = "") -> list[Document]:
        """Those that open, the oldest first; with `words`, those that have them all in name, kind or text."""
        return search([each for each in self._opened() if isinstance(each, Document)], words)

    def unreadable(self) -> list[Unreadable]:
        """Documents that do not open with this identity's key, and why."""
        return [each for each in self._opened() if isinstance(each, Unreadable)]

    def _opened(self) -> list[Document | Unreadable]:
        return [self._open(entry) for entry in self._entries(PRIVATE)]

    def _open(self, entry: Entry) -> Document | Unreadable:
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
        """Leave a notice in somebody's store: at `place`, or where the registry has it.

        `optional`: `epoch_n`, which a `secret` needs; `topic`, `greeting`, `manifest_hash`, `move_ref`; `inviter`, if
        another than this identity did what the notice is about.
        """
        whom = known(to, self._book, self.client)
        fields = {"enclave_id": enclave_id, "enclave_kind": enclave_kind, **optional}
        notice = make_notice(kind, fields, self.client.identity.public)
        return notify(self.client, whom, notice, secret=secret, place=place, random=self._random)

    def inbox(self) -> list[Entry]:
        """The notices that stand, sealed as they came."""
        return self._entries(NOTICE)

    def notices(self, *, discard: bool = True, limit: int = MAX_REVIEWED) -> list[Received]:
        """The notices that stand, each held against its source: confirmed, pending or discarded.

        No more than `limit`, of as many authors as there are; `inbox` has all, unasked.
        With `discard`, those that are discarded are also deleted, and are not there the next time.
        """
        if limit < 1:
            raise MisuseError("limit: expected a number of notices")
        found = self._inbox.review(self._inbox.chosen(self._entries(NOTICE), limit))
        for each in found:
            if discard and each.state == "discarded":
                with suppress(EventDeleted, EventNotFound):  # another device was faster
                    self.remove(each.id)
        return found

    def handoff(self, received: Received) -> bytes:
        """The secret that a confirmed notice hands over; NotConfirmed, or a DecryptFailed of its own kind."""
        handoff = received.notice.handoff
        if not isinstance(handoff, Handoff):
            raise DecryptFailed("handoff: the notice hands nothing over")
        return opened_handoff(self.client, received.author, handoff)

    def set_open(self, is_open: bool) -> Receipt:
        """Take notices, or none: the gate `notices`."""
        return self.enclave.gate(GATE, open=is_open)

    def is_open(self) -> bool:
        """Whether notices are taken, proved as of the last closed bundle."""
        return self.enclave.state("kv", gate_slot(GATE)).value is None

    # Dataviews: who is pushed what is public, and that notices have come

    def grant_dataview(self, identity: Id, *, endpoint: str | None = None) -> Receipt:
        return self.enclave.grant(identity, DATAVIEW, endpoint=endpoint)

    def revoke_dataview(self, identity: Id) -> Receipt:
        return self.enclave.revoke(identity, DATAVIEW)

    def dataviews(self) -> list[Dataview]:
        """Who has a grant, by the log; each says whether that is proved yet."""
        return dataviews(self.enclave, self.client.identity.public)
