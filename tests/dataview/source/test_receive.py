"""Pushes are in the landing zone before the node gets 200, once, whatever dies; notices and false
answers are recorded.
"""

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from enc.cli.enclave.receiver import Listener
from enc.client import Distrust, Identity, ReceiverSettings
from enc.core.errors import MisuseError, Unavailable
from enc.core.primitives.types import Event
from enc.dataview.rows.raw_rows import UNREAD_TYPE, RowOrigin, now, raw_batch
from enc.dataview.rows.schema import RAW
from enc.dataview.source.landing import LandingZone, read_landing
from enc.dataview.source.notice_board import NoticeBoard
from enc.dataview.source.receive import LandingReceiver
from enc.runtime.backoff import RetryPauses
from tests.client.pushing import HOOK, Post, push
from tests.client.stage import URL
from tests.core.world import person
from tests.dataview.landing_process import DIED, POINTS
from tests.dataview.logs import Log
from tests.node.served import NODE

ROOT = Path(__file__).parents[3]


@pytest.fixture
def post(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    post = Post(tmp_path, monkeypatch)
    yield post
    post.close()


@pytest.fixture
def made(post: Post, tmp_path: Path) -> Iterator[LandingReceiver]:
    receiver = _receiver(post, tmp_path)
    receiver.receiver.start()
    yield receiver
    receiver.receiver.close()


def _receiver(post: Post, directory: Path, url: str = HOOK, state: str = "inbox.db") -> LandingReceiver:
    return LandingReceiver(
        Identity(person("bob")),
        url,
        dict[bytes | str, str]({NODE.public: URL}),
        directory / state,
        LandingZone(directory / "landing"),
        NoticeBoard(directory / "notices"),
        settings=ReceiverSettings(
            pins=post.stage.pins, retries=RetryPauses(first_s=0.0, max_s=0.0), clock=lambda: post.now
        ),
    )


def rows(directory: Path) -> list[dict[str, Any]]:
    found = [pq.read_table(path).to_pylist() for path in sorted((directory / "landing").glob("*.parquet"))]
    return [row for each in found for row in each]


def places(directory: Path) -> list[tuple[str, int]]:
    return sorted((row["enclave"], row["seq"]) for row in rows(directory))


def of(*events: Event) -> list[tuple[str, int]]:
    return sorted((event.enclave.hex(), event.seq) for event in events)


# Landing


def test_a_file_is_there_once_and_whole_and_spark_reads_it_as_raw_rows(
    spark: SparkSession, tmp_path: Path, log: Log
) -> None:
    landing = LandingZone(tmp_path)
    batch = raw_batch(log.wire, RowOrigin("push:x"), now())
    assert landing.put("one", batch) is True
    assert landing.put("one", batch.slice(3)) is False
    assert [path.name for path in tmp_path.iterdir()] == ["one.parquet"]
    frame = spark.read.schema(RAW).parquet(str(tmp_path))
    assert sorted(row.seq for row in frame.collect()) == [event.seq for event in log.events]
    assert {row.received_at.tzinfo for row in frame.take(1)} == {None}


def test_a_file_is_on_disk_before_it_has_its_name_and_its_name_before_anybody_is_told(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[bool, list[str]]] = []
    fsync = os.fsync

    def tell(fd: int) -> None:
        synced.append((stat.S_ISDIR(os.fstat(fd).st_mode), [path.name for path in tmp_path.glob("*.parquet")]))
        fsync(fd)

    monkeypatch.setattr("enc.runtime.files.os.fsync", tell)
    landing, batch = LandingZone(tmp_path), raw_batch(log.wire, RowOrigin("push:x"), now())
    assert landing.put("one", batch) is True
    assert synced == [(False, []), (True, ["one.parquet"])], "the file, then the directory with its name"
    assert landing.put("one", batch) is False
    assert synced[-1] == (True, ["one.parquet"]), "its writer may have died before this step"


def test_drafts_of_a_killed_writer_are_swept_and_never_read(tmp_path: Path, log: Log) -> None:
    (tmp_path / ".draft-abc").write_bytes(b"half")
    LandingZone(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b", "x" * 300])
def test_a_name_stays_within_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError):
        LandingZone(tmp_path).put(name, raw_batch([], RowOrigin("x"), now()))


def test_what_cannot_be_a_landing_zone_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MisuseError, match="landing zone"):
        LandingZone(tmp_path / "file")


