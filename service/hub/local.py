"""Lists GGUF files on this disk like a repo. For the command line only: a service never opens paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from service.engine.errors import InvalidHeader, InvalidInput
from service.engine.gguf.header import Header, merge_shards
from service.hub.errors import RepoTooLarge, RepoWithoutGguf
from service.hub.headers import header_of_file
from service.hub.listing import ListingLimits, OtherFile, RepoFile, RepoListing, Variant
from service.hub.variants import BESIDE, find_variants, is_gguf, without_suffix

_DEPTH = 4
_MAGIC = b"GGUF"
_SHOWN_OF_HASH = 19  # of `sha256-…`, as Ollama names its files
_MOST_MANIFESTS, _MOST_NAMED = 100, 5
AnyFile = TypeVar("AnyFile", RepoFile, OtherFile)


def local_variants(path: Path | str, limits: ListingLimits | None = None) -> RepoListing:
    """Return the listing of a GGUF file (with its sibling shards) or a folder; file paths begin with `path` as given.

    Raises InvalidInput (field `repo`) for a path that cannot be read, RepoWithoutGguf, RepoTooLarge.
    """
    start, limits = Path(path), limits or ListingLimits()
    folder = start if start.is_dir() else start.parent
    try:
        found = sorted(_walk(start, limits) if start.is_dir() else _with_shards(start))
        sizes = {p.relative_to(folder).as_posix(): p.stat().st_size for p in found}
    except OSError as error:
        raise InvalidInput(f"cannot read {error.filename or start}: {error.strerror}", field="repo") from error
    variants, others = find_variants((RepoFile(p, n) for p, n in sizes.items()), folder.resolve().name)
    if not variants and start.is_file() and not is_gguf(start.name) and _begins_as_gguf(start):
        variants = (Variant(start.name[:_SHOWN_OF_HASH], (RepoFile(start.name, start.stat().st_size),)),)
    if not variants:
        raise RepoWithoutGguf(f"{start} {_what_instead(start, others)}", field="repo")
    placed = tuple(Variant(v.name, tuple(_placed(folder, f) for f in v.files)) for v in variants)
    return RepoListing(None, None, placed, tuple(_placed(folder, o) for o in others))


def _what_instead(start: Path, others: Sequence[OtherFile]) -> str:
    """Return what a file or folder without a model is, and what to name instead."""
    right = "name a .gguf file, a folder with all shards of one, or a repo of the Hub as OWNER/NAME"
    if start.is_dir():
        if models := _of_ollama(start):
            return f"is Ollama's folder: name a model's file, as {' or '.join(models)}"
        return f"holds no complete GGUF of a model: {right}"
    known = next((BESIDE[other.kind] for other in others if other.kind in BESIDE), None)
    return f"is {known}" if known else f"is not a GGUF file, or lacks some of its shards: {right}"


def _of_ollama(folder: Path) -> list[str]:
    """Return some of the models in Ollama's folder, each with its file, which is named by its hash."""
    blobs = next((inside for name in ("blobs", "models/blobs") if (inside := folder / name).is_dir()), folder)
    found: list[str] = []
    for manifest in sorted((blobs.parent / "manifests").glob("*/*/*/*"))[:_MOST_MANIFESTS]:
        try:
            layers = _MANIFEST.decode(manifest.read_bytes()).layers
        except (OSError, msgspec.DecodeError):
            continue
        found += [
            f"{blobs / layer.digest.replace(':', '-')} ({manifest.parent.name}:{manifest.name})"
            for layer in layers
            if layer.media_type.endswith("ollama.image.model")
        ]
    return found[:_MOST_NAMED]


class _Layer(msgspec.Struct, rename={"media_type": "mediaType"}):
    digest: str
    media_type: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


_MANIFEST = msgspec.json.Decoder(_Manifest)


def _begins_as_gguf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def read_local_header(variant: Variant, limits: ListingLimits | None = None) -> Header:
    """Return the merged header of a variant that `local_variants` found.

    Raises NotGguf, TruncatedHeader and InvalidHeader as parse_header does, InvalidInput for a file that is gone.
    """
    return merge_shards([_read(Path(file.path), (limits or ListingLimits()).header_bytes) for file in variant.files])


def _read(path: Path, limit: int) -> Header:
    try:
        with path.open("rb") as stream:
            return header_of_file(stream, path.stat().st_size, limit)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}", field="repo") from error
    except InvalidHeader as error:
        raise type(error)(f"{path}: {error.detail}") from error


def _walk(folder: Path, limits: ListingLimits) -> Iterator[Path]:
    """Yield GGUF files in `folder` and below, down to the depth at which repos keep quantisations."""
    n_seen = 0
    open_folders = [(folder, 0)]
    while open_folders:
        here, depth = open_folders.pop()
        for entry in here.iterdir():
            n_seen += 1
            if n_seen > limits.repo_files:
                raise RepoTooLarge(f"{folder} has more than {limits.repo_files} files: name one of them", field="repo")
            if entry.is_dir() and depth < _DEPTH and not entry.is_symlink():
                open_folders.append((entry, depth + 1))
            elif is_gguf(entry.name) and entry.is_file():
                yield entry


def _with_shards(path: Path) -> list[Path]:
    """Return the file, with its sibling shards if it is one of a set."""
    path.stat()
    stem, _, count = without_suffix(path.name).rpartition("-of-")
    head, _, number = stem.rpartition("-")
    if len(number) != 5 or not (number + count).isdigit() or len(count) != 5:
        return [path]
    return [
        p
        for p in path.parent.iterdir()
        if p.name.startswith(f"{head}-") and without_suffix(p.name).endswith(f"-of-{count}")
    ]


def _placed(folder: Path, file: AnyFile) -> AnyFile:
    return msgspec.structs.replace(file, path=str(folder / file.path))
