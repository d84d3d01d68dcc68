"""Check a command: which repo and variant it is about, their header, and what the engine's knowledge says of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from service.engine.advise import VariantModel
from service.engine.catalogue import resolve
from service.engine.check import check
from service.engine.commands import parse
from service.engine.hardware import Assumption, Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.logs import read_log
from service.engine.rules import NOTHING, Beside
from service.flows.command_model import repo_of, variant_of
from service.flows.companions import companions
from service.flows.context import Context
from service.flows.matching import match_safely
from service.flows.reading import read_models
from service.flows.repos import list_repo, reading
from service.flows.requests import parse_reference
from service.hub import RepoListing, RepoReference
from service.store import listings
from service.wire.check import BatchCase, Checked, CheckRequest


def check_command(context: Context, asked: CheckRequest, admit_new_repo: Callable[[], None] = lambda: None) -> Checked:
    """Return what is known of a command; reads the header of its variant where it was not read yet.

    Everything that can be wrong with the request is found before anything is read. `admit_new_repo` is called before a
    repo never read here, and may raise. Raises InvalidInput and its kinds, and the Hub's errors.
    """
    parsed, rig = parse(asked.command, asked.engine, build=asked.build), rig_of(asked.hardware)
    if asked.log is not None:
        read_log(asked.log)
    named = repo_of(context.engine, asked.repo, parsed)
    reference = parse_reference(named.repo, asked.revision)
    if not listings.is_known(context.engine, reference.repo):
        admit_new_repo()
    with reading(context, reference.repo):
        listing = list_repo(context, reference)
        variant = variant_of(listing, reference, parsed)
        models = read_models(context.hub, listing, [variant], lambda step: None)
        beside = companions(
            parsed, asked.draft, asked.mmproj, listing, _lister(context, admit_new_repo), context.hub.read_header
        )
    return checked(asked, models.variants[0], rig, beside, named.assumed)


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


def checked(
    asked: CheckRequest | BatchCase, variant: VariantModel, rig: Rig, beside: Beside = NOTHING,
    assumed: Sequence[Assumption] = (),
) -> Checked:  # fmt: skip
    """Return the check of a request whose model is known; `assumed`: how it was found. Raises InvalidInput."""
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
        reserve_mib=asked.reserve_mib,
    )
    known = {name: getattr(report, name) for name in report.__struct_fields__}
    known["assumed"] = [*assumed, *report.assumed]
    return Checked(repo=variant.files.repo, revision=variant.files.revision, variant=variant.name, **known)
