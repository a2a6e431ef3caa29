"""An attacker's process: sends prepared requests from an address of its own, as fast as it gets answers.

All requests are built and signed before the clock starts, so that the attacker costs the shared cores little.
An Attack comes in by standard input as msgpack; a count of the answers by status goes out by standard output.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
from msgspec import Struct
from websockets.sync.client import ClientConnection, connect

ATTACKER = "127.0.0.2"
"""The node counts what an address asks for: attackers have another one than the victim."""
START_S = 60
"""Seconds within which an attacker's process must be ready."""


class Call(Struct):
    body: bytes
    path: str = "/"
    kind: str = "application/json"


class Attack(Struct, kw_only=True):
    port: int
    calls: list[Call]
    """Each is sent once."""
    seconds: float
    connections: int = 8
    per_s: float = 0.0
    """Requests a second of all connections; 0: each sends the next after its answer."""
    subscriptions: list[list[bytes]] = []
    """Messages to send first, on a WebSocket each; what comes back is read and dropped."""
    slow_port: int = 0
    """Where to serve a source that answers a byte a second; 0: nowhere."""


class _Slow(BaseHTTPRequestHandler):
    """A source of an import that answers slowly."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "1000000")
        self.end_headers()
        try:
            for _ in range(1000):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(1)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


def _subscribe(opened: ExitStack, port: int, messages: list[bytes]) -> None:
    url, origin = f"ws://127.0.0.1:{port}/", (ATTACKER, 0)
    socket = opened.enter_context(connect(url, source_address=origin, max_size=None, ping_interval=None))
    for message in messages:
        socket.send(message.decode())
    for _ in messages:
        while b"EOSE" not in socket.recv(START_S, decode=False):
            pass
    threading.Thread(target=_drain, args=(socket,), daemon=True).start()


def _drain(socket: ClientConnection) -> None:
    try:
        while True:
            socket.recv(decode=False)
    except Exception:
        return  # the node closed it, or the attack is over


def _send(attack: Attack, calls: "deque[Call]", counts: "Counter[str]", until: float) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", attack.port, START_S, source_address=(ATTACKER, 0))
    while time.monotonic() < until:
        try:
            call = calls.popleft()
        except IndexError:
            return
        began = time.monotonic()
        try:
            connection.request("POST", call.path, call.body, {"content-type": call.kind})
            answer = connection.getresponse()
            answer.read()
            counts[str(answer.status)] += 1
        except OSError as e:
            counts[type(e).__name__] += 1
            connection.close()
        if attack.per_s:
            time.sleep(max(0.0, began + attack.connections / attack.per_s - time.monotonic()))


def main() -> None:
    attack = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Attack)
    if attack.slow_port:
        server = ThreadingHTTPServer((ATTACKER, attack.slow_port), _Slow)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
    with ExitStack() as opened:
        for messages in attack.subscriptions:
            _subscribe(opened, attack.port, messages)
        print("ready", flush=True)
        counts = _run(attack)
    subscriptions = sum(len(messages) for messages in attack.subscriptions)
    print(json.dumps({**counts, "subscriptions": subscriptions}), flush=True)


def _run(attack: Attack) -> "Counter[str]":
    """Send until the calls are used up or the time is over; return the number of answers by status."""
    calls, counts, until = deque(attack.calls), Counter[str](), time.monotonic() + attack.seconds
    threads = [
        threading.Thread(target=_send, args=(attack, calls, counts, until), daemon=True)
        for _ in range(attack.connections)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until + 1 - time.monotonic()))
    time.sleep(max(0.0, until - time.monotonic()))
    return counts


class Attacker:
    """The process of a running attack."""

    def __init__(self, attack: Attack) -> None:
        command = [sys.executable, str(Path(__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.msgpack.encode(attack))
        self._process.stdin.close()
        self._out = self._process.stdout
        if self._out.readline() != b"ready\n":
            sys.exit("an attacker's process did not start")

    def end(self) -> dict[str, int]:
        """Wait for the end; return how many answers of each status it got."""
        counts: dict[str, int] = json.loads(self._out.readline() or b"{}")
        self._process.wait(START_S)
        return counts


if __name__ == "__main__":
    main()
