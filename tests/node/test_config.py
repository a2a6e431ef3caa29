"""Settings: their sources, which source wins, and the errors for invalid values."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from enc.core.errors import MisuseError
from enc.core.primitives import types
from enc.node import config as module
from enc.node.config import (
    FIELDS,
    PREFIX,
    SECTIONS,
    LimitSettings,
    NodeConfig,
    ProxySettings,
    RateSettings,
    describe,
    load_config,
    load_with_sources,
)
from tests.core.strategies import examples

HEX = "ab" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "node.toml"


def refusal(
    path: Path | None = None, environ: dict[str, str] | None = None, flags: dict[str, Any] | None = None
) -> str:
    with pytest.raises(MisuseError) as caught:
        load_config(path, environ or {}, flags or {})
    assert "\n" not in caught.value.message
    return caught.value.message


def get(config: NodeConfig, key: str) -> Any:
    section, _, name = key.rpartition(".")
    return getattr(getattr(config, section) if section else config, name)


# Defaults


def test_without_anything_the_defaults_hold() -> None:
    assert load_config(None, {}, {}) == NodeConfig()


def test_the_defaults_are_those_promised() -> None:
    promised = {
        "data": "./enc-data",
        "host": "127.0.0.1",
        "port": 7700,
        "dev": False,
        "hosts": (),
        "public_url": "",
        "key_file": "",
        "host_id": "",
        "log_level": "info",
        "log_format": "json",
        "access_log": False,
        "limits.content": 1 << 20,
        "limits.manifest": 256 << 10,
        "limits.body": 2 << 20,
        "limits.commits_per_request": 256,
        "limits.type": 64,
        "limits.tags": 64,
        "limits.tag_strings": 16,
        "limits.tag_string": 4096,
        "limits.page_bytes": 8 << 20,
        "limits.connections": 4096,
        "limits.connections_per_address": 512,
        "limits.websockets": 4096,
        "limits.subscriptions_per_connection": 64,
        "limits.subscriptions": 16384,
        "limits.waiting_commits": 8192,
        "limits.subscriber_buffer_bytes": 1 << 20,
        "limits.unsent_bytes": 256 << 20,
        "limits.incoming_bytes": 128 << 20,
        "limits.incoming_bytes_per_address": 32 << 20,
        "limits.disk_keep_free_bytes": -1,
        "limits.request_timeout_s": 30,
        "limits.idle_timeout_s": 75,
        "limits.ws_ping_s": 20,
        "admission.create": "open",
        "admission.allow": (),
        "admission.max_enclaves": 0,
        "admission.max_events": 0,
        "admission.max_bytes": 0,
        "admission.max_events_per_enclave": 0,
        "admission.max_bytes_per_enclave": 0,
        "rates.identity_per_s": 100,
        "rates.identity_burst": 400,
        "rates.address_per_s": 500,
        "rates.address_burst": 2000,
        "tls.certificate": "",
        "tls.key": "",
        "proxy.trusted": (),
        "cors.origins": ("*",),
        "sequencing.seal_idle": True,
        "sequencing.max_batch": 1024,
        "sequencing.verify_processes": 1,
        "sequencing.one_core": True,
        "retention.purge_after_s": 2592000,
        "retention.sweep_interval_s": 1,
        "endpoints.allow_private": False,
        "push.interval_s": 1,
        "push.batch_events": 500,
        "push.batch_bytes": 4 << 20,
        "push.timeout_s": 30,
        "push.tries": 10,
        "push.first_retry_s": 1,
        "push.max_retry_s": 300,
        "push.connections": 256,
        "push.unsent_bytes": 128 << 20,
        "push.host_per_s": 100,
        "push.host_bytes_per_s": 8 << 20,
        "push.host_connections": 64,
        "push.require_challenge": True,
        "push.confirmed_days": 30,
        "push.unconfirmed_days": 7,
        "push.ca_file": "",
        "push.delivered_days": 7,
        "push.dead_days": 30,
        "imports.at_once": 2,
        "imports.archive_bytes": 8 << 30,
        "imports.total_bytes": 64 << 30,
        "imports.max_ratio": 100,
        "imports.uploads": 8,
        "imports.uploads_per_address": 4,
        "imports.uploads_bytes": 32 << 30,
        "imports.upload_bytes_per_s": 64 << 10,
        "imports.upload_grace_s": 30.0,
        "imports.ahead_from": (),
        "imports.ahead_enclaves": 1000,
        "imports.ahead_bytes": 16 << 30,
        "registry.enclave": "",
        "registry.announce_to": "",
        "registry.endpoints": (),
        "admin.host": "127.0.0.1",
        "admin.port": -1,
        "admin.public_metrics": True,
        "key.signer": "",
        "key.signer_timeout_s": 2.0,
        "key.passphrase_fd": -1,
        "key.passphrase_command": "",
        "key.passphrase_credential": "node-passphrase",
    }
    assert {setting.key: setting.value for setting in describe(NodeConfig())} == promised


@pytest.mark.parametrize("key", FIELDS)
def test_a_default_is_a_value_that_may_be_set(key: str) -> None:
    assert load_config(None, {}, {key: FIELDS[key].default}) == NodeConfig()


# Later sources win


def test_flags_over_environment_over_file_over_defaults(file: Path) -> None:
    file.write_text("port = 1\nhost = 'f'\ndata = 'f'\n[limits]\ntags = 2\n")
    environ = {"ENC_NODE_PORT": "2", "ENC_NODE_HOST": "e", "PATH": "/bin"}
    config, sources = load_with_sources(file, environ, {"port": 3, "host": None})
    assert (config.port, config.host, config.data, config.limits.tags, config.limits.type) == (3, "e", "f", 2, 64)
    assert sources == {"port": "flag", "host": "environment", "data": "file", "limits.tags": "file"}
    shown = {setting.key: (setting.value, setting.source) for setting in describe(config, sources)}
    assert shown["host"] == ("e", "environment")
    assert shown["limits.type"] == (64, "default")


def test_a_section_in_parts_is_put_together(file: Path) -> None:
    file.write_text("[rates]\nidentity_per_s = 1\n")
    config = load_config(file, {"ENC_NODE_RATES_IDENTITY_BURST": "2"}, {"rates.address_burst": 3})
    assert config.rates == RateSettings(identity_per_s=1, identity_burst=2, address_burst=3)


def other(key: str) -> tuple[str, Any]:
    """Return a value that is not the default, and its spelling in a variable."""
    value: Any = FIELDS[key].default
    if isinstance(value, bool):
        return str(not value).lower(), not value
    if isinstance(value, int):
        return str(abs(value - 1)), abs(value - 1)
    if isinstance(value, float):
        return str(value / 2), value / 2
    if isinstance(value, tuple):
        texts = {"admission.allow": HEX, "imports.ahead_from": HEX, "proxy.trusted": "::1", "hosts": "a.example"}
        text = texts.get(key, "https://a")
        return text, (text,)
    words = {"log_level": "debug", "log_format": "console", "admission.create": "closed", "registry.enclave": HEX}
    words |= {"registry.announce_to": f"http://a#{HEX}", "key.passphrase_credential": "enc.pass"}
    text = words.get(key, "http://a")
    return text, text


@pytest.mark.parametrize("key", [key for key in FIELDS if not key.startswith("tls.")])
def test_every_setting_has_its_variable(key: str) -> None:
    text, value = other(key)
    config = load_config(None, {PREFIX + key.replace(".", "_").upper(): text}, {})
    assert get(config, key) == value
    assert config != NodeConfig()


def test_no_two_settings_share_a_variable() -> None:
    assert len({setting.variable for setting in describe(NodeConfig())}) == len(FIELDS)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_a_switch_in_the_environment(text: str, value: bool) -> None:
    assert load_config(None, {"ENC_NODE_DEV": text}, {}).dev is value


def test_a_list_in_the_environment() -> None:
    environ = {"ENC_NODE_PROXY_TRUSTED": "10.0.0.0/8, ::1", "ENC_NODE_CORS_ORIGINS": " "}
    config = load_config(None, environ, {})
    assert config.proxy.trusted == ("10.0.0.0/8", "::1")
    assert config.cors.origins == ()


def test_an_empty_variable_is_an_empty_text() -> None:
    assert load_config(None, {"ENC_NODE_PUBLIC_URL": ""}, {"public_url": None}).public_url == ""


# Errors name the source, the key and what is expected

WRONG = [
    ("port", "x", "a whole number from 0 to 65535"),
    ("port", -1, "a whole number from 0 to 65535"),
    ("port", 65_536, "a whole number from 0 to 65535"),
    ("port", 1.5, "a whole number from 0 to 65535"),
    ("dev", "maybe", "true or false"),
    ("dev", 2, "true or false"),
    ("data", "", "a path"),
    ("data", "a\0b", "a path"),
    ("data", 3.5, "a path"),
    ("host", "", "an address or a host's name"),
    ("host", "a\nb", "an address or a host's name"),
    ("public_url", "ftp://a", "an http or https URL, or nothing"),
    ("public_url", "https://", "an http or https URL, or nothing"),
    ("public_url", "https://a b", "an http or https URL, or nothing"),
    ("key_file", "a\x1bb", "text on one line"),
    ("key_file", "x" * 5000, "text on one line"),
    ("log_level", "loud", "one of debug, info, warning, error"),
    ("log_format", "xml", "one of json, console"),
    ("limits.content", (1 << 20) + 1, "a whole number from 1 to 1048576"),
    ("limits.content", 0, "a whole number from 1 to 1048576"),
    ("limits.manifest", (256 << 10) + 1, "a whole number from 1 to 262144"),
    ("limits.body", (2 << 20) + 1, "a whole number from 1024 to 2097152"),
    ("limits.type", 65, "a whole number from 16 to 64"),
    ("limits.tags", 65, "a whole number from 2 to 64"),
    ("limits.tag_strings", 17, "a whole number from 3 to 16"),
    ("limits.tag_string", 4097, "a whole number from 64 to 4096"),
    ("limits.request_timeout_s", 0, "a number from 0.1 to 3600"),
    ("limits.ws_ping_s", float("nan"), "a number from 0.1 to 3600"),
    ("limits.ws_ping_s", float("inf"), "a number from 0.1 to 3600"),
    ("admission.create", "some", "one of open, allowlist, closed"),
    ("admission.allow", [HEX.upper()], "a list of identities of 64 lower-case hex digits"),
    ("admission.allow", [HEX, HEX[:-1]], "a list of identities of 64 lower-case hex digits"),
    ("imports.ahead_from", [HEX.upper()], "a list of keys of 64 lower-case hex digits"),
    ("admission.max_bytes", 1 << 53, "a whole number from 0 to 9007199254740991"),
    ("rates.identity_per_s", -0.5, "a number from 0 to 1e+09"),
    ("rates.identity_burst", 0, "a whole number from 1 to 1000000000"),
    ("proxy.trusted", ["10.0.0.1/8"], "a list of IP addresses or networks (10.0.0.0/8; no bits set beyond the mask)"),
    (
        "proxy.trusted",
        ["proxy.example"],
        "a list of IP addresses or networks (10.0.0.0/8; no bits set beyond the mask)",
    ),
    ("cors.origins", ["https://a/"], "a list of origins (https://app.example), or *"),
    ("cors.origins", ["https://a", "a"], "a list of origins (https://app.example), or *"),
    ("sequencing.max_batch", 0, "a whole number from 1 to 65536"),
    ("sequencing.verify_processes", -1, "a whole number from 0 to 256"),
    ("retention.sweep_interval_s", 0, "a number from 0.01 to 3600"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_a_wrong_flag(key: str, value: Any, expected: str) -> None:
    assert refusal(flags={key: value}) == f"--{key.replace('_', '-')}: {key}: expected {expected}"


@pytest.mark.parametrize(("key", "value", "expected"), [case for case in WRONG if not isinstance(case[1], list)])
def test_a_wrong_variable(key: str, value: Any, expected: str) -> None:
    variable = PREFIX + key.replace(".", "_").upper()
    if (key, value) != ("data", 3.5):
        assert refusal(environ={variable: str(value)}) == f"{variable}: {key}: expected {expected}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("port = '7700'", "port: expected a whole number from 0 to 65535"),
        ("port = 7700.0", "port: expected a whole number from 0 to 65535"),
        ("port = true", "port: expected a whole number from 0 to 65535"),
        ("port = 1979-05-27", "port: expected a whole number from 0 to 65535"),
        (f"port = {'9' * 40}", "port: expected a whole number from 0 to 65535"),
        ("[port]\na = 1", "port: expected a whole number from 0 to 65535"),
        ("dev = 1", "dev: expected true or false"),
        ("dev = 'true'", "dev: expected true or false"),
        ("data = 3", "data: expected a path"),
        ("[limits]\nws_ping_s = nan", "limits.ws_ping_s: expected a number from 0.1 to 3600"),
        ("[limits]\nws_ping_s = '20'", "limits.ws_ping_s: expected a number from 0.1 to 3600"),
        ("[cors]\norigins = '*'", "cors.origins: expected a list of origins (https://app.example), or *"),
        ("[cors]\norigins = [1]", "cors.origins: expected a list of origins (https://app.example), or *"),
        ("prot = 1", "prot: there is no such setting"),
        ("[limits]\nsize = 1", "limits.size: there is no such setting"),
        ("[limit]\ncontent = 1", "limit: there is no such setting"),
        ("content = 1", "content: there is no such setting"),
        ("'limits.content' = 1", "'limits.content': there is no such setting"),
        ("[limits]\n'a\\nb' = 1", None),
        ('"a\\nb" = 1', r"'a\nb': there is no such setting"),
        ("limits = 3", "limits: expected a table"),
        ("[[limits]]\ncontent = 1", "limits: expected a table"),
    ],
)
def test_a_wrong_file(file: Path, text: str, why: str | None) -> None:
    file.write_text(text)
    message = refusal(file)
    assert message.startswith(f"{file}: ")
    assert why is None or message == f"{file}: {why}"


@pytest.mark.parametrize("raw", [b"port", b"port = 1\nport = 2", b"\xff", b"a = " + b"[" * 5000, b"a = " + b"9" * 5000])
def test_a_file_that_is_not_toml(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    assert refusal(file).startswith(f"{file}: not TOML: ")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.toml") == f"{tmp_path / 'none.toml'}: cannot be read: No such file or directory"
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    assert "cannot be read" in refusal(Path("a\0b"))


def test_a_file_that_is_too_large(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.READER, "_max_bytes", 10)
    file.write_text("port = 1  ")
    assert load_config(file, {}, {}).port == 1
    file.write_text("port = 1   ")
    assert refusal(file) == f"{file}: over 10 bytes"


def test_an_unknown_variable() -> None:
    assert refusal(environ={"ENC_NODE_PROT": "1"}) == "ENC_NODE_PROT: there is no setting with this variable"
    assert refusal(environ={"ENC_NODE_LIMITS": "1"}) == "ENC_NODE_LIMITS: there is no setting with this variable"


def test_other_variables_are_not_looked_at() -> None:
    assert load_config(None, {"ENC_EXTERNAL_VECTORS": "x", "enc_node_port": "x", "NODE_PORT": "x"}, {}) == NodeConfig()


def test_an_unknown_flag() -> None:
    assert refusal(flags={"prot": 1}) == "--prot: prot: there is no such setting"


def test_a_value_does_not_get_into_the_message() -> None:
    assert HEX not in refusal(environ={"ENC_NODE_PORT": HEX})
    assert HEX not in refusal(environ={"ENC_NODE_KEY": HEX})


def test_a_list_is_bounded() -> None:
    many = [f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}" for i in range(65_537)]
    assert len(load_config(None, {}, {"proxy.trusted": many[:-1]}).proxy.trusted) == 65_536
    assert "proxy.trusted: expected a list" in refusal(flags={"proxy.trusted": many})


def test_a_path_that_is_no_unicode_is_refused() -> None:
    assert refusal(environ={"ENC_NODE_DATA": "a\udcffb"}) == "ENC_NODE_DATA: data: expected a path"


def test_tls_takes_both_or_none(file: Path) -> None:
    file.write_text("[tls]\ncertificate = 'c'\n")
    assert refusal(file) == f"{file}: tls.certificate: expected tls.key beside it"
    assert refusal(environ={"ENC_NODE_TLS_KEY": "k"}) == "ENC_NODE_TLS_KEY: tls.key: expected tls.certificate beside it"
    assert load_config(file, {"ENC_NODE_TLS_KEY": "k"}, {}).tls == module.TlsSettings(certificate="c", key="k")
    assert load_config(file, {"ENC_NODE_TLS_CERTIFICATE": ""}, {}) == NodeConfig()


def accepted(flags: dict[str, Any]) -> NodeConfig | str:
    try:
        return load_config(None, {}, flags)
    except MisuseError as e:
        return e.message


@examples()
@given(st.sampled_from(sorted(FIELDS)), st.text() | st.integers() | st.floats() | st.none() | st.lists(st.text()))
def test_whatever_is_set_is_taken_or_refused_in_one_line(key: str, value: Any) -> None:
    found = accepted({key: value})
    if isinstance(found, str):
        assert found.isprintable()
    else:
        assert accepted({setting.key: setting.value for setting in describe(found)}) == found


# What follows from the settings


def test_a_limit_of_commits_may_be_lowered_never_raised() -> None:
    kernel, ours = structs.asdict(types.CommitLimits()), structs.asdict(LimitSettings().commit_limits())
    assert ours == kernel
    lowered = load_config(None, {}, {"limits.content": 100, "limits.tags": 3, "limits.type": 20})
    assert lowered.limits.commit_limits() == types.CommitLimits(content=100, tags=3, type=20)
    lowest = {"limits.tag_strings": 3, "limits.tag_string": 64}
    assert load_config(None, {}, lowest).limits.commit_limits() == types.CommitLimits(tag_strings=3, tag_string=64)
    for name, most in kernel.items():
        assert "expected" in refusal(flags={f"limits.{name}": most + 1})


def test_paths() -> None:
    config = load_config(None, {}, {"data": "/d"})
    assert (config.data_path, config.store_path, config.key_path) == (
        Path("/d"),
        Path("/d/enc.db"),
        Path("/d/node.key"),
    )
    assert load_config(None, {}, {"data": "/d", "key_file": "/k"}).key_path == Path("/k")


def test_dev_opens_private_endpoints_and_lifts_the_limits_of_one_address() -> None:
    plain, dev = NodeConfig(), load_config(None, {}, {"dev": True})
    assert not plain.private_endpoints
    assert dev.private_endpoints
    assert load_config(None, {}, {"endpoints.allow_private": True}).private_endpoints
    assert plain.effective_rates == plain.rates
    assert dev.effective_rates == RateSettings(identity_per_s=0, address_per_s=0)
    limits = [config.serving_limits for config in (plain, dev)]
    assert [each.connections_per_address for each in limits] == [512, 0]
    assert [each.incoming_bytes_per_address for each in limits] == [32 << 20, 0]


def test_the_admin_listener_has_a_port_of_its_own() -> None:
    def port(**flags: Any) -> int:
        return load_config(None, {}, {name.replace("__", "."): value for name, value in flags.items()}).admin_port

    assert (port(), port(port=8000), port(port=0), port(dev=True)) == (7710, 8010, 0, 0)
    assert (port(admin__port=9000), port(admin__port=9000, dev=True), port(admin__port=0)) == (9000, 9000, 0)
    assert port(port=65_525) == 65_535
    assert "admin.port: set it" in refusal(flags={"port": 65_526})
    assert port(port=65_526, admin__port=1) == 1
    assert load_config(None, {}, {"port": 65_526, "admin.host": ""}).admin.host == ""


def test_addresses_have_shares_where_they_stand_for_one_client() -> None:
    behind = LimitSettings(connections_per_address=0)
    assert NodeConfig().shares_by_address
    assert not NodeConfig(limits=behind).shares_by_address
    assert NodeConfig(limits=behind, proxy=ProxySettings(trusted=("127.0.0.1",))).shares_by_address
    assert not NodeConfig(dev=True).shares_by_address


@pytest.mark.parametrize("host", ["https://a.example", "a.example:80/", "a b", "", "a@b", "ö" * 70])
def test_what_is_no_name_of_a_host(host: str) -> None:
    with pytest.raises(MisuseError, match="hosts: expected a list of names"):
        load_config(None, {}, {"hosts": [host]})


def test_a_host_s_name_in_any_script() -> None:
    assert load_config(None, {}, {"hosts": ["münchen.example"]}).hosts == ("münchen.example",)


# Descriptions


@pytest.mark.parametrize("setting", describe(NodeConfig()), ids=lambda setting: setting.key)
def test_every_setting_says_what_it_means(setting: module.Setting) -> None:
    assert setting.meaning.endswith(".")
    assert setting.meaning[0].isupper()
    assert setting.meaning.isprintable()
    assert setting.default == get(NodeConfig(), setting.key)
    timed = setting.key.endswith(("_s", "_bytes")) and not setting.key.endswith("per_s")
    assert not timed or setting.unit in ("seconds", "bytes")


def test_every_section_says_what_it_is() -> None:
    for name, section in SECTIONS.items():
        assert (section.__doc__ or "").startswith(f"[{name}]: ")


def test_a_config_is_plain_data() -> None:
    with pytest.raises(AttributeError):
        NodeConfig().port = 1  # type: ignore[misc]
    assert hash(NodeConfig()) == hash(load_config(None, {}, {}))
