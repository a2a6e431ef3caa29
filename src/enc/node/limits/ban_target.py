"""What a ban is about: an identity, or a network of addresses."""

import ipaddress
import re

from enc.core.errors import MisuseError
from enc.runtime.rate_limit import address_key

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

V6_BITS = 64
"""The node tells IPv6 addresses apart by this many bits: a subscriber has at least as many addresses."""
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_IDENTITY = re.compile(r"[0-9a-f]{64}").fullmatch


def parse_target(text: str) -> bytes | Network:
    """Return the identity, or the network of an address or of a CIDR. Raises MisuseError.

    Of IPv6 addresses the first 64 bits count; an IPv4 address inside IPv6 is the IPv4 address.
    """
    if _IDENTITY(text.lower()):
        return bytes.fromhex(text)
    try:
        if "%" in text:
            raise ValueError("a zone is one of this machine alone")
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise MisuseError(
            f"{text!r}: expected an identity (64 hex digits), an IP address, or a network such as 203.0.113.0/24"
        ) from None
    if network.prefixlen == network.max_prefixlen:
        return ipaddress.ip_network(address_key(str(network.network_address)))
    if isinstance(network, ipaddress.IPv4Network):
        return network
    if network.subnet_of(_MAPPED):
        return ipaddress.IPv4Network((network.network_address.packed[12:], network.prefixlen - 96))
    return network.supernet(new_prefix=V6_BITS) if network.prefixlen > V6_BITS else network


def format_target(target: bytes | Network) -> str:
    """Return the text of a target, one for each."""
    if isinstance(target, bytes):
        return target.hex()
    return str(target.network_address) if target.version == 4 and target.prefixlen == 32 else str(target)
