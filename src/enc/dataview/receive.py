"""The receiver of pushes for the pipeline: each batch is in the landing zone before its node is told 200.

The client's PushReceiver does the rest: who may push, what is checked, which batches are missing, and that they are
pulled; what a node keeps no more is asked for by Query. All of it lands here. Notices go to the notice board; what a
node said that cannot be true lands as a row that goes to quarantine.
"""

import asyncio
import hashlib
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import uvicorn

from enc.client import Distrust, Gap, Identity, PushReceiver
from enc.client.writes import Id
from enc.core.encoding import compact_json
from enc.core.errors import MisuseError
from enc.core.event import wire_event
from enc.core.types import Event
from enc.dataview.landing import Landing
from enc.dataview.notify import NoticeBoard
from enc.dataview.rows import Place, now, raw_batch

MAX_LIES = 1000
"""Lies that land, of one run: of more, only the log tells."""
START_S = 30.0
GROUP = 1000


class LandingReceiver:
    """`receiver` is the client's; `app` is for any ASGI server. `more` is what PushReceiver takes besides.

    `skip_lost`: go on where batches are lost whose events may not be read.
    """

    def __init__(
        self,
        identity: Identity,
        url: str,
        nodes: Mapping[Id, str] | Iterable[str],
        state: Path | str,
        landing: Landing,
        notices: NoticeBoard | None = None,
        *,
        skip_lost: bool = False,
        **more: Any,
    ) -> None:
        self._landing, self._lies, self._skip_lost = landing, 0, skip_lost
        self.receiver = PushReceiver(
            identity,
            url,
            nodes,
            state,
            lambda event, db: None,  # it has landed
            on_notice=None if notices is None else notices.put,
            on_gap=self._on_gap,
            on_distrust=self._on_distrust,
            filing=self._land,
            group=GROUP,
            **more,
        )

    @property
    def app(self) -> Any:
        return self.receiver.app

    def _land(self, seq_pub: bytes, name: str, events: Sequence[Event]) -> None:
        """A batch that comes again is the same file: it is named after its queue, and its number there."""
        lines = [msgspec.json.encode(wire_event(event)) for event in events]
        place = Place(f"push:{self.receiver.url_of(seq_pub) or ''}")
        self._landing.put(f"{self._queue(seq_pub)}-{name}", raw_batch(lines, place, now()))

    def _queue(self, seq_pub: bytes) -> str:
        """A node counts the batches of each recipient and URL: these three together are one count."""
        named = seq_pub + self.receiver.identity.public + self.receiver.url.encode()
        return hashlib.sha256(named).hexdigest()[:32]

    def _on_gap(self, gap: Gap) -> bool:
        return self._skip_lost

    def _on_distrust(self, error: Distrust) -> None:
        if self._lies >= MAX_LIES:
            return
        self._lies += 1
        evidence = error.evidence
        said = {"distrust": error.code, "message": error.message[:2000], "sequencer": evidence.sequencer.hex()}
        node = self.receiver.url_of(evidence.sequencer) or ""
        place = Place(f"push:{node}", evidence.enclave.hex() if any(evidence.enclave) else None)
        text = compact_json(said).encode()
        self._landing.put(f"lie-{hashlib.sha256(text).hexdigest()}", raw_batch([text], place, now()))


class Listener:
    """An ASGI app on a socket, served by a thread of this process until `close`."""

    def __init__(self, app: Any, listening: socket.socket, cert: Path | None = None, key: Path | None = None) -> None:
        self._socket = listening
        config = uvicorn.Config(
            app,
            interface="asgi3",
            lifespan="on",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            limit_concurrency=256,
            timeout_graceful_shutdown=10,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )
        self._server = uvicorn.Server(config)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="enc-listener", daemon=True)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def start(self) -> None:
        """Returns when it listens; MisuseError if it cannot."""
        self._thread.start()
        while not self._server.started:
            if self._done.wait(0.01):
                raise MisuseError("the receiver did not start")

    def wait(self, seconds: float | None = None) -> bool:
        """Whether it has ended."""
        return self._done.wait(seconds)

    def close(self) -> None:
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(START_S)

    def _run(self) -> None:
        try:
            asyncio.run(self._server.serve(sockets=[self._socket]))
        except (OSError, RuntimeError, SystemExit):
            pass  # `start` and `wait` tell
        finally:
            self._done.set()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
