"""Ranking again with measurements: on a machine like the asker's, a measurement takes the place of an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Literal

import msgspec
from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, NamedPick, Reason, SpeedPoint
from service.engine.goal import Goal
from service.engine.measured.nearby import Observation, corrected
from service.engine.measured.residuals import Residual, with_residuals
from service.engine.measured.summary import speed_at
from service.engine.planner.ranking.rank import (
    Choice,
    Given,
    beginning,
    deciding_loss,
    figures_of,
    first_by,
    reaches_minimum,
)
from service.engine.planner.ranking.ties import with_merits
from service.engine.planner.ranking.utility import cost
from service.engine.quality import loss_of_bits

_DEEP_ENOUGH = 0.5  # of the goal's depth: what was measured at less says little of it


class MeasuredConfig(msgspec.Struct, frozen=True):
    """What was measured of a config: `exact` on the same GPUs, CPU and RAM, else `near`. `failed`: it does not run."""

    match: Literal["exact", "near"]
    speed: list[SpeedPoint]
    failed: str | None = None


def with_nearby_results(
    configs: Sequence[AdvisedConfig], goal: Goal, near: Mapping[str, Sequence[Observation]]
) -> list[AdvisedConfig]:
    """Return the configs with their estimates corrected by measurements of similar configs, and a reason that says so.

    `near`: these, by the id of the config.
    """
    return [_learned(config, goal, near.get(config.id, ())) for config in configs]


def with_others_results(
    configs: Sequence[AdvisedConfig], headline: str, goal: Goal, others: Mapping[str, Sequence[Residual]]
) -> Reranked:
    """Return the configs with their estimates corrected by others' results on the same cards, and a reason for it.

    `others`: these, by the id of the config. Nothing is ranked again: they move all configs by the same factor.
    """
    new = [_as_others_have_it(config, goal, others.get(config.id, ())) for config in configs]
    return Reranked(new, headline.replace(_about(configs[0]), _about(new[0])))


def _learned(config: AdvisedConfig, goal: Goal, near: Sequence[Observation]) -> AdvisedConfig:
    def told(tg: str, pp: str) -> str:
        of = "this model" if any(one.nearness.model for one in near) else "other models"
        results = f"{len(near)} result{'s' * (len(near) > 1)} of {of} on these cards"
        return f"{results}: the estimate moved by {tg} for tokens and {pp} for prompts"

    return _moved(config, goal, lambda point: corrected(point, near), told)


def _as_others_have_it(config: AdvisedConfig, goal: Goal, others: Sequence[Residual]) -> AdvisedConfig:
    def told(tg: str, pp: str) -> str:
        owners = len({one.owner for one in others})
        results = f"{len(others)} result{'s' * (len(others) > 1)} of {owners} owner{'s' * (owners > 1)}"
        return f"{results} on cards like yours: TG {tg}, PP {pp}"

    return _moved(config, goal, lambda point: with_residuals(point, others), told)


def _moved(
    config: AdvisedConfig, goal: Goal, correct: Callable[[SpeedPoint], SpeedPoint], told: Callable[[str, str], str]
) -> AdvisedConfig:
    speed = [correct(point) for point in config.speed]
    if speed == config.speed:
        return config
    before, after = speed_at(config.speed, goal.depth) or config.speed[-1], speed_at(speed, goal.depth) or speed[-1]
    tg, pp = (_percent(getattr(after, name), getattr(before, name)) for name in ("tg_tps", "pp_tps"))
    return replace(
        config,
        speed=speed,
        deeper=[correct(point) for point in config.deeper],
        goal_seconds=_seconds(config, goal, speed),
        reasons=[Reason("learned-from-results", told(tg, pp)), *config.reasons],
    )


def _percent(now: float, before: float) -> str:
    return f"{(now / before - 1) * 100:+.0f} %" if before else "nothing"


class Reranked(msgspec.Struct, frozen=True):
    """The configs with what was measured, in their order now, and the sentence about the first."""

    configs: list[AdvisedConfig]
    headline: str


def rerank(
    configs: Sequence[AdvisedConfig], headline: str, goal: Goal, found: Mapping[str, MeasuredConfig],
    before: Sequence[AdvisedConfig] | None = None,
) -> Reranked:  # fmt: skip
    """Return the configs with the measurements `found` of them, by id, and in their order now.

    They are ranked again where one was measured exactly, or its estimate has changed from `before` (None: none has).
    The rules are those of `rank`, with measured speeds where there are any: where all cards share every layer, a config
    is no longer held back once it was measured. What was seen not to run comes last.
    """
    joined = [_joined(config, goal, found.get(config.id)) for config in configs]
    exact = {name for name, one in found.items() if one.match == "exact"}
    old = {config.id: config.speed for config in before or configs}
    moved = {config.id for config in configs if config.speed != old[config.id]}
    if not moved | exact.intersection(old):
        return Reranked(joined, headline)
    failed = {name for name in exact if found[name].failed is not None}
    order = _ordered([c for c in joined if c.id not in failed], goal, exact)
    order += [config for config in joined if config.id in failed]
    new = _numbered(order, configs, exact | moved)
    return Reranked(new, _headline(headline, (before or configs)[0], order[0], goal, failed))


def _joined(config: AdvisedConfig, goal: Goal, found: MeasuredConfig | None) -> AdvisedConfig:
    if found is None:
        return config
    joined = replace(config, measured=found.speed, measured_match=found.match)
    if found.failed is not None:
        note = f"measured on {_rig(found.match)}: {found.failed}"
        return replace(joined, notes=[note, *config.notes])
    return joined if found.match == "near" else replace(joined, goal_seconds=_seconds(config, goal, found.speed))


def _rig(match: str) -> str:
    return "a rig like this" if match == "exact" else "the same GPUs with another CPU or other RAM"


def _seconds(config: AdvisedConfig, goal: Goal, speed: Sequence[SpeedPoint]) -> tuple[float, float, float]:
    """The goal's time by measurements: the estimate's prompt and output, each scaled by how it was measured against its
    prediction."""
    pair = _nearest_pair(config, goal, speed)
    at_goal = speed_at(config.speed, goal.depth)
    if pair is None or at_goal is None or not at_goal.tg_tps:
        return config.goal_seconds
    point, there = pair
    output = min(goal.output / at_goal.tg_tps, config.goal_seconds[1])
    prompt = config.goal_seconds[1] - output
    pp, tg = (point.pp_high, point.pp_tps, point.pp_low), (point.tg_high, point.tg_tps, point.tg_low)
    low, expected, high = (
        prompt * there.pp_tps / max(p, 1e-9) + output * there.tg_tps / max(t, 1e-9) for p, t in zip(pp, tg, strict=True)
    )
    return low, expected, high


def _nearest_pair(
    config: AdvisedConfig, goal: Goal, speed: Sequence[SpeedPoint]
) -> tuple[SpeedPoint, SpeedPoint] | None:
    """The measured point nearest to the goal's depth, and the predicted one there."""
    pairs = [(point, there) for point in speed if (there := speed_at(config.speed, point.n_kv)) is not None]
    deep = [pair for pair in pairs if pair[0].n_kv >= goal.depth * _DEEP_ENOUGH]
    return min(deep, key=lambda pair: abs(pair[0].n_kv - goal.depth), default=None)


