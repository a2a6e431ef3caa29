"""The awaiting face: the same names as `enc.client.client`, to be awaited."""

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from enc.client import members, pulls, reads, saying, slots
from enc.client.backup import Progress, pull
from enc.client.council import witnessed
from enc.client.deliveries import Delivery, deliveries
from enc.client.directory import Registry, Resolution
from enc.client.export import export
from enc.client.facts import EventFact, EventStatus, StateFact
from enc.client.feed import Feed
from enc.client.flow import Flow, run_async
from enc.client.history import History
from enc.client.identity import Identity
from enc.client.items import Item
from enc.client.lineage import fetch_history
from enc.client.link import Bundle, EnclaveReader
from enc.client.members import Member
from enc.client.moving import Moved, Mover, OnStep, heads_of
from enc.client.pins import Pins
from enc.client.pulls import BatchSelection, select_batches
from enc.client.push_body import PushedBatch
from enc.client.reads import Overview
from enc.client.registering import EnclaveDescription, register_enclave, register_identity, register_node
from enc.client.saying import CommitBuilder
from enc.client.search import Search, as_filter
from enc.client.setup import LAG_S, Manifest, Setup, manifest_content
from enc.client.slots import Slot
from enc.client.subscription import AsyncSubscription
from enc.client.transport import AsyncTransport
from enc.client.whole import complete_bundle
from enc.client.witnesses import Witness, Witnessed
from enc.client.writes import Id, TagList, Writes, as_bytes, as_hex, as_tags
from enc.core.archive import Header
from enc.core.reg_entry import IdentityEntry
from enc.core.signing import Alg
from enc.core.state_key import Namespace
from enc.core.types import Commit, Event, Receipt, TreeHead

T = TypeVar("T")


