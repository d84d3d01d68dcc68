"""The input and the outcome of one search: one engine and variant on one rig, for one goal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.config import Engine
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.pricing.fit import Fitted, Problem, Shortfall
from service.engine.planner.pricing.forecast import Forecast
from service.engine.planner.pricing.support import without_cards
from service.engine.planner.ranking.rank import Contender
from service.engine.speed.predict import goal_seconds, predict_speed, typical_seconds

RejectedFor: TypeAlias = Literal["does not fit", "a card idle", "pruned by bound", "minimum not reached"]


class SearchCase(NamedTuple):
    """One engine and variant on one rig, for one goal. `in_use`: the engine of the command in use."""

    engine: Engine
    variant: int
    model: Model
    rig: Rig
    goal: Goal
    constraints: Constraints
    name: str = ""
    in_use: Engine | None = None


def on_cpu_alone(cases: Sequence[SearchCase], engines: Sequence[Engine]) -> Iterator[SearchCase]:
    """Yield cases without cards for the variants that no engine runs with the cards of a machine.

    `cases`: all of that machine, as each build sees it. `engines`: those that may be tried.
    """
    rigs = list({id(case.rig): case.rig for case in cases}.values())
    for case in {case.variant: case for case in cases}.values():
        for engine in engines:
            rig = without_cards(engine, case.model, rigs)
            if rig is not None:
                yield case._replace(engine=engine, rig=rig)


class Rejected(NamedTuple):
    """A candidate that is no contender, and why: with its forecast where it was not placed, or what it was short of."""

    candidate: Candidate
    why: RejectedFor
    forecast: Forecast | None
    shortfall: Shortfall | None


class Outcome(msgspec.Struct, frozen=True):
    """What a search found: contenders, rejected candidates, the smallest shortfall, and why the engine cannot run it.

    `considered`: candidates that were forecast; `placed`: those of them with a placement, its memory and speed. `loss`:
    the variant's, in per cent (`ranking_loss`).
    """

    case: SearchCase
    contenders: list[Contender]
    rejected: list[Rejected]
    shortfall: Shortfall | None
    refusal: str | None
    considered: int
    placed: int
    loss: float = 0.0

    @property
    def all_failed(self) -> bool:
        return not self.contenders and all(one.why == "does not fit" for one in self.rejected)


def contender_of(case: SearchCase, candidate: Candidate, problem: Problem, fitted: Fitted, loss: float) -> Contender:
    """Return a placed candidate with its speed and times, ready to be ranked. `loss`: the variant's, in per cent."""
    return Contender(
        engine=case.engine,
        variant=case.variant,
        bpw=case.model.bpw,
        loss=loss,
        candidate=candidate,
        problem=problem,
        fitted=fitted,
        speed=predict_speed(fitted.run, case.goal.depth),
        seconds=goal_seconds(fitted.run, case.goal),
        typical=typical_seconds(fitted.run, case.goal),
        name=case.name,
        in_use=case.in_use,
    )