def speed_now(config: AdvisedConfig, goal: Goal) -> tuple[float, float]:
    """Return (PP, TG) at the goal's depth: the predicted ones, scaled by what was measured on a like rig."""
    there = speed_at(config.speed, goal.depth) or config.speed[-1]
    pair = _nearest_pair(config, goal, config.measured) if config.measured_match == "exact" else None
    if pair is None:
        return there.pp_tps, there.tg_tps
    point, predicted = pair
    return there.pp_tps * point.pp_tps / predicted.pp_tps, there.tg_tps * point.tg_tps / predicted.tg_tps


def _ordered(configs: list[AdvisedConfig], goal: Goal, exact: set[str]) -> list[AdvisedConfig]:
    by_time = sorted(configs, key=lambda c: c.goal_seconds[1])
    if not by_time:
        return []
    first = _first(by_time, goal, exact)
    rest = [replace(c, pick=None) if _is_balanced(c) else c for c in by_time if c is not first]
    if not (first.is_mine or _is_balanced(first)):
        first = replace(first, pick=NamedPick(name="balanced", why="it comes first because of measurements"))
    return [first, *sorted(rest, key=lambda c: c.pick is None)]


def _is_balanced(config: AdvisedConfig) -> bool:
    return config.pick is not None and config.pick.name == "balanced"


