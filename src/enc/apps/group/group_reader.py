"""Reading a group: applies its log to the fold and checks that nothing is withheld."""

from collections.abc import Callable, Mapping, Sequence
from threading import RLock

import msgspec
from msgspec.structs import replace

from enc.apps.group.epochs import Keys
from enc.apps.group.errors import NotAMember
from enc.apps.group.fold import GroupFold
from enc.apps.group.following import Following
from enc.apps.group.views import Change, EpochView, GroupEntry, GroupMember, GroupStatus
from enc.client import Client, Distrust, Enclave, Forgery, Item
from enc.client.enclave.writes import Id, as_bytes
from enc.client.evidence.evidence import answer_evidence
from enc.client.link.follow_moves import MAX_HOPS
from enc.core.errors import EncError, ReplayFailed, Unauthorized
from enc.core.log.event import sequenced, wire_event
from enc.core.log.receipt import wire_receipt
from enc.core.primitives.types import Commit, Event, Receipt
from enc.runtime.clock import now_ms

MAX_HIDDEN = 65_536
"""Most deleted events in a row that a client accepts."""

SubKeys = Callable[[frozenset[bytes]], Mapping[bytes, bytes]]
"""Returns the registered sub-keys of those members that have one."""


class GroupReader:
    """A group computed from its log. One lock guards everything."""

    def __init__(
        self,
        client: Client,
        enclave: Id | Enclave,
        *,
        sub_keys: SubKeys | None = None,
        heal: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """`sub_keys`: if given, epochs made here are also sealed to these keys. `heal`: as an
        admin, make a new epoch when the group is stale.
        """
        self._client, self._sub_keys, self._heals = client, sub_keys, heal
        self._enclave = enclave if isinstance(enclave, Enclave) else client.enclave(as_bytes(enclave, "enclave"))
        self._clock = clock or now_ms
        identity = client.identity
        self._fold = GroupFold(Keys(identity.public, identity.key, identity.sub_key()), self._enclave.id)
        self._lock = RLock()
        self._journal: list[Change] = []
        self._delivered = 0
        """How many changes of the journal `sync` and `follow` have returned."""
        self._left = -1
        """The seq of the Move by which we left."""
        self._proved: set[bytes] = set()
        """Events that the node has proved to be deleted."""

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
        """The group's enclave, for actions that Group lacks: pause, resume, terminate, migrate,
        register.
        """
        return self._enclave

    # The log

    def sync(self) -> list[Change]:
        """Read new events and, as an admin, heal. Return the changes, oldest first."""
        with self._lock:
            self.catch_up()
            changes, self._delivered = self._journal[self._delivered :], len(self._journal)
            return changes

    def follow(self, through: Enclave | None = None, *, patience: float | None = None) -> Following:
        """Follow changes: those since the last sync, then live ones. Use `with`, or `close` it from
        any thread.

        `through`: the group's enclave by another client. `patience`: seconds for which a node that
        does not answer is retried, `math.inf` for without end; with it, the changes `offline` and
        `online` are reported. Without it, the client's patience applies and they are not.
        """
        return Following(self, through, patience)

    # For `Following`

    @property
    def last_seq(self) -> int:
        """The seq of the last event read; -1 before the first. Never waits for the lock."""
        return self._fold.seq

    def now(self) -> int:
        """Return the time in Unix milliseconds."""
        return self._clock()

    def next_change(self) -> Change | None:
        """Return the next change that was not returned yet; None if there is none."""
        with self._lock:
            if self._delivered == len(self._journal):
                return None
            self._delivered += 1
            return self._journal[self._delivered - 1]

    def catch_up(self) -> None:
        """Read new events and, as an admin, heal if that is possible now."""
        with self._lock:
            self._pull()
            self._try_heal()

    def receive(self, item: Item) -> None:
        """Apply an event of a subscription, and read the ones missing before it."""
        with self._lock:
            if item.seq > self._fold.seq + 1:
                self._pull()
            self._apply(item.event)
            if item.content is None:
                self._pull()  # the log has the cause of the erasure by now
            self._try_heal()

    # Reading the log

    def _ready(self) -> None:
        """Read the whole log; as an admin, heal, and raise if that fails."""
        self._pull()
        if self._heals:
            self._heal()

    def _try_heal(self) -> None:
        """Heal if that is possible now. If not, reading continues; `status` shows it, and sending
        raises.
        """
        try:
            if self._heals:
                self._heal()
        except EncError as e:
            if isinstance(e, Distrust):
                raise

    def _heal(self) -> None:
        """As an admin, make sure that the last epoch is one of the current members."""

    def _pull(self) -> None:
        """Read up to the log's end, and check that only deleted events are missing."""
        self._pull_here()
        for _ in range(MAX_HOPS):
            if (
                self._fold.membership.lifecycle != "migrated"
                or self._enclave.sequencer() == self._fold.membership.sequencer
            ):
                break
            self._enclave.follow()  # the old node still shows the log as it was
            self._pull_here()
        self._check_whole()

    def _pull_here(self) -> None:
        try:
            for item in self._enclave.query(seq={"start_at": self._fold.seq + 1}):
                self._apply(item.event)
        except Unauthorized as e:
            raise NotAMember("you may not read the group: you are not, or no longer, a member") from e

    def _apply(self, event: Event) -> None:
        """Apply an event unless it is known already; skip the seqs missing before it."""
        if event.seq > 0 > self._fold.seq:
            raise self._distrust("the node shows the log without its Manifest", event)
        if event.seq - self._fold.seq > MAX_HIDDEN:
            raise self._distrust(f"the node withholds more than {MAX_HIDDEN} events in a row", event)
        while self._fold.seq + 1 < event.seq:
            self._fold.skip(self._fold.seq + 1)
        if self._fold.seq + 1 == event.seq:
            try:
                self._journal.append(self._fold.apply(event))
            except ReplayFailed as e:
                raise self._distrust(
                    f"the node shows an event that the group's rules forbid: {e.message}", event
                ) from e

    def _distrust(self, message: str, event: Event) -> Forgery:
        shown = msgspec.json.encode(wire_event(event))
        return Forgery(message, answer_evidence("answer", self.id, event.sequencer, message, shown))

    def _withheld(self, message: str, shown: bytes) -> Forgery:
        return Forgery(message, answer_evidence("answer", self.id, self._enclave.sequencer(), message, shown))

    def _check_whole(self) -> None:
        membership = self._fold.membership
        seq = membership.withheld()
        if seq is not None:
            raise self._withheld(f"the node withholds event {seq}: nobody has deleted it", str(seq).encode())
        asked = [id_ for id_ in membership.unseen if id_ not in self._proved]
        for id_, status in self._enclave.statuses(asked).items() if asked else ():
            if status == "deleted":
                self._proved.add(id_)
            elif status == "unknown" or membership.is_settled(membership.unseen[id_]):
                # Until it is settled, the Delete may be in an open bundle that no head covers: ask
                # again later.
                why = f"the log has a Delete of it, but its status is {status}"
                raise self._withheld(f"the node withholds event {id_.hex()}: {why}", id_)

    def _write(self, type_: str, content: object, tags: Sequence[tuple[str, ...]] = ()) -> Receipt:
        """Send an event, and read the log up to it."""
        return self._send(self._enclave.prepare(type_, content, tags=tags))  # type: ignore[arg-type]

    def _send(self, commit: Commit) -> Receipt:
        """Send a commit, possibly again, and read the log up to it."""
        receipt = self._enclave.send(commit)
        self._absorb(commit, receipt)
        return receipt

    def _absorb(self, commit: Commit, receipt: Receipt) -> None:
        if receipt.seq == self._fold.seq + 1:
            r = receipt
            self._apply(sequenced(commit, r.id, r.timestamp, r.sequencer, r.seq, r.seq_sig))
        elif receipt.seq > self._fold.seq:
            self._pull_to(receipt)

    def _pull_to(self, receipt: Receipt) -> None:
        """Read the log up to the receipt's event. A client that is shown less might seal to people
        who have left.
        """
        self._pull()
        if receipt.seq > self._fold.seq:
            message = f"the node withholds event {receipt.seq}, although it gave a receipt for it"
            raise self._withheld(message, msgspec.json.encode(wire_receipt(receipt)))

    # What is shown

    def status(self) -> GroupStatus:
        with self._lock:
            found = self._fold.status()
            if self._left <= found.seq:
                return found
            # We may not read the events between our last read and the Move by which we left.
            return replace(found, me=GroupMember(self.me, "OUTSIDER"), can_seal=False)

    def people(self) -> list[GroupMember]:
        """Return everyone with a State or trait: members first, then by identity."""
        with self._lock:
            return sorted(self._fold.membership.people(), key=lambda person: (not person.is_member, person.identity))

    def person(self, identity: Id) -> GroupMember:
        """Return a person's State, traits and profile; OUTSIDER if unknown."""
        with self._lock:
            return self._fold.membership.person(as_bytes(identity, "identity"))

    def entries(self, last: int | None = None) -> list[GroupEntry]:
        """Return the entries of the conversation, oldest first; only the `last` ones if given."""
        with self._lock:
            found = list(self._fold.messages.all())
            return found if last is None else found[-last:] if last > 0 else []

    def entry(self, id: Id) -> GroupEntry | None:
        with self._lock:
            return self._fold.messages.shown(as_bytes(id, "entry"))

    def epochs(self) -> list[EpochView]:
        """Return all epochs, whether they count or not, oldest first."""
        with self._lock:
            return list(self._fold.epochs.views)
