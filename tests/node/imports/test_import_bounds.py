"""Sources that send slowly or use TLS; signatures of a log that are checked in many parts."""

import os
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from msgspec.structs import replace

from enc.core.errors import ReplayFailed
from enc.core.primitives.types import Event
from enc.node.imports import replay as migration
from enc.node.imports import source_node as source_module
from enc.node.imports.replay import StagedReplay
from enc.node.signatures import import_check
from enc.node.signatures.import_check import ImportSignaturePool
from enc.runtime import checked_http
from enc.testing.memory_store import MemoryStore
from tests.node.imports.import_orders import OLD, moved, nothing_is_kept
from tests.node.moving import ExportNode, done, failure, order
from tests.node.served import NODE, Clock, Served


def test_a_source_that_trickles_does_not_keep_the_node_from_stopping() -> None:
    """Sends one byte at a time, each within the timeout, and never the last."""
    made, began, over = moved(), threading.Event(), threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def trickle() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 30000000\r\n\r\n")
            began.set()
            try:
                while not over.wait(0.01):
                    connection.sendall(b" ")
            except OSError:
                return

    threading.Thread(target=trickle, daemon=True).start()
    node = Served(clock=Clock())
    order(node, made.events[-1], f"http://127.0.0.1:{server.getsockname()[1]}")
    assert began.wait(30)
    node.begin_stop()
    stopping = threading.Thread(target=node.stop)
    stopping.start()
    stopping.join(20)
    is_stuck = stopping.is_alive()
    over.set()
    stopping.join()
    server.close()
    assert not is_stuck
    assert node.store.load(made.state.enclave) is None


def test_slices_are_bounded_by_tags_too() -> None:
    class Big:
        content = ""
        tags = (("r", "x" * 4096),) * 512

    sizes = [len(s) for s in migration._slices([Big()] * 64)]  # type: ignore[list-item]
    assert max(sizes) <= 4


@pytest.mark.parametrize("length", [b"content-length: 30000000\r\n", b""])
def test_a_source_whose_answer_takes_longer_than_it_may(monkeypatch: pytest.MonkeyPatch, length: bytes) -> None:
    """The answer has begun and never ends: only the time limit stops it."""
    monkeypatch.setattr(checked_http, "MAX_S", 0)
    monkeypatch.setattr(checked_http, "WATCH_S", 0.001)
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    made, over, cut = moved(), threading.Event(), threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def begin() -> None:
        connection, _ = server.accept()
        with connection:
            with suppress(OSError):  # it may be cut at any time
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
                while connection.recv(1 << 16):
                    pass
            cut.set()
            over.wait(30)

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    with Served() as node:
        error = failure(node, made.events[-1], f"http://127.0.0.1:{server.getsockname()[1]}")
        assert (error["code"], "took longer than 0 s" in error["message"]) == ("UPSTREAM_UNREACHABLE", True)
        nothing_is_kept(node, made)
    assert cut.wait(30), "the node has hung up"
    over.set()
    thread.join()
    server.close()


@pytest.mark.parametrize("how", ["good", "another name", "another authority"])
def test_a_source_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It must have a certificate for its name, by an authority that this machine trusts."""
    monkeypatch.setattr(source_module, "PAUSES_S", ())
    trusted, tls = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    authority = trustme.CA() if how == "another authority" else trusted
    authority.issue_cert("elsewhere.example" if how == "another name" else "localhost").configure_cert(tls)
    made = moved()
    with ExportNode(OLD, made.events, tls=tls) as source, Served() as node:
        where = source.url.replace("127.0.0.1", "localhost")
        if how == "good":
            done(node, made.events[-1], where)
            assert node.store.load(made.state.enclave) == made.state
            assert source.asked == [0]
        else:
            assert failure(node, made.events[-1], where)["code"] == "UPSTREAM_UNREACHABLE"
            assert source.asked == []
            nothing_is_kept(node, made)


@pytest.mark.parametrize("slice_", [1, 4, 1024])
@pytest.mark.parametrize("part", [1, 3, 8, 1024])
def test_a_log_is_checked_in_many_parts(monkeypatch: pytest.MonkeyPatch, part: int, slice_: int) -> None:
    """Each result belongs to its event: one wrong signature is reported at its own seq."""
    monkeypatch.setattr(migration, "SLICE_EVENTS", slice_)
    monkeypatch.setattr(import_check, "FEW", 0)
    made = moved()
    cores = set(list(os.sched_getaffinity(0))[:2])
    ready = ImportSignaturePool(cores, len(made.events), part)
    try:
        assert take(made.events, ready) == len(made.events)
        for wrong in (0, 4, len(made.events) - 1):
            for field in ("sig", "seq_sig"):
                events = list(made.events)
                value = getattr(events[wrong], field)
                events[wrong] = replace(events[wrong], **{field: value[:-1] + bytes([value[-1] ^ 1])})
                with pytest.raises(ReplayFailed) as failed:
                    take(events, ready)
                assert (failed.value.context["seq"], failed.value.code) == (wrong, "INVALID_SIGNATURE")
                assert failed.value.message.split(": ")[1].startswith(field)
    finally:
        ready.close()


def take(events: list[Event], ready: ImportSignaturePool) -> int:
    store = MemoryStore()
    staging = store.stage(events[0].enclave, -1)
    intake = StagedReplay(store, staging, NODE, events[0].enclave, None, ready, write=staging.write)
    try:
        intake.replay_events(events)
        intake.finish()
        return intake.replay.events
    finally:
        intake.close()
