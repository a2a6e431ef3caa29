"""Subscriptions without a socket: the parts between a WebSocket and the store, on one thread.

The test decides when each part takes its turn: when a page is read from the store, when an event is written, when the
peer reads. So every interleaving that a busy node may meet can be had here on purpose.
"""

import asyncio
import gc
import os
import random
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Any

import httpx
import pytest
from msgspec.json import decode, encode
from structlog.testing import capture_logs

from enc.core.errors import Unavailable
from enc.core.log.commit import build_commit, build_manifest, wire_commit
from enc.core.log.event import check_event, parse_event
from enc.core.log.filter import MAX_LIMIT, Range, parse_filter
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.machine.enclave import checkpoint_root
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import open_text
from enc.core.primitives.types import Commit, Event, Limits, Receipt
from enc.core.session.envelope import open_answer, parse_request, seal_request
from enc.core.session.session import MAX_DURATION, SKEW, client_keys, open_session
from enc.node.api import send_queue, websocket
from enc.node.api.http import ReadPool
from enc.node.api.send_queue import SendQueue
from enc.node.api.subscriptions import SubscriptionHub
from enc.node.api.websocket import MAX_SKIPPED, WebSocketApi, WebSocketLimits, in_seq_range
from enc.node.http.peers import Peer, Peers
from enc.node.read.sealed_requests import SealedHandlers
from enc.node.sequence.admission import Admission, CommitValidator
from enc.node.sequence.commit_intake import CommitIntake, CommitReplies
from enc.node.sequence.sequencer import AdmittedCommit, CommitOutcome, Sequencer
from enc.node.sequence.state_cache import StateCache
from enc.node.signatures.pool import SignaturePool
from enc.node.store.enclave_reader import EnclaveReader
from enc.node.store.steps import Step
from enc.runtime.rate_limit import RateLimiter
from tests.core.world import COMMON, START, Json, about, gated, give, grant, init, move, path, person, rule
from tests.node.memory_store import MemoryStore

