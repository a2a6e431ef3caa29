"""Archives: pulled from a real node page by page, interrupted and resumed, always verified."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enc.client import AsyncClient, Client, Enclave, Forgery, Identity
from enc.client.enclave import backup, export
from enc.client.enclave.backup import summarise
from enc.client.enclave.templates import template
from enc.core.errors import InvalidArchive, MisuseError, PeerError, Unauthorized
from enc.core.machine.archive import Header, read_archive, read_lines, write_lines
from enc.core.primitives.types import Event
from tests.node.running import RunningNode

OWNER = Identity.new()
_numbers = count(1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture
def enclave(node: RunningNode) -> Iterator[Enclave]:
    """Return an enclave with eleven events, one of them edited and one deleted."""
    with Client(node.url, OWNER, pins=None) as client:
        meta = {"n": next(_numbers)}
        made = client.create({**template("team", OWNER.public), "meta": meta, "bundle": {"timeout": 200}})
        first = made.commit("message", "one")
        second = made.commit("message", "two")
        made.update(first.id, "won")
        made.delete(second.id)
        for i in range(6):
            made.commit("message", f"more {i}")
        yield made


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "PAGE", 3)


def archive(path: Path) -> tuple[Header, list[Event]]:
    header, events = read_archive([path.read_bytes()])
    return header, list(events)


def test_an_archive_holds_the_whole_log_and_replays(enclave: Enclave, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    header = enclave.archive(tmp_path / "a.enc", lambda here, total: seen.append((here, total)))
    assert seen == [(3, 11), (6, 11), (9, 11), (11, 11)]
    found, events = archive(tmp_path / "a.enc")
    assert found == header
    assert [event.seq for event in events] == list(range(11))
    assert [event.content for event in events[1:3]] == [None, None]
    summary = summarise(found, iter(events))
    assert (summary.header.enclave, summary.bundles) == (enclave.id, header.sth and header.sth.ts)
    assert [path.name for path in tmp_path.iterdir()] == ["a.enc"]
    assert (tmp_path / "a.enc").stat().st_mode & 0o777 == 0o600


def broken_off(enclave: Enclave, path: Path, after: int) -> None:
    """Stop a pull after this many events."""

    class Stop(Exception):
        pass

    def stop(here: int, total: int) -> None:
        if here >= after:
            raise Stop

    with pytest.raises(Stop):
        enclave.archive(path, stop)
    assert not path.exists()


def test_a_pull_that_was_broken_off_goes_on(enclave: Enclave, tmp_path: Path) -> None:
    path = tmp_path / "a.enc"
    broken_off(enclave, path, 6)
    with (tmp_path / "a.enc.part").open("ab") as part:
        part.write(b'{"cut off')
    seen: list[int] = []
    enclave.archive(path, lambda here, total: seen.append(here))
    assert seen == [9, 11]
    header, events = archive(path)
    summarise(header, iter(events))
    assert len(events) == 11


def test_what_was_pulled_before_is_not_trusted(enclave: Enclave, tmp_path: Path) -> None:
    path = tmp_path / "a.enc"
    broken_off(enclave, path, 6)
    part = tmp_path / "a.enc.part"
    lines = part.read_bytes().splitlines(keepends=True)
    part.write_bytes(lines[0] + lines[2])
    with pytest.raises(InvalidArchive, match=r"a\.enc\.part: damaged"):
        enclave.archive(path)
    assert not path.exists()


def test_nothing_is_written_over(enclave: Enclave, tmp_path: Path) -> None:
    path = tmp_path / "a.enc"
    path.write_bytes(b"something")
    with pytest.raises(MisuseError, match="already exists"):
        enclave.archive(path)
    assert path.read_bytes() == b"something"
    with pytest.raises(MisuseError, match="No such file or directory"):
        enclave.archive(tmp_path / "no" / "a.enc")


def test_only_the_owner_may_pull(node: RunningNode, enclave: Enclave, tmp_path: Path) -> None:
    with Client(node.url, Identity.new(), pins=None) as client, pytest.raises(Unauthorized):
        client.enclave(enclave.id).archive(tmp_path / "a.enc")
    assert not (tmp_path / "a.enc").exists()


def lying(enclave: Enclave, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the node's export on its way to the client."""
    honest = enclave._reader.session.ask

    def ask(path: str, type_: Any, body: Any) -> Any:
        text = yield from honest(path, type_, body)
        return msgspec.json.encode(change(msgspec.json.decode(text))) if type_ == "Export" else text

    monkeypatch.setattr(enclave._reader.session, "ask", ask)


