"""The expert cache as an alternative: all experts in RAM, and those in use kept on the cards (llama.cpp pull 29887).

It takes the place of the layers of experts that lie on the cards, and every expert that it lacks crosses the link for
every token, so it loses by far over a slow one. Published, tokens a second against a placement that fills the card as
well: 1.76 times (RTX 5090, Qwen3.8-Flash-Next, a tenth of the experts cached, 78 % hits; prompts 0.87 times;
qvac-fabric-llm.cpp pull 237, from which llama.cpp's was ported), 1.35 (RTX 4080, Qwen3-30B-A3B, a quarter cached;
delfianto's tables of 2026-10, the placement with ik_llama.cpp), 0.99 (RTX 4060 Ti, Qwen3.6-35B-A3B Q8_0, 10 GiB), and
0.03 to 0.2 over PCIe 3.0 x4 (8 GB card, Qwen3.6-35B-A3B). Pull 29887's own 1.57 to 2.2 times (72 to 78 % hits) are
against all experts in RAM with the card left empty. No hit rates were published for other models, so there is no
prediction: `GAIN` is the range of the three owners' runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, Reason
from service.engine.commands.tables import newer_options
from service.engine.config import Flags
from service.engine.planner.pricing.fit import Problem, slack
from service.engine.planner.ranking.rank import Contender
from service.engine.tensor_names import is_expert
from service.engine.units import MIB

_OPTION = "--moe-cache-mib"
GAIN = (1.0, 1.8)
_LEAST = 0.1  # of the experts' bytes: what pull 29887 advises
_LEAST_LINK = 10.0  # GB/s: a PCIe 4.0 x8 link or a faster one, as the published gains had
_PROBE = 1024


def with_expert_cache(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender]) -> list[AdvisedConfig]:
    """Return the configs; the first that could have an expert cache instead, with a reason that says so."""
    found = list(configs)
    for i, contender in enumerate(ranked[: len(found)]):
        if (reason := _reason(contender)) is not None:
            found[i] = replace(found[i], reasons=[*found[i].reasons, reason])
            break
    return found


def _reason(contender: Contender) -> Reason | None:
    problem, model = contender.problem, contender.problem.model
    cards = [problem.rig.cards[card] for card in contender.candidate.cards]
    may = contender.candidate.strategy == "FFN in RAM" and model.moe_layers and _has_option(problem)
    if not may or any(card.backend != "cuda" or card.pcie_gbs < _LEAST_LINK for card in cards):
        return None
    experts = sum(t.nbytes for t in model.tensors if is_expert(t.name))
    size = _largest(problem, contender.fitted.flags)
    if size * MIB < experts * _LEAST:
        return None
    low, high = (gain * contender.speed.tg.expected for gain in GAIN)
    text = (
        f"with a build from 7 October 2026 on (pull 29887) worth a measurement: -cmoe {_OPTION} {size} instead of what "
        f"places experts here. All of them are then in RAM, {size * MIB / experts:.0%} of them, those in use, on the "
        f"GPU too, and it fits. Three owners published {GAIN[0]:g} to {GAIN[1]:g} times the tokens a second, here "
        f"{low:.0f} to {high:.0f} t/s, and prompts were slower"
    )
    return Reason("expert-cache", text)


def _has_option(problem: Problem) -> bool:
    """Whether the asker said that the build is newer than those known here, and the engine's newer ones have it."""
    return bool(problem.build and problem.build.newer) and _OPTION in newer_options(problem.engine, "llama-server")


def _largest(problem: Problem, flags: Flags) -> int:
    """The largest cache, in MiB, for which the cards have room; 0 where RAM cannot hold all experts."""
    plain = replace(flags, overrides=(), n_cpu_moe=0, cpu_moe=True)
    left = slack(problem, problem.tried(plain).memory)
    after = slack(problem, problem.tried(replace(plain, other=(*plain.other, f"{_OPTION} {_PROBE}"))).memory)
    sizes = [_PROBE * now // (now - then) for now, then in zip(left[:-1], after[:-1], strict=True) if now > then]
    return min(sizes, default=0) if left[-1] >= 0 else 0
