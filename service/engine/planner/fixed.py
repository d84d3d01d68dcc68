"""What the user fixed is never changed; where it is what hurts, the first config says by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.goal import Constraints, EngineChoice, Goal, GoalRequest, resolve_goal
from service.engine.model import Model
from service.engine.planner.gains import OPTION_OF
from service.engine.planner.kept import kept_flags
from service.engine.planner.place import PLACING
from service.engine.planner.rank import Contender
from service.engine.planner.search import Case, Hunt
from service.engine.units import MIB

_WORTH_SAYING = 0.95  # of the goal's time
_MOST_KEPT = 8  # flags that are tried without


class _Loosened(NamedTuple):
    """A constraint as stated, what is there without it, and the constraints and the goal without it."""

    stated: str
    without: str
    constraints: Constraints
    goal: Goal
    fields: tuple[str, ...] = ()


def what_hurts(first: Contender, model: Model, constraints: Constraints, goal: Goal, asked: GoalRequest) -> list[str]:
    """Return a sentence for each stated constraint without which the first config's variant would gain 5 % or more.

    `asked`: the goal as stated. Costs one placement for each of them. Variants and bits per weight are a choice of
    quality, which is not weighed against time.
    """
    found = []
    for loosened in (*_loosened(first, constraints, goal), *_shorter(asked, model, constraints, goal)):
        best = _best_without(first, model, loosened, _engines(first, loosened))
        if best and best.seconds.expected < first.seconds.expected * _WORTH_SAYING:
            found.append(f"{loosened.stated} was asked for: {_gain(first, best, _instead(best, loosened))}")
    return found


def _loosened(first: Contender, stated: Constraints, goal: Goal) -> Iterator[_Loosened]:
    if stated.kv_types:
        yield _Loosened(f"a cache of {' or '.join(stated.kv_types)}", "", replace(stated, kv_types=None), goal)
    if stated.engines and len(stated.engine_names) == 1:
        yield _Loosened(stated.engine_names[0], "", replace(stated, engines=None), goal)
    build = stated.build_of(first.engine)
    if build.date:
        todays = [EngineChoice(c.name, None if c.name == first.engine else c.build) for c in stated.engines or ()]
        yield _Loosened(f"{first.engine} {build.label}", "today's build", replace(stated, engines=todays), goal)
    rig, cards = first.problem.rig, first.candidate.cards
    usual = rig.reserves(cards, None)
    if any(ours > least for ours, least in zip(first.problem.limits.reserve, usual, strict=True)):
        usually = " or ".join(f"{size // MIB:,} MiB" for size in dict.fromkeys(usual))
        yield _Loosened("so large a reserve", f"{usually} a GPU", replace(stated, reserve_mib=None), goal)
    for i, text in enumerate((stated.keep_flags or ())[:_MOST_KEPT]):
        others = [other for j, other in enumerate(stated.keep_flags or ()) if j != i]
        fields = tuple(kept_flags(first.engine, replace(stated, keep_flags=[text])).fields)
        yield _Loosened(text[:120], "", replace(stated, keep_flags=others or None), goal, fields)
    if stated.max_ram_gib is not None:
        limit = f"at most {stated.max_ram_gib:g} GiB of RAM"
        yield _Loosened(limit, "all of it", replace(stated, max_ram_gib=None), goal)


def _shorter(asked: GoalRequest, model: Model, constraints: Constraints, goal: Goal) -> Iterator[_Loosened]:
    """With the context and the slots of the preset, where more were asked for and the request is the same."""
    usual = resolve_goal(replace(asked, context=None, parallel=None), model.n_ctx_train)
    same = (usual.depth, usual.prompt, usual.output) == (goal.depth, goal.prompt, goal.output)
    if asked.context is not None and goal.context > usual.context and same:
        shorter = replace(goal, context=usual.context)
        yield _Loosened(f"a context of {goal.context:,}", f"{usual.context:,}", constraints, shorter)
    if asked.parallel is not None and goal.parallel > usual.parallel:
        fewer = replace(goal, parallel=usual.parallel)
        yield _Loosened(f"{goal.parallel} slots", f"{usual.parallel}", constraints, fewer)


def _engines(first: Contender, loosened: _Loosened) -> Sequence[str]:
    if loosened.stated != first.engine:
        return (first.engine,)
    return tuple(name for name in loosened.constraints.engine_names if name != first.engine)


def _best_without(first: Contender, model: Model, loosened: _Loosened, engines: Sequence[str]) -> Contender | None:
    found = []
    for engine in loosened.constraints.engine_names:
        if engine in engines:
            rig = first.problem.rig
            hunt = Hunt(Case(engine, first.variant, model, rig, loosened.goal, loosened.constraints))
            hunt.place_first()
            found += hunt.contenders
    return min(found, key=lambda c: c.seconds.expected, default=None)


def _instead(best: Contender, loosened: _Loosened) -> str:
    """What the best config without a flag has in its place."""
    options = {name: OPTION_OF[name] for name in loosened.fields if name in OPTION_OF and name not in PLACING}
    flags = best.fitted.flags
    parts = [f"{option} {value}" for name, option in options.items() if (value := getattr(flags, name)) is not None]
    return ", ".join(parts) or ("what is best without it" if loosened.fields else loosened.without)


def _gain(first: Contender, best: Contender, without: str) -> str:
    flags = best.fitted.flags
    what = without or (best.engine if best.engine != first.engine else flags.cache_type_k)
    tg = best.speed.tg.expected / first.speed.tg.expected * 100 - 100
    pp = best.speed.pp.expected / first.speed.pp.expected * 100 - 100
    parts = [f"TG {tg:+.0f} %", f"PP {pp:+.0f} %"]
    on_gpus = _on_gpus(best) - _on_gpus(first)
    if on_gpus >= 1:
        parts.append(f"{on_gpus:.0f} GiB more of the weights on GPUs")
    return f"{what} would give {', '.join(parts)}"


def _on_gpus(contender: Contender) -> float:
    return sum(device.weights for device in contender.fitted.memory.devices[:-1]) / 2**30