def drop(page: Any) -> Any:
    return {**page, "events": page["events"][1:]}


def alter(page: Any) -> Any:
    events = page["events"]
    return {**page, "events": [*events[:-1], {**events[-1], "content": "{}"}]}


def withhold(page: Any) -> Any:
    return {**page, "events": []}


def cut(page: Any) -> Any:
    """Make the page claim to be the last one; the head shows that it is not."""
    return {**page, "seq": page["events"][-1]["seq"]}


@pytest.mark.parametrize("lie", [drop, alter, withhold])
def test_an_export_that_does_not_replay_is_a_forgery(
    enclave: Enclave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Any
) -> None:
    lying(enclave, lie, monkeypatch)
    with pytest.raises(Forgery, match="export: "):
        enclave.archive(tmp_path / "a.enc")
    assert not (tmp_path / "a.enc").exists()


def test_a_log_that_is_cut_short_is_not_the_head_s(
    node: RunningNode, enclave: Enclave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enclave.status(enclave.commit("message", "last").id)  # once it is in a closed bundle
    lying(enclave, cut, monkeypatch)
    with pytest.raises(Forgery, match="export: "):
        enclave.archive(tmp_path / "a.enc")
    assert not (tmp_path / "a.enc").exists()


@pytest.mark.parametrize("lie", [drop, alter])
def test_an_export_for_an_audit_has_what_the_node_said(
    enclave: Enclave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Any
) -> None:
    """An export verifies and repairs nothing: that is the audit's task."""
    monkeypatch.setattr(export, "PAGE", 20)
    enclave.archive(tmp_path / "right.enc")
    honest = enclave.export(tmp_path / "honest.enc")
    assert archive(tmp_path / "honest.enc")[1] == archive(tmp_path / "right.enc")[1]
    summarise(honest, read_archive([(tmp_path / "honest.enc").read_bytes()])[1])
    lying(enclave, lie, monkeypatch)
    header = enclave.export(tmp_path / "a.enc")
    events = archive(tmp_path / "a.enc")[1]
    assert header.events == len(events) == (10 if lie is drop else 11)
    assert events != archive(tmp_path / "right.enc")[1]
    with pytest.raises(PeerError):
        summarise(header, iter(events))


def test_an_export_goes_on_from_an_earlier_archive(enclave: Enclave, tmp_path: Path) -> None:
    path, asked = tmp_path / "a.enc", list[int]()
    enclave.export(path)
    enclave.commit("message", "one more")
    header = enclave.export(path, since=path, progress=lambda here, total: asked.append(here))
    assert asked == [12]
    assert header.events == 12
    assert [event.seq for event in archive(path)[1]] == list(range(12))


def test_an_export_goes_on_from_what_cannot_be_read(enclave: Enclave, tmp_path: Path) -> None:
    """A later audit gets the node's answer byte for byte."""
    path = tmp_path / "a.enc"
    enclave.export(path)
    header, lines = read_lines([path.read_bytes()])
    kept = [*lines]
    kept[5] = b'{"seq":5, "no": "event"}'
    path.write_bytes(b"".join(write_lines(header, kept)))
    enclave.commit("message", "one more")
    assert enclave.export(path, since=path).events == 12
    assert [*read_lines([path.read_bytes()])[1]][:11] == kept


def test_the_awaiting_face_pulls_too(node: RunningNode, enclave: Enclave, tmp_path: Path) -> None:
    async def pull() -> Header:
        async with AsyncClient(node.url, OWNER, pins=None) as client:
            return await client.enclave(enclave.id).archive(tmp_path / "a.enc")

    assert asyncio.run(pull()).events == 11
    assert archive(tmp_path / "a.enc")[0].events == 11
