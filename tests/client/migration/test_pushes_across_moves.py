"""Pushes across a move: an endpoint registered at the old node gets each event once, from either node."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from enc.client import Client, Identity
from tests.client.moved import introduce, town
from tests.client.running_receiver import RunningReceiver
from tests.core.world import grant, rule
from tests.node.running import RunningNode, free_port

MANIFEST: dict[str, Any] = {
    "enc_v": 2,
    "traits": ["owner(0)", "dataview(1)"],
    "readers": [{"type": "owner", "reads": "*"}, {"type": "dataview", "reads": "*"}],
    "grants": [grant(type_, "owner", "dataview", "OUTSIDER") for type_ in ("Grant", "Revoke")],
    "lifecycle": [rule("Migrate", "owner", "C")],
    "customs": [rule("message", "owner", "C"), rule("message", "dataview", "P"), rule("Migrate", "dataview", "P")],
    "bundle": {"size": 4, "timeout": 200},
}
FAST = {"ENC_NODE_PUSH_INTERVAL_S": "0.01", "ENC_NODE_PUSH_FIRST_RETRY_S": "0.05"}


MESSAGES_ONLY: dict[str, Any] = {
    **MANIFEST,
    "readers": [{"type": "owner", "reads": "*"}],
    "customs": [rule("message", "owner", "C"), rule("message", "dataview", "P")],
}
"""vera may be pushed messages, and may read nothing."""


class Line:
    """Two nodes that push, an enclave at the first, and somebody with an endpoint in it."""

    def __init__(self, home: Path, a: RunningNode, b: RunningNode, registry: str = "") -> None:
        self.home, self.a, self.b, self.registry = home, a, b, registry
        self.nodes = [a, b]
        """Those that the receiver knows."""
        self.alice, self.vera, self._port = Identity.new(), Identity.new(), free_port()
        self.hook = f"http://127.0.0.1:{self._port}/hook"

    def create(self, mine: Client, manifest: dict[str, Any] = MANIFEST) -> Any:
        init = [{"identity": self.alice.hex, "state": "OUTSIDER", "traits": ["owner"]}]
        team = mine.create({**manifest, "init": init})
        team.grant(self.vera.public, "dataview", endpoint=self.hook)
        return team

    def heard(self, count: int) -> list[int]:
        """Return the delivered events once there are this many, over all restarts of the receiver."""
        nodes = {node.seq_pub.hex(): node.url for node in self.nodes}
        orders = {"secret": self.vera.private_key().secret.hex(), "url": self.hook, "port": self._port, "nodes": nodes}
        orders["registry"] = self.registry
        with RunningReceiver(self.home / "inbox.db", **orders, tell_at=count) as receiver:
            receiver.wait_for(count)
            return receiver.seqs()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    with RunningNode(tmp_path / "a", env=FAST) as a, RunningNode(tmp_path / "b", env=FAST) as b:
        yield Line(tmp_path, a, b)


def test_each_event_reaches_an_endpoint_once_across_a_move(line: Line) -> None:
    """The receiver is down while the enclave moves: both nodes have events for it when it is back."""
    with Client(line.a.url, line.alice, pins=line.home / "pins") as mine:
        team = line.create(mine)
        receipts = [team.commit("message", "first")]
        assert line.heard(1) == [receipts[0].seq]
        receipts += [team.commit("message", f"at a {n}") for n in range(4)]
        migrate = team.migrate(line.b.url, line.home / "moves").migrate
        receipts += [team.commit("message", f"at b {n}") for n in range(5)]
        expected = sorted([*(receipt.seq for receipt in receipts), migrate.seq])
        assert line.heard(len(expected)) == expected
        expected.append(team.commit("message", "and one more").seq)
        assert line.heard(len(expected)) == expected


def test_and_across_a_takeover_once_the_receiver_has_heard_of_it(line: Line) -> None:
    with Client(line.a.url, line.alice, pins=line.home / "pins") as mine:
        team = line.create(mine)
        expected = [team.commit("message", f"at a {n}").seq for n in range(5)]
        assert line.heard(5) == expected
        team.archive(line.home / "copy.enc")
        team.migrate(line.b.url, line.home / "moves", archive=line.home / "copy.enc")
        expected += [team.commit("message", f"at b {n}").seq for n in range(5)]
        with Client(line.b.url, line.vera, pins=line.home / "inbox.db.pins") as hers:  # as `enc follow` does
            hers.enclave(team.id).head()
        assert line.heard(10) == expected


@pytest.mark.parametrize("is_listed", [True, False])
def test_and_if_only_messages_are_pushed_by_the_registry(tmp_path: Path, is_listed: bool) -> None:
    """The receiver is not shown the Migrate, and need not know the new node before."""
    with (
        town(tmp_path) as place,
        RunningNode(tmp_path / "a", env=FAST) as a,
        RunningNode(tmp_path / "b", env=FAST) as b,
    ):
        introduce(place, a)
        introduce(place, b)
        line = Line(tmp_path, a, b, place.text)
        line.nodes = [a, b] if is_listed else [a]
        with place.client(line.alice, url=a.url) as mine:
            team = line.create(mine, MESSAGES_ONLY)
            expected = [team.commit("message", f"at a {n}").seq for n in range(3)]
            assert line.heard(3) == expected
            expected += [team.commit("message", f"still at a {n}").seq for n in range(3)]
            team.migrate(b.url, tmp_path / "moves")
            expected += [team.commit("message", f"at b {n}").seq for n in range(3)]
            assert line.heard(9) == expected
