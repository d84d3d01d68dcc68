"""The Hub client: a repo's files at a commit, the headers of its variants, and repos that have a model as GGUF."""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import msgspec

from service.engine.errors import AdvisorError, InvalidHeader, InvalidInput
from service.engine.gguf.header import Header
from service.hub.addresses import ENDPOINT, Addresses, ListingHosts
from service.hub.cache import FileCache
from service.hub.errors import HubReplyRefused, RepoNotFound, RepoTooLarge, RepoWithoutGguf
from service.hub.headers import ReadSlot, ReadSlots, RepoReader
from service.hub.listing import Cost, ListingLimits, RepoFile, RepoListing, Variant
from service.hub.references import RepoReference, checked_repo, checked_revision
from service.hub.variants import find_variants, shard_names

if TYPE_CHECKING:
    import httpx

    from service.hub.info import RepoInfo
    from service.hub.ranges import Ranges
    from service.outgoing.library import Access

_MAX_SEARCH_BYTES = 1 << 20
_MAX_LISTING_BYTES = 32 << 20  # of 20,000 files, a few hundred bytes each
_FOUND = 5
_READERS_KEPT = 16
_READER_SECONDS = 600  # after which a repo's cost is counted from zero
_BASE = "base_model:"


class _FoundModel(msgspec.Struct):
    id: str


