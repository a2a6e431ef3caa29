"""The configuration: profiles in a file, the environment and flags, and which of them wins."""

import tomllib
from pathlib import Path

import pytest

from enc.cli.common import profiles
from enc.cli.common.exits import MISUSE
from enc.cli.common.profiles import config_path, read, store
from enc.core.errors import MisuseError
from tests.cli.people import Person

ID = "ab" * 32


def shown(person: Person, *flags: str, **environment: str) -> dict[str, tuple[str, str]]:
    (found,) = person.ask_json("config", "show", *flags, **environment)
    return {name: (found[name]["value"], found[name]["source"]) for name in profiles.NAMES}


# Order


def test_the_environment_wins_over_the_file_and_a_flag_over_both(anybody: Person) -> None:
    assert set(shown(anybody).values()) == {(None, "unset")}
    anybody.ask("config", "set", "node", "http://file")
    anybody.ask("config", "set", "identity", "/file")
    anybody.ask("config", "set", "enclave", "0" * 64)
    anybody.ask("config", "set", "registry", f"http://file#{'0' * 64}")
    witnesses = "1 http://file=79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
    anybody.ask("config", "set", "witnesses", witnesses)
    in_file = {
        "node": ("http://file", "file"),
        "identity": ("/file", "file"),
        "enclave": ("0" * 64, "file"),
        "registry": (f"http://file#{'0' * 64}", "file"),
        "witnesses": (witnesses, "file"),
    }
    assert shown(anybody) == in_file
    environment = {"ENC_NODE": "http://env", "ENC_IDENTITY": "/env", "ENC_ENCLAVE": "1" * 64, "ENC_REGISTRY": "env"}
    environment["ENC_WITNESSES"] = "env"
    in_environment = {
        "node": ("http://env", "environment"),
        "identity": ("/env", "environment"),
        "enclave": ("1" * 64, "environment"),
        "registry": ("env", "environment"),
        "witnesses": ("env", "environment"),
    }
    assert shown(anybody, **environment) == in_environment
    for name, value in (("node", "http://flag"), ("identity", "/flag"), ("enclave", "2" * 64), ("registry", "flag")):
        assert shown(anybody, f"--{name}", value, **environment) == {**in_environment, name: (value, "flag")}
    assert shown(anybody, ENC_NODE="", ENC_IDENTITY="", ENC_ENCLAVE="", ENC_REGISTRY="", ENC_WITNESSES="") == in_file


def test_a_profile_is_picked_by_flag_or_environment(anybody: Person) -> None:
    for profile in ("default", "env", "flag"):
        anybody.ask("config", "set", "node", f"http://{profile}", "--profile", profile)
    assert shown(anybody)["node"][0] == "http://default"
    assert shown(anybody, ENC_PROFILE="env")["node"][0] == "http://env"
    assert shown(anybody, "--profile", "flag", ENC_PROFILE="env")["node"][0] == "http://flag"


def test_a_command_uses_what_config_shows(alice: Person) -> None:
    enclave = shown(alice)["enclave"][0]
    alice.ask("config", "set", "enclave", "00" * 32)
    assert alice.refused("query", code=1)["code"] == "ENCLAVE_NOT_FOUND"
    assert alice.ask_json("query", "--type", "Manifest", ENC_ENCLAVE=enclave)
    assert alice.ask_json("query", "--type", "Manifest", "--enclave", enclave, ENC_ENCLAVE="00" * 32)


def test_a_profile_that_is_not_there(anybody: Person) -> None:
    error = anybody.refused("query", "--profile", "wrok", code=MISUSE)
    assert error["message"] == f"{anybody.config} has no profile wrok"
    assert "a name may hold letters" in anybody.refused("query", "--profile", "a b", code=MISUSE)["message"]


def test_for_people_it_is_shown_with_its_source(anybody: Person) -> None:
    anybody.ask("config", "set", "node", "http://file")
    lines = [line.split(maxsplit=1) for line in anybody.ask("config", "show").stdout.splitlines()]
    assert lines == [
        ["profile", "default"],
        ["file", str(anybody.config)],
        ["node", "http://file (file)"],
        ["identity", "- (unset)"],
        ["enclave", "- (unset)"],
        ["registry", "- (unset)"],
        ["witnesses", "- (unset)"],
    ]


