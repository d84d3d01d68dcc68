"""Which repo and variant a command runs: named by the request or the command, or found among what was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Protocol

import msgspec

from service.engine.commands.companions import file_name
from service.engine.commands.parse import ParsedCommand
from service.engine.commands.tables import MODEL_REPO
from service.engine.errors import InvalidInput, UnknownVariant
from service.engine.hardware import Assumption
from service.engine.run.settings import option_value
from service.hub.listing import RepoListing, Variant
from service.hub.references import RepoReference, checked_repo, parse_repo_reference
from service.hub.variants import ANY_NUMBER, choose

_FILE_OPTIONS = ("-hff", "--hf-file")
_ADDRESS_OPTIONS = ("-mu", "--model-url")
_ROUTERS = ("--models-preset", "--models-dir")
_OF_A_ROUTER = "this starts a router, which loads no model itself: check its preset file, or for one of its models"
_NO_REPO = "the command does not say which repo its model is from:"
_CACHE_FOLDER = re.compile(r"models--([A-Za-z0-9_.-]{1,96})--([A-Za-z0-9_.-]{1,96})")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_decode = msgspec.msgpack.Decoder(RepoListing).decode
_MOST_NAMED = 8
_USUAL = "Q4_K_M"


class Known(Protocol):
    """The listings of repos that were read before."""

    def holding(self, file: str) -> Iterable[tuple[str, bytes]]:
        """Return repos whose listing contains `file`, latest read first, each with the listing in msgpack."""

    def repos_like(self, name: str) -> list[str]:
        """Return repos whose id contains `name` in any case, latest read first."""


class NamedRepo(msgspec.Struct, frozen=True):
    """A repo, as `OWNER/NAME` or `OWNER/NAME:VARIANT`; `assumed` is filled when only a file name led to it."""

    repo: str
    assumed: tuple[Assumption, ...] = ()


def repo_of(known: Known, stated: str | None, parsed: ParsedCommand) -> NamedRepo:
    """Return the repo of a command's model: as stated, else from `-hf`, else from its path, else by its file's name.

    A file's name is looked for among the repos read here. Raises InvalidInput, naming candidates.
    """
    named = stated or repo_in_command(parsed)
    if named:
        return NamedRepo(named)
    file = file_of(parsed)
    holding = _repos_holding(known, file) if file else []
    if len(holding) == 1:
        why = f"no repo was given: this is the only one read here that contains {file[:120]}"
        return NamedRepo(holding[0], (Assumption("repo", holding[0], why, "everything"),))
    routes = not file and any(option in _ROUTERS for option in parsed.used)
    raise InvalidInput(
        f"{_OF_A_ROUTER if routes else _NO_REPO} give `repo` (--model) as OWNER/NAME:VARIANT",
        field="repo",
        choices=tuple(holding or _repos_named_like(known, file)),
    )


def repo_in_command(parsed: ParsedCommand) -> str | None:
    """Return the repo that a command names: by `-hf`, by `--model-url`, or by two folders of its path."""
    words = (*parsed.flags.other, *parsed.rest)
    return option_value(words, MODEL_REPO) or _at_address(parsed) or repo_in_path(parsed.model_path or "")


def file_of(parsed: ParsedCommand) -> str:
    """Return the name of the command's model file, "" where it names none."""
    named = option_value(parsed.flags.other, _FILE_OPTIONS) or option_value(parsed.rest, _ADDRESS_OPTIONS)
    return file_name((named or parsed.model_path or "").partition("?")[0])


def _at_address(parsed: ParsedCommand) -> str | None:
    """Return the repo of the file that `--model-url` downloads, if it is on the Hub."""
    address = option_value(parsed.rest, _ADDRESS_OPTIONS)
    try:
        return parse_repo_reference(address).repo if address else None
    except InvalidInput:
        return None


def _repos_holding(known: Known, file: str) -> list[str]:
    found: dict[str, None] = {}
    for repo, listing in known.holding(file):
        if _holding(_decode(listing).variants, file):
            found[repo] = None
        if len(found) == _MOST_NAMED:
            break
    return list(found)


def _repos_named_like(known: Known, file: str) -> list[str]:
    """Return repos whose name contains the file's name without its quantisation."""
    stem = _SHARD.sub("", re.sub(r"(?i)\.gguf$", "", file))
    return known.repos_like(stem.rpartition("-")[0] or stem) if stem else []


def repo_in_path(path: str) -> str | None:
    """Return the repo that a path names: `…/OWNER/NAME-GGUF/…`, or the Hub's cache folder `models--OWNER--NAME`."""
    folders = re.split(r"[/\\]", path)[:-1][-16:]
    for folder in folders:
        cached = _CACHE_FOLDER.fullmatch(folder)
        if cached:
            return _repo_id(cached[1], cached[2])
    pairs = pairwise(folders)
    return next((found for a, b in pairs if "gguf" in b.lower() and (found := _repo_id(a, b))), None)


def _repo_id(owner: str, name: str) -> str | None:
    try:
        return "/".join(checked_repo(f"{owner}/{name}"))
    except InvalidInput:
        return None


def variant_of(listing: RepoListing, reference: RepoReference, parsed: ParsedCommand) -> Variant:
    """Return the variant that a command runs: named by the reference, else holding its file, else the only one.

    For `-hf` without a quantisation it is the engine's default. Raises UnknownVariant, naming the choices.
    """
    if reference.variant or reference.file:
        return choose(listing, reference, None, ANY_NUMBER)[0]
    file = file_of(parsed)
    holding = _holding(listing.variants, file)
    if holding:
        return holding
    if len(listing.variants) == 1:
        return listing.variants[0]
    if not file and listing.variants and option_value(parsed.flags.other, MODEL_REPO):
        # What the engine runs: --help says "default to Q4_K_M, or falls back to the first file in the repo".
        usual = [variant for variant in listing.variants if variant.name.upper().endswith(_USUAL)]
        return min(
            usual or listing.variants, key=lambda variant: (len(variant.name) if usual else 0, variant.files[0].path)
        )
    names = tuple(v.name for v in listing.variants)
    message = f"no variant contains the command's file {file[:120]!r}" if file else "the command names no file"
    raise UnknownVariant(f"{message}: give `repo` (--model) as OWNER/NAME:VARIANT", field="repo", choices=names[:40])


def assumed_variant(
    listing: RepoListing, reference: RepoReference, parsed: ParsedCommand, variant: Variant
) -> tuple[Assumption, ...]:  # fmt: skip
    """Return the assumption made about the variant: the default of `-hf`, or not the command's own file."""
    file = file_of(parsed)
    held = _holding(listing.variants, file)
    if held is not None and held.name != variant.name:
        why = f"as asked, although the command opens {file[:120]}, which is {held.name}"
    elif file or reference.variant or reference.file or len(listing.variants) == 1:
        return ()
    else:
        why = f"the command names no quantisation: -hf takes {_USUAL}, or else the repo's first file"
    return (Assumption("variant", variant.name, why, "everything"),)


def _holding(variants: Sequence[Variant], file: str) -> Variant | None:
    return next((v for v in variants if file and any(file_name(f.path) == file for f in v.files)), None)
