"""What the engine by itself, or a person without a planner, would run: the planner has to be as good as these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from service.engine.config import CPU, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.hardware import Rig
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Cards
from service.engine.planner.pricing.fit import Fitted, Problem, check, fitting, unplaced
from service.engine.planner.search.fitting import most_layers_on_cards, without_copies
from service.engine.planner.search.layout_flags import starts_of, tensor_split_for

USUAL_BATCHES = (512, 2048)  # llama.cpp's default, and what most published commands of mixtures have
_MOST_SHARE = 1_000  # of `-ts` in layers or GiB, as a command has it; larger ones are bytes of the engine's own fit


def baselines(
    problem_of: Callable[[Cards], Problem], starting: Sequence[Flags], *, may_be_on_gpu: bool
) -> Iterator[tuple[Cards, Fitted]]:
    """Yield the cards and fitted flags of each baseline that fits, for each of the `starting` flags.

    They are the engine's own placement on all cards, everything on all cards with the engine's own split (only if
    `may_be_on_gpu`), and the best card with all experts, or the dense FFN, in RAM; each also without copies of experts
    for batches, where that is faster. `starting` gives micro-batch and cache; its placement is dropped. Where the
    engine would put whole layers of a dense model in RAM, so does `-ngl`: for the first of `starting` with the smallest
    micro-batch.
    """
    every = problem_of(())
    cards = tuple(range(len(every.rig.cards)))
    if not cards:
        return
    every, one = problem_of(cards), best_card(every.rig)
    plain = [unplaced(flags) for flags in starting]
    smallest = min(plain, key=lambda flags: flags.n_ubatch)
    for flags in dict.fromkeys(plain):
        tried = [(cards, every.placed_by_engine(flags)), (one, _ffn_in_ram(every.model, flags))]
        tried += [(cards, flags)] if may_be_on_gpu else []
        for chosen, placed in dict.fromkeys(tried):
            problem = problem_of(chosen)
            fitted = [_with_split(problem, placed) if placed else None]
            unstated = placed is not None and (placed.layers_in_ram > 0 or fitted[0] is None)
            if placed and unstated and flags == smallest and _leaves_layers_in_ram(every.model, placed):
                fitted.append(most_layers_on_cards(problem, flags))
            for found in filter(None, fitted):
                yield chosen, found
                alone = without_copies(problem, found.flags, found, check)
                if alone is not None:
                    yield chosen, alone


def _leaves_layers_in_ram(model: Model, flags: Flags) -> bool:
    """Whether whole layers of a dense model lie in RAM."""
    return not model.moe_layers and (flags.layers_in_ram > 0 or flags.n_gpu_layers <= model.n_layer)


def best_card(rig: Rig) -> Cards:
    """Return the card with the most memory, of several the one that reads fastest."""
    return (max(range(len(rig.cards)), key=lambda i: (rig.cards[i].free, rig.cards[i].bandwidth_gbs)),)


def _ffn_in_ram(model: Model, flags: Flags) -> Flags:
    return replace(flags, overrides=(Override("exps" if model.moe_layers else r"ffn_(up|down|gate)\.", CPU),))


def _with_split(problem: Problem, flags: Flags) -> Fitted | None:
    """The flags with the `-ts` of the split that the engine makes by itself; None where they do not fit, or where no
    command states that placement."""
    try:
        found = fitting(problem, flags)
    except InvalidFlags:
        return None
    as_written = flags.layers_in_ram > 0 or 0 < max(flags.tensor_split, default=0) < _MOST_SHARE
    if found is None or len(problem.devices) < 2 or as_written:
        return found
    placement, n_cards = found.placement, len(problem.devices)
    if n_cards in placement.layers:
        return None
    free = [device.free for device in problem.devices]
    shared = tensor_split_for(problem.engine, problem.model, flags, free, starts_of(placement, n_cards))
    return fitting(problem, shared) if shared else None
