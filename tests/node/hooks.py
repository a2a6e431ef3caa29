"""Endpoints: a real HTTP server in the test's own process, with a hook for each person.

with Hooks() as hooks:
    register(enclave, "vera", hooks.url("vera"))
    hooks.until(lambda: hooks.numbers("vera") == [1])
"""

import ssl
import threading
from collections import defaultdict
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from msgspec.json import encode

from enc.core.session.envelope import OpenedPush, challenge_answer, open_push
from tests.core.world import person

PATIENCE_S = 60
"""How long anything may take before it counts as lost."""


class Hooks:
    """An HTTP server with hooks. `answers`: each hook's status for a push, by default 200.

    A hook that hangs does not answer pushes. Challenges are answered, unless `confirms` says no.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Start the server; with `tls`, on localhost by HTTPS."""
        self._origin = "http://127.0.0.1" if tls is None else "https://localhost"
        self.changed = threading.Condition()
        self.pushes: dict[str, list[OpenedPush]] = defaultdict(list)
        """The requests that have arrived, answered or not."""
        self.answers: Callable[[str, int], int] = lambda name, push_seq: 200
        self.challenges: dict[str, list[OpenedPush]] = defaultdict(list)
        self.confirms: Callable[[str], bool] = lambda name: True
        """Whether a hook answers challenges; otherwise it answers them like pushes."""
        self._hanging: set[str] = set()
        hooks = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hooks._take(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def url(self, name: str) -> str:
        return f"{self._origin}:{self._server.server_address[1]}/{name}"

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        data = request.rfile.read(int(request.headers["content-length"]))
        name = request.path.strip("/")
        push = open_push(person(name), data)
        assert push.url == self.url(name)
        if push.type == "Challenge":
            self._answer_challenge(request, name, push)
            return
        with self.changed:
            self.pushes[name].append(push)
            self.changed.notify_all()
            self.changed.wait_for(lambda: name not in self._hanging)
        request.send_response(self.answers(name, push.body["push_seq"]))
        request.send_header("content-length", "0")
        request.end_headers()

    def _answer_challenge(self, request: BaseHTTPRequestHandler, name: str, challenge: OpenedPush) -> None:
        with self.changed:
            self.challenges[name].append(challenge)
            self.changed.notify_all()
        body = encode(challenge_answer(challenge)) if self.confirms(name) else b""
        request.send_response(200 if body else self.answers(name, 0))
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def hang(self, *names: str) -> None:
        with self.changed:
            self._hanging.update(names)

    def let_go(self, *names: str) -> None:
        """Let these hooks answer from now on, and release their hanging requests; without names, all hooks."""
        with self.changed:
            self._hanging.difference_update(names or set(self._hanging))
            self.changed.notify_all()

    def until(self, holds: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(holds, PATIENCE_S), dict(self.pushes)

    def numbers(self, name: str) -> list[int]:
        """Return the push_seq of each push that has arrived."""
        return [push.body["push_seq"] for push in self.pushes[name]]

    def seqs(self, name: str) -> list[int]:
        """Return the seqs of the events that were pushed in one enclave; a repeated batch counts once, at its place."""
        bodies = {push.body["push_seq"]: push.body for push in self.pushes[name]}
        return [
            event["seq"]
            for _, body in sorted(bodies.items())
            for enclave in body.get("push", {"enclaves": []})["enclaves"]
            for event in enclave["events"]
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore errors of connections that the node has closed, because it was killed or its time limit was over."""
