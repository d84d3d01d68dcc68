"""The configs around one that are worth measuring: each fits by the memory model, and differs in what it says."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.config import Flags
from service.engine.estimate import Estimate
from service.engine.goal import Constraints
from service.engine.planner.pricing.candidate import Candidate, Cards
from service.engine.planner.pricing.fit import Fitted, Problem, check
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import SearchCase
from service.engine.units import GIB

MOST_STEPS = 18
_TOO_SLOW = 1.6  # times the start's predicted time: no speed of this service is that far off between two like configs
_SHARES_OF_CORES = (1.0, 0.75, 0.5)  # both engines lose where threads wait for memory (docs/offloading.md)
_MORE_RESERVE = 4  # times the reserve: a layer's experts less on each card, where the usual margin is too small
_DEFAULT_RESERVE = 512


class Step(msgspec.Struct, frozen=True):
    """One config to measure: its flags, what it changes of the start in words, and the goal's time as predicted."""

    flags: Flags
    changed: str
    seconds: Estimate


def steps_around(case: SearchCase, cards: Cards, start: Flags) -> tuple[Step, ...]:
    """Return the start and at most 17 configs around it, the fastest as predicted first among these.

    On the same cards, in the same order: other micro-batches, cache types and split modes, each with the placement that
    is best for it; fewer experts on the cards; a layer moved between two cards; fewer threads. Nothing that does not
    fit, nothing that the constraints exclude.
    """
    search = _placed(case, cards)
    problem = search.contenders[0].problem if search.contenders else None
    first = check(problem, start) if problem else None
    if problem is None or not isinstance(first, Fitted):
        return ()
    found = {start: first}
    for fitted in _others(case, cards, problem, search, first):
        found.setdefault(fitted.flags, fitted)
    steps = [Step(f.flags, _changed(first, f), problem.seconds(f)) for f in found.values()]
    limit = steps[0].seconds.expected * _TOO_SLOW
    near = sorted((s for s in steps[1:] if s.seconds.expected <= limit), key=lambda s: s.seconds.expected)
    return (steps[0], *near[: MOST_STEPS - 1])


def _placed(case: SearchCase, cards: Cards) -> VariantSearch:
    search = VariantSearch(case)
    search.queue = [one for one in search.queue if one.candidate.cards == cards]
    search.place_all()
    return search


def _others(case: SearchCase, cards: Cards, problem: Problem, search: VariantSearch, first: Fitted) -> Iterator[Fitted]:
    yield from (contender.fitted for contender in search.contenders)
    reserve = case.constraints.reserve_mib
    if cards and _in_ram(first) and (reserve is None or isinstance(reserve, int)):
        more = _with_reserve(case.constraints, _MORE_RESERVE * (reserve or _DEFAULT_RESERVE))
        same = [c for c in _placed(case._replace(constraints=more), cards).contenders if _alike(c.candidate, first)]
        yield from (contender.fitted for contender in same)
    for flags in (*_threads(case, first), *_shifted(first.flags)):
        fitted = check(problem, flags)
        if isinstance(fitted, Fitted):
            yield fitted


def _with_reserve(constraints: Constraints, mib: int) -> Constraints:
    return msgspec.structs.replace(constraints, reserve_mib=mib)


def _alike(candidate: Candidate, first: Fitted) -> bool:
    fields = ("n_ubatch", "cache_type_k", "cache_type_v", "split_mode")
    return all(getattr(candidate.flags, name) == getattr(first.flags, name) for name in fields)


def _threads(case: SearchCase, first: Fitted) -> Iterator[Flags]:
    if not _in_ram(first):
        return
    for share in _SHARES_OF_CORES:
        threads = max(2, int(case.rig.physical_cores * share) // 2 * 2)
        yield msgspec.structs.replace(first.flags, threads=threads)


def _shifted(flags: Flags) -> Iterator[Flags]:
    """One layer more on one card and less on its neighbour, where `-ts` counts layers."""
    shares = flags.tensor_split
    for i in range(len(shares) - 1):
        for step in (1, -1):
            moved = [*shares]
            moved[i], moved[i + 1] = moved[i] + step, moved[i + 1] - step
            if min(moved) >= 0 and sum(shares) > len(shares):
                yield msgspec.structs.replace(flags, tensor_split=tuple(moved))


def _in_ram(fitted: Fitted) -> bool:
    """Whether blocks' weights lie in RAM; the token embedding always does."""
    cpu = fitted.placement.n_devices
    return any(place == cpu for name, place in fitted.placement.tensors.items() if name.startswith("blk."))


def _changed(start: Fitted, other: Fitted) -> str:
    before, after = start.flags, other.flags
    words = [
        f"{option} {_shown(getattr(after, field))}"
        for field, option in _OPTIONS.items()
        if getattr(after, field) != getattr(before, field)
    ]
    was, now = (fitted.memory.devices[-1].weights / GIB for fitted in (start, other))
    if abs(now - was) >= 0.05:
        words.append(f"{now:.1f} GiB of weights in RAM instead of {was:.1f}")
    elif before.overrides != after.overrides:
        words.append("other tensors in RAM")
    return ", ".join(words) or "as advised"


_OPTIONS = {
    "n_ubatch": "-ub",
    "cache_type_k": "-ctk",
    "cache_type_v": "-ctv",
    "split_mode": "-sm",
    "tensor_split": "-ts",
    "threads": "-t",
    "op_offload": "copies for batches",
    "n_gpu_layers": "-ngl",
}


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(f"{share:g}" for share in value)
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
