"""The variants that an advice reads, with that of the command in use, whose patterns are matched safely."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.commands import ParsedCommand
from service.engine.errors import UnknownVariant
from service.engine.goal import Constraints
from service.engine.planner.ranking.current_command import parsed_command, variant_in_use
from service.engine.planner.search.all_variants import Report
from service.flows.advice.reading import Models, read_models
from service.hub import Hub, RepoListing, RepoReference, Variant, choose


def models_for(
    hub: Hub, listing: RepoListing, reference: RepoReference, constraints: Constraints, report: Report
) -> Models:
    """Return the models that a request is about; that of its command in use is read even where it asks for others.

    Raises UnknownVariant for a command that runs none of the repo's variants, and what `choose` and the Hub raise.
    """
    chosen = choose(listing, reference, constraints.variants)
    parsed = parsed_command(constraints)
    if parsed is None:
        return read_models(hub, listing, chosen, report)
    mine = _variant_in_use(listing.variants, chosen, parsed)
    if mine in chosen:
        models = read_models(hub, listing, chosen, report)
    else:
        models = read_models(hub, listing, (*chosen, mine), report)
        models = replace(models, asked=tuple(v.name for v in chosen))
    return models


def _variant_in_use(listed: Sequence[Variant], chosen: Sequence[Variant], parsed: ParsedCommand) -> Variant:
    """Return the variant that a command runs: where its file has a name of the user's own, the only one asked for."""
    named = [(v.name, [file.path for file in v.files]) for v in listed]
    try:
        return listed[variant_in_use(named, parsed)]
    except UnknownVariant:
        if len(chosen) != 1:
            raise
    return chosen[0]
