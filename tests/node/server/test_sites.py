"""Web pages of other sites, and names that lead to a node: what it answers them."""

import httpx
import pytest
from msgspec.structs import replace

from enc.core.log.commit import wire_commit
from enc.node.config import CorsSettings, EndpointSettings, NodeConfig
from tests.node.api.http_requests import dialed
from tests.node.served import DEV, SMALL, Served, good
from tests.node.server.test_hostile_frames import UPGRADE

EVIL, PAGE = "https://evil.example", "http://localhost:5173"
PRIVATE = NodeConfig(port=0, endpoints=EndpointSettings(allow_private=True))


def status_of(node: Served, origin: str, **headers: str) -> int:
    """Return the status of a commit by a page of this origin; browsers send text without asking first."""
    commit = wire_commit(node.manifest({**SMALL, "meta": {"origin": origin, **headers}}))
    answer = node.post(commit, headers={"origin": origin, "content-type": "text/plain", **headers})
    return answer.status_code


@pytest.mark.parametrize("config", [DEV, PRIVATE, NodeConfig(port=0)], ids=["dev", "private endpoints", "local"])
def test_a_page_of_another_site_commits_nothing_to_a_local_node(config: NodeConfig) -> None:
    with Served(config) as node:
        for origin in (EVIL, "null", "http://localhost.evil.example"):
            assert status_of(node, origin) == 403
        assert not list(node.store.enclaves())
        for origin in (PAGE, "http://127.0.0.1:8000"):
            assert status_of(node, origin) == 200


def test_a_name_that_leads_to_a_local_node_is_not_answered() -> None:
    """By DNS rebinding, a page of another site is of the same origin as the node."""
    with Served(DEV) as node:
        assert status_of(node, "http://evil.example", host="evil.example") == 421
        assert httpx.get(f"{node.url}/info", headers={"host": "evil.example"}, trust_env=False).status_code == 421
        assert not list(node.store.enclaves())


def test_a_page_that_is_listed_may_call_a_dev_node() -> None:
    with Served(replace(DEV, cors=CorsSettings(origins=("https://app.example",)))) as node:
        assert status_of(node, "https://app.example") == 200
        assert status_of(node, EVIL) == 403


@pytest.mark.parametrize(
    "config",
    [NodeConfig(port=0, hosts=("enc.example.org",)), NodeConfig(port=0, public_url="https://enc.example.org")],
    ids=["hosts", "public_url"],
)
def test_a_node_behind_a_proxy_answers_for_its_name_and_to_all_pages(config: NodeConfig) -> None:
    with Served(config) as node:
        assert status_of(node, EVIL, host="enc.example.org") == 200
        assert status_of(node, EVIL, host="evil.example") == 421
        good(node.get("/info"))


@pytest.mark.parametrize(
    ("header", "status"), [(b"Origin: https://evil.example", b"403"), (b"Host: evil.example", b"421")]
)
def test_a_websocket_of_another_site_is_refused(header: bytes, status: bytes) -> None:
    upgrade = UPGRADE.replace(b"Host: localhost\r\n", b"")
    host = b"" if header.startswith(b"Host") else b"\r\nHost: localhost"
    with Served() as node, dialed(node) as peer:
        peer.sendall(upgrade.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\r\n" + header + host + b"\r\n"))
        assert peer.recv(1 << 12).startswith(b"HTTP/1.1 " + status)
    with Served() as node, dialed(node) as peer:
        peer.sendall(UPGRADE.replace(b"Host", b"Origin: http://localhost:3000\r\nHost"))
        assert peer.recv(1 << 12).startswith(b"HTTP/1.1 101 ")
