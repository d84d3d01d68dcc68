"""Several GPUs: how layers are split, and modes that llama.cpp cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.config import CPU
from service.engine.rules.case import Case
from service.engine.rules.rule import CARDS, SPLIT_MODES, Found, rule
from service.engine.run.devices import VISIBLE
from service.engine.units import GIB

_ALIKE = 0.05  # cards of one kind differ by what the driver keeps


@rule(
    "split-left-to-chance", "warning", CARDS,
    "ik_llama.cpp src/llama.cpp:4434-4464, llama.cpp src/llama-model.cpp:1589-1625", fix="-ts, one share for each GPU",
)  # fmt: skip
def split_left_to_chance(case: Case) -> Iterator[Found]:
    """Without `-ts` the engine splits by the memory free at startup: unlike cards may get another split each time."""
    sizes = [device.total for device in case.devices]
    if len(sizes) < 2 or case.flags.tensor_split or case.flags.split_mode == "none" or case.flags.n_gpu_layers <= 0:
        return
    if (max(sizes) - min(sizes)) / max(sizes) <= _ALIKE:
        return
    by = case.spec.memory.divides_by
    shares = ",".join(f"{device.free / GIB:.0f}" for device in case.devices)
    yield Found(
        f"the {len(sizes)} GPUs differ and -ts is not set: layers are split by {by} at startup, whatever that is then",
        f"-ts {shares}",
    )


@rule("shares-without-gpu", "warning", CARDS, "common_params: -ts of both engines", fix="one share for each GPU")
def shares_without_gpu(case: Case) -> Iterator[Found]:
    """More `-ts` shares than GPUs."""
    given = len(case.parsed.flags.tensor_split)
    if given > len(case.devices):
        kept = case.parsed.flags.tensor_split[: len(case.devices)]
        fix = f"-ts {','.join(f'{share:g}' for share in kept)}" if any(kept) else "leave out -ts"
        yield Found(f"-ts has {given} shares for {len(case.devices)} GPUs: the rest is ignored", fix)


@rule(
    "card-without-share", "info", CARDS, "ik_llama.cpp src/llama.cpp:8351-8370: a context on every visible card; "
    "missing -ts entries are 0", fix="CUDA_VISIBLE_DEVICES without it, or a share for it",
)  # fmt: skip
def card_without_share(case: Case) -> Iterator[Found]:
    """A visible card that `-ts` gives nothing still holds a context; not reported where `-ot` sends experts to it."""
    shares = case.flags.tensor_split
    used = set(case.placement.tensors.values())
    idle = [
        device.name
        for i, device in enumerate(case.devices)
        if shares and not (shares[i] if i < len(shares) else 0) and i not in used
    ]
    if idle and any(shares) and case.flags.split_mode == "layer" and case.flags.n_gpu_layers > 0:
        yield Found(
            f"-ts gives {', '.join(idle)} nothing, and nothing else is placed there: only a context takes memory"
        )


@rule("main-gpu-unknown", "error", CARDS, "llama_model_load of both engines", fix="-mg 0", refused="loading")
def main_gpu_unknown(case: Case) -> Iterator[Found]:
    """`-mg` names a GPU that is not there."""
    main = case.parsed.flags.main_gpu
    if main is not None and case.devices and not 0 <= main < len(case.devices):
        yield Found(f"-mg {main}: GPUs are numbered 0 to {len(case.devices) - 1}; the figures are for -mg 0")


@rule(
    "main-gpu-without-effect", "warning", CARDS,
    "ik_llama.cpp src/llama.cpp:4639-4657, llama.cpp src/llama.cpp: the main GPU is used with -sm none and row only",
    fix="leave out -mg; CUDA_VISIBLE_DEVICES puts a card first",
)  # fmt: skip
def main_gpu_without_effect(case: Case) -> Iterator[Found]:
    """`-mg` chooses the one card of `-sm none`; with layers split over several cards it changes nothing."""
    main = case.flags.main_gpu
    if not main or len(case.devices) < 2 or case.flags.split_mode not in ("layer", "graph"):
        return
    first = case.devices[0].name
    names = [case.rig.cards[device.gpu].name for device in case.devices]
    cards = ", ".join(f"{i} is {name}" for i, name in enumerate(names))
    listed = f" ({cards})" if len(set(names)) > 1 else ""
    yield Found(
        f"-mg {main} does nothing with -sm {case.flags.split_mode}: {first} stays the first card, to which "
        f"prompts copy from RAM. CUDA_VISIBLE_DEVICES with another number first makes that card first{listed}",
        changes=lambda: iter([[*_made_first(case, main), "leave out -mg"]]),
    )


def _made_first(case: Case, main: int) -> Iterator[str]:
    """Show the card that `-mg` names before the others, where nothing names devices by their number."""
    named = case.flags.tensor_split or (
        case.parsed.flags.overrides and any(r.device != CPU for r in case.parsed.flags.overrides)
    )
    if not named and not set(VISIBLE) & set(case.parsed.env):
        rest = (str(i) for i in range(len(case.devices)) if i != main)
        yield f"CUDA_VISIBLE_DEVICES={','.join([str(main), *rest])} before the command; leave out -mg"


@rule("split-mode-approximate", "info", SPLIT_MODES, "docs/check.md")
def split_mode_approximate(case: Case) -> Iterator[Found]:
    """The memory of some split modes is a rough figure here, and so is the speed of several."""
    mode = case.flags.split_mode
    if len(case.devices) < 2 or mode not in ("graph", "attn", "row", "tensor"):
        return
    speed = "its speed is a formula" if mode in ("graph", "tensor") else "so is its speed"
    known = case.spec.memory.known_of_split(case.model, case.flags, case.memory.basis)
    if known == "all":
        yield Found(f"-sm {mode}: {speed}: approximate")
    else:
        how = "its compute buffers are" if known == "stored" else "its memory is"
        yield Found(f"-sm {mode}: {how} computed as that of -sm layer, {speed}: approximate")
