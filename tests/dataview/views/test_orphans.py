"""Views whose file is gone: they stay, are reported, and are dropped on request."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError
from enc.dataview.pipeline.job import JobSettings, open_job
from enc.dataview.publish.serving_writer import ServingWriter
from enc.dataview.views.orphans import DropResult
from tests.dataview.flow import Flow

ORPHAN = "view mine: no file in --views defines it"


def test_a_view_without_a_file_is_reported_and_dropped(
    spark: SparkSession, flow: Flow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, lake = tmp_path / "own", flow.lake.root
    folder.mkdir()
    sql = "-- key: id\nSELECT id FROM events"
    for name in ("mine", "other"):
        (folder / f"{name}.sql").write_text(sql)
    settings = JobSettings(root=lake, views=str(folder), database=str(tmp_path / "serving.db"))
    writer = ServingWriter(settings.database or "")

    with open_job(settings, spark) as job:
        job.build(("mine", "other"))
        assert not caplog.messages
        with pytest.raises(MisuseError, match="a file in --views defines it"):
            job.drop("mine")
    (folder / "mine.sql").unlink()
    with open_job(settings, spark) as job:
        job.build(("other",))
        job.build(("other",))
        assert [each.split(",")[0] for each in caplog.messages] == [ORPHAN], "once"
        assert "`enc dataview drop mine`" in caplog.text
        job._publish_status([], [])
        assert (writer.last_batch_id("mine"), Path(lake, "views", "mine").exists()) != (None, False), "it stays"
        assert _views_error(writer).startswith(ORPHAN.removeprefix("view "))

        assert job.drop("mine") == DropResult(lake=True, database=True)
        assert writer.last_batch_id("mine") is None
        assert not Path(lake, "views", "mine").exists()
        assert writer.last_batch_id("other") is not None
        for name in ("mine", "../views/other", "a/b"):
            with pytest.raises(MisuseError, match="no view of this name"):
                job.drop(name)
        for name in ("events", "members", "fold", "pipeline"):
            with pytest.raises(MisuseError, match="built in"):
                job.drop(name)
        assert job.views.orphans.names(spark) == []

    # The file is there again: the view is built and published as a new one.
    (folder / "mine.sql").write_text(sql)
    with open_job(settings, spark) as job:
        assert [each.changed for each in job.build(("mine",))] == [True]
        assert writer.last_batch_id("mine") is not None
    writer.close()


def _views_error(writer: ServingWriter) -> str:
    with writer._database.reading() as snapshot:
        stored = snapshot.view("pipeline")
        assert stored is not None
        (row,) = [row for row in snapshot.rows(snapshot.table(stored.schema).select()) if row.part == "views"]
    return str(row.error)


def test_a_view_that_only_one_place_has_is_dropped_there(spark: SparkSession, flow: Flow, tmp_path: Path) -> None:
    """As after a drop that was interrupted, or one without --database."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "mine.sql").write_text("-- key: id\nSELECT id FROM events")
    served = JobSettings(root=flow.lake.root, views=str(folder), database=str(tmp_path / "serving.db"))
    with open_job(served, spark) as job:
        job.build(("mine",))
    without = JobSettings(root=flow.lake.root)
    with open_job(without, spark) as job:
        assert job.views.orphans.names(spark) == ["mine"]
        assert job.drop("mine") == DropResult(lake=True, database=False)
    (folder / "mine.sql").unlink()
    with open_job(served, spark) as job:
        assert job.drop("mine") == DropResult(lake=False, database=True)


def test_a_lake_without_views_has_no_orphans(spark: SparkSession, tmp_path: Path) -> None:
    with open_job(JobSettings(root=str(tmp_path / "none")), spark) as job:
        assert job.views.orphans.names(spark) == []
