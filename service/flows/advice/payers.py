"""Who pays for an advice with a share of the workers: a network, an account, or a place in chat.

A share is worth something only if nobody has as many as he likes. So a network counts as one however many addresses
it has, and accounts add a few shares to the network that they ask from, not one each.
"""

from __future__ import annotations

import hashlib
from ipaddress import IPv6Network, ip_network

import msgspec

_IPV6_CUSTOMER = 56  # bits: what providers give a household (RIPE-690); a server has a /64 of it
_IPV6_SITE = 48  # bits: what anybody gets of a tunnel broker
_SHARES_OF_SITE = 8  # of the 256 customers' prefixes in it
_SHARES_OF_ACCOUNTS = 3  # of all accounts that ask from one network, besides the one of those without an account
UNKNOWN = "net:unknown"


class Payer(msgspec.Struct, frozen=True):
    """Whose share it is, and whether an account asks, which may ask for more."""

    name: str
    account: bool = False


NOBODY_KNOWN = Payer(UNKNOWN)


def network_payer(client: str) -> Payer:
    """Return who pays for a client without an account. `client`: an IPv4 address, an IPv6 prefix or address."""
    return Payer(f"net:{_network(client)}")


def account_payer(account_id: str, client: str, *, trusted: bool) -> Payer:
    """Return who pays for an account: itself where an operator trusts it, else one of its network's few shares."""
    if trusted:
        return Payer(f"account:{account_id}", account=True)
    return Payer(f"accounts:{_network(client)}#{_one_of(_SHARES_OF_ACCOUNTS, account_id)}", account=True)


def place_payer(place: str) -> Payer:
    """Return who pays for a question in chat: the guild or workspace, or the person in direct messages."""
    return Payer(f"place:{place}")


def _network(client: str) -> str:
    try:
        network = ip_network(client, strict=False)
    except ValueError:
        return "unknown"
    if not isinstance(network, IPv6Network):
        return str(network.network_address)
    if network.prefixlen < _IPV6_CUSTOMER:
        return str(network)
    customer, site = network.supernet(new_prefix=_IPV6_CUSTOMER), network.supernet(new_prefix=_IPV6_SITE)
    return f"{site}#{_one_of(_SHARES_OF_SITE, str(customer))}"


def _one_of(n: int, member: str) -> int:
    return int.from_bytes(hashlib.sha256(member.encode()).digest()[:4]) % n
