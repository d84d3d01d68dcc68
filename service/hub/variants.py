"""Turns a list of files into variants: groups shards, makes names, and sets aside what is not a model.

A file is told by its size relative to the others, then by its name and folder, in any case; what only the header tells
(`service.engine.header_kind`) is found when it is read. About names: llama.cpp's converters write `mmproj-`, `mtp-` and
`imatrix`; tests/recorded/hub records how publishers name their files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple, TypeAlias

from service.engine.errors import InvalidInput, UnknownVariant
from service.hub.errors import RepoTooLarge
from service.hub.listing import ListingLimits, OtherFile, OtherKind, RepoFile, RepoListing, Variant, total_bytes
from service.hub.references import RepoReference, is_safe_path

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})", re.ASCII)

# A quantisation's name, with the prefixes that publishers add: UD-Q4_K_XL, i1-IQ3_M, smol-IQ4_KSS, DQ4_K_R4.
_LABEL = re.compile(
    r"(?:^|[-._ ])(?P<prefix>(?:UD|i1|smol|mix|pure|imat)[-_.])?"
    r"(?P<label>(?:I?Q[1-8]|TQ[12]|DQ[1-8])(?:_[0-9A-Z]{1,4}){1,4}|BF16|FP16|F16|F32|MXFP4(?:_MOE)?|NVFP4)"
    r"(?![0-9A-Za-z])",
    re.ASCII | re.IGNORECASE,
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+", re.ASCII)
_SUFFIX = re.compile(r"[-_.]?gguf$", re.IGNORECASE)
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


def find_variants(files: Iterable[RepoFile], model_name: str = "") -> tuple[tuple[Variant, ...], tuple[OtherFile, ...]]:
    """Return the variants among `files`, smallest first, and the other files with their kinds.

    `model_name` is the repo's name: its words do not make a file a draft or adapter, and are left out of names.
    Paths that no repo should have (control characters, `..`) are dropped.
    """
    safe = [file for file in files if is_safe_path(file.path)]
    others = [OtherFile(f.path, kind_of_other(f.path), f.n_bytes) for f in safe if not is_gguf(f.path)]
    candidates, incomplete = _groups([file for file in safe if is_gguf(file.path)])
    others += [OtherFile(file.path, "incomplete", file.n_bytes) for file in incomplete]
    found = list(zip(candidates, kinds(candidates, model_name), strict=True))
    others += [
        OtherFile(f.path, kind, f.n_bytes, f.sha256) for one, kind in found if kind is not None for f in one.files
    ]
    groups = [one for one, kind in found if kind is None]
    named = zip(_names(groups, _SUFFIX.sub("", model_name)), groups, strict=True)
    variants = sorted((Variant(name, group.files) for name, group in named), key=lambda v: (v.n_bytes or 0, v.name))
    return tuple(variants), tuple(sorted(others, key=lambda o: o.path))


def shard_names(name: str, most: int) -> list[str]:
    """Return the names of all shards of the set that a file's name belongs to, if at most `most`; else just its own."""
    stem = without_suffix(name)
    match = _SHARD.fullmatch(stem)
    if match is None or not 0 < int(match["count"]) <= most:
        return [name]
    suffix = name.removeprefix(stem) or SUFFIX
    return [f"{match['stem']}-{number + 1:05d}-of-{match['count']}{suffix}" for number in range(int(match["count"]))]


ANY_NUMBER = ListingLimits(variants=20_000, shards=20_000)  # for callers that read only one of those chosen


def choose(
    listing: RepoListing, reference: RepoReference | None = None, names: Sequence[str] | None = None,
    limits: ListingLimits | None = None, field: str = "constraints.variants",
) -> tuple[Variant, ...]:  # fmt: skip
    """Return the variants that a reference or `names` (from the request's `field`) ask for, else all of them.

    Names match in any case, and without a prefix if that is unambiguous. Raises UnknownVariant, naming the choices, and
    RepoTooLarge if more are asked for than `limits` allow.
    """
    chosen = listing.variants
    if reference is not None and reference.variant is not None:
        chosen = _named(listing, [reference.variant], "repo")
    elif reference is not None and reference.file is not None:
        chosen = _holding(listing, reference.file)
    if names is not None:
        wanted = _named(listing, names, field)
        chosen = tuple(v for v in chosen if v in wanted)
        if not chosen:
            raise InvalidInput(f"`repo` and `{field}` name different variants", field="repo")
    _check_limits(chosen, limits or ListingLimits())
    return chosen


def _check_limits(chosen: tuple[Variant, ...], limits: ListingLimits) -> None:
    n_files = sum(len(v.files) for v in chosen)
    if len(chosen) > limits.variants or n_files > limits.shards:
        raise RepoTooLarge(
            f"{len(chosen)} variants in {n_files} files are more than the {limits.variants} variants and "
            f"{limits.shards} files that are read at once: name a variant",
            field="constraints.variants",
            choices=tuple(v.name for v in chosen[:40]),
        )


def _named(listing: RepoListing, names: Sequence[str], field: str) -> tuple[Variant, ...]:
    """Return variants by name, in any case; other separators or a missing prefix match if unambiguous."""
    wanted: set[str] = set()
    for name in names:
        found = next((f for alike in _ALIKE if (f := [v for v in listing.names if alike(v, name)])), [])
        if len(found) != 1:
            near = sorted(listing.names, key=lambda v: -SequenceMatcher(None, _plain(v), _plain(name)).ratio())
            said = f"the repo {'has several variants' if found else 'has no variant'} {name[:80]!r}"
            if not found and (what := _beside(listing, name)):
                said = f"{name[:80]!r} is no variant but {what}"
            raise UnknownVariant(said, field=field, choices=tuple(found or near)[:40])
        wanted.add(found[0])
    return tuple(v for v in listing.variants if v.name in wanted)


