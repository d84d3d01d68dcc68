"""Why the other candidates are not among the configs: one line for each kind of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from service.engine.advice import Loser
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Candidate
from service.engine.planner.pricing.fit import in_mib
from service.engine.planner.ranking.rank import DAMAGED, Contender, together_factor
from service.engine.planner.search.outcome import Outcome, Rejected

MOST_REJECTED = 60


class _Line(NamedTuple):
    candidate: Candidate
    seconds: float | None
    placed: bool
    why: str


def rejected(outcomes: Sequence[Outcome], ranked: Sequence[Contender], names: Sequence[str], goal: Goal) -> list[Loser]:
    """Return at most 60 kinds of rejected candidates, of all variants and engines in turn, the nearest first."""
    by_case = [_of_one(outcome, ranked, names, goal) for outcome in outcomes]
    found: list[Loser] = []
    for place in range(max(map(len, by_case), default=0)):
        found += [lines[place] for lines in by_case if place < len(lines)]
    return found[:MOST_REJECTED]


def _of_one(outcome: Outcome, ranked: Sequence[Contender], names: Sequence[str], goal: Goal) -> list[Loser]:
    kinds: dict[object, list[_Line]] = {}
    for line in (
        *_placed(outcome, ranked),
        *(_rejected(rejected, outcome, ranked, goal) for rejected in outcome.rejected),
    ):
        c = line.candidate
        gpus = tuple(sorted(outcome.case.rig.cards[i].name for i in c.cards))
        key = (line.placed, line.seconds is None, gpus, c.flags.cache_type_k, c.flags.cache_type_v, c.flags.split_mode)
        kinds.setdefault(key, []).append(line)
    nearest = [(min(lines, key=_nearness), len(lines)) for lines in kinds.values()]
    nearest.sort(key=lambda pair: _nearness(pair[0]))
    firsts: dict[object, tuple[_Line, int]] = {}
    for pair in nearest:
        firsts.setdefault(_why_group(pair[0]), pair)
    nearest.sort(key=lambda pair: pair is not firsts[_why_group(pair[0])])
    return [
        Loser(
            engine=outcome.case.engine,
            variant=names[outcome.case.variant],
            strategy=line.candidate.strategy,
            gpus=[outcome.case.rig.cards[i].name for i in line.candidate.cards],
            differs=_differs(line.candidate),
            seconds=None if line.seconds is None else round(line.seconds, 2),
            placed=line.placed,
            why=line.why,
            alike=count,
        )
        for line, count in nearest
    ]


def _why_group(line: _Line) -> tuple[bool, bool, bool]:
    """Placed, pruned, too slow, or too large: one of each comes before the second of any."""
    return line.placed, line.seconds is None, line.why.endswith("wanted")


def _nearness(line: _Line) -> tuple[bool, bool, float]:
    return line.seconds is None, not line.placed, line.seconds or 0.0


def _placed(outcome: Outcome, ranked: Sequence[Contender]) -> Iterator[_Line]:
    """Contenders that are not shown."""
    for c in outcome.contenders:
        if not any(c is shown for shown in ranked):
            yield _Line(c.candidate, c.seconds.expected, True, _slower(c, ranked))


def _slower(c: Contender, ranked: Sequence[Contender]) -> str:
    own = [(i, k) for i, k in enumerate(ranked, 1) if (k.engine, k.variant) == (c.engine, c.variant)]
    if not own:
        return _variant_not_shown(c, ranked)
    rank, nearest = own[0]
    percent = c.seconds.expected / nearest.seconds.expected * 100 - 100
    if percent > 0:
        return f"{max(percent, 0.1):.{0 if percent >= 1 else 1}f} % slower than #{rank}"
    if (times := _counted(c)) > _counted(nearest):
        mode = c.fitted.flags.split_mode
        return (
            f"predicted {-percent:.0f} % faster than #{rank}, but the speed of -sm {mode} is unproven: "
            f"it ranks by its predicted time times {times:g}"
        )
    if c.fitted.flags.cache_type_k != nearest.fitted.flags.cache_type_k:
        return f"only {-percent:.0f} % faster than #{rank}: not worth a quantised cache"
    return f"only {max(-percent, 0.1):.1f} % faster than #{rank}"


def _counted(c: Contender) -> float:
    return together_factor(c.fitted.flags, is_mixture=c.weighed.is_mixture)


def _variant_not_shown(c: Contender, ranked: Sequence[Contender]) -> str:
    places = list(enumerate(ranked, 1))
    if other := next((i for i, k in places if k.variant == c.variant), None):
        return f"the same variant is #{other} with the other engine"
    if c.loss > DAMAGED:
        return f"quantisation raises its perplexity by about {c.loss:.0f} %"
    better = [(i, k) for i, k in places if k.loss <= c.loss and k.seconds.expected <= c.seconds.expected]
    if better:
        rank, k = min(better, key=lambda pair: pair[1].seconds.expected)
        return f"#{rank} takes {k.seconds.expected:.1f} s and loses no more quality"
    return f"at most eight configs are shown, and #{len(ranked)} is better in time and quality combined"


def _rejected(rejected: Rejected, outcome: Outcome, ranked: Sequence[Contender], goal: Goal) -> _Line:
    if rejected.forecast is None or rejected.shortfall is not None:
        short = rejected.shortfall
        at = "in" if short and short.device == "RAM" else "on"
        why = f"does not fit: {in_mib(short.n_bytes):,} MiB too little {at} {short.device}" if short else rejected.why
        return _Line(rejected.candidate, None, False, why)
    forecast = rejected.forecast
    if rejected.why == "a card idle":
        why = "fewer of these GPUs already hold everything"
    elif rejected.why == "minimum not reached":
        slow_tg = forecast.tg < (goal.min_tg or 0)
        speed, least, unit = (forecast.tg, goal.min_tg, "") if slow_tg else (forecast.pp, goal.min_pp, " for prompts")
        why = f"at best {speed:.1f} t/s{unit} where {least:g} is wanted"
    else:
        why = _pruned(rejected, forecast.seconds, outcome, ranked)
    return _Line(rejected.candidate, forecast.seconds, False, why)


def _pruned(rejected: Rejected, seconds: float, outcome: Outcome, ranked: Sequence[Contender]) -> str:
    quantised = rejected.candidate.flags.cache_type_k != "f16"
    placed = [c.seconds.expected for c in outcome.contenders]
    if placed and seconds >= min(placed):
        return f"ruled out early: {seconds:.1f} s at best, where another takes {min(placed):.1f}"
    on_gpu = [c.seconds.expected for c in outcome.contenders if c.candidate.strategy == "all on GPU"]
    if on_gpu and rejected.candidate.strategy != "all on GPU":
        return f"not tried: {seconds:.1f} s at best with weights in RAM, where all on GPU takes {min(on_gpu):.1f}"
    if placed and quantised:
        return f"not tried: {seconds:.1f} s at best instead of {min(placed):.1f}: not worth a quantised cache"
    if placed:
        return f"not tried: {seconds:.1f} s at best, too close to the {min(placed):.1f} of another"
    slowest = max((c.seconds.expected for c in ranked), default=0.0)
    return f"ruled out early: {seconds:.1f} s at best, where all configs shown take {slowest:.1f} or less"


def _differs(candidate: Candidate) -> str:
    flags = candidate.flags
    parts = [f"-ub {flags.n_ubatch}"]
    if (flags.cache_type_k, flags.cache_type_v) != ("f16", "f16"):
        parts.append(f"{flags.cache_type_k}/{flags.cache_type_v} cache")
    if flags.split_mode != "layer":
        parts.append(f"-sm {flags.split_mode}")
    if candidate.cards != tuple(sorted(candidate.cards)):
        parts.append("another card first")
    return ", ".join(parts)
