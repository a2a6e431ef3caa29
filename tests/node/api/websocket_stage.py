"""A node without sockets or threads, and peers of its WebSocket API, for tests on one thread."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import httpx
from msgspec.json import decode, encode

from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import check_event, parse_event
from enc.core.machine.enclave import checkpoint_root
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import open_text
from enc.core.primitives.types import Commit, CommitLimits, Event, Receipt
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import MAX_DURATION, client_keys, open_session
from enc.node.api.read_pool import ReadPool
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.websocket import WebSocketApi, WebSocketLimits
from enc.node.ops.metrics import Metrics
from enc.node.ops.request_log import RequestLog
from enc.node.read.request_handlers import SealedHandlers
from enc.node.sequence.admission import Admission, CommitValidator
from enc.node.sequence.admitted import AdmittedCommit, CommitOutcome
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies
from enc.node.sequence.sequencer import Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.steps import Step
from enc.node.store.stored_enclave_reader import StoredEnclaveReader
from enc.runtime.rate_limit import RateLimiter
from enc.runtime.serving.limits import ServingLimits
from enc.runtime.serving.peers import PeerConnection, Peers
from enc.testing.memory_store import MemoryStore
from tests.core.world import COMMON, START, Json, gated, grant, init, path, person, rule
from tests.plain_http import NO_TLS

NODE = person("node")


PATIENCE = 20
"""Seconds after which an expected message counts as lost."""


ROOM: Json = {
    **COMMON,
    "states": ["MEMBER", "GUEST"],
    "traits": ["owner(0)", "reader(1)"],
    "readers": [
        {"type": "MEMBER", "reads": "*"},
        {"type": "reader", "reads": "message"},
        {"type": "GUEST", "reads": "message", **gated("lobby", "owner")},
        {"type": "Sender", "reads": "note"},
    ],
    "moves": [
        path("OUTSIDER", "GUEST", "owner"),
        path("MEMBER", "OUTSIDER", "owner"),
        path("MEMBER", "GUEST", "owner"),
        path("OUTSIDER", "MEMBER", "owner"),
    ],
    "grants": [
        grant("Grant", "owner", "reader", "OUTSIDER MEMBER GUEST"),
        grant("Revoke", "owner", "reader", "OUTSIDER MEMBER GUEST"),
    ],
    "slots": [rule("Shared", "MEMBER", "C U D", key="topic")],
    "lifecycle": [rule(event, "owner", "C") for event in ("Pause", "Resume", "Terminate", "Migrate")],
    "customs": [
        rule("message", "MEMBER", "C"),
        rule("message", "Sender", "U D"),
        rule("secret", "MEMBER", "C"),
        rule("secret", "Sender", "U D"),
        rule("note", "Public", "C"),
    ],
    "init": init(alice="MEMBER owner", bob="MEMBER", carol="GUEST", dave="OUTSIDER reader"),
}
"""alice and bob read everything; carol messages, while the gate is open; dave messages; erin only her own notes."""


class Reader:
    """One identity's session with a node about one enclave. `now` is Unix seconds."""

    def __init__(self, name: str, enclave: bytes, seq_pub: bytes, now: int, duration: int = MAX_DURATION) -> None:
        self.enclave, self.seq_pub = enclave, seq_pub
        self.session = open_session(person(name), now + duration)
        self.keys = client_keys(self.session, seq_pub, enclave)

    def query(self, sub_id: Any = None, **filter_: Any) -> Json:
        body = {"filter": filter_}
        request = seal_request(self.session, self.seq_pub, self.enclave, "Query", body, os.urandom(24))
        return {**request, **({} if sub_id is None else {"sub_id": sub_id})}

    def ask(self, url: str, path: str, type_: Any, **body: Any) -> Json:
        """Return the node's answer over HTTP."""
        request = seal_request(self.session, self.seq_pub, self.enclave, type_, body, os.urandom(24))
        answer = httpx.post(url + path, content=encode(request), timeout=PATIENCE, verify=NO_TLS)
        assert answer.status_code == 200, answer.text
        found: Json = open_answer(self.keys, answer.content)
        return found

    def log(self, url: str) -> list[Event]:
        """Return all events that this identity may read, page by page."""
        found, more = list[Event](), True
        while more:
            seq = {"start_at": found[-1].seq + 1 if found else 0}
            page = self.ask(url, "/", "Query", filter={"seq": seq, "limit": 1000})
            found += [parse_event(encode(item["event"])) for item in page["events"]]
            more = page.get("more", False)
        return found

    def plain(self, message: Json) -> Json:
        """Return the opened content of an Event message, not verified."""
        assert message["type"] == "Event", message
        item: Json = decode(open_text(self.keys.response, message["event"]))
        return item

    def item(self, message: Json) -> Json:
        """Return the event of an Event message, with its signatures verified."""
        item = self.plain(message)
        event = parse_event(encode(item["event"]))
        check_event(event, 2)
        assert (event.enclave, event.sequencer) == (self.enclave, self.seq_pub)
        return {**item, "event": event}

    def event(self, message: Json) -> Event:
        event: Event = self.item(message)["event"]
        return event

    def seq(self, message: Json) -> int:
        return self.event(message).seq


