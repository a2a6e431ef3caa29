"""Reading a group: the log into the fold, checked to be whole, once or for as long as one listens."""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import RLock

import msgspec
from msgspec.structs import replace

from enc.apps.group.epochs import Keys
from enc.apps.group.errors import NotAMember
from enc.apps.group.fold import Fold
from enc.apps.group.following import Following
from enc.apps.group.views import Change, Entry, EpochView, Person, Status
from enc.client import Client, Distrust, Enclave, Forgery
from enc.client.evidence import answer_evidence
from enc.client.following import MAX_HOPS
from enc.client.writes import Id, as_bytes
from enc.core.errors import EncError, ReplayFailed, Unauthorized
from enc.core.event import sequenced, wire_event
from enc.core.receipt import wire_receipt
from enc.core.types import Commit, Event, Receipt

MAX_HIDDEN = 65_536
"""Deleted events in a row that a client takes note of."""

SubKeys = Callable[[frozenset[bytes]], Mapping[bytes, bytes]]
"""Members' registered sub-keys, of those that have one."""


class Reading:
    """What a group is, by its log. Everything under one lock."""

    def __init__(
        self,
        client: Client,
        enclave: Id | Enclave,
        *,
        sub_keys: SubKeys | None = None,
        heal: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """`sub_keys`: if given, epochs made here are sealed to these too. `heal`: as an admin, keep the epoch fresh."""
        self._client, self._sub_keys, self._heals = client, sub_keys, heal
        self._enclave = enclave if isinstance(enclave, Enclave) else client.enclave(as_bytes(enclave, "enclave"))
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        identity = client.identity
        self._fold = Fold(Keys(identity.public, identity.key, identity.sub_key()), self._enclave.id)
        self._lock = RLock()
        self._journal: list[Change] = []
        self._told = 0
        """Changes of the journal that `sync` or `follow` has given out."""
        self._left = -1
        """The place of the Move by which we put ourselves out."""
        self._proved: set[bytes] = set()
        """Deleted events that are proved to be."""

    @property
    def id(self) -> bytes:
        return self._enclave.id

    @property
    def hex(self) -> str:
        return self._enclave.hex

    @property
    def me(self) -> bytes:
        return self._client.identity.public

    @property
    def enclave(self) -> Enclave:
        """The enclave below, for what a group has no word for: pause, resume, terminate, migrate, register."""
        return self._enclave

    # The log

    def sync(self) -> list[Change]:
        """Take everything that the log has and we have not; as an admin, heal. What changed, oldest first."""
        with self._lock:
            self._pull()
            self._mend()
            changes, self._told = self._journal[self._told :], len(self._journal)
            return changes

    def follow(self, through: Enclave | None = None, *, patience: float | None = None) -> Following:
        """Changes for good: those since the last sync, then live ones. `with` it, or `close` it, from any thread.

        `through`: the group's enclave by another client. `patience`: seconds for which a node that does not answer is
        tried again, `math.inf` for without end; with it, `offline` and `online` are told. Else it is the client's, and
        they are not.
        """
        return Following(self, through, patience)

    def _ready(self) -> None:
        """All of the log is here; whoever may, has mended what it found."""
        self._pull()
        if self._heals:
            self._heal()

    def _mend(self) -> None:
        """Heal, if that can be done now. If not, everybody still reads; `status` says so, and who sends hears why."""
        try:
            if self._heals:
                self._heal()
        except EncError as e:
            if isinstance(e, Distrust):
                raise

    def _heal(self) -> None:
        """As an admin, see to it that the last epoch is one of the present members."""

    def _pull(self) -> None:
        """Everything up to the log's end, and the proof that nothing is missing but what was deleted."""
        self._pull_here()
        for _ in range(MAX_HOPS):
            if self._fold.roll.lifecycle != "migrated" or self._enclave.sequencer() == self._fold.roll.sequencer:
                break
            self._enclave.follow()  # the node that it left still shows the log as it was
            self._pull_here()
        self._check_whole()

    def _pull_here(self) -> None:
        try:
            for item in self._enclave.query(seq={"start_at": self._fold.seq + 1}):
                self._take(item.event)
        except Unauthorized as e:
            raise NotAMember("the group is not yours to read: you are not, or no more, a member") from e

    def _take(self, event: Event) -> None:
        """One event, unless it is here already; what is left out before it is noted."""
        if event.seq > 0 > self._fold.seq:
            raise self._distrust("the log is shown without its Manifest", event)
        if event.seq - self._fold.seq > MAX_HIDDEN:
            raise self._distrust(f"more than {MAX_HIDDEN} events in a row are withheld", event)
        while self._fold.seq + 1 < event.seq:
            self._fold.skip(self._fold.seq + 1)
        if self._fold.seq + 1 == event.seq:
            try:
                self._journal.append(self._fold.take(event))
            except ReplayFailed as e:
                raise self._distrust(
                    f"the node shows an event that the group's rules refuse: {e.message}", event
                ) from e

    def _distrust(self, message: str, event: Event) -> Forgery:
        shown = msgspec.json.encode(wire_event(event))
        return Forgery(message, answer_evidence("answer", self.id, event.sequencer, message, shown))

    def _withheld(self, message: str, what: bytes) -> Forgery:
        return Forgery(message, answer_evidence("answer", self.id, self._enclave.sequencer(), message, what))

    def _check_whole(self) -> None:
        roll = self._fold.roll
        seq = roll.withheld()
        if seq is not None:
            raise self._withheld(f"event {seq} is withheld: nobody has deleted it", str(seq).encode())
        asked = [id_ for id_ in roll.unseen if id_ not in self._proved]
        for id_, status in self._enclave.statuses(asked).items() if asked else ():
            if status == "deleted":
                self._proved.add(id_)
            elif status == "unknown" or roll.is_settled(roll.unseen[id_]):
                # before that the Delete may be in an open bundle, and no head knows of it: it is asked for again
                raise self._withheld(f"an event is withheld: {id_.hex()} was to be deleted, but: {status}", id_)

    def _write(self, type_: str, content: object, tags: Sequence[tuple[str, ...]] = ()) -> Receipt:
        """Send, and take the log up to what was sent."""
        commit = self._enclave.prepare(type_, content, tags=tags)  # type: ignore[arg-type]
        receipt = self._enclave.send(commit)
        self._absorb(commit, receipt)
        return receipt

    def _absorb(self, commit: Commit, receipt: Receipt) -> None:
        if receipt.seq == self._fold.seq + 1:
            r = receipt
            self._take(sequenced(commit, r.id, r.timestamp, r.sequencer, r.seq, r.seq_sig))
        elif receipt.seq > self._fold.seq:
            self._pull_to(receipt)

    def _pull_to(self, receipt: Receipt) -> None:
        """The log, as far as the node itself says that it goes: who is shown less would seal to who is gone."""
        self._pull()
        if receipt.seq > self._fold.seq:
            message = f"event {receipt.seq} is withheld: the node gave a receipt for it"
            raise self._withheld(message, msgspec.json.encode(wire_receipt(receipt)))

    # What it says

    def status(self) -> Status:
        with self._lock:
            found = self._fold.status()
            if self._left <= found.seq:
                return found
            # what came before our Move, and since we last read, is not ours to read any more
            return replace(found, me=Person(self.me, "OUTSIDER"), can_seal=False)

    def people(self) -> list[Person]:
        """Everybody who is or holds anything: members first, by identity."""
        with self._lock:
            return sorted(self._fold.roll.people(), key=lambda person: (not person.is_member, person.identity))

    def person(self, identity: Id) -> Person:
        """Also of somebody who is nothing here: an OUTSIDER."""
        with self._lock:
            return self._fold.roll.person(as_bytes(identity, "identity"))

    def entries(self, last: int | None = None) -> list[Entry]:
        """The conversation, oldest first; or the `last` so many."""
        with self._lock:
            found = list(self._fold.talk.all())
            return found if last is None else found[-last:] if last > 0 else []

    def entry(self, id: Id) -> Entry | None:
        with self._lock:
            return self._fold.talk.shown(as_bytes(id, "entry"))

    def epochs(self) -> list[EpochView]:
        """All that were made, counted or not, oldest first."""
        with self._lock:
            return list(self._fold.epochs.views)
