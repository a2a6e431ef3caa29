"""Which URLs a server may call for others: the form of a URL, and the addresses of its host.

A server that calls any registered URL is a way into its own network. So the form is checked when
the URL is registered, and the address before every connection: a name may resolve to another
address each time.
"""

import re
import socket
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import cast
from urllib.parse import SplitResult, urlsplit

from enc.core.errors import InvalidEndpointUrl

MAX_URL = 2048
HTTPS, MIN_OTHER_PORT = 443, 1024

Address = tuple[socket.AddressFamily, tuple[str | int, ...]]
"""A family of addresses, and what `connect` takes."""
Resolve = Callable[[str, int], Sequence[Address]]
"""Gives the addresses of a host and port."""

_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(?<!-)(\.(?!-)[a-z0-9-]{1,63}(?<!-))*")
_BRACKETED = re.compile(r"\[[0-9a-fA-F:.]+\](:[0-9]+)?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A last label of this form makes browsers read a host as an IPv4 address, in one of many
notations.
"""

_NOT_PUBLIC_6 = [
    ip_network(text)
    for text in (
        "::/96",  # unspecified, loopback, and IPv4 addresses in an old notation
        "::ffff:0:0:0/96",  # IPv4-translated
        "64:ff9b::/96",  # translated to IPv4 by the network
        "64:ff9b:1::/48",
        "100::/64",  # discarded
        "2001::/23",  # Teredo, benchmarks, ORCHID: special protocols
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
]
_NOT_PUBLIC_4 = [
    ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]


class HttpEndpoint:
    """A URL in the form of an endpoint. `host` is a name or an address without brackets."""

    __slots__ = ("host", "is_tls", "port", "url")

    def __init__(self, url: str, host: str, port: int, is_tls: bool) -> None:
        self.url, self.host, self.port, self.is_tls = url, host, port, is_tls


def check_endpoints(urls: Iterable[str], *, allow_private: bool) -> None:
    """Raise InvalidEndpointUrl unless every URL that a commit would register has the form of an
    endpoint.
    """
    for url in urls:
        parse_endpoint(url, allow_private=allow_private)


def parse_endpoint(url: str, *, allow_private: bool = False) -> HttpEndpoint:
    """Parse a URL, or raise InvalidEndpointUrl. `allow_private` also permits http, any port and any
    address.
    """
    if not 0 < len(url) <= MAX_URL:
        raise InvalidEndpointUrl(f"endpoint: a URL must have 1 to {MAX_URL} characters")
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise InvalidEndpointUrl(
            "endpoint: a URL must be printable ASCII without backslashes; write a name in its xn-- form"
        )
    parts, port = _split(url)
    if parts.scheme != "https" and not (allow_private and parts.scheme == "http"):
        raise InvalidEndpointUrl("endpoint: the scheme must be https")
    if "@" in parts.netloc:
        raise InvalidEndpointUrl("endpoint: a URL must not contain a user name or a password")
    if "#" in url:
        raise InvalidEndpointUrl("endpoint: a URL must not have a fragment")
    default = HTTPS if parts.scheme == "https" else 80
    port = default if port is None else port
    if not allow_private and port != HTTPS and port < MIN_OTHER_PORT:
        raise InvalidEndpointUrl(f"endpoint: the port must be {HTTPS}, or {MIN_OTHER_PORT} or above")
    host = _host(parts)
    if not allow_private and (address := _literal(host)) is not None:
        check_address(address)
    return HttpEndpoint(url, host, port, parts.scheme == "https")


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as e:
        raise InvalidEndpointUrl(f"endpoint: not a URL: {e}") from None
    if port == 0:
        raise InvalidEndpointUrl("endpoint: port 0 is invalid")
    return parts, port


def _host(parts: SplitResult) -> str:
    """Return the host in the one notation that all software reads alike."""
    host = parts.hostname or ""
    if parts.netloc.startswith("["):
        if _literal(host) is None or not _BRACKETED.fullmatch(parts.netloc):
            raise InvalidEndpointUrl("endpoint: not an IPv6 address")
        return host
    if len(host) > 253 or not _NAME.fullmatch(host):
        raise InvalidEndpointUrl("endpoint: the host is neither a name nor an address")
    if _NUMERIC.fullmatch(host.rpartition(".")[2]) and _literal(host) is None:
        raise InvalidEndpointUrl("endpoint: an IPv4 address must be four decimal numbers")
    return host


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def resolve(host: str, port: int) -> Sequence[Address]:
    """Resolve a name as the system does. Blocks; raises OSError, or UnicodeError (a ValueError)."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, cast(tuple[str | int, ...], address)) for family, _, _, _, address in found]


def resolve_checked(endpoint: HttpEndpoint, *, allow_private: bool, resolver: Resolve = resolve) -> list[Address]:
    """Return the addresses that the endpoint's host has now: connect to these, and not to its name.

    Raises InvalidEndpointUrl if any of them is not public, unless `allow_private`; and what
    `resolver` raises.
    """
    found = resolver(endpoint.host, endpoint.port)
    if not allow_private:
        check_addresses(str(address[0]) for _, address in found)
    return list(dict.fromkeys(found))


def network_of(address: Address) -> str:
    """Return the smallest block that one party usually has: an IPv4 address, or the /64 of an IPv6
    one.
    """
    found = _literal(str(address[1][0]))
    if isinstance(found, IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ip_network((found.packed, 64), strict=False))
    return str(found)


def check_addresses(found: Iterable[str]) -> None:
    """Raise InvalidEndpointUrl if any address that a host resolved to is not public."""
    for text in found:
        address = _literal(text)
        if address is None:
            raise InvalidEndpointUrl("endpoint: its host has no public address")
        check_address(address)


def check_address(address: IPv4Address | IPv6Address) -> None:
    """Raise InvalidEndpointUrl unless the address is public.

    The message does not repeat the address: callers could probe names with it.
    """
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if not _is_public(mapped or address):
        raise InvalidEndpointUrl("endpoint: its host has no public address")


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Return whether an address is public by our own list: a library's list changes with its
    version.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    is_isatap = address.packed[8:12] in (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")
    return not (address.scope_id or is_isatap or any(address in network for network in _NOT_PUBLIC_6))
