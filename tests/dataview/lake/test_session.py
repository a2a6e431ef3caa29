"""The session: helpful errors for missing prerequisites."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from enc.core.errors import MisuseError
from enc.dataview.lake.session import JARS, check_java, delta_jars, java_version, spark_message, spark_session

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_javas_are_told_apart(said: str, version: int | None) -> None:
    assert java_version(said) == version


def _java(home: Path, said: str) -> None:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    java.chmod(0o755)


def test_an_old_java_is_refused_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _java(tmp_path, 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MisuseError, match=r"Java 11 found.*needs 17.*openjdk-17-jre-headless"):
        check_java()


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_no_java_at_all_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MisuseError, match="openjdk-17-jre-headless"):
        check_java()


def test_missing_jars_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_JARS", str(tmp_path))
    (tmp_path / JARS[0]).write_bytes(b"")
    with pytest.raises(MisuseError, match="scripts/jars") as caught:
        delta_jars()
    assert JARS[1] in caught.value.message
    assert JARS[0] not in caught.value.message
    (tmp_path / JARS[1]).write_bytes(b"")
    assert [jar.name for jar in delta_jars()] == list(JARS)


def test_a_master_that_spark_does_not_know_is_refused_before_it_starts(java: None) -> None:
    with pytest.raises(MisuseError, match="master: mesos://x: expected local, spark://, yarn or k8s://"):
        spark_session("none", "mesos://x")


def test_of_what_spark_says_no_stack_trace_is_told() -> None:
    said = (
        "[FAILED] in Python: Traceback (most recent call last):\n  File x\n    y\nValueError: no z\n\n\tat org.Java\n"
    )
    assert spark_message(Exception(said)) == "[FAILED] in Python: ValueError: no z"
    assert spark_message(Exception("[WRONG] It is.\n=== Query ===\nall of it")) == "[WRONG] It is."


def test_the_jars_that_are_looked_for_are_those_that_are_pinned() -> None:
    lines = (ROOT / "scripts" / "jars.sha256").read_text().splitlines()
    assert [line.split()[1] for line in lines] == list(JARS)
    assert os.access(ROOT / "scripts" / "jars", os.X_OK)


def test_a_session_has_delta_and_keeps_time_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.format("delta").save(str(tmp_path / "table"))
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 3
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
