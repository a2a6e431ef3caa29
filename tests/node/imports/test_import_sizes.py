"""Logs that are larger than what was sent, larger than commits may be, or than the disk has room for."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from enc.core.log.commit import wire_commit
from enc.core.log.event import wire_event
from enc.node.config import ImportSettings, LimitSettings
from enc.node.imports import log_import
from enc.node.limits.disk_space import DiskReading
from enc.testing.memory_store import MemoryStore
from tests.core.world import World
from tests.node.imports.import_orders import OLD, forced, moved, nothing_is_kept, refused, world
from tests.node.moving import ExportNode, archive_of, done, failure
from tests.node.served import DEV, Served


def repetitive() -> World:
    """Return a log of 1 MB that an archive of a few kB holds."""
    made = world()
    for n in range(10):
        made.send("bob", "message", str(n) * 100_000)
    return made


def test_an_archive_that_holds_much_more_than_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    made = repetitive()
    archive = archive_of(made.events)
    ratio = 1_000_000 // len(archive)
    monkeypatch.setattr(log_import, "MIN_UNPACKED", 500_000)
    with Served(replace(DEV, imports=ImportSettings(max_ratio=ratio // 2))) as node:
        error = failure(node, forced(made), archive=archive)
        assert (error["code"], "decompressed" in error["message"]) == ("INVALID_ARCHIVE", True), error
        nothing_is_kept(node, made)
    with Served(replace(DEV, imports=ImportSettings(max_ratio=ratio * 2))) as node:
        done(node, forced(made), archive=archive)


def test_a_small_log_may_be_as_repetitive_as_it_likes() -> None:
    made = repetitive()
    with Served(replace(DEV, imports=ImportSettings(max_ratio=1))) as node:
        done(node, forced(made), archive=archive_of(made.events))


@pytest.mark.parametrize("has_archive", [False, True])
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"content": 500}, "content: over this node's limit for a content, 500 bytes"),
        ({"tags": 2}, "tags: over 2 tags"),
        ({"tag_string": 64}, "a string is over 64 bytes"),
    ],
)
def test_events_obey_the_limits_for_commits(limits: dict[str, Any], said: str, has_archive: bool) -> None:
    made = world()
    large = made.send("bob", "message", "\u00e9" * 300, tags=(("k", "x" * 100), ("k", "y"), ("k", "z")))
    moved(made)
    with Served(replace(DEV, limits=LimitSettings(**limits))) as node, ExportNode(OLD, made.events) as source:
        how: Any = {"archive": archive_of(made.events)} if has_archive else {"source": source.url}
        error = failure(node, made.events[-1], **how)
        assert (error["code"], error["seq"], said in error["message"]) == ("INVALID_COMMIT", large.seq, True), error
        nothing_is_kept(node, made)


# Free disk space


def test_imports_leave_the_disk_its_reserve() -> None:
    made, here = moved(), world(meta={"n": 1})
    with Served(replace(DEV, limits=LimitSettings(disk_keep_free_bytes=1 << 50))) as node:
        for error in (
            refused(node, wire_event(made.events[-1])),
            refused(node, wire_commit(forced(here)), archive=archive_of(here.events)),
        ):
            assert (error.code, "bytes free" in error.message) == ("UNAVAILABLE", True)
        nothing_is_kept(node, made)


@pytest.mark.parametrize("has_archive", [False, True])
def test_an_import_stops_when_it_fills_the_disk(monkeypatch: pytest.MonkeyPatch, has_archive: bool) -> None:
    made, store = moved(), MemoryStore()

    def read(folder: Path) -> DiskReading:
        return DiskReading(0 if store._staged else 1 << 50, 1 << 50)

    monkeypatch.setattr("enc.node.assembly.read_disk", read)
    with Served(store=store) as node, ExportNode(OLD, made.events) as source:
        how: Any = {"archive": archive_of(made.events)} if has_archive else {"source": source.url}
        error = failure(node, made.events[-1], **how)
        assert (error["code"], "bytes free" in error["message"]) == ("UNAVAILABLE", True)
        nothing_is_kept(node, made)
