"""Makes the Hub client from the settings, without a database or queue."""

from __future__ import annotations

from service.hub.cache import FileCache
from service.hub.client import Hub
from service.outgoing.rules import environments_proxy
from service.settings import Settings


def make_hub(settings: Settings, *, allow_private: bool = False) -> Hub:
    """Return the Hub client with its header cache. `allow_private`: the token is the asker's own."""
    cache = FileCache(settings.headers_dir, settings.cache_mib << 20) if settings.cache_mib else None
    return Hub(
        settings.hf_endpoint, settings.hf_token, hosts=settings.hub_hosts, cache=cache, allow_private=allow_private,
        gated_repos=settings.gated_repos, url_hosts=settings.url_hosts,
        proxy=settings.outgoing_proxy or (environments_proxy(settings.hf_endpoint) if allow_private else None),
    )  # fmt: skip
