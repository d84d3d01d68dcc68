"""The contents of a repo at one commit: variants, and files that are not. Data types only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

OtherKind: TypeAlias = Literal["mmproj", "imatrix", "draft", "lora", "vocab", "incomplete", "pieces", "other"]


class RepoFile(msgspec.Struct, frozen=True):
    """One file: its path, size in bytes, and the sha256 of its content if the Hub states it."""

    path: str
    n_bytes: int | None = None
    sha256: str | None = None


def total_bytes(files: Sequence[RepoFile]) -> int | None:
    """Return the total size of the files, None if one size is unknown."""
    sizes = [file.n_bytes for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


class Variant(msgspec.Struct, frozen=True):
    """One quantised model: its name, unique in the listing, and its files, shards in order."""

    name: str
    files: tuple[RepoFile, ...]

    @property
    def n_bytes(self) -> int | None:
        """The total size of its files, None if one size is unknown."""
        return total_bytes(self.files)


class OtherFile(msgspec.Struct, frozen=True):
    """A file that is not a variant, and its kind.

    `incomplete`: shards of a set with gaps; `pieces`: parts of one file, to be joined before use.
    """

    path: str
    kind: OtherKind
    n_bytes: int | None = None
    sha256: str | None = None


class RepoListing(msgspec.Struct, frozen=True):
    """A repo at one commit, smallest variant first. `repo` and `revision` are None for files on this disk.

    `address`: for files on neither the Hub nor this disk, the folder that they are in.
    """

    repo: str | None
    revision: str | None
    variants: tuple[Variant, ...]
    other_files: tuple[OtherFile, ...] = ()
    gated: bool = False
    base_models: tuple[str, ...] = ()
    address: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(variant.name for variant in self.variants)


class ListingLimits(msgspec.Struct, frozen=True):
    """Limits on what reading one repo may cost: counts, bytes, seconds."""

    variants: int = 200
    shards: int = 400
    repo_files: int = 20_000
    header_bytes: int = 64 << 20
    repo_header_bytes: int = 512 << 20
    parallel: int = 8
    attempts: int = 3
    request_seconds: float = 15.0
    file_seconds: float = 120.0
    longest_wait: float = 10.0


class Cost(msgspec.Struct):
    """The cost of reading so far: requests, each redirect counted, and bytes of bodies received."""

    requests: int = 0
    n_bytes: int = 0
