"""A whole node in this process: real sockets, its own thread, and a clock that only the test advances.

with Served() as node:
    enclave = node.create(MANIFEST)
    enclave.send("alice", "message", "hello")
    enclave.ask("alice", "Query", filter={})
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import uvloop
from msgspec.json import decode, encode

from enc.core.errors import WIRE_ERRORS, EncError, from_wire
from enc.core.log.commit import build_commit, build_manifest, manifest_version, wire_commit
from enc.core.log.receipt import check_receipt, parse_receipt
from enc.core.primitives.encoding import compact_json
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Receipt
from enc.core.session.envelope import open_answer, seal_request
from enc.core.session.session import Session, client_keys, open_session
from enc.node import assembly
from enc.node.api.http_api import SEALED_PATHS
from enc.node.config import NodeConfig
from enc.node.server import AdminServer, NodeServer
from enc.node.signatures.pool import SignaturePool
from enc.node.store.sqlite.store import SqliteStore
from enc.node.store.store_interface import Store
from enc.testing.clock import Clock
from enc.testing.memory_store import MemoryStore
from tests.core.world import LIFETIME, person, pub
from tests.plain_http import NO_TLS

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE_S = 30
"""Seconds after which an operation counts as stuck."""
TURNS = 100_000
"""Turns of the event loop after which an expected change counts as lost."""
NODE = person("node")
DEV = NodeConfig(port=0, dev=True)
PATHS = {type_: path for path, type_ in SEALED_PATHS.items()}
"""Paths of the sealed requests that are not sent to `/`."""


class Served:
    """A served node; `node`, `store` and `server` are for tests that need its parts."""

    node: assembly.Node
    server: NodeServer
    url: str
    admin_url: str

    def __init__(
        self,
        config: NodeConfig = DEV,
        store: Store | None = None,
        clock: Clock | None = None,
        *,
        quick: bool = True,
        key: PrivateKey = NODE,
        signatures: SignaturePool | None = None,
    ) -> None:
        """Without `quick`, every `POST /` goes through ASGI, as those of browsers and proxies do."""
        self._signatures = signatures
        self.store, self.clock = MemoryStore() if store is None else store, clock or Clock()
        self._quick, self.key = quick, key
        self._config, self._ready, self._failure = config, threading.Event(), list[BaseException]()
        self._numbers = count(1)
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the node did not start"
        if self._failure:
            raise self._failure[0]
        self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, verify=NO_TLS)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as e:
            self._failure.append(e)
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        clock = self.clock
        self.node = assembly.Node(
            self._config,
            self.store,
            self.key,
            self._signatures,
            now=lambda: clock.now,
            monotonic=lambda: clock.monotonic,
        )
        quick = self.node.http.quick if self._quick else None
        self.server = NodeServer(self.node.app, self._config, self.node.drain, self._is_ready, quick)
        self.node.watch(self.server.peers)
        admin = AdminServer(self.node.admin_app, self._config)
        self.admin_url = admin.url
        self.node.start()
        try:
            async with admin.running():
                await self.server.run_until_stopped()
        finally:
            self.node.stop()

    def _is_ready(self, url: str) -> None:
        self.url = url
        self._ready.set()

    def stop(self) -> None:
        """Stop as SIGTERM does."""
        self.begin_stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the node did not stop"
        self.http.close()
        if self._failure:
            raise self._failure[0]

    def begin_stop(self) -> None:
        self.server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def settle(self) -> None:
        """Wait until everything that is due is done: bundles sealed, contents erased, data purged."""
        for _ in range(2):
            self.node.sequencer.call(lambda: None).result(PATIENCE_S)

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """Block the sequencer inside the block."""
        held, go_on = threading.Event(), threading.Event()

        def wait() -> None:
            held.set()
            go_on.wait(PATIENCE_S)

        done = self.node.sequencer.call(wait)
        assert held.wait(PATIENCE_S)
        try:
            yield
        finally:
            go_on.set()
            done.result(PATIENCE_S)

    @property
    def connections_state(self) -> Any:
        """Return the server's state; its connections are of the node's own protocols."""
        return self.server.server_state

    def on_loop(self, work: Callable[[], T]) -> T:
        """Run a function on the event loop's thread and return its result."""
        done: Future[T] = Future()
        self.node.loop.call_soon_threadsafe(lambda: done.set_result(work()))
        return done.result(PATIENCE_S)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the event loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work(), self.node.loop).result(PATIENCE_S)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until this condition holds on the event loop's thread."""
        for _ in range(TURNS):
            if self.on_loop(holds):
                return
        raise AssertionError("it never came")

    # Requests

    def post(self, body: Any, path: str = "/", **more: Any) -> httpx.Response:
        """Post bytes unchanged, any other body as JSON."""
        return self.http.post(path, content=body if isinstance(body, bytes) else encode(body), **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.http.get(path, **more)

    def admin(self, path: str, method: str = "GET") -> httpx.Response:
        """Send a request to the admin listener."""
        return self.http.request(method, self.admin_url + path)

    def submit(self, commit: Commit, **more: Any) -> Receipt:
        """Send a commit and return its receipt, verified."""
        receipt = parse_receipt(encode(good(self.post(wire_commit(commit), **more))))
        check_receipt(receipt, commit, self.key.public)
        return receipt

    def create(self, manifest: Json, by: str = "alice", **changes: Any) -> "Enclave":
        """Create a new enclave, with a number of its own in its Manifest."""
        meta = {"n": next(self._numbers)}
        commit = self.manifest({**manifest, "meta": meta, **changes}, by)
        self.submit(commit)
        return Enclave(self, commit)

    def manifest(self, manifest: Json, by: str = "alice") -> Commit:
        enc_v = 1 if manifest.get("enc_v") == 1 else 2
        return build_manifest(person(by), compact_json(manifest), self.clock.now + LIFETIME, enc_v=enc_v)

    def session(self, name: str, lasts: int = 3600) -> Session:
        return open_session(person(name), self.clock.now // 1000 + lasts)


class Enclave:
    """One enclave of a served node, as its people use it. `at` is the same one at another node."""

    def __init__(self, node: Served, manifest: Commit) -> None:
        self.node, self.manifest, self.id = node, manifest, manifest.enclave
        self.enc_v = manifest_version(manifest)

    def at(self, node: Served) -> "Enclave":
        return Enclave(node, self.manifest)

    def commit(self, name: str, type_: str, content: Any = "", *tags: tuple[str, ...], **more: Any) -> Commit:
        """Return a commit, one millisecond after the last. A content that is not a str is written as JSON."""
        self.node.clock.tick(1)
        text = content if isinstance(content, str) else compact_json(content)
        exp = more.pop("exp", self.node.clock.now + LIFETIME)
        return build_commit(person(name), self.id, type_, text, exp, tags, **{"enc_v": self.enc_v, **more})

    def send(self, *what: Any, **more: Any) -> Receipt:
        return self.node.submit(self.commit(*what, **more))

    def refused(self, *what: Any, **more: Any) -> EncError:
        return bad(self.node.post(wire_commit(self.commit(*what, **more))))

    def request(self, name: str, type_: Any, session: Session | None = None, **body: Any) -> Json:
        session = session or self.node.session(name)
        return seal_request(session, self.node.key.public, self.id, type_, body, os.urandom(NONCE_SIZE))

    def ask_raw(self, name: str, type_: str, **body: Any) -> httpx.Response:
        return self.node.post(self.request(name, type_, **body), PATHS.get(type_, "/"))

    def ask(self, name: str, type_: str, **body: Any) -> Any:
        """Return the opened answer."""
        session = self.node.session(name)
        response = self.ask_raw(name, type_, session=session, **body)
        return open_answer(client_keys(session, self.node.key.public, self.id), encode(good(response)))

    def denied(self, name: str, type_: str, **body: Any) -> EncError:
        return bad(self.ask_raw(name, type_, **body))

    def query(self, name: str, **filter_: Any) -> list[Json]:
        """Return the items of one page."""
        return list(self.ask(name, "Query", filter=filter_)["events"])

    def seqs(self, name: str, **filter_: Any) -> list[int]:
        return [item["event"]["seq"] for item in self.query(name, **filter_)]


def about(receipt: Receipt) -> tuple[str, str]:
    """Return the tag of an Update or Delete."""
    return ("r", receipt.id.hex())


def good(response: httpx.Response) -> Json:
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/json"
    found: Json = decode(response.content)
    return found


def bad(response: httpx.Response) -> EncError:
    """Return the error of a response, with its form and status checked."""
    assert response.status_code >= 400, response.text
    assert response.headers["content-type"] == "application/json", response.text
    wire = decode(response.content)
    assert wire["type"] == "Error"
    assert wire["message"]
    assert set(wire) - {"type", "code", "message"} <= set(WIRE_ERRORS[wire["code"]].fields)
    retry_after = response.headers.get("retry-after")
    assert (retry_after is not None) == (response.status_code in (429, 503))
    if retry_after is not None:
        assert int(retry_after) == max(1, -(-wire.get("retry_after_ms", 1000) // 1000))
    error = from_wire(wire)
    error.status = response.status_code
    return error


def health(node: Served) -> tuple[int, str]:
    """Return the node's health, checked now."""
    node.on_loop(lambda: setattr(node.node.pages.readiness, "_running", None))
    response = node.get("/health")
    return response.status_code, response.json()["status"]


def sqlite(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "enc.db")


SMALL: Json = {
    "enc_v": 2,
    "states": ["PENDING", "MEMBER"],
    "traits": ["owner(0)", "admin(1)", "helper(2)"],
    "readers": [{"type": "MEMBER", "reads": "*"}],
    "moves": [
        {"event": "Move", "from": "OUTSIDER", "to": "PENDING", "operator": "Self", "ops": ["C"]}
        | {"alias": "applications", "gate": {"operator": ["owner"]}},
        {"event": "Move", "from": "PENDING", "to": "MEMBER", "operator": "admin", "ops": ["C"], "preserve": True},
        {"event": "Move", "from": "MEMBER", "to": "OUTSIDER", "operator": "admin", "ops": ["C"]},
    ],
    "grants": [
        {"event": "Grant", "operator": "admin", "scope": ["MEMBER"], "trait": ["helper", "admin"]},
        {"event": "Revoke", "operator": "admin", "scope": ["MEMBER"], "trait": ["helper", "admin"]},
    ],
    "transfers": [{"trait": "owner", "scope": ["MEMBER"]}],
    "slots": [
        {"event": "Shared", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "topic"},
        {"event": "Own", "operator": "MEMBER", "ops": ["C", "U", "D"], "key": "profile"},
    ],
    "lifecycle": [
        {"event": event, "operator": "owner", "ops": ["C"]} for event in ("Pause", "Resume", "Terminate", "Migrate")
    ],
    "customs": [
        {"event": "message", "operator": "MEMBER", "ops": ["C"]},
        {"event": "message", "operator": "Sender", "ops": ["U", "D"]},
        {"event": "message", "operator": "admin", "ops": ["D"]},
    ],
    "init": [
        {"identity": pub("alice"), "state": "MEMBER", "traits": ["owner", "admin"]},
        {"identity": pub("bob"), "state": "MEMBER", "traits": []},
        {"identity": pub("carol"), "state": "MEMBER", "traits": ["admin"]},
        {"identity": pub("dave"), "state": "PENDING", "traits": []},
    ],
    "bundle": {"size": 4, "timeout": 5000},
}
"""alice owns, bob writes, carol is an admin, dave applied, and mallory has no rights."""
