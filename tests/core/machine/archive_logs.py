"""Logs of vectors/ as archives, and ways to damage them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace

from enc.core.errors import InvalidArchive
from enc.core.log.event import parse_event
from enc.core.machine.archive import Header, read_archive, write_archive
from enc.core.machine.archive_check import header_of, verify_archive
from enc.core.machine.replay import Replay
from enc.core.primitives.types import Event, TreeHead
from enc.core.trees.tree_head import sign_head
from tests.core.vectors import KEYS, load

NODE, OTHER, ALICE = KEYS["node"], KEYS["node2"], KEYS["alice"]


class Log:
    """One of the logs of vectors/, replayed, and as an archive."""

    def __init__(self, name: str, count: int | None = None) -> None:
        self.events = [parse_event(json.dumps(wire)) for wire in load(name)["events"]][:count]
        self.replay = Replay()
        for event in self.events:
            self.replay.add(event)
        self.state = self.replay.state
        self.enclave = self.state.enclave
        self.header = header_of(self.replay, None)
        self.bytes = packed(self.header, self.events)
        self.text = zstandard.ZstdDecompressor().decompressobj().decompress(self.bytes)

    def head(self, closed: bool, key=NODE, enclave: bytes | None = None) -> TreeHead:
        """Return a head with the last bundle open or closed."""
        size, root = self.state.log.size, self.state.log.root()
        if closed:
            size, root = size + 1, self.replay.checkpoint_root()
        return sign_head(key, enclave or self.enclave, 5, size, root)

    def verify(self, **changes: Any) -> Replay:
        return verify_archive(replace(self.header, **changes), self.events)


def packed(header: Header, events: Iterable[Event]) -> bytes:
    return b"".join(write_archive(header, events))


def squeeze(text: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


def read(chunks: bytes | Iterable[bytes], **bounds: int) -> tuple[Header, list[Event]]:
    header, events = read_archive([chunks] if isinstance(chunks, bytes) else chunks, **bounds)
    return header, list(events)


def refused(chunks: bytes | Iterable[bytes], match: str | None = None, **bounds: int) -> None:
    with pytest.raises(InvalidArchive, match=match):
        read(chunks, **bounds)


LOG, MOVED, VERSION_1 = Log("log"), Log("log_moved"), Log("log_v1")


def lines(*items: bytes) -> bytes:
    return squeeze(b"".join(item + b"\n" for item in items))


HEAD_LINE, *EVENT_LINES = LOG.text.splitlines()
