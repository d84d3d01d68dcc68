"""Check a command: which repo and variant it is about, their header, and what the engine's knowledge says of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from service.engine.advise import VariantModel
from service.engine.catalogue import resolve
from service.engine.check import check
from service.engine.commands import ParsedCommand, option_value, parse
from service.engine.errors import InvalidInput, UnknownVariant
from service.engine.hardware import Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.logs import read_log
from service.engine.rules import NOTHING, Beside
from service.flows.companions import companions
from service.flows.context import Context
from service.flows.matching import match_safely
from service.flows.reading import read_models
from service.flows.repos import list_repo, reading
from service.flows.requests import parse_reference
from service.hub import RepoListing, RepoReference, Variant, choose
from service.hub.listing import Limits
from service.hub.references import checked_repo
from service.store import listings
from service.wire.check import BatchCase, Checked, CheckRequest

_ANY_NUMBER = Limits(variants=20_000, shards=20_000)  # only one of them is read
_REPO_OPTIONS = ("-hf", "-hfr", "--hf-repo")
_FILE_OPTIONS = ("-hff", "--hf-file")
_CACHE_FOLDER = re.compile(r"models--([A-Za-z0-9_.-]{1,96})--([A-Za-z0-9_.-]{1,96})")
_SHARD = re.compile(r"-\d{5}-of-\d{5}$")


def check_command(context: Context, asked: CheckRequest, admit_new_repo: Callable[[], None] = lambda: None) -> Checked:
    """Return what is known of a command; reads the header of its variant where it was not read yet.

    Everything that can be wrong with the request is found before anything is read. `admit_new_repo` is called before a
    repo never read here, and may raise. Raises InvalidInput and its kinds, and the Hub's errors.
    """
    parsed, rig = parse(asked.command, asked.engine, build=asked.build), rig_of(asked.hardware)
    if asked.log is not None:
        read_log(asked.log)
    reference = _reference(context, asked, parsed)
    if not listings.is_known(context.engine, reference.repo):
        admit_new_repo()
    with reading(context, reference.repo):
        listing = list_repo(context, reference)
        variant = variant_of(listing, reference, parsed)
        models = read_models(context.hub, listing, [variant], lambda step: None)
        beside = companions(
            parsed, asked.draft, asked.mmproj, listing, _lister(context, admit_new_repo), context.hub.read_header
        )
    return checked(asked, models.variants[0], rig, beside)


def _lister(context: Context, admit_new_repo: Callable[[], None]) -> Callable[[RepoReference], RepoListing]:
    """Lists another repo that a request names, which may be new here too."""

    def listed(reference: RepoReference) -> RepoListing:
        if not listings.is_known(context.engine, reference.repo):
            admit_new_repo()
        return list_repo(context, reference)

    return listed


def rig_of(hardware: Hardware | str) -> Rig:
    """Return the machine of a request as stated (the canonical form rounds). Raises InvalidHardware and its kind."""
    return resolve(parse_hardware(hardware) if isinstance(hardware, str) else hardware)


def checked(asked: CheckRequest | BatchCase, variant: VariantModel, rig: Rig, beside: Beside = NOTHING) -> Checked:
    """Return the check of a request whose model is known. Raises InvalidInput."""
    rules = parse(asked.command, asked.engine, build=asked.build).flags.overrides
    match_safely(variant.model, (rule.pattern for rule in rules))
    report = check(
        asked.command,
        asked.engine,
        variant.model,
        rig,
        depths=asked.depths,
        allocator=asked.allocator,
        measured=asked.measured or (),
        log=asked.log,
        beside=beside,
        build=asked.build,
    )
    known = {name: getattr(report, name) for name in report.__struct_fields__}
    return Checked(repo=variant.files.repo, revision=variant.files.revision, variant=variant.name, **known)


def _reference(context: Context, asked: CheckRequest, parsed: ParsedCommand) -> RepoReference:
    named = asked.repo or option_value(parsed.flags.other, _REPO_OPTIONS) or repo_in_path(parsed.model_path or "")
    if named:
        return parse_reference(named, asked.revision)
    stem = _SHARD.sub("", _file_name(parsed.model_path or "").removesuffix(".gguf"))
    candidates = listings.repos_like(context.engine, stem.rpartition("-")[0] or stem) if stem else []
    raise InvalidInput(
        "the command does not say which repo its model is from: give `repo` as OWNER/NAME or OWNER/NAME:VARIANT",
        field="repo",
        choices=tuple(candidates),
    )


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
    """Return the variant that a command runs: named in the reference, or holding its file, or the only one.

    Raises UnknownVariant with those there are.
    """
    if reference.variant or reference.file:
        return choose(listing, reference, None, _ANY_NUMBER)[0]
    file = _file_name(option_value(parsed.flags.other, _FILE_OPTIONS) or parsed.model_path or "")
    holding = _holding(listing.variants, file)
    if holding:
        return holding
    if len(listing.variants) == 1:
        return listing.variants[0]
    names = tuple(v.name for v in listing.variants)
    message = f"no variant holds the command's file {file[:120]!r}" if file else "the command names no file"
    raise UnknownVariant(f"{message}: give `repo` as OWNER/NAME:VARIANT", field="repo", choices=names[:40])


def _holding(variants: Sequence[Variant], file: str) -> Variant | None:
    return next((v for v in variants if file and any(_file_name(f.path) == file for f in v.files)), None)


def _file_name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]
