"""Checks the headers Host and Origin, which tell for which site a browser sends a request.

A page of a foreign site can reach every server that its visitor can reach: by requests to another
origin, or by a name of the site that leads to the server's address (DNS rebinding). A server for one
machine must not act for such pages. Other programs can send any Host and Origin: these checks
protect users of browsers, and do not keep other programs out.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from msgspec import Struct

from enc.core.errors import PeerError

_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)(?:%[^\[\]/@\s]+)?\]|([^\[\]:/@\s]+))(?::[0-9]*)?").fullmatch
_ORIGIN = re.compile(r"(https?)://([^/\s?#@]+)").fullmatch
_PORTS = {"http": ":80", "https": ":443"}
"""Ports that an Origin leaves out; a proxy may add them to Host."""
_HEADERS = frozenset((b"host", b"origin"))
_SHOWN = 100
"""Most characters of a header that an error repeats."""


class HostNotServed(PeerError):
    """The server does not answer requests for this host's name."""

    code, status = "HOST_NOT_SERVED", 421


class OriginNotAllowed(PeerError):
    """Pages of this origin may not call the server."""

    code, status = "ORIGIN_NOT_ALLOWED", 403


class SiteRules(Struct, frozen=True, kw_only=True):
    """The sites that a server answers.

    `hosts`: the names under which it is reached. If there are none, the server answers for every
    name, unless it listens on loopback. `public_url`: its URL from outside, if known; the name in
    it is answered, too. `origins`: origins whose pages may call it; `*` means every origin, but
    only pages of this machine if the server is known by no name and listens on loopback, or if it
    is `private`: it calls private addresses when strangers ask. The other fields tell readers of an
    error how to change the two lists.
    """

    hosts: tuple[str, ...] = ()
    public_url: str = ""
    origins: tuple[str, ...] = ("*",)
    private: bool = False
    hosts_setting: str = "add the name to the setting hosts"
    origins_setting: str = "add the origin to the setting origins"


class SiteCheck:
    """Applies the rules on one listening address."""

    def __init__(self, rules: SiteRules, listening: str) -> None:
        public, is_local = _host_of(rules.public_url), is_loopback(listening)
        self._rules, self._names = (
            rules,
            frozenset(_plain(name) for host in (*rules.hosts, public) if (name := ascii_name(host))),
        )
        self._checks_host = is_local or bool(rules.hosts)
        self._origins = frozenset(_ascii_origin(origin.lower()) for origin in rules.origins)
        self._any_origin = "*" in rules.origins and not rules.private and (bool(self._names) or not is_local)
        self._checks_nothing = self._any_origin and not self._checks_host

    def relevant(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Return the headers that the check depends on; equal ones need only one check."""
        if self._checks_nothing:
            return []
        return [header for header in headers if header[0] in _HEADERS]

    def check(self, headers: Iterable[tuple[bytes, bytes]], local: str) -> None:
        """Raise HostNotServed or OriginNotAllowed. `local`: the address at which the peer connected.

        A request without Host passes: no browser sends one.
        """
        found = [(name, value.decode("latin-1").strip().lower()) for name, value in headers]
        hosts = [value for name, value in found if name == b"host"]
        for host in hosts if self._checks_host else ():
            if not self._is_known(host, local):
                raise HostNotServed(
                    f"host: this server does not answer for {host[:_SHOWN]!r}: {self._rules.hosts_setting}"
                )
        for origin in (value for name, value in found if name == b"origin"):
            if not (self._any_origin or self._may_call(origin, hosts, local)):
                raise OriginNotAllowed(
                    f"origin: pages of {origin[:_SHOWN]!r} may not call this server: {self._rules.origins_setting}"
                )

    def _may_call(self, origin: str, hosts: list[str], local: str) -> bool:
        if origin in self._origins:
            return True
        parts = _ORIGIN(origin)
        if parts is None:
            return False
        scheme, authority = parts.groups()
        is_own = [authority] == [host.removesuffix(_PORTS[scheme]) for host in hosts] and self._is_known(
            authority, local
        )
        return is_own or ("*" in self._origins and is_loopback(_name(authority)))

    def _is_known(self, authority: str, local: str) -> bool:
        """Return whether this names the server: by loopback, its own address, or a configured name."""
        name = _name(authority)
        return is_loopback(name) or name in self._names or (name == _plain(local) and bool(name))


def _name(authority: str) -> str:
    """Return a host's name without its port; empty if it is malformed."""
    parts = _AUTHORITY(authority)
    return _plain(parts[1] or parts[2]) if parts else ""


def _plain(name: str) -> str:
    """Return a name or an address in the form in which two are compared, without an address's zone."""
    name = name.lower().removeprefix("[").removesuffix("]").removesuffix(".")
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return name
    return str(getattr(address, "ipv4_mapped", None) or address)


def ascii_name(name: str) -> str:
    """Return a configured name as browsers send it, with xn-- labels; empty if it has no such form.

    Not for names that peers send: these are so already, and long ones would take long.
    """
    if name.isascii():
        return name
    import httpx  # only for these names

    try:
        return httpx.URL(scheme="https", host=name.lower()).raw_host.decode()
    except httpx.InvalidURL:
        return ""


def _ascii_origin(origin: str) -> str:
    scheme, _, authority = origin.partition("://")
    name, colon, port = authority.partition(":")
    return origin if origin.isascii() else f"{scheme}://{ascii_name(name)}{colon}{port}"


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(name: str) -> bool:
    """Return whether a name or an address leads to this machine, whatever a name server says."""
    name = _plain(name)
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
