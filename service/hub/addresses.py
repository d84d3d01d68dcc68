"""The addresses that may be read: the endpoint, and the hosts that the Hub serves files from (a rule of `outgoing`).

A redirect is untrusted. It is followed to https on a host of the Hub or one that the operator named, and to a loopback
address only if the endpoint is one itself. A numeric address is never among the Hub's own hosts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import TYPE_CHECKING

from service.engine.errors import InvalidInput
from service.hub.errors import HubReplyRefused
from service.outgoing.rules import Url, origin, stated_origin
from service.wire.loopback import is_loopback

if TYPE_CHECKING:
    import httpx

HUB_SUFFIXES = (".huggingface.co", ".hf.co")
HUB_HOSTS = ("huggingface.co", "hf.co")
ENDPOINT = "https://huggingface.co"


class Addresses:
    """The endpoint and the hosts allowed besides it."""

    def __init__(self, endpoint: str, hosts: Sequence[str] = (), url_hosts: Sequence[str] = ()) -> None:
        """`hosts`: names, or suffixes that begin with a dot, allowed besides the Hub's own; `url_hosts`: names of hosts
        that serve files without being a Hub."""
        self._url_hosts = frozenset(host.lower() for host in url_hosts)
        self._endpoint = stated_origin(endpoint)
        self.is_loopback = is_loopback(self._endpoint.host)
        self._suffixes = HUB_SUFFIXES + tuple(h.lower() for h in hosts if h.startswith("."))
        named = frozenset(h.lower() for h in hosts if not h.startswith("."))
        self._hosts = frozenset((*HUB_HOSTS, self._endpoint.host)) | named
        theirs = () if self._endpoint == stated_origin(ENDPOINT) else (self._endpoint.host,)
        self._private = named | self._url_hosts | frozenset(theirs)

    def is_endpoint(self, url: Url) -> bool:
        """Whether `url` has the endpoint's origin, so that it may see our token."""
        return origin(url) == self._endpoint

    def allows(self, url: Url) -> bool:
        """Whether anything may be asked of `url`."""
        is_elsewhere = url.scheme in ("http", "https") and url.host.lower() in self._url_hosts
        return not url.userinfo and (is_elsewhere or self._is_allowed(url))

    def may_be_private(self, host: str) -> bool:
        """Whether `host` may resolve to an address that is not public, because the operator named it in full."""
        return host.lower() in self._private or (self.is_loopback and is_loopback(host))

    def after_redirect(self, url: httpx.URL, location: str) -> httpx.URL:
        """Return the target of a redirect from `url`. Raises HubReplyRefused if it must not be followed."""
        import httpx

        try:
            target = url.join(location)
        except (httpx.InvalidURL, ValueError) as error:
            raise HubReplyRefused("the Hub redirects to an address that cannot be read") from error
        if target.userinfo or not self._is_allowed(target):
            raise HubReplyRefused(
                f"the Hub redirects to {target.host[:100]!r}, which is not among the hosts that files are read from"
            )
        return target

    def checked(self, address: str) -> httpx.URL:
        """Return the address of a file outside the Hub. Raises InvalidInput unless its host is one of `url_hosts`."""
        import httpx  # imported here, as known headers need no HTTP client

        try:
            url = httpx.URL(address)
        except (httpx.InvalidURL, ValueError) as error:
            raise InvalidInput("the address cannot be read", field="repo") from error
        if url.scheme not in ("http", "https") or url.userinfo or url.host.lower() not in self._url_hosts:
            raise InvalidInput(
                f"{url.host[:100]!r} is not the Hub: give OWNER/NAME of the repo on huggingface.co that has the GGUF "
                "files (files elsewhere are read only from hosts that ADVISOR_URL_HOSTS names)",
                field="repo",
            )
        return url

    def _is_allowed(self, url: Url) -> bool:
        host = url.host.lower()
        if self.is_endpoint(url) or (self.is_loopback and is_loopback(host) and url.scheme in ("http", "https")):
            return True
        return url.scheme == "https" and (host in self._url_hosts or self.names(host))

    def names(self, host: str) -> bool:
        """Whether `host` is the endpoint's, one of the Hub's, or one that the operator named."""
        return host in self._hosts or (host.endswith(self._suffixes) and not _is_number(host))


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class ListingHosts:
    """The rule for API calls: the endpoint, and the Hub's hosts that a mirror may redirect its API to."""

    def __init__(self, addresses: Addresses) -> None:
        self.may_see_token, self._names = addresses.is_endpoint, addresses.names
        self.may_be_private = addresses.may_be_private

    def allows(self, url: Url) -> bool:
        """Whether the API may be asked at `url`."""
        return self.may_see_token(url) or (not url.userinfo and url.scheme == "https" and self._names(url.host.lower()))