class AsyncClient:
    """One node, as one identity sees it.

    `seq_pub`: the node's key, where it is known; else the node is asked once, and believed from then on.
    `pins`: where what is known of each enclave is kept; a directory, or None for this client's life only.
    `timeout`: seconds for one request. `patience`: seconds for which a request is tried again.
    `registry`: who knows where enclaves are; with it no `url` is needed for those that are registered. `nodes`: URLs of
    others to which an enclave may move. A client follows an enclave there; where what it has seen before is lost with
    that, only if told to: `accept_loss`.
    `witnesses`: who else follows the enclaves; `k` of them (all, if it is not said) must stand behind a head before it
    counts, and may be `lag` seconds behind the node.
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
        alg: Alg = "schnorr",
        registry: Registry | None = None,
        nodes: Sequence[str] = (),
        accept_loss: bool = False,
        witnesses: Sequence[Witness] = (),
        k: int | None = None,
        lag: float = LAG_S,
    ) -> None:
        self._setup = Setup(
            url,
            identity,
            seq_pub,
            pins,
            patience,
            alg,
            nodes=nodes,
            registry=registry,
            accept_loss=accept_loss,
            witnesses=witnesses,
            k=k,
            lag=lag,
        )
        self._transport = AsyncTransport(url, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    @property
    def url(self) -> str:
        """The node's; empty where a registry says for each enclave which it is."""
        return self._transport.url or ""

    @property
    def identity(self) -> Identity:
        return self._setup.identity

    async def seq_pub(self) -> bytes:
        """The node's key."""
        return await self._run(self._setup.node.seq_pub())

    async def create(self, manifest: Manifest, *, tags: TagList = ()) -> "AsyncEnclave":
        """Found an enclave: from a manifest, from the path of a file that holds one, or by a template's name."""
        reader = self._setup.reader(bytes(32))
        await self._run(reader.session.create(manifest_content(manifest, self.identity), as_tags(tags)))
        return AsyncEnclave(self, reader)

    @property
    def has_registry(self) -> bool:
        """Whether a registry was given, which `resolve`, `lookup` and `register` need."""
        return self._setup.registry_client is not None

    def enclave(self, enclave: Id, *, at: str | None = None) -> "AsyncEnclave":
        """An enclave that is there, on the client's node or `at` the URL of another. Nothing is asked yet."""
        return AsyncEnclave(self, self._setup.reader(as_bytes(enclave, "enclave"), at))

    def registry(self) -> "AsyncEnclave":
        """The registry itself, which is an enclave like others."""
        return AsyncEnclave(self, self._setup.required_registry().reader)

    async def resolve(self, enclave: Id, *, fresh: bool = False) -> Resolution:
        """Where an enclave is, by the registry: checked, and good for five minutes unless it is to be `fresh`."""
        return await self._run(self._setup.required_registry().resolve(as_bytes(enclave, "enclave"), fresh=fresh))

    async def lookup(self, identity: Id, *, fresh: bool = False) -> IdentityEntry:
        """What an identity has made known of itself in the registry: its enclaves, and the key to seal to."""
        return await self._run(self._setup.required_registry().lookup(as_bytes(identity, "identity"), fresh=fresh))

    async def register_node(self, uris: Sequence[str]) -> Receipt | None:
        """Tell the registry where the node whose key is this identity is reached, the preferred URI first."""
        return await self._run(register_node(self._setup.required_registry(), uris))

    async def register_identity(self, enclaves: Mapping[str, Id], *, sub_key: bool = True) -> Receipt | None:
        """Tell the registry which enclaves this identity has, by label, and the key that others seal to."""
        named = {label: as_bytes(enclave, label) for label, enclave in enclaves.items()}
        sub_pub = self.identity.sub_key().public if sub_key else None
        return await self._run(register_identity(self._setup.required_registry(), named, sub_pub))

    async def listing(
        self, *, app: str | None = None, creator: Id | None = None, q: str | None = None, after: str | None = None
    ) -> tuple[list[dict[str, Any]], str | None]:
        """A page of the registry's enclaves, by its word alone; and what to ask for as `after`, if there are more."""
        who = None if creator is None else as_hex(creator, "creator")
        asked = {"app": app, "creator": who, "q": q, "after": after}
        search = {name: value for name, value in asked.items() if value}
        return await self._run(self._setup.required_registry().listing(search))

    async def _run(self, flow: Flow[T]) -> T:
        self._setup.check_process()
        return await run_async(flow, self._transport.send, asyncio.sleep)


