"""The inbox: received notices, each verified with its source."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from enc.apps.people.address_book import AddressBook
from enc.apps.personal.ledger import LedgerEntry
from enc.apps.personal.notice_verification import Confirmer, Question, Received, Refuted, Unconfirmed, judge
from enc.apps.personal.open_notice import opened_notice
from enc.client import Client
from enc.core.errors import DecryptFailed, WorldError
from enc.core.sealed_forms.personal import OpenedNotice

MAX_SILENT = 4
"""Sources without an answer that one review waits for: strangers choose the sources."""


class NotAsked(WorldError):
    """Its source was not asked this time."""

    code = "NOT_ASKED"


class NoticeInbox:
    """`confirmers`: verify a claim, by its kind."""

    def __init__(self, client: Client, book: AddressBook | None, confirmers: Mapping[str, Confirmer]) -> None:
        self._client, self._book, self._confirmers = client, book, confirmers
        self._silent: set[bytes] = set()
        """Notices whose source did not answer last time: they are asked last next time."""
        self._confirmed: set[bytes] = set()

    def chosen(self, entries: Sequence[LedgerEntry], limit: int) -> list[LedgerEntry]:
        """Choose which entries to review if there are more than `limit`.

        First those confirmed before, then those of people in the book, then each author's newest,
        their second, and so on: one author's many notices hide nobody else's.
        """
        if len(entries) <= limit:
            return list(entries)
        known = {each.identity for each in self._book.contacts()} if self._book is not None else set[bytes]()
        ranks, turns = Counter[bytes](), list[tuple[bool, bool, int, int, LedgerEntry]]()
        for entry in sorted(entries, key=lambda entry: -entry.seq):
            ranks[entry.author] += 1
            is_new, is_strange = entry.id not in self._confirmed, entry.author not in known
            turns.append((is_new, is_strange, ranks[entry.author], -entry.seq, entry))
        return [turn[-1] for turn in sorted(turns, key=lambda turn: turn[:-1])[:limit]]

    def review(self, entries: Iterable[LedgerEntry]) -> list[Received]:
        """Return each notice with its state, by rising seq."""
        silent, found = list[bytes](), list[Received]()
        for entry in sorted(entries, key=lambda entry: (entry.id in self._silent, -entry.seq)):
            found.append(self._received(entry, silent))
        self._silent = set(silent)
        self._confirmed |= {each.id for each in found if each.is_actionable}
        return sorted(found, key=lambda received: received.seq)

    def _received(self, entry: LedgerEntry, silent: list[bytes]) -> Received:
        claims: OpenedNotice | None = None

        def ask() -> None:
            nonlocal claims
            try:
                opened = opened_notice(self._client, entry)
            except DecryptFailed as e:
                raise Refuted(e.message) from None
            claims = opened.notice
            if opened.doubt:
                raise Unconfirmed(opened.doubt)
            self._ask(entry, claims, silent)

        state, reason = judge(ask)
        return Received(entry.id, entry.seq, entry.author, entry.created, state, reason, claims)

    def _ask(self, entry: LedgerEntry, notice: OpenedNotice, silent: list[bytes]) -> None:
        if len(silent) >= MAX_SILENT:
            raise NotAsked("its source was not asked this time: too many others did not answer")
        try:
            self._confirm(entry, notice)
        except WorldError:
            silent.append(entry.id)
            raise

    def _confirm(self, entry: LedgerEntry, notice: OpenedNotice) -> None:
        confirm = self._confirmers.get(notice.kind)
        if confirm is None:
            raise Unconfirmed(f"{notice.kind}: no confirmer for this kind")
        node = self._book.node_of(notice.enclave_id) if self._book is not None else None
        source = self._client.enclave(notice.enclave_id, at=node)
        known = self._book.of(entry.author) if self._book is not None else None
        confirm(Question(self._client, entry.author, notice, source, known))
