"""Logs fetched from slow sources and from names that do not resolve: they keep nobody's import or read away."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.json import Decoder, decode
from msgspec.structs import replace

from enc.core.errors import UpstreamUnreachable
from enc.core.log.event import wire_event
from enc.core.primitives.types import Event
from enc.node.config import ImportSettings
from enc.node.imports import source_calls, source_node
from enc.node.imports.source_calls import SourceCalls
from enc.node.imports.source_node import RemoteLog
from enc.runtime.endpoints import parse_endpoint
from tests.core.world import World, person
from tests.node.imports.import_orders import OLD, forced, moved, nothing_is_kept, refused, world
from tests.node.moving import ExportNode, archive_of, done, ended, order
from tests.node.served import DEV, PATIENCE_S, SMALL, Served, bad

SLOW = "slow.example"


@contextmanager
def slow_source(made: World) -> Iterator[tuple[ExportNode, threading.Event]]:
    """Serve a source that answers nothing before the event is set; it is set at the end."""
    go_on = threading.Event()
    with ExportNode(OLD, made.events, twist=lambda body: go_on.wait(PATIENCE_S)) as source:
        try:
            yield source, go_on
        finally:
            go_on.set()


@contextmanager
def slow_names(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[threading.Semaphore, threading.Event]]:
    """Let names under SLOW resolve only when the event is set; the semaphore counts those that are asked for."""
    asked, go_on, inner = threading.Semaphore(0), threading.Event(), socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **more: Any) -> list[Any]:
        if not host.endswith(SLOW):
            return inner(host, port, *args, **more)
        asked.release()
        go_on.wait(PATIENCE_S)
        raise socket.gaierror(-3, "temporary failure")

    monkeypatch.setattr("enc.runtime.endpoints.socket.getaddrinfo", resolve)
    try:
        yield asked, go_on
    finally:
        go_on.set()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Slow sources


def test_slow_sources_keep_no_other_import_away() -> None:
    slow, made, here = [moved(world(meta={"n": n})) for n in range(2)], moved(), world(meta={"n": 9})
    with Served(replace(DEV, imports=ImportSettings(at_once=1))) as node, slow_source(slow[0]) as (source, _):
        for each in slow:
            assert order(node, each.events[-1], source.url).status_code == 202
        with ExportNode(OLD, made.events) as good_source:
            done(node, made.events[-1], good_source.url)
        done(node, forced(here), archive=archive_of(here.events))
        assert decode(node.get(f"/import/{slow[0].events[-1].hash.hex()}").content)["status"] == "running"


def test_a_slow_source_is_left_after_its_grace_and_makes_room() -> None:
    slow, made = moved(world(meta={"n": 1})), moved()
    config = replace(DEV, imports=ImportSettings(uploads=1, upload_grace_s=5))
    with Served(config) as node, slow_source(slow) as (source, _), ExportNode(OLD, made.events) as good_source:
        order(node, slow.events[-1], source.url)
        assert bad(order(node, made.events[-1], good_source.url)).code == "UNAVAILABLE"
        node.clock.tick(6_000)
        node.on_loop(node.node.uploads.drop_slow)
        status = ended(node, slow.events[-1].hash.hex())
        assert (status["status"], status["error"]["code"]) == ("failed", "UNAVAILABLE")
        assert "too slowly" in status["error"]["message"]
        done(node, made.events[-1], good_source.url)
        assert node.on_loop(lambda: len(node.node.uploads)) == 0


@pytest.mark.parametrize("has_archive", [False, True])
def test_a_slow_source_of_the_same_migrate_keeps_a_better_one_from_nothing(has_archive: bool) -> None:
    """Anyone who reads a final Migrate can order the import, and name a source of their own."""
    made = moved()
    migrate = made.events[-1]
    with Served() as node, slow_source(made) as (slow, go_on), ExportNode(OLD, made.events) as source:
        order(node, migrate, slow.url)
        how: Any = {"archive": archive_of(made.events)} if has_archive else {"source": source.url}
        assert done(node, migrate, **how)["receipt"]["seq"] == migrate.seq
        go_on.set()
        node.until(lambda: not len(node.node.uploads))
        assert ended(node, migrate.hash.hex())["status"] == "done"


def test_the_same_order_joins_the_fetch_and_takes_no_second_place() -> None:
    made = moved()
    with Served(replace(DEV, imports=ImportSettings(uploads=1))) as node, slow_source(made) as (source, go_on):
        for _ in range(3):
            assert order(node, made.events[-1], source.url).status_code == 202
        go_on.set()
        assert ended(node, made.events[-1].hash.hex())["status"] == "done"
        assert source.asked == [0]


def test_a_fetch_without_a_place_may_be_ordered_again() -> None:
    slow, made = moved(world(meta={"n": 1})), moved()
    with Served(replace(DEV, imports=ImportSettings(uploads=1))) as node, slow_source(slow) as (source, go_on):
        order(node, slow.events[-1], source.url)
        with ExportNode(OLD, made.events) as good_source:
            assert refused(node, wire_event(made.events[-1]), good_source.url).code == "UNAVAILABLE"
            assert node.node.importer.status(made.events[-1].hash) is None
            go_on.set()
            ended(node, slow.events[-1].hash.hex())
            done(node, made.events[-1], good_source.url)


def test_a_fetch_whose_file_cannot_be_created_may_be_ordered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError(24, "too many open files")

    made = moved()
    with Served() as node, ExportNode(OLD, made.events) as source:
        with monkeypatch.context() as patch:
            patch.setattr(node.node.uploads, "_open_file", fail)
            assert refused(node, wire_event(made.events[-1]), source.url).code == "INTERNAL_ERROR"
        assert node.node.importer.status(made.events[-1].hash) is None
        done(node, made.events[-1], source.url)


def test_what_a_source_sends_counts_where_it_is_stored() -> None:
    made = moved()
    with (
        Served(replace(DEV, imports=ImportSettings(uploads_bytes=100))) as node,
        ExportNode(OLD, made.events) as source,
    ):
        order(node, made.events[-1], source.url)
        error = ended(node, made.events[-1].hash.hex())["error"]
        assert (error["code"], "exceed the bytes" in error["message"]) == ("UNAVAILABLE", True)
        nothing_is_kept(node, made)


def test_line_feeds_between_values_do_not_split_an_event() -> None:
    made = moved()
    log = RemoteLog(
        parse_endpoint("https://source.example"),
        person("node"),
        OLD.public,
        made.state.enclave,
        0,
        lambda: 0,
        max_bytes=1 << 20,
    )
    page = Decoder(source_node._Page).decode(b'{"events": [{"a":\n1,\n"b": "\\n"}], "seq": 0}')
    assert log._lines(page, 0) == [b'{"a": 1, "b": "\\n"}']


# Slow names


def migrates(count: int) -> list[Event]:
    return [moved(world(meta={"n": n})).events[-1] for n in range(count)]


def test_names_that_do_not_resolve_keep_no_read_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    with Served() as node, ThreadPoolExecutor() as pool, slow_names(monkeypatch) as (asked, go_on):
        enclave = node.create(SMALL)
        orders = [pool.submit(order, node, migrate, f"https://h{n}.{SLOW}") for n, migrate in enumerate(migrates(4))]
        for _ in orders:
            assert asked.acquire(timeout=PATIENCE_S)
        assert len(enclave.query("bob")) == 1
        go_on.set()
        assert {bad(each.result()).code for each in orders} == {"UPSTREAM_UNREACHABLE"}
        assert node.node.importer._fetched == []


def test_a_name_that_does_not_resolve_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_calls, "LOOKUP_S", 0.001)
    with Served() as node, slow_names(monkeypatch):
        error = refused(node, wire_event(migrates(1)[0]), f"https://{SLOW}")
        assert (error.code, "not resolved within" in error.message) == ("UPSTREAM_UNREACHABLE", True)


@pytest.mark.anyio
async def test_names_of_one_address_leave_threads_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_calls, "LOOKUP_THREADS", 2)
    calls = SourceCalls(1, allow_private=True)
    with slow_names(monkeypatch) as (asked, go_on):
        slow = [asyncio.create_task(calls.addresses(parse_endpoint(f"https://h{n}.{SLOW}"), "a")) for n in range(4)]
        await asyncio.to_thread(asked.acquire)
        found = await calls.addresses(parse_endpoint("http://127.0.0.1:1", allow_private=True), "b")
        assert found[0][1] == ("127.0.0.1", 1)
        assert not asked.acquire(blocking=False), "one name of the first address at a time"
        go_on.set()
        results = await asyncio.gather(*slow, return_exceptions=True)
        assert {type(result) for result in results} == {UpstreamUnreachable}
    calls.close()
