"""`enc key`: key files, who may read them, and passphrases."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from enc.cli.common import passphrase
from enc.cli.common.exits import MISUSE
from enc.cli.common.failures import NO_ANSWER
from enc.client import Identity
from enc.core.errors import MisuseError
from enc.runtime.keys import key_file
from enc.runtime.unix_sockets import unix_socket
from tests.cli.people import Person
from tests.forked import Forked

SECRET = "7a" * 32
PUBLIC = Identity.from_secret(SECRET).hex


def test_a_new_key_is_stored_in_the_profile_that_has_none(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new")
    assert made == {"public": made["public"], "file": str(anybody.key()), "sealed": False, "profile": "default"}
    assert anybody.ask_json("key", "show") == [{"public": made["public"], "file": str(anybody.key())}]
    assert anybody.key().stat().st_mode & 0o777 == 0o600
    assert anybody.key().parent.stat().st_mode & 0o777 == 0o700


def test_a_second_key_leaves_the_profile_as_it_is(anybody: Person) -> None:
    (first,) = anybody.ask_json("key", "new")
    result = anybody.ask("key", "new", "--name", "second")
    assert f"enc config set identity {anybody.key('second')}" in result.stderr
    assert anybody.ask_json("key", "new", "third.key")[0]["profile"] is None
    assert anybody.ask_json("key", "new", "fourth.key", ENC_IDENTITY="elsewhere")[0]["profile"] is None
    assert anybody.ask("key", "show").stdout == first["public"] + "\n"


def test_a_key_goes_where_it_is_wanted(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new", "mine.key")
    assert made["file"] == str(anybody.home / "mine.key")
    assert Identity.load(anybody.home / "mine.key").hex == made["public"]
    assert anybody.ask_json("key", "show")[0] == {"public": made["public"], "file": made["file"]}


def test_no_key_takes_another_s_place(anybody: Person) -> None:
    anybody.ask("key", "new")
    before = anybody.key().read_bytes()
    assert "exists already" in anybody.refused("key", "new", code=MISUSE)["message"]
    assert anybody.key().read_bytes() == before


@pytest.mark.parametrize("name", ["", "../up", ".hidden", "a/b"])
def test_a_name_is_no_path(anybody: Person, name: str) -> None:
    assert anybody.refused("key", "new", "--name", name, code=MISUSE)["message"].startswith(f"--name {name!r}: ")
    assert not anybody.config.exists()


def test_a_key_that_others_can_read_is_refused(anybody: Person) -> None:
    anybody.ask("key", "new")
    anybody.key().chmod(0o640)
    message = anybody.refused("key", "show", code=MISUSE)["message"]
    assert message.startswith(f"{anybody.key()}: can be read or written by users other than its owner")
    assert anybody.ask("key", "show", code=MISUSE).stderr == f"enc: {message}\n"


def test_a_faulty_configuration_is_told_before_a_key_is_made(anybody: Person) -> None:
    anybody.config.parent.mkdir(parents=True)
    anybody.config.write_text("nonsense")
    anybody.refused("key", "new", code=MISUSE)
    assert not anybody.key().exists()


# Import


def test_import_from_stdin_and_from_a_file(anybody: Person) -> None:
    assert anybody.ask_json("key", "import", "-", stdin=SECRET + "\n")[0]["public"] == PUBLIC
    (anybody.home / "hex").write_text(SECRET)
    (anybody.home / "hex").chmod(0o600)
    assert anybody.ask_json("key", "import", "hex", "--name", "b")[0]["public"] == PUBLIC
    assert anybody.ask_json("key", "import", "hex", "c.key")[0]["file"] == str(anybody.home / "c.key")
    assert anybody.ask_json("key", "show", "--identity", "c.key")[0]["public"] == PUBLIC


def test_import_of_what_is_no_key_does_not_tell_it(anybody: Person) -> None:
    error = anybody.refused("key", "import", "-", stdin=SECRET + "7", code=MISUSE)
    assert error["message"] == "a private key must be 64 hex digits, or 32 bytes"
    assert "there is no such file" in anybody.refused("key", "import", "none", code=MISUSE)["message"]
    (anybody.home / "open").write_text(SECRET)
    (anybody.home / "open").chmod(0o644)
    assert "users other than its owner" in anybody.refused("key", "import", "open", code=MISUSE)["message"]
    assert "give the file" in anybody.refused("key", "import", code=MISUSE)["message"]


# Passphrases


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_file, "COST", (2, 8, 1))


def test_a_passphrase_comes_from_the_environment(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new", ENC_PASSPHRASE="open sesame")
    assert made["sealed"] is True
    assert "secret" not in json.loads(anybody.key().read_text())
    assert anybody.ask_json("key", "show", ENC_PASSPHRASE="open sesame")[0]["public"] == made["public"]
    assert "does not open" in anybody.refused("key", "show", ENC_PASSPHRASE="shut", code=MISUSE)["message"]


def test_the_public_key_of_a_sealed_file_needs_no_passphrase(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new", ENC_PASSPHRASE="open sesame")
    assert anybody.ask_json("key", "show") == [{"public": made["public"], "file": made["file"]}]
    assert anybody.ask_json("queue", "list") == []
    anybody.key().write_text(anybody.key().read_text().replace(made["public"], "12"))
    assert "public" in anybody.refused("key", "show", code=MISUSE)["message"]


def test_without_a_terminal_nothing_is_asked(anybody: Person) -> None:
    anybody.ask("key", "new", ENC_PASSPHRASE="open sesame")
    refused = anybody.refused("key", "export", "-", code=MISUSE)
    assert "set ENC_PASSPHRASE or ENC_PASSPHRASE_COMMAND, or use a terminal" in refused["message"]
    error = anybody.refused("key", "new", "other.key", "--passphrase", code=MISUSE)
    assert error["message"] == "to seal a key with a passphrase, set ENC_PASSPHRASE or use a terminal"
    assert not (anybody.home / "other.key").exists()


class Typing:
    """A terminal at which these lines are typed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
        self.prompts: list[str] = []
        self._lines = list(lines)
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr("getpass.getpass", self)

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return self._lines.pop(0)


