"""Tells what a file of a repo is, by its size relative to the others, then by its name and folder, in any case.

What only the header tells (`service.engine.header_kind`) is found when it is read. About names: llama.cpp's converters
write `mmproj-`, `mtp-` and `imatrix`; tests/recorded/hub records how publishers name their files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from service.hub.listing import OtherKind, RepoFile, total_bytes

SUFFIX = ".gguf"
# Pieces to be joined before use: `x.gguf.part1of2`, `x.gguf-split-a`, `x.gguf.001`.
_PIECE = re.compile(r"\.gguf[._-](?:part[0-9]+of[0-9]+|split-?[a-z0-9]+|part-?[a-z0-9]+|[0-9]{3}|a[a-z])$", re.I | re.A)
_QUANTISED = re.compile(r"(?:^|[^a-z])(?:i?q[1-8]|tq[12]|bf16|fp?16|f32|mxfp4|nvfp4)(?![0-9]*b)", re.I | re.A)
_WORD = re.compile(r"[a-z]+[0-9]*", re.ASCII)
_FOLDERS: dict[str, OtherKind] = {
    "mmproj": "mmproj", "vision": "mmproj", "imatrix": "imatrix", "lora": "lora", "adapter": "lora", "adapters": "lora",
    "vocab": "vocab", "mtp": "draft", "draft": "draft", "drafter": "draft", "drafts": "draft", "eagle": "draft",
    "eagle3": "draft", "dflash": "draft",
}  # fmt: skip
# Drafters that no engine runs alone, whatever the repo is called.
_ONLY_DRAFTS = frozenset({"dflash", "eagle3"})
_PART_OF_FULL = 0.5  # of the repo's smallest model: a smaller file is no variant of it


class Candidate(NamedTuple):
    """A GGUF file or set of shards: its folder, name without shard number and suffix, and files."""

    folder: str
    stem: str
    files: tuple[RepoFile, ...]

    @property
    def n_bytes(self) -> int | None:
        """Bytes of all files, None where the size of one is unknown."""
        return total_bytes(self.files)


def is_gguf(name: str) -> bool:
    """Return whether a file's name ends in `.gguf`."""
    return name.lower().endswith(SUFFIX)


def without_suffix(name: str) -> str:
    """Return a name without `.gguf` in any case."""
    return name[: -len(SUFFIX)] if is_gguf(name) else name


def kind_of_other(path: str) -> OtherKind:
    """Return the kind of a file whose name does not end in `.gguf`."""
    name = path.rpartition("/")[2].lower()
    if _PIECE.search(name):
        return "pieces"
    return next((kind for kind in ("imatrix", "mmproj") if kind in _words(name)), "other")


def kinds(candidates: Iterable[Candidate], repo_name: str) -> list[OtherKind | None]:
    """Return each candidate's kind, None for a model. `repo_name`: without its owner."""
    several, known = list(candidates), _words(repo_name)
    named = [_by_name(one, known) for one in several]
    plain = [one.n_bytes for one, kind in zip(several, named, strict=True) if kind is None and not _has_mtp(one)]
    smallest = min((size for size in plain if size), default=0)
    return [_weighed(one, kind, smallest) for one, kind in zip(several, named, strict=True)]


def _by_name(one: Candidate, known: frozenset[str]) -> OtherKind | None:
    """Return the kind by name; words that the repo's own name contains mean nothing."""
    stem, words = one.stem.lower(), _words(one.stem)
    if "mmproj" in words:
        return "mmproj"
    if words & _ONLY_DRAFTS:
        return "draft"
    if stem.startswith("imatrix") or ("imatrix" in words and not _QUANTISED.search(stem[:256])):
        return "imatrix"
    if stem.startswith(("mtp-", "mtp_")):  # as llama.cpp's converter names the next-token layers alone
        return "draft"
    folders = (_FOLDERS.get(folder) for folder in one.folder.lower().split("/"))
    if (found := next((kind for kind in folders if kind), None)) is not None:
        return found
    if (words - known) & {"lora", "adapter"}:
        return "lora"
    if "vocab" in words - known and not _QUANTISED.search(stem[:256]):
        return "vocab"
    return "draft" if (words - known) & {"draft", "drafter", "eagle"} else None


def _weighed(one: Candidate, kind: OtherKind | None, smallest: int) -> OtherKind | None:
    """Return the kind corrected by size: as large as the repo's models it is one, much smaller its name decides.

    `mtp` in a name mostly means a model with its next-token layers; a file of those layers alone is small.
    """
    size = one.n_bytes
    if not size or not smallest:
        return kind
    is_small = size < _PART_OF_FULL * smallest
    if kind in ("draft", "lora", "mmproj", "imatrix"):
        marked = _words(one.stem) & (_ONLY_DRAFTS | {"mmproj"}) or one.stem.lower().startswith("imatrix")
        return kind if is_small or marked else None
    return "draft" if kind is None and is_small and _has_mtp(one) else kind


def _has_mtp(one: Candidate) -> bool:
    return "mtp" in _words(one.stem)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text[:512].lower()))
