"""Headers of a command's draft model and projector: from the same repo, another one, or this disk (CLI only)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from service.engine.commands.companions import draft_of, file_name, projector_of
from service.engine.commands.parse import ParsedCommand
from service.engine.errors import InvalidHeader, InvalidInput, UnknownVariant
from service.engine.gguf.header import Header
from service.engine.model import build_model
from service.engine.rules.companion_headers import CompanionHeaders
from service.flows.advice.matching import SafeMatch
from service.hub.listing import OtherFile, OtherKind, RepoFile, RepoListing, Variant
from service.hub.local import read_local_header
from service.hub.references import RepoReference, parse_repo_reference

ReadHeader = Callable[[RepoListing, Variant], Header]
ListRepo = Callable[[RepoReference], RepoListing]

_TAG = re.compile(r"[-.][A-Za-z_]*([0-9]{1,4})[A-Za-z0-9_]*(?:-[0-9]{5}-of-[0-9]{5})?\.gguf$")


def companions(
    parsed: ParsedCommand,
    draft: str | None,
    mmproj: str | None,
    here: RepoListing,
    variant: Variant,
    list_repo: ListRepo,
    read: ReadHeader,
) -> CompanionHeaders:
    """Return the headers of the draft and the projector, as far as they can be found.

    `draft` and `mmproj` are as in the request, `OWNER/NAME:VARIANT` or `OWNER/NAME/FILE.gguf`; without them, the
    files that the command names are looked up by file name in `here`, the repo of the model `variant`, and so is the
    projector that `-hf` finds by itself. Raises InvalidInput and its subclasses, and the Hub's errors.
    """
    projector = projector_of(parsed)
    found_draft = _asked(draft, "draft", list_repo) or _by_name(here, draft_of(parsed))
    found_projector = _asked(mmproj, "mmproj", list_repo) or _by_name(here, projector.path if projector else None)
    unasked = found_by_engine(here, variant) if projector and projector.path is None and not found_projector else None
    found = found_projector or unasked
    header = _header(read, found, unasked=found is unasked) if found else None
    return CompanionHeaders(
        draft=build_model(read(*found_draft), SafeMatch()) if found_draft else None,
        projector=header,
        repo_listed=found is None or header is not None,
        head_in_repo=found_by_engine(here, variant, "draft", "mtp-") is not None,
    )


def _header(read: ReadHeader, found: tuple[RepoListing, Variant], *, unasked: bool) -> Header | None:
    """Return the header of a file; None for a damaged one that nobody named."""
    try:
        return read(*found)
    except InvalidHeader:
        if unasked:
            return None
        raise


def companions_on_disk(
    parsed: ParsedCommand, draft: str | None, mmproj: str | None, folder: Path | None
) -> CompanionHeaders:
    """Return the headers of the files named, at their path or next to the model. Raises InvalidInput."""
    projector = projector_of(parsed)
    draft_file = _on_disk(draft, "draft", folder) or _on_disk(draft_of(parsed), None, folder)
    projector_file = _on_disk(mmproj, "mmproj", folder) or _on_disk(projector.path if projector else None, None, folder)
    return CompanionHeaders(
        draft=build_model(_read_file(draft_file), SafeMatch()) if draft_file else None,
        projector=_read_file(projector_file) if projector_file else None,
    )


def _asked(text: str | None, field: str, list_repo: ListRepo) -> tuple[RepoListing, Variant] | None:
    """Return the file that a request names, if any. Raises UnknownVariant, naming the repo's files."""
    if text is None:
        return None
    try:
        reference = parse_repo_reference(text)
        listing = list_repo(reference)
    except InvalidInput as error:
        error.field = field
        raise
    others = [
        o for o in listing.other_files if o.kind in ("mmproj", "draft") and (field == "mmproj") == (o.kind == "mmproj")
    ]
    candidates = [as_variant(o) for o in others] + ([] if field == "mmproj" else list(listing.variants))
    chosen = [v for v in candidates if _is_meant(v, reference)]
    if len(chosen) == 1:
        return listing, chosen[0]
    names = tuple(f"{reference.repo}/{v.files[0].path}" for v in candidates[:40])
    raise UnknownVariant(f"{text[:120]!r} is not one {field} file of the repo: name one", field=field, choices=names)


def _is_meant(variant: Variant, reference: RepoReference) -> bool:
    if reference.file is not None:
        return any(file.path == reference.file for file in variant.files)
    return reference.variant is None or variant.name.lower() == reference.variant.lower()


def _by_name(listing: RepoListing, path: str | None) -> tuple[RepoListing, Variant] | None:
    """Return the file of this name in a listing, whatever folder the command gives it."""
    if path is None:
        return None
    name = file_name(path)
    candidates: Sequence[Variant] = (*map(as_variant, listing.other_files), *listing.variants)
    found = next((v for v in candidates if any(f.path.rpartition("/")[2] == name for f in v.files)), None)
    return (listing, found) if found else None


def found_by_engine(
    listing: RepoListing, model: Variant, kind: OtherKind = "mmproj", word: str = ""
) -> tuple[RepoListing, Variant] | None:
    """Return the companion that llama.cpp takes for a model: of those in its folder or above, the deepest, and of
    these the one whose type has most nearly as many bits (common/download.cpp:545, 0c1e57098). `word`: in its path, by
    default the kind, in small letters as the engine looks for it.
    """
    path = model.files[0].path
    near_by = [f for f in listing.other_files if f.kind == kind and path.startswith(_folder(f.path))]
    found = [f for f in near_by if (word or kind) in f.path]
    near = min(found, key=lambda f: (-f.path.count("/"), abs(_bits(f.path) - _bits(path)), f.path), default=None)
    return (listing, as_variant(near)) if near else None


def _folder(path: str) -> str:
    head, slash, _ = path.rpartition("/")
    return head + slash


def _bits(path: str) -> int:
    """Return the bits that a file's name states as the engine reads it: the first number of its last part."""
    tag = _TAG.search(path)
    return int(tag[1]) if tag else 0


def as_variant(file: OtherFile) -> Variant:
    """Return a file of another kind as what is read like a variant."""
    return Variant(file.path, (RepoFile(file.path, file.n_bytes),))


def _on_disk(path: str | None, field: str | None, folder: Path | None) -> Path | None:
    """Return the file at its path or by its name in `folder`. With `field`, a missing one raises InvalidInput."""
    if path is None:
        return None
    places = [Path(path).expanduser(), *([folder / Path(path).name] if folder else [])]
    found = next((place for place in places if place.is_file()), None)
    if found is None and field is not None:
        raise InvalidInput(f"no such file: {path[:200]}", field=field)
    return found


def _read_file(path: Path) -> Header:
    return read_local_header(Variant(path.name, (RepoFile(str(path)),)))
