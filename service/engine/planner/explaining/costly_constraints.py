"""Which of the user's constraints cost speed, and how much: they are never changed, but the first config tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.goal import Constraints, EngineChoice, Goal, GoalRequest, resolve_goal
from service.engine.model import Model
from service.engine.planner.explaining.comparison import OPTION_OF
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.search.fitting import PLACEMENT_FIELDS
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.options import user_flags
from service.engine.planner.search.outcome import SearchCase
from service.engine.units import MIB

_WORTH_SAYING = 0.95  # of the goal's time, which is what the best without the constraint may take
_MOST_FLAGS = 8  # of the user's flags that are left out, one at a time


class _Relaxed(NamedTuple):
    """One constraint left out: its words, what holds instead, and the constraints and the goal without it.

    `fields`: the fields of Flags that it sets.
    """

    stated: str
    without: str
    constraints: Constraints
    goal: Goal
    fields: tuple[str, ...] = ()


def costly_constraints(
    first: Contender, model: Model, constraints: Constraints, goal: Goal, asked: GoalRequest
) -> list[str]:
    """Return a sentence for each stated constraint without which the first config's variant would gain 5 % or more.

    `asked`: the goal as stated. Costs one placement for each of them, and one with all of them: what is faster than the
    first config within the constraints too, such as a micro-batch that fills the RAM, is not their price. Variants and
    bits per weight are a choice of quality, which is not weighed against time.
    """
    found: list[str] = []
    fastest: Contender | None = None
    for relaxed in (*_relaxed(first, constraints, goal), *_shorter(asked, model, constraints, goal)):
        best = _best_without(first, model, relaxed)
        if not best or not _is_faster(best, first):
            continue
        fastest = fastest or _fastest_within(first, model, constraints, goal)
        if _is_faster(best, fastest):
            found.append(f"you asked for {relaxed.stated}: {_gain(fastest, best, _instead(best, relaxed))}")
    return found


def _is_faster(one: Contender, other: Contender) -> bool:
    return one.seconds.expected < other.seconds.expected * _WORTH_SAYING


def _fastest_within(first: Contender, model: Model, constraints: Constraints, goal: Goal) -> Contender:
    """The first config, or what the same search finds to be faster within the constraints."""
    found = _best_without(first, model, _Relaxed("", "", constraints, goal))
    return min((one for one in (first, found) if one), key=lambda one: one.seconds.expected)


def _relaxed(first: Contender, stated: Constraints, goal: Goal) -> Iterator[_Relaxed]:
    if stated.kv_types:
        yield _Relaxed(f"a cache of {' or '.join(stated.kv_types)}", "", replace(stated, kv_types=None), goal)
    if stated.engines and len(stated.engine_names) == 1 and not stated.images:  # which some engine may not read
        yield _Relaxed(stated.engine_names[0], "", replace(stated, engines=None), goal)
    build = stated.build_of(first.engine)
    if build.date:
        todays = [EngineChoice(c.name, None if c.name == first.engine else c.build) for c in stated.engines or ()]
        yield _Relaxed(f"{first.engine} {build.label}", "today's build", replace(stated, engines=todays), goal)
    rig, cards = first.problem.rig, first.candidate.cards
    usual = rig.reserves(cards, None)
    if any(ours > least for ours, least in zip(first.problem.limits.kept, usual, strict=True)):
        usually = " or ".join(f"{size // MIB:,} MiB" for size in dict.fromkeys(usual))
        yield _Relaxed("a larger reserve", f"{usually} per GPU", replace(stated, reserve_mib=None), goal)
    for i, text in enumerate((stated.keep_flags or ())[:_MOST_FLAGS]):
        others = [other for j, other in enumerate(stated.keep_flags or ()) if j != i]
        fields = tuple(user_flags(first.engine, replace(stated, keep_flags=[text])).fields)
        if not (stated.images and fields == ("n_ubatch",)):  # which some images need
            yield _Relaxed(text[:120], "", replace(stated, keep_flags=others or None), goal, fields)
    if stated.max_ram_gib is not None:
        limit = f"at most {stated.max_ram_gib:g} GiB of RAM"
        yield _Relaxed(limit, "all of it", replace(stated, max_ram_gib=None), goal)


def _shorter(asked: GoalRequest, model: Model, constraints: Constraints, goal: Goal) -> Iterator[_Relaxed]:
    """The preset's context, and its slots, where more were asked for and the goal's request stays the same."""
    usual = resolve_goal(replace(asked, context=None), model.n_ctx_train)
    same = (usual.depth, usual.prompt, usual.output) == (goal.depth, goal.prompt, goal.output)
    if asked.context is not None and goal.context > usual.context and same:
        shorter = replace(goal, context=usual.context)
        yield _Relaxed(f"a context of {goal.context:,}", f"{usual.context:,}", constraints, shorter)
    fewer = resolve_goal(replace(asked, parallel=None), model.n_ctx_train)
    if goal.parallel > fewer.parallel:
        yield _Relaxed(f"{goal.parallel} slots", f"{fewer.parallel}, for one request at a time,", constraints, fewer)


def _best_without(first: Contender, model: Model, relaxed: _Relaxed) -> Contender | None:
    """The fastest with the first config's engine; where that is what was asked for, with another."""
    found, others = [], relaxed.stated == first.engine
    for engine in relaxed.constraints.engine_names:
        if (engine != first.engine) is others:
            rig = first.problem.rig
            search = VariantSearch(SearchCase(engine, first.variant, model, rig, relaxed.goal, relaxed.constraints))
            search.place_first()
            found += search.contenders
    return min(found, key=lambda c: c.seconds.expected, default=None)


def _instead(best: Contender, relaxed: _Relaxed) -> str:
    """What the best config without a flag has in its place."""
    options = {name: OPTION_OF[name] for name in relaxed.fields if name in OPTION_OF and name not in PLACEMENT_FIELDS}
    flags = best.fitted.flags
    parts = [f"{option} {value}" for name, option in options.items() if (value := getattr(flags, name)) is not None]
    return ", ".join(parts) or ("what is best without it" if relaxed.fields else relaxed.without)


def _gain(first: Contender, best: Contender, without: str) -> str:
    flags = best.fitted.flags
    what = without or (best.engine if best.engine != first.engine else flags.cache_type_k)
    tg = best.speed.tg.expected / first.speed.tg.expected * 100 - 100
    pp = best.speed.pp.expected / first.speed.pp.expected * 100 - 100
    parts = [f"{name} {more:+.0f} %" for name, more in (("TG", tg), ("PP", pp)) if abs(more) >= 0.5]
    on_gpus = _on_gpus(best) - _on_gpus(first)
    if on_gpus >= 1:
        parts.append(f"{on_gpus:.0f} GiB more of the weights on the GPUs")
    return f"{what} would give {', '.join(parts)}"


def _on_gpus(contender: Contender) -> float:
    return sum(device.weights for device in contender.fitted.memory.devices[:-1]) / 2**30
