"""From variants to models: reads headers through the Hub and its cache, several at a time, and reports the progress."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from typing import Protocol

import msgspec
from msgspec.structs import replace

from service.engine.advice import AdviceBody, AdvisedConfig, Refusal
from service.engine.advise import VariantModel
from service.engine.calibration import Calibration
from service.engine.commands.parse import ParsedCommand
from service.engine.config import ENGINES, Engine
from service.engine.errors import AdvisorError, InvalidHeader, InvalidInput, UnknownVariant, UnsupportedModel
from service.engine.gguf.header import Header, what_else
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Hardware
from service.engine.memory.encoder import Images, image_tokens, images_at_once, model_width
from service.engine.model import Model, build_model
from service.engine.overrides import Match
from service.engine.planner.explaining.commands import Files
from service.engine.planner.ranking.current_command import parsed_command, variant_in_use
from service.engine.planner.search.all_variants import Report, no_report
from service.engine.rules.companion_headers import refuses_projector
from service.engine.units import MIB
from service.flows.advice.companions import as_variant, found_by_engine
from service.flows.advice.matching import SafeMatch
from service.flows.advice.repo_view import headers_of
from service.hub.client import Hub
from service.hub.listing import OtherFile, RepoListing, Variant
from service.hub.references import RepoReference
from service.hub.variants import choose, incomplete_sets

_MICRO_BATCH = ("-ub", "--ubatch-size", "-b", "--batch-size")
_USUAL_MICRO_BATCH = 2048
_NO_PROJECTOR = "the repo's projectors are for models with embeddings of another size"
_TERMS = "the repo is gated: accept its terms on its page and `hf auth login` before the download"
_PAUSE_SECONDS = 0.5  # at least, between two messages of one stage
_KNOWN_SECONDS = 2.0  # an estimate after less time would jump
# Where each stage begins and ends, as a share of the search's time: measured once, on an advice for one GPU.
_SHARES = {"comparing variants": (0.0, 0.45), "placing configs": (0.45, 1.0)}


class Advise(Protocol):
    """The engine's entry, `service.engine.advise.advise`."""

    def __call__(
        self, variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
    ) -> AdviceBody: ...  # fmt: skip


class Models(msgspec.Struct, frozen=True):
    """The variants that could be read, and why the others could not. `gated`: the repo's terms must be accepted first.

    `asked`: names of those that the advice is about; None for all of them. `projector`: the repo's smallest one.
    """

    variants: tuple[VariantModel, ...]
    unreadable: dict[str, str]
    gated: bool = False
    asked: tuple[str, ...] | None = None
    projector: OtherFile | None = None

    def advised(
        self, advise: Advise, hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
    ) -> AdviceBody:  # fmt: skip
        """Return `advise`'s answer for the variants, with a refusal for each one that could not be read.

        Variants named by `constraints` were already chosen before reading; some of them may be unreadable.
        """
        asked = [v.name for v in self.variants if v.name in self.asked] if self.asked else None
        constraints, cannot = self._for_images(constraints)
        constraints_of_read = msgspec.structs.replace(constraints, variants=asked)
        body = advise(self.variants, hardware, goal, constraints_of_read, what_if, calibration, report)
        refused = [
            Refusal(variant=name, engine=engine, reason=why)
            for name, why in self.unreadable.items()
            for engine in constraints.engine_names
        ]
        refused += [
            Refusal(variant=v.name, engine=one, reason=why) for one, why in cannot.items() for v in self.variants
        ]
        terms = [_TERMS] if self.gated else []
        configs = [msgspec.structs.replace(c, notes=[*terms, *c.notes, *self._not_counted(c)]) for c in body.configs]
        return msgspec.structs.replace(body, configs=configs, refused=[*body.refused, *refused])

    def _for_images(self, constraints: Constraints) -> tuple[Constraints, dict[Engine, str]]:
        """Return the constraints with engines that load the projector, and a micro-batch for a whole image where one is
        read at once; and why other engines are left out. Raises InvalidInput where none is left."""
        headers = [variant.projector for variant in self.variants if variant.projector]
        if not headers:
            return constraints, {}
        cannot = {
            engine: why
            for engine in constraints.engine_names
            for header in headers
            if (why := refuses_projector(engine, header, constraints.build_of(engine)))
        }
        kept = [choice for choice in constraints.engines or map(EngineChoice, ENGINES) if choice.name not in cannot]
        if not kept:
            raise InvalidInput("; ".join(cannot.values()), field="constraints.images")
        stated = " ".join(constraints.keep_flags or ()).split()
        more = list(constraints.keep_flags or ())
        largest = [image_tokens(header, Images()) for header in headers if images_at_once(header, Images())]
        if largest and {*_MICRO_BATCH}.isdisjoint(stated):
            more.append(f"-ub {max(_USUAL_MICRO_BATCH, *largest)}")
        engines = kept if cannot else constraints.engines
        return msgspec.structs.replace(constraints, engines=engines, keep_flags=more or None), cannot

    def _not_counted(self, config: AdvisedConfig) -> Iterator[str]:
        counted = any(variant.projector for variant in self.variants)
        if self.projector is not None and self.projector.n_bytes and not counted:
            mib, where = math.ceil(self.projector.n_bytes / MIB), config.devices[0].device
            yield (
                "this is for text: for images or sound ask again with `images` (--images), which adds the projector "
                f"{self.projector.path} and counts it: {mib:,} MiB of {'RAM' if where == 'CPU' else where}, and its "
                "buffers"
            )