# Files that are loaded along with a model have no placement of their own to advise, and half a model has none.
BESIDE: dict[OtherKind, str] = {
    "mmproj": "a projector for images or sound: name a variant, and add this file to the command with --mmproj",
    "draft": "a drafter: name a variant, and add this file to the command with -md",
    "lora": "an adapter: name a variant, and add this file to the command with --lora",
    "imatrix": "an importance matrix, which is for making variants: name one of them",
    "incomplete": "an incomplete set, as some of its shards are not in the repo: name a variant",
}


def _beside(listing: RepoListing, name: str) -> str:
    """Return what a name refers to if it is another file of the repo or says so itself; "" for neither."""
    of_files = [o.kind for o in listing.other_files if _plain(name) in _plain(o.path)]
    said = [kind for kind in BESIDE if kind in _plain(name).split("-")]
    return next((BESIDE[kind] for kind in (*of_files, *said) if kind in BESIDE), "")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]", "-", name.lower())


# Ways to match a variant's name, strictest first: `q4_k_m`; `UD_Q4_K_XL`; `Q4_K_XL` for UD-Q4_K_XL; `q4km`.
_ALIKE = (
    lambda variant, name: variant.lower() == name.lower(),
    lambda variant, name: _plain(variant) == _plain(name),
    lambda variant, name: _plain(variant).endswith("-" + _plain(name)),
    lambda variant, name: _plain(variant).replace("-", "") == _plain(name).replace("-", ""),
)


def _holding(listing: RepoListing, path: str) -> tuple[Variant, ...]:
    """Return the variants with a file at `path`, or under it if it is a folder."""
    found = tuple(v for v in listing.variants if any(f.path == path or f.path.startswith(f"{path}/") for f in v.files))
    if not found:
        other = next((o for o in listing.other_files if o.path == path), None)
        what = BESIDE.get(other.kind, "") if other else _beside(listing, path)
        raise UnknownVariant(
            f"{path[:120]!r} is no variant{f' but {what}' if what else ''}", field="repo", choices=listing.names[:40]
        )
    return found


def incomplete_sets(listing: RepoListing) -> dict[str, str]:
    """Return the names of the sets that lack shards, each with what it lacks."""
    _, sharded = _sorted(RepoFile(other.path) for other in listing.other_files if other.kind == "incomplete")
    sets = [
        (Candidate(folder, stem, tuple(shards.values())), count, set(range(1, count + 1)) - set(shards))
        for (folder, stem, count), shards in sharded.items()
    ]
    names = _names([one for one, *_ in sets], (listing.repo or "").partition("/")[2])
    return {
        name: f"{len(lacks)} of its {count} shards {'are' if len(lacks) > 1 else 'is'} missing: "
        f"there is no {one.stem}-{min(lacks):05d}-of-{count:05d}{SUFFIX}"
        for name, (one, count, lacks) in zip(names, sets, strict=True)
        if lacks
    }


_Sharded: TypeAlias = dict[tuple[str, str, int], dict[int, RepoFile]]


def _sorted(files: Iterable[RepoFile]) -> tuple[list[Candidate], _Sharded]:
    """Return models of one file, and shards by folder, name and number of the set's files, then by their own."""
    single: list[Candidate] = []
    sharded: _Sharded = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        stem = without_suffix(name)
        match = _SHARD.fullmatch(stem)
        if match is None:
            single.append(Candidate(folder, stem, (file,)))
        else:
            place = sharded.setdefault((folder, match["stem"], int(match["count"])), {})
            place[int(match["number"])] = file
    return single, sharded


def _groups(files: Sequence[RepoFile]) -> tuple[list[Candidate], list[RepoFile]]:
    """Return complete models, and the shards of incomplete ones."""
    single, sharded = _sorted(files)
    incomplete: list[RepoFile] = []
    for (folder, stem, count), shards in sharded.items():
        if len(shards) == count and set(shards) == set(range(1, count + 1)):
            single.append(Candidate(folder, stem, tuple(shards[n] for n in range(1, count + 1))))
        else:
            incomplete += [shards[n] for n in sorted(shards)]
    return single, incomplete


def _names(groups: Sequence[Candidate], model_name: str) -> list[str]:
    """Return a name for each group, unique in any case: its quantisation, or if that is ambiguous more of the path."""
    candidates = [(_short_name(g, model_name), _clean(g.stem), _clean(f"{g.folder}-{g.stem}")) for g in groups]
    names = [options[0] for options in candidates]
    for level in (1, 2):
        taken = Counter(name.lower() for name in names)
        names = [c[level] if taken[n.lower()] > 1 else n for n, c in zip(names, candidates, strict=True)]
    seen: Counter[str] = Counter()
    unique = set()
    for i, name in enumerate(names):
        while names[i].lower() in unique:
            seen[name.lower()] += 1
            names[i] = f"{name}-{seen[name.lower()] + 1}"
        unique.add(names[i].lower())
    return names


def _short_name(group: Candidate, model_name: str) -> str:
    for text in (group.stem, group.folder.rsplit("/", 1)[-1]):
        labels = list(_LABEL.finditer(text[:256]))
        if labels:
            found = labels[-1]
            return _clean((found["prefix"] or "") + found["label"].upper() + text[found.end() :])
    rest = group.stem
    if model_name and rest.lower().startswith(model_name.lower()) and len(rest) > len(model_name):
        rest = rest[len(model_name) :]
    return _clean(rest)


def _clean(text: str) -> str:
    """Return a name that is valid in `owner/name:VARIANT`."""

    return _NOT_IN_NAMES.sub("-", text).strip("-._+")[:120].strip("-._+") or "model"
