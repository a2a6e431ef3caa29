"""Moves an enclave to another node, in steps; each step first checks whether it is already done.

    peaceful   copy the log -> freeze the enclave -> sign the Migrate -> the old node accepts it -> the new one pulls
    copied     the same without the first step: the new node has copied the log ahead of time
    forced     read the archive -> sign the Migrate -> the new node replays the archive and accepts the Migrate
    both       wait for the new node -> verify that its log continues what was seen before -> register

Until all is done, a folder keeps what must not be lost: the Migrate, from before it is sent, and the
copy of the log, with which the enclave can be moved by force if a node fails in between. After an
interruption, call again.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from enc.client.enclave.backup import BackupProgress, append_log, archive_head, open_part, resume, write_archive
from enc.client.enclave.combined_reads import manifest_event, policy
from enc.client.errors import ForeignSequencer, LostRange
from enc.client.link.enclave_reader import EnclaveReader
from enc.client.link.node_link import NodeLink
from enc.client.migration.adopt_sequencer import lost_range
from enc.client.migration.import_order import OnStep, run_import
from enc.client.migration.journal import Journal
from enc.client.migration.preflight import NodeTerms, begins_with, check_existing_log, checkpoint_size, fetch_terms
from enc.client.migration.warm_move import check_destination, held_where_copied, hold_checkpoint
from enc.client.registry.register import register_enclave
from enc.client.registry.registry_client import RegistryClient
from enc.client.verify.pins import Pin
from enc.client.wire.flow import Call, Flow, work
from enc.core.errors import (
    CheckpointMismatch,
    EnclaveExists,
    EnclaveMigrated,
    EnclaveNotFound,
    Expired,
    InvalidArchive,
    InvalidProof,
    PeerError,
    Unauthorized,
    UpstreamUnreachable,
)
from enc.core.log.commit import wire_commit
from enc.core.log.event import sequenced, wire_event
from enc.core.machine.archive import read_archive
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.replay import Replay
from enc.core.machine.state import view
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.types import Commit, Event, Receipt, TreeHead
from enc.core.rules.content import parse_migrate
from enc.core.rules.dialect import Dialect

HOLD_S = 30
"""How long the old node is asked to accept only the Migrate, in seconds."""
MAX_TRIES = 5
"""How often a Migrate is signed again because the log grew meanwhile."""


class Moved(Struct, frozen=True):
    """The result of a move: the Migrate, and the new node's head, which extends what was seen
    before.
    """

    migrate: Event
    head: TreeHead
    registered: Receipt | None

    @property
    def sequencer(self) -> bytes:
        return parse_migrate(self.migrate).new_sequencer


class Mover:
    """One move of one enclave. `reader`: through the old node; `new`: through the new one."""

    def __init__(
        self,
        reader: EnclaveReader,
        new: EnclaveReader,
        folder: Path,
        registry_client: RegistryClient | None = None,
        *,
        tell: OnStep = lambda step, what: None,
        progress: BackupProgress = lambda here, total: None,
        accept_loss: bool = False,
    ) -> None:
        self._reader, self._new, self._folder, self._registry_client = reader, new, folder, registry_client
        self._accept_loss = accept_loss
        self._report, self._progress = tell, progress

    @property
    def _new_node(self) -> NodeLink:
        return self._new.node

    def peaceful(self, source: Callable[[], str]) -> Flow[Moved]:
        """Move with the old node's help.

        `source`: its URL for the new node, which else gets the copy. `source` is called after the
        Migrate: before, the enclave may turn out to be at another node.
        """
        with (yield from self._journal()) as journal:
            return (yield from self._peaceful(journal, source))

    def _peaceful(self, journal: Journal, source: Callable[[], str]) -> Flow[Moved]:
        self._clear_outdated(journal)
        event = journal.event() or (yield from self._completed_migrate()) or (yield from self._migrate(journal))
        journal.keep(event)
        order = {"migrate": wire_event(event)}
        try:
            yield from self._import({**order, "source": source()}, event, None)
        except (PeerError, UpstreamUnreachable):
            if not journal.copy.exists():
                raise
            yield from self._import_copy(order, event, journal.copy)
        return (yield from self._finish(journal, event))

    def forced(self, archive: Path) -> Flow[Moved]:
        """Move without the old node, from a copy of the log."""
        with (yield from self._journal()) as journal:
            self._clear_outdated(journal)
            event = journal.event() or (yield from self._completed_migrate())
            if event is None:
                event = yield from self._take_over(journal, archive)
                journal.keep(event)
            return (yield from self._finish(journal, event, archive))

    def _journal(self) -> Flow[Journal]:
        return Journal(self._folder, self._reader.enclave, (yield from self._new_node.seq_pub()))

    def _clear_outdated(self, journal: Journal) -> None:
        event = journal.event()
        if event is not None and self._is_outdated(event):
            journal.clear()

    def _is_outdated(self, event: Event) -> bool:
        """Whether the enclave has moved elsewhere since: following this Migrate would make a second
        log.
        """
        pin = self._reader.session.pins.load(self._reader.enclave)
        latest = pin.moves[-1].event if pin is not None and pin.moves else event
        return latest.seq >= event.seq and latest.id != event.id

    def _completed_migrate(self) -> Flow[Event | None]:
        """Return the Migrate by which the new node is already the sequencer; None if it is not."""
        try:
            page = yield from self._new.page({"type": "Migrate", "limit": 1, "reverse": True})
        except (EnclaveNotFound, EnclaveMigrated, ForeignSequencer):
            return None
        key = yield from self._new_node.seq_pub()
        is_there = page.items and self._new.session.known_verifier().history.departure(key) is None
        return page.items[0].event if is_there and page.items[0].event.content else None

    # Peaceful

    def _migrate(self, journal: Journal) -> Flow[Event]:
        """Return the Migrate as the old node's last event.

        A stored commit is sent first: it may be accepted.
        """
        yield from self._reader.session.head()  # follows the enclave to its current node
        yield from check_destination(self._reader.node, self._new_node)
        asked = yield from fetch_terms(self._new_node)
        if journal.commit() is None:  # else it may have been accepted already
            asked.check_open()
        if self._registry_client is not None:
            yield from self._register_before(self._registry_client)
        for _ in range(MAX_TRIES):
            commit = journal.commit() or (yield from self._sign_copied(journal))
            commit = commit or (yield from self._copy_and_sign(journal, asked))
            try:
                receipt = yield from self._reader.session.submit(commit)
            except (CheckpointMismatch, Expired):
                journal.drop_commit()
                continue
            r = receipt
            event = sequenced(commit, r.id, r.timestamp, r.sequencer, r.seq, r.seq_sig)
            self._report("migrate", f"event {event.seq}, accepted by {event.sequencer.hex()}")
            return event
        raise CheckpointMismatch("the log grew after each signed Migrate; try again", seq=0, ct_root="")

    def _register_before(self, registry_client: RegistryClient) -> Flow[None]:
        """Register the owner first: a registry accepts a Migrate only from the holder of the entry."""
        try:
            holder = (yield from registry_client.record(self._reader.enclave)).holder
        except EnclaveNotFound:
            holder = (yield from manifest_event(self._reader)).from_
        if holder != self._reader.identity.public:
            yield from register_enclave(registry_client, self._reader)

    def _copy_and_sign(self, journal: Journal, asked: NodeTerms) -> Flow[Commit]:
        """Copy the log, freeze it for the last events, and sign the Migrate for the copy.

        Does not sign away a log that the new node would reject.
        """
        replay = Replay(self._reader.enclave)
        manifest = yield from manifest_event(self._reader)
        with open_part(journal.part) as file:
            yield from work(lambda: resume(file, journal.part, replay))
            head = yield from append_log(self._reader, file, replay, self._progress)
            self._report("copy", f"{replay.events} events, replayed")
            asked.check_fits(replay, file.tell(), len((manifest.content or "").encode()))
            session = self._reader.session.transport_session()
            yield from check_existing_log(self._new_node, session, replay, manifest, head)
            text, checkpoint = yield from hold_checkpoint(self._reader, HOLD_S)
            if replay.events <= checkpoint.seq:
                head = yield from append_log(self._reader, file, replay, self._progress)
        self._report("hold", f"the log is at event {checkpoint.seq}")
        with self._reader.session.known_verifier().blame_node("checkpoint", text):
            if (checkpoint.seq, checkpoint.ct_root) != (replay.state.seq, replay.checkpoint_root().hex()):
                raise InvalidProof("does not match the log")
        header = header_of(replay, head)
        journal.copy.unlink(missing_ok=True)
        yield from work(lambda: write_archive(header, journal.part, journal.copy))
        return (yield from self._sign_replayed(journal, replay))

    def _sign_copied(self, journal: Journal) -> Flow[Commit | None]:
        """Sign the Migrate for the log that the new node has copied ahead; None if it has not."""
        checkpoint = yield from held_where_copied(self._reader, self._new_node, HOLD_S)
        if checkpoint is None:
            return None
        journal.copy.unlink(missing_ok=True)  # of an earlier attempt: it may lack events
        self._report("copy", f"{checkpoint.seq + 1} events, copied ahead by {self._new_node.url}")
        self._report("hold", f"the log is at event {checkpoint.seq}")
        dialect = (yield from policy(self._reader)).dialect
        return (yield from self._sign(journal, checkpoint.seq, checkpoint.ct_root, dialect))

    def _sign_replayed(self, journal: Journal, replay: Replay) -> Flow[Commit]:
        root, dialect = replay.checkpoint_root().hex(), replay.state.policy.dialect
        return (yield from self._sign(journal, replay.state.seq, root, dialect))

    def _sign(self, journal: Journal, seq: int, root: str, dialect: Dialect) -> Flow[Commit]:
        to = yield from self._new_node.seq_pub()
        content = {"new_sequencer": to.hex(), "prev_seq": seq, "ct_root": root}
        commit = self._reader.session.prepare("Migrate", compact_json(content), dialect=dialect)
        journal.keep(commit)
        self._report("sign", f"after event {seq}, to {to.hex()}")
        return commit

    # Forced

    def _take_over(self, journal: Journal, archive: Path) -> Flow[Event]:
        for _ in range(MAX_TRIES):
            commit = journal.commit()
            if commit is None:
                replay = yield from work(lambda: self._replayed(archive))
                self._check_loss(replay)
                self._report("copy", f"{replay.events} events, replayed")
                commit = yield from self._sign_replayed(journal, replay)
            try:
                return (yield from self._import({"migrate": wire_commit(commit)}, commit, archive))
            except Expired:
                journal.drop_commit()
        raise Expired("exp has passed")

    def _replayed(self, archive: Path) -> Replay:
        header, events = read_archive(Call("", file=archive).pieces())
        if header.enclave != self._reader.enclave:
            raise InvalidArchive("the archive belongs to another enclave")
        replay = verify_archive(header, events)
        me = self._reader.identity.public
        if not replay.state.policy.is_owner(view(replay.state, replay.store).bitmask(me)):
            raise Unauthorized("only the owner may Migrate, and according to this archive you are not the owner")
        return replay

    def _check_loss(self, replay: Replay) -> None:
        """Check that the archive has everything seen here before, or that the user accepts the
        loss.
        """
        pin = self._reader.session.pins.load(self._reader.enclave)
        if pin is None or self._accept_loss:
            return
        has_moves = all(replay.store.target(move.event.id) is not None for move in pin.moves)
        if has_moves and (pin.head is None or begins_with(replay, pin.head)):
            return
        size, seq = checkpoint_size(replay), replay.state.seq + 1
        end = max(pin.head.ts if pin.head else 0, size)
        message = (
            f"the archive ends before event {seq}, but more was seen here: what {pin.sequencer.hex()} wrote there and "
            f"later, in bundles {size - 1} to {end - 1}, would be lost; nothing was sent"
        )
        raise LostRange(message, first_seq=seq, bundles=[size - 1, end])

    # Both

    def _import(self, order: dict[str, Any], migrate: Commit, archive: Path | None) -> Flow[Event]:
        flow = run_import(self._new_node, order, migrate, archive, report=self._report, progress=self._progress)
        return (yield from flow)

    def _import_copy(self, order: dict[str, Any], migrate: Event, copy: Path) -> Flow[Event]:
        try:
            return (yield from self._import(order, migrate, copy))
        except EnclaveExists as e:
            message = (
                f"{e.message}; the old node has already accepted the Migrate: archive the enclave from there, and "
                "move it to a third node from the archive"
            )
            raise EnclaveExists(message, **e.context) from None

    def _finish(self, journal: Journal, event: Event, archive: Path | None = None) -> Flow[Moved]:
        """Verify that the new node's log continues the old one, then register it."""
        before = self._new.session.pins.load(self._new.enclave)
        self._new.session.restart()
        head = yield from self._new.session.head()
        yield from self._new.place(event.id)
        self._report("verify", f"a head of {head.ts} bundles; {self._loss(before, event)}")
        receipt = None
        if self._registry_client is not None:
            heads = former_heads(before, archive, journal.copy if journal.copy.exists() else None)
            receipt = yield from register_enclave(self._registry_client, self._new, heads=heads)
            self._report("register", "registered" if receipt else "registered already")
        journal.close()
        self._reader.session.node = self._new_node
        self._reader.session.restart()
        return Moved(event, head, receipt)

    def _loss(self, before: Pin | None, event: Event) -> str:
        """Return what the pinned log lost by the move, or that it lost nothing."""
        history = self._new.session.known_verifier().history
        moves = [move for move in history.moves if move.event.id == event.id and move.size is not None]
        if before is None or not moves or before.sequencer == moves[0].new_sequencer:
            return "it extends what was seen before"
        loss = lost_range(history, before, moves[0], moves[0].size or 0)
        return "it extends what was seen before" if loss is None else loss.message


def former_heads(pin: Pin | None, *archives: Path | None) -> list[TreeHead]:
    """Return heads of former sequencers: the pinned one, and those in the archives."""
    found = [None if pin is None else pin.head]
    found += [archive_head(archive) for archive in archives if archive is not None]
    return [head for head in found if head is not None and head.ts]
