"""Inspection without a server: every variant at a repo, path or address."""

from __future__ import annotations

import time

import msgspec

from service.flows.advice.opening import opened
from service.flows.advice.repo_view import whole_view
from service.settings import Settings
from service.wire.advice.repo import CostView, RepoView


def inspect_directly(settings: Settings, repo: str, revision: str | None) -> RepoView:
    """Return the variants at a repo, path or address, all of them read, and what that took. Raises AdvisorError."""
    started = time.monotonic()
    with opened(settings, repo, revision) as (hub, listing, reference):
        seen = whole_view(hub, listing, reference)
        if listing.repo is None:
            seen = msgspec.structs.replace(seen, repo=repo)
        if listing.repo is None and listing.address is None:
            return seen
        requests = hub.cost.requests + (1 if listing.repo else 0)
        cost = CostView(requests, hub.cost.n_bytes, round(time.monotonic() - started, 3))
        return msgspec.structs.replace(seen, cost=cost)
