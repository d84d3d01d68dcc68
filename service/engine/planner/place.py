"""A candidate made to fit: flags with their placement, confirmed by the replay, or what is missing."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.config import Flags, Override
from service.engine.planner.candidates import Candidate, Strategy, with_strategy
from service.engine.planner.cards import even_shares
from service.engine.planner.fit import Fitted, Problem, Shortfall, check, most_layers
from service.engine.planner.placing import best_placement
from service.engine.units import GIB

_SPLIT_ATTEMPTS = 6


def placed(problem: Problem, candidate: Candidate, *, last: bool = False) -> tuple[Candidate, Fitted] | Shortfall:
    """Return the candidate as it fits, or by how much it does not.

    `last`: where no other fits, what was hoped to lie on GPUs may go to RAM: the FFN, else whole layers.
    """
    least: Shortfall | None = None
    for attempt in _attempts(problem, candidate, last):
        found = _fitted(problem, attempt)
        if isinstance(found, Fitted):
            return attempt, found
        least = found if least is None else min(least, found, key=lambda s: s.n_bytes)
    return least or Shortfall("RAM", problem.model.n_bytes)


def _attempts(problem: Problem, candidate: Candidate, last: bool) -> list[Candidate]:
    if candidate.strategy == "CPU only" or candidate.flags.split_mode != "layer" or not last:
        return [candidate]
    order: tuple[Strategy, ...] = ("all on GPU", "FFN in RAM", "layers in RAM")
    return [
        with_strategy(problem.rig, problem.engine, candidate, strategy)
        for strategy in order[order.index(candidate.strategy) :]
    ]


def _fitted(problem: Problem, candidate: Candidate) -> Fitted | Shortfall:
    flags, strategy = candidate.flags, candidate.strategy
    if strategy == "CPU only":
        return check(problem, flags)
    if flags.split_mode != "layer":
        return _together(problem, flags)
    if strategy == "layers in RAM":
        return _layers_in_ram(problem, flags)
    found = best_placement(problem, flags, whole=strategy == "all on GPU")
    return found if isinstance(found, Shortfall) else found.fitted


def _together(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """All on GPUs that share every layer: shares by speed, as far as they fit; a card that is short gets less."""
    rooms, speeds = _usable(problem), [problem.rig.cards[d.gpu].bandwidth_gbs for d in problem.devices]
    least: Shortfall | None = None
    for _ in range(_SPLIT_ATTEMPTS):
        shares = even_shares(rooms, speeds, problem.model.n_bytes)
        found = check(problem, replace(flags, tensor_split=_rounded(shares)))
        if isinstance(found, Fitted):
            return found
        least = found if least is None else min(least, found, key=lambda shortfall: shortfall.n_bytes)
        short = next((i for i, d in enumerate(problem.devices) if d.name == found.device), None)
        if short is None:
            break
        rooms[short] = max(shares[short] - found.n_bytes * 1.1, 0.0)
    return least or Shortfall("RAM", problem.model.n_bytes)


def _layers_in_ram(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """As many layers on GPUs as fit, of a mixture of experts without its experts."""
    if problem.model.moe_layers:
        flags = replace(flags, overrides=(Override("exps", "CPU"),))
    if len(problem.devices) > 1:
        flags = replace(flags, tensor_split=_rounded(_usable(problem)))
    return most_layers(problem, flags)


def _usable(problem: Problem) -> list[float]:
    return [float(max(d.free - r, 0)) for d, r in zip(problem.devices, problem.limits.reserve, strict=True)]


def _rounded(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares in tenths of a GiB: short to read, and exact in the engines' 32-bit floats after parsing."""
    return tuple(max(round(share / GIB, 1), 0.1) for share in shares)
