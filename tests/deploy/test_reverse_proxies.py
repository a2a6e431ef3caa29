"""The samples for nginx and Caddy, before a real node."""

from pathlib import Path

import httpx
import pytest

from enc.client import Client, Identity
from enc.node.config import LimitSettings
from tests.deploy.proxied import NODE, nginx_config, proxy
from tests.deploy.tools import DEPLOY, output, tool
from tests.node.running import RunningNode

COMMIT_BYTES = 1 << 20
BODY = b"x" * LimitSettings().body
LARGE = b"x" * (3 << 20)
"""More than limits.body."""


def test_nginx_accepts_its_samples(tmp_path: Path) -> None:
    for sample in (DEPLOY / "nginx" / "enc.conf", DEPLOY / "docker" / "nginx.conf"):
        config = nginx_config(tmp_path, sample, 8443, "127.0.0.1:7700")
        assert "test is successful" in output(tool("nginx"), "-t", "-c", str(config))


def test_caddy_accepts_its_sample() -> None:
    sample = str(DEPLOY / "caddy" / "Caddyfile")
    assert "Valid configuration" in output(tool("caddy"), "validate", "--adapter", "caddyfile", "--config", sample)


@pytest.mark.parametrize("kind", ["nginx", "caddy"])
def test_a_node_works_behind_a_proxy(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node.toml").write_text(NODE)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    flags = ("--no-dev", "--config", str(tmp_path / "node.toml"))
    with (
        RunningNode(tmp_path / "node", *flags) as node,
        proxy(kind, tmp_path, node.url.removeprefix("http://")) as url,
        Client(url, Identity.new(), pins=tmp_path / "pins") as client,
    ):
        enclave = client.create("team")
        enclave.commit("message", "x" * (COMMIT_BYTES - 1000))
        with enclave.subscribe(type="message", after=-1) as events:  # a WebSocket
            assert next(iter(events)).content == "x" * (COMMIT_BYTES - 1000)
        with httpx.Client(base_url=url) as public, httpx.Client(base_url=node.url, trust_env=False) as direct:
            assert direct.get("/metrics").status_code == 200
            assert public.get("/metrics").status_code == 404
            assert public.post("/", content=BODY).json() == direct.post("/", content=BODY).json()
            assert public.post("/", content=LARGE).status_code in (413, 502)  # 502: Caddy before 2.7
            refused = direct.post("/import", content=LARGE)
            assert public.post("/import", content=LARGE).json() == refused.json()  # an answer of the node
