"""The pipeline's push receiver: each batch is in the landing zone before its node gets 200.

The client's PushReceiver does the rest: it authenticates and checks pushes, detects missing batches
and pulls them; batches that a node no longer has are fetched by Query. All of it is written here.
Notices go to the notice board; an answer of a node that cannot be true becomes a row that goes to
quarantine.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from enc.client import Distrust, Gap, Identity, PushReceiver, ReceiverSettings
from enc.client.enclave.writes import Id
from enc.core.errors import MisuseError
from enc.core.log.event import wire_event
from enc.core.primitives.types import Event
from enc.dataview.lake.lock import local_directory
from enc.dataview.rows.raw_rows import RowOrigin, now, raw_batch, unread_row
from enc.dataview.source.landing import LandingZone
from enc.dataview.source.notice_board import NoticeBoard

MAX_DISTRUST_ROWS = 1000
"""Most rows written for false answers in one run; further ones are only logged."""
GROUP = 1000


class ReceiverPaths:
    """Paths of the receiver that belongs to a lake's pipeline."""

    def __init__(self, root: str) -> None:
        """`root`: the lake's root."""
        directory = local_directory(root)
        if directory is None:
            advice = "run `enc dataview receive`, and the pipeline with --landing"
            raise MisuseError(f"{root}: --receive needs a lake on a local disk: {advice}")
        self.directory = directory / "_receive"
        self.landing, self.notices = self.directory / "landing", self.directory / "notices"
        self.state = self.directory / "inbox.db"

    def create(self) -> "ReceiverPaths":
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise MisuseError(f"{self.directory}: cannot be created: {e.strerror}") from None
        return self

    @property
    def source(self) -> dict[str, str]:
        """The pipeline's source: the landing zone, whose files are removed once they are ingested."""
        return {"format": "landing", "path": str(self.landing), "clean": "true"}


class LandingReceiver:
    """Writes pushes to a landing zone. `receiver` is the client's PushReceiver, `app` its ASGI
    application.

    `more` are further arguments of PushReceiver. `skip_lost`: continue if batches are lost whose
    events may not be read.
    """

    def __init__(
        self,
        identity: Identity,
        url: str,
        nodes: Mapping[Id, str] | Iterable[str],
        state: Path | str,
        landing: LandingZone,
        notices: NoticeBoard | None = None,
        *,
        skip_lost: bool = False,
        settings: ReceiverSettings = ReceiverSettings(),  # noqa: B008
        **more: Any,
    ) -> None:
        self._landing, self._distrust_rows, self._skip_lost = landing, 0, skip_lost
        self.receiver = PushReceiver(
            identity,
            url,
            nodes,
            state,
            lambda event, db: None,  # its row is in the landing zone
            settings=replace(
                settings,
                on_notice=None if notices is None else notices.put,
                on_gap=self._on_gap,
                on_distrust=self._on_distrust,
                filing=self._land,
                group=GROUP,
            ),
            **more,
        )

    @property
    def app(self) -> Any:
        return self.receiver.app

    def _land(self, seq_pub: bytes, name: str, events: Sequence[Event]) -> None:
        """Write a batch. A repeated batch has the same file name: its queue and its number there."""
        lines = [msgspec.json.encode(wire_event(event)) for event in events]
        place = RowOrigin(f"push:{self.receiver.url_of(seq_pub) or ''}")
        self._landing.put(f"{self._queue(seq_pub)}-{name}", raw_batch(lines, place, now()))

    def _queue(self, seq_pub: bytes) -> str:
        """Return an id for the queue: a node numbers batches by recipient and URL."""
        named = seq_pub + self.receiver.identity.public + self.receiver.url.encode()
        return hashlib.sha256(named).hexdigest()[:32]

    def _on_gap(self, gap: Gap) -> bool:
        return self._skip_lost

    def _on_distrust(self, error: Distrust) -> None:
        if self._distrust_rows >= MAX_DISTRUST_ROWS:
            return
        self._distrust_rows += 1
        evidence = error.evidence
        node = self.receiver.url_of(evidence.sequencer) or ""
        place = RowOrigin(f"push:{node}", evidence.enclave.hex() if any(evidence.enclave) else None)
        lie = unread_row(error, place, now(), sequencer=evidence.sequencer.hex())
        text = lie["event"][0].as_py()
        self._landing.put(f"lie-{hashlib.sha256(text.encode()).hexdigest()}", lie)
