"""Several GPUs: how layers are split, and modes that llama.cpp cannot take."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.memory.split_modes import split_refused
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule
from service.engine.units import GIB

_ALIKE = 0.05  # cards of one kind differ by what the driver keeps
_CARDS = "unlike-cards"


@rule(
    "split-left-to-chance", "warning", _CARDS,
    "ik_llama.cpp src/llama.cpp:4434-4464, llama.cpp src/llama-model.cpp:1589-1625", mend="-ts, one share for each GPU",
)  # fmt: skip
def split_left_to_chance(case: Case) -> Iterator[Found]:
    """Without `-ts` the engine splits by what is free when it starts: unlike cards, an unlike placement each time."""
    sizes = [device.total for device in case.devices]
    if len(sizes) < 2 or case.flags.tensor_split or case.flags.split_mode == "none" or case.flags.n_gpu_layers <= 0:
        return
    if (max(sizes) - min(sizes)) / max(sizes) <= _ALIKE:
        return
    by = "bytes of free memory" if case.ik else "free memory, counted in layers"
    shares = ",".join(f"{device.free / GIB:.0f}" for device in case.devices)
    yield Found(
        f"the {len(sizes)} GPUs are unlike and -ts is not given: layers go by {by} at start, whatever is there then",
        f"-ts {shares} pins about the same split",
    )


@rule("shares-without-gpu", "warning", _CARDS, "common_params: -ts of both engines", mend="one share for each GPU")
def shares_without_gpu(case: Case) -> Iterator[Found]:
    """More `-ts` shares than GPUs."""
    given = len(case.parsed.flags.tensor_split)
    if given > len(case.devices):
        yield Found(f"-ts has {given} shares for {len(case.devices)} GPUs: the rest is left out")


@rule(
    "card-without-share", "info", _CARDS, "ik_llama.cpp src/llama.cpp:8351-8370: a context on every visible card; "
    "missing -ts entries are 0", mend="CUDA_VISIBLE_DEVICES without it, or a share for it",
)  # fmt: skip
def card_without_share(case: Case) -> Iterator[Found]:
    """A visible card that `-ts` gives nothing still takes a context; its experts by `-ot` are another matter."""
    shares = case.flags.tensor_split
    used = set(case.placement.tensors.values())
    idle = [
        device.name
        for i, device in enumerate(case.devices)
        if shares and not (shares[i] if i < len(shares) else 0) and i not in used
    ]
    if idle and any(shares) and case.flags.split_mode == "layer" and case.flags.n_gpu_layers > 0:
        yield Found(f"-ts gives {', '.join(idle)} nothing, and nothing else is there: it only takes a context")


@rule("main-gpu-unknown", "error", _CARDS, "llama_model_load of both engines", mend="-mg 0")
def main_gpu_unknown(case: Case) -> Iterator[Found]:
    """`-mg` names a GPU that is not there."""
    main = case.parsed.flags.main_gpu
    if main is not None and case.devices and not 0 <= main < len(case.devices):
        yield Found(f"-mg {main}: the GPUs are numbered 0 to {len(case.devices) - 1}; the figures are for -mg 0")


@rule(
    "none-with-several-gpus", "warning", _CARDS, "ik_llama.cpp src/llama.cpp:4639-4657, 8341-8349", only="ik_llama.cpp",
    mend="CUDA_VISIBLE_DEVICES=0 before the command, and no -sm",
)  # fmt: skip
def none_with_several_gpus(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-sm none` still gives caches and norms to GPUs it does not use."""
    if case.flags.split_mode == "none" and len(case.devices) > 1:
        yield Found("-sm none with several visible GPUs: caches and norms may be assigned to a GPU that is not used")


@rule(
    "split-mode-refused", "error", "layers-or-together--sm",
    "llama.cpp src/llama-model.cpp:1161, src/llama-arch.cpp:1142, llama-context.cpp:3851", only="llama.cpp",
    mend="-sm layer",
)  # fmt: skip
def split_mode_refused(case: Case) -> Iterator[Found]:
    """llama.cpp's CUDA back end has no `-sm row` any more, and `-sm tensor` and `none` not with everything."""
    if not case.devices:
        return
    if case.flags.split_mode == "row" and case.parsed.build.date is None:
        message = "-sm row: the CUDA back end of this build has no split buffers, the model is not loaded"
        yield Found(message, "-sm layer, or -sm tensor")
    refused = split_refused(case.model, msgspec.structs.replace(case.flags, split_mode=case.parsed.flags.split_mode))
    if refused is not None:
        yield Found(refused)


@rule(
    "cpu-moe-by-share", "warning", "what--ngl--cmoe-and--ncmoe-count",
    "ik_llama.cpp src/llama-load-tensors.cpp:269-354", only="ik_llama.cpp", mend="-ot rules say which layers",
)  # fmt: skip
def cpu_moe_by_share(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-ncmoe` takes the last layers, on several GPUs a share of each one's last layers."""
    n = case.flags.n_cpu_moe
    if not n or case.flags.cpu_moe or len(case.devices) < 2 or n >= case.model.n_layer:
        return
    if case.flags.n_gpu_layers <= case.model.n_layer:
        message = f"-ncmoe {n} with -ngl {case.flags.n_gpu_layers}: layers in RAM use up the last GPU's share"
        yield Found(message, "-ngl 999, or -ot rules")
    else:
        message = f"-ncmoe {n} does not mean the first {n} layers: every GPU gives up the last ones of its share"
        yield Found(message, severity="info")
