"""Which endpoints may be called: every known way to misdirect a node's call is rejected."""

from ipaddress import IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enc.core.errors import InvalidEndpointUrl
from enc.node.config import EndpointSettings, NodeConfig
from enc.runtime.endpoints import MAX_URL, check_address, parse_endpoint
from tests.core.world import give, pub
from tests.node.served import Json, Served
from tests.runtime.endpoint_cases import ADDRESSES, HOSTILE, NEIGHBOURS

GOOD = [
    ("https://example.com/", "example.com", 443),
    ("https://example.com", "example.com", 443),
    ("HTTPS://EXAMPLE.com/hook?x=1&y=%20", "example.com", 443),
    ("https://example.com:443/", "example.com", 443),
    ("https://example.com:1024/a", "example.com", 1024),
    ("https://example.com:65535/a", "example.com", 65535),
    ("https://a-b.c1.example.co.uk/x", "a-b.c1.example.co.uk", 443),
    ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", 443),
    ("https://93.184.216.34/", "93.184.216.34", 443),
    ("https://[2606:2800:220:1::1]:8443/x", "2606:2800:220:1::1", 8443),
    ("https://intranet/", "intranet", 443),  # a name: its address decides, when it is called
]


@pytest.mark.parametrize(("url", "host", "port"), GOOD)
def test_a_url_that_may_be_called(url: str, host: str, port: int) -> None:
    endpoint = parse_endpoint(url)
    assert (endpoint.url, endpoint.host, endpoint.port, endpoint.is_tls) == (url, host, port, True)


@pytest.mark.parametrize("url", HOSTILE)
def test_a_url_that_must_not_be_called(url: str) -> None:
    with pytest.raises(InvalidEndpointUrl):
        parse_endpoint(url)


@pytest.mark.parametrize("text", ADDRESSES)
def test_an_address_that_must_not_be_called(text: str) -> None:
    address = ip_address(text)
    with pytest.raises(InvalidEndpointUrl, match="no public address"):
        check_address(address)
    host = f"[{text}]" if ":" in text else text
    with pytest.raises(InvalidEndpointUrl):
        parse_endpoint(f"https://{host}/")


@pytest.mark.parametrize("text", NEIGHBOURS.split())
def test_an_address_that_may_be_called(text: str) -> None:
    check_address(ip_address(text))


@given(st.ip_addresses())
def test_nothing_that_the_library_calls_private_is_called(address: object) -> None:
    """Our list is at least as strict as the library's."""
    found = ip_address(str(address))
    if not found.is_global or found.is_multicast:
        with pytest.raises(InvalidEndpointUrl):
            check_address(found)


@given(st.integers(0, 2**32 - 1))
def test_an_ipv4_address_is_judged_alike_however_it_is_wrapped(number: int) -> None:
    plain, mapped = ip_address(number), IPv6Address((0xFFFF << 32) | number)
    assert is_public(plain) == is_public(mapped)
    for wrapped in ("64:ff9b::", "::", "2002::"):
        network = ip_network(f"{wrapped}/96")
        assert not is_public(IPv6Address(int(network.network_address) | number))


def is_public(address: object) -> bool:
    try:
        check_address(address)  # type: ignore[arg-type]
    except InvalidEndpointUrl:
        return False
    return True


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.com:{text}/", f"https://[{text}]/"):
        try:
            endpoint = parse_endpoint(url)
        except InvalidEndpointUrl:
            continue
        assert endpoint.host
        assert endpoint.port == 443 or endpoint.port > 1023


def test_for_development_everything_that_has_the_form_of_a_url_may_be_called() -> None:
    for url, port in (("http://127.0.0.1:8080/x", 8080), ("http://localhost/", 80), ("https://10.0.0.1:22/", 22)):
        assert parse_endpoint(url, allow_private=True).port == port
    for url in ("ftp://localhost/", "http://user@localhost/", "http://127.1/", "http://localhost:0/", ""):
        with pytest.raises(InvalidEndpointUrl):
            parse_endpoint(url, allow_private=True)


def test_a_url_of_the_greatest_length() -> None:
    url = "https://example.com/".ljust(MAX_URL, "a")
    assert parse_endpoint(url).url == url


# What a commit would register

MANIFEST: Json = {
    "enc_v": 2,
    "states": ["MEMBER"],
    "traits": ["owner(0)", "helper(1)"],
    "grants": [{"event": "Grant", "operator": "owner", "scope": ["MEMBER"], "trait": ["helper"]}],
    "init": [{"identity": pub("alice"), "state": "MEMBER", "traits": ["owner"]}],
}
STRICT = NodeConfig(port=0)
PRIVATE = "https://127.0.0.1/hook"


def bundle(url: object) -> Json:
    return {
        "operations": [
            {"type": "Grant", **give("alice", "helper")},
            {"type": "Grant", **give("alice", "helper", endpoint=url)},
        ]
    }


@pytest.mark.parametrize("url", [PRIVATE, "http://example.com/", "https://example.com:80/", ""])
def test_a_node_registers_no_endpoint_that_it_would_not_call(url: str) -> None:
    with Served(STRICT) as node:
        enclave = node.create(MANIFEST)
        assert enclave.refused("alice", "Grant", give("alice", "helper", endpoint=url)).code == "INVALID_ENDPOINT_URL"
        refused = enclave.refused("alice", "AC_Bundle", bundle(url))
        assert refused.code in ("INVALID_ENDPOINT_URL", "AC_BUNDLE_FAILED")
        assert enclave.send("alice", "Grant", give("alice", "helper", endpoint="https://example.com/")).seq == 1
        assert enclave.send("alice", "AC_Bundle", bundle("https://example.com/")).seq == 2


def test_a_name_that_is_spelt_with_escapes_is_the_same_name() -> None:
    with Served(STRICT) as node:
        enclave = node.create(MANIFEST)
        content = f'{{"target":"{pub("alice")}","trait":"helper","\\u0065ndpoint":"{PRIVATE}"}}'
        assert enclave.refused("alice", "Grant", content).code == "INVALID_ENDPOINT_URL"


def test_unless_its_operator_opens_them() -> None:
    with Served(replace(STRICT, endpoints=EndpointSettings(allow_private=True))) as node:
        enclave = node.create(MANIFEST)
        assert enclave.send("alice", "Grant", give("alice", "helper", endpoint="http://127.0.0.1:80/")).seq == 1


@pytest.mark.parametrize(
    "content", ["endpoint", '{"endpoint": 1}', '{"operations": {"endpoint": "x"}}', '{"operations": ["endpoint"]}']
)
@pytest.mark.parametrize("type_", ["Grant", "AC_Bundle"])
def test_whatever_else_is_wrong_with_a_commit_is_said_by_its_rules(type_: str, content: str) -> None:
    with Served(STRICT) as node:
        assert node.create(MANIFEST).refused("alice", type_, content).code == "INVALID_COMMIT"


def test_an_endpoint_in_another_event_is_only_a_word() -> None:
    with Served(STRICT) as node:
        enclave = node.create({**MANIFEST, "customs": [{"event": "note", "operator": "MEMBER", "ops": ["C"]}]})
        assert enclave.send("alice", "note", {"endpoint": PRIVATE}).seq == 1