class AsyncEnclave(Writes[Coroutine[Any, Any, Receipt]]):
    """One enclave. Every answer is checked before it is returned; what cannot be true raises Distrust."""

    def __init__(self, client: AsyncClient, reader: EnclaveReader) -> None:
        self._client, self._reader = client, reader

    @property
    def url(self) -> str:
        """Of the node that has it, as far as is known."""
        return self._reader.node.url or self._client.url

    async def sequencer(self) -> bytes:
        """The key of the node that is asked: the enclave's sequencer, if it has not moved on."""
        return (await self._run(self._reader.session.verifier())).sequencer

    async def sequencers(self) -> History:
        """All of the enclave's sequencers, as the Migrates in its log say."""
        return await self._run(fetch_history(self._reader.session))

    async def follow(self) -> None:
        """Turn to the node that has the enclave now, where a Migrate that was seen says that it left this one.

        Every write does so by itself; a node that was left still answers who reads, with the log as it was.
        """
        await self._run(reads.follow(self._reader))

    def __repr__(self) -> str:
        return f"AsyncEnclave({self.hex} at {self.url})"

    @property
    def id(self) -> bytes:
        return self._reader.enclave

    @property
    def hex(self) -> str:
        return self._reader.enclave.hex()

    async def _run(self, flow: Flow[T]) -> T:
        return await self._client._run(flow)

    async def send(self, commit: Commit) -> Receipt:
        return await self._run(saying.send(self._reader, commit))

    async def _write(self, said: CommitBuilder) -> Receipt:
        return await self._run(saying.write(self._reader, said))

    # Reading

    def query(
        self, *, proof: bool = False, limit: int | None = None, reverse: bool = False, **search: Any
    ) -> AsyncIterator[Item]:
        """Events that match, page by page as they are taken; see `Search` for what can be asked.

        Each is checked. With `proof`, each of a closed bundle is also proved to be in the log (`item.fact`). That
        nothing which matches was left out is not proved: see `complete`.
        """
        return self._items(Search(search, limit, reverse), proof)

    async def _items(self, pages: Search, proof: bool) -> AsyncIterator[Item]:
        while pages.wire is not None:
            for item in pages.take(await self._run(self._reader.page(pages.wire, proof=proof))):
                yield item

    async def event(self, event: Id) -> Item | None:
        """One event by its id; None if it is not there, deleted, or not yours to read."""
        return await anext(self.query(id=as_bytes(event, "event").hex()), None)

    async def content(self, item: Item) -> str | None:
        """What an event says now: its own content, or that of its latest Update."""
        return await self._run(reads.content(self._reader, item))

    def subscribe(self, *, after: int | None = -1, patience: float | None = None, **search: Any) -> AsyncSubscription:
        """Stored events after seq `after`, then live ones, each once and in order, for as long as it is iterated.

        `after=None` begins with what comes from now on. Lost connections are made again; sessions are renewed.
        If the enclave moves, it goes on at the new node. Ends by raising: EnclaveTerminated, EnclaveMigrated if the new
        node cannot be found, Unauthorized, Distrust, LostRange, or Unreachable once `patience` is over: the client's,
        or as it is given here. With `math.inf` it is never over; `news` tells when the node does not answer.
        """
        wire = as_filter(search)

        async def feed() -> Feed:
            return Feed(self._reader, await self._run(self._reader.session.verifier()), wire, after)

        transport = self._client._transport
        backoff, is_endless = self._reader.node.caller.backoff(patience), patience == math.inf
        return AsyncSubscription(transport.url, transport.timeout, feed, backoff, self._run, is_endless=is_endless)

    # Proofs

    async def head(self) -> TreeHead:
        """The newest signed head: of this enclave, and an extension of every one seen before."""
        return await self._run(self._reader.session.head())

    async def witnessed(self, head: TreeHead | None = None) -> Witnessed | None:
        """What the client's witnesses vouch for of the newest head, or of a proof's; None if it was told of none."""
        return await self._run(witnessed(self._reader.session, self._client._setup.quorum, head))

    async def proof(self, event: Id, *, wait: bool = True) -> EventFact:
        """An event with all that proves it is in the log, and its status; waits until its bundle is closed."""
        return await self._run(self._reader.event_fact(as_bytes(event, "event"), wait=wait))

    async def status(self, event: Id, *, wait: bool = True) -> EventStatus:
        """`active`, `updated` or `deleted`, proved; waits until the event's bundle is closed."""
        return await self._run(reads.status(self._reader, as_bytes(event, "event"), wait=wait))

    async def statuses(self, events: Sequence[Id]) -> Mapping[bytes, EventStatus | Literal["pending", "unknown"]]:
        """`status` of many with few questions, proved; `pending`: its bundle is open; `unknown`: there is none such."""
        return await self._run(reads.statuses(self._reader, [as_bytes(event, "event") for event in events]))

    async def state(self, namespace: Namespace, key: Id, *, tree_size: int | None = None) -> StateFact:
        """What stands at a raw key after the last closed bundle, or after bundle `tree_size` - 1, proved."""
        return await self._run(self._reader.state_fact(namespace, as_bytes(key, "key"), tree_size))

    async def bundle(self, index: int) -> Bundle:
        """The ids of all events of a closed bundle."""
        return await self._run(self._reader.bundle(index))

    async def complete(self) -> AsyncIterator[Item]:
        """Every event of every closed bundle, proved to be every one; for who may read everything."""
        next_seq, index, size = 0, 0, (await self.head()).ts
        while index < size:
            bundle, items = await self._run(complete_bundle(self._reader, index, next_seq))
            for item in items:
                yield item
            next_seq, index = next_seq + len(bundle.ids), index + 1

    async def archive(self, path: Path | str, progress: Progress = lambda here, total: None) -> Header:
        """Pull the whole log into one file, replayed as it comes; goes on where a broken pull stopped. For owners."""
        return await self._run(pull(self._reader, Path(path), progress))

    async def export(
        self,
        path: Path | str,
        *,
        since: Path | str | None = None,
        progress: Progress = lambda here, total: None,
    ) -> Header:
        """Write the whole log into one file as the node gives it, unjudged, for an audit. For owners.

        With `since`, an earlier archive of it, only what came after is asked for.
        """
        return await self._run(export(self._reader, Path(path), None if since is None else Path(since), progress))

    # Pushes

    async def pull(
        self,
        url: str,
        push_seq: int | Iterable[int] | None = None,
        *,
        after: int = 0,
        until: int | None = None,
        enclave: Id | None = None,
    ) -> AsyncIterator[PushedBatch]:
        """Batches that were queued for you at `url`, from all enclaves of the node or from one, page by page.

        By number, by several, or all after one and up to another. What the node keeps no more is not among them; what
        you may have no more is missing from its batch. Each event is checked.
        """
        asked: BatchSelection | None = select_batches(push_seq, after, until)
        only = None if enclave is None else as_bytes(enclave, "enclave")
        while asked is not None:
            batches = await self._run(pulls.pull(self._reader, url, asked, only))
            for batch in batches:
                yield batch
            asked = asked.rest(batches)

    async def deliveries(self) -> list[Delivery]:
        """How pushes fare at each endpoint that is registered here; at your own, if you are not the owner."""
        return await self._run(deliveries(self._reader))

    # Where it is

    async def register(
        self,
        *,
        app: str | None = None,
        desc: str | None = None,
        meta: Mapping[str, Any] | None = None,
        archive: Path | str | None = None,
    ) -> Receipt | None:
        """Tell the registry where the enclave is, as its owner; None if it knows. After a Transfer the new owner does.

        What is not said here stays as it was said before. `archive`: of the log at a former node, whose head shows that
        somebody whom the registry did not know yet was the owner when they moved the enclave away from there.
        """
        setup, description = self._client._setup, EnclaveDescription(app, desc, meta)
        heads = heads_of(None, None if archive is None else Path(archive))
        return await self._run(register_enclave(setup.required_registry(), self._reader, description, heads))

    async def migrate(
        self,
        to: str,
        folder: Path | str,
        *,
        archive: Path | str | None = None,
        source: str | None = None,
        tell: OnStep = lambda step, what: None,
        progress: Progress = lambda here, total: None,
    ) -> Moved:
        """Move the enclave to the node at this URL, as its owner, and tell the registry if there is one.

        `folder` keeps what must not be lost in between: whoever is interrupted calls again. With `archive` it goes by
        force, without the old node. `source`: where the new node reaches the old one, if not at this client's URL.
        """
        setup = self._client._setup
        new = setup.link_at(self.id, to)
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
        found = await self._run(flow)
        setup.know(to)
        return found

    # What apps ask

    async def overview(self) -> Overview:
        return await self._run(reads.overview(self._reader))

    async def manifest(self) -> Event:
        """Event 0."""
        return await self._run(reads.manifest_event(self._reader))

    async def member(self, identity: Id) -> Member:
        """Somebody's State and traits, proved."""
        return await self._run(members.member(self._reader, as_bytes(identity, "identity")))

    async def members(self) -> list[Member]:
        """Everybody who is or holds anything, each proved."""
        return await self._run(members.members(self._reader))

    async def read_shared(self, key: str) -> Slot:
        """What a slot that all share holds."""
        return await self._run(slots.slot(self._reader, "Shared", key, self._client.identity.public))

    async def read_own(self, key: str, owner: Id | None = None) -> Slot:
        """What a slot of somebody's own holds; yours, if nobody is named."""
        who = self._client.identity.public if owner is None else as_bytes(owner, "owner")
        return await self._run(slots.slot(self._reader, "Own", key, who))