class ManualExecutor(Executor):
    """An executor that runs work at once, or on request while held."""

    def __init__(self) -> None:
        self.held = False
        self.work: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.work.append((future, lambda: fn(*args, **kwargs)))
        if not self.held:
            self.do()
        return future

    def do(self, most: int = 1 << 30) -> None:
        while self.work and most:
            future, work = self.work.popleft()
            most -= 1
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as e:
                    future.set_exception(e)

    def let_go(self) -> None:
        self.held = False
        self.do()


class Stage:
    """The parts that enc.node.assembly wires, with an executor on the same thread."""

    def __init__(
        self,
        *,
        subscriptions: int = 100,
        per_connection: int = 10,
        buffer: int = 1 << 20,
        websockets: int = 100,
        unsent: int = 1 << 28,
        waiting: int = 1000,
        by_address: bool = False,
    ) -> None:
        self.now, self.moment, self.work = START, 0.0, 0.0
        self.store, self.hands = MemoryStore(), ManualExecutor()
        self.peers = Peers(ServingLimits(connections=1000, connections_per_address=0, unsent_bytes=unsent))
        self.states = StateCache(self.store)
        self.hub = SubscriptionHub(subscriptions, lambda: self.work, by_address=by_address)
        self.replies = CommitReplies(asyncio.get_running_loop(), waiting)
        self.intake = CommitIntake(
            asyncio.get_running_loop(),
            self,  # type: ignore[arg-type]
            self.replies,
            gather_s=0,
        )
        self.outcomes: list[CommitOutcome] = []
        self.sequencer = Sequencer(
            self.store, NODE, self.clock, deliver=self._deliver, publish=self._publish, states=self.states
        )
        self.identities = RateLimiter(0, 1, lambda: self.moment)
        self.addresses = RateLimiter(0, 1, lambda: self.moment)
        self.admitting, self._arrivals = True, list[Any]()
        settings = WebSocketLimits(per_connection, buffer, websockets, by_address)
        self._wire(settings)

    def _wire(self, settings: WebSocketLimits) -> None:
        validator = CommitValidator(
            self.states,
            self.store,
            self.clock,
            self.identities,
            limits=CommitLimits(),
            max_manifest=1 << 18,
            may_create=lambda identity: True,
        )
        self._admission = Admission(validator, self, self.replies.reject, SignaturePool(0))  # type: ignore[arg-type]
        self.answers = SealedHandlers(
            self.states, self.store, NODE, self.clock, self.identities, self.sequencer.checkpoint, max_page=1 << 23
        )
        self.requests = RequestLog(Metrics(), lambda: self.moment)
        self.reads = ReadPool(self.answers, self.hands, self.identities, self.addresses)
        self.api = WebSocketApi(self.intake, self.reads, self.hub, self.addresses, settings, NODE.public, self.requests)

    def clock(self) -> int:
        return self.now

    # Replaces the threads of admission and sequencer

    def submit(self, work: Sequence[Any]) -> None:
        if work and isinstance(work[0], AdmittedCommit):
            self.sequencer.run_once(work)
            return
        self._arrivals += work
        if self.admitting:
            self.admit()

    def admit(self) -> None:
        """Submit the commits that were held back."""
        arrivals, self._arrivals = self._arrivals, []
        self._admission.run_once(arrivals)
        while self._admission.run_long():
            pass

    def _deliver(self, outcomes: Sequence[CommitOutcome]) -> None:
        self.outcomes += outcomes
        self.replies.deliver([outcome for outcome in outcomes if outcome[0].sender is not None])

    def _publish(self, steps: Sequence[Step]) -> None:
        asyncio.get_running_loop().call_soon(self.hub.publish, steps)

    # Actions of people

    def create(self, **changes: Any) -> bytes:
        manifest = build_manifest(person("alice"), compact_json({**ROOM, **changes}), self.now + 60_000)
        self.write(manifest)
        return manifest.enclave

    def commit(self, enclave: bytes, name: str, type_: str, content: Any = "", *tags: tuple[str, ...]) -> Commit:
        self.now += 1
        text = content if isinstance(content, str) else compact_json(content)
        return build_commit(person(name), enclave, type_, text, self.now + 60_000, tags)

    def write(self, *commits: Commit) -> list[Event]:
        """Sequence these commits in one batch, without a connection."""
        self.outcomes.clear()
        self.sequencer.run_once([AdmittedCommit(commit) for commit in commits])
        assert all(isinstance(outcome, Receipt) for _, outcome in self.outcomes), self.outcomes
        found = [self.store.committed(commit.enclave, commit.hash, commit.exp) for commit in commits]
        return [event for event in found if event is not None]

    def send(self, *what: Any) -> Event:
        return self.write(self.commit(*what))[0]

    def talk(self, enclave: bytes, count: int, content: str = "") -> list[Event]:
        return self.write(*(self.commit(enclave, "alice", "message", content or str(i)) for i in range(count)))

    def migrate(self, enclave: bytes) -> Event:
        state = self.store.load(enclave)
        assert state is not None
        root = checkpoint_root(state, StoredEnclaveReader(self.store, enclave))
        content = {"new_sequencer": person("node2").public.hex(), "prev_seq": state.seq, "ct_root": root.hex()}
        return self.send(enclave, "alice", "Migrate", content)

    def reader(self, name: str, enclave: bytes, duration: int = MAX_DURATION) -> Reader:
        return Reader(name, enclave, NODE.public, self.now // 1000, duration)


_TASKS: set[asyncio.Task[None]] = set()
"""Tasks of sockets. The loop refers to them weakly: one that a test leaves open must last until the loop ends."""


class Socket:
    """A peer of the node behind ASGI; it receives messages while it reads."""

    was_dropped = False

    def __init__(
        self, stage: Stage, address: str = "10.0.0.1", heard: Callable[[Json], object] = lambda message: None
    ) -> None:
        self._heard = heard
        self._incoming: asyncio.Queue[Json] = asyncio.Queue()
        self._outgoing: asyncio.Queue[Json] = asyncio.Queue()
        self._reads, self._code = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._reads.set()
        self._incoming.put_nowait({"type": "websocket.connect"})
        self.peer = PeerConnection(stage.peers, address, self._drop)
        stage.peers.add(self.peer)
        scope = {"type": "websocket", "client": (address, 1), "headers": (), "state": {"peer": self.peer}}
        self.task = asyncio.get_running_loop().create_task(stage.api(scope, self._incoming.get, self._send))
        _TASKS.add(self.task)
        self.task.add_done_callback(_TASKS.discard)

    def _drop(self) -> None:
        self.was_dropped = True
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})

    async def _send(self, message: Any) -> None:
        await self._reads.wait()
        self._heard(message)
        if message["type"] == "websocket.send":
            self._outgoing.put_nowait(decode(message["text"]))
        elif message["type"] == "websocket.close":
            self._code.set_result(message["code"])

    def say(self, *messages: Json | Commit | bytes | str) -> None:
        for message in messages:
            if isinstance(message, bytes):
                self._incoming.put_nowait({"type": "websocket.receive", "bytes": message})
            else:
                plain = wire_commit(message) if isinstance(message, Commit) else message
                text = plain if isinstance(plain, str) else encode(plain).decode()
                self._incoming.put_nowait({"type": "websocket.receive", "text": text})

    def stop_reading(self) -> None:
        self._reads.clear()

    def read_on(self) -> None:
        self._reads.set()

    @property
    def unread(self) -> int:
        """Return the messages of this peer that the node has not read yet."""
        return self._incoming.qsize()

    async def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1006})
        async with asyncio.timeout(PATIENCE):
            await self.task

    async def next(self) -> Json:
        async with asyncio.timeout(PATIENCE):
            return await self._outgoing.get()

    async def until(self, type_: str) -> list[Json]:
        """Return all messages up to and including the first of this type."""
        found = [await self.next()]
        while found[-1]["type"] != type_:
            found.append(await self.next())
        return found

    async def rest(self) -> list[Json]:
        """Return the messages that were not read yet, once the node is idle."""
        await quiet()
        return [self._outgoing.get_nowait() for _ in range(self._outgoing.qsize())]

    async def ended(self) -> int:
        """Return the code that the node closed with."""
        async with asyncio.timeout(PATIENCE):
            await self.task
        code: int = self._code.result()
        return code

    @property
    def is_open(self) -> bool:
        return not self._code.done()


async def quiet() -> None:
    """Run the loop until no task has anything left to do."""
    ready: Any = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    while ready:
        await asyncio.sleep(0)


def types(messages: Sequence[Json]) -> list[str]:
    return [message["type"] for message in messages]


def closed(message: Json) -> tuple[str, str]:
    assert message["type"] == "Closed", message
    return message["sub_id"], message["reason"]


WITHOUT_NOTES: Json = {"readers": [reader for reader in ROOM["readers"] if reader["type"] != "Sender"]}
"""Without the entry that lets everyone read something."""


ENDS = {"Pause": "enclave_paused", "Terminate": "enclave_terminated", "Migrate": "enclave_migrated"}


def end(stage: Stage, enclave: bytes, type_: str) -> Event:
    return stage.migrate(enclave) if type_ == "Migrate" else stage.send(enclave, "alice", type_)