def read_models(
    hub: Hub, listing: RepoListing, variants: Sequence[Variant], report: Report = no_report, *, in_full: bool = False
) -> Models:
    """Return the models of `variants`, in order. `report` is called before each, in this thread.

    `in_full`: read every header completely instead of reusing parts of another variant's, as runs on hosts require. A
    damaged variant is set aside; if all of them are, or the Hub fails, the error is raised.
    """
    read: list[VariantModel] = []
    unreadable: dict[str, AdvisorError] = {}
    headers = headers_of(hub, listing, variants, in_full, lambda n: report("reading headers", n, len(variants)))
    match = SafeMatch()
    for variant, header in zip(variants, headers, strict=True):
        try:
            read.append(_model(listing, variant, header, match))
        except InvalidHeader as error:
            unreadable[variant.name] = error
    if not read:
        raise next(iter(unreadable.values()))
    projectors = [other for other in listing.other_files if other.kind == "mmproj"]
    return Models(
        tuple(read),
        {name: error.detail for name, error in unreadable.items()},
        listing.gated,
        projector=min(projectors, key=lambda p: p.n_bytes or sys.maxsize, default=None),
    )


def models_in_full(hub: Hub, listing: RepoListing, names: Container[str]) -> dict[str, Model]:
    """Return the models of the variants with these names, by name, each header read completely. Raises as
    `read_models`."""
    variants = [variant for variant in listing.variants if variant.name in names]
    read = read_models(hub, listing, variants, in_full=True).variants if variants else ()
    return {one.name: one.model for one in read}


def _with_projectors(hub: Hub, listing: RepoListing, models: Models) -> Models:
    """Return the models with the projector that llama.cpp takes for each, or else the smallest one that is for it.

    Variants that none is for are among the unreadable ones. Raises InvalidInput where all are, and the Hub's errors.
    """
    projectors = [as_variant(other) for other in listing.other_files if other.kind == "mmproj"]
    if not projectors:
        raise InvalidInput("the repo has no projector (mmproj) for images or sound", field="constraints.images")
    projectors.sort(key=lambda one: one.files[0].n_bytes or sys.maxsize)
    by_path = {variant.files[0].path: variant for variant in listing.variants}

    @cache
    def header_of(file: Variant) -> Header:
        (header,) = headers_of(hub, listing, [file], in_full=True)
        if isinstance(header, InvalidHeader):
            raise header
        return header

    found, without = [], {}
    for one in models.variants:
        near = found_by_engine(listing, by_path[one.files.paths[0]])
        tried = [near[1], *projectors] if near else projectors
        file = next((f for f in tried if model_width(header_of(f)) in (None, one.model.n_embd)), None)
        if file is None:
            without[one.name] = _NO_PROJECTOR
            continue
        files = msgspec.structs.replace(one.files, projector=file.files[0].path)
        found.append(msgspec.structs.replace(one, files=files, projector=header_of(file)))
    if not found:
        raise InvalidInput(_NO_PROJECTOR, field="constraints.images")
    return replace(models, variants=tuple(found), unreadable={**models.unreadable, **without})


def _model(listing: RepoListing, variant: Variant, header: Header | InvalidHeader, match: Match) -> VariantModel:
    if isinstance(header, InvalidHeader):
        raise header
    if (what := what_else(header)) is not None:
        raise UnsupportedModel(f"{variant.files[0].path} is {what}, not a language model")
    files = Files(listing.repo, listing.revision, tuple(file.path for file in variant.files))
    return VariantModel(variant.name, files, build_model(header, match))


def models_for(
    hub: Hub, listing: RepoListing, reference: RepoReference, constraints: Constraints, report: Report
) -> Models:
    """Return the models of a request, including that of its command in use even where it asks for other variants.

    Where it names no variant, those that lack shards are among the ones that could not be read. Raises UnknownVariant
    if the command runs none of the repo's variants, and whatever `choose` and the Hub raise.
    """
    chosen = choose(listing, reference, constraints.variants)
    parsed = parsed_command(constraints)
    mine = _variant_in_use(listing.variants, chosen, parsed) if parsed else None
    if mine is None or mine in chosen:
        models = read_models(hub, listing, chosen, report)
    else:
        models = read_models(hub, listing, (*chosen, mine), report)
        models = replace(models, asked=tuple(v.name for v in chosen))
    if constraints.images:
        models = _with_projectors(hub, listing, models)
    if constraints.variants is None and reference.variant is None and reference.file is None:
        models = replace(models, unreadable={**incomplete_sets(listing), **models.unreadable})
    return models


def _variant_in_use(listed: Sequence[Variant], chosen: Sequence[Variant], parsed: ParsedCommand) -> Variant:
    """Return the variant that a command runs; a file that the user renamed is taken for the only variant asked for."""
    named = [(v.name, [file.path for file in v.files]) for v in listed]
    try:
        return listed[variant_in_use(named, parsed)]
    except UnknownVariant:
        if len(chosen) != 1:
            raise
    return chosen[0]


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