def test_on_a_terminal_a_passphrase_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENC_PASSPHRASE", raising=False)
    typing = Typing(monkeypatch, "old", "new", "new", "new", "newer")
    assert passphrase.for_key_file(Path("a.key")) == "old"
    assert passphrase.new() == "new"
    with pytest.raises(MisuseError, match="two passphrases differ"):
        passphrase.new()
    assert typing.prompts[0] == "Passphrase of a.key: "


def test_the_environment_s_passphrase_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENC_PASSPHRASE", "given")
    Typing(monkeypatch)
    assert (passphrase.for_key_file(Path("a.key")), passphrase.new()) == ("given", "given")


def test_no_command_takes_a_secret_as_an_argument(anybody: Person) -> None:
    for command in ("new", "show", "import", "seal", "passphrase", "export"):
        assert "--passphrase TEXT" not in anybody.ask("key", command, "--help").stdout


def test_a_new_key_is_sealed_with_what_is_typed_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ENC_PASSPHRASE", raising=False)
    typing = Typing(monkeypatch, "open", "open", "")
    assert passphrase.optional() == "open"
    assert passphrase.optional() is None
    assert typing.prompts[::2] == ["New passphrase for the key (empty: store it unsealed): "] * 2
    monkeypatch.setattr(passphrase, "is_interactive", lambda: False)
    assert passphrase.optional() is None


def test_on_a_terminal_a_new_key_is_sealed_unless_the_flag_or_the_person_says_no(
    anybody: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passphrase, "is_interactive", lambda: True)
    lines = ["sesame", "sesame"]
    monkeypatch.setattr("getpass.getpass", lambda prompt: lines.pop(0))
    assert "sealed  yes" in anybody.ask("key", "new").stdout
    assert "sealed  no" in anybody.ask("key", "new", "b.key", "--no-passphrase").stdout
    assert anybody.ask_json("key", "new", "c.key")[0]["sealed"] is False  # programs are not asked
    assert not lines


# Seal, change and export