def _first(configs: list[AdvisedConfig], goal: Goal, exact: set[str]) -> AdvisedConfig:
    return configs[first_by([_choice(c, goal, known=c.id in exact or c.is_mine) for c in configs], goal)]


def first_as_advised(configs: Sequence[AdvisedConfig], goal: Goal) -> AdvisedConfig:
    """Return which of the configs of an answer would come first for a goal of the same request."""
    by_time = sorted(configs, key=lambda c: c.goal_seconds[1])
    return _first(by_time, goal, {c.id for c in configs if c.measured_match == "exact"})


def _choice(config: AdvisedConfig, goal: Goal, *, known: bool) -> Choice:
    (pp, tg), weighed = speed_now(config, goal), config.weighed
    loss = config.loss_percent[1] if config.loss_percent else loss_of_bits(config.bpw)
    loss = max(loss, loss_of_bits(16))  # 16 bits count as Q8_0 (`quality.ranking_loss`)
    given = Given(config.goal_seconds[1] * weighed.usual, tg, pp, loss)
    figures = figures_of(config.flags, config.strategy, len(config.devices) - 1, weighed, given, known=known)
    decides = deciding_loss(loss, goal, shared=weighed.shared)
    return Choice(cost(figures, goal), decides, weighed.cards_left, _fast_enough(config, goal))


def _fast_enough(config: AdvisedConfig, goal: Goal) -> bool:
    pp, tg = speed_now(config, goal)
    return reaches_minimum(tg, goal.min_tg) and reaches_minimum(pp, goal.min_pp)


def _numbered(order: Sequence[AdvisedConfig], before: Sequence[AdvisedConfig], exact: set[str]) -> list[AdvisedConfig]:
    """The configs with new ranks. Comparisons with the next one and ties stay where they still hold."""
    old, new = {c.rank: c.id for c in before}, {c.id: i for i, c in enumerate(order, 1)}
    follower = {c.id: d.id for c, d in pairwise(before)}
    found = []
    for i, config in enumerate(order):
        following = order[i + 1].id if i + 1 < len(order) else None
        holds = follower.get(config.id) == following and not {config.id, following} & exact
        tied = [] if config.id in exact else [new[old[r]] for r in config.tied_with if old[r] not in exact]
        versus = config.versus_next if holds and new[config.id] == config.rank else None
        found.append(replace(config, rank=i + 1, versus_next=versus, tied_with=tied))
    return with_merits(found)


def _headline(text: str, before: AdvisedConfig, now: AdvisedConfig, goal: Goal, failed: set[str]) -> str:
    point = next((p for p in reversed(now.measured)), None) if now.measured_match == "exact" else None
    if now.id in failed:
        return f"No: the advised config was tried on a rig like this and does not run. {text}"
    if point is None:
        if now.id == before.id:
            return text.replace(_about(before), _about(now))
        return f"{now.variant} with {now.engine} comes first because of measurements. {text}"
    there = speed_at(now.speed, point.n_kv) or now.speed[-1]
    predicted = f"(predicted {there.tg_tps:,.1f}, {there.tg_low:,.1f} to {there.tg_high:,.1f})"
    found = f"measured {point.tg_tps:,.1f} t/s {predicted} after {point.n_kv:,} tokens on a rig like this"
    about = _about(before)
    if now.id == before.id and about in text:
        return text.replace(about, found)
    word = "Yes" if _fast_enough(now, goal) else "It fits, but nothing here is as fast as asked"
    return f"{beginning(word, now.loss_percent)}: {now.variant} with {now.engine}, {found}."


def _about(config: AdvisedConfig) -> str:
    """The words of a headline about a config's speed."""
    point = config.speed[-1]
    return f"about {point.tg_tps:,.1f} t/s ({point.tg_low:,.1f} to {point.tg_high:,.1f}) {point.after}"
