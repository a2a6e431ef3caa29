"""The values of Host and Origin that a server answers."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from enc.core.errors import PeerError
from enc.runtime.serving.sites import HostNotServed, OriginNotAllowed, SiteCheck, SiteRules, is_loopback
from tests.runtime.serving.tiny_server import running

LOCAL, PUBLIC = "127.0.0.1", "192.0.2.1"
EVIL = "https://evil.example"


def outcome(rules: SiteRules, listening: str, host: str | None, origin: str | None = None, local: str = LOCAL) -> Any:
    """Return the class of the error for a request with these headers, or None."""
    given = [(b"host", host), (b"origin", origin)]
    headers = [(name, value.encode("latin-1")) for name, value in given if value is not None]
    check = SiteCheck(rules, listening)
    try:
        check.check(headers, local)
    except PeerError as e:
        return type(e)
    return None


SERVED = """localhost LOCALHOST:7700 localhost. a.localhost:1 127.0.0.1 127.9.9.9:7700 [::1] [::1]:7700
[::ffff:127.0.0.1]:80 localhost:"""
NOT_SERVED = """evil.example evil.example:7700 localhost.evil.example 127.0.0.1.evil.example evil@localhost [::2]
::1 [::1 localhost/x localhost:7700:1 0.0.0.0 192.168.1.1 xlocalhost \xfflocalhost 0x7f.1"""


@pytest.mark.parametrize("host", SERVED.split())
def test_a_server_on_loopback_answers_for_loopback(host: str) -> None:
    assert outcome(SiteRules(), LOCAL, host) is None
    assert outcome(SiteRules(), "::1", host, local="::1") is None


@pytest.mark.parametrize("host", ["", *NOT_SERVED.split()])
def test_a_server_on_loopback_answers_for_no_other_name(host: str) -> None:
    assert outcome(SiteRules(), LOCAL, host) is HostNotServed


def test_a_request_without_host_comes_from_no_browser() -> None:
    assert outcome(SiteRules(), LOCAL, None) is None


def test_of_two_hosts_each_must_be_served() -> None:
    check = SiteCheck(SiteRules(), LOCAL)
    with pytest.raises(HostNotServed):
        check.check([(b"host", b"localhost"), (b"host", b"evil.example")], LOCAL)


def test_names_that_are_configured() -> None:
    rules = SiteRules(hosts=("Enc.Example.org", "10.0.0.5"))
    for listening in (LOCAL, PUBLIC):
        for host in ("enc.example.org", "enc.example.org:443", "ENC.EXAMPLE.ORG.", "10.0.0.5:80", "localhost"):
            assert outcome(rules, listening, host) is None
        assert outcome(rules, listening, "evil.example") is HostNotServed
        assert outcome(rules, listening, "sub.enc.example.org") is HostNotServed
    assert outcome(rules, PUBLIC, "192.168.1.7:7700", local="192.168.1.7") is None
    assert outcome(rules, PUBLIC, "192.168.1.8:7700", local="192.168.1.7") is HostNotServed


@pytest.mark.parametrize("name", ["München.example", "münchen.example.", "xn--mnchen-3ya.example"])
def test_a_name_in_any_script_is_known_as_browsers_send_it(name: str) -> None:
    for rules in (SiteRules(hosts=(name,)), SiteRules(public_url=f"https://{name}/push")):
        assert outcome(rules, LOCAL, "xn--mnchen-3ya.example:443") is None
        assert outcome(rules, LOCAL, "xn--mnchen-3yb.example") is HostNotServed


def test_an_origin_in_any_script_is_known_as_browsers_send_it() -> None:
    rules = SiteRules(origins=("https://München.example:8443",))
    assert outcome(rules, LOCAL, "localhost", "https://xn--mnchen-3ya.example:8443") is None
    assert outcome(rules, LOCAL, "localhost", "https://xn--mnchen-3ya.example") is OriginNotAllowed


def test_the_zone_of_an_address_does_not_matter() -> None:
    for host, local in (
        ("[fe80::1%25eth0]:7700", "fe80::1"),
        ("[fe80::1]", "fe80::1%eth0"),
        ("[fe80::1%eth0]", "fe80::1"),
    ):
        assert outcome(SiteRules(), LOCAL, host, local=local) is None
        assert outcome(SiteRules(), LOCAL, host, local="fe80::2") is HostNotServed
    assert outcome(SiteRules(), LOCAL, "[fe80::1%]", local="fe80::1") is HostNotServed


def test_a_name_without_a_form_for_browsers_matches_nothing() -> None:
    assert outcome(SiteRules(hosts=("ö" * 70,)), LOCAL, "") is HostNotServed


def test_a_public_server_without_names_answers_for_all() -> None:
    for rules in (SiteRules(), SiteRules(public_url="https://enc.example.org")):
        assert outcome(rules, PUBLIC, "any.example", EVIL) is None


@pytest.mark.parametrize("url", ["https://enc.example.org/push", "https://enc.example.org:8443"])
def test_the_name_of_the_public_url_is_served(url: str) -> None:
    rules = SiteRules(public_url=url)
    assert outcome(rules, LOCAL, "enc.example.org", EVIL) is None
    assert outcome(rules, LOCAL, "evil.example") is HostNotServed
    assert outcome(SiteRules(public_url="http://[x"), LOCAL, "x") is HostNotServed


# Origins


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173", "http://a.localhost"]
)
def test_pages_of_this_machine_may_call_a_local_server(origin: str) -> None:
    for private in (False, True):
        assert outcome(SiteRules(private=private), LOCAL, "localhost:7700", origin) is None


@pytest.mark.parametrize("origin", [EVIL, "null", "", "file://", "http://localhost.evil.example", "http://a@localhost"])
def test_pages_of_other_sites_may_not(origin: str) -> None:
    assert outcome(SiteRules(), LOCAL, "localhost:7700", origin) is OriginNotAllowed
    for listening in (LOCAL, PUBLIC):
        rules = SiteRules(private=True, hosts=("enc.example.org",))
        assert outcome(rules, listening, "localhost:7700", origin) is OriginNotAllowed


def test_origins_that_are_listed() -> None:
    rules = SiteRules(origins=("https://App.example",), private=True)
    assert outcome(rules, LOCAL, "localhost", "https://app.example") is None
    for origin in ("http://app.example", "https://app.example:8443", "http://localhost:3000", EVIL):
        assert outcome(rules, LOCAL, "localhost", origin) is OriginNotAllowed
        assert outcome(rules, PUBLIC, "enc.example.org", origin) is OriginNotAllowed


def test_the_server_s_own_pages_may_call_it() -> None:
    rules = SiteRules(origins=(), hosts=("enc.example.org",))
    assert outcome(rules, LOCAL, "localhost:7780", "http://localhost:7780") is None
    assert outcome(rules, LOCAL, "enc.example.org", "https://enc.example.org") is None
    assert outcome(rules, LOCAL, "localhost:7780", "http://localhost:3000") is OriginNotAllowed
    assert outcome(rules, LOCAL, "enc.example.org", "https://localhost") is OriginNotAllowed


def test_a_proxy_may_add_the_port_that_an_origin_leaves_out() -> None:
    rules = SiteRules(origins=(), hosts=("enc.example.org",))
    assert outcome(rules, LOCAL, "enc.example.org:443", "https://enc.example.org") is None
    assert outcome(rules, LOCAL, "enc.example.org:80", "http://enc.example.org") is None
    for host, origin in (
        ("enc.example.org:80", "https://enc.example.org"),
        ("enc.example.org:8443", "https://enc.example.org"),
    ):
        assert outcome(rules, LOCAL, host, origin) is OriginNotAllowed


def test_a_private_server_takes_no_page_of_a_name_that_leads_to_it() -> None:
    """By DNS rebinding, a foreign page has the same Host and Origin."""
    rules = SiteRules(private=True)
    assert outcome(rules, PUBLIC, "evil.example:7700", "http://evil.example:7700", "10.1.1.1") is OriginNotAllowed
    assert outcome(rules, PUBLIC, "10.1.1.1:7700", "http://10.1.1.1:7700", "10.1.1.1") is None
    assert outcome(rules, PUBLIC, "node:7700", None, "10.1.1.1") is None


def test_equal_headers_need_one_check() -> None:
    headers = [(b"host", b"localhost"), (b"accept", b"*"), (b"origin", b"x")]
    assert SiteCheck(SiteRules(), LOCAL).relevant(headers) == [headers[0], headers[2]]
    assert SiteCheck(SiteRules(), PUBLIC).relevant(headers) == []


def test_names_of_loopback() -> None:
    assert not is_loopback("")
    assert not is_loopback("192.0.2.1")
    assert is_loopback("LOCALHOST")


# On a socket


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as server:
        yield server.url


@pytest.mark.parametrize(
    ("header", "status", "code"),
    [({"host": "evil.example:80"}, 421, "HOST_NOT_SERVED"), ({"origin": EVIL}, 403, "ORIGIN_NOT_ALLOWED")],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_request_for_another_site_does_not_reach_the_application(
    url: str, header: dict[str, str], status: int, code: str, method: str
) -> None:
    answer = httpx.request(method, url, headers=header, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "add the " in answer.json()["message"]
    assert "access-control-allow-origin" not in answer.headers


def test_each_request_of_a_connection_is_checked(url: str) -> None:
    with httpx.Client(base_url=url, trust_env=False) as client:
        assert [client.get("/").status_code for _ in range(2)] == [200, 200]
        assert client.get("/", headers={"host": "evil.example"}).status_code == 421
