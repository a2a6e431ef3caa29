"""Settings that are reloaded at SIGHUP."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from enc.core.errors import MisuseError
from enc.core.log.commit import wire_commit
from enc.node.config import FIELDS, AdmissionSettings, LimitSettings, NodeConfig, RateSettings
from enc.node.ops.reload import RELOADABLE, SettingsReload
from enc.runtime.serving.limits import ServingLimits
from tests.core.world import pub
from tests.documents import ROOT
from tests.node.api.http_requests import dialed, read_response
from tests.node.served import SMALL, Served, bad, good

PLAIN = NodeConfig(port=0, limits=LimitSettings(connections_per_address=0))


@pytest.fixture
def node() -> Iterator[Served]:
    with Served(PLAIN) as node:
        yield node


def reload(node: Served, config: NodeConfig) -> None:
    """Put these settings into force as SIGHUP does."""

    def apply(config: NodeConfig) -> None:
        node.node.apply(config)
        node.server.set_limits(config.serving_limits)

    node.on_loop(SettingsReload(PLAIN, lambda: config, apply).run)


def run(old: NodeConfig, load: Callable[[], NodeConfig]) -> tuple[list[NodeConfig], list[tuple[str, object]]]:
    """Reload once; return what was applied, and the log."""
    applied = list[NodeConfig]()
    with capture_logs() as logs:
        SettingsReload(old, load, applied.append).run()
    fields = ("changed", "settings", "reason")
    return applied, [(entry["event"], next(entry[name] for name in fields if name in entry)) for entry in logs]


def test_changed_settings_are_applied_and_named() -> None:
    new = replace(PLAIN, log_level="debug", rates=RateSettings(identity_per_s=1.0))
    applied, logs = run(PLAIN, lambda: new)
    assert applied == [new]
    assert logs == [("settings_reloaded", ["log_level", "rates.identity_per_s"])]


def test_settings_that_need_a_restart_stay_and_are_named() -> None:
    limits = replace(PLAIN.limits, connections=7, tags=3)
    applied, logs = run(PLAIN, lambda: replace(PLAIN, port=1, limits=limits, access_log=True))
    assert applied == [replace(PLAIN, access_log=True, limits=replace(PLAIN.limits, connections=7))]
    assert logs == [
        ("settings_reloaded", ["access_log", "limits.connections"]),
        ("settings_need_restart", ["port", "limits.tags"]),
    ]


def test_an_invalid_setting_changes_nothing() -> None:
    def fail() -> NodeConfig:
        raise MisuseError("node.toml: port: expected a whole number")

    assert run(PLAIN, fail) == ([], [("settings_not_reloaded", "node.toml: port: expected a whole number")])


def test_a_second_reload_compares_with_the_first() -> None:
    wanted = [replace(PLAIN, access_log=True), PLAIN]
    applied = list[NodeConfig]()
    reloading = SettingsReload(PLAIN, partial(wanted.pop, 0), applied.append)
    with capture_logs() as logs:
        reloading.run()
        reloading.run()
    assert applied == [replace(PLAIN, access_log=True), PLAIN]
    assert [entry["changed"] for entry in logs] == [["access_log"], ["access_log"]]


def test_the_document_names_each_setting_that_can_be_reloaded() -> None:
    assert set(FIELDS) >= RELOADABLE
    text = (ROOT / "docs/operations.md").read_text().split("### Reload")[1].split("\n## ")[0]
    for key in RELOADABLE:
        section, _, name = key.rpartition(".")
        assert f"`{key}`" in text or f"`[{section}]`" in text or f"`{name}`" in text, key


# In force


def test_who_may_create(node: Served) -> None:
    reload(node, replace(PLAIN, admission=AdmissionSettings(create="allowlist", allow=(pub("alice"),))))
    node.create(SMALL, by="alice")
    assert good(node.get("/info"))["create"] == "allowlist"
    refused = node.post(wire_commit(node.manifest(SMALL, "bob")))
    assert bad(refused).code == "UNAUTHORIZED"


def test_quotas(node: Served) -> None:
    enclave = node.create(SMALL)
    enclave.send("bob", "message", "1")
    reload(node, replace(PLAIN, admission=AdmissionSettings(max_events=1)))
    assert enclave.refused("bob", "message", "2").code == "UNAUTHORIZED"
    reload(node, PLAIN)
    enclave.send("bob", "message", "2")


def test_rates(node: Served) -> None:
    reload(node, replace(PLAIN, rates=RateSettings(address_per_s=0.001, address_burst=1)))
    assert [node.get("/info").status_code for _ in range(3)][1:] == [429, 429]
    reload(node, replace(PLAIN, rates=RateSettings(address_per_s=0)))
    assert node.get("/info").status_code == 200


def test_rates_of_identities(node: Served) -> None:
    enclave = node.create(SMALL)
    reload(node, replace(PLAIN, rates=RateSettings(identity_per_s=0.001, identity_burst=1)))
    enclave.send("bob", "message", "1")
    assert enclave.refused("bob", "message", "2").code == "RATE_LIMITED"


def test_the_limit_of_connections(node: Served) -> None:
    node.get("/info")  # its connection stays
    reload(node, replace(PLAIN, limits=replace(PLAIN.limits, connections=1)))
    with dialed(node) as refused, refused.makefile("rb") as file:
        assert read_response(file)[0] == 503


def test_limits_of_the_server(node: Served) -> None:
    reload(node, replace(PLAIN, limits=replace(PLAIN.limits, unsent_bytes=64 << 20, request_timeout_s=3.0)))
    found: ServingLimits = node.server.peers._limits
    assert (found.unsent_bytes, found.request_timeout_s) == (64 << 20, 3.0)
    assert node.server._limits is found
    assert node.server._protocol.limits is found


def test_the_access_log(node: Served) -> None:
    with capture_logs() as logs:
        node.get("/info")
        reload(node, replace(PLAIN, access_log=True))
        node.get("/info")
    assert [entry["event"] for entry in logs].count("request") == 1
