"""Does a first place hold when an input changes by 2 %? `python -m bench.stability [--requests 500] [--seed 1]`.

Random requests, each asked again with prompts of 900 and 1,100 tokens, and with one input after the other 2 % more or
less: memory, bandwidth, arithmetic and links of the GPUs, size and bandwidth of RAM, clock of the CPU, context, depth
and output of the goal. A first place is a variant, engine, strategy, set of cards, split mode and cache type. It holds
where both answers have the same one, or where one of them calls the other's a tie. A request counts as one.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from bench.requests import Request, random_request
from bench.stamp import stamp
from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.goal import Goal, resolve_goal
from service.engine.hardware import Card, Rig
from service.engine.planner.ranking.rank import rank
from service.engine.planner.ranking.ties import Kind, kind_of, ties
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.outcome import SearchCase

_STEP = 0.02
_OF_MEMORY = ("GPU memory", "RAM", "context")
Change: TypeAlias = Callable[[Rig, Goal, float], tuple[Rig, Goal]]


class Answer(NamedTuple):
    """The first place, those that the answer calls as good, and what it names for 2 % less memory (None: it says
    that the first would not fit)."""

    first: Kind | None
    as_good: tuple[Kind, ...] = ()
    with_less_memory: tuple[Kind | None, ...] = ()


class Held(NamedTuple):
    """Of one request: the inputs whose change moved the first place, with both; those that moved a tie only; those of
    memory that moved what was said to fit by a hair; whether the answer calls a tie, and says that it hardly fits."""

    moved: dict[str, str]
    tied: tuple[str, ...]
    hair: tuple[str, ...]
    calls_tie: bool
    hardly_fits: bool


def _cards(*names: str) -> Change:
    def change(rig: Rig, goal: Goal, by: float) -> tuple[Rig, Goal]:
        return replace(rig, cards=tuple(_scaled(card, names, by) for card in rig.cards)), goal

    return change


def _scaled(card: Card, names: tuple[str, ...], by: float) -> Card:
    return replace(card, **{name: type(getattr(card, name))(getattr(card, name) * by) for name in names})


def _rig(*names: str) -> Change:
    def change(rig: Rig, goal: Goal, by: float) -> tuple[Rig, Goal]:
        return replace(rig, **{name: type(getattr(rig, name))(getattr(rig, name) * by) for name in names}), goal

    return change


def _goal(name: str) -> Change:
    def change(rig: Rig, goal: Goal, by: float) -> tuple[Rig, Goal]:
        return rig, replace(goal, **{name: round(getattr(goal, name) * by)})

    return change


CHANGES: Mapping[str, Change] = {
    "GPU memory": _cards("total", "free"),
    "GPU bandwidth": _cards("bandwidth_gbs"),
    "GPU arithmetic": _cards("fp16_tflops", "int8_tops"),
    "link": _cards("pcie_gbs"),
    "RAM": _rig("ram_bytes", "usable_ram"),
    "RAM bandwidth": _rig("cpu_bandwidth_gbs"),
    "CPU clock": _rig("ghz"),
    "context": _goal("context"),
    "depth": _goal("depth"),
    "output": _goal("output"),
}


def held(seed: int) -> Held | None:
    """Return what moves the first place of a random request; None where nothing fits, or it is refused."""
    rng = random.Random(seed)
    request = random_request(rng)
    try:
        rig, goal = _resolved(request)
    except InvalidInput:
        return None
    now = answer(request, rig, goal)
    if now.first is None:
        return None
    pairs = {"prompt": (_prompted(request, rig, goal, 900), _prompted(request, rig, goal, 1100))}
    for name, change in CHANGES.items():
        by = 1 + rng.choice((-_STEP, _STEP))
        pairs[name] = (now, answer(request, *change(rig, goal, by)))
    moved = {name: pair for name, pair in pairs.items() if pair[0].first != pair[1].first}
    tied = tuple(name for name, (a, b) in moved.items() if b.first in a.as_good or a.first in b.as_good)
    of_memory = {name: pair for name, pair in moved.items() if name not in tied and name in _OF_MEMORY}
    hair = tuple(name for name, pair in of_memory.items() if any(_tells(one, pair) for one in pair))
    left = {name: f"{a.first} -> {b.first}" for name, (a, b) in moved.items() if name not in (*tied, *hair)}
    return Held(left, tied, hair, bool(now.as_good), bool(now.with_less_memory))


def _tells(one: Answer, pair: tuple[Answer, Answer]) -> bool:
    """Whether it names what is first with less memory, or says that it would not fit where then nothing does."""
    return any(kind is not None or None in (a.first for a in pair) for kind in one.with_less_memory)


def _resolved(request: Request) -> tuple[Rig, Goal]:
    n_ctx_train = min(v.model.n_ctx_train for v in request.variants)
    return resolve(request.hardware), resolve_goal(request.goal, n_ctx_train)


def _prompted(request: Request, rig: Rig, goal: Goal, prompt: int) -> Answer:
    return answer(request, rig, replace(goal, prompt=prompt, depth=min(goal.depth, goal.context - 1100 - goal.output)))


def answer(request: Request, rig: Rig, goal: Goal) -> Answer:
    """Return the first place of a request, as `advise` finds it."""
    cases = [
        SearchCase(engine, index, variant.model, rig, goal, request.constraints, variant.name)
        for index, variant in enumerate(request.variants)
        for engine in request.constraints.engine_names
    ]
    contenders = [c for one in search(cases) for c in one.contenders]
    first = rank(contenders, goal).order[:1]
    if not first:
        return Answer(None)
    found = ties(first[0], contenders, goal)
    less = (kind_of(found.with_less_memory),) if found.with_less_memory else (None,) if found.alone else ()
    return Answer(kind_of(first[0]), tuple(map(kind_of, found.as_good)), less)


def report(found: dict[int, Held]) -> Iterator[str]:
    """Yield the lines of the output."""
    n, moved, tied, hair = len(found), Counter[str](), Counter[str](), Counter[str]()
    for one in found.values():
        moved.update(one.moved.keys())
        tied.update(one.tied)
        hair.update(one.hair)
    named = sum(not one.moved and not one.hair for one in found.values())
    held_all = sum(not one.moved for one in found.values())
    yield f"{n} requests; first place holds against every change in {named / n:.1%}, or is called a tie"
    yield f"{held_all / n:.1%} with those of which the answer says that they fit by a hair, and what is first then"
    yield f"{sum(one.calls_tie for one in found.values()) / n:.1%} of answers call a tie"
    yield f"{sum(one.hardly_fits for one in found.values()) / n:.1%} say that they fit by a hair"
    for name in ("prompt", *CHANGES):
        parts = f"of which a tie {tied[name] / n:.1%}, by a hair {hair[name] / n:.1%}"
        yield f"  {name:<16}{1 - moved[name] / n:>7.1%}, {parts}"


def lines_of(seed: int, one: Held) -> Iterator[str]:
    """Yield whether the first place of a request holds, and what moves it."""
    yield f"  seed {seed}: {'moved' if one.moved else 'by a hair' if one.hair else 'tied' if one.tied else 'held'}"
    for name, text in one.moved.items():
        yield f"  seed {seed}, {name}: {text}"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("requests", 500), ("seed", 1), ("jobs", 2), ("minutes", 30)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    print(stamp(), flush=True)
    found: dict[int, Held] = {}
    until = time.monotonic() + options.minutes * 60
    with ProcessPoolExecutor(options.jobs) as pool:
        futures = {seed: pool.submit(held, seed) for seed in range(options.seed, options.seed + options.requests)}
        for seed, future in futures.items():
            if time.monotonic() > until:
                future.cancel()
            elif one := future.result():
                found[seed] = one
                print("\n".join(lines_of(seed, one)), flush=True)
    print("\n".join(report(found)))


if __name__ == "__main__":
    main()
