"""Which config is the best answer: what a request costs in time and in quality, in one unit.

The cost of a config is a sum, where 0.1 is worth about a tenth of the request's time:

- time: ln(1 + seconds / comfortable), where comfortable is the goal's request at 1,000 prompt tokens and 40 tokens a
  second. Below reading speed time counts in full; what is much faster than anybody reads is worth less and less.
- quality: `Weights.loss` for each per cent by which quantisation raises perplexity (service/engine/quality.py), and
  more for each beyond: at 10 % half as much again. A model that lost 10 % is another one, and not made good by speed.
  Beyond `_MUCH` each counts `_OF_MORE`: one that lost 17 % is not worth ten times the wait of one that lost 34 %.
  Below `Weights.unnoticed` all are alike: a published perplexity has a sampling error of 0.3 to 0.6 %, so two of them
  differ by twice that by chance, and nobody has shown a smaller loss to be noticed. Who asks for quality gets half.
- a minimum that is missed: `_MISSED` times ln(minimum / expected). It is no cliff: 7.9 t/s where 8 were asked for costs
  next to nothing.
- a pool of RAM that is nearly full: up to `_TIGHT`, from 75 % of what a model may take of it to all. What else runs
  there, and a longer context than planned, then end in swapping.
- a limit of the system that has to be raised first, on machines whose GPU shares the memory: `_RAISING`.
- all cards on every layer (`-sm graph`, `-sm tensor`): `_TOGETHER`. It depends on the links between them and is the
  newest part of both engines, so a small gain over one card is not worth it.
- a quantised cache: `_QUANTISED_CACHE`, and a little for each bit below 8. Its cost at depth is the least certain part
  of the speeds, and of quality. Four bits cost `_FOUR`, and twice that at `_DEEP` tokens: the longer the context, the
  more their errors matter (ik_llama.cpp pull 1547). Rotated, as by llama.cpp since April 2026, q4_0 loses 0.7 % of
  perplexity over 4,096 tokens (unslothai/llama.cpp pull 129) and nothing measurable in multiple choice (llama.cpp pull
  21551); unrotated, more. A cache of latents (MLA) costs `_OF_LATENTS`: most who publish runs of DeepSeek and Kimi with
  ik_llama.cpp have it in q8_0 (43 of the 69 of 2025 and 2026 whose command states a type).
- an engine that has to be built first, because nobody packages it for the system: `_BUILDING`. So of two that are too
  close to call the one comes first that can be downloaded. On Windows `_BUILDING_ON_WINDOWS`, and against a minimum its
  speeds count for that much less. That is an afternoon with Visual Studio and CUDA's tools, which a tenth of the time
  does not pay for.
- an engine other than that of the command in use: `_OTHER_ENGINE`. It has to be fetched and built, and the flags to be
  learned, for which a few per cent of the time do not pay.
- an engine on NVIDIA cards older than those its authors test it on: `_UNTESTED`, so that a gain of one or two per cent
  there does not decide.
- each card after the first: `_ANOTHER_CARD`. It draws power and could run something else, for which a gain of one per
  cent does not pay.
- weights in RAM where a GPU could hold a smaller variant whole: `_LEAVING_THE_GPU`. Such a config depends on the RAM's
  real speed, on what else runs there, and on a long command. Twice that for a dense model, of which every token reads
  all that lies there.

The picks `quality` and `fast` are the same sum with other weights for loss and comfort; for the goal `fastest` time,
minima and a quantised cache are all that counts. The weights are judgment, held to what people who tune such rigs
advise in public threads (`python -m bench.judgment`).
"""

from __future__ import annotations

import math

import msgspec

from service.engine.advice import Pick
from service.engine.ggml_types import type_named
from service.engine.goal import Goal

_COMFORTABLE_PP, _COMFORTABLE_TG = 1000.0, 40.0
_MISSED = 2.0
_TWICE = 20.0  # per cent of loss, at which each would count twice
_MUCH, _OF_MORE = 15.0, 0.5
_LEAVING_THE_GPU, _OF_A_DENSE_MODEL = 0.15, 2.0
_TIGHT, _TIGHT_FROM = 0.5, 0.75
_RAISING = 0.05
_TOGETHER = 0.1
_QUANTISED_CACHE, _OF_LATENTS, _A_BIT_LESS, _FOUR, _DEEP = 0.05, 0.02, 0.01, 0.25, 32_000
_Q8_BPW = 8.5
FOUR_BITS = 4.5  # bits of a value in q4_0, with its share of the scale
_BUILDING, _BUILDING_ON_WINDOWS = 0.02, 0.15
_OTHER_ENGINE = 0.05
_ANOTHER_CARD = 0.01
_UNTESTED = 0.05
OTHER_BUILD = 0.1  # of cost: how much better another back end than the usual one of these cards has to be


