"""Enclaves that move: orders, archives, and a source that serves any log it is given."""

import os
import ssl
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import httpx
from msgspec.json import decode, encode

from enc.core.log.commit import wire_commit
from enc.core.log.event import parse_event, wire_event
from enc.core.machine.archive import write_archive
from enc.core.machine.archive_check import header_of
from enc.core.machine.replay import Replay
from enc.core.machine.state import EnclaveState
from enc.core.primitives.sealing import NONCE_SIZE
from enc.core.primitives.signing import PrivateKey
from enc.core.primitives.types import Commit, Event, TreeHead
from enc.core.session.envelope import open_request, parse_request, seal_answer
from enc.core.trees.tree_head import sign_head, wire_head
from enc.node.imports.replay import StagedReplay
from enc.node.signatures.import_check import ImportSignaturePool
from enc.node.store.store_interface import Store
from tests.core.world import START, person
from tests.node.served import NODE, Enclave, Json, Served, good

TURNS = 1_000_000
"""Turns of the event loop after which an import counts as stuck."""
WITH_ARCHIVE = {"content-type": "application/x-enc-import"}


def order(node: Served, migrate: Commit, source: str | None = None, archive: bytes | None = None) -> httpx.Response:
    wire = wire_event(migrate) if isinstance(migrate, Event) else wire_commit(migrate)
    if archive is not None:
        return node.post(encode({"migrate": wire}) + b"\n" + archive, "/import", headers=WITH_ARCHIVE)
    return node.post({"migrate": wire, **({} if source is None else {"source": source})}, "/import")


def ended(node: Served, import_: str) -> Json:
    """Wait for the end of an import and return its status."""
    importer, id_ = node.node.importer, bytes.fromhex(import_)
    for _ in range(TURNS):
        status = node.on_loop(lambda: importer.status(id_))
        if status is None or status.status != "running":
            return good(node.get(f"/import/{import_}"))
    raise AssertionError("the import did not end")


def imported(node: Served, *what: Any, **more: Any) -> Json:
    """Order an import, and wait for its end; return its status."""
    response = order(node, *what, **more)
    assert response.status_code in (200, 202), response.text
    return ended(node, decode(response.content)["import"]) if response.status_code == 202 else decode(response.content)


def done(node: Served, *what: Any, **more: Any) -> Json:
    status = imported(node, *what, **more)
    assert status["status"] == "done", status
    return status


def failure(node: Served, *what: Any, **more: Any) -> Json:
    """Order an import that fails; return its error."""
    status = imported(node, *what, **more)
    assert status["status"] == "failed", status
    error: Json = status["error"]
    return error


def log_of(enclave: Enclave, by: str = "alice") -> list[Event]:
    """Return the whole log, as its owner exports it."""
    events = list[Event]()
    while True:
        page = enclave.ask(by, "Export", from_seq=len(events))
        events += [parse_event(encode(event)) for event in page["events"]]
        if len(events) > page["seq"]:
            return events


def archive_of(events: Sequence[Event], sth: TreeHead | None = None) -> bytes:
    replay = Replay()
    for event in events:
        replay.add(event)
    return b"".join(write_archive(header_of(replay, sth), events))


def migrate_commit(enclave: Enclave, to: Served, by: str = "alice", events: Sequence[Event] | None = None) -> Commit:
    """Return the owner's Migrate for the current log, or for the part that they have."""
    replay = Replay()
    for event in log_of(enclave, by) if events is None else events:
        replay.add(event)
    content = {
        "new_sequencer": to.key.public.hex(),
        "prev_seq": replay.state.seq,
        "ct_root": replay.checkpoint_root().hex(),
    }
    return enclave.commit(by, "Migrate", content)


def move(enclave: Enclave, to: Served, by: str = "alice") -> Enclave:
    """Move the enclave peacefully."""
    enclave.node.submit(migrate_commit(enclave, to, by))
    done(to, log_of(enclave, by)[-1], enclave.node.url)
    return enclave.at(to)


def force(enclave: Enclave, to: Served, by: str = "alice", upto: int | None = None) -> Enclave:
    """Move by force: from a copy of the log, or from the part up to a seq."""
    events = log_of(enclave, by)[: None if upto is None else upto + 1]
    done(to, migrate_commit(enclave, to, by, events), archive=archive_of(events))
    return enclave.at(to)


class ExportNode:
    """A node that only exports: it serves the events that it was given, page by page, with its own key.

    `twist` may change the body of an answer, `answer` may give any answer in its place.
    """

    def __init__(
        self,
        key: PrivateKey,
        events: Sequence[Event | Json],
        *,
        page: int = 1000,
        seq: int | None = None,
        twist: Callable[[Json], object] = lambda body: None,
        answer: Callable[[int], tuple[int, bytes] | None] = lambda n: None,
        now: Callable[[], float] = lambda: START / 1000,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._now = now
        self._key, self._page, self._twist, self._answer = key, page, twist, answer
        self._events = [wire_event(event) if isinstance(event, Event) else event for event in events]
        self._seq = len(events) - 1 if seq is None else seq
        self.asked: list[int] = []
        """The first seq of each requested page."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._server.server_address[1]}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        telling = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                status, body = telling.respond(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Log nothing."""

        return Handler

    def respond(self, data: bytes) -> tuple[int, bytes]:
        if (instead := self._answer(len(self.asked))) is not None:
            self.asked.append(-1)
            return instead
        request = parse_request(data)
        opened = open_request(request, self._key, int(self._now()))
        first = opened.body["from_seq"]
        self.asked.append(first)
        body: Json = {"events": self._events[first : first + self._page], "seq": self._seq}
        self._twist(body)
        return 200, encode(seal_answer(opened.keys, body, os.urandom(NONCE_SIZE)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def take_in(store: Store, events: Sequence[Event], payer: str, held: EnclaveState | None = None) -> None:
    """Stage a log as an import does, and adopt it."""
    staging = store.stage(events[0].enclave, held.seq if held else -1)
    checkers = ImportSignaturePool((), len(events))
    intake = StagedReplay(store, staging, NODE, events[0].enclave, held, checkers, write=staging.write)
    intake.replay_events(events)
    intake.finish()
    staging.adopt(intake.replay.state, person(payer).public, 0)
    intake.close()
    checkers.close()


def head(key: PrivateKey, enclave: bytes, size: int, root: bytes) -> Json:
    return wire_head(sign_head(key, enclave, START, size, root))
