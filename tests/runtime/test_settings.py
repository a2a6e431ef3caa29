"""The reader of settings: sources in order, and errors that name source, setting and expectation."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, Struct

from enc.core.errors import MisuseError
from enc.runtime.settings import Given, SettingsReader, parse_toml, read_file


class Colour(Struct, frozen=True, forbid_unknown_fields=True):
    red: bool = False


class Limits(Struct, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=1, le=2_000_000)] = 10
    factor: Annotated[float, Meta(gt=0, le=600)] = 1.0


class Config(Struct, frozen=True, kw_only=True):
    name: str = "x"
    count: int = 0
    rate: Annotated[float, Meta(ge=0.5, le=86_400)] = 1.0
    level: Literal["low", "high"] = "low"
    quiet: bool = False
    hosts: Annotated[tuple[str, ...], Meta(max_length=2)] = ()
    even: Annotated[str, Meta(extra={"expected": "an even number", "check": lambda s: int(s) % 2 == 0})] = "0"
    colours: dict[str, Colour] = {}
    limits: Limits = Limits()


READER = SettingsReader(Config, prefix="APP_", flags={"limits.size": "--max"})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.toml"


def refusal(path: Path | None = None, environ: Any = None, flags: Any = None) -> str:
    with pytest.raises(MisuseError) as caught:
        READER.load(path, environ or {}, flags or {})
    return str(caught.value.message)


def test_flags_over_environment_over_file_over_defaults(file: Path) -> None:
    file.write_text("name = 'f'\ncount = 1\nrate = 2\n[limits]\nsize = 3\n")
    environ = {"APP_NAME": "e", "APP_COUNT": "2", "OTHER": "x"}
    config, given = READER.load(file, environ, {"name": "g", "count": None, "limits.factor": "5"})
    assert (config.name, config.count, config.rate) == ("g", 2, 2.0)
    assert config.limits == Limits(size=3, factor=5.0)
    assert {key: found.source for key, found in given.items()} == {
        "name": "flag",
        "count": "environment",
        "rate": "file",
        "limits.size": "file",
        "limits.factor": "flag",
    }


def test_a_list_in_a_variable_is_separated_by_commas() -> None:
    assert READER.load(None, {"APP_HOSTS": "a, b"}, {})[0].hosts == ("a", "b")
    assert READER.load(None, {"APP_HOSTS": " "}, {})[0].hosts == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name = 1", "name: expected text"),
        ("count = '1'", "count: expected a whole number"),
        ("rate = 0", "rate: expected a number from 0.5 to 86400"),
        ("level = 'top'", "level: expected one of low, high"),
        ("quiet = 1", "quiet: expected true or false"),
        ("hosts = 'a'", "hosts: expected a list of texts, at most 2"),
        ("hosts = ['a', 'b', 'c']", "hosts: expected a list of texts, at most 2"),
        ("even = '3'", "even: expected an even number"),
        ("even = 2", "even: expected an even number"),
        ("limits = 1", "limits: expected a table"),
        ("[limits]\nsize = 2_000_001", "limits.size: expected a whole number from 1 to 2000000"),
        ("[limits]\nfactor = 0", "limits.factor: expected a number above 0, up to 600"),
        ("[limits]\nsise = 1", "limits.sise: there is no such setting"),
        ("'limits.size' = 1", "'limits.size': there is no such setting"),
        ("nam = 1", "nam: there is no such setting"),
        ("colours.a = 1", "colours: Expected `object`, got `int` - at `$[...]`"),
        ("colours.a.blue = 1", "colours: Object contains unknown field `blue` - at `$[...]`"),
    ],
)
def test_a_wrong_value_in_a_file(file: Path, text: str, why: str) -> None:
    file.write_text(text)
    assert refusal(file) == f"{file}: {why}"


def test_the_same_mistake_elsewhere_names_its_variable_or_flag() -> None:
    assert refusal(environ={"APP_RATE": "x"}) == "APP_RATE: rate: expected a number from 0.5 to 86400"
    assert refusal(environ={"APP_RAT": "x"}) == "APP_RAT: there is no setting with this variable"
    assert refusal(flags={"rate": "x"}) == "--rate: rate: expected a number from 0.5 to 86400"
    assert refusal(flags={"limits.size": 0}).startswith("--max: limits.size: expected a whole number")
    assert refusal(flags={"log_x": 1}) == "--log-x: log_x: there is no such setting"


def test_without_a_prefix_no_variables_are_read() -> None:
    reader = SettingsReader(Config)
    assert reader.load(None, {"NAME": "x", "COUNT": "x"}, {})[0] == Config()


def test_a_reader_may_accept_numbers_written_as_text(file: Path) -> None:
    file.write_text("count = '7'")
    assert SettingsReader(Config, strict=False).load(file, {}, {})[0].count == 7


def test_files_that_cannot_be_read(file: Path, tmp_path: Path) -> None:
    assert refusal(file) == f"{file}: cannot be read: No such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert "cannot be read" in refusal(Path("a\0b"))
    assert read_file(file, missing=b"") == b""
    with pytest.raises(MisuseError, match="Is a directory"):
        read_file(tmp_path, missing=b"")
    file.write_bytes(b"12345")
    assert read_file(file, 5) == b"12345"
    with pytest.raises(MisuseError, match="over 4 bytes"):
        read_file(file, 4)


@pytest.mark.parametrize("raw", [b"a", b"a = 1\na = 2", b"\xff", b"a = " + b"[" * 5000])
def test_what_is_not_toml(file: Path, raw: bytes) -> None:
    with pytest.raises(MisuseError, match=r"app\.toml: not TOML: "):
        parse_toml(file, raw)


def test_a_refusal_is_one_printable_line() -> None:
    error = Given("a\nb", 1, "file", "f.toml").refused("expected x")
    assert error.message == r"f.toml: 'a\nb': expected x"