def test_a_key_is_sealed_and_its_passphrase_changed_and_removed(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new")
    sealed = {"public": made["public"], "file": str(anybody.key()), "sealed": True}
    assert anybody.ask_json("key", "seal", ENC_PASSPHRASE="one") == [sealed]
    assert anybody.key().stat().st_mode & 0o777 == 0o600
    error = anybody.refused("key", "seal", ENC_PASSPHRASE="one", code=MISUSE)
    assert error["message"] == f"{anybody.key()}: is sealed already; `enc key passphrase` changes its passphrase"
    assert anybody.ask_json("key", "passphrase", ENC_PASSPHRASE="one", ENC_NEW_PASSPHRASE="two") == [sealed]
    assert "does not open" in anybody.refused("key", "show", ENC_PASSPHRASE="one", code=MISUSE)["message"]
    assert anybody.ask_json("key", "show", ENC_PASSPHRASE="two")[0]["public"] == made["public"]
    anybody.ask("key", "passphrase", "--remove", ENC_PASSPHRASE="two")
    assert anybody.ask_json("key", "show")[0]["public"] == made["public"]


def test_a_passphrase_is_changed_only_with_the_old_one(anybody: Person) -> None:
    anybody.ask("key", "new", ENC_PASSPHRASE="one")
    before = anybody.key().read_bytes()
    error = anybody.refused("key", "passphrase", ENC_PASSPHRASE="no", ENC_NEW_PASSPHRASE="two", code=MISUSE)
    assert "does not open" in error["message"]
    error = anybody.refused("key", "passphrase", ENC_PASSPHRASE="one", code=MISUSE)
    assert error["message"] == "to seal a key with a passphrase, set ENC_NEW_PASSPHRASE or use a terminal"
    assert anybody.key().read_bytes() == before


def test_an_exported_key_can_be_imported(anybody: Person) -> None:
    (made,) = anybody.ask_json("key", "new", ENC_PASSPHRASE="one")
    exported = anybody.ask_json("key", "export", "secret.hex", ENC_PASSPHRASE="one")
    assert exported == [{"public": made["public"], "file": "secret.hex"}]
    assert (anybody.home / "secret.hex").stat().st_mode & 0o777 == 0o600
    assert anybody.ask_json("key", "import", "secret.hex", "b.key")[0]["public"] == made["public"]
    assert "exists already" in anybody.refused("key", "export", "secret.hex", "b.key", code=MISUSE)["message"]
    text = anybody.ask("key", "export", "-", "b.key").stdout
    assert anybody.ask_json("key", "import", "-", "c.key", stdin=text)[0]["public"] == made["public"]
    assert anybody.refused("key", "new", "--passphrase=x", code=MISUSE)["code"] == "MISUSE"


def test_a_private_key_that_is_given_as_an_argument_is_not_repeated(anybody: Person) -> None:
    secret = "ab" * 32
    error = anybody.refused("key", "import", secret, code=2)
    assert "not the key itself" in error["message"]
    assert secret not in error["message"]


def test_an_empty_passphrase_in_the_environment_seals_nothing_and_makes_nothing(anybody: Person) -> None:
    assert "ENC_PASSPHRASE is empty" in anybody.refused("key", "new", code=2, ENC_PASSPHRASE="")["message"]
    assert not anybody.key().exists()


# A signer


@pytest.fixture
def held(alice: Person, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the socket of a process that holds alice's key."""
    path = tmp_path_factory.mktemp("s") / "s.sock"
    command = [sys.executable, "-c", "from enc.cli import main; main()", "key", "signer", str(alice.key())]
    with Forked([*command, "--socket", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["socket"] == str(path)
        yield path
        process.terminate()


def test_a_signer_stands_for_the_key_file(alice: Person, held: Path) -> None:
    public = Identity.load(alice.key()).hex
    alice.key().unlink()
    assert alice.ask_json("key", "show", "--identity", str(held)) == [{"public": public, "file": str(held)}]
    alice.ask("config", "set", "identity", str(held))
    alice.ask("commit", "message", "by the signer")
    assert alice.ask_json("query", "--type", "message")[-1]["content"] == "by the signer"
    alice.ask("me", "create")
    alice.ask("me", "add", "Diary", "It rained.")
    assert alice.ask_json("me", "list")[0]["text"] == "It rained."


def test_a_signer_gives_the_key_to_nobody(alice: Person, held: Path) -> None:
    for command in (["export", "-", str(held)], ["passphrase", str(held), "--remove"]):
        message = alice.refused("key", *command, code=MISUSE)["message"]
        assert message.endswith("its signer does not reveal the private key; use the key file itself")
    error = alice.refused("key", "signer", str(held), "--socket", "x.sock", code=MISUSE)
    assert error["message"] == f"{held}: is the socket of a signer; give the key file"


def test_a_signer_that_has_ended(alice: Person, tmp_path: Path) -> None:
    with unix_socket.listen(tmp_path / "s.sock", os.geteuid()):
        pass
    error = alice.refused("key", "show", "--identity", str(tmp_path / "s.sock"), code=NO_ANSWER)
    assert error["message"] == f"the signer at {tmp_path}/s.sock cannot be reached: Connection refused"
