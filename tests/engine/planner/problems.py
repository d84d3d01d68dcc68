"""Problems for the planner: a model, the cards of a machine, what must stay free, a goal."""

from __future__ import annotations

from service.engine.catalogue import engine_devices, resolve
from service.engine.config import Engine, Flags
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.hardware import Hardware
from service.engine.planner.pricing.candidate import Strategy, base_flags
from service.engine.planner.pricing.fit import Problem, limits_of
from tests.models import build


def problem_of(
    hardware: Hardware, engine: Engine, model: str, mix: str, preset: Preset = "chat", reserve_mib: int | None = None,
    first: int = 0,
) -> Problem:  # fmt: skip
    """The problem of one variant on all cards of a machine, of which one is the first."""
    rig, built = resolve(hardware), build(model, mix)
    cards = (first, *(card for card in range(len(rig.cards)) if card != first))
    limits = limits_of(rig, Constraints(reserve_mib=reserve_mib), cards)
    goal = resolve_goal(GoalRequest(preset=preset), built.n_ctx_train)
    return Problem(engine, built, engine_devices(rig, engine, cards), limits, rig, goal)


def flags_of(problem: Problem, n_ubatch: int = 2048, strategy: Strategy = "FFN in RAM") -> Flags:
    """The flags that a candidate for this problem starts from."""
    return base_flags(problem.engine, problem.model, problem.rig, problem.goal, strategy, n_ubatch, "f16")
