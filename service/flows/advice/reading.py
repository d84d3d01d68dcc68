"""From variants to models: reads headers through the Hub and its cache, several at a time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Protocol

import msgspec

from service.engine.advice import AdviceBody, AdvisedConfig, Refusal
from service.engine.advise import VariantModel
from service.engine.calibration import Calibration
from service.engine.errors import AdvisorError, InvalidHeader, UnsupportedModel
from service.engine.gguf.header import Header, what_else
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Hardware
from service.engine.model import build_model
from service.engine.overrides import Match
from service.engine.planner.explaining.commands import Files
from service.engine.planner.search.all_variants import Report, no_report
from service.engine.units import MIB
from service.flows.advice.matching import SafeMatch
from service.flows.advice.repo_view import headers_of
from service.hub.client import Hub
from service.hub.listing import OtherFile, RepoListing, Variant

_TERMS = "the repo is gated: accept its terms on its page and `hf auth login` before the download"


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
        constraints_of_read = msgspec.structs.replace(constraints, variants=asked)
        body = advise(self.variants, hardware, goal, constraints_of_read, what_if, calibration, report)
        refused = [
            Refusal(variant=name, engine=engine, reason=why)
            for name, why in self.unreadable.items()
            for engine in constraints.engine_names
        ]
        terms = [_TERMS] if self.gated else []
        configs = [msgspec.structs.replace(c, notes=[*terms, *c.notes, *self._not_counted(c)]) for c in body.configs]
        return msgspec.structs.replace(body, configs=configs, refused=[*body.refused, *refused])

    def _not_counted(self, config: AdvisedConfig) -> Iterator[str]:
        if self.projector is not None and self.projector.n_bytes:
            mib, where = math.ceil(self.projector.n_bytes / MIB), config.devices[0].device
            reserve = "" if where == "CPU" else "; ask again with that much more in `reserve_mib`"
            yield (
                f"this is for text: for images or sound add `--mmproj {self.projector.path}`, which takes {mib:,} MiB "
                f"of {'RAM' if where == 'CPU' else where} and more for its buffers{reserve}"
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


def _model(listing: RepoListing, variant: Variant, header: Header | InvalidHeader, match: Match) -> VariantModel:
    if isinstance(header, InvalidHeader):
        raise header
    if (what := what_else(header)) is not None:
        raise UnsupportedModel(f"{variant.files[0].path} is {what}, not a language model")
    files = Files(listing.repo, listing.revision, tuple(file.path for file in variant.files))
    return VariantModel(variant.name, files, build_model(header, match))
