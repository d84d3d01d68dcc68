"""Is a first pick worse than what the engine or the asker would do? `python -m bench.never_worse [--problems 200]`.

Published models on one to eight unlike cards, one variant and engine each. The first pick, as placed and as shown,
against: llama.cpp's simulated `-fit`; all on the cards with the engine's own split; all experts, or the dense FFN, in
RAM on the best single card; the candidates of best forecast placed one and all, `--effort` of them; and random spans of
cards for the pick's own flags, `--restarts` of them. Seconds are those of usual prompts of the goal, by which configs
are ranked, times what else is counted for a rival and not for the pick: weights in RAM, a quantised cache, RAM that is
nearly full. How often the engine's own placement takes less time, all that aside, is printed as well.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from msgspec.structs import replace

from bench.requests import random_hardware
from bench.stamp import stamp
from service.engine.catalogue import resolve
from service.engine.config import CPU, Engine, Override
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags, InvalidHardware
from service.engine.goal import Constraints, GoalRequest, Preset, resolve_goal
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Candidate, strategy_of
from service.engine.planner.pricing.fit import Fitted, Placed, check
from service.engine.planner.ranking.rank import Contender, rank
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.forecasts import Forecasts
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import SearchCase, contender_of
from service.engine.planner.search.placement import PlacementSearch
from service.engine.planner.search.refining import best_card
from service.engine.planner.search.simple import simplified
from service.engine.speed.predict import typical_seconds
from tests.models import build, model_names

_ENGINES: tuple[Engine, ...] = ("ik_llama.cpp", "llama.cpp")
_PRESETS: tuple[Preset, ...] = ("chat", "agent", "long", "batch")
_MIXES = ("q4_k_m", "q3_k_m", "iq4_xs", "q5_k_m", "q8_0")
_UBATCHES = (512, 2048)
WITHIN, SHOWN_WITHIN = 1.01, 1.03


class Held(NamedTuple):
    """One problem: seconds as placed and as shown, and of each rival that fits; CPU seconds of the search.

    `by_engine`: seconds of the engine's own placement, what else counts aside; infinite where none fits.
    """

    name: str
    placed: float
    shown: float
    rivals: dict[str, float]
    cpu: float
    by_engine: float


def held(seed: int, effort: int, restarts: int) -> Held | None:
    """Return what the first pick of a random problem is held against; None where nothing fits."""
    rng = random.Random(seed)
    case = random_case(rng)
    started = time.process_time()
    contenders = search([case])[0].contenders
    first = rank(contenders, case.goal).order[:1]
    cpu = time.process_time() - started
    named = list(named_rivals(case))
    by_engine = min((c.typical for name, c in named if name.startswith("-fit")), default=math.inf)
    rivals = (
        dict(rivals_of(case, first[0], named, effort, restarts, rng)) if first else {n: c.typical for n, c in named}
    )
    cards = " + ".join(f"{card.name.split()[-1]} {card.free >> 30}" for card in case.rig.cards)
    name = f"{seed}: {case.name}, {case.engine}, {case.goal.preset}, {cards}, {case.rig.ram_bytes >> 30} GiB"
    if not first:
        return Held(name, math.inf, math.inf, rivals, cpu, by_engine) if rivals else None
    return Held(name, first[0].typical, simplified(first[0]).typical, rivals, cpu, by_engine)


def random_case(rng: random.Random) -> SearchCase:
    """Return a published model and mix on one to eight cards, with RAM for what they do not hold."""
    while True:
        name, mix, engine = rng.choice(model_names()), rng.choice(_MIXES), rng.choice(_ENGINES)
        try:
            rig = resolve(random_hardware(rng))
        except InvalidHardware:
            continue
        model, on_cards = build(name, mix), sum(card.free for card in rig.cards)
        loads = model.architecture in engine_spec(engine).architectures.known
        if loads and 0.05 < on_cards / model.n_bytes < 3 and model.n_bytes < on_cards + rig.usable_ram * 0.95:
            goal = resolve_goal(GoalRequest(preset=rng.choice(_PRESETS)), model.n_ctx_train)
            return SearchCase(engine, 0, model, rig, goal, Constraints(), f"{name} {mix}")


def named_rivals(case: SearchCase) -> Iterator[tuple[str, Contender]]:
    """Yield by name what the engine or a person would run, where it fits."""
    every, one = tuple(range(len(case.rig.cards))), best_card(case.rig)
    problems, queue = Forecasts(case), VariantSearch(case).queue
    start = next((q.candidate for q in queue if q.candidate.cards), None)
    if start is None:
        return
    for n_ubatch in _UBATCHES:
        plain = replace(start.flags, split_mode="layer", cache_type_k="f16", cache_type_v="f16")
        base = replace(plain, n_ubatch=n_ubatch, n_batch=2048)
        tried = [
            ("-fit", every, problems.problem(every).placed_by_engine(base)),
            ("all on GPU", every, replace(base, overrides=())),
            ("one card", one, replace(base, overrides=(Override(_ffn(case.model), CPU),))),
        ]
        for name, cards, flags in tried:
            if flags and (found := _placed(problems, replace(start, cards=cards, flags=flags))):
                yield f"{name} -ub {n_ubatch}", found


def _placed(problems: Forecasts, candidate: Candidate) -> Contender | None:
    problem = problems.problem(candidate.cards)
    try:
        found = check(problem, candidate.flags)
    except InvalidFlags:
        return None
    if not isinstance(found, Fitted):
        return None
    candidate = replace(candidate, strategy=strategy_of(found.placement))
    return contender_of(problems.case, candidate, problem, found, problems.loss)


def rivals_of(
    case: SearchCase, first: Contender, named: list[tuple[str, Contender]], effort: int, restarts: int,
    rng: random.Random,
) -> Iterator[tuple[str, float]]:  # fmt: skip
    """Yield the name of each rival, and the seconds for which the pick would cost as much as it does."""
    plain = VariantSearch(case)
    plain.queue = sorted(plain.queue, key=lambda q: q.cost)[:effort]
    plain.place_all()
    for name, c in (*named, *((f"effort {number}", c) for number, c in enumerate(plain.contenders))):
        yield name, first.typical * math.exp(c.cost(case.goal) - first.cost(case.goal))
    if first.candidate.strategy == "FFN in RAM" and len(first.candidate.cards) > 1:
        yield from _restarted(first, restarts, rng)


def _restarted(first: Contender, restarts: int, rng: random.Random) -> Iterator[tuple[str, float]]:
    problem = first.problem
    plain = replace(first.fitted.flags, overrides=(), tensor_split=(), n_gpu_layers=999)  # a short form may leave less
    layouts = PlacementSearch(problem, plain, whole=False)
    for number in range(restarts):
        inner = sorted(rng.randint(0, layouts.n_slots) for _ in range(len(problem.devices) - 1))
        found = layouts.search_from((0, *inner, layouts.n_slots))
        if isinstance(found, Placed):
            yield f"random restarts {number}", typical_seconds(found.fitted.run, problem.goal)


def _ffn(model: Model) -> str:
    return "exps" if model.moe_layers else r"ffn_(up|down|gate)\."


def report(rows: list[Held]) -> Iterator[str]:
    """Yield the lines of the output."""
    n = len(rows)
    yield f"{n} problems where something fits"
    best = [(row, min([row.placed, *row.rivals.values()])) for row in rows]
    yield f"first pick within 2 % of the best known: {sum(r.placed <= b * 1.02 for r, b in best) / n:.1%}"
    names = ("-fit", "all on GPU", "one card", "effort", "random restarts")
    for name in names:
        of_name = [(row, [t for k, t in row.rivals.items() if k.startswith(name)]) for row in rows]
        times = [(row, min(found)) for row, found in of_name if found]
        worse = sum(r.placed > t * WITHIN for r, t in times)
        shown = sum(r.shown > t * SHOWN_WITHIN for r, t in times)
        faster = sum(r.placed * WITHIN < t for r, t in times)
        yield f"  {name}: {len(times)} fit; worse by more than 1 %: {worse}, as shown by 3 %: {shown}; better: {faster}"
    quicker = sum(row.placed > row.by_engine * WITHIN for row in rows)
    yield f"  the engine's own placement takes less time by more than 1 %, all else aside: {quicker}"
    cpu = sorted(row.cpu for row in rows)
    yield f"CPU of a search: median {cpu[n // 2]:.2f} s, p95 {cpu[int(n * 0.95)]:.2f} s"
    for row, least in best:
        if row.placed > least * 1.02 or row.shown > least * SHOWN_WITHIN:
            yield f"  {line_of(row)}"


def line_of(row: Held) -> str:
    """Return a problem with what is best there, and by how much the first pick takes longer."""
    who = min(row.rivals, key=lambda name: row.rivals[name], default="nothing")
    least = min(row.placed, row.rivals.get(who, math.inf))
    return f"{row.name}: {row.placed / least - 1:.1%} (as shown {row.shown / least - 1:.1%}) above {who}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("problems", 200), ("seed", 1), ("jobs", 2), ("effort", 40), ("restarts", 20), ("minutes", 60)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    print(stamp(), flush=True)
    rows: list[Held] = []
    until = time.monotonic() + options.minutes * 60
    with ProcessPoolExecutor(options.jobs) as pool:
        seeds = range(options.seed, options.seed + options.problems)
        futures = [pool.submit(held, seed, options.effort, options.restarts) for seed in seeds]
        for future in futures:
            if time.monotonic() > until:
                future.cancel()
                continue
            if row := future.result():
                rows.append(row)
                print(line_of(row), flush=True)
    print("\n".join(report(rows)), flush=True)


if __name__ == "__main__":
    main()
