"""A subscription to a node that is away for longer than patience lasts: endless, if requested."""

import asyncio
import math
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from enc.client import AsyncClient, Client, Identity, Item, Unreachable
from enc.client.subscribe import subscription
from enc.client.subscribe.subscription import ConnectionChange
from enc.runtime.backoff import RetryPauses
from tests.client.moved import create_team
from tests.node.running import RunningNode


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningNode]:
    monkeypatch.setattr(subscription, "PAUSES", RetryPauses(max_s=0.05))
    running = RunningNode(tmp_path / "node")
    yield running
    running.kill()


def back(node: RunningNode) -> RunningNode:
    """Start the same node at the same address again."""
    return RunningNode(node.data, "--port", str(urlsplit(node.url).port))


def create(node: RunningNode) -> tuple[Identity, bytes]:
    alice = Identity.new()
    with Client(node.url, alice, pins=None) as client:
        team = create_team(client)
        team.commit("message", "before")
        return alice, team.id


def test_it_tells_of_the_outage_and_goes_on(node: RunningNode) -> None:
    alice, team = create(node)
    with Client(node.url, alice, pins=None, patience=0) as client:
        enclave = client.enclave(team)
        with enclave.subscribe(type="message", patience=math.inf) as live:
            assert isinstance(live.news(), Item)
            node.kill()
            lost = live.news()
            assert isinstance(lost, ConnectionChange)
            assert not lost.is_up
            assert lost.why
            with back(node):
                assert live.news() == ConnectionChange(is_up=True)
                enclave.commit("message", "after")
                assert next(live).content == "after"
                live.close()
                assert live.news() is None


def test_it_is_the_same_for_who_awaits(node: RunningNode) -> None:
    alice, team = create(node)

    async def work() -> None:
        async with AsyncClient(node.url, alice, pins=None, patience=0) as client:
            async with client.enclave(team).subscribe(type="message", patience=math.inf) as live:
                assert isinstance(await live.news(), Item)
                node.kill()
                lost = await live.news()
                assert isinstance(lost, ConnectionChange)
                assert not lost.is_up
                again = await asyncio.to_thread(back, node)
                assert await live.news() == ConnectionChange(is_up=True)
            again.stop()

    asyncio.run(work())


def test_else_patience_ends_it(node: RunningNode) -> None:
    alice, team = create(node)
    with Client(node.url, alice, pins=None) as client, client.enclave(team).subscribe(patience=0) as live:
        while next(live).content != "before":
            pass
        node.kill()
        with pytest.raises(Unreachable):
            next(live)
