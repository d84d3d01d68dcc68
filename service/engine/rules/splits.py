"""Several GPUs: how layers are split, and modes that a model or an engine cannot take."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.memory.overrides import matching_names
from service.engine.memory.shares_ik import can_share, partly_moved
from service.engine.memory.split_modes import split_refused, splits_graph
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning
from service.engine.units import GIB

_ALIKE = 0.05  # cards of one kind differ by what the driver keeps


def split_left_to_chance(case: Case) -> Iterator[Found]:
    """Without `-ts` the engine splits by what is free when it starts: unlike cards, an unlike placement each time."""
    sizes = [device.total for device in case.devices]
    if len(sizes) < 2 or case.flags.tensor_split or case.flags.split_mode == "none" or case.flags.n_gpu_layers <= 0:
        return
    if (max(sizes) - min(sizes)) / max(sizes) <= _ALIKE:
        return
    by = "bytes of free memory" if case.ik else "free memory, counted in layers"
    shares = ",".join(f"{device.free / GIB:.0f}" for device in case.devices)
    yield warning(
        "split-left-to-chance",
        f"the {len(sizes)} GPUs are unlike and -ts is not given: layers go by {by} at start, whatever is there then",
        f"-ts {shares} pins about the same split",
        "ik_llama.cpp src/llama.cpp:4434-4464, llama.cpp src/llama-model.cpp:1589-1625",
    )


def shares_without_gpu(case: Case) -> Iterator[Found]:
    """More `-ts` shares than GPUs."""
    given = len(case.parsed.flags.tensor_split)
    if given > len(case.devices):
        message = f"-ts has {given} shares for {len(case.devices)} GPUs: the rest is left out"
        yield warning("shares-without-gpu", message, "one share for each GPU", "common_params: -ts of both engines")


def main_gpu_unknown(case: Case) -> Iterator[Found]:
    """`-mg` names a GPU that is not there."""
    main = case.parsed.flags.main_gpu
    if main is not None and case.devices and not 0 <= main < len(case.devices):
        message = f"-mg {main}: the GPUs are numbered 0 to {len(case.devices) - 1}; the figures are for -mg 0"
        yield error("main-gpu-unknown", message, "-mg 0", "llama_model_load of both engines")


def none_with_several_gpus(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-sm none` still gives caches and norms to GPUs it does not use."""
    if case.ik and case.flags.split_mode == "none" and len(case.devices) > 1:
        message = "-sm none with several visible GPUs: caches and norms may be assigned to a GPU that is not used"
        fix = "CUDA_VISIBLE_DEVICES=0 before the command, and no -sm"
        yield warning("none-with-several-gpus", message, fix, "ik_llama.cpp src/llama.cpp:4639-4657, 8341-8349")


def graph_split_impossible(case: Case) -> Iterator[Found]:
    """`-sm graph` needs two GPUs and an architecture that it knows."""
    if not case.ik or case.flags.split_mode not in ("graph", "attn"):
        return
    mode = case.flags.split_mode
    if len(case.devices) < 2:
        message = f"-sm {mode} needs at least two GPUs: the engine stops"
        yield error("graph-split-impossible", message, "-sm layer", "ik_llama.cpp src/llama.cpp:3895-3930")
    elif not splits_graph(case.model):
        message = f"-sm {mode}: {case.model.architecture} is not among its architectures: placed as -sm layer"
        yield warning("graph-split-impossible", message, "-sm layer", "ik_llama.cpp src/llama.cpp:3895-3930")
    elif "--dsa" in case.flags.other or "-dsa" in case.flags.other:
        message = f"--dsa is not done with -sm {mode}: the engine ignores it"
        yield warning("graph-split-impossible", message, "-sm layer", "ik_llama.cpp src/llama.cpp:8121")
    elif case.model.mla is not None and (case.flags.flash_attn == "off" or case.flags.mla == 0):
        message = f"-sm {mode} with latent attention needs flash attention and -mla 1 or more: the engine aborts"
        yield error("graph-split-impossible", message, "-fa on -mla 3", "ik_llama.cpp graphs/build_deepseek2.cpp:18")


def graph_split_partial_experts(case: Case) -> Iterator[Found]:
    """With `-sm graph`, a layer's experts are shared out all together or not at all."""
    if not case.ik or case.flags.split_mode not in ("graph", "attn") or len(case.devices) < 2:
        return
    moved = {name for rule in case.flags.overrides for name in matching_names(case.model, rule.pattern)}
    layer = partly_moved(case.model, moved)
    if layer is not None:
        message = f"-ot moves a part of block {layer}'s experts: with -sm graph the rest gets no memory anywhere"
        source = "ik_llama.cpp src/llama-load-tensors.cpp:5638, ggml-cuda.cu:852, PR 1890"
        yield error("graph-split-partial-experts", message, "all of up, gate and down of a block, or none", source)


def split_refused_by_llama_cpp(case: Case) -> Iterator[Found]:
    """llama.cpp's CUDA back end has no `-sm row` any more, and `-sm tensor` and `none` not with everything."""
    if case.ik or not case.devices:
        return
    if case.flags.split_mode == "row" and case.parsed.build.date is None:
        message = "-sm row: the CUDA back end of this build has no split buffers, the model is not loaded"
        yield error("split-mode-refused", message, "-sm layer, or -sm tensor", "llama.cpp src/llama-model.cpp:1161")
    refused = split_refused(case.model, msgspec.structs.replace(case.flags, split_mode=case.parsed.flags.split_mode))
    if refused is not None:
        yield error(
            "split-mode-refused", refused, "-sm layer", "llama.cpp src/llama-arch.cpp:1142, llama-context.cpp:3851"
        )


def split_mode_approximate(case: Case) -> Iterator[Found]:
    """Memory of some split modes is a rough figure here, and the speed of more."""
    mode = case.flags.split_mode
    if len(case.devices) < 2 or mode not in ("graph", "attn", "row", "tensor"):
        return
    if mode == "tensor" and not case.ik:
        yield info("split-mode-approximate", "-sm tensor: its speed is a formula: approximate", None, "docs/check.md")
    else:
        speed = "its speed is a formula" if mode in ("graph", "tensor") else "so is its speed"
        shared = case.ik and can_share(case.model, case.flags)
        how = "its compute buffers are" if shared else "its memory is"
        message = f"-sm {mode}: {how} computed as that of -sm layer, {speed}: approximate"
        yield info("split-mode-approximate", message, None, "docs/check.md")


def cpu_moe_by_share(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-ncmoe` takes the last layers, on several GPUs a share of each one's last layers."""
    n = case.flags.n_cpu_moe
    if not case.ik or not n or case.flags.cpu_moe or len(case.devices) < 2:
        return
    source = "ik_llama.cpp src/llama-load-tensors.cpp:269-354"
    if case.flags.n_gpu_layers <= case.model.n_layer:
        message = f"-ncmoe {n} with -ngl {case.flags.n_gpu_layers}: layers in RAM use up the last GPU's share"
        yield warning("cpu-moe-by-share", message, "-ngl 999, or -ot rules", source)
    else:
        message = f"-ncmoe {n} does not mean the first {n} layers: every GPU gives up the last ones of its share"
        yield info("cpu-moe-by-share", message, "-ot rules say which layers", source)
