"""The inbox: notices as they came, opened, and each held against its source."""

from collections.abc import Callable, Iterable, Mapping

from enc.apps.address_book import AddressBook
from enc.apps.personal.ledger import Entry
from enc.apps.personal.reconciling import Confirmer, Question, Received, Unconfirmed, judge, waiting
from enc.apps.personal.sealing_keys import own_keys, registered_sub_key
from enc.client import Client
from enc.core.errors import DecryptFailed, PeerError, WorldError
from enc.core.personal import ForeignSender, Handoff, NoNotice, Notice, open_handoff, open_notice
from enc.core.signing import PrivateKey

MAX_SILENT = 4
"""Sources without an answer that one review waits for: strangers choose what a notice names."""


class NotAsked(WorldError):
    """Its source was not asked this time."""

    code = "NOT_ASKED"


class Inbox:
    """`clock`: Unix milliseconds. `confirmers`: how a claim is proved, by kind."""

    def __init__(
        self, client: Client, book: AddressBook | None, confirmers: Mapping[str, Confirmer], clock: Callable[[], int]
    ) -> None:
        self._client, self._book, self._confirmers, self._clock = client, book, confirmers, clock
        self._silent: set[bytes] = set()
        """Notices whose source gave no answer the last time: they come last the next time."""

    def review(self, entries: Iterable[Entry]) -> list[Received]:
        """Each with its verdict, by rising seq."""
        silent, found = list[bytes](), list[Received]()
        for entry in sorted(entries, key=lambda entry: (entry.id in self._silent, -entry.seq)):
            found.append(self._received(entry, silent))
        self._silent = set(silent)
        return sorted(found, key=lambda received: received.seq)

    def _received(self, entry: Entry, silent: list[bytes]) -> Received:
        age = self._clock() - entry.created
        claims: Notice | None = None
        try:
            notice = claims = self._open(entry)
            state, reason = judge(lambda: self._ask(entry, notice, silent), age)
        except DecryptFailed as e:
            state, reason = "discarded", e.message
        except (PeerError, WorldError) as e:
            state, reason = waiting(e, age), e.message
        return Received(entry.id, entry.seq, entry.author, entry.created, state, reason, claims)

    def _ask(self, entry: Entry, notice: Notice, silent: list[bytes]) -> None:
        if len(silent) >= MAX_SILENT:
            raise NotAsked("not asked this time: too many others gave no answer")
        try:
            self._confirm(entry, notice)
        except WorldError:
            silent.append(entry.id)
            raise

    def _confirm(self, entry: Entry, notice: Notice) -> None:
        confirm = self._confirmers.get(notice.kind)
        if confirm is None:
            raise Unconfirmed(f"{notice.kind}: nobody here knows how to confirm it")
        node = self._book.node_of(notice.enclave_id) if self._book is not None else None
        source = self._client.enclave(notice.enclave_id, at=node)
        confirm(Question(self._client, entry.author, notice, source))

    # Opening

    def _open(self, entry: Entry) -> Notice:
        """What it says. Sealed to either of the owner's keys; by its author's, or by the one registered for it."""
        content = entry.content
        if content is None:
            raise NoNotice("its content is erased, or too long")
        try:
            return self._opened(entry, content, (entry.author,))
        except ForeignSender:
            return self._opened(entry, content, self._senders(entry.author))

    def _senders(self, author: bytes) -> tuple[bytes, ...]:
        if not self._client.has_registry:
            raise Unconfirmed("sealed by a key that only a registry could show to be its author's")
        sub_key = registered_sub_key(self._client, author, fresh=True)  # what it refutes is discarded for good
        return (author,) if sub_key is None else (author, sub_key)

    def _opened(self, entry: Entry, content: str, senders: tuple[bytes, ...]) -> Notice:
        sub_key, identity = own_keys(self._client)
        try:
            return open_notice(sub_key, senders, content, entry.tags)
        except DecryptFailed as e:
            if type(e) is not DecryptFailed:  # its form is wrong, whichever key it is for
                raise
        return open_notice(identity, senders, content, entry.tags)

    def handoff(self, received: Received) -> bytes:
        """The secret that a confirmed notice hands over; NotConfirmed, or a DecryptFailed of its own kind."""
        handoff = received.notice.handoff
        if not isinstance(handoff, Handoff):
            raise DecryptFailed("handoff: the notice hands nothing over")
        if handoff.ecdh_pub not in {key.hex() for key in self._known_senders(received.author)}:
            raise ForeignSender("handoff: sealed by another than the notice's author")
        return open_handoff(self._addressed(handoff), handoff)

    def _known_senders(self, author: bytes) -> tuple[bytes, ...]:
        return self._senders(author) if self._client.has_registry else (author,)

    def _addressed(self, handoff: Handoff) -> PrivateKey:
        keys = own_keys(self._client)
        return next((key for key in keys if key.public.hex() == handoff.recipient), keys[1])
