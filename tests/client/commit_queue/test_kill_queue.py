"""A program that is killed while it fills or sends a queue loses no commit, and writes none twice."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.client import Client, Identity
from enc.core.log.commit import build_commit
from enc.runtime.clock import now_ms
from tests.forked import Forked
from tests.node.running import RunningNode

EXPIRED_S = 120
STEPS = [(method, when) for method in ("add", "replace", "reject", "remove") for when in ("before", "after")]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with RunningNode(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.mark.parametrize(("method", "when"), STEPS)
def test_killed_at_any_step(node: RunningNode, tmp_path: Path, method: str, when: str) -> None:
    """Of five messages, two have expired, and two of seven commits are forbidden."""
    me, key, file = Identity.new(), tmp_path / "me.key", tmp_path / "queue.db"
    me.save(key)
    with Client(node.url, me, pins=None) as client:
        notes = client.create("notes")
        with client.commit_queue(file) as queue:
            for number in range(5):
                late = now_ms() - EXPIRED_S * 1000 + number
                commit = notes.prepare("note", f"{number}")
                queue.add(build_commit(me.key, notes.id, "note", f"{number}", late) if number in (1, 3) else commit)
                if number in (2, 4):
                    queue.add(notes.prepare("forbidden", f"{number}"))
        program = [sys.executable, "-m", "tests.client.commit_queue.queue_process"]
        with Forked([*program, node.url, str(key), str(file), method, when]) as process:
            assert process.wait(60) == -signal.SIGKILL
        with client.commit_queue(file) as queue:
            queue.send()
            assert queue.waiting() == []
            added = {"before": "5", "after": "56"}[when] if method == "add" else ""
            assert [item.content for item in notes.query(type="note")] == [*"01234", *added]
            assert len(queue.rejected()) == 2
