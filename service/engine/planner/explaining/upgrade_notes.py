"""What a buyer should know besides the gain: why prompts take longer, what is unused, what the board does not take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from service.engine.hardware import Card, Hardware, Rig
from service.engine.planner.explaining.memory_asked import board_needed, most_memory, needs_four_modules
from service.engine.planner.ranking.rank import Contender
from service.engine.units import GIB

_SLOWER = 0.95  # of the speed of prompts, and of a link
_WATTS = 50  # more than this is worth a word
_BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "sycl": "SYCL", "metal": "Metal", "vulkan": "Vulkan"}


def machine_notes(before: Hardware, after: Hardware, today: Rig, changed: Rig) -> Iterator[str]:
    """Yield what the changed machine needs, whatever runs on it."""
    most = most_memory(after)
    if most is not None and today.ram_bytes < changed.ram_bytes and changed.ram_bytes > most * GIB:
        yield f"a desktop's four slots take {most} GB at most"
    elif needs_four_modules(after, changed.ram_bytes) and not needs_four_modules(before, today.ram_bytes):
        yield "this much DDR5 takes four modules, which a desktop runs slower than two: its makers state 3,600 to 4,400"
    if needs := board_needed(before, after):
        yield f"this CPU needs {needs}"
    watts = sum(card.tdp_w for card in changed.cards) - sum(card.tdp_w for card in today.cards)
    if watts >= _WATTS and all(card.tdp_w for card in changed.cards):
        yield f"the cards may draw {watts:.0f} W more"


def config_notes(first: Contender, best: Contender, changed: Rig, pp_times: float) -> Iterator[str]:
    """Yield how the config on the changed machine differs from today's `first`, and why its prompts take longer."""
    used, now = _cards(best), _cards(first)
    unused = Counter(card.name for card in changed.cards) - Counter(card.name for card in used)
    if unused:
        names = ", ".join(f"{n}x {name}" if n > 1 else name for name, n in unused.items())
        yield f"{best.name} leaves the {names} unused"
    if used and now and used[0].backend != now[0].backend:
        alike = len({card.name.split()[0] for card in used}) == 1
        why = "" if alike else ", which drives cards of several makers together"
        yield f"it runs with {best.engine} and {_BACKENDS[used[0].backend]}{why}"
    elif best.engine != first.engine:
        yield f"it runs with {best.engine} instead of {first.engine}"
    split = best.fitted.flags.split_mode
    if split not in ("layer", first.fitted.flags.split_mode) and len(used) > 1:
        yield f"few runs with -sm {split} have been published, so measure it"
    if used and now and pp_times < _SLOWER:
        yield from _slower_prompts(first, best)


def _slower_prompts(first: Contender, best: Contender) -> Iterator[str]:
    if best.candidate.strategy == "all on GPU":
        return
    # The first card takes the weights that a prompt copies from RAM (ggml-backend.cpp of both engines).
    old, new = _cards(first)[0].pcie_gbs, _cards(best)[0].pcie_gbs
    if new < _SLOWER * old:
        text = f"prompts copy weights from RAM at up to {new:.0f} GB/s instead of {old:.0f}"
        shared = len(_cards(best)) > len(_cards(first)) and _cards(best)[-1].pcie_gbs == new
        yield (
            f"{text}, as the cards share the CPU's lanes; one in a slot with `pcie 4.0 x4` does not" if shared else text
        )
    flags, before, prompt = best.fitted.flags, first.fitted.flags, best.problem.goal.prompt
    if before.op_offload and not flags.op_offload:
        how = f"for prompts of {prompt:,} tokens the CPU itself computes the experts in RAM"
        yield f"{how}, with nothing to copy; for longer ones another config may come first"
    elif flags.n_ubatch < before.n_ubatch:
        yield f"-ub is {flags.n_ubatch} instead of {before.n_ubatch}"


def _cards(contender: Contender) -> list[Card]:
    """The cards that a config uses, in its order."""
    return [contender.problem.rig.cards[i] for i in contender.candidate.cards]
