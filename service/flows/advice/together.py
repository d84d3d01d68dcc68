"""Advices for several models that are to be in memory at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from service.engine.goal import Constraints
from service.engine.hardware import Rig
from service.engine.side_by_side import even_share, room_left, side_by_side
from service.wire.advice.advice import Advice


def advise_together(
    repos: Sequence[str], rig: Rig, constraints: Constraints, advised: Callable[[str, Constraints], Advice]
) -> list[Advice]:
    """Return advices for several repos whose first configs fit in memory at once, in the order of `repos`.

    `advised` makes one of them. Each is planned in what those before it leave: what takes least alone goes first; where
    that fails for one, the order is that of `repos`; where that fails too, each has an even share of every device. An
    advice without configs: nothing fits in its share, or on the machine at all.
    """
    alone = [advised(repo, constraints) for repo in repos]
    if not all(advice.configs for advice in alone) or _fit(alone, rig):
        return alone
    by_size = sorted(range(len(repos)), key=lambda i: sum(d.total_mib for d in alone[i].configs[0].devices))
    for order in (by_size, list(range(len(repos)))):
        found: dict[int, Advice] = {}
        for i in order:
            limits = room_left([advice.configs[0] for advice in found.values()], rig, constraints)
            advice = advised(repos[i], limits) if limits else _without_configs(alone[i])
            if not advice.configs:
                break
            found[i] = advice
        else:
            return [found[i] for i in range(len(repos))]
    share = even_share(len(repos), rig, constraints)
    return [advised(repo, share) if share else _without_configs(one) for repo, one in zip(repos, alone, strict=True)]


def _without_configs(advice: Advice) -> Advice:
    return msgspec.structs.replace(advice, configs=[], card=None, headline="No: the other models leave no memory.")


def _fit(advices: Sequence[Advice], rig: Rig) -> bool:
    configs = {str(i): advice.configs[0] for i, advice in enumerate(advices)}
    return side_by_side(configs, rig).together == [list(configs)]
