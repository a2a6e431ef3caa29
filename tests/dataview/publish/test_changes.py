"""From Delta tables to the serving database: only the changes since the last time, whatever
happened in between.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from enc.dataview.lake.tables import Table, TableSpec, Txn
from enc.dataview.publish.changes import ChangePublisher
from enc.dataview.publish.serving_writer import ServingWriter
from tests.dataview.things import SCHEMA, rows


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ServingWriter]:
    made = ServingWriter(str(tmp_path / "serving.db"))
    yield made
    made.close()


class Place:
    """A table that is written and published."""

    def __init__(self, spark: SparkSession, root: Path, writer: ServingWriter) -> None:
        self.spark, self.writer, self.publisher = spark, writer, ChangePublisher(writer)
        self.table = Table(str(root), TableSpec(name="things", layer="gold", schema=SCHEMA, key=("k",)))
        self.table.create(spark)
        self.batch = 0

    @property
    def version(self) -> int:
        return self.table.version(self.spark)

    def put(self, delete_if: str | None = None, **values: int) -> DataFrame:
        found = rows(self.spark, **values)
        self.batch += 1
        self.table.upsert(found, Txn("w", self.batch), delete_if=delete_if)
        return found

    def push(self, **progress: int) -> None:
        self.publisher.push(self.spark, self.table, progress, "Things.")

    def served(self) -> tuple[dict[str, int], dict[str, int], int]:
        """Return rows, progress, and the batch."""
        with self.writer._database.reading() as snapshot:
            stored = snapshot.view("things")
            assert stored is not None
            found = snapshot.rows(snapshot.table(stored.schema).select())
            assert stored.batch_id is not None
            return {row.k: row.n for row in found}, dict(snapshot.progress("things", 10)), stored.batch_id % (1 << 32)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path, writer: ServingWriter) -> Place:
    return Place(spark, tmp_path / "lake", writer)


def test_what_changed_since_and_how_far_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put(a=1, b=2, c=3)
    place.push(e=5)
    assert place.served() == ({"a": 1, "b": 2, "c": 3}, {"e": 5}, place.version)
    with monkeypatch.context() as patch:
        # From here on only changes are published.
        patch.setattr(place.writer, "republish", None)
        place.push(e=6)
        assert place.served()[1] == {"e": 6}, "nothing is new, and the progress states that"
        place.put(b=20, d=4)
        place.put(d=40)
        place.put(delete_if="s.n = 0", a=0)
        place.put(delete_if="s.n = 0", c=0)
        place.put(c=30)
        # One commit deletes a row and inserts it again.
        place.table.replace(rows(place.spark, d=41), "k = 'd'", Txn("r", 0))
        place.push(e=9)
        assert place.served() == ({"b": 20, "c": 30, "d": 41}, {"e": 9}, place.version)
    # Another table at the same path with as many versions: nothing of the old one remains.
    version = place.version
    shutil.rmtree(place.table.path)
    place.table.create(place.spark)
    while place.version < version + 1:
        place.put(z=place.batch)
    place.push(e=1)
    assert place.served() == ({"z": place.batch - 1}, {"e": 1}, version + 1)


def test_what_changed_since_is_not_known_any_more(place: Place) -> None:
    place.put(a=1)
    place.push(e=5, f=9)
    place.put(a=2)
    place.put(a=3)
    place.table.vacuum(place.spark, 0)
    place.push(e=6)
    assert place.served() == ({"a": 3}, {"e": 6, "f": 9}, place.version), "all rows again, and as complete as before"


def test_a_batch_is_published_as_it_is_only_if_nothing_came_in_between(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.put(a=1)
    place.push(e=1)
    before = place.version
    batch = place.put(b=2)
    with monkeypatch.context() as patch:
        patch.setattr(place.publisher, "push", None)
        place.publisher.push_batch(place.spark, place.table, batch, rows(place.spark, a=0), {"e": 2}, before)
        assert place.served() == ({"b": 2}, {"e": 2}, before + 1), "the progress comes from the batch"
        place.publisher.push_batch(place.spark, place.table, batch, None, {"e": 3}, before)
        assert place.served() == ({"b": 2}, {"e": 3}, before + 1), "again: the batch is already there"
    # Another writer committed meanwhile: the table's own log decides what is published.
    before = place.version
    place.put(c=3)
    batch = place.put(d=4)
    place.publisher.push_batch(place.spark, place.table, batch, None, {"e": 4}, before)
    assert place.served() == ({"b": 2, "c": 3, "d": 4}, {"e": 4}, before + 2)
    # The same if the published version precedes the batch.
    place.put(f=5)
    before = place.version
    batch = place.put(g=6)
    place.publisher.push_batch(place.spark, place.table, batch, None, {"e": 5}, before)
    assert place.served()[0] == {"b": 2, "c": 3, "d": 4, "f": 5, "g": 6}


def test_only_what_has_a_key_and_is_wanted_is_published(place: Place) -> None:
    keyless = Table("x", TableSpec(name="keyless", layer="gold", schema=SCHEMA))
    assert not place.publisher.is_published(keyless)
    assert place.publisher.is_published(place.table)
    few = ChangePublisher(place.writer, frozenset(["others"]))
    assert not few.is_published(place.table)
    place.put(a=1)
    few.push(place.spark, place.table, {})
    few.push_batch(place.spark, place.table, rows(place.spark, a=1), None, {}, 0)
    place.push()
    place.publisher.remove("things")
    assert place.writer.last_batch_id("things") is None
