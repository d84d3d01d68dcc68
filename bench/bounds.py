"""How far placed candidates are from the bounds by which the others were pruned.

    python -m bench.bounds [--advices 100] [--seed 1]

For each engine and variant of random requests (those of `bench.round_trip`) the most promising candidates are placed,
and the best of other kinds, as the search does. A ratio is the goal's seconds as placed to those of the forecast: below
1 the bound was none. Prints quantiles by number of cards and strategy, and the outermost ones.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from bench.requests import random_request
from bench.stamp import stamp
from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.goal import resolve_goal
from service.engine.planner.search.one_variant import VariantSearch
from service.engine.planner.search.outcome import SearchCase

_OTHER_KINDS = 2  # that are placed besides, as for the first configs of an advice
_OUTERMOST = 5
_FEW_CARDS = 2
_NO_BOUND = 0.99  # faster than the forecast by more than 1 %


class Ratio(NamedTuple):
    """Ratios of placed to forecast seconds, and what was placed."""

    times: float
    n_cards: int
    strategy: str
    what: str


def ratios_of(seed: int) -> list[Ratio]:
    """Return the ratios for the request of this seed; none if it is refused."""
    request = random_request(random.Random(seed))
    found = []
    try:
        rig, n_ctx_train = resolve(request.hardware), min(v.model.n_ctx_train for v in request.variants)
        goal = resolve_goal(request.goal, n_ctx_train)
        for number, variant in enumerate(request.variants):
            for engine in request.constraints.engine_names:
                search = VariantSearch(SearchCase(engine, number, variant.model, rig, goal, request.constraints))
                search.place_first()
                if search.contenders:
                    search.place_competitors(_OTHER_KINDS)
                what = f"seed {seed}: {request.model} {variant.name}, {engine}"
                found += [
                    Ratio(times, len(candidate.cards), candidate.strategy, what)
                    for candidate, times in search.forecasts.errors
                ]
    except InvalidInput:
        return []
    return found


def rows(found: list[Ratio]) -> Iterator[str]:
    """Yield the table: a line for each strategy and number of cards, then all together."""
    heads = ("placed", "< 0.99", "least", "median", "p90", "p99", "worst")
    yield f"{'strategy':<16}{'cards':>6}" + "".join(f"{head:>8}" for head in heads)
    groups: dict[tuple[str, str], list[float]] = {}
    for ratio in found:
        cards = "3+" if ratio.n_cards > _FEW_CARDS else str(ratio.n_cards)
        groups.setdefault((ratio.strategy, cards), []).append(ratio.times)
    groups = dict(sorted(groups.items())) | {("all", ""): [ratio.times for ratio in found]}
    for (strategy, cards), times in groups.items():
        ordered = sorted(times)
        shares = (ordered[int(share * (len(ordered) - 1))] for share in (0, 0.5, 0.9, 0.99, 1))
        too_slow = sum(one < _NO_BOUND for one in ordered)
        yield f"{strategy:<16}{cards:>6}{len(ordered):>8}{too_slow:>8}" + "".join(f"{one:>8.3f}" for one in shares)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advices", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        lists = pool.map(ratios_of, range(options.seed, options.seed + options.advices))
        found = sorted((ratio for ratios in lists for ratio in ratios), key=lambda ratio: ratio.times)
    print(stamp())
    print("\n".join(rows(found)))
    outermost = [*found[:_OUTERMOST], *found[-_OUTERMOST:]]
    print("\n".join(f"{r.times:.3f}  {r.what}, {r.strategy}, {r.n_cards} cards" for r in outermost))


if __name__ == "__main__":
    main()