class Weights(msgspec.Struct, frozen=True):
    """`loss`: what each per cent costs. `comfort`: a factor on the comfortable time; the less, the more speed counts.

    `unnoticed`: the loss, in per cent, below which all are alike. `other`: a factor on all terms that are neither time,
    quality, a minimum nor a quantised cache.
    """

    loss: float
    comfort: float = 1.0
    unnoticed: float = 1.1
    other: float = 1.0


WEIGHTS: dict[str, Weights] = {
    "balanced": Weights(0.09),
    "quality": Weights(1.5, unnoticed=0.65),
    "fast": Weights(0.03, comfort=0.1),
}


_BY_PRESET = {"fastest": Weights(0.0, comfort=0.001, other=0.0), "quality": WEIGHTS["quality"]}


class Figures(msgspec.Struct, frozen=True):
    """What the cost is made of: seconds of the goal's request, speeds at its depth, per cent of perplexity lost.

    `n_cards`: how many cards it uses. `ram_used`: the share that it takes of the RAM that a model may have.
    `raises_limit`: the system must be told first to let the GPU use more of a shared memory. `together`: all cards
    share every layer. `cache`: types of K and V. `to_build`: the engine has to be built first, perhaps on `windows`.
    `dense`: no mixture. `untested`: on cards so old that the engine's authors do not test it there. `other_engine`: not
    the engine of the command in use.
    """

    seconds: float
    tg: float
    pp: float
    loss: float
    on_gpu: bool
    n_cards: int = 1
    ram_used: float = 0.0
    raises_limit: bool = False
    together: bool = False
    cache: tuple[str, str] = ("f16", "f16")
    to_build: bool = False
    windows: bool = False
    dense: bool = False
    untested: bool = False
    other_engine: bool = False


def weights_of(goal: Goal, pick: Pick | None = None) -> Weights:
    """Return the weights of a pick (None: the goal's own)."""
    return WEIGHTS[pick] if pick else _BY_PRESET.get(goal.preset, WEIGHTS["balanced"])


def unnoticed(goal: Goal) -> float:
    """Return the loss, in per cent, below which all are alike for a goal."""
    return weights_of(goal).unnoticed


def cost(figures: Figures, goal: Goal, pick: Pick | None = None) -> float:
    """Return what a config costs as a pick (None: the goal's own); the least is the best. No unit: see this module."""
    weights = weights_of(goal, pick)
    comfortable = weights.comfort * (goal.prompt / _COMFORTABLE_PP + goal.output / _COMFORTABLE_TG)
    building = (_BUILDING_ON_WINDOWS if figures.windows else _BUILDING) if figures.to_build else 0.0
    slower = math.exp(building if figures.windows else 0.0)
    missed = sum(
        math.log(least * slower / max(speed, 1e-9))
        for least, speed in ((goal.min_tg, figures.tg), (goal.min_pp, figures.pp))
        if least and speed < least * slower
    )
    other = (
        _TIGHT * max(0.0, figures.ram_used - _TIGHT_FROM) / (1 - _TIGHT_FROM)
        + (0.0 if figures.on_gpu else _LEAVING_THE_GPU * (_OF_A_DENSE_MODEL if figures.dense else 1.0))
        + (_RAISING if figures.raises_limit else 0.0)
        + (_TOGETHER if figures.together else 0.0)
        + building
        + (_UNTESTED if figures.untested else 0.0)
        + (_OTHER_ENGINE if figures.other_engine else 0.0)
        + _ANOTHER_CARD * max(0, figures.n_cards - 1)
    )
    return (
        math.log1p(figures.seconds / comfortable)
        + weights.loss * _of_loss(figures.loss, weights.unnoticed)
        + _MISSED * missed
        + _of_cache(figures.cache, goal)
        + weights.other * other
    )


def _of_loss(loss: float, unnoticed: float) -> float:
    """What a loss counts, in per cents that are worth the same."""
    counted = min(loss, _MUCH)
    return max(counted, unnoticed) * (1 + counted / _TWICE) + _OF_MORE * (loss - counted)


def _of_cache(types: tuple[str, str], goal: Goal) -> float:
    """What a cache of these types of K and V costs; one of one type only is stated with V in f16."""
    if types[0] == "f16":
        return 0.0
    bits = min(type_named(kind).bpw for kind in types)
    if bits > FOUR_BITS:
        return (_OF_LATENTS if types[1] == "f16" else _QUANTISED_CACHE) + _A_BIT_LESS * (_Q8_BPW - bits)
    return _FOUR * (1 + (goal.depth + goal.prompt) / _DEEP)
