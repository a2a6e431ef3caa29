"""The blocking client: `Client` talks to one node, `Enclave` is one log on it.

Generated from `async_client.py` by `scripts/blocking_client.py`: do not edit.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from enc.client.clients.commit_queue import CommitQueue
from enc.client.clients.table import Table
from enc.client.clients.unverified import UnverifiedPage, unverified_page
from enc.client.clients.wiring import ClientSettings, Manifest, Setup, manifest_content
from enc.client.commit_queue.queue_file import QueueFile
from enc.client.enclave import combined_reads, commit_builder, members, pulls, slots, validity
from enc.client.enclave.backup import BackupProgress, pull
from enc.client.enclave.combined_reads import Overview
from enc.client.enclave.commit_builder import CommitBuilder
from enc.client.enclave.complete_read import complete_bundle
from enc.client.enclave.deliveries import Delivery, deliveries
from enc.client.enclave.event_proof import EventProof, event_proof
from enc.client.enclave.export import export
from enc.client.enclave.members import Member
from enc.client.enclave.pulls import BatchSelection, select_batches
from enc.client.enclave.push_body import PushedBatch
from enc.client.enclave.search import Between, Ids, Names, PagedSearch, Seqs, TagValues, as_filter
from enc.client.enclave.send_many import checked_commits, send_many
from enc.client.enclave.slots import Slot
from enc.client.enclave.table import Row, TableState, table_types
from enc.client.enclave.table_file import TableFile
from enc.client.enclave.validity import JudgedSearch
from enc.client.enclave.writes import Id, TagList, Writes, as_bytes, as_hex, as_tags
from enc.client.keys.identity import Identity
from enc.client.link.enclave_reader import BundleIds, EnclaveReader
from enc.client.link.sequencer_lookup import fetch_history
from enc.client.migration.import_order import OnStep
from enc.client.migration.migrate import Moved, Mover, former_heads
from enc.client.migration.preflight import may_migrate
from enc.client.registry.register import EnclaveDescription, register_enclave, register_identity, register_node
from enc.client.registry.registry_client import Registry, Resolution
from enc.client.subscribe.feed import Feed
from enc.client.subscribe.subscription import Subscription
from enc.client.verify.facts import EventStatus, StateFact
from enc.client.verify.items import Item
from enc.client.verify.pins import Pins
from enc.client.verify.sequencer_history import History
from enc.client.wire.flow import Flow, run
from enc.client.wire.transport import Transport
from enc.client.witness.quorum import witnessed
from enc.client.witness.witnesses import Witnessed
from enc.core.errors import EncError, MisuseError
from enc.core.machine.archive import Header
from enc.core.primitives.types import Commit, Event, Receipt, Tags, TreeHead
from enc.core.registry.evacuation import Evacuation
from enc.core.registry.reg_entry import IdentityEntry
from enc.core.rules.manifest_schemas import ContentSchemas
from enc.core.trees.state_key import Namespace

T = TypeVar("T")


class Client:
    """A client of one node, for one identity.

    `seq_pub`: the node's key, if known; else the key that the node itself returns is trusted from
    then on. `pins`: where verified heads are stored; a directory, or None for this client's
    lifetime only. `timeout`: seconds for one request. `patience`: seconds for which a request is
    retried. `registry`: finds enclaves; registered ones need no `url`. `nodes`: URLs of other nodes
    to which an enclave may move; the client follows it there. `settings`: rarely used ones, see
    ClientSettings.
    """

    def __init__(
        self,
        url: str | None = None,
        identity: Identity | None = None,
        *,
        seq_pub: Id | None = None,
        pins: Pins | Path | str | Literal["default"] | None = "default",
        timeout: float = 10.0,
        patience: float = 30.0,
        registry: Registry | None = None,
        nodes: Sequence[str] = (),
        settings: ClientSettings = ClientSettings(),  # noqa: B008
    ) -> None:
        self._setup = Setup(url, identity, seq_pub, pins, patience, nodes=nodes, registry=registry, settings=settings)
        network = settings.network
        self._transport = Transport(url, timeout, None if network is None else network.http())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()

    @property
    def url(self) -> str:
        """The node's URL; empty if a registry finds the node of each enclave."""
        return self._transport.url or ""

    @property
    def identity(self) -> Identity:
        return self._setup.identity

    def seq_pub(self) -> bytes:
        """Return the node's key."""
        return self._run(self._setup.node.seq_pub())

    @property
    def evacuations(self) -> Mapping[bytes, Evacuation]:
        """The nodes that ask owners to move their enclaves away, by key, among those asked so far."""
        return self._setup.evacuations

    def create(self, manifest: Manifest, *, tags: TagList = (), schemas: Mapping[str, Any] | None = None) -> "Enclave":
        """Create an enclave from a manifest, from the path of a file with one, or from a template's
        name.

        `schemas`: schemas of contents by event type, which it writes into `meta.schemas`.
        """
        reader = self._setup.reader(bytes(32))
        self._run(reader.session.create(manifest_content(manifest, self.identity, schemas), as_tags(tags)))
        return Enclave(self, reader)

    @property
    def has_registry(self) -> bool:
        """Whether a registry was given; `resolve`, `lookup` and `register` need one."""
        return self._setup.registry_client is not None

    def enclave(self, enclave: Id, *, at: str | None = None) -> "Enclave":
        """Return an existing enclave, on the client's node or `at` another URL. Sends no request."""
        return Enclave(self, self._setup.reader(as_bytes(enclave, "enclave"), at))

    def registry(self) -> "Enclave":
        """Return the registry's own enclave."""
        return Enclave(self, self._setup.required_registry().reader)

    def resolve(self, enclave: Id, *, fresh: bool = False) -> Resolution:
        """Return where an enclave is, from the registry, verified.

        Cached for five minutes unless `fresh`.
        """
        return self._run(self._setup.required_registry().resolve(as_bytes(enclave, "enclave"), fresh=fresh))

    def lookup(self, identity: Id, *, fresh: bool = False) -> IdentityEntry:
        """Return what an identity has registered: its enclaves, and the key to seal to."""
        return self._run(self._setup.required_registry().lookup(as_bytes(identity, "identity"), fresh=fresh))

    def register_node(self, uris: Sequence[str]) -> Receipt | None:
        """Register the URIs of the node whose key is this identity, the preferred one first."""
        return self._run(register_node(self._setup.required_registry(), uris))

    def register_identity(self, enclaves: Mapping[str, Id], *, sub_key: bool = True) -> Receipt | None:
        """Register this identity's enclaves, by label, and the key that others seal to."""
        named = {label: as_bytes(enclave, label) for label, enclave in enclaves.items()}
        sub_pub = self.identity.sub_key().public if sub_key else None
        return self._run(register_identity(self._setup.required_registry(), named, sub_pub))

    def listing(
        self, *, app: str | None = None, creator: Id | None = None, q: str | None = None, after: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """Return an unverified page of the registry's enclaves, and the `after` of the next page,
        if any.
        """
        who = None if creator is None else as_hex(creator, "creator")
        asked = {"app": app, "creator": who, "q": q, "after": after}
        search = {name: value for name, value in asked.items() if value}
        return self._run(self._setup.required_registry().listing(search))

    def commit_many(self, commits: Iterable[Commit]) -> list[Receipt | EncError]:
        """Send commits from `prepare`, also of several enclaves, with few requests where the node takes
        many in one. Return for each, in order, its receipt or the error that refused it.

        Commits that were refused do not stop the others. If an enclave takes no commits now (its
        node does not answer, or is busy for longer than `patience`), the error is that of all its
        later commits. Raises Distrust. Sent again, they do not become second events.
        """
        readers = dict[bytes, EnclaveReader]()

        def reader_of(enclave: bytes) -> EnclaveReader:
            if enclave not in readers:
                readers[enclave] = self._setup.reader(enclave)
            return readers[enclave]

        return self._run(send_many(reader_of, checked_commits(commits)))

    def commit_queue(self, path: Path | str) -> CommitQueue:
        """Return the queue of this identity's commits in a file, which is created if it is missing.

        Close it before the client. Raises MisuseError for a client without an identity of its own: nobody
        could send the queue later.
        """
        if self._setup.is_temporary:
            raise MisuseError("identity: a queue needs one that is kept: give the client Identity.load(path)")
        return CommitQueue(QueueFile(Path(path), self.identity.public), self._setup, self._run)

    def _run(self, flow: Flow[T]) -> T:
        self._setup.check_process()
        network = self._setup.network
        return run(flow, self._transport.send, time.sleep if network is None else network.sleep)


class Enclave(Writes[Receipt]):
    """One enclave. Every answer is verified before it is returned; a false one raises Distrust."""

    def __init__(self, client: Client, reader: EnclaveReader) -> None:
        self._client, self._reader = client, reader

    @property
    def url(self) -> str:
        """The URL of the enclave's node, as far as known."""
        return self._reader.node.url or self._client.url

    def sequencer(self) -> bytes:
        """Return the key of the node in use: the enclave's sequencer, unless the enclave has moved."""
        return (self._run(self._reader.session.verifier())).sequencer

    def sequencers(self) -> History:
        """Return all sequencers of the enclave, from the Migrates in its log."""
        return self._run(fetch_history(self._reader.session))

    def follow(self) -> None:
        """Switch to the enclave's current node, if a known Migrate shows that it left this one.

        Writes do this by themselves. A node that was left still answers reads, with the old log.
        """
        self._run(combined_reads.follow(self._reader))

    def __repr__(self) -> str:
        return f"Enclave({self.hex} at {self.url})"

    @property
    def id(self) -> bytes:
        return self._reader.enclave

    @property
    def hex(self) -> str:
        return self._reader.enclave.hex()

    @property
    def unregistered(self) -> str:
        """Why this client has not registered the enclave yet after a Transfer to its identity;
        empty if nothing is left to do. It tries again after later requests for this enclave, also
        in another process.
        """
        return self._client._setup.unregistered(self.id)

    def _run(self, flow: Flow[T]) -> T:
        return self._client._run(self._client._setup.with_registration(self._reader, flow))

    def send(self, commit: Commit) -> Receipt:
        return self._run(commit_builder.send(self._reader, commit))

    def send_many(self, commits: Iterable[Commit]) -> list[Receipt | EncError]:
        """Send many commits of this enclave, as `Client.commit_many` does."""
        listed = checked_commits(commits)
        if any(commit.enclave != self.id for commit in listed):
            raise MisuseError("commits: one of them is for another enclave; use the client's `commit_many`")
        return self._run(send_many(lambda _: self._reader, listed))

    def _write(self, build: CommitBuilder) -> Receipt:
        return self._run(commit_builder.write(self._reader, build))

    def _write_checked(self, type_: str, content: str, tags: Tags) -> Receipt:
        return self._run(validity.write_checked(self._reader, type_, content, tags))

    # Reading

    def query(
        self,
        *,
        type: Names | None = None,
        author: Ids | None = None,
        id: Ids | None = None,
        seq: Seqs | None = None,
        tags: TagValues | None = None,
        timestamp: Between | None = None,
        limit: int | None = None,
        reverse: bool = False,
        proof: bool = False,
        valid: bool | None = None,
    ) -> Iterator[Item]:
        """Yield matching events, fetched page by page.

        Fields are joined by AND, the values of a list by OR. `seq` and `timestamp` may be ranges:
        `{"start_at", "start_after", "end_at", "end_before"}`, `timestamp` in Unix milliseconds.
        `tags` are values by name; True for any value. `limit` ends early, `reverse` starts with the
        newest.

        Each is verified. With `proof`, each event of a closed bundle is also proved to be in the
        log (`item.fact`). That no matching event was left out is not proved: see `complete`.

        With `valid`, only events whose current content satisfies their type's schema in the
        manifest; with `valid=False`, only those that violate it (`item.violations`);
        `item.content` is the current content. Raises MisuseError for a type without a schema;
        without `type`, such types are left out.
        """
        search = {"type": type, "author": author, "id": id, "seq": seq, "tags": tags, "timestamp": timestamp}
        if valid is not None:
            return self._judged(JudgedSearch(search, limit, reverse, valid=valid, proof=proof))
        return self._items(PagedSearch(search, limit, reverse), proof)

    def _items(self, pages: PagedSearch, proof: bool) -> Iterator[Item]:
        while pages.wire is not None:
            yield from pages.advance(self._run(self._reader.page(pages.wire, proof=proof)))

    def _judged(self, search: JudgedSearch) -> Iterator[Item]:
        while not search.is_over:
            yield from self._run(search.advance(self._reader))

    def schemas(self) -> ContentSchemas:
        """Return the schemas of contents in the manifest, and which of them are ignored, and why."""
        return self._run(validity.fetch_schemas(self._reader))

    def unverified_page(self, wire_filter: Mapping[str, Any]) -> UnverifiedPage:
        """Return one page of events as the node returns them, for callers that verify them
        elsewhere.
        """
        return self._run(unverified_page(self._reader, dict(wire_filter)))

    def event(self, event: Id) -> Item | None:
        """Return one event by its id; None if it is missing or deleted, or you may not read it."""
        return next(self.query(id=as_bytes(event, "event").hex()), None)

    def content(self, item: Item) -> str | None:
        """Return an event's current content: its own, or that of its latest Update."""
        return self._run(combined_reads.content(self._reader, item))

    def contents(self, items: Sequence[Item]) -> dict[bytes, str | None]:
        """Return the current contents of events by id, with one request for each 100 updated events."""
        return self._run(combined_reads.contents(self._reader, items))

    def subscribe(
        self,
        *,
        after: int | None = -1,
        patience: float | None = None,
        type: Names | None = None,
        author: Ids | None = None,
        id: Ids | None = None,
        seq: Seqs | None = None,
        tags: TagValues | None = None,
        timestamp: Between | None = None,
    ) -> Subscription:
        """Return the stored events after seq `after`, then live ones, each once and in order.

        `after=None` begins with the next new event. Reconnects after lost connections, renews
        sessions, and continues at the new node if the enclave moves. Ends by raising:
        EnclaveTerminated, EnclaveMigrated if the new node cannot be found, Unauthorized, Distrust,
        LostRange, or Unreachable after `patience` seconds (default: the client's). With `math.inf`
        it retries forever; `news` reports when the node does not answer.
        """
        wire = as_filter({"type": type, "author": author, "id": id, "seq": seq, "tags": tags, "timestamp": timestamp})

        def feed() -> Feed:
            return Feed(self._reader, self._run(self._reader.session.verifier()), wire, after)

        transport = self._client._transport
        backoff, is_endless = self._reader.node.caller.backoff(patience), patience == math.inf
        network = self._client._setup.network
        return Subscription(
            transport.url, transport.timeout, feed, backoff, self._run, is_endless=is_endless, network=network
        )

    def table(
        self,
        type: Names,
        *,
        rows: Iterable[Row] = (),
        after: int = -1,
        db: Path | str | None = None,
        valid: bool = False,
    ) -> Table:
        """Return the events of these types as rows by id, with their Updates and Deletes applied.

        `rows` and `after` are the saved `rows.values()` and `seq` of an earlier table; or `db` is a
        SQLite file that keeps them. You need the right to read these types, Update and Delete.

        With `valid`, the rows are those whose content satisfies their type's schema in the
        manifest; `table.invalid` has the others.
        """
        if db is not None and (after != -1 or rows != ()):
            raise MisuseError("table: give either `db`, or `rows` and `after`")
        store = None if db is None else TableFile(Path(db), self.id, table_types(type), valid=valid)
        state = TableState(type, rows, after, store, valid=valid)
        return Table(state, self._reader, self.query, self.subscribe, self._run)

    # Proofs

    def head(self) -> TreeHead:
        """Return the newest signed head of this enclave; it extends every head seen before."""
        return self._run(self._reader.session.head())

    def witnessed(self, head: TreeHead | None = None) -> Witnessed | None:
        """Return the witnesses' confirmation of the newest head, or of `head`.

        None without witnesses.
        """
        return self._run(witnessed(self._reader.session, self._client._setup.quorum, head))

    def proof(self, event: Id, *, wait: bool = True) -> EventProof:
        """Return an event with its proof and status; waits until its bundle is closed.

        `save(path)` writes it to a file that anyone can check with `enc verify`.
        """
        return self._run(event_proof(self._reader, as_bytes(event, "event"), wait=wait))

    def status(self, event: Id, *, wait: bool = True) -> EventStatus:
        """Return the proved status; waits until the event's bundle is closed."""
        return self._run(combined_reads.status(self._reader, as_bytes(event, "event"), wait=wait))

    def statuses(self, events: Sequence[Id]) -> Mapping[bytes, EventStatus | Literal["pending", "unknown"]]:
        """Return many proved statuses with few requests.

        `pending`: open bundle; `unknown`: no such event.
        """
        return self._run(combined_reads.statuses(self._reader, [as_bytes(event, "event") for event in events]))

    def state(self, namespace: Namespace, key: Id, *, tree_size: int | None = None) -> StateFact:
        """Return the proved value of a raw key after the last closed bundle, or after `tree_size`
        bundles.
        """
        return self._run(self._reader.state_fact(namespace, as_bytes(key, "key"), tree_size))

    def bundle(self, index: int) -> BundleIds:
        """Return the ids of all events of a closed bundle."""
        return self._run(self._reader.bundle(index))

    def complete(self) -> Iterator[Item]:
        """Yield every event of every closed bundle, proved complete.

        For identities that may read all.
        """
        next_seq, index, size = 0, 0, (self.head()).ts
        while index < size:
            bundle, items = self._run(complete_bundle(self._reader, index, next_seq))
            yield from items
            next_seq, index = next_seq + len(bundle.ids), index + 1

    def archive(self, path: Path | str, progress: BackupProgress = lambda here, total: None) -> Header:
        """Pull the whole log into one file and replay it; resumes an interrupted pull. For owners."""
        return self._run(pull(self._reader, Path(path), progress))

    def export(
        self,
        path: Path | str,
        *,
        since: Path | str | None = None,
        progress: BackupProgress = lambda here, total: None,
    ) -> Header:
        """Write the whole log into one file as the node gives it, unverified, for an audit.

        For owners. With `since`, an earlier archive of it, only later events are requested.
        """
        return self._run(export(self._reader, Path(path), None if since is None else Path(since), progress))

    # Pushes

    def pull(
        self,
        url: str,
        push_seq: int | Iterable[int] | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        enclave: Id | None = None,
    ) -> Iterator[PushedBatch]:
        """Yield the batches queued for you at `url`, from all enclaves of the node or from one.

        Select one number, several, or a range. Batches that the node no longer keeps are missing; a
        batch lacks the events that you may no longer read. Each event is verified.
        """
        asked: BatchSelection | None = select_batches(push_seq, after, until)
        only = None if enclave is None else as_bytes(enclave, "enclave")
        while asked is not None:
            batches = self._run(pulls.pull(self._reader, url, asked, only))
            yield from batches
            asked = asked.rest(batches)

    def deliveries(self) -> list[Delivery]:
        """Return the delivery status of each endpoint registered here.

        Only of your own, unless you are the owner.
        """
        return self._run(deliveries(self._reader))

    # Where it is

    def register(
        self,
        *,
        app: str | None = None,
        desc: str | None = None,
        meta: Mapping[str, Any] | None = None,
        archive: Path | str | None = None,
    ) -> Receipt | None:
        """Register where the enclave is, as its owner; None if registered.

        The new owner does it after a Transfer. Omitted fields keep their registered values.
        `archive`: of the log at a former node; its head proves that an owner unknown to the
        registry was the owner when they moved the enclave away from there.
        """
        setup, description = self._client._setup, EnclaveDescription(app, desc, meta)
        heads = former_heads(None, None if archive is None else Path(archive))
        return self._run(register_enclave(setup.required_registry(), self._reader, description, heads))

    def may_migrate(self) -> bool:
        """Return whether this identity may move the enclave: whether it is an owner."""
        return self._run(may_migrate(self._reader))

    def migrate(
        self,
        to: str,
        folder: Path | str,
        *,
        archive: Path | str | None = None,
        source: str | None = None,
        tell: OnStep = lambda step, what: None,
        progress: BackupProgress = lambda here, total: None,
    ) -> Moved:
        """Move the enclave to the node at this URL, as its owner, and register it if there is a
        registry.

        `folder` keeps what must not be lost meanwhile; after an interruption, call again. With
        `archive` the move is forced, without the old node. `source`: the old node's URL for the new
        one, if it differs. `tell(step, result)` is called after each step.
        """
        setup = self._client._setup
        new = setup.reader_at(self.id, to)
        mover = Mover(
            self._reader,
            new,
            Path(folder),
            setup.registry_client,
            tell=tell,
            progress=progress,
            accept_loss=setup.accept_loss,
        )
        flow = mover.peaceful(lambda: source or self.url) if archive is None else mover.forced(Path(archive))
        found = self._run(flow)
        setup.add_node(to)
        return found

    # What apps ask

    def overview(self) -> Overview:
        return self._run(combined_reads.overview(self._reader))

    def manifest(self) -> Event:
        """Return event 0."""
        return self._run(combined_reads.manifest_event(self._reader))

    def member(self, identity: Id) -> Member:
        """Return an identity's proved State and traits."""
        return self._run(members.member(self._reader, as_bytes(identity, "identity")))

    def members(self) -> list[Member]:
        """Return every identity with a State or trait, proved."""
        return self._run(members.members(self._reader))

    def read_shared(self, key: str) -> Slot:
        """Return the value of a shared slot."""
        return self._run(slots.slot(self._reader, "Shared", key, self._client.identity.public))

    def read_own(self, key: str, owner: Id | None = None) -> Slot:
        """Return the value of an owner's slot; your own by default."""
        who = self._client.identity.public if owner is None else as_bytes(owner, "owner")
        return self._run(slots.slot(self._reader, "Own", key, who))
