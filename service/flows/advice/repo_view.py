"""A repo's listing and headers as `inspect` shows them: the part that needs no database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from service.engine.errors import InvalidHeader, UnsupportedModel
from service.engine.gguf.header import Header, what_else
from service.engine.model import build_model
from service.flows.advice.opening import opened
from service.hub.client import Hub
from service.hub.listing import OtherFile, OtherKind, RepoListing, Variant
from service.hub.local import read_local_header
from service.hub.references import RepoReference
from service.hub.variants import choose
from service.settings import Settings
from service.wire.advice.repo import CostView, FileView, ModelView, RepoView, VariantView, header_view, model_view


def headers_of(
    hub: Hub, listing: RepoListing, variants: Sequence[Variant], in_full: bool = False,
    begin: Callable[[int], object] = lambda _: None,
) -> list[Header | InvalidHeader]:  # fmt: skip
    """Return the header of each of `variants`, or what is wrong with it, in their order. Raises the Hub's errors.

    `begin` is called with the number of each variant, from 1, before it is waited for.
    """
    if listing.repo is None and listing.address is None:
        found = []
        for number, variant in enumerate(variants, 1):
            begin(number)
            found.append(_local(variant))
        return found
    return hub.read_headers(listing, variants, in_full, begin)


def _local(variant: Variant) -> Header | InvalidHeader:
    try:
        return read_local_header(variant)
    except InvalidHeader as error:
        return error


def view(
    listing: RepoListing, reference: RepoReference, model: ModelView | None,
    headers: Mapping[str, Header | InvalidHeader] = {},
) -> RepoView:  # fmt: skip
    """Return the view of a listing with the model of one variant. `headers`: those read, by variant."""
    by_kind: dict[str, list[str]] = {}
    for file in listing.other_files:
        by_kind.setdefault(file.kind, []).append(file.path)
    return RepoView(
        repo=listing.repo or reference.repo,
        revision=listing.revision,
        variants=[_variant_view(v, headers.get(v.name)) for v in listing.variants],
        other_files=by_kind,
        model=model,
    )


def whole_view(hub: Hub, listing: RepoListing, reference: RepoReference) -> RepoView:
    """Return the view of a listing in which every variant that `reference` means has been read.

    Those whose headers say that they are something else (an adapter, a projector) are among the other files. The model
    is the first readable one. Raises InvalidHeader or UnsupportedModel if there is none, RepoTooLarge and the Hub's
    errors.
    """
    chosen = choose(listing, reference)
    headers = dict(zip((v.name for v in chosen), headers_of(hub, listing, chosen), strict=True))
    readable = {name: header for name, header in headers.items() if isinstance(header, Header)}
    others = {name: what for name, header in readable.items() if (what := what_else(header)) is not None}
    models = {name: header for name, header in readable.items() if name not in others}
    if not models:
        for header in headers.values():
            if isinstance(header, InvalidHeader):
                raise header
        raise UnsupportedModel(f"{chosen[0].files[0].path} is {others[chosen[0].name]}, no language model")
    return view(_without(listing, others), reference, _first_model(models), headers)


# What a header says a file is (`what_else`), by a word of that.
_KINDS: dict[str, OtherKind] = {
    "adapter": "lora", "projector": "mmproj", "importance": "imatrix", "drafter": "draft", "vocabulary": "vocab",
}  # fmt: skip


def _without(listing: RepoListing, others: Mapping[str, str]) -> RepoListing:
    """Return the listing with some variants among the other files, as what they are. `others`: that, by name."""
    moved = [
        OtherFile(
            file.path,
            next((kind for word, kind in _KINDS.items() if word in others[v.name]), "other"),
            file.n_bytes,
            file.sha256,
        )
        for v in listing.variants
        if v.name in others
        for file in v.files
    ]
    kept = tuple(v for v in listing.variants if v.name not in others)
    return msgspec.structs.replace(listing, variants=kept, other_files=(*listing.other_files, *moved))


def _first_model(headers: Mapping[str, Header]) -> ModelView | None:
    for name, header in headers.items():
        try:
            return model_view(name, build_model(header))
        except InvalidHeader:
            continue
    return None


def _variant_view(variant: Variant, header: Header | InvalidHeader | None) -> VariantView:
    files = [FileView(file.path, file.n_bytes, file.sha256) for file in variant.files]
    read = header_view(header) if isinstance(header, Header) else None
    why_not = header.detail if isinstance(header, InvalidHeader) else None
    return VariantView(variant.name, files, variant.n_bytes, read, why_not)


def inspect_directly(settings: Settings, repo: str, revision: str | None) -> RepoView:
    """Return the variants at a repo, path or address, all of them read, and the cost of that. Raises AdvisorError."""
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
