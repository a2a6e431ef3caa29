"""Processes: `enc witness run` as an operator starts it, also one that dies at a given point; and a
node that lies.

`Liar` serves lying nodes over HTTP, each under a path of its own, so that one key can show several
people several logs.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from msgspec.json import decode

from enc.client import Witness
from enc.core.trees.cosigning import CosignedHead, check_cosigned, parse_cosigned
from enc.testing.lying_node import LyingNode
from tests.witness.launcher import Launcher

PATIENCE_S = 60
INTERVAL = "0.05"
"""Seconds between two polls."""

_numbers = count(1)


def until(is_so: Callable[[], Any]) -> Any:
    """Poll until the condition holds."""
    end = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < end, "the condition never holds"
    return found


class RunningWitness:
    """`point`: where it dies by itself, possibly before it is ready."""

    url: str = ""
    key: bytes = b""

    def __init__(
        self, launcher: Launcher, data: Path, *enclaves: str, flags: tuple[str, ...] = (), point: str = ""
    ) -> None:
        self.data, self.stderr, self._launcher = data, data.parent / f"{data.name}.stderr", launcher
        listed = [word for each in enclaves for word in ("--enclave", each)]
        args = ["witness", "run", "--data", str(data), "--listen", "127.0.0.1:0", "--interval", INTERVAL]
        said = data.parent / f"{data.name}.{next(_numbers)}.stdout"
        os.mkfifo(said)
        self.pid = launcher.start([*args, *listed, *flags], said, self.stderr, point)
        self.code: int | None = None
        self._said = said.open("rb")
        line = self._said.readline()
        if line:
            ready = decode(line)
            self.url, self.key = ready["url"], bytes.fromhex(ready["witness"])
            self.http = httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, verify=False)  # noqa: S501
        elif not point:
            raise AssertionError(f"the witness did not start: {self.ends()}\n{self.log()}")

    def log(self) -> str:
        return self.stderr.read_text()

    @property
    def witness(self) -> Witness:
        return Witness(self.url, self.key)

    def get(self, path: str) -> Any:
        found = self.http.get(path)
        return decode(found.content) if path != "/heads" else [decode(line) for line in found.content.splitlines()]

    def latest(self, enclave: bytes) -> CosignedHead | None:
        found = self.http.get(f"/heads/{enclave.hex()}")
        if found.status_code == 404:
            return None
        cosigned = parse_cosigned(found.content)
        check_cosigned(cosigned, self.key, enclave)
        return cosigned

    def sees(self, enclave: bytes, size: int) -> CosignedHead:
        """Wait until it has co-signed a head of so many bundles."""

        def seen() -> CosignedHead | None:
            latest = self.latest(enclave)
            return latest if latest and latest.head.ts >= size else None

        found: CosignedHead = until(seen)
        return found

    def state(self, enclave: bytes) -> str:
        return str(
            next(each["state"] for each in self.get("/enclaves")["enclaves"] if each["enclave"] == enclave.hex())
        )

    def ends(self, sig: int | None = None) -> int:
        """Wait until it has ended, by a signal or by itself; return its exit code."""
        if self.code is None:
            if sig is not None:
                os.kill(self.pid, sig)
            guard = threading.Timer(PATIENCE_S, os.kill, (self.pid, signal.SIGKILL))
            guard.start()
            self.code = self._launcher.wait(self.pid)
            guard.cancel()
            guard.join()
            self._said.close()
            if self.url:
                self.http.close()
        return self.code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.ends(signal.SIGKILL)
        else:
            assert self.ends(signal.SIGTERM) == 0, self.log()


class Liar:
    """`views`: the lying node for each first part of a path."""

    def __init__(self, views: Mapping[str, LyingNode]) -> None:
        self.views = dict(views)
        liar, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                _, view, path = self.path.split("/", 2)
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    found = liar.views[view](httpx.Request(self.command, f"http://node/{path}", content=body))
                self.send_response(found.status_code)
                self.send_header("content-length", str(len(found.content)))
                self.end_headers()
                self.wfile.write(found.content)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def url(self, view: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{view}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)
