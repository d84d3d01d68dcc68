"""Which models an advice is computed from, and its progress: the stage, a count, and the seconds left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from service.engine.commands.parse import ParsedCommand
from service.engine.errors import UnknownVariant
from service.engine.goal import Constraints
from service.engine.planner.ranking.current_command import parsed_command, variant_in_use
from service.engine.planner.search.all_variants import Report
from service.flows.advice.reading import Models, read_models
from service.hub.client import Hub
from service.hub.listing import RepoListing, Variant
from service.hub.references import RepoReference
from service.hub.variants import choose


def models_for(
    hub: Hub, listing: RepoListing, reference: RepoReference, constraints: Constraints, report: Report
) -> Models:
    """Return the models of a request, including that of its command in use even where it asks for other variants.

    Raises UnknownVariant if the command runs none of the repo's variants, and whatever `choose` and the Hub raise.
    """
    chosen = choose(listing, reference, constraints.variants)
    parsed = parsed_command(constraints)
    if parsed is None:
        return read_models(hub, listing, chosen, report)
    mine = _variant_in_use(listing.variants, chosen, parsed)
    if mine in chosen:
        return read_models(hub, listing, chosen, report)
    models = read_models(hub, listing, (*chosen, mine), report)
    return replace(models, asked=tuple(v.name for v in chosen))


def _variant_in_use(listed: Sequence[Variant], chosen: Sequence[Variant], parsed: ParsedCommand) -> Variant:
    """Return the variant that a command runs; a file that the user renamed is taken for the only variant asked for."""
    named = [(v.name, [file.path for file in v.files]) for v in listed]
    try:
        return listed[variant_in_use(named, parsed)]
    except UnknownVariant:
        if len(chosen) != 1:
            raise
    return chosen[0]


_PAUSE_SECONDS = 0.5  # at least, between two messages of one stage
_KNOWN_SECONDS = 2.0  # an estimate after less time would jump
# Where each stage begins and ends, as a share of the search's time: measured once, on an advice for one GPU.
_SHARES = {"comparing variants": (0.0, 0.45), "placing configs": (0.45, 1.0)}


def counted(stage: str, done: int, of: int) -> str:
    """Return a progress report in words, such as `comparing variants: 5 of 16`."""
    return f"{stage}: {done} of {of}"


class Pace:
    """Turns the search's reports into words; `say` gets them with the share of the search that is done, 0 to 1."""

    def __init__(self, say: Callable[[str, float], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._begun = clock()
        self._said: tuple[str, float] | None = None

    def __call__(self, stage: str, done: int, of: int) -> None:
        """Take one report: `done` of `of` in this stage, counting the one just begun."""
        now = self._clock()
        if self._said and self._said[0] == stage and now - self._said[1] < _PAUSE_SECONDS:
            return
        self._said = (stage, now)
        begin, end = _SHARES[stage]
        share = begin + (end - begin) * (done - 1) / of
        elapsed = now - self._begun
        left = round(elapsed * (1 - share) / share) if share and elapsed >= _KNOWN_SECONDS else 0
        self._say(counted(stage, done, of) + (f", about {left} s left" if left else ""), share)
