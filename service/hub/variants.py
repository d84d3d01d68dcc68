"""From a list of files to variants: shards grouped, names made, and what is no model set apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from service.engine.errors import InvalidInput, UnknownVariant
from service.hub.errors import RepoTooLarge
from service.hub.listing import Limits, OtherFile, OtherKind, RepoFile, RepoListing, Variant
from service.hub.references import RepoReference, is_safe_path

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})", re.ASCII)
_PARTS = re.compile(r"\.gguf[.-](part[0-9]+of[0-9]+|split-[a-z]+)$", re.ASCII)  # pieces to be joined before use

# The name of a quantisation, with the prefixes that makers put before it: UD-Q4_K_XL, i1-IQ3_M, smol-IQ4_KSS, DQ4_K_R4.
_LABEL = re.compile(
    r"(?:^|[-._ ])(?P<prefix>(?:UD|i1|smol|mix|pure|imat)[-_.])?"
    r"(?P<label>(?:I?Q[1-8]|TQ[12]|DQ[1-8])(?:_[0-9A-Z]{1,4}){1,4}|BF16|FP16|F16|F32|MXFP4(?:_MOE)?|NVFP4)"
    r"(?![0-9A-Za-z])",
    re.ASCII | re.IGNORECASE,
)
_WORD = re.compile(r"[a-z]+", re.ASCII)
_KINDS: tuple[tuple[OtherKind, frozenset[str]], ...] = (
    ("mmproj", frozenset({"mmproj"})),
    ("imatrix", frozenset({"imatrix"})),
    ("lora", frozenset({"lora", "adapter"})),
    ("vocab", frozenset({"vocab"})),
    ("draft", frozenset({"draft", "mtp", "eagle"})),
)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+", re.ASCII)
_SUFFIX = re.compile(r"[-_.]?gguf$", re.IGNORECASE)


class _Group(NamedTuple):
    """Files that make one model: `stem` is the file name without shard number and `.gguf`."""

    folder: str
    stem: str
    files: tuple[RepoFile, ...]


def find_variants(files: Iterable[RepoFile], model_name: str = "") -> tuple[tuple[Variant, ...], tuple[OtherFile, ...]]:
    """Return the variants among `files`, smallest first, and the other files with what they are.

    `model_name` is the repo's name: words in it do not make a file a draft or adapter, and it is left out of names.
    Paths that no repo should have (control characters, `..`) are left out altogether.
    """
    usable: list[RepoFile] = []
    others: list[OtherFile] = []
    known = frozenset(_WORD.findall(model_name.lower()))
    for file in files:
        if not is_safe_path(file.path):
            continue
        kind = _other_kind(file.path, known)
        if kind is None:
            usable.append(file)
        else:
            others.append(OtherFile(file.path, kind, file.n_bytes))
    groups, incomplete = _groups(usable)
    others += [OtherFile(file.path, "incomplete", file.n_bytes) for file in incomplete]
    named = zip(_names(groups, _SUFFIX.sub("", model_name)), groups, strict=True)
    variants = sorted((Variant(name, group.files) for name, group in named), key=lambda v: (v.n_bytes or 0, v.name))
    return tuple(variants), tuple(sorted(others, key=lambda o: o.path))


def shard_names(name: str, most: int) -> list[str]:
    """Return the names of all shards of the set that a file belongs to by its name, at most `most`; or just its own."""
    match = _SHARD.fullmatch(name.removesuffix(".gguf"))
    if match is None or not 0 < int(match["count"]) <= most:
        return [name]
    return [f"{match['stem']}-{number + 1:05d}-of-{match['count']}.gguf" for number in range(int(match["count"]))]


def choose(
    listing: RepoListing, reference: RepoReference | None = None, names: Sequence[str] | None = None,
    limits: Limits | None = None,
) -> tuple[Variant, ...]:  # fmt: skip
    """Return the variants to read: those that a reference or `names` ask for, else all of them.

    Names are compared without case. Raises UnknownVariant with those there are, and RepoTooLarge when what is asked for
    is more than `limits` allow.
    """
    chosen = listing.variants
    if reference is not None and reference.variant is not None:
        chosen = _named(listing, [reference.variant], "repo")
    elif reference is not None and reference.file is not None:
        chosen = _holding(listing, reference.file)
    if names is not None:
        wanted = _named(listing, names, "constraints.variants")
        chosen = tuple(v for v in chosen if v in wanted)
        if not chosen:
            raise InvalidInput("`repo` and `constraints.variants` name different variants", field="repo")
    _check_limits(listing, chosen, limits or Limits())
    return chosen


def _check_limits(listing: RepoListing, chosen: tuple[Variant, ...], limits: Limits) -> None:
    n_files = sum(len(v.files) for v in chosen)
    if len(chosen) > limits.variants or n_files > limits.shards:
        raise RepoTooLarge(
            f"{len(chosen)} variants in {n_files} files are more than the {limits.variants} variants and "
            f"{limits.shards} files that are read at once: name a variant",
            field="constraints.variants",
            choices=tuple(v.name for v in chosen[:40]),
        )


def _named(listing: RepoListing, names: Sequence[str], field: str) -> tuple[Variant, ...]:
    by_name = {v.name.lower(): v for v in listing.variants}
    for name in names:
        if name.lower() not in by_name:
            raise UnknownVariant(f"the repo has no variant {name[:80]!r}", field=field, choices=listing.names[:40])
    wanted = {name.lower() for name in names}
    return tuple(v for v in listing.variants if v.name.lower() in wanted)


def _holding(listing: RepoListing, path: str) -> tuple[Variant, ...]:
    """Variants with a file at `path` or, when it is a folder, under it."""
    found = tuple(v for v in listing.variants if any(f.path == path or f.path.startswith(f"{path}/") for f in v.files))
    if not found:
        other = next((o for o in listing.other_files if o.path == path), None)
        what = f"{path[:120]!r} is no variant" + (f" but {other.kind}" if other and other.kind != "other" else "")
        raise UnknownVariant(what, field="repo", choices=listing.names[:40])
    return found


def _other_kind(path: str, known_words: frozenset[str]) -> OtherKind | None:
    """What a file is if it is no model: by the words of its name that the repo's name does not have."""
    name = path.rsplit("/", 1)[-1]
    words = frozenset(_WORD.findall(name.lower())) - known_words
    for kind, marks in _KINDS:
        if words & marks and (_is_imatrix(name) if kind == "imatrix" else name.endswith(".gguf")):
            return kind
    if _PARTS.search(name):
        return "incomplete"
    return None if name.endswith(".gguf") else "other"


