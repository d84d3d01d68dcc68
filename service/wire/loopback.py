"""Whether a host is this machine itself."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host, a name or an address without brackets, is this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
