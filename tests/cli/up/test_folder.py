"""The folder of `enc up`: its key may be sealed."""

import os
from pathlib import Path

import pytest

from enc.cli.up.folder import UpFolder
from enc.core.errors import MisuseError
from enc.runtime.keys import key_file


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "COST", (2, 8, 1))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setenv("ENC_PASSPHRASE", "")  # so that the variable is restored after the test
    monkeypatch.delenv("ENC_PASSPHRASE")


def typed(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    rest = list(lines)
    monkeypatch.setattr("getpass.getpass", lambda prompt: rest.pop(0))


def test_a_typed_passphrase_seals_the_key_and_is_shared_with_the_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed(monkeypatch, "sesame", "sesame")
    me = UpFolder(tmp_path).identity()
    assert os.environ.pop("ENC_PASSPHRASE") == "sesame"
    typed(monkeypatch, "sesame")
    assert UpFolder(tmp_path).identity() == me
    assert os.environ.pop("ENC_PASSPHRASE") == "sesame"
    typed(monkeypatch, "other")
    with pytest.raises(MisuseError, match="does not open"):
        UpFolder(tmp_path).identity()


def test_an_empty_passphrase_leaves_the_key_unsealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed(monkeypatch, "")
    me = UpFolder(tmp_path).identity()
    assert UpFolder(tmp_path).identity() == me
    assert "ENC_PASSPHRASE" not in os.environ
