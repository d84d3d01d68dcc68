"""Determines the client's address, through trusted reverse proxies only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from service.errors import InvalidSetting
from service.web.http.types import Connection

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
UNKNOWN = "unknown"
_MAX_HOPS = 32
_OF_PROXIES = ("x-forwarded-for", "forwarded", "x-real-ip", "via")
_LONGEST = 64  # characters of one hop
_WITH_PORT = re.compile(r"^(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?$")  # as some proxies write it


def networks(texts: Sequence[str], setting: str = "ADVISOR_TRUSTED_PROXIES") -> tuple[Network, ...]:
    """Return the networks in a setting. Raises InvalidSetting for an invalid one."""
    try:
        return tuple(ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise InvalidSetting(f"{setting}: {error}", field=setting) from error


def client_of(request: Connection, trusted: Sequence[Network]) -> str:
    """Return the client's address; for IPv6 its /64, which belongs to one customer."""
    address = _address_of(request, trusted)
    return _key(address) if address else UNKNOWN


def is_within(request: Connection, trusted: Sequence[Network], within: Sequence[Network]) -> bool:
    """Return whether the client is in one of `within`; False behind an untrusted proxy, which could be anybody."""
    if any(name in request.headers for name in _OF_PROXIES):
        nearest = _address(request.client.host) if request.client else None
        if nearest is None or not any(nearest in network for network in trusted):
            return False
    address = _address_of(request, trusted)
    return address is not None and any(address in network for network in within)


def _address_of(request: Connection, trusted: Sequence[Network]) -> Address | None:
    """Return the client's address: that of the connection, and as long as that is trusted, the next one it reports."""
    nearest = request.client.host if request.client else UNKNOWN
    # A proxy may add a header line of its own instead of extending the client's; the last entry is the nearest hop's.
    reported = ",".join(request.headers.getall("x-forwarded-for", [""])).split(",")[-_MAX_HOPS:]
    address = _address(nearest)
    while address and reported and any(address in network for network in trusted):
        further = _address(reported.pop().strip())
        if further is None:
            break
        address = further
    return address


@lru_cache(maxsize=4096)  # the same few clients and proxies come with every request
def _address(text: str) -> Address | None:
    try:
        address = ip_address(_WITH_PORT.sub(r"\1\2", text[:_LONGEST]))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _key(address: Address) -> str:
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)
