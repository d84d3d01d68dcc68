"""Connections to checked addresses: a name is resolved once, checked, and connected to as checked.

If a name were checked here and resolved again later, its server could give another address in between.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from service.logs import Log
from service.outgoing.rules import Rule

log = Log("outgoing")

_MOST_ADDRESSES = 4  # tried per name
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the IPv4 address is the last 32 bits
_PROTOCOLS = IPv4Network("192.0.0.0/24")  # some Python versions call it global; 192.0.0.192 serves a cloud's metadata
_TUNNELS = (IPv6Network("2001::/32"), IPv6Network("2002::/16"))  # Teredo, 6to4: their real target is hidden


def is_public(text: str) -> bool:
    """Return whether an address is on the public internet, not this machine's, its network's or a cloud's metadata."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return _is_public_v4(address) if isinstance(address, IPv4Address) else _is_public_v6(address)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved or address in _PROTOCOLS)


def _is_public_v6(address: IPv6Address) -> bool:
    if address in _NAT64:
        return _is_public_v4(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GLOBAL_UNICAST and address.is_global and not any(address in tunnel for tunnel in _TUNNELS)


def with_checked_addresses(transport: Any, rule: Rule, max_connections: int | None, core: Any) -> None:
    """Make a transport of httpx or its fork connect through CheckedBackend; neither offers a parameter for that."""
    pool = transport._pool
    if type(pool) is not core.ConnectionPool:
        raise TypeError("this version of httpx keeps its connections elsewhere")
    transport._pool = core.ConnectionPool(
        ssl_context=pool._ssl_context,
        max_connections=max_connections,
        max_keepalive_connections=max_connections,
        keepalive_expiry=5.0,
        network_backend=CheckedBackend(rule.may_be_private, core),
    )


class CheckedBackend:
    """Opens TCP connections, to public addresses only unless `may_be_private(host)`: a `NetworkBackend` of `core`.

    `core`: the connection library in use, `httpcore` or huggingface_hub's `httpcore2`, whose errors are raised.
    """

    def __init__(self, may_be_private: Callable[[str], bool], core: Any) -> None:
        self._may_be_private, self._core, self._backend = may_be_private, core, core.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Any:
        """Return a connection to the first address of `host` that answers. Raises `core`'s ConnectError."""
        failure: Exception = self._core.ConnectError(f"{host} has no address that may be asked")
        for address in self._addresses(host, port):
            try:
                stream = self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (self._core.ConnectError, self._core.ConnectTimeout) as error:
                failure = error
            else:
                return stream
        raise failure

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> Any:
        """Refuse unix sockets. Raises `core`'s ConnectError."""
        raise self._core.ConnectError("nothing is asked over a unix socket")

    def _addresses(self, host: str, port: int) -> list[str]:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self._core.ConnectError(f"{host} is not known") from error
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        if not self._may_be_private(host):
            private = [address for address in addresses if not is_public(address)]
            if private:
                log.warning("address.refused", detail=f"{host} is at {private[0]}")
            addresses = [address for address in addresses if address not in private]
        return addresses[:_MOST_ADDRESSES]
