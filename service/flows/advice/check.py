"""Check a command: find its repo and variant, read the header, and apply the engine's rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from service.engine.commands.parse import parse
from service.engine.logs.read import read_log
from service.flows.advice.checked import checked, rig_of
from service.flows.advice.command_model import assumed_variant, repo_of, variant_of
from service.flows.advice.companions import companions
from service.flows.advice.reading import read_models
from service.flows.advice.repos import list_admitted, listed
from service.flows.context import Context
from service.flows.results.differences import reported_of
from service.hub.references import parse_reference
from service.store.advice import listings
from service.store.results import calibrations
from service.wire.advice.check import Checked, CheckRequest


def check_command(context: Context, asked: CheckRequest, admit_new_repo: Callable[[], None] = lambda: None) -> Checked:
    """Return the check of a command, reading its variant's header if that was not read yet.

    Errors in the request itself are found before anything is read. `admit_new_repo` is called before any work on a
    repo never read here, and may raise. Raises InvalidInput and its subclasses, and the Hub's errors.
    """
    parsed = parse(asked.command, asked.engine, build=asked.build)
    rig = rig_of(asked.hardware, calibrations.in_force(context.engine), parsed)
    if asked.log is not None:
        read_log(asked.log)
    named = repo_of(listings.Listings(context.engine), asked.repo, parsed)
    reference = parse_reference(named.repo, asked.revision)
    with listed(context, reference, admit_new_repo) as listing:
        variant = variant_of(listing, reference, parsed)
        models = read_models(context.hub, listing, [variant])
        list_another = partial(list_admitted, context, admit_new_repo=admit_new_repo)
        headers = companions(parsed, asked.draft, asked.mmproj, listing, variant, list_another, context.hub.read_header)
    assumed = (*named.assumed, *assumed_variant(listing, reference, parsed, variant))
    variant_model = models.variants[0]
    reported = reported_of(context, variant_model.model.architecture)
    return checked(asked, variant_model, rig, headers, assumed, reported)
