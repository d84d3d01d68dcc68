"""Variants to models: headers read through the Hub and its cache, several at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Protocol

import msgspec

from service.engine.advice import AdviceBody, Refusal
from service.engine.advise import VariantModel
from service.engine.errors import AdvisorError, InvalidHeader
from service.engine.goal import Constraints, GoalRequest
from service.engine.hardware import Hardware
from service.engine.model import build_model
from service.engine.planner.write import Files
from service.hub import Hub, RepoListing, Variant, read_local_header

_TERMS = "the repo is gated: accept its terms on its page and `hf auth login` before the download"
_READERS = 4  # variants at a time: enough to hide the Hub's latency, few enough for its rate limit


class Advise(Protocol):
    """The engine's entry, `service.engine.advise.advise`."""

    def __call__(
        self, variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (),
    ) -> AdviceBody: ...  # fmt: skip


class Models(msgspec.Struct, frozen=True):
    """The variants that could be read, and why the others could not. `gated`: the repo's terms come first.

    `asked`: names of those that an advice is about, None: all of them.
    """

    variants: tuple[VariantModel, ...]
    unreadable: dict[str, str]
    gated: bool = False
    asked: tuple[str, ...] | None = None

    def advised(
        self, advise: Advise, hardware: Hardware, goal: GoalRequest, constraints: Constraints,
        what_if: Sequence[str] = (),
    ) -> AdviceBody:  # fmt: skip
        """Return what `advise` says of the variants, with a refusal for each one that could not be read.

        The variants that `constraints` name were chosen before they were read; some may be missing here.
        """
        asked = [v.name for v in self.variants if v.name in self.asked] if self.asked else None
        body = advise(self.variants, hardware, goal, msgspec.structs.replace(constraints, variants=asked), what_if)
        return self._with_terms(self.with_refusals(body, constraints))

    def _with_terms(self, body: AdviceBody) -> AdviceBody:
        if not self.gated:
            return body
        configs = [msgspec.structs.replace(c, notes=[_TERMS, *c.notes]) for c in body.configs]
        return msgspec.structs.replace(body, configs=configs)

    def with_refusals(self, body: AdviceBody, constraints: Constraints) -> AdviceBody:
        """Return `body` with a refusal for each variant that could not be read."""
        refused = [
            Refusal(variant=name, engine=engine, reason=why)
            for name, why in self.unreadable.items()
            for engine in constraints.engine_names
        ]
        return msgspec.structs.replace(body, refused=[*body.refused, *refused])


def read_models(hub: Hub, listing: RepoListing, variants: Sequence[Variant], report: Callable[[str], None]) -> Models:
    """Return the models of `variants`, in their order. `report` is called with each step, in this thread.

    A damaged variant is set aside; when all of them are, or the Hub fails, the error is raised.
    """
    read: list[VariantModel] = []
    unreadable: dict[str, AdvisorError] = {}
    with ThreadPoolExecutor(_READERS) as pool:
        # The first one alone: from it the Hub learns how large the headers of this repo are.
        outcomes = chain.from_iterable(
            pool.map(lambda variant: _read(hub, listing, variant), some) for some in (variants[:1], variants[1:])
        )
        for number, variant in enumerate(variants, 1):
            report(f"reading header {number} of {len(variants)}")
            outcome = next(outcomes)
            if isinstance(outcome, VariantModel):
                read.append(outcome)
            else:
                unreadable[variant.name] = outcome
    if not read:
        raise next(iter(unreadable.values()))
    return Models(tuple(read), {name: error.detail for name, error in unreadable.items()}, listing.gated)


def _read(hub: Hub, listing: RepoListing, variant: Variant) -> VariantModel | InvalidHeader:
    try:
        on_disk = listing.repo is None
        model = build_model(read_local_header(variant) if on_disk else hub.read_header(listing, variant))
    except InvalidHeader as error:
        return error
    files = Files(listing.repo, listing.revision, tuple(file.path for file in variant.files))
    return VariantModel(variant.name, files, model)
