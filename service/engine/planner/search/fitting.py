"""The placement of one candidate: its flags as they fit, confirmed by a replay, or what they are short of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from service.engine.config import CPU, Flags
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.planner.pricing.candidate import (
    Candidate,
    Cards,
    Strategy,
    over_all_sockets,
    strategy_of,
    with_strategy,
)
from service.engine.planner.pricing.fit import Fitted, Problem, Shortfall, check, fitting, shortfall_of, slack
from service.engine.planner.pricing.forecast import even_shares
from service.engine.planner.search.placement import best_placement
from service.engine.planner.search.whole_layers import layers_in_ram
from service.engine.run.environment import bound_ram, prefix_of
from service.engine.run.resolved import ResolvedRun
from service.engine.speed.predict import predict_speed
from service.engine.units import GIB

# Setting one of these fixes the whole placement: the others of them are the engine's defaults.
PLACEMENT_FIELDS = ("overrides", "cpu_moe", "n_cpu_moe", "n_gpu_layers", "tensor_split")
_Place: TypeAlias = Callable[[Problem, Flags], Fitted | Shortfall]
_NoteBytes: TypeAlias = Callable[[Flags, float], None]  # flags, and the bytes that they take on all cards
_SPLIT_ATTEMPTS = 5
_SMALLER = 0.85  # of the largest share, where the engine stops because one card would get all of some part of a layer
_WORTH_NO_COPIES = 1.05  # how much faster prompts have to be without copies
_MOST_TIME_WITHOUT_COPIES = 1.05  # of the goal's time, whose prompt may be too short for experts to be copied at all


def fit_candidate(
    problem: Problem, candidate: Candidate, note: _NoteBytes, *, last: bool = False
) -> tuple[Candidate, Fitted] | Shortfall:
    """Return the candidate as it fits, or by how much it does not.

    `note` is told the bytes of each replay where cards share every layer. `last`: where it does not fit, FFN in RAM is
    tried too, then whole layers there.
    """
    if any(name in PLACEMENT_FIELDS for name in candidate.user_fields):
        return _as_given(problem, candidate)
    least: Shortfall | None = None
    for attempt in _attempts(problem, candidate, last):
        found = _fitted(problem, attempt, note)
        if isinstance(found, Fitted) and _is_beyond_its_socket(problem, found):
            attempt = over_all_sockets(problem.rig, attempt)
            found = _fitted(problem, attempt, note)
        if isinstance(found, Fitted):
            return as_it_turned_out(problem, attempt, found)
        least = found if least is None else min(least, found, key=lambda s: s.n_bytes)
    return least or Shortfall("RAM", problem.model.n_bytes)


def _is_beyond_its_socket(problem: Problem, fitted: Fitted) -> bool:
    """Whether weights and cache in RAM take more than the memory of the socket that the program is bound to."""
    bound = bound_ram(prefix_of(fitted.flags.numa, problem.rig.nodes_a_socket), problem.rig)
    return bound is not None and fitted.memory.total(len(fitted.memory.devices) - 1).high > bound


def _attempts(problem: Problem, candidate: Candidate, last: bool) -> list[Candidate]:
    if candidate.strategy == "CPU only" or candidate.flags.split_mode != "layer" or not last:
        return [candidate]
    if problem.limits.one_pool:
        return [with_strategy(problem.rig, problem.engine, problem.model, candidate, "all on GPU")]
    order: tuple[Strategy, ...] = ("all on GPU", "FFN in RAM", "layers in RAM")
    return [
        with_strategy(problem.rig, problem.engine, problem.model, candidate, strategy)
        for strategy in order[order.index(candidate.strategy) :]
    ]


def as_it_turned_out(problem: Problem, candidate: Candidate, fitted: Fitted) -> tuple[Candidate, Fitted]:
    """Return the candidate with the strategy that its placement amounts to; where nothing is in RAM after all, without
    threads and pinned memory."""
    found = strategy_of(fitted.placement)
    strategy: Strategy = "layers in RAM" if found == "CPU only" and candidate.cards else found
    if candidate.strategy != "FFN in RAM" or strategy != "all on GPU":
        return replace(candidate, strategy=strategy), fitted
    placed = replace(candidate, flags=fitted.flags)
    on_gpu = with_strategy(problem.rig, problem.engine, problem.model, placed, "all on GPU")
    checked = fitting(problem, on_gpu.flags)
    return (candidate, fitted) if checked is None else (on_gpu, checked)


def working_cards(rig: Rig, candidate: Candidate, fitted: Fitted) -> tuple[int, ...]:
    """Return the cards of a placed candidate that hold or compute anything; all of its cards where which ones was
    stated, or where a back end has no variable that hides the others.
    """
    pairs = zip(candidate.cards, fitted.memory.devices, strict=False)
    working = tuple(card for card, d in pairs if d.weights or d.kv or d.compute or d.derived)
    stated = candidate.user_fields or any(rig.cards[i].backend == "vulkan" for i in candidate.cards)
    return candidate.cards if stated or not working else working


def without_idle_cards(
    problem_of: Callable[[Cards], Problem], candidate: Candidate, fitted: Fitted
) -> tuple[Candidate, Fitted]:
    """Return a placed candidate with the same placement on its working cards alone; itself where all work, or where
    that would not fit.
    """
    problem = problem_of(candidate.cards)
    cards, shares = working_cards(problem.rig, candidate, fitted), fitted.flags.tensor_split
    if cards == candidate.cards or len(shares) != len(candidate.cards) or not candidate.splits_by_layer:
        return candidate, fitted
    fewer, at = problem_of(cards), [candidate.cards.index(card) for card in cards]
    names = {problem.devices[i].name: device.name for i, device in zip(at, fewer.devices, strict=True)} | {CPU: CPU}
    kept = (rule for rule in fitted.flags.overrides if rule.device in names)  # the others move nothing
    rules = tuple(replace(rule, device=names[rule.device]) for rule in kept)
    flags = replace(fitted.flags, tensor_split=tuple(shares[i] for i in at), overrides=rules)
    found = fitting(fewer, flags)
    return (candidate, fitted) if found is None else (replace(candidate, cards=cards), found)


def _as_given(problem: Problem, candidate: Candidate) -> tuple[Candidate, Fitted] | Shortfall:
    try:
        found = check(problem, candidate.flags)
    except InvalidFlags:  # a rule names a card that is not among these
        return Shortfall("RAM", problem.model.n_bytes)
    if isinstance(found, Shortfall):
        return found
    return replace(candidate, strategy=strategy_of(found.placement)), found


def _fitted(problem: Problem, candidate: Candidate, note: _NoteBytes) -> Fitted | Shortfall:
    flags, strategy = candidate.flags, candidate.strategy
    if strategy == "CPU only":
        return check(problem, flags)
    if flags.split_mode != "layer":
        return _sharing_layers(problem, flags, note)
    if strategy == "all on GPU":
        return _best_placement(problem, flags, whole=True)
    place = _layers_in_ram if strategy == "layers in RAM" else _best_placement
    found = place(problem, flags)
    if isinstance(found, Shortfall) or not flags.op_offload or "op_offload" in candidate.user_fields:
        return found
    return without_copies(problem, flags, found, place) or found


def _best_placement(problem: Problem, flags: Flags, *, whole: bool = False) -> Fitted | Shortfall:
    found = best_placement(problem, flags, whole=whole)
    return found if isinstance(found, Shortfall) else found.fitted


def without_copies(problem: Problem, flags: Flags, fitted: Fitted, place: _Place) -> Fitted | None:
    """Return the flags with batches left to the CPU, where that is faster than copying experts over the link.

    None where it is not, or where the request as a whole then takes clearly longer.
    """
    alone = replace(fitted.flags, op_offload=False)
    if _prompt_speed(problem.run(alone)) < _prompt_speed(fitted.run) * _WORTH_NO_COPIES:
        return None
    options = (fitting(problem, alone), place(problem, replace(flags, op_offload=False)))
    found = [one for one in options if isinstance(one, Fitted)]
    best = min(found, key=lambda one: problem.seconds(one).expected, default=None)
    limit = problem.seconds(fitted).expected * _MOST_TIME_WITHOUT_COPIES
    if best is None or problem.seconds(best).expected > limit:
        return None
    return best


def _prompt_speed(run: ResolvedRun) -> float:
    return predict_speed(run, 0).pp.expected


def _sharing_layers(problem: Problem, flags: Flags, note: _NoteBytes) -> Fitted | Shortfall:
    """Everything on cards that share every layer: shares by speed, as far as they fit; a card that is short gets less.

    Where one card would get all of some part of a layer, at which the engine stops, the largest share is reduced.
    """
    rooms, speeds = _usable(problem), [problem.rig.cards[d.gpu].bandwidth_gbs for d in problem.devices]
    least: Shortfall | None = None
    for _ in range(_SPLIT_ATTEMPTS):
        shares = even_shares(rooms, speeds, problem.model.n_bytes)
        tried = problem.tried(replace(flags, tensor_split=_rounded(shares)))
        left = slack(problem, tried.memory)
        note(flags, sum(_usable(problem)) - sum(left[:-1]))
        if min(left) >= 0:
            if problem.starts(tried.run):
                return tried
            largest = max(shares)
            rooms = [share * _SMALLER if share == largest else room for share, room in zip(shares, rooms, strict=True)]
            continue
        found = shortfall_of(problem, left)
        least = found if least is None else min(least, found, key=lambda shortfall: shortfall.n_bytes)
        if left[-1] < 0 or sum(left[:-1]) < 0:  # then no other shares fit either
            break
        rooms = [max(a + n * (1.1 if n < 0 else 1), 0.0) for a, n in zip(shares, left, strict=False)]
    return least or Shortfall("RAM", problem.model.n_bytes)


def _layers_in_ram(problem: Problem, flags: Flags) -> Fitted | Shortfall:
    """As many layers on the cards as serve the goal best, some of them without their FFN or experts."""
    if len(problem.devices) > 1:
        flags = replace(flags, tensor_split=_rounded(_usable(problem)))
    return layers_in_ram(problem, flags)


def most_layers_on_cards(problem: Problem, flags: Flags) -> Fitted | None:
    """Return the flags with as many whole layers on the cards as serve the goal best; None where that does not fit."""
    found = _layers_in_ram(problem, flags)
    if isinstance(found, Shortfall):
        return None
    return without_copies(problem, flags, found, _layers_in_ram) or found


def _usable(problem: Problem) -> list[float]:
    return [float(max(d.free - r, 0)) for d, r in zip(problem.devices, problem.limits.reserve, strict=True)]


def _rounded(shares: Sequence[float]) -> tuple[float, ...]:
    """Shares in tenths of a GiB, short to read and exact in the engines' 32-bit floats; 1 each if they are equal."""
    if len(set(shares)) == 1:
        return (1.0,) * len(shares)
    return tuple(max(round(share / GIB, 1), 0.1) for share in shares)
