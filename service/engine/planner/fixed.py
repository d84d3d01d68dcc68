"""What the user fixed is never changed; where it is what hurts, the first config says by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.goal import Constraints, Goal
from service.engine.model import Model
from service.engine.planner.gains import OPTION_OF
from service.engine.planner.kept import kept_flags
from service.engine.planner.place import PLACING
from service.engine.planner.rank import Contender
from service.engine.planner.search import Case, Hunt

_WORTH_SAYING = 0.95  # of the goal's time
_MOST_KEPT = 8  # flags that are tried without
_RESERVE = 1024  # MiB: the most that is kept free without being asked


class _Loosened(NamedTuple):
    """A constraint as stated, and the constraints without it."""

    stated: str
    without: str
    constraints: Constraints
    fields: tuple[str, ...] = ()


def what_hurts(first: Contender, model: Model, constraints: Constraints, goal: Goal) -> list[str]:
    """Return a sentence for each stated constraint without which the first config's variant would gain 5 % or more.

    Costs one placement for each of them.
    """
    found = []
    for loosened in _loosened(first, constraints):
        best = _best_without(first, model, loosened.constraints, goal, _engines(first, loosened))
        if best and best.seconds.expected < first.seconds.expected * _WORTH_SAYING:
            found.append(f"{loosened.stated} was asked for: {_gain(first, best, _instead(best, loosened))}")
    return found


def _loosened(first: Contender, stated: Constraints) -> Iterator[_Loosened]:
    kinds, reserve = stated.kv_types, stated.reserve_mib
    if kinds:
        yield _Loosened(f"a cache of {' or '.join(kinds)}", "", replace(stated, kv_types=None))
    if stated.engines and len(stated.engine_names) == 1:
        yield _Loosened(stated.engine_names[0], "", replace(stated, engines=None))
    if reserve and (max(reserve) if isinstance(reserve, list) else reserve) > _RESERVE:
        yield _Loosened("so large a reserve", "512 MiB a GPU", replace(stated, reserve_mib=None))
    for i, text in enumerate((stated.keep_flags or ())[:_MOST_KEPT]):
        others = [other for j, other in enumerate(stated.keep_flags or ()) if j != i]
        fields = tuple(kept_flags(first.engine, replace(stated, keep_flags=[text])).fields)
        yield _Loosened(text[:120], "", replace(stated, keep_flags=others or None), fields)
    if stated.max_ram_gib is not None:
        yield _Loosened(f"at most {stated.max_ram_gib:g} GiB of RAM", "all of it", replace(stated, max_ram_gib=None))


def _engines(first: Contender, loosened: _Loosened) -> Sequence[str]:
    if loosened.stated != first.engine:
        return (first.engine,)
    return tuple(name for name in loosened.constraints.engine_names if name != first.engine)


def _best_without(
    first: Contender, model: Model, constraints: Constraints, goal: Goal, engines: Sequence[str]
) -> Contender | None:
    found = []
    for engine in constraints.engine_names:
        if engine in engines:
            hunt = Hunt(Case(engine, first.variant, model, first.problem.rig, goal, constraints))
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
