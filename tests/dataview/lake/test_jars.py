"""Delta Lake's jars: fetched by the real resolver, from a folder instead of the network."""

import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from enc.core.errors import MisuseError, Unavailable
from enc.dataview.lake import jars
from enc.dataview.lake.jars import JARS, delta_jars, fault, fetch_jars
from enc.dataview.lake.java import check_java

SETTINGS = """
<ivysettings><settings defaultResolver="folder"/><resolvers><filesystem name="folder">
<artifact pattern="{}/[artifact]-[revision].[ext]"/></filesystem></resolvers></ivysettings>
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the settings of a source that has small files under the jars' names, which are the expected ones."""
    try:
        check_java()
    except MisuseError as e:
        pytest.skip(e.message)
    folder = tmp_path / "source"
    folder.mkdir()
    for name in JARS:
        (folder / name).write_bytes(name.encode())
    monkeypatch.setattr(jars, "SHA256", {name: sha256(name.encode()).hexdigest() for name in JARS})
    settings = folder / "settings.xml"
    settings.write_text(SETTINGS.format(folder))
    return settings


def test_the_jars_are_fetched_once(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "share" / "jars"
    assert fetch_jars(target, source) == list(JARS)
    assert sorted(path.name for path in target.iterdir()) == sorted(JARS)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert fetch_jars(target, source) == []
    monkeypatch.setenv("ENC_JARS", str(target))
    assert [path.name for path in delta_jars()] == list(JARS)


def test_only_a_wrong_jar_is_fetched_again(source: Path, tmp_path: Path) -> None:
    fetch_jars(tmp_path / "jars", source)
    damaged = tmp_path / "jars" / JARS[1]
    damaged.write_bytes(b"damaged")
    assert fetch_jars(tmp_path / "jars", source) == [JARS[1]]
    assert fault(damaged) == ""


def test_another_file_under_the_name_of_a_jar_is_not_installed(source: Path, tmp_path: Path) -> None:
    (source.parent / JARS[1]).write_bytes(b"something else")
    with pytest.raises(Unavailable, match=f"{JARS[1]}: could not be fetched: its SHA-256 is .* is expected") as caught:
        fetch_jars(tmp_path / "jars", source)
    assert sha256(b"something else").hexdigest() in caught.value.message
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_source_without_the_jar_is_reported_with_what_to_do(source: Path, tmp_path: Path) -> None:
    (source.parent / JARS[0]).unlink()
    expected = rf"{JARS[0]}: could not be fetched: io\.delta.* not found.*--ivy-settings"
    with pytest.raises(Unavailable, match=expected) as caught:
        fetch_jars(tmp_path / "jars", source)
    assert str(tmp_path / "jars") in caught.value.message
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(MisuseError, match=f"{tmp_path}/file/jars: cannot be written: .*--to"):
        fetch_jars(tmp_path / "file" / "jars")


def test_missing_jars_are_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_JARS", str(tmp_path))
    (tmp_path / JARS[0]).write_bytes(b"")
    with pytest.raises(MisuseError, match="enc dataview jars") as caught:
        delta_jars()
    assert JARS[1] in caught.value.message
    assert JARS[0] not in caught.value.message


def command(*args: str, first: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{first}\nfrom enc.cli import main\nmain()"
    words = [sys.executable, "-c", program, "dataview", "jars", *args]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_names_the_package_that_it_needs(tmp_path: Path) -> None:
    done = command("--to", str(tmp_path), first="import sys\nsys.modules['pyspark'] = None")
    assert done.returncode == 2
    assert "enc-protocol[dataview]" in done.stderr
    assert "pyspark" in done.stderr


def test_the_command_rejects_settings_that_are_missing(tmp_path: Path) -> None:
    done = command("--to", str(tmp_path), "--ivy-settings", str(tmp_path / "mirror.xml"))
    assert done.returncode == 2
    assert "--ivy-settings" in done.stderr
    assert "no such file" in done.stderr


def test_the_command_lists_jars_that_are_right(java: None) -> None:
    here = delta_jars()[0].parent
    done = command("--to", str(here))
    assert done.stdout.splitlines() == [f"{here / name}\twas there" for name in JARS], done.stderr
