"""Who asks: the client's address, seen through trusted reverse proxies only."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias

from litestar.connection import ASGIConnection

from service.errors import InvalidSetting

Network: TypeAlias = IPv4Network | IPv6Network
UNKNOWN = "unknown"
_MAX_HOPS = 32


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Return the networks of trusted proxies. Raises InvalidSetting for a text that is none."""
    try:
        return tuple(ip_network(text, strict=False) for text in texts)
    except ValueError as error:
        raise InvalidSetting(f"ADVISOR_TRUSTED_PROXIES: {error}", field="ADVISOR_TRUSTED_PROXIES") from error


def client_of(request: ASGIConnection[Any, Any, Any, Any], trusted: Sequence[Network]) -> str:
    """Return the client's address, an IPv6 one as its /64, which is what one customer gets.

    The nearest hop is the connection's; each trusted one is replaced by the address it reports, from the right.
    """
    nearest = request.client.host if request.client else UNKNOWN
    # A proxy may append its line to the client's own instead of joining them: the last one is the nearest hop's.
    reported = ",".join(request.headers.getall("x-forwarded-for", [""])).split(",")[-_MAX_HOPS:]
    address = _address(nearest)
    while address and reported and any(address in network for network in trusted):
        further = _address(reported.pop().strip())
        if further is None:
            break
        address = further
    return _key(address) if address else UNKNOWN


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _key(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)
