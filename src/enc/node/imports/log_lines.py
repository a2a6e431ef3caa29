"""The events of a log that has arrived, within this node's limits for commits."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from enc.core.errors import InvalidCommit, ReplayFailed
from enc.core.log.commit import check_shape, manifest_version
from enc.core.log.event import erase, signed_statement
from enc.core.machine.archive import unpack_lines
from enc.core.primitives.types import VERSIONS, Event
from enc.node.imports.context import ImportPolicy
from enc.node.imports.source_node import parse_line

CHUNK = 1 << 16
"""Bytes of a log that are read at a time."""


class LogFile(Protocol):
    """A log that has arrived, read from its start."""

    @property
    def size(self) -> int:
        """Its bytes, compressed."""
        ...

    def read(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


def fetched_events(log: LogFile, policy: ImportPolicy, first: int = 0) -> Iterator[Event]:
    """Yield the events of fetched lines, the first of which has the seq `first`."""
    lines = unpack_lines(chunks(log), max_total=policy.total_bytes)
    return limited_events((parse_line(line, seq) for seq, line in enumerate(lines, first)), policy)


def limited_events(events: Iterable[Event], policy: ImportPolicy) -> Iterator[Event]:
    """Yield the events, without statements of withholding that nobody signed; raise at one that is over
    a limit of this node for commits.

    The check of a Manifest comes before it is parsed further. Replay rejects any second one.
    """
    for event in events:
        is_first = event.seq == 0
        most = policy.max_manifest if is_first else policy.limits.content
        try:
            if len((event.content or "").encode()) > most:
                what = "a Manifest" if is_first else "a content"
                raise InvalidCommit(f"content: over this node's limit for {what}, {most} bytes")
            check_shape(event, policy.limits)
            if is_first and event.type == "Manifest" and event.content is not None:
                _check_version(event)
        except InvalidCommit as e:
            raise ReplayFailed(event.seq, e) from None
        yield event if event.withheld is None or signed_statement(event) else erase(event)


def _check_version(manifest: Event) -> None:
    enc_v = manifest_version(manifest)
    if enc_v not in VERSIONS:
        raise InvalidCommit(f"enc_v: this node does not host enclaves of version {enc_v}")


def chunks(log: LogFile) -> Iterator[bytes]:
    while chunk := log.read(CHUNK):
        yield chunk
