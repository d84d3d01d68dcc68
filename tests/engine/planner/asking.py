"""Ask `advise()` about a model's variants, given by their mixes."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advice import AdviceBody, AdvisedConfig
from service.engine.advise import VariantModel
from service.engine.config import Engine
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Hardware
from service.engine.planner.explaining.commands import Files
from tests.computed_once import advise_once
from tests.models import build


def variant(model: str, mix: str) -> VariantModel:
    """A variant of a model with true shapes; its name is the mix's."""
    return VariantModel(mix, Files(f"someone/{model}-GGUF", "0" * 40, (f"{model}-{mix}.gguf",)), build(model, mix))


def ask(
    model: str,
    *mixes: str,
    hardware: Hardware,
    goal: GoalRequest | None = None,
    engine: Engine | None = None,
    constraints: Constraints | None = None,
    what_if: Sequence[str] = (),
) -> AdviceBody:
    """The advice for some variants of one model on a machine; computed once, however many tests ask for it."""
    wanted = constraints or Constraints(engines=[EngineChoice(engine)] if engine else None)
    return advise_once([variant(model, mix) for mix in mixes], hardware, goal or GoalRequest(), wanted, what_if)


def first(body: AdviceBody) -> AdvisedConfig:
    """The config that comes first."""
    assert body.configs, [r.reason for r in body.refused]
    return body.configs[0]
