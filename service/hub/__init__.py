"""The Hugging Face Hub, and GGUF files in general: list, pin, read headers by byte ranges."""

from service.hub.addresses import ENDPOINT
from service.hub.cache import FileCache
from service.hub.client import Hub
from service.hub.errors import (
    HubRateLimited,
    HubReplyRefused,
    HubUnauthorised,
    HubUnavailable,
    RepoGated,
    RepoNotFound,
    RepoTooLarge,
    RepoWithoutGguf,
    RevisionNotFound,
)
from service.hub.headers import HeaderCache, NoCache
from service.hub.listing import Cost, ListingLimits, OtherFile, RepoFile, RepoListing, Variant
from service.hub.local import local_variants, read_local_header
from service.hub.references import RepoReference, parse_repo_reference
from service.hub.variants import choose, find_variants

__all__ = [
    "ENDPOINT",
    "Cost",
    "FileCache",
    "HeaderCache",
    "Hub",
    "HubRateLimited",
    "HubReplyRefused",
    "HubUnauthorised",
    "HubUnavailable",
    "ListingLimits",
    "NoCache",
    "OtherFile",
    "RepoFile",
    "RepoGated",
    "RepoListing",
    "RepoNotFound",
    "RepoReference",
    "RepoTooLarge",
    "RepoWithoutGguf",
    "RevisionNotFound",
    "Variant",
    "choose",
    "find_variants",
    "local_variants",
    "parse_repo_reference",
    "read_local_header",
]
