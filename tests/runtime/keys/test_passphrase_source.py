"""Passphrases from a file descriptor, a command and a credential: bounded, and in no message."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.core.errors import MisuseError
from enc.runtime.keys import passphrase_source
from enc.runtime.keys.passphrase_source import PassphraseSource, from_descriptor, from_environment

WORDS = "correct horse"
LONG = "x" * 1025


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process reads a descriptor once; tests use the same number again."""
    from_descriptor.cache_clear()
    for suffix in ("", "_FD", "_COMMAND", "_CREDENTIAL"):
        monkeypatch.delenv(f"ENC_PASSPHRASE{suffix}", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    yield
    from_descriptor.cache_clear()


def piped(data: bytes, *, stays_open: bool = False) -> int:
    """Return a descriptor that yields this."""
    reading, writing = os.pipe()
    os.write(writing, data)
    if not stays_open:
        os.close(writing)
    return reading


@pytest.fixture
def credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    return tmp_path


def refusal(source: PassphraseSource) -> str:
    with pytest.raises(MisuseError) as caught:
        source.read()
    assert WORDS not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("data", [WORDS, f"{WORDS}\n", f"{WORDS}\r\n", f"{WORDS}\nmore\n"])
def test_the_first_line_counts(data: str, credentials: Path) -> None:
    (credentials / "pass").write_bytes(data.encode())
    sources = (
        PassphraseSource(fd=piped(data.encode())),
        PassphraseSource(command=f"cat {credentials / 'pass'}"),
        PassphraseSource(credential="pass"),
    )
    assert [source.read() for source in sources] == [WORDS] * 3


def test_no_source_has_no_passphrase() -> None:
    assert PassphraseSource().read() is None


@pytest.mark.parametrize(
    "source", [PassphraseSource(fd=3, command="x"), PassphraseSource(fd=3, credential="x")], ids=["command", "file"]
)
def test_two_sources_are_one_too_many(source: PassphraseSource) -> None:
    assert "not several" in refusal(source)


def test_a_descriptor_is_read_to_the_end_of_the_line_once_and_closed() -> None:
    fd = piped(f"{WORDS}\n".encode(), stays_open=True)
    assert from_descriptor(fd) == from_descriptor(fd) == WORDS
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_descriptor_that_is_not_open() -> None:
    fd = piped(b"")
    os.close(fd)
    assert refusal(PassphraseSource(fd=fd)) == (
        f"passphrase: file descriptor {fd}: Bad file descriptor; open it for the program, as in `--passphrase-fd 3 3< "
        "FILE`"
    )


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "its first line is empty"), (b"\xff\n", "is not UTF-8"), (LONG.encode(), "over 1024 bytes")]
)
def test_what_is_no_passphrase(data: bytes, why: str, credentials: Path) -> None:
    (credentials / "pass").write_bytes(data)
    assert why in refusal(PassphraseSource(fd=piped(data)))
    assert why in refusal(PassphraseSource(command=f"cat {credentials / 'pass'}"))
    assert why in refusal(PassphraseSource(credential="pass"))


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (f"false '{WORDS}'", "passphrase command false: failed with exit code 1"),
        ("sh -c 'kill $$'", "failed with signal 15"),
        ("/no/such/program", "cannot be started: No such file"),
        ("echo 'x", "cannot be split into arguments: No closing quotation"),
        (" ", "is empty"),
        (f"yes {LONG}", "over 1024 bytes"),
    ],
)
def test_a_command_that_fails(command: str, why: str) -> None:
    assert why in refusal(PassphraseSource(command=command))


def test_a_command_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passphrase_source, "COMMAND_S", 0.01)
    assert "failed with signal 9 (it has 0.01 seconds)" in refusal(PassphraseSource(command="tail -f /dev/null"))


def test_a_child_that_holds_the_output_open_does_not_prolong_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert PassphraseSource(command=f"sh -c 'echo {WORDS}; cat {pipe} &'").read() == WORDS
    pipe.write_text("")  # the child ends
    monkeypatch.setattr(passphrase_source, "COMMAND_S", 0.01)
    assert "(it has 0.01 seconds)" in refusal(PassphraseSource(command=f"sh -c 'cat {pipe} & wait'"))
    os.close(os.open(pipe, os.O_RDWR))


def test_a_credential_that_is_not_there(credentials: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "add LoadCredential=pass:FILE to the unit" in refusal(PassphraseSource(credential="pass"))
    assert "without a path" in refusal(PassphraseSource(credential="../pass"))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert "CREDENTIALS_DIRECTORY is not set" in refusal(PassphraseSource(credential="pass"))


# The environment


def test_the_environment_has_the_passphrase_or_names_a_place(
    credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (credentials / "pass").write_text(WORDS)
    assert from_environment("ENC_PASSPHRASE") is None
    places = {"": WORDS, "_FD": str(piped(WORDS.encode())), "_COMMAND": f"echo {WORDS}", "_CREDENTIAL": "pass"}
    for suffix, value in places.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"ENC_PASSPHRASE{suffix}", value)
            assert from_environment("ENC_PASSPHRASE") == WORDS


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"": ""}, "ENC_PASSPHRASE is empty"),
        ({"_FD": "x"}, "ENC_PASSPHRASE_FD: 'x': expected the number of a file descriptor"),
        ({"": "a", "_COMMAND": "b"}, "not both"),
        ({"_FD": "3", "_COMMAND": "b"}, "not several"),
    ],
)
def test_a_wrong_environment(values: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for suffix, value in values.items():
        monkeypatch.setenv(f"ENC_PASSPHRASE{suffix}", value)
    with pytest.raises(MisuseError, match=why):
        from_environment("ENC_PASSPHRASE")