pytestmark = pytest.mark.anyio

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
"""alice and bob read everything; carol messages, while the gate is open; dave messages; erin nothing but her notes."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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
        answer = httpx.post(url + path, content=encode(request), timeout=PATIENCE)
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


class Hands(Executor):
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
    """The parts that enc.node.main wires, with an executor on the same thread."""

    def __init__(
        self,
        *,
        subscriptions: int = 100,
        per_connection: int = 10,
        buffer: int = 1 << 20,
        websockets: int = 100,
        unsent: int = 1 << 28,
    ) -> None:
        self.now, self.moment = START, 0.0
        self.store, self.hands = MemoryStore(), Hands()
        self.peers = Peers(1000, 0, unsent)
        self.states, self.hub = StateCache(self.store), SubscriptionHub(self.store, subscriptions)
        self.replies = CommitReplies(asyncio.get_running_loop())
        self.intake = CommitIntake(
            asyncio.get_running_loop(),
            self,  # type: ignore[arg-type]
            self.replies,
            1000,
            gather_s=0,
        )
        self.outcomes: list[CommitOutcome] = []
        self.sequencer = Sequencer(
            self.store, NODE, self.clock, deliver=self._deliver, publish=self._publish, states=self.states
        )
        self.identities = RateLimiter(0, 1, lambda: self.moment)
        self.addresses = RateLimiter(0, 1, lambda: self.moment)
        self.admitting, self._arrivals = True, list[Any]()
        settings = WebSocketLimits(max_subscriptions=per_connection, max_buffer=buffer, max_websockets=websockets)
        self._wire(settings)

    def _wire(self, settings: WebSocketLimits) -> None:
        validator = CommitValidator(
            self.states,
            self.store,
            self.clock,
            self.identities,
            limits=Limits(),
            max_manifest=1 << 18,
            may_create=lambda identity: True,
        )
        self._admission = Admission(validator, self, self.replies.reject, SignaturePool(0))  # type: ignore[arg-type]
        self.answers = SealedHandlers(
            self.states, self.store, NODE, self.clock, self.identities, self.sequencer.checkpoint, max_page=1 << 23
        )
        self.reads = ReadPool(self.answers, self.hands)
        self.api = WebSocketApi(self.intake, self.reads, self.hub, self.addresses, settings, NODE.public)

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

    def _deliver(self, outcomes: Sequence[CommitOutcome]) -> None:
        self.outcomes += outcomes
        self.replies.deliver([outcome for outcome in outcomes if outcome[0].sender is not None])

    def _publish(self, steps: Sequence[Step]) -> None:
        asyncio.get_running_loop().call_soon(self.hub.publish, steps)

    # Actions of people

    def found(self, **changes: Any) -> bytes:
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
        root = checkpoint_root(state, EnclaveReader(self.store, enclave))
        content = {"new_sequencer": person("node2").public.hex(), "prev_seq": state.seq, "ct_root": root.hex()}
        return self.send(enclave, "alice", "Migrate", content)

    def reader(self, name: str, enclave: bytes, duration: int = MAX_DURATION) -> Reader:
        return Reader(name, enclave, NODE.public, self.now // 1000, duration)


class Socket:
    """A peer of the node behind ASGI; receives messages while it reads."""

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
        self.peer = Peer(stage.peers, address, self._drop)
        stage.peers.add(self.peer)
        scope = {"type": "websocket", "client": (address, 1), "state": {"peer": self.peer}}
        self.task = asyncio.get_running_loop().create_task(stage.api(scope, self._incoming.get, self._send))

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
        """Messages of this peer that the node has not read yet."""
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


# Stored, EOSE, live


async def test_a_query_gives_stored_events_then_eose_then_live_ones() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("mine"))
    stored = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored[:-1]] == [0, 1, 2, 3]
    assert {message["sub_id"] for message in stored} == {"mine"}
    assert stored[-1] == {"type": "EOSE", "sub_id": "mine"}
    events = stage.talk(enclave, 2)
    live = [await socket.next(), await socket.next()]
    assert [bob.item(message) for message in live] == [{"event": event, "status": "active"} for event in events]
    assert await socket.rest() == []


async def test_stored_items_say_what_became_of_their_events() -> None:
    stage = Stage()
    enclave = stage.found()
    first, second = stage.talk(enclave, 2)
    update = stage.send(enclave, "alice", "Update", "better", *about(first))
    stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(second))
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(type="message"))
    stored = await socket.until("EOSE")
    (item,) = [bob.item(message) for message in stored[:-1]]
    assert (item["event"].id, item["event"].content) == (first.id, None)
    assert (item["status"], item["updated_by"]) == ("updated", update.id.hex())


@pytest.mark.parametrize(("limit", "more"), [(3, True), (4, False), (5, False)])
async def test_eose_says_more_iff_the_limit_cut(limit: int, more: bool) -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(limit=limit))
    stored = await socket.until("EOSE")
    assert len(stored) - 1 == min(limit, 4)
    assert stored[-1].get("more", False) is more
    event = stage.send(enclave, "alice", "message", "live")
    assert bob.event(await socket.next()) == event


async def test_a_reversed_query_gives_the_latest_first_and_live_ones_in_the_log_s_order() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query(reverse=True, limit=2))
    stored = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored[:-1]] == [5, 4]
    stage.talk(enclave, 3)
    assert [bob.seq(await socket.next()) for _ in range(3)] == [6, 7, 8]


async def test_the_same_for_what_was_written_while_it_caught_up_whatever_its_limit() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query(reverse=True, limit=2))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.talk(enclave, 5)
    stage.hands.let_go()
    found = await socket.rest()
    assert [bob.seq(m) if m["type"] == "Event" else m.get("more") for m in found] == [5, 4, True, 6, 7, 8, 9, 10]


async def test_what_is_written_while_a_subscription_catches_up_comes_once_and_in_order() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query(limit=1000))
    for _ in range(4):  # opened, the first page, then pages of 1,000, each followed by more
        await quiet()
        stage.hands.do(1)
        await quiet()
        stage.talk(enclave, 1100)
    stage.hands.let_go()
    await quiet()
    stage.talk(enclave, 10)
    found = await socket.rest()
    seen = [bob.seq(message) for message in found if message["type"] == "Event"]
    assert seen == list(range(4411))
    assert types(found).index("EOSE") == 1


@pytest.mark.parametrize("seed", range(40))
async def test_no_interleaving_loses_or_repeats_an_event(seed: int) -> None:
    """Writers, page readers and a peer that reads irregularly run in any order.

    All events come, in order and once; or those up to a Closed too_slow do.
    """
    chance = random.Random(seed)
    stage = Stage(buffer=chance.choice([3_000, 20_000, 1 << 20]))
    enclave = stage.found()
    stage.talk(enclave, chance.randrange(5))
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s", limit=1000))
    for _ in range(80):
        turn = chance.randrange(5)
        if turn == 0:
            stage.talk(enclave, chance.randrange(1, 4))
        elif turn == 1:
            stage.hands.do(1)
        elif turn in (2, 3):
            (socket.stop_reading if turn == 2 else socket.read_on)()
        await asyncio.sleep(0)
    socket.read_on()
    stage.hands.let_go()
    await quiet()
    last = stage.send(enclave, "alice", "message", "the last")
    found = await socket.rest()
    seen = [bob.seq(message) for message in found if message["type"] == "Event"]
    was_cut = found[-1]["type"] == "Closed"
    assert seen == list(range(len(seen) if was_cut else last.seq + 1))
    assert not was_cut or closed(found[-1]) == ("s", "too_slow")


async def test_an_event_that_is_published_late_is_not_sent_twice() -> None:
    """The store may show an event before the hub receives it."""
    stage = Stage()
    enclave = stage.found()
    late: list[Sequence[Step]] = []
    stage.sequencer._publish = late.append
    stage.talk(enclave, 2)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query())
    assert [bob.seq(message) for message in (await socket.until("EOSE"))[:-1]] == [0, 1, 2]
    for steps in late:
        stage.hub.publish(steps)
    assert await socket.rest() == []


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({}, (2, 5)),
        ({"seq": {"start_at": 3}}, (3, 5)),
        ({"seq": {"end_at": 4}}, (2, 4)),
        ({"seq": {"start_at": 6}}, (6, 5)),
    ],
)
def test_a_filter_within_bounds(filter_: Json, expected: tuple[int, int]) -> None:
    assert in_seq_range(parse_filter(filter_), 2, 5).seqs == Range(*expected)


def test_a_filter_of_single_seqs_within_bounds() -> None:
    assert in_seq_range(parse_filter({"seq": [1, 2, 5, 6]}), 2, 5).seqs == frozenset([2, 5])


# Filters and rights of live events


@pytest.mark.parametrize(
    ("filter_", "expected"),
    [
        ({"type": "message"}, [0, 3]),
        ({"type": ["secret", "note"]}, [1, 2]),
        ({"from": person("bob").public.hex()}, [1]),
        ({"tags": {"k": "v"}}, [2]),
        ({"tags": {"k": True}}, [2, 3]),
        ({"seq": {"start_at": 3}}, [2, 3]),
        ({"seq": [1, 4]}, [0, 3]),
        ({"timestamp": {"end_at": START + 2}}, [0, 1]),
        ({"type": "message", "tags": {"k": True}}, [3]),
        ({"id": "00" * 32}, []),
    ],
)
async def test_live_events_obey_the_filter(filter_: Json, expected: list[int]) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, alice = Socket(stage), stage.reader("alice", enclave)
    socket.say(alice.query(**filter_))
    await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "message", "one"),
        stage.send(enclave, "bob", "secret", "two"),
        stage.send(enclave, "alice", "note", "three", ("k", "v")),
        stage.send(enclave, "alice", "message", "four", ("k", "w")),
    ]
    assert [alice.event(message) for message in await socket.rest()] == [events[i] for i in expected]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("alice", [0, 1, 2, 3]), ("carol", [0]), ("dave", [0]), ("erin", [2]), ("frank", [3])],
)
async def test_each_hears_live_what_they_may_read_and_nothing_else(name: str, expected: list[int]) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, reader = Socket(stage), stage.reader(name, enclave)
    socket.say(reader.query())
    await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "message", "one"),
        stage.send(enclave, "bob", "secret", "two"),
        stage.send(enclave, "erin", "note", "three"),
        stage.send(enclave, "frank", "note", "four"),
    ]
    assert [reader.event(message) for message in await socket.rest()] == [events[i] for i in expected]


async def test_an_update_or_delete_reaches_those_who_read_its_target_s_type() -> None:
    stage = Stage()
    enclave = stage.found()
    message, secret = stage.send(enclave, "alice", "message", "a"), stage.send(enclave, "alice", "secret", "b")
    sockets, readers = [Socket(stage), Socket(stage)], [stage.reader(name, enclave) for name in ("dave", "bob")]
    for socket, reader in zip(sockets, readers, strict=True):
        socket.say(reader.query(seq={"start_after": 2}))
        await socket.until("EOSE")
    events = [
        stage.send(enclave, "alice", "Update", "a2", *about(message)),
        stage.send(enclave, "alice", "Update", "b2", *about(secret)),
        stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(secret)),
        stage.send(enclave, "alice", "Delete", {"reason": "author"}, *about(message)),
    ]
    assert [readers[0].event(found) for found in await sockets[0].rest()] == [events[0], events[3]]
    assert [readers[1].event(found) for found in await sockets[1].rest()] == events


async def test_rights_are_those_after_the_event() -> None:
    """erin receives messages after the Grant, and everything from the Move to MEMBER on, including it."""
    stage = Stage()
    enclave = stage.found()
    socket, erin = Socket(stage), stage.reader("erin", enclave)
    socket.say(erin.query())
    await socket.until("EOSE")
    stage.send(enclave, "alice", "message", "before")
    granted = stage.send(enclave, "alice", "Grant", give("erin", "reader"))
    message = stage.send(enclave, "alice", "message", "after")
    stage.send(enclave, "alice", "secret", "not hers")
    moved = stage.send(enclave, "alice", "Move", move("erin", "OUTSIDER", "MEMBER"))
    secret = stage.send(enclave, "alice", "secret", "hers too")
    heard = [erin.event(found) for found in await socket.rest()]
    assert heard == [message, moved, secret]
    assert granted not in heard


async def test_who_loses_some_rights_stays_and_hears_the_rest() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query())
    await socket.until("EOSE")
    stage.send(enclave, "alice", "Move", move("bob", "MEMBER", "GUEST"))
    stage.send(enclave, "alice", "secret", "not for guests")
    message = stage.send(enclave, "alice", "message", "for all")
    assert [bob.event(found) for found in await socket.rest()] == [message]


# How a subscription ends


LOSSES: dict[str, tuple[str, str, Json]] = {
    "its State by a Move": ("bob", "Move", move("bob", "MEMBER", "OUTSIDER")),
    "its trait by a Revoke": ("dave", "Revoke", give("dave", "reader")),
    "its entry by a closing gate": ("carol", "Gate", {"alias": "lobby", "state": "closed"}),
    "its State within an AC_Bundle": (
        "bob",
        "AC_Bundle",
        {"operations": [{"type": "Move", **move("bob", "MEMBER", "OUTSIDER")}]},
    ),
}
WITHOUT_NOTES: Json = {"readers": [reader for reader in ROOM["readers"] if reader["type"] != "Sender"]}
"""Without the entry that lets everyone read something."""


@pytest.mark.parametrize("what", LOSSES)
async def test_who_can_read_nothing_any_more_is_closed_with_access_revoked_and_hears_nothing_of_it(what: str) -> None:
    name, type_, content = LOSSES[what]
    stage = Stage()
    enclave = stage.found(**WITHOUT_NOTES)
    socket, reader = Socket(stage), stage.reader(name, enclave)
    socket.say(reader.query("s"))
    await socket.until("EOSE")
    stage.send(enclave, "alice", type_, content)
    stage.send(enclave, "alice", "message", "too late")
    assert [closed(message) for message in await socket.rest()] == [("s", "access_revoked")]
    assert await socket.ended() == 1000
    assert stage.hub.count == 0


@pytest.mark.parametrize("what", LOSSES)
async def test_the_same_while_it_catches_up(what: str) -> None:
    name, type_, content = LOSSES[what]
    stage = Stage()
    enclave = stage.found(**WITHOUT_NOTES)
    socket, reader = Socket(stage), stage.reader(name, enclave)
    stage.hands.held = True
    socket.say(reader.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.send(enclave, "alice", type_, content)
    stage.send(enclave, "alice", "message", "too late")
    stage.hands.let_go()
    found = await socket.rest()
    assert closed(found[-1]) == ("s", "access_revoked")
    assert all(reader.seq(message) == 0 for message in found if message["type"] == "Event")
    assert stage.hub.count == 0


async def test_others_do_not_notice_that_one_lost_access() -> None:
    stage = Stage()
    enclave = stage.found(**WITHOUT_NOTES)
    socket, bob, dave = Socket(stage), stage.reader("bob", enclave), stage.reader("dave", enclave)
    socket.say(bob.query("bob"), dave.query("dave"))
    await socket.until("EOSE")
    await socket.until("EOSE")
    revoked = stage.send(enclave, "alice", "Revoke", give("dave", "reader"))
    message = stage.send(enclave, "alice", "message", "on we go")
    found = await socket.rest()
    assert [closed(m) for m in found if m["type"] == "Closed"] == [("dave", "access_revoked")]
    assert [bob.event(m) for m in found if m["sub_id"] == "bob"] == [revoked, message]
    assert socket.is_open


async def test_a_session_ends_a_minute_after_it_expires_and_not_before() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave, duration=100)
    expires = bob.session.token.expires
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.hub.expire(expires + SKEW - 1)
    assert await socket.rest() == []
    stage.hub.expire(expires + SKEW)
    assert closed(await socket.next()) == ("s", "session_expired")
    assert await socket.ended() == 1000


async def test_a_query_is_refused_exactly_when_its_subscription_would_be_ended() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave, duration=100)
    stage.now = (bob.session.token.expires + SKEW - 1) * 1000
    socket.say(bob.query("in time"))
    await socket.until("EOSE")
    stage.now += 1000
    socket.say(bob.query("too late"))
    error = await socket.next()
    assert (error["type"], error["code"], error["sub_id"]) == ("Error", "SESSION_EXPIRED", "too late")


async def test_one_identity_s_expiry_leaves_the_other_s_subscriptions_alone() -> None:
    stage = Stage()
    enclave = stage.found()
    socket = Socket(stage)
    bob, alice = stage.reader("bob", enclave, duration=100), stage.reader("alice", enclave, duration=200)
    socket.say(bob.query("bob 1"), bob.query("bob 2"), alice.query("alice"))
    for _ in range(3):
        await socket.until("EOSE")
    stage.hub.expire(bob.session.token.expires + SKEW)
    ends = [closed(message) for message in await socket.rest()]
    assert sorted(ends) == [("bob 1", "session_expired"), ("bob 2", "session_expired")]
    event = stage.send(enclave, "alice", "message", "still there")
    assert alice.event(await socket.next()) == event
    assert socket.is_open
    stage.hub.expire(alice.session.token.expires + SKEW)
    assert closed(await socket.next()) == ("alice", "session_expired")
    assert await socket.ended() == 1000


async def test_one_session_serves_several_enclaves_and_each_identity_has_its_own() -> None:
    stage = Stage()
    enclaves = [stage.found(), stage.found(meta={"n": 1})]
    socket = Socket(stage)
    readers = {f"{name} {i}": stage.reader(name, e) for name in ("alice", "bob") for i, e in enumerate(enclaves)}
    for sub_id, reader in readers.items():
        socket.say(reader.query(sub_id))
        await socket.until("EOSE")
    events = [stage.send(enclave, "alice", "message", "hello") for enclave in enclaves]
    heard = {message["sub_id"]: readers[message["sub_id"]].event(message) for message in await socket.rest()}
    assert heard == {sub_id: events[int(sub_id[-1])] for sub_id in readers}


ENDS = {"Pause": "enclave_paused", "Terminate": "enclave_terminated", "Migrate": "enclave_migrated"}


def end(stage: Stage, enclave: bytes, type_: str) -> Event:
    return stage.migrate(enclave) if type_ == "Migrate" else stage.send(enclave, "alice", type_)


@pytest.mark.parametrize("type_", ENDS)
async def test_subscribers_get_the_event_that_ends_the_enclave_then_closed(type_: str) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    event = end(stage, enclave, type_)
    first, second = await socket.rest()
    assert bob.event(first) == event
    assert closed(second) == ("s", ENDS[type_])
    assert await socket.ended() == 1000


@pytest.mark.parametrize("type_", ENDS)
async def test_who_cannot_read_that_event_or_did_not_ask_for_it_gets_closed_alone(type_: str) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, dave, bob = Socket(stage), stage.reader("dave", enclave), stage.reader("bob", enclave)
    socket.say(dave.query("cannot"), bob.query("did not", type="message"))
    for _ in range(2):
        await socket.until("EOSE")
    end(stage, enclave, type_)
    ends = [closed(message) for message in await socket.rest()]
    assert ends == [("cannot", ENDS[type_]), ("did not", ENDS[type_])]


@pytest.mark.parametrize("type_", ENDS)
async def test_an_enclave_that_ends_while_a_subscription_catches_up_closes_it_after_the_event(type_: str) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    event = end(stage, enclave, type_)
    stage.hands.let_go()
    found = await socket.rest()
    assert types(found) == ["Event", "EOSE", "Event", "Closed"]
    assert bob.event(found[2]) == event
    assert closed(found[3]) == ("s", ENDS[type_])


async def test_a_new_subscription_on_a_paused_enclave_reads_and_hears_resume() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.send(enclave, "alice", "Pause")
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    stored = await socket.until("EOSE")
    assert [bob.event(message).type for message in stored[:-1]] == ["Manifest", "Pause"]
    resumed, message = stage.send(enclave, "alice", "Resume"), stage.send(enclave, "alice", "message", "again")
    paused = stage.send(enclave, "alice", "Pause")
    found = await socket.rest()
    assert [bob.event(each) for each in found[:-1]] == [resumed, message, paused]
    assert closed(found[-1]) == ("s", "enclave_paused")


@pytest.mark.parametrize("type_", ["Terminate", "Migrate"])
async def test_a_new_subscription_on_an_ended_enclave_gets_stored_events_eose_and_closed(type_: str) -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 2)
    last = end(stage, enclave, type_)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    stored = await socket.until("Closed")
    assert types(stored) == ["Event"] * 4 + ["EOSE", "Closed"]
    assert bob.event(stored[3]) == last
    assert closed(stored[-1]) == ("s", ENDS[type_])
    assert await socket.ended() == 1000


async def test_a_purged_enclave_is_terminated_and_cannot_be_subscribed_to() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.send(enclave, "alice", "Terminate")
    stage.store.purge(enclave)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    error = await socket.next()
    assert (error["code"], error["sub_id"]) == ("ENCLAVE_TERMINATED", "s")
    assert stage.hub.count == 0


# Close


async def test_close_ends_one_subscription_and_says_nothing() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": "one"})
    await quiet()
    event = stage.send(enclave, "alice", "message", "for two")
    (message,) = await socket.rest()
    assert (message["sub_id"], bob.event(message)) == ("two", event)
    assert stage.hub.count == 1


async def test_after_a_close_nothing_more_comes_for_the_subscription_not_even_eose() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 5)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    socket.say({"type": "Close", "sub_id": "s"})
    await quiet()
    stage.hands.let_go()
    assert await socket.rest() == []


async def test_after_closed_nothing_more_comes_for_the_subscription_not_even_eose() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob, alice = Socket(stage), stage.reader("bob", enclave, duration=100), stage.reader("alice", enclave)
    socket.say(alice.query("stays"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.hub.expire(bob.session.token.expires + SKEW)
    stage.hands.let_go()
    assert [closed(message) for message in await socket.rest()] == [("s", "session_expired")]


async def test_a_name_that_was_closed_is_free_again_and_no_old_answer_goes_to_its_new_owner() -> None:
    """A Close and a new Query under the same name, while the first one is still being answered."""
    stage = Stage()
    enclave = stage.found()
    stage.talk(enclave, 3)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays", id="00" * 32))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s", seq=1))
    await quiet()
    stage.hands.do(1)
    await quiet()
    socket.say({"type": "Close", "sub_id": "s"}, bob.query("s", seq=2))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    assert types(found) == ["Event", "EOSE"]
    assert (bob.seq(found[0]), found[0]["sub_id"]) == (2, "s")


@pytest.mark.parametrize("sub_id", ["nobody's", "", 7, None, ["s"], {"s": 1}])
async def test_closing_what_is_not_there_is_an_error_and_nothing_else(sub_id: Any) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": sub_id})
    assert (await socket.next())["code"] == "INVALID_QUERY"
    assert socket.is_open


# Names


async def test_an_offered_name_is_taken_if_it_is_free_and_else_the_node_gives_one() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    names = []
    for offer in ("a", "a", None, "x" * 64, "sub-99", "\N{WAVING HAND SIGN}" * 64, "b"):
        socket.say(bob.query(offer, id="00" * 32))
        names.append((await socket.next())["sub_id"])
    assert names[0] == "a"
    assert names[3:] == ["x" * 64, "sub-99", "\N{WAVING HAND SIGN}" * 64, "b"]
    assert len(set(names)) == len(names)
    assert all(0 < len(name) <= 64 for name in names)


@pytest.mark.parametrize("offer", ["", "x" * 65, 7, True, ["a"], {}])
async def test_an_offered_name_that_is_none_is_refused(offer: Any) -> None:
    stage = Stage()
    socket, bob = Socket(stage), stage.reader("bob", stage.found())
    socket.say(bob.query(offer))
    error = await socket.next()
    assert (error["code"], error["message"].startswith("sub_id:")) == ("INVALID_QUERY", True)
    assert "sub_id" not in error
    assert stage.hub.count == 0
    socket.say(bob.query("a"))
    assert types(await socket.rest()) == ["Event", "EOSE"]


async def test_an_event_of_a_name_in_any_script_is_plain_ascii_of_the_same_name() -> None:
    stage = Stage()
    enclave = stage.found()
    sent, bob = list[Any](), stage.reader("bob", enclave)
    socket = Socket(stage, heard=sent.append)
    for name in ("plain", '\N{WAVING HAND SIGN}"\\'):
        sent.clear()
        socket.say(bob.query(name))
        (event, eose) = await socket.until("EOSE")
        assert (event["sub_id"], eose["sub_id"]) == (name, name)
        assert [message["text"].isascii() for message in sent if "Event" in message.get("text", "")] == [True]


async def test_an_error_about_a_query_that_offered_a_name_says_so() -> None:
    """Whether it was refused at once, when it was opened, or for want of a place."""
    stage = Stage(per_connection=1)
    enclave = stage.found(**WITHOUT_NOTES)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say({**bob.query("at once"), "content": 7}, stage.reader("mallory", enclave).query("opened"))
    errors = await socket.rest()
    assert [(e["code"], e["sub_id"]) for e in errors] == [("INVALID_QUERY", "at once"), ("UNAUTHORIZED", "opened")]
    socket.say(bob.query("a"), bob.query("no place"))
    (error,) = [message for message in await socket.rest() if message["type"] == "Error"]
    assert (error["code"], error["sub_id"]) == ("RATE_LIMITED", "no place")


async def test_the_same_name_on_two_connections_is_two_subscriptions() -> None:
    stage = Stage()
    enclave = stage.found()
    sockets, bob = [Socket(stage), Socket(stage)], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("same"))
        assert (await socket.until("EOSE"))[-1]["sub_id"] == "same"
    sockets[0].say({"type": "Close", "sub_id": "same"})
    assert await sockets[0].ended() == 1000
    event = stage.send(enclave, "alice", "message", "hello")
    assert bob.event(await sockets[1].next()) == event


# Commits on the same connection


async def test_a_commit_is_answered_by_its_receipt() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, commit = Socket(stage), stage.commit(enclave, "alice", "message", "hello")
    socket.say(commit)
    receipt = await socket.next()
    assert receipt["type"] == "Receipt"
    check_receipt(parse_receipt(encode(receipt)), commit, NODE.public)
    assert stage.intake.waiting == 0


async def test_a_refused_commit_is_answered_by_an_error_with_its_hash() -> None:
    stage = Stage()
    enclave = stage.found()
    socket = Socket(stage)
    commit = stage.commit(enclave, "dave", "message", "not his to write")
    forged = {**wire_commit(stage.commit(enclave, "alice", "message", "x")), "sig": "00" * 64}
    nowhere = stage.commit(bytes(32), "alice", "message", "x")
    for sent, code in ((commit, "UNAUTHORIZED"), (forged, "INVALID_SIGNATURE"), (nowhere, "ENCLAVE_NOT_FOUND")):
        socket.say(sent)
        error = await socket.next()
        assert (error["type"], error["code"]) == ("Error", code)
        assert error["hash"] == (sent["hash"] if isinstance(sent, dict) else sent.hash.hex())
    socket.say({"exp": 1})
    error = await socket.next()
    assert error["code"] == "INVALID_COMMIT"
    assert "hash" not in error
    assert stage.intake.waiting == 0


async def test_a_repeated_commit_gets_the_first_one_s_receipt() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, commit = Socket(stage), stage.commit(enclave, "alice", "message", "once")
    socket.say(commit, commit)
    receipt, error = await socket.next(), await socket.next()
    assert (error["code"], error["hash"]) == ("DUPLICATE", commit.hash.hex())
    assert error["receipt"] == receipt


async def test_commits_of_one_connection_keep_their_order() -> None:
    stage = Stage()
    enclave = stage.found()
    socket = Socket(stage)
    commits = [stage.commit(enclave, "alice", "message", str(i)) for i in range(50)]
    socket.say(*commits)
    receipts = [await socket.next() for _ in commits]
    assert [(r["seq"], r["hash"]) for r in receipts] == [(i + 1, c.hash.hex()) for i, c in enumerate(commits)]


async def test_too_many_waiting_commits_are_unavailable_for_a_while() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.intake._max_waiting = 2
    socket, stage.admitting = Socket(stage), False
    socket.say(*(stage.commit(enclave, "alice", "message", str(i)) for i in range(3)))
    error = await socket.next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    stage.admit()
    assert types(await socket.rest()) == ["Receipt", "Receipt"]


# When the connection ends


async def test_a_connection_with_commits_only_lives_on() -> None:
    stage = Stage()
    enclave = stage.found()
    socket = Socket(stage)
    for i in range(3):
        socket.say(stage.commit(enclave, "alice", "message", str(i)))
        assert (await socket.next())["type"] == "Receipt"
    assert socket.is_open


async def test_a_connection_whose_query_was_refused_lives_on() -> None:
    stage = Stage()
    enclave = stage.found(**WITHOUT_NOTES)
    socket, erin = Socket(stage), stage.reader("erin", enclave)
    socket.say(erin.query("s"))
    error = await socket.next()
    assert (error["code"], error["sub_id"]) == ("UNAUTHORIZED", "s")
    await quiet()
    assert socket.is_open


async def test_the_connection_ends_with_its_last_subscription() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    socket.say({"type": "Close", "sub_id": "one"})
    await quiet()
    assert socket.is_open
    socket.say({"type": "Close", "sub_id": "two"})
    assert await socket.ended() == 1000
    assert not stage.api.connections


async def test_but_not_before_its_commits_are_answered() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.admitting = False
    commits = [stage.commit(enclave, "alice", "message", "1"), stage.commit(enclave, "dave", "message", "2")]
    socket.say(*commits, {"type": "Close", "sub_id": "s"})
    await quiet()
    assert socket.is_open
    stage.admit()
    assert await socket.ended() == 1000
    answers = await socket.rest()
    assert sorted(types(answers)) == ["Error", "Receipt"]
    assert {answer["hash"] for answer in answers} == {commit.hash.hex() for commit in commits}


async def test_nor_while_another_query_is_being_answered() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("two"), {"type": "Close", "sub_id": "one"})
    await quiet()
    assert socket.is_open
    stage.hands.let_go()
    assert (await socket.until("EOSE"))[-1]["sub_id"] == "two"
    assert socket.is_open


async def test_but_when_that_query_is_refused() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("two", no_such_field=1), {"type": "Close", "sub_id": "one"})
    await quiet()
    stage.hands.let_go()
    assert (await socket.next())["code"] == "INVALID_FILTER"
    assert await socket.ended() == 1000


@pytest.mark.parametrize("when", range(3))
async def test_a_peer_that_vanishes_leaves_nothing_behind(when: int) -> None:
    """Before its Query is opened, while it catches up, and live; its commits are kept."""
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held, stage.admitting = True, False
    commit = stage.commit(enclave, "alice", "message", "in flight")
    socket.say(commit, bob.query("s"))
    for _ in range(when):
        await quiet()
        stage.hands.do(1)
    await quiet()
    await socket.hang_up()
    stage.admit()
    stage.hands.let_go()
    stage.talk(enclave, 1)
    await quiet()
    assert (stage.hub.count, stage.intake.waiting, len(stage.api.connections)) == (0, 0, 0)
    assert stage.store.committed(enclave, commit.hash, commit.exp) is not None


# Failures


class Breaking(MemoryStore):
    """Finds nothing from the n-th search on."""

    good = 1 << 30

    def find(self, *args: Any) -> Iterator[Any]:
        self.good -= 1
        if self.good < 0:
            raise Unavailable("no disk", retry_after_ms=1000)
        return super().find(*args)


@pytest.mark.parametrize("good", [0, 1])
async def test_a_subscription_that_cannot_be_caught_up_is_an_error_and_is_gone(good: int) -> None:
    """A failed subscription must not be counted, keep its name or stay open without messages."""
    stage = Stage()
    enclave = stage.found()
    broken = Breaking()
    broken.__dict__.update(stage.store.__dict__)
    stage.answers._store = broken
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("stays", id="00" * 32))
    await socket.until("EOSE")
    stage.hands.held = True
    socket.say(bob.query("s"))
    await quiet()
    stage.hands.do(1)
    await quiet()
    stage.talk(enclave, 2)
    broken.good = good
    stage.hands.let_go()
    found = await socket.rest()
    assert [(m["code"], m["sub_id"]) for m in found if m["type"] == "Error"] == [("UNAVAILABLE", "s")]
    assert stage.hub.count == 1
    broken.good = 1 << 30
    socket.say(bob.query("s"))
    stored = await socket.until("EOSE")
    assert {message["sub_id"] for message in stored} == {"s"}


async def test_more_queries_at_once_than_may_wait_are_refused_and_leave_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("enc.node.api.http.MAX_WAITING_READS", 2)
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(*(bob.query(str(i)) for i in range(5)))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    refused = {m["sub_id"] for m in found if m["type"] == "Error"}
    assert {m["code"] for m in found if m["type"] == "Error"} == {"UNAVAILABLE"}
    answered = {m["sub_id"] for m in found if m["type"] == "EOSE"}
    assert refused | answered == {"0", "1", "2", "3", "4"}
    assert not refused & answered
    assert stage.hub.count == len(answered)


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        ("", "INVALID_QUERY"),
        ("{", "INVALID_QUERY"),
        ("[]", "INVALID_QUERY"),
        ("null", "INVALID_QUERY"),
        ("[" * 100_000, "INVALID_QUERY"),
        (b"", "INVALID_QUERY"),
        (b"\xff\xfe", "INVALID_QUERY"),
        ("{}", "INVALID_QUERY"),
        ({"type": "Query"}, "INVALID_QUERY"),
        ({"type": "query"}, "INVALID_QUERY"),
        ({"type": "Pull"}, "INVALID_QUERY"),
        ({"type": "Subscribe", "sub_id": "s"}, "INVALID_QUERY"),
        ({"type": ["Close"]}, "INVALID_QUERY"),
        ('"exp"', "INVALID_COMMIT"),
        ({"type": "Query", "exp": 1}, "INVALID_COMMIT"),
    ],
)
async def test_nonsense_is_answered_by_an_error_and_the_connection_lives_on(sent: Any, code: str) -> None:
    stage = Stage()
    enclave = stage.found()
    socket = Socket(stage)
    socket.say(sent)
    error = await socket.next()
    assert (error["type"], error["code"]) == ("Error", code)
    socket.say(encode(wire_commit(stage.commit(enclave, "alice", "message", "as bytes"))))
    assert (await socket.next())["type"] == "Receipt"


@pytest.mark.parametrize("type_", ["Pull", "Inclusion_Proof", "State_Proof", "Checkpoint", "Export", "Deliveries"])
async def test_other_sealed_requests_are_not_for_a_websocket(type_: Any) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(seal_request(bob.session, NODE.public, enclave, type_, {}, os.urandom(24)))
    assert (await socket.next())["code"] == "INVALID_QUERY"


async def test_a_query_that_is_not_sealed_by_its_sender_is_refused_with_its_reason() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob, alice = Socket(stage), stage.reader("bob", enclave), stage.reader("alice", enclave)
    good = bob.query("s")
    for change, code in (
        ({"session": alice.query()["session"]}, "INVALID_SESSION"),
        ({"from": person("alice").public.hex()}, "INVALID_SESSION"),
        ({"content": alice.query()["content"]}, "DECRYPT_FAILED"),
        ({"content": "AAAA"}, "DECRYPT_FAILED"),
        ({"enclave": "00" * 32}, "ENCLAVE_NOT_FOUND"),
    ):
        socket.say({**good, **change})
        error = await socket.next()
        assert (error["code"], error["sub_id"]) == (code, "s")
    assert stage.hub.count == 0


async def test_a_fault_of_the_node_is_an_internal_error_that_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    monkeypatch.setattr(stage.answers, "open", lambda request: 1 // 0)
    with capture_logs() as logs:
        socket.say(bob.query("s"))
        error = await socket.next()
    assert (error["code"], error["message"]) == ("INTERNAL_ERROR", "internal error: ZeroDivisionError")
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("internal_error", "error")]
    assert socket.is_open


# Bounds


async def test_one_connection_has_a_bounded_number_of_subscriptions() -> None:
    stage = Stage(per_connection=3)
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(*(bob.query(str(i), id="00" * 32) for i in range(4)))
    found = await socket.rest()
    assert [m["sub_id"] for m in found if m["type"] == "EOSE"] == ["0", "1", "2"]
    (error,) = [m for m in found if m["type"] == "Error"]
    assert (error["code"], error["retry_after_ms"]) == ("RATE_LIMITED", 1000)
    socket.say({"type": "Close", "sub_id": "1"}, bob.query("again", id="00" * 32))
    assert [m["sub_id"] for m in await socket.rest()] == ["again"]


async def test_a_subscription_counts_once_also_while_it_catches_up() -> None:
    stage = Stage(per_connection=4)
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("0"), bob.query("1"))
    await quiet()
    stage.hands.do(2)
    await quiet()
    socket.say(bob.query("2"), bob.query("3"), bob.query("4"))
    await quiet()
    stage.hands.let_go()
    found = await socket.rest()
    assert sorted(m["sub_id"] for m in found if m["type"] == "EOSE") == ["0", "1", "2", "3"]
    assert [m["code"] for m in found if m["type"] == "Error"] == ["RATE_LIMITED"]


async def test_the_node_has_a_bounded_number_of_subscriptions() -> None:
    stage = Stage(subscriptions=2)
    enclave = stage.found()
    sockets, bob = [Socket(stage) for _ in range(3)], stage.reader("bob", enclave)
    for socket in sockets[:2]:
        socket.say(bob.query())
        await socket.until("EOSE")
    sockets[2].say(bob.query())
    error = await sockets[2].next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    await sockets[0].hang_up()
    sockets[2].say(bob.query())
    await sockets[2].until("EOSE")
    assert stage.hub.count == 2


async def test_queries_that_arrive_together_do_not_pass_that_bound() -> None:
    stage = Stage(subscriptions=2)
    enclave = stage.found()
    sockets, bob = [Socket(stage) for _ in range(5)], stage.reader("bob", enclave)
    stage.hands.held = True
    for socket in sockets:
        socket.say(bob.query("s", id="00" * 32))
    await quiet()
    stage.hands.let_go()
    answers = [(await socket.rest())[0] for socket in sockets]
    assert stage.hub.count == 2
    assert sorted(types(answers)) == ["EOSE"] * 2 + ["Error"] * 3


async def test_one_websocket_too_many_is_told_so_and_closed() -> None:
    stage = Stage(websockets=2)
    enclave = stage.found()
    first, second = Socket(stage), Socket(stage)
    await quiet()
    third = Socket(stage)
    third.say(stage.reader("bob", enclave).query())
    assert await third.ended() == 1013
    error = await third.next()
    assert (error["code"], error["retry_after_ms"]) == ("UNAVAILABLE", 1000)
    assert first.is_open
    assert stage.hub.count == 0
    await second.hang_up()
    fourth = Socket(stage)
    await quiet()
    assert fourth.is_open


async def test_every_message_of_an_address_counts_against_its_rate() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.addresses = stage.api.rates = RateLimiter(1, 3, lambda: stage.moment)
    socket, other, bob = Socket(stage), Socket(stage, address="10.0.0.2"), stage.reader("bob", enclave)
    socket.say(bob.query(id="00" * 32), stage.commit(enclave, "alice", "message", "1"), "nonsense", bob.query())
    codes = [(m["code"], m.get("retry_after_ms")) for m in await socket.rest() if m["type"] == "Error"]
    assert sorted(codes) == [("INVALID_QUERY", None), ("RATE_LIMITED", 1000)]
    other.say(bob.query(id="00" * 32))
    await other.until("EOSE")
    stage.moment += 1
    socket.say(stage.commit(enclave, "alice", "message", "2"))
    assert (await socket.next())["type"] == "Receipt"


async def test_an_identity_s_rate_holds_for_its_queries_and_commits_wherever_they_come_from() -> None:
    stage = Stage()
    enclave = stage.found()
    limiter = RateLimiter(1, 2, lambda: stage.moment)
    stage.answers._rates = stage._admission._validator._rates = limiter
    one, two, alice = Socket(stage), Socket(stage, address="10.0.0.2"), stage.reader("alice", enclave)
    one.say(alice.query("s", id="00" * 32))
    await one.until("EOSE")
    one.say(stage.commit(enclave, "alice", "message", "1"))
    assert (await one.next())["type"] == "Receipt"
    refused = stage.commit(enclave, "alice", "message", "2")
    two.say(refused)
    error = await two.next()
    assert (error["code"], error["hash"]) == ("RATE_LIMITED", refused.hash.hex())
    two.say(alice.query("t"))
    error = await two.next()
    assert (error["code"], error["sub_id"]) == ("RATE_LIMITED", "t")
    two.say(stage.reader("bob", enclave).query("u", id="00" * 32))
    await two.until("EOSE")


async def test_nobody_s_bucket_is_emptied_by_what_others_forge() -> None:
    stage = Stage()
    enclave = stage.found()
    stage.answers._rates = stage._admission._validator._rates = RateLimiter(1, 1, lambda: stage.moment)
    socket, good = Socket(stage), stage.commit(enclave, "alice", "message", "hers")
    forged_query = {**stage.reader("alice", enclave).query(), "content": "AAAA"}
    socket.say({**wire_commit(good), "sig": "00" * 64}, forged_query, good)
    answers = await socket.rest()
    assert sorted(answer.get("code", "Receipt") for answer in answers) == [
        "DECRYPT_FAILED",
        "INVALID_SIGNATURE",
        "Receipt",
    ]


# Slow readers


async def test_a_subscriber_that_stops_reading_is_cut_and_holds_no_more_than_its_buffer() -> None:
    stage = Stage(buffer=20_000)
    enclave = stage.found()
    slow, fast, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    for socket in (slow, fast):
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    (waits,) = [c._queue for c in stage.api.connections if c._subscriptions and c._queue._send == slow._send]
    slow.stop_reading()
    largest = 0
    for _ in range(100):
        stage.talk(enclave, 1, "x" * 500)
        await quiet()
        largest = max(largest, waits._size)
    assert 20_000 <= largest < 20_000 + 3_000
    assert stage.hub.count == 1
    assert len([m for m in await fast.rest() if m["type"] == "Event"]) == 100
    slow.read_on()
    found = await slow.rest()
    assert closed(found[-1]) == ("s", "too_slow")
    seen = [bob.seq(message) for message in found[:-1]]
    assert seen == list(range(1, len(seen) + 1))
    assert await slow.ended() == 1000


async def test_a_subscriber_that_reads_is_not_cut_by_one_large_batch() -> None:
    """One batch may exceed the buffer; a peer that reads at once gets all of it."""
    stage = Stage(buffer=20_000)
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    events = stage.talk(enclave, 100, "x" * 500)
    await quiet()
    assert types(await socket.rest()) == ["Event"] * len(events)


async def test_stored_events_wait_for_a_slow_reader_and_do_not_cut_it() -> None:
    stage = Stage(buffer=5_000)
    enclave = stage.found()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    (connection,) = stage.api.connections
    assert 5_000 <= connection._queue._size < 5_000 + 3_000
    stage.talk(enclave, 60, "x" * 500)
    await quiet()
    socket.read_on()
    found = await socket.until("EOSE")
    while len(found) < 122:
        found.append(await socket.next())
    assert [bob.seq(m) for m in found if m["type"] == "Event"] == list(range(121))


async def test_who_does_not_read_answers_is_not_read_from() -> None:
    stage = Stage(buffer=2_000)
    enclave = stage.found()
    socket = Socket(stage)
    await quiet()
    socket.stop_reading()
    for _ in range(200):
        socket.say("nonsense")
    await quiet()
    assert socket.unread > 150
    socket.read_on()
    for _ in range(200):
        assert (await socket.next())["code"] == "INVALID_QUERY"
    socket.say(stage.commit(enclave, "alice", "message", "hello"))
    assert (await socket.next())["type"] == "Receipt"


@pytest.mark.parametrize("stops", ["before the end", "after the end"])
async def test_a_connection_that_ends_does_not_wait_for_ever_for_a_peer_that_does_not_read(
    stops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sending the last messages and closing take bounded time, whenever the peer stopped reading."""
    monkeypatch.setattr(send_queue, "FLUSH_S", 0.01)
    reads = asyncio.Event()

    async def send(message: Any) -> None:
        await reads.wait()

    waits = SendQueue(send, 1000, lambda size: None)
    task = asyncio.get_running_loop().create_task(waits.run())
    if stops == "before the end":
        waits.put(b"{}")
        await quiet()
    waits.end(1000)
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert done


