"""Addresses behind proxies, and pages of other origins."""

import httpx
import pytest

from enc.core.log.commit import wire_commit
from enc.node.config import CorsSettings, LimitSettings, NodeConfig, ProxySettings, RateSettings
from tests.node.served import SMALL, Served, good

# Proxies


def proxied(*trusted: str) -> NodeConfig:
    rates = RateSettings(identity_per_s=0, address_per_s=1, address_burst=1)
    return NodeConfig(port=0, rates=rates, proxy=ProxySettings(trusted=trusted))


def limited(node: Served, forwarded: str) -> bool:
    return node.get("/info", headers={"x-forwarded-for": forwarded}).status_code == 429


@pytest.mark.parametrize("trusted", [(), ("10.0.0.0/8",), ("127.0.0.2",), ("::1",)])
def test_a_forwarded_address_is_not_believed_from_just_anybody(trusted: tuple[str, ...]) -> None:
    with Served(proxied(*trusted)) as node:
        assert [limited(node, f"203.0.113.{n}") for n in range(3)] == [False, True, True]


@pytest.mark.parametrize("trusted", [("127.0.0.1",), ("127.0.0.0/8", "10.0.0.1"), ("0.0.0.0/0", "::/0")])
def test_a_trusted_proxy_tells_clients_apart(trusted: tuple[str, ...]) -> None:
    with Served(proxied(*trusted)) as node:
        assert [limited(node, f"203.0.113.{n}") for n in (1, 2, 1, 2, 3)] == [False, False, True, True, False]


def test_what_a_client_says_of_itself_before_the_proxy_does_not_count() -> None:
    with Served(proxied("127.0.0.1", "10.0.0.1")) as node:
        chains = ("198.51.100.1, 203.0.113.1", "198.51.100.2, 203.0.113.1", "198.51.100.3, 203.0.113.1, 10.0.0.1")
        assert [limited(node, chain) for chain in chains] == [False, True, True]


def test_forwarded_nonsense_has_one_rate_for_all() -> None:
    with Served(proxied("127.0.0.1")) as node:
        assert [limited(node, text) for text in ("one", "two", "three; four", "999.1.1.1")] == [False, True, True, True]


def test_a_subscriber_has_one_rate_for_all_addresses_of_a_network() -> None:
    with Served(proxied("127.0.0.1")) as node:
        addresses = ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "203.0.113.1", "::ffff:203.0.113.1")
        assert [limited(node, address) for address in addresses] == [False, True, False, False, True]


# Browsers

ORIGIN = "https://app.example"


def crossing(*origins: str) -> NodeConfig:
    """A node that a proxy makes public."""
    cors, limits = CorsSettings(origins=origins), LimitSettings(body=4096)
    return NodeConfig(port=0, hosts=("node.example",), cors=cors, limits=limits)


def preflight(node: Served, origin: str, method: str = "POST") -> httpx.Response:
    headers = {"origin": origin, "access-control-request-method": method}
    return node.http.options("/", headers={**headers, "access-control-request-headers": "content-type"})


@pytest.mark.parametrize(
    ("origins", "allowed"), [((ORIGIN,), ORIGIN), (("*",), "*"), (("https://b.example", ORIGIN), ORIGIN)]
)
def test_a_page_of_an_allowed_origin_may_call(origins: tuple[str, ...], allowed: str) -> None:
    with Served(crossing(*origins)) as node:
        answer = preflight(node, ORIGIN)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, allowed)
        assert {"GET", "POST"} <= set(answer.headers["access-control-allow-methods"].split(", "))
        assert "content-type" in answer.headers["access-control-allow-headers"].lower()
        calls = [
            node.get("/info", headers={"origin": ORIGIN}),
            node.get("/nothing", headers={"origin": ORIGIN}),
            node.post(b"{}", headers={"origin": ORIGIN}),
            node.post(b" " * 5000, headers={"origin": ORIGIN}),
            node.post(wire_commit(node.manifest({**SMALL, "init": SMALL["init"][:1]})), headers={"origin": ORIGIN}),
        ]
        for call in calls:
            assert call.headers["access-control-allow-origin"] == allowed, call
            assert call.headers["access-control-expose-headers"].lower() == "retry-after, x-request-id"
        assert [call.status_code for call in calls] == [200, 404, 400, 413, 200]


def test_a_page_of_another_origin_may_not() -> None:
    with Served(crossing(ORIGIN)) as node:
        for origin in ("https://evil.example", "http://app.example", "https://app.example:8443", "null"):
            answer = preflight(node, origin)
            assert (answer.status_code, answer.json()["code"]) == (403, "ORIGIN_NOT_ALLOWED")
            assert "access-control-allow-origin" not in answer.headers
            assert "access-control-allow-origin" not in node.get("/info", headers={"origin": origin}).headers


def test_no_page_may_where_no_origin_is_named() -> None:
    with Served(crossing()) as node:
        good(node.get("/info"))
        assert preflight(node, ORIGIN).status_code == 403
        assert "access-control-allow-origin" not in node.get("/info", headers={"origin": ORIGIN}).headers


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH"])
def test_a_page_may_only_get_and_post(method: str) -> None:
    with Served(crossing(ORIGIN)) as node:
        assert preflight(node, ORIGIN, method).status_code == 400
