"""The session: its settings, and the errors of Spark."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError
from enc.dataview.lake.session import spark_message, spark_session


def test_a_master_that_spark_does_not_know_is_refused_before_it_starts(java: None) -> None:
    with pytest.raises(MisuseError, match="master: mesos://x: expected local, spark://, yarn or k8s://"):
        spark_session("none", "mesos://x")


def test_of_what_spark_says_no_stack_trace_is_told() -> None:
    said = (
        "[FAILED] in Python: Traceback (most recent call last):\n  File x\n    y\nValueError: no z\n\n\tat org.Java\n"
    )
    assert spark_message(Exception(said)) == "[FAILED] in Python: ValueError: no z"
    assert spark_message(Exception("[WRONG] It is.\n=== Query ===\nall of it")) == "[WRONG] It is."


def test_a_session_has_delta_and_keeps_time_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
