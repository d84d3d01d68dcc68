"""What rules the speed of a config, in a sentence for tokens and one for prompts."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.advice import Reason
from service.engine.planner.ranking.rank import Contender
from service.engine.speed.interval import Phase
from service.engine.speed.limit import Limit, Resource, limit_of

_WHAT: dict[Resource, str] = {
    "GPU": "work of the GPU",
    "RAM and CPU": "reading RAM and computing on the CPU",
    "link": "copying weights from RAM to the GPU",
    "waiting": "starting kernels and waiting for other devices",
}
_FASTER: dict[Resource, str] = {"GPU": "faster GPUs", "RAM and CPU": "faster RAM and CPU", "link": "a faster link"}
_WORTH = 1.03  # a gain below 3 % is not worth its words


def what_limits(contender: Contender, depth: int) -> Iterator[Reason]:
    """Yield what rules tokens and prompts of a config at a depth, and what a change would gain at most."""
    phases: tuple[tuple[Phase, str], ...] = (("tg", "tokens"), ("pp", "prompts"))
    for phase, name in phases:
        parts = contender.speed.parts_tg if phase == "tg" else contender.speed.parts_pp
        yield Reason(f"limit-{name}", f"{name}: {_sentence(limit_of(contender.fitted.run, parts, phase, depth))}")


def _sentence(limit: Limit) -> str:
    said = [f"{_WHAT[limit.resource]} takes {limit.share:.0%} of the time"]
    for resource, faster in _FASTER.items():
        gain = limit.gains[resource]
        if resource != limit.resource and gain >= _WORTH:
            said.append(f"{faster} would gain {gain - 1:.0%} at most")
    if limit.ram >= _WORTH:
        said.append(f"RAM a third faster (DDR5-6400 for 4800) would gain {limit.ram - 1:.0%}")
    return "; ".join(said)
