"""The headers of variants, wherever their files are; apart, so that `advisor inspect` loads no planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.errors import InvalidHeader
from service.engine.gguf.header import Header
from service.hub.client import Hub
from service.hub.listing import RepoListing, Variant
from service.hub.local import read_local_header


def headers_of(
    hub: Hub, listing: RepoListing, variants: Sequence[Variant], in_full: bool = False
) -> Iterator[Header | InvalidHeader]:
    """Return the header of each of `variants`, or what is wrong with it, in their order. Raises the Hub's errors."""
    if listing.repo is None and listing.address is None:
        return (_local(variant) for variant in variants)
    return hub.read_headers(listing, variants, in_full)


def _local(variant: Variant) -> Header | InvalidHeader:
    try:
        return read_local_header(variant)
    except InvalidHeader as error:
        return error
