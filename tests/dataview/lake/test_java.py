"""Java: found, or a helpful error."""

from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.dataview.lake.java import check_java, java_version


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
