"""A mixture of experts that is larger than RAM and VRAM: what running it from a drive would come to.

llama.cpp maps weights by default, and what RAM cannot keep is read from the drive again whenever a token needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.catalogue import engine_devices
from service.engine.engines import engine_spec
from service.engine.planner.pricing.candidate import Strategy, base_flags
from service.engine.planner.pricing.fit import Problem, slack
from service.engine.planner.search.one_variant import Outcome, limits_of
from service.engine.speed import predict_speed
from service.engine.units import GIB

# What a PCIe 4.0 drive with four lanes reads in one piece at most (its link moves 7.9), and how many times that rate
# tokens see. Less, for pages are read as they are met; more, for some experts are met again and again and stay in RAM.
# The range is judgment: two runs of DeepSeek-R1 with 96 GB of RAM were published, 212 GB at about 2 t/s without a GPU
# (J. Leimgruber, January 2025) and 226 GiB at 4 (ik_llama.cpp discussion 286), and neither with its drive's rate.
_DRIVE_GBS, _LEAST_SHARE, _MOST_SHARE = 7.0, 0.5, 1.5
_N_UBATCH = 512
_LEAST_TG = 0.1  # below it a hundred tokens take a quarter of an hour


class _Mapped(NamedTuple):
    """A variant run from a drive: options, bytes that RAM cannot keep, bytes read for a token, tokens a second at
    least and at most.
    """

    name: str
    options: str
    beyond: float
    a_token: float
    least: float
    most: float


def from_disk(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    """Return the sentence that follows "nothing fits", of the variant that is likely the fastest; empty where none runs
    from a drive faster than a token in ten seconds. `names`: those of the variants.

    Prompts get no figure: a micro-batch meets nearly all of them.
    """
    found = [one for o in outcomes if (one := _mapped(o, names[o.case.variant])) and one.least >= _LEAST_TG]
    if not found:
        return ""
    best = max(found, key=lambda one: one.least)
    beyond, a_token = f"{best.beyond / GIB:.0f} GiB", f"{best.a_token / GIB:.1f} GiB"
    return (
        f" It would still run from an NVMe drive, slowly: {best.name} with llama.cpp{best.options} and mmap left on. "
        f"RAM cannot hold {beyond} of its experts, so each token reads about {a_token} from the drive: "
        f"{best.least:.1f} to {best.most:.1f} t/s with one of {_DRIVE_GBS:.0f} GB/s. A prompt reads nearly all experts "
        "again for each micro-batch."
    )


def _mapped(outcome: Outcome, name: str) -> _Mapped | None:
    """None where the engine does not map experts in RAM, or more than experts would have to be read."""
    case, model = outcome.case, outcome.case.model
    pins = engine_spec(case.engine).offload.pins_overridden
    if outcome.shortfall is None or pins or not model.moe_layers or any(card.unified for card in case.rig.cards):
        return None
    cards = tuple(range(len(case.rig.cards)))
    limits, devices = limits_of(case.rig, case.constraints, cards), engine_devices(case.rig, case.engine, cards)
    problem = Problem(case.engine, model, devices, limits, case.rig, case.goal)
    strategy: Strategy = "FFN in RAM" if cards else "CPU only"
    flags = base_flags(case.engine, model, case.rig, case.goal, strategy, _N_UBATCH, "f16")
    flags = replace(flags, cpu_moe=bool(cards), mmap=None)
    memory = problem.memory(flags)
    *on_cards, in_ram = slack(problem, memory)
    experts = sum(t.nbytes for t in model.tensors if "_exps" in t.name)
    if min(on_cards, default=0) < 0 or not 0 < -in_ram < experts:
        return None
    a_token = -in_ram * model.n_expert_used / model.n_expert
    tg, at_best = predict_speed(problem.run(flags, memory.placement), case.goal.depth).tg, a_token / (_DRIVE_GBS * 1e9)
    least, most = 1 / (1 / tg.low + at_best / _LEAST_SHARE), 1 / (1 / tg.high + at_best / _MOST_SHARE)
    return _Mapped(name, " -ngl 99 -cmoe" if cards else "", -in_ram, a_token, least, most)