def test_the_zone_is_a_stream_that_reads_each_file_once(spark: SparkSession, tmp_path: Path, log: Log) -> None:
    landing, seen = LandingZone(tmp_path / "landing"), list[int]()

    def drain() -> list[int]:
        seen.clear()
        writer = read_landing(spark, tmp_path / "landing").writeStream
        writer = writer.foreachBatch(lambda frame, _: seen.extend(row.seq for row in frame.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        return sorted(seen)

    landing.put("one", raw_batch(log.wire[:4], RowOrigin("push:x"), now()))
    assert drain() == [0, 1, 2, 3]
    landing.put("two", raw_batch(log.wire[4:6], RowOrigin("push:x"), now()))
    assert drain() == [4, 5]


# Pushes


def test_what_is_pushed_has_landed_when_the_node_is_told_so(post: Post, made: LandingReceiver, tmp_path: Path) -> None:
    events = post.enclave(["one", "two"])
    made.receiver.take(push(1, *events))
    assert places(tmp_path) == of(*events)
    assert {row["origin"] for row in rows(tmp_path)} == {f"push:{URL}"}
    made.receiver.take(push(1, *events))
    assert places(tmp_path) == of(*events)


def test_a_zone_that_takes_nothing_is_told_to_the_node_and_nothing_counts(
    post: Post, made: LandingReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = post.enclave(["one"])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("enc.runtime.files.os.fsync", full)
        with pytest.raises(Unavailable, match="landing zone"):
            made.receiver.take(push(1, *events))
    assert rows(tmp_path) == []
    made.receiver.take(push(1, *events))
    assert places(tmp_path) == of(*events)


def test_another_queue_has_names_of_its_own(post: Post, made: LandingReceiver, tmp_path: Path) -> None:
    one, two = post.enclave(["one"]), post.enclave(["two"])
    made.receiver.take(push(1, *one))
    made.receiver.close()
    other = _receiver(post, tmp_path, f"{HOOK}2", "other.db")
    other.receiver.start()
    other.receiver.take(push(1, *two, url=f"{HOOK}2"))
    other.receiver.close()
    assert places(tmp_path) == of(*one, *two)


def test_a_batch_that_is_missing_is_pulled_and_lands(
    post: Post, made: LandingReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = post.enclave(["one", "two", "three"])
    landed_all = threading.Event()
    put = made._landing.put

    def tell(name: str, batch: pa.RecordBatch) -> bool:
        done = put(name, batch)
        if places(tmp_path) == of(*events):
            landed_all.set()
        return done

    monkeypatch.setattr(made._landing, "put", tell)
    made.receiver.take(push(1, *events[:1]))
    made.receiver.take(push(3, *events[3:]))
    assert landed_all.wait(30), "events in between are not requested"


def test_a_lie_lands_with_the_name_of_who_told_it(post: Post, made: LandingReceiver, tmp_path: Path) -> None:
    first, second = post.enclave(["one"])
    forged = post.message(first, "two", 1)
    made.receiver.take(push(1, first, second))
    with pytest.raises(Distrust):
        made.receiver.take(push(2, forged))
    lie = next(row for row in rows(tmp_path) if row["seq"] is None)
    assert (lie["enclave"], lie["origin"]) == (first.enclave.hex(), f"push:{URL}")
    assert (lie["type"], lie["id"]) == (UNREAD_TYPE, None)
    assert NODE.public.hex() in lie["event"]


def test_a_notice_is_put_on_the_board(post: Post, made: LandingReceiver, tmp_path: Path) -> None:
    first, second = post.enclave(["one"])
    notice = {
        "enclave": first.enclave.hex(),
        "seq": second.seq,
        "event_id": second.id.hex(),
        "type": "message",
        "timestamp": second.timestamp,
        "type_seq": {"message": 1},
    }
    told, board = threading.Event(), made.receiver.worker._on_notice
    assert board is not None

    def on_notice(each: Any) -> None:
        board(each)
        told.set()

    made.receiver.worker._on_notice = on_notice
    made.receiver.take(push(1, notices=[notice]))
    assert told.wait(30)
    assert NoticeBoard(tmp_path / "notices").seqs() == {first.enclave.hex(): 1}


def test_over_http_a_push_is_answered_once_it_has_landed(post: Post, tmp_path: Path) -> None:
    events = post.enclave(["one"])
    made = _receiver(post, tmp_path)
    with Listener(made.app, made.receiver.url, socket.create_server(("127.0.0.1", 0))) as listener:
        url = f"http://127.0.0.1:{listener.address[1]}/hook"
        with httpx.Client(trust_env=False, headers={"content-type": "application/json"}) as http:
            assert http.post(url, content=push(1, *events)).status_code == 200
            assert http.post(url, content=b"rubbish").status_code == 400
        listener.check()
    assert places(tmp_path) == of(*events)
    with pytest.raises(MisuseError, match="has ended"):
        listener.check()


# Crashes


@pytest.mark.parametrize("point", POINTS)
def test_a_receiver_that_dies_anywhere_loses_nothing_and_lands_nothing_twice(
    post: Post, tmp_path: Path, point: str
) -> None:
    events = post.enclave(["one", "two"])
    home, body = tmp_path / "home", push(1, *events)
    home.mkdir()

    def run(point: str) -> int:
        command = [sys.executable, "-m", "tests.dataview.landing_process", str(home), point]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        done = subprocess.run(
            command, input=body, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, check=False
        )
        assert done.returncode in (0, DIED), done.stderr
        return done.returncode

    assert run(point) == DIED
    assert run("") == 0
    assert places(home) == of(*events)
    assert [path.name for path in (home / "landing").iterdir() if not path.name.endswith(".parquet")] == []
