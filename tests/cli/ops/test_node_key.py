"""`enc node key` and the passphrase of `enc node run`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.core.primitives.signing import PrivateKey
from enc.node.ops import key_file
from enc.runtime.keys import key_file as sealed_format
from enc.runtime.keys.passphrase_source import from_descriptor
from tests.cli.ops.node_command import enc, failure
from tests.node.running import RunningNode
from tests.signer_process import RunningSigner

KEY = PrivateKey(b"\x07" * 32)
WORDS = "correct horse"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch, plain_environment: None) -> Iterator[None]:
    for suffix in ("", "_FD", "_COMMAND", "_CREDENTIAL"):
        monkeypatch.delenv(f"ENC_PASSPHRASE{suffix}", raising=False)
    monkeypatch.setattr(sealed_format, "COST", (2, 8, 1))
    from_descriptor.cache_clear()
    yield
    from_descriptor.cache_clear()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    key_file.save(tmp_path / "data" / "node.key", KEY, None)
    return tmp_path / "data"


@pytest.fixture
def sealed(data: Path) -> Path:
    key_file.save(data / "node.key", KEY, WORDS)
    return data


def test_seal_and_unseal(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_PASSPHRASE", WORDS)
    assert enc("key", "seal", "--data", data).stdout == KEY.public.hex() + "\n"
    assert key_file.is_sealed(data / "node.key")
    assert "is sealed already" in failure(enc("key", "seal", "--data", data))
    monkeypatch.delenv("ENC_PASSPHRASE")
    for action in ((), ("show",)):
        assert enc("key", *action, "--data", data).stdout == KEY.public.hex() + "\n", "no passphrase is needed"
    command = ("--passphrase-command", f"echo {WORDS}")
    assert enc("key", "unseal", "--data", data, *command).stdout == KEY.public.hex() + "\n"
    assert (data / "node.key").read_text() == KEY.secret.hex() + "\n"
    assert "is not sealed" in failure(enc("key", "unseal", "--data", data))


def test_a_place_that_is_set_gives_the_new_passphrase(data: Path) -> None:
    (data / "words").write_text(WORDS)
    assert enc("key", "seal", "--data", data, "--passphrase-command", f"cat {data / 'words'}").exit_code == 0
    assert key_file.load(data / "node.key", lambda _: WORDS).public == KEY.public


@pytest.mark.parametrize("command", [("key", "unseal"), ("run", "--port", "0"), ("signer",)], ids=lambda c: c[0])
def test_why_a_sealed_key_stays_shut(sealed: Path, command: tuple[str, ...]) -> None:
    missing = failure(enc(*command, "--data", sealed))
    assert missing == (
        f"key file {sealed}/node.key: is sealed; give its passphrase with --passphrase-fd N or --passphrase-command "
        "CMD, as systemd's credential node-passphrase, or in ENC_PASSPHRASE"
    )
    for flags, why in (
        (("--passphrase-command", "echo wrong"), "does not open with this passphrase; give the one it was saved with"),
        (("--passphrase-command", "false"), "passphrase command false: failed with exit code 1"),
        (("--passphrase-fd", "999"), "passphrase: file descriptor 999: Bad file descriptor"),
        (("--passphrase-fd", "x"), "--passphrase-fd: key.passphrase_fd: expected a whole number from -1 to 65535"),
        (("--passphrase-fd", "3", "--passphrase-command", "x"), "not several"),
    ):
        message = failure(enc(*command, "--data", sealed, *flags))
        assert why in message
        assert KEY.secret.hex() not in message
    assert key_file.is_sealed(sealed / "node.key")


def test_an_unknown_action(data: Path) -> None:
    assert failure(enc("key", "open", "--data", data)) == "open: expected one of show, seal, unseal"


def test_fsck_of_a_node_with_a_sealed_key_needs_no_passphrase(sealed: Path) -> None:
    assert "no such file" in failure(
        enc("fsck", "--data", sealed)
    )  # there is no store yet, but the key is not at fault


@pytest.mark.parametrize("place", ["descriptor", "command", "credential", "another credential", "variable"])
def test_a_node_starts_with_a_sealed_key(sealed: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "node-passphrase").write_text(f"{WORDS}\n")
    (tmp_path / "other").write_text(f"{WORDS}\n")
    flags: tuple[str, ...] = ()
    env = {"CREDENTIALS_DIRECTORY": str(tmp_path)} if "credential" in place else {}
    if place == "another credential":
        (tmp_path / "node-passphrase").write_text("wrong")
        env["ENC_NODE_KEY_PASSPHRASE_CREDENTIAL"] = "other"
    if place == "variable":
        env["ENC_PASSPHRASE"] = WORDS
    if place == "command":
        flags = ("--passphrase-command", f"cat {tmp_path / 'other'}")
    first = ""
    if place == "descriptor":
        flags = ("--passphrase-fd", "9")
        first = f"import os; os.dup2(os.open({str(tmp_path / 'other')!r}, os.O_RDONLY), 9)"
    with RunningNode(sealed, *flags, env=env, first=first) as node:
        assert node.seq_pub == KEY.public
    assert WORDS not in node.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a file of root")
def test_a_sealed_key_and_its_passphrase_are_two_credentials(sealed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    key = (sealed / "node.key").rename(folder / "node.key")
    (folder / "node-passphrase").write_text(f"{WORDS}\n")
    for file in folder.iterdir():
        file.chmod(0o440)
    with RunningNode(sealed, env={"CREDENTIALS_DIRECTORY": str(folder), "ENC_NODE_KEY_FILE": str(key)}) as node:
        assert node.seq_pub == KEY.public
    assert sorted(file.name for file in folder.iterdir()) == ["node-passphrase", "node.key"]


def test_the_key_of_a_signer_is_shown_and_not_sealed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunningSigner(tmp_path / "s", KEY) as process:
        monkeypatch.setenv("ENC_NODE_KEY_SIGNER", str(process.path))
        assert enc("key", "--data", tmp_path).stdout == KEY.public.hex() + "\n"
        assert failure(enc("key", "seal", "--data", tmp_path)).startswith("key.signer: is set; run this with")
        monkeypatch.setenv("ENC_NODE_KEY_FILE", "x")
        assert failure(enc("key", "--data", tmp_path)).startswith("key.signer and key_file: set one of them")
    monkeypatch.delenv("ENC_NODE_KEY_FILE")
    assert "cannot be reached: Connection refused" in failure(enc("key", "--data", tmp_path), 1)
