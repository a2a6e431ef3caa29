"""The receiver of pushes for the pipeline: each batch is in the landing zone before its node is told 200.

The client's PushReceiver does the rest: who may push, what is checked, which batches are missing, and that they are
pulled; what a node keeps no more is asked for by Query. All of it lands here. Notices go to the notice board; what a
node said that cannot be true lands as a row that goes to quarantine.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from enc.client import Distrust, Gap, Identity, PushReceiver
from enc.client.writes import Id
from enc.core.errors import MisuseError
from enc.core.event import wire_event
from enc.core.types import Event
from enc.dataview.landing import Landing
from enc.dataview.notify import NoticeBoard
from enc.dataview.rows import Place, mark, now, raw_batch
from enc.dataview.writer import local

MAX_LIES = 1000
"""Lies that land, of one run: of more, only the log tells."""
GROUP = 1000


class Zone:
    """Where the receiver of a lake's own pipeline keeps what it takes in, until the tables have it."""

    def __init__(self, root: str) -> None:
        """`root`: the lake's."""
        directory = local(root)
        if directory is None:
            advice = "run `enc dataview receive`, and the pipeline with --landing"
            raise MisuseError(f"{root}: pushes land on a disk of this machine first: {advice}")
        self.directory = directory / "_receive"
        self.landing, self.notices = self.directory / "landing", self.directory / "notices"
        self.state = self.directory / "inbox.db"

    def create(self) -> "Zone":
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise MisuseError(f"{self.directory}: cannot be made: {e.strerror}") from None
        return self

    @property
    def source(self) -> dict[str, str]:
        """For the pipeline: what has landed, which is removed once the tables have it."""
        return {"format": "landing", "path": str(self.landing), "clean": "true"}


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
        node = self.receiver.url_of(evidence.sequencer) or ""
        place = Place(f"push:{node}", evidence.enclave.hex() if any(evidence.enclave) else None)
        lie = mark(error, place, now(), sequencer=evidence.sequencer.hex())
        text = lie["event"][0].as_py()
        self._landing.put(f"lie-{hashlib.sha256(text.encode()).hexdigest()}", lie)