# Where the file is


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/al")
    assert config_path({"ENC_CONFIG": "x.toml", "XDG_CONFIG_HOME": "/x"}) == Path("x.toml")
    assert config_path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/enc/config.toml")
    for environ in ({}, {"XDG_CONFIG_HOME": "", "ENC_CONFIG": ""}, {"XDG_CONFIG_HOME": "relative"}):
        assert config_path(environ) == Path("/home/al/.config/enc/config.toml")


def test_a_key_file_s_path_is_seen_from_the_configuration(anybody: Person) -> None:
    anybody.config.parent.mkdir(parents=True)
    for stored, seen in (
        ("my.key", anybody.config.parent / "my.key"),
        ("~/my.key", anybody.home / "my.key"),
        ("/my.key", Path("/my.key")),
    ):
        anybody.config.write_text(f'[default]\nidentity = "{stored}"\n')
        assert shown(anybody)["identity"][0] == str(seen)


# Set


def test_set_checks_what_it_stores(anybody: Person) -> None:
    assert "not a node's URL" in anybody.refused("config", "set", "node", "nowhere", code=MISUSE)["message"]
    assert "64 hex digits" in anybody.refused("config", "set", "enclave", "abc", code=MISUSE)["message"]
    assert anybody.refused("config", "set", "colour", "red", code=MISUSE)["code"] == "MISUSE"
    assert not anybody.config.exists()
    (stored,) = anybody.ask_json("config", "set", "identity", "here.key")
    assert stored["identity"] == str(anybody.home / "here.key")
    assert anybody.ask_json("config", "set", "enclave", ID.upper())[0]["enclave"] == ID
    assert anybody.ask_json("config", "set", "node", "http://node/")[0]["node"] == "http://node"


def test_the_rest_of_the_file_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n[default]   # short\nnode = 'a'  # old\n\n[ work ]\n# none yet\n\n[z]\nenclave = 'z'\n")
    store(file, "default", "node", 'q"uo\\te é')
    store(file, "default", "enclave", ID)
    store(file, "work", "identity", "/k")
    store(file, "new", "node", "n")
    assert file.read_text() == (
        '# mine\n[default]   # short\nnode = "q\\"uo\\\\te é"\n'
        f'enclave = "{ID}"\n\n[ work ]\n# none yet\nidentity = "/k"\n\n[z]\nenclave = \'z\'\n\n[new]\nnode = "n"\n'
    )
    assert read(file)["default"] == {"node": 'q"uo\\te é', "enclave": ID}
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_link_to_the_file_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "dots").mkdir()
    (tmp_path / "config.toml").symlink_to(tmp_path / "dots" / "enc.toml")
    store(tmp_path / "config.toml", "default", "node", "n")
    assert (tmp_path / "config.toml").is_symlink()
    assert tomllib.loads((tmp_path / "dots" / "enc.toml").read_text()) == {"default": {"node": "n"}}


@pytest.mark.parametrize("text", ['default = {node = "a"}\n', '["default"]\nnode = "a"\n', 'default.node = "a"\n'])
def test_what_cannot_be_changed_from_here_is_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(MisuseError):
        store(file, "default", "node", "b")
    assert file.read_text() == text


def test_a_value_on_more_than_one_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="automatically: use an editor"):
        store(tmp_path / "config.toml", "default", "node", "a\nb")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[default", "not TOML: "),
        ("node = 'a'", "node: expected a profile such as [default]"),
        ("[default]\nnod = 'a'", "default.nod: there is no such setting; expected one of node, identity, enclave"),
        ("[default]\nnode = 1", "default.node: expected a non-empty string"),
        ("[default]\nnode = ''", "default.node: expected a non-empty string"),
    ],
)
def test_a_faulty_file_is_named_with_its_fault(anybody: Person, text: str, message: str) -> None:
    file = anybody.home / "c.toml"
    file.write_text(text)
    error = anybody.refused("config", "show", ENC_CONFIG=str(file), code=MISUSE)
    assert error["message"].startswith(f"{file}: {message}")


def test_a_file_that_cannot_be_read(anybody: Person) -> None:
    error = anybody.refused("config", "show", ENC_CONFIG=str(anybody.home), code=MISUSE)
    assert error["message"] == f"{anybody.home}: cannot be read: Is a directory"
