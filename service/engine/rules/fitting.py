"""What does not fit: where, by how much, and the change that makes it fit. And the engines' own placement (`-fit`)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cache
from itertools import tee

import msgspec

from service.engine.commands.changes import alternatives
from service.engine.commands.companions import OF_DRAFT, draft_command, draft_of
from service.engine.commands.expert_rules import expert_override
from service.engine.config import CPU, Flags, Override
from service.engine.errors import InvalidFlags
from service.engine.finding import Severity
from service.engine.memory.encoder import image_tokens
from service.engine.rules.case import Case, with_first_rule
from service.engine.rules.companion_headers import images_of
from service.engine.rules.companions import read_by_a_token
from service.engine.rules.host import bound_too_small
from service.engine.rules.placement import onto_cards
from service.engine.rules.rule import MMAP, UNASKED, Found, rule
from service.engine.run.settings import speculation_types
from service.engine.tensor_names import layer_of
from service.engine.units import GIB, MIB

_LEAST_CONTEXT, _STEP = 4_096, 1_024  # tokens: of all slots, and of each
_LEAST_MICRO_BATCH = 512
_PROJECTOR_IN_RAM, _FLASH = "--no-mmproj-offload", "-fa on"
_IMAGE_TOKENS = 1024  # with fewer, Qwen's models find things in the wrong place (llama.cpp issue 16842)
_MOST_MOVES = 64  # of layers between cards
_MOST_ROUNDS = 3  # of moving experts to RAM
_COMPUTED = "computed from the header by the engine's own rules (docs/check.md)"


@rule(
    "does-not-fit",
    "error",
    "one-more-layer-of-experts",
    _COMPUTED,
    fix="the change that fits and is fastest, if one does",
)
def does_not_fit(case: Case) -> Iterator[Found]:
    """Every GPU that runs out of memory; a warning where that is not certain, or its memory was assumed.

    What no engine prints (CUDA's context, pools) is an interval: within it a command may fit, and published ones
    did.
    """
    small = [(i, row) for i, row in enumerate(case.table[:-1]) if not row.fits]
    (offers,) = tee(_offers(case), 1)  # every card's finding tries them from the first; none is worked out twice
    unless = ", also as -fit places it" if case.fit_places else _unless(case)
    for i, row in small:
        over = row.total_high_mib - row.capacity_mib
        surely = case.surely_short(i)
        least = "up to " if surely else f"{row.total_low_mib:,.0f} to "
        guessed = ", which is assumed" if case.assumes_memory(i) else ""
        yield Found(
            f"{row.device} ({row.gpu}) needs {row.total_mib:,.0f} MiB ({least}{row.total_high_mib:,.0f}) and has "
            f"{row.capacity_mib:,.0f}{guessed}: {over:,.0f} MiB too little{'' if surely else ' at worst'}{unless}",
            severity="warning" if not surely or guessed or _unless(case) else None,
            changes=lambda: copy(offers),
        )


@rule(
    "limit-to-raise", "warning", MMAP,
    "llama.cpp logs (recommendedMaxWorkingSetSize: 2/3 to 3/4 of a Mac's memory); noamsto/nix-amd-ai issue 42 (Linux)",
    fix="the setting that raises it; fewer layers or experts on the GPU, or a smaller context",
)  # fmt: skip
def limit_to_raise(case: Case) -> Iterator[Found]:
    """A GPU that shares the machine's memory and needs more of it than the system lets it have unless it is told to.

    Not more than good to know where `-fit` places the model, as it keeps to the limit.
    """
    for device, row in zip(case.devices, case.table, strict=False):
        card = case.rig.cards[device.gpu]
        if card.usual_limit and row.fits and row.total_mib > card.usual_limit / MIB:
            less = "otherwise -fit places less there" if case.fit_places else "first raise that limit"
            yield Found(
                f"{row.device} needs {row.total_mib:,.0f} MiB, and the system lets it have "
                f"{card.usual_limit / MIB:,.0f} of the shared memory; {less}",
                card.raised_by,
                severity="info" if case.fit_places else None,
            )


def _unless(case: Case) -> str:
    """What may make it run all the same."""
    if case.has_remote:
        return " on this machine alone"
    if case.pages_to_ram:
        return "; GGML_CUDA_ENABLE_UNIFIED_MEMORY puts that in RAM, where the GPU reads it over PCIe"
    return "; the order of these cards is assumed" if case.order_guessed else ""


def _rooms(case: Case) -> tuple[Case, Case]:
    """The case in which a change must leave the reserve, then the one in which it only must fit."""
    return case, msgspec.structs.replace(case, reserve_mib=0)


def _offers(case: Case) -> Iterator[Sequence[str]]:
    """Yield the changes by which it fits, from those that take least; all without what fills the cards for nothing."""
    for base in _rooms(case):
        before = ""
        for cause in _CAUSES:
            change = cause(base)
            after = tried(base, change) if change else None
            if after and max(after.missing(after.flags)) < max(base.missing(base.flags)):
                base, before = after, f"{before}{change}; "
                yield [before.removesuffix("; ")] if _gpus_fit(base, base.flags) else []
        yield from _tiers(base, before)
        for relief in (_no_draft, _quantised_cache):
            if (change := relief(base)) and (after := tried(base, change)):
                base, before = after, f"{before}{change}; "
                yield from _tiers(base, before)


def _tiers(case: Case, before: str) -> Iterator[Sequence[str]]:
    """Yield the changes of each kind, also with flash attention, and with the projector in RAM.

    `before`: changes made already.
    """
    bases = {before: case}
    if case.flags.flash_attn == "off" and (after := tried(case, _FLASH)):
        bases = {f"{before}{_FLASH}; ": after, before: case}
    if _projector_on_card(case) and (after := tried(case, _PROJECTOR_IN_RAM)):
        bases[f"{before}{_PROJECTOR_IN_RAM}; "] = after
    for tier in _CHANGES:
        yield [f"{done}{text}" for done, one in bases.items() for change in tier if (text := change(one))]


def tried(case: Case, change: str) -> Case | None:
    """Return the case with a change; None where it cannot be read."""
    try:
        return case.changed(change)
    except InvalidFlags:
        return None


def _if_it_fits(case: Case, change: str) -> str | None:
    after = tried(case, change)
    return change if after and _gpus_fit(after, after.flags) else None


def _gpus_fit(case: Case, flags: Flags) -> bool:
    return max(case.missing(flags), default=0) <= 0


def _other_shares(case: Case) -> str | None:
    """Shares by what each card has: for one full card alongside others that are not."""
    if len(case.devices) < 2 or case.flags.split_mode == "none" or case.flags.n_gpu_layers <= 0:
        return None
    shares = tuple(float(round(device.free / GIB)) for device in case.devices)
    return _written(case, shares) if shares != case.flags.tensor_split and all(shares) else None


def _moved_layers(case: Case) -> str | None:
    """Shares that count layers, moved one by one from the fullest card to the emptiest until every card fits."""
    if len(case.devices) < 2 or case.flags.split_mode != "layer" or case.flags.n_gpu_layers <= case.model.n_layer:
        return None
    loaded = sorted({layer for name in case.placement.tensors if (layer := layer_of(name)) is not None})
    homes = (*(case.placement.layers[layer] for layer in loaded), case.placement.head)
    counts = [homes.count(i) for i in range(case.cpu)]
    for _ in range(min(len(homes), _MOST_MOVES)):
        flags = msgspec.structs.replace(case.flags, tensor_split=tuple(map(float, counts)))
        left = [-missing for missing in case.missing(flags)]
        if min(left) >= 0:
            return _written(case, flags.tensor_split)
        fullest, emptiest = left.index(min(left)), left.index(max(left))
        if max(left) <= 0 or counts[fullest] <= 1:
            return None
        counts[fullest] -= 1
        counts[emptiest] += 1
    return None


def _written(case: Case, shares: tuple[float, ...]) -> str | None:
    flags = msgspec.structs.replace(case.flags, tensor_split=shares)
    return f"-ts {','.join(f'{share:g}' for share in shares)}" if _gpus_fit(case, flags) else None


def _larger_n_cpu_moe(case: Case) -> str | None:
    """For a command with -ncmoe: the least larger count that fits."""
    if not case.flags.n_cpu_moe or case.flags.cpu_moe:
        return None
    return _first_that_fits(case, "-ncmoe", "n_cpu_moe", range(case.flags.n_cpu_moe + 1, case.model.n_layer + 1))


def _n_cpu_moe_with_shares(case: Case) -> str | None:
    """For a command with -ncmoe on several cards: the least count with which some shares fit. What -ncmoe puts in RAM
    is all of the first card's layers, so that a larger count alone makes no room on the others."""
    if not case.flags.n_cpu_moe or case.flags.cpu_moe or len(case.devices) < 2:
        return None

    @cache
    def shares(count: int) -> str | None:
        after = case.changed(f"-ncmoe {count}")
        return _moved_layers(after) if after else None

    counts = range(case.flags.n_cpu_moe + 1, case.model.n_layer + 1)
    count = _first(counts, lambda n: shares(n) is not None)
    return None if count is None else f"-ncmoe {count}; {shares(count)}"


def _more_experts_in_ram(case: Case) -> str | None:
    """Experts of as many more layers as the full cards are short of, of each card the last ones.

    Experts in RAM are copied to a card for a batch, for which it needs room as well: another layer may have to go.
    """
    if case.flags.n_gpu_layers <= 0 or case.flags.split_mode not in ("layer", "none") or case.flags.n_cpu_moe:
        return None
    layers, missing = list[int](), case.missing(case.flags)
    left = [iter(_expert_layers(case, index)) for index in range(case.cpu)]
    for _ in range(_MOST_ROUNDS):
        for index, mib in enumerate(missing):
            short = mib * MIB
            while short > 0 and (last := next(left[index], None)):
                layers.append(last[0])
                short -= last[1]
        if not layers:
            return None
        pattern = expert_override(sorted(layers))
        missing = case.missing(with_first_rule(case.flags, Override(pattern, CPU)))
        if max(missing) <= 0:
            return f"-ot '{pattern}=CPU'{' before the other rules' if case.flags.overrides else ''}"
    return None


def _expert_layers(case: Case, device: int) -> list[tuple[int, int]]:
    """Layers with experts on a device, last first, with their bytes."""
    found: dict[int, int] = {}
    for name, where in case.placement.tensors.items():
        layer = layer_of(name)
        if where == device and layer is not None and "_exps." in name:
            found[layer] = found.get(layer, 0) + case.model.by_name[name].nbytes
    return sorted(found.items(), reverse=True)


def _full_windows(case: Case) -> str | None:
    """Windows as they are by default, and nothing that needs the whole context in them."""
    named = [option for option in ("--swa-full", "--cache-reuse") if option in case.parsed.words.options]
    return f"leave out {' and '.join(named)}" if "--swa-full" in named else None


def _slow_draft(case: Case) -> str | None:
    draft = case.companion_headers.draft
    return _no_draft(case) if draft and read_by_a_token(draft) >= read_by_a_token(case.model) else None


def _no_draft(case: Case) -> str | None:
    """What leaves out the draft model, if there is one."""
    if case.companion_headers.draft is None or draft_of(case.parsed) is None:
        return None
    kinds = speculation_types(case.flags)
    names = OF_DRAFT | ({"--spec-type"} if any(kind.startswith("draft") for kind in kinds) else set())
    return f"leave out {' and '.join(dict.fromkeys(name for name in case.parsed.used if name in names))}"


def _without_draft(case: Case) -> str | None:
    change = _no_draft(case)
    return _if_it_fits(case, change) if change else None


def _smaller_cache_without_draft(case: Case) -> str | None:
    change = _no_draft(case)
    after = tried(case, change) if change else None
    smaller = _smaller_cache_type(after) if after else None
    return f"{change}; {smaller}" if smaller else None


def _draft_in_ram(case: Case) -> str | None:
    """For a draft model that RAM reads in a tenth of the time of a token."""
    draft = case.companion_headers.draft
    if draft is None or read_by_a_token(draft) * 10 > case.rig.cpu_bandwidth_gbs * 1e9 / case.speed().tg.expected:
        return None
    return _if_it_fits(case, "-ngld 0")


def _smaller_draft_cache(case: Case) -> str | None:
    """A quantised cache of what drafts: precision that costs no answer anything."""
    cached = draft_command(case.parsed).flags.cache_type_k == "f16" and any(sum(one.kv) for one in case.companions)
    return _if_it_fits(case, "-ctkd q8_0 -ctvd q8_0") if cached and case.flags.flash_attn != "off" else None


def _projector_on_card(case: Case) -> bool:
    return any(one.kind == "projector" and any(one.weights[: case.cpu]) for one in case.companions)


def _projector_in_ram(case: Case) -> str | None:
    return _if_it_fits(case, _PROJECTOR_IN_RAM) if _projector_on_card(case) else None


def _smaller_images(case: Case) -> str | None:
    """Images of fewer tokens, where the buffer for the largest ones is what does not fit."""
    header, images = case.companion_headers.projector, images_of(case.parsed, case.flags)
    if header is None or not _projector_on_card(case) or case.lacks("--image-max-tokens"):
        return None
    too_large = image_tokens(header, images) > _IMAGE_TOKENS
    return _if_it_fits(case, f"--image-max-tokens {_IMAGE_TOKENS}") if too_large else None


def _flash_attention(case: Case) -> str | None:
    return _if_it_fits(case, _FLASH) if case.flags.flash_attn == "off" else None


def _smaller_micro_batch(case: Case) -> str | None:
    sizes = _halves(min(case.flags.n_ubatch, case.flags.n_batch), _LEAST_MICRO_BATCH)
    return _first_that_fits(case, "-ub", "n_ubatch", sizes)


def _quantised_cache(case: Case) -> str | None:
    small = case.flags.cache_type_k != "f16" or case.flags.flash_attn == "off"
    return None if small else "-ctk q8_0 -ctv q8_0"


def _smaller_cache_type(case: Case) -> str | None:
    change = _quantised_cache(case)
    return _if_it_fits(case, change) if change else None


def _shorter_context(case: Case) -> str | None:
    """The largest that fits, as each slot's a multiple of `_STEP`, and of what the model was trained for at most."""
    trained = case.model.n_ctx_train * max(case.flags.n_parallel, 1) or case.flags.n_ctx  # what is beyond is of no use
    step = _STEP * case.streams
    most, least = min(case.flags.n_ctx - 1, trained) // step * step, min(_LEAST_CONTEXT, trained)
    return _first_that_fits(case, "-c", "n_ctx", range(most, least - 1, -step))


def fewer_layers(case: Case) -> str | None:
    """Return the most layers on the GPUs that fit: for models without experts, and builds that cannot move those."""
    if case.model.moe_layers and not case.lacks("-ot"):
        return None
    counts = range(min(case.flags.n_gpu_layers - 1, case.model.n_layer), 0, -1)
    return _first_that_fits(case, "-ngl", "n_gpu_layers", counts)


def _halves(n: int, least: int) -> list[int]:
    """Return n / 2, n / 4, … down to `least`."""
    found = []
    while (n := n // 2) >= least:
        found.append(n)
    return found


def _first_that_fits(case: Case, option: str, field: str, values: Sequence[int]) -> str | None:
    """Return the option with the first of values that need less and less which fits."""
    value = _first(values, lambda value: _gpus_fit(case, msgspec.structs.replace(case.flags, **{field: value})))
    return None if value is None else f"{option} {value}"


def _first(values: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Return the first value that fits, by bisection from the last: all behind it do."""
    if not values or not fits(values[-1]):
        return None
    return values[bisect_left(values, True, hi=len(values) - 1, key=fits)]


_CAUSES = (_full_windows, _slow_draft)
_PLACEMENTS = (
    _other_shares, _moved_layers, _larger_n_cpu_moe, _n_cpu_moe_with_shares, _more_experts_in_ram, _projector_in_ram
)  # fmt: skip
# By what they take from the user: nothing, only where things lie, then speed, precision, and context.
_CHANGES: tuple[tuple[Callable[[Case], str | None], ...], ...] = (
    (_flash_attention,),
    (_smaller_draft_cache,),
    (_smaller_images,),
    _PLACEMENTS,
    (_smaller_micro_batch,),
    (_draft_in_ram,),
    (_without_draft,),
    (_smaller_cache_type,),
    (_smaller_cache_without_draft,),
    (_shorter_context,),
    (fewer_layers,),
)


def other_placements(case: Case) -> list[str]:
    """Return the changes by which everything fits that only move what lies where."""
    return [text for change in _PLACEMENTS if (text := change(case))]


@rule(
    "ram-too-small", "error", "mmap-pinned-memory-and-ram-that-is-too-small",
    "ik_llama.cpp src/llama-load-tensors.cpp:5309; discussion 286 (a 226 GiB model on 96 GB: 4 t/s from disk)",
    fix="experts on cards that have room; a smaller quantisation; GGML_CUDA_NO_PINNED=1 or mmap streams from disk",
)  # fmt: skip
def ram_too_small(case: Case) -> Iterator[Found]:
    """Host memory that must stay in RAM; a warning where mmap streams it from disk. Swap is slower than that."""
    row = case.table[-1]
    shared = row.total_mib <= row.capacity_mib  # with the GPU, which is what leaves too little of it
    if row.fits or case.flags.mlock or bound_too_small(case) or (shared and not all(one.fits for one in case.table)):
        return

    def changes(advice: str) -> Iterator[Sequence[str]]:
        yield from onto_cards(case)
        yield alternatives(advice)

    guessed = case.assumes_memory(case.cpu)
    ram = f"{row.capacity_mib / 1024:,.1f}{' (assumed)' if guessed else ''}"
    left = max(row.free_mib + row.total_mib, 0) / 1024
    there = f"the GPU leaves {left:,.1f} of {ram}" if shared else f"there are {ram}"
    needs = f"{row.total_mib / 1024:,.1f} GiB of RAM are needed, but {there}"
    if case.run.mmap_off:
        pinned = case.run.pins_host
        why = "weights are pinned in RAM (mmap is off)" if pinned else "mmap is off"
        fix = "GGML_CUDA_NO_PINNED=1 before the command" if pinned else "leave out --no-mmap, or leave out -rtr"
        severity: Severity | None = "warning" if guessed else None
        yield Found(f"{needs}: {why}", severity=severity, changes=lambda: changes(fix))
    else:
        reads = case.from_drive
        counted = f": about {reads.a_token / GIB:.1f} GiB per token, which the speeds include" if reads else ""
        message = f"{needs}: what does not fit in RAM is read from the drive{counted}"
        yield Found(message, severity="warning", changes=lambda: changes("a smaller quantisation"))


_SOURCES = "llama.cpp common/fit.cpp, ik_llama.cpp src/llama.cpp:4281-4610, computed with the devices' free memory"


@rule("fit-places-itself", "info", UNASKED, _SOURCES, fix="an explicit placement, where one is as fast")
def fit_places_itself(case: Case) -> Iterator[Found]:
    """With no placement given, `-fit` places the model: what it chooses, and another placement where one is faster."""
    if case.fit_places and not case.fit_fails:
        option = "-fit is on and" if case.spec.fit_places else "--fit"
        message = f"{option} gives {_chosen(case)}; the figures are for that placement"
        whole = case.flags.n_gpu_layers > case.model.n_layer and not case.flags.layers_in_ram
        all_there = whole and not case.flags.overrides
        yield Found(message, "") if all_there else Found(message, changes=lambda: _instead_of_fit(case))


@rule(
    "fit-finds-no-placement", "error", UNASKED, "ik_llama.cpp src/llama.cpp:4281-4610 (Unable to auto-fit model)",
    refused="loading",
)  # fmt: skip
def fit_finds_no_placement(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `--fit` stops where the model does not fit even with all experts in RAM."""
    if case.fit_fails:
        message = "--fit finds no placement, so the engine stops; the figures are without it"
        yield Found(message, changes=lambda: _instead_of_fit(case))


def _chosen(case: Case) -> str:
    flags, layers = case.flags, case.model.n_layer - case.model.n_layer_nextn
    in_ram = len({layer_of(name) for name in case.experts_in_ram})
    context = f", -c {flags.n_ctx}" if flags.n_ctx != case.parsed.flags.n_ctx else ""
    if flags.layers_in_ram:
        text = f"{flags.layers_in_ram} layers in RAM, the others on {'the GPU' if case.cpu == 1 else 'the GPUs'}"
    elif flags.n_gpu_layers > layers + 1:
        text = f"{'all layers' if in_ram else 'everything'} on {'the GPU' if case.cpu == 1 else 'the GPUs'}"
    else:
        text = f"-ngl {flags.n_gpu_layers}"
    if flags.tensor_split and case.spec.fit_places:
        text += f" -ts {','.join(f'{share:.0f}' for share in flags.tensor_split)}"
    if flags.overrides:
        text += f" and {len(flags.overrides)} -ot rule{'s' if len(flags.overrides) > 1 else ''}"
    return f"{text}{context}" + (f", experts of {in_ram} layers in RAM" if in_ram else "")


def _instead_of_fit(case: Case) -> Iterator[Sequence[str]]:
    """Yield placements for a command that leaves them to the engine, whose own then is off."""
    without = "-fit off" if case.spec.fit_places else "leave out --fit"
    off = case.changed(without)
    for room in _rooms(off) if off is not None else ():
        fits = room.fits(room.flags)
        yield [without] if fits else [f"{without}; {text}" for text in other_placements(room)]
