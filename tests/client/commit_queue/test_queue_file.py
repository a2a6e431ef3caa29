"""The file of a queue: private, durable, and rejected if it is something else."""

import sqlite3
from pathlib import Path

import msgspec
import pytest

from enc.client.commit_queue.queue_file import QueueFile
from enc.core.errors import InvalidCommit, MisuseError, Unavailable
from enc.core.log.commit import build_commit, wire_commit
from tests.core.world import person

BOB = person("bob")
COMMIT = build_commit(BOB, bytes(32), "message", "x", 1)
OTHER = build_commit(BOB, bytes(32), "message", "x", 2)


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    QueueFile(path, BOB.public).close()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    with pytest.raises(MisuseError, match="chmod 600"):
        QueueFile(path, BOB.public)


def test_what_is_no_queue(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    path.write_bytes(b"something else, longer than the header of a database" * 10)
    path.chmod(0o600)
    with pytest.raises(MisuseError, match="is not a commit queue"):
        QueueFile(path, BOB.public)
    with pytest.raises(MisuseError, match="No such file"):
        QueueFile(tmp_path / "no folder" / "queue.db", BOB.public)


@pytest.mark.parametrize("signed", ["", "[]", "[{}]", "[1]", "{}"])
def test_a_damaged_row_stops_no_other(tmp_path: Path, signed: str) -> None:
    path = tmp_path / "queue.db"
    queue = QueueFile(path, BOB.public)
    queue.add(COMMIT, None)
    queue.add(OTHER, None)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE enc_commit_queue SET signed = ? WHERE number = 1", (signed,))
    db.close()
    assert queue.damaged() == [1]
    assert [each.commit for each in queue.waiting()] == [OTHER]
    first = queue.first(bytes(32))
    assert first is not None
    assert first.number == 2
    queue.discard(1)
    assert queue.damaged() == []
    queue.close()


def test_a_commit_that_every_node_rejects(tmp_path: Path) -> None:
    queue = QueueFile(tmp_path / "queue.db", BOB.public)
    with pytest.raises(InvalidCommit, match=r"^content: over 1048576 bytes$"):
        queue.add(build_commit(BOB, bytes(32), "message", "x" * 1_100_000, 1), None)
    assert queue.waiting() == queue.damaged() == []
    queue.close()


def test_an_oversized_commit_in_the_file_is_not_damaged(tmp_path: Path) -> None:
    """So its node can reject it."""
    path, big = tmp_path / "queue.db", build_commit(BOB, bytes(32), "message", "x" * 1_100_000, 1)
    queue = QueueFile(path, BOB.public)
    queue.add(COMMIT, None)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE enc_commit_queue SET signed = ?", (msgspec.json.encode([wire_commit(big)]).decode(),))
    db.close()
    assert [each.commit for each in queue.waiting()] == [big]
    queue.close()


def test_a_closed_queue(tmp_path: Path) -> None:
    queue = QueueFile(tmp_path / "queue.db", BOB.public)
    queue.close()
    with pytest.raises(MisuseError, match="closed"):
        queue.waiting()


def test_a_file_that_another_program_keeps_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "queue.db"
    QueueFile(path, BOB.public).close()
    monkeypatch.setattr("enc.client.commit_queue.queue_file.LOCK_S", 0.0)
    queue = QueueFile(path, BOB.public)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Unavailable, match="locked"):
            queue.add(COMMIT, None)
        other.execute("ROLLBACK")
    other.close()
    assert queue.add(COMMIT, None) == 1
    queue.close()


def test_numbers_are_not_used_again(tmp_path: Path) -> None:
    queue = QueueFile(tmp_path / "queue.db", BOB.public)
    assert queue.add(COMMIT, None) == 1
    queue.remove(1)
    assert queue.add(COMMIT, None) == 2
    queue.close()