def _is_imatrix(name: str) -> bool:
    """Whether a name with "imatrix" in it is the matrix itself, not a model that was made with one."""
    return not name.endswith(".gguf") or name.lower().startswith("imatrix") or not _LABEL.search(name[:256])


def _groups(files: Sequence[RepoFile]) -> tuple[list[_Group], list[RepoFile]]:
    """Return complete models, and the shards of incomplete ones."""
    single: list[_Group] = []
    sharded: dict[tuple[str, str, int], dict[int, RepoFile]] = {}
    for file in files:
        folder, _, name = file.path.rpartition("/")
        stem = name.removesuffix(".gguf")
        match = _SHARD.fullmatch(stem)
        if match is None:
            single.append(_Group(folder, stem, (file,)))
        else:
            place = sharded.setdefault((folder, match["stem"], int(match["count"])), {})
            place[int(match["number"])] = file
    incomplete: list[RepoFile] = []
    for (folder, stem, count), shards in sharded.items():
        if len(shards) == count and set(shards) == set(range(1, count + 1)):
            single.append(_Group(folder, stem, tuple(shards[n] for n in range(1, count + 1))))
        else:
            incomplete += [shards[n] for n in sorted(shards)]
    return single, incomplete


def _names(groups: Sequence[_Group], model_name: str) -> list[str]:
    """Return a name for each group, unique without regard to case: the quantisation, else more of the path."""
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


def _short_name(group: _Group, model_name: str) -> str:
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
    """A name that can stand in `owner/name:VARIANT`."""
    return _NOT_IN_NAMES.sub("-", text).strip("-._+")[:120].strip("-._+") or "model"
