"""What is worth measuring around a config: it fits, it differs, and it says in what."""

from functools import cache

import pytest
from msgspec.structs import replace

from service.engine.catalogue import resolve
from service.engine.config import Engine
from service.engine.goal import Constraints, GoalRequest, resolve_goal
from service.engine.hardware import Hardware, Ram
from service.engine.planner.pricing.fit import Fitted, check
from service.engine.planner.ranking.rank import Contender, rank
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.outcome import SearchCase
from service.engine.planner.search.simple import shortest
from service.engine.tune import MOST_STEPS, Step, steps_around
from tests import rigs
from tests.models import build

RIGS = {"laptop": rigs.LAPTOP_6GB, "four cards": rigs.TWO_5090_TWO_4090, "3090": rigs.ONE_3090_DESKTOP}
ASKED: list[tuple[str, str, str, Engine]] = [
    ("Qwen3-30B-A3B", "q4_k_m", "laptop", "ik_llama.cpp"),
    ("Qwen3-235B-A22B", "q4_k_m", "four cards", "llama.cpp"),
    ("Qwen3-14B", "q8_0", "3090", "ik_llama.cpp"),
]


def case_of(model: str, mix: str, hardware: Hardware, engine: Engine, constraints: Constraints) -> SearchCase:
    built = build(model, mix)
    return SearchCase(engine, 0, built, resolve(hardware), resolve_goal(GoalRequest(), built.n_ctx_train), constraints)


@cache
def tuned(model: str, mix: str, rig: str, engine: Engine) -> tuple[Contender, tuple[Step, ...]]:
    case = case_of(model, mix, RIGS[rig], engine, Constraints())
    first = shortest(rank([c for outcome in search([case]) for c in outcome.contenders], case.goal)).order[0]
    return first, steps_around(case, first.candidate.cards, first.fitted.flags)


@pytest.mark.parametrize(
    "asked", [ASKED[0], pytest.param(ASKED[1], marks=pytest.mark.full), ASKED[2]], ids=lambda a: a[0]
)
def test_the_start_comes_first_and_every_step_fits_and_differs(asked: tuple[str, str, str, Engine]) -> None:
    first, steps = tuned(*asked)
    assert steps[0].flags == first.fitted.flags
    assert steps[0].changed == "as advised"
    assert 4 <= len(steps) <= MOST_STEPS
    assert len({step.flags for step in steps}) == len({step.changed for step in steps}) == len(steps)
    assert all(isinstance(check(first.problem, step.flags), Fitted) for step in steps)


def test_weights_in_ram_are_weighed_against_micro_batches_and_threads() -> None:
    _, steps = tuned(*ASKED[0])
    said = [step.changed for step in steps]
    assert any("-ub 2048" in text and "GiB of weights in RAM instead of" in text for text in said)
    assert any(text.startswith("-t ") for text in said)
    assert any("-ctk q8_0" in text for text in said)


def test_threads_are_left_alone_where_nothing_lies_in_ram() -> None:
    _, steps = tuned(*ASKED[2])
    assert not any("-t " in step.changed for step in steps)


@pytest.mark.full
def test_cache_types_that_the_asker_excludes_are_not_tried() -> None:
    case = case_of("Qwen3-30B-A3B", "q4_k_m", rigs.LAPTOP_6GB, "llama.cpp", Constraints(kv_types=["f16"]))
    first = rank([c for outcome in search([case]) for c in outcome.contenders], case.goal).order[0]
    steps = steps_around(case, first.candidate.cards, first.fitted.flags)
    assert {step.flags.cache_type_k for step in steps} == {"f16"}


def test_a_config_that_does_not_fit_this_machine_has_no_steps() -> None:
    first, _ = tuned(*ASKED[0])
    smaller = replace(rigs.LAPTOP_6GB, ram=Ram(total_gb=8))
    case = case_of("Qwen3-30B-A3B", "q4_k_m", smaller, "ik_llama.cpp", Constraints())
    assert steps_around(case, (0,), first.fitted.flags) == ()