async def test_what_waits_in_lines_and_in_slices_is_counted_and_let_go_of() -> None:
    stage = Stage(buffer=20_000)
    enclave = stage.found()
    stage.talk(enclave, 100, "x" * 1000)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    (connection,) = stage.api.connections
    assert connection._queue._size >= 20_000
    assert stage.peers.unsent == socket.peer.unsent > connection._queue._size + 100_000
    socket.read_on()
    assert types(await socket.rest()) == ["Event"] * 101 + ["EOSE"]
    assert stage.peers.unsent == 0


@pytest.mark.parametrize("ends", ["hangs up", "is closed"])
async def test_nothing_waits_for_a_connection_that_is_over(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is queued for it either, though its commits are still answered."""
    monkeypatch.setattr(send_queue, "FLUSH_S", 0.01)
    stage = Stage(buffer=5_000)
    enclave = stage.found()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    stage.admitting = False
    socket.stop_reading()
    socket.say(stage.commit(enclave, "alice", "message", "in flight"), bob.query("s"))
    await quiet()
    assert socket.peer.unsent > 5_000
    if ends == "hangs up":
        await socket.hang_up()
    else:
        (connection,) = stage.api.connections
        connection.end(1000)
        async with asyncio.timeout(PATIENCE):
            await socket.task
    assert socket.peer.unsent == 0
    stage.admit()
    await quiet()
    assert (socket.peer.unsent, stage.intake.waiting) == (0, 0)


async def test_a_line_that_is_over_is_kept_by_nobody() -> None:
    """Nothing that ended it may keep the message: it would wait for the collector or a timer."""

    class Gone(Exception):
        pass

    ended_by = list["weakref.ref[Gone]"]()

    def gone() -> Gone:
        error = Gone()
        ended_by.append(weakref.ref(error))
        return error

    async def send(message: Any) -> None:
        raise gone()

    waits = SendQueue(send, 1000, lambda size: None)
    task = asyncio.get_running_loop().create_task(waits.run())
    await asyncio.sleep(0)
    waits.put(b"{}")
    waits.end(1000)
    gc.disable()
    try:
        await asyncio.gather(task, return_exceptions=True)
        del task
        await quiet()
        assert [error() for error in ended_by] == [None]
    finally:
        gc.enable()


async def test_a_peer_that_does_not_read_has_a_slice_of_what_is_stored_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "MAX_SLICE", 20_000)
    stage = Stage(buffer=10_000)
    enclave = stage.found()
    stage.talk(enclave, 200, "x" * 1000)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(*(bob.query(f"{i}", limit=1000) for i in range(5)))
    await quiet()
    assert 20_000 < stage.peers.unsent < 20_000 + 10_000 + 5_000
    socket.read_on()
    found = [message for message in await socket.rest() if message["type"] == "Event"]
    assert Counter(message["sub_id"] for message in found) == {f"{i}": 201 for i in range(5)}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("short", [-100, 0, 1, 12])
@pytest.mark.parametrize(
    ("filter_", "matching"),
    [
        ({}, range(61)),
        ({"seq": {"start_at": 5, "end_at": 41}}, range(5, 42)),
        ({"seq": [*range(3, 60, 3), 999]}, range(3, 60, 3)),
        ({"type": "message"}, range(1, 61)),
    ],
)
async def test_slices_make_up_what_the_filter_asks_for(
    reverse: bool, short: int, filter_: Json, matching: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slices of a few events, and one event that is longer than a slice; a limit that cuts as many as `short` says."""
    monkeypatch.setattr(websocket, "MAX_SLICE", 5_000)
    stage, limit = Stage(), len(matching) - short
    enclave = stage.found()
    for content in [""] * 30 + ["x" * 10_000] + [""] * 29:
        stage.talk(enclave, 1, content)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s", reverse=reverse, limit=limit, **filter_))
    *stored, eose = await socket.until("EOSE")
    assert [bob.seq(message) for message in stored] == list(matching[:: -1 if reverse else 1])[:limit]
    assert eose.get("more", False) is (limit < len(matching))
    stage.talk(enclave, 1)
    assert [bob.seq(message) for message in await socket.rest()] == ([] if "seq" in filter_ else [61])


async def test_nothing_stored_comes_after_the_end_of_a_session() -> None:
    stage = Stage(buffer=1)
    enclave = stage.found()
    stage.talk(enclave, 10)
    socket, alice, bob = Socket(stage), stage.reader("alice", enclave), stage.reader("bob", enclave, duration=100)
    socket.say(alice.query("lasts", id="00" * 32))
    await socket.until("EOSE")
    socket.stop_reading()
    socket.say(bob.query("s"))
    await quiet()
    stage.hub.expire(stage.now // 1000 + 100 + SKEW)
    socket.read_on()
    *stored, end = await socket.rest()
    assert closed(end) == ("s", "session_expired")
    assert types(stored) == ["Event"]
    assert socket.is_open


async def test_few_more_events_are_read_than_go_into_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by one that fell behind: each slice looks for twice as many as the last one held."""
    monkeypatch.setattr(websocket, "MAX_SLICE", 20_000)
    stage = Stage(buffer=20_000)
    enclave = stage.found()
    stage.talk(enclave, 10, "x" * 15_000)
    limits, find = list[int](), stage.store.find
    monkeypatch.setattr(stage.store, "find", lambda e, f, r: (limits.append(f.limit), find(e, f, r))[1])
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s", limit=50))
    await socket.until("EOSE")
    assert limits == [50, 4, *[2] * 8]
    limits.clear()
    stage.talk(enclave, 10, "x" * 15_000)
    assert [bob.seq(m) for m in await socket.rest()] == list(range(11, 21))
    assert (limits[0], set(limits[1:])) == (MAX_LIMIT, {2})


async def test_who_is_sent_away_while_catching_up_gets_no_more_than_the_slice_that_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "MAX_SLICE", 5_000)
    stage = Stage(buffer=1)
    enclave = stage.found(**WITHOUT_NOTES)
    stage.talk(enclave, 100)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    stage.send(enclave, "alice", "Move", move("bob", "MEMBER", "OUTSIDER"))
    socket.read_on()
    *stored, end = await socket.rest()
    assert closed(end) == ("s", "access_revoked")
    assert 0 < len(stored) < 20


async def test_a_large_event_reaches_many_subscribers_without_being_held_for_all_of_them_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Subscribers without room read from the store in turn; none is dropped or closed."""
    monkeypatch.setattr(websocket, "MAX_CONCURRENT_READS", 4)
    stage = Stage(unsent=4_000_000)
    enclave = stage.found()
    sockets, bob = [Socket(stage, f"10.0.0.{i}") for i in range(60)], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    most = 0

    def watch(message: Json) -> None:
        nonlocal most
        most = max(most, stage.peers.unsent)

    for socket in sockets:
        socket._heard = watch
    for _ in range(3):
        event = stage.send(enclave, "alice", "message", "x" * 100_000)
        for socket in sockets:
            assert bob.seq(await socket.next()) == event.seq
    assert 2_000_000 < most < 4_000_000
    assert stage.peers.dropped == stage.peers.unsent == 0
    assert stage.hub.count == 60


async def test_who_has_taken_everything_is_not_cut_however_long_the_store_takes() -> None:
    stage = Stage(buffer=20_000, unsent=1_000_000)
    enclave = stage.found()
    socket, other, bob = Socket(stage), Socket(stage, "10.0.0.2"), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.hands.held = True
    with other.peer.counting_unsent(600_000):
        for _ in range(MAX_SKIPPED * 2):
            stage.talk(enclave, 1)
            await quiet()
        stage.hands.let_go()
        assert [bob.seq(m) for m in await socket.rest()] == list(range(1, MAX_SKIPPED * 2 + 1))


async def test_only_so_many_slices_are_read_at_once() -> None:
    stage = Stage()
    enclave = stage.found()
    sockets, bob = [Socket(stage) for _ in range(websocket.MAX_CONCURRENT_READS + 4)], stage.reader("bob", enclave)
    for socket in sockets:
        socket.say(bob.query("s"))
    await quiet()
    for socket in sockets:
        await socket.until("EOSE")
    stage.hands.held = True
    with sockets[0].peer.counting_unsent(1 << 27 | 1):
        stage.talk(enclave, 1)
        await quiet()
        assert len(stage.hands.work) == websocket.MAX_CONCURRENT_READS
        stage.hands.let_go()
        for socket in sockets:
            assert bob.seq(await socket.next()) == 1


async def test_a_peer_that_is_dropped_is_forgotten_by_everybody() -> None:
    stage = Stage(buffer=20_000, unsent=30_000)
    enclave = stage.found()
    stage.talk(enclave, 60, "x" * 500)
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    socket.stop_reading()
    socket.say(bob.query("s", limit=1000))
    await quiet()
    assert socket.was_dropped
    async with asyncio.timeout(PATIENCE):
        await socket.task
    assert (stage.peers.unsent, stage.hub.count, stage.api.connections) == (0, 0, set())


# Shutting down


async def test_a_node_that_stops_tells_subscribers_and_ends_their_connections() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, idle, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("one"), bob.query("two"))
    for _ in range(2):
        await socket.until("EOSE")
    stage.api.shut_down()
    assert types(await idle.rest()) == ["Notice"]
    notice, *ends = await socket.rest()
    assert (notice["type"], type(notice["message"])) == ("Notice", str)
    assert [closed(message) for message in ends] == [("one", "shutting_down"), ("two", "shutting_down")]
    assert [await socket.ended(), await idle.ended()] == [1000, 1000]


async def test_commits_that_were_taken_are_answered_before_that() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    socket.say(bob.query("s"))
    await socket.until("EOSE")
    stage.admitting = False
    commit = stage.commit(enclave, "alice", "message", "in flight")
    socket.say(commit)
    await quiet()
    stage.api.shut_down()
    await quiet()
    assert socket.is_open
    stage.admit()
    await quiet()
    stage.api.shut_down()
    assert await socket.ended() == 1000
    answers = await socket.rest()
    assert [a["hash"] for a in answers if a["type"] == "Receipt"] == [commit.hash.hex()]
    assert [closed(a) for a in answers if a["type"] == "Closed"] == [("s", "shutting_down")]


@pytest.mark.parametrize("turns", range(3))
async def test_a_query_that_is_being_answered_does_not_keep_the_connection_open(turns: int) -> None:
    """Not opened yet, opened, caught up."""
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    stage.hands.held = True
    socket.say(bob.query("s"))
    for _ in range(turns):
        await quiet()
        stage.hands.do(1)
    await quiet()
    stage.api.shut_down()
    await quiet()
    stage.api.shut_down()
    await quiet()
    stage.hands.let_go()
    assert await socket.ended() == 1000
    assert stage.hub.count == 0
    found = await socket.rest()
    assert types(found)[:1] == ["Notice"] if turns < 2 else closed(found[-1]) == ("s", "shutting_down")


async def test_a_query_that_is_cancelled_before_its_first_step_gives_its_place_back() -> None:
    stage = Stage()
    enclave = stage.found()
    socket, bob = Socket(stage), stage.reader("bob", enclave)
    await quiet()
    (connection,) = stage.api.connections
    connection._subscribe(parse_request(encode(bob.query("s"))), "s")
    assert stage.hub.count == 1
    connection.shut_down()
    assert await socket.ended() == 1000
    assert stage.hub.count == 0


async def test_one_subscriber_s_trouble_is_not_the_next_one_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subscriber whose rights cannot be looked up reads on from the store; the others continue."""
    stage = Stage()
    enclave = stage.found()
    first, second, bob = Socket(stage), Socket(stage), stage.reader("bob", enclave)
    for socket in (first, second):
        socket.say(bob.query("s"))
        await socket.until("EOSE")
    tell, failed = SubscriptionHub._deliver, list[Any]()

    def fail(hub: SubscriptionHub, subscription: Any, *args: Any) -> None:
        if not failed:
            failed.append(subscription)
            subscription.after += 1
            raise KeyError("a node of the tree is missing")
        tell(hub, subscription, *args)

    monkeypatch.setattr(SubscriptionHub, "_deliver", fail)
    events = stage.talk(enclave, 3)
    await quiet()
    for socket in (first, second):
        assert [bob.seq(message) for message in await socket.rest()] == [event.seq for event in events]


async def test_commits_that_wait_are_bounded_by_their_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enc.node.sequence.commit_intake.MAX_BYTES", 100)
    stage, settled = Stage(), list[Any]()
    stage.admitting = False
    intake = stage.intake
    intake.submit(b"x" * 99, lambda result, _: settled.append(result))
    intake.submit(b"x", lambda result, _: settled.append(result))
    with pytest.raises(Unavailable):
        intake.submit(b"x", lambda result, _: None)
    await quiet()
    stage.replies._reply([(sender, Unavailable("later"), None) for _, sender in stage._arrivals])
    assert (len(settled), intake.waiting, stage.replies.bytes) == (2, 0, 0)