class Hub:
    """A client of one Hub, safe to use from several threads; `cost` counts requests for headers and searches."""

    def __init__(
        self,
        endpoint: str = ENDPOINT,
        token: str | None = None,
        *,
        hosts: Sequence[str] = (),
        url_hosts: Sequence[str] = (),
        cache: FileCache | None = None,
        limits: ListingLimits | None = None,
        allow_private: bool = False,
        gated_repos: Sequence[str] = (),
        proxy: str | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`hosts`: more hosts that the endpoint may redirect reads to; `url_hosts`: those of `list_address`;
        `proxy`: the address of an HTTP proxy to ask through.

        `allow_private`: the token is the asker's own, so that repos only it can see may be shown. A service leaves it
        False: a private repo is then answered as an unknown one, and of the gated ones only `gated_repos` are read.
        """
        self._endpoint, self._token, self._allow_private = endpoint.rstrip("/"), token, allow_private
        self._transport, self._proxy = transport, proxy
        self._gated_repos = frozenset(repo.lower() for repo in gated_repos)
        self._limits, self._sleep, self._cache = limits or ListingLimits(), sleep, cache
        self._addresses = Addresses(endpoint, hosts, url_hosts)
        self._slots = ReadSlots()
        self._opened: Ranges | None = None
        self._library: Access | None = None
        self._readers: OrderedDict[str, RepoReader] = OrderedDict()
        self._lock = Lock()

    @property
    def cost(self) -> Cost:
        """Requests and bytes so far, all repos together; listing calls not counted."""
        return self._opened.cost if self._opened else Cost()

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
        if self._library is not None:
            self._library.close()

    def list_repo(self, reference: RepoReference) -> RepoListing:
        """Return the repo's listing pinned to a commit, by one call.

        Raises RepoNotFound, RevisionNotFound, RepoGated, HubUnavailable, HubRateLimited, HubUnauthorised,
        RepoTooLarge, InvalidInput, and RepoWithoutGguf with repos that have the model as GGUF.
        """
        checked_repo(reference.repo)
        try:
            info = self._info(reference, checked_revision(reference.revision) if reference.revision else None)
        except RepoNotFound as error:
            raise self.with_nearest(error, reference.name) from error
        if info.private and not self._allow_private:
            raise _library().unknown(reference.repo)
        listed = info.siblings or []
        if len(listed) > self._limits.repo_files:
            raise RepoTooLarge(f"the repo has {len(listed)} files, {self._limits.repo_files} are read", field="repo")
        repo = next(iter(_valid_repos([info.id])), reference.repo)
        files = (RepoFile(file.rfilename, file.size, file.lfs.sha256 if file.lfs else None) for file in listed)
        variants, others = find_variants(files, repo.partition("/")[2])
        listing = RepoListing(repo, info.sha, variants, others, bool(info.gated), _base_models(info.tags or ()))
        if not listing.variants:
            raise self._without_gguf(listing, reference)
        return listing

    def read_header(self, listing: RepoListing, variant: Variant) -> Header:
        """Return the merged header of all shards of `variant`.

        Raises NotGguf, TruncatedHeader, InvalidHeader, RepoGated, RepoTooLarge, HubUnavailable, HubRateLimited,
        HubUnauthorised, HubReplyRefused.
        """
        (header,) = self.read_headers(listing, [variant])
        if isinstance(header, InvalidHeader):
            raise header
        return header

    def read_headers(
        self, listing: RepoListing, variants: Sequence[Variant], in_full: bool = False,
        begin: Callable[[int], object] = lambda _: None,
    ) -> list[Header | InvalidHeader]:  # fmt: skip
        """Return the merged header of each of `variants`, or what is wrong with it, in order, read in parallel.

        `in_full`: take no part of a header from another file of the repo (`Header.by_jump`). `begin` is called with
        the number of each variant, from 1, before it is waited for. Raises RepoGated, RepoTooLarge, HubUnavailable,
        HubRateLimited, HubUnauthorised, HubReplyRefused.
        """
        where = self._where(listing)
        headers = self._reader(listing.repo or "", where).read(variants, in_full, begin)
        return [
            type(header)(f"{listing.repo or where}, variant {variant.name}: {header.detail}")
            if isinstance(header, InvalidHeader)
            else header
            for variant, header in zip(variants, headers, strict=True)
        ]

    def list_address(self, address: str) -> RepoListing:
        """Return the one variant at an http(s) address of a GGUF file outside the Hub, with its sibling shards.

        Raises InvalidInput unless the operator allows its host.
        """
        url = self._addresses.checked(address)
        folder, _, name = str(url.copy_with(fragment=None)).rpartition("/")
        variants, _ = find_variants(RepoFile(path) for path in shard_names(unquote(name), self._limits.shards))
        if not variants:
            raise InvalidInput("the address is not of a GGUF file: it must end in .gguf, without a query", field="repo")
        return RepoListing(None, None, variants, address=folder)

    def _where(self, listing: RepoListing) -> str:
        """Return the address that file paths of a listing are appended to. Raises RepoGated and InvalidInput."""
        if listing.address is not None:
            self._addresses.checked(listing.address)
            return listing.address
        if listing.repo is None or listing.revision is None:
            raise InvalidInput("a listing of files on this disk is read by read_local_header", field="repo")
        if listing.gated and not self._allow_private and listing.repo.lower() not in self._gated_repos:
            raise _library().gated(listing.repo)
        return f"{self._endpoint}/{listing.repo}/resolve/{quote(listing.revision, safe='')}"

    def search_gguf(self, model: str) -> tuple[str, ...]:
        """Return up to five repos that hold a quantised GGUF of the model repo `model`, most downloaded first."""
        return self._search([("filter", f"{_BASE}quantized:{model}"), ("filter", "gguf")])

    def with_nearest(self, error: RepoNotFound | InvalidInput, name: str) -> RepoNotFound | InvalidInput:
        """Return the error with the repos that the Hub's own search finds nearest to `name`, by one call."""
        words = re.sub(r"(?i)[-_.]?gguf$", "", name).replace("-", " ").replace("_", " ")
        try:
            found = self._search([("search", words), ("filter", "gguf")])
        except AdvisorError:  # the search is a courtesy; the answer stands without it
            return error
        near = f"; the Hub's search for `{words}` finds {', '.join(found)}" if found else ""
        said, more, rest = error.detail.partition("; ")
        return type(error)(f"{said}{near}{more}{rest}", field="repo", choices=found)

    def _search(self, filters: list[tuple[str, str]]) -> tuple[str, ...]:
        """Return up to five repos that pass the filters, most downloaded first."""
        order = [("sort", "downloads"), ("direction", "-1"), ("limit", str(_FOUND))]
        body = self._ranges.get_json("/api/models", filters + order, _MAX_SEARCH_BYTES)
        try:
            found = msgspec.json.decode(body, type=list[_FoundModel])
        except msgspec.DecodeError as error:
            raise HubReplyRefused("the Hub's answer to a search cannot be read") from error
        return tuple(_valid_repos(m.id for m in found))[:_FOUND]

    @property
    def _ranges(self) -> Ranges:
        """Return the reader of files, created on first use: known headers need no HTTP client."""
        from service.hub.ranges import Ranges

        with self._lock:
            if self._opened is None:
                self._opened = Ranges(
                    self._endpoint, self._addresses, self._token, self._limits, proxy=self._proxy,
                    transport=self._transport, sleep=self._sleep,
                )  # fmt: skip
            return self._opened

    def _info(self, reference: RepoReference, revision: str | None) -> RepoInfo:
        from service.hub.info import repo_info  # huggingface_hub takes a tenth of a second to import

        with ReadSlot(self._slots) as slot, self._access().given():
            slot.take()
            return repo_info(self._endpoint, self._token, reference.repo, revision, self._limits, self._sleep)

    def _access(self) -> Access:
        from service.outgoing.library import Access

        with self._lock:
            if self._library is None:
                rule, seconds = ListingHosts(self._addresses), 2 * self._limits.request_seconds
                self._library = Access(rule, max_bytes=_MAX_LISTING_BYTES, max_seconds=seconds, proxy=self._proxy)
            return self._library

    def _without_gguf(self, listing: RepoListing, reference: RepoReference) -> RepoWithoutGguf:
        why = _why_none(listing)
        found: list[str] = []
        for model in (listing.repo or reference.repo, *listing.base_models[:1]):
            try:
                found += self.search_gguf(model)
            except AdvisorError:  # the search is a courtesy; the answer stands without it
                break
            if found:
                break
        way = f"these have: {', '.join(found)}" if found else "no repo with GGUF files of this model was found"
        return RepoWithoutGguf(f"{listing.repo} {why}; {way}", field="repo", choices=tuple(found))

    def _reader(self, repo: str, folder: str) -> RepoReader:
        now = time.monotonic()
        with self._lock:
            reader = self._readers.pop(folder, None)
            if reader is None or now - reader.started > _READER_SECONDS:
                reader = RepoReader(
                    lambda: self._ranges, self._cache, self._limits, self._slots, repo, folder, started=now
                )
            self._readers[folder] = reader
            if len(self._readers) > _READERS_KEPT:
                self._readers.popitem(last=False)
            return reader


def _library() -> Any:
    from service.hub import info  # huggingface_hub takes a tenth of a second to import

    return info


def _why_none(listing: RepoListing) -> str:
    """Return why a repo has no variant, judging by the files it has instead."""
    paths: dict[str, list[str]] = {}
    for other in listing.other_files:
        paths.setdefault(other.kind, []).append(other.path)
    if pieces := paths.get("pieces"):
        joined = re.split(r"(?i)(?<=\.gguf)", pieces[0].rpartition("/")[2])[0]
        return (
            f"has its GGUF in pieces that no engine reads: join them (`cat {joined}* > {joined}`) and ask for that file"
        )
    if shards := paths.get("incomplete"):
        return f"has only {len(shards)} shards of incomplete GGUF sets"
    if drafts := paths.get("draft"):
        return f"has only drafters, which run alongside a model ({drafts[0][:100]})"
    return "has no GGUF of a model"


def _base_models(tags: Iterable[str]) -> tuple[str, ...]:
    """Return the models that the tags call its base: `base_model:quantized:owner/name`, `base_model:owner/name`."""
    stated = (tag.rpartition(":")[2] for tag in tags if tag.startswith(_BASE))
    return tuple(dict.fromkeys(_valid_repos(stated)))


def _valid_repos(ids: Iterable[str]) -> list[str]:
    valid = []
    for repo in ids:
        try:
            valid.append("/".join(checked_repo(repo)))
        except InvalidInput:
            continue
    return valid
