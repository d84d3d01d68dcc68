"""ik_llama.cpp's `-sm graph`: where it cannot be, and the options that belong to it."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands import option_value
from service.engine.memory.overrides import matching_names
from service.engine.memory.shares_ik import can_share, graph_split_aborts, partly_moved
from service.engine.memory.split_modes import splits_graph
from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule

_SM = "layers-or-together--sm"
_MODES = ("graph", "attn")
_BELONGING = {
    "-smgs": "-smgs", "--split-mode-graph-scheduling": "-smgs", "-sas": "-sas", "--scheduler-async": "-sas",
    "-smf16": "-smf16", "--split-mode-f16": "-smf16", "-smf32": "-smf32", "--split-mode-f32": "-smf32",
    "-grt": "-grt", "--graph-reduce-type": "-grt", "-gap": "-gap", "--graph-attn-precision": "-gap",
    "-mea": "-mea", "--max-extra-alloc": "-mea", "--max-gpu": "--max-gpu",
}  # fmt: skip
_REDUCE_TYPES = ("f16", "bf16", "f32", "q8_0")


def _together(case: Case) -> bool:
    return case.flags.split_mode in _MODES and len(case.devices) > 1 and splits_graph(case.model)


@rule(
    "graph-split-impossible", "error", _SM, "ik_llama.cpp src/llama.cpp:3895-3930, 8121; graphs/build_deepseek2.cpp:18",
    only="ik_llama.cpp", mend="-sm layer",
)  # fmt: skip
def graph_split_impossible(case: Case) -> Iterator[Found]:
    """`-sm graph` needs two GPUs, and an architecture that it knows (else a warning: placed by layer)."""
    mode = case.flags.split_mode
    if mode not in _MODES:
        return
    if len(case.devices) < 2:
        yield Found(f"-sm {mode} needs at least two GPUs: the engine stops")
    elif not splits_graph(case.model):
        message = f"-sm {mode}: {case.model.architecture} is not among its architectures: placed as -sm layer"
        yield Found(message, severity="warning")
    elif "--dsa" in case.flags.other or "-dsa" in case.flags.other:
        yield Found(f"--dsa is not done with -sm {mode}: the engine ignores it", severity="warning")
    elif case.model.mla is not None and (case.flags.flash_attn == "off" or case.flags.mla == 0):
        message = f"-sm {mode} with latent attention needs flash attention and -mla 1 or more: the engine aborts"
        yield Found(message, "-fa on -mla 3")
    elif case.model.architecture == "gemma4" and case.flags.flash_attn == "off":
        yield Found(f"-sm {mode} with gemma4 needs flash attention", "-fa on")


@rule(
    "graph-split-partial-experts", "error", _SM,
    "ik_llama.cpp src/llama-load-tensors.cpp:5638, ggml-cuda.cu:852, pull request 1890", only="ik_llama.cpp",
    mend="all of up, gate and down of a block, or none",
)  # fmt: skip
def graph_split_partial_experts(case: Case) -> Iterator[Found]:
    """With `-sm graph`, a layer's experts are shared out all together or not at all."""
    if case.flags.split_mode not in _MODES or len(case.devices) < 2:
        return
    moved = {name for one in case.flags.overrides for name in matching_names(case.model, one.pattern)}
    layer = partly_moved(case.model, moved)
    if layer is not None:
        yield Found(f"-ot moves a part of block {layer}'s experts: with -sm graph the rest gets no memory anywhere")


@rule(
    "graph-split-one-card", "error", _SM, "ik_llama.cpp ggml/src/ggml.c:6179", only="ik_llama.cpp",
    mend="-sm layer, or -ts with more nearly equal shares",
)  # fmt: skip
def graph_split_one_card(case: Case) -> Iterator[Found]:
    """With `-sm graph`, two cards or more need a share of every layer: a small one may be rounded to nothing."""
    if not _together(case) or case.allocator == "lab":
        return
    stops = graph_split_aborts(case.model, case.flags, [device.free for device in case.devices])
    if stops is not None:
        yield Found(stops)


@rule(
    "graph-split-partial-layers", "warning", _SM, "ik_llama.cpp pull request 1835", only="ik_llama.cpp",
    mend="-ngl 999, and experts to RAM with -ot or -ncmoe",
)  # fmt: skip
def graph_split_partial_layers(case: Case) -> Iterator[Found]:
    """`-sm graph` with a part of the layers is broken for models with shared experts."""
    shared = any("_shexp." in tensor.name for tensor in case.model.tensors)
    n = case.flags.n_gpu_layers
    if _together(case) and shared and 0 < n < case.model.n_layer:
        yield Found(
            f"-sm {case.flags.split_mode} with -ngl {n} of {case.model.n_layer} layers and shared experts is broken"
        )


@rule(
    "graph-scheduling-off", "warning", _SM, "ik_llama.cpp src/llama.cpp:8696, pull requests 1060 and 1068",
    only="ik_llama.cpp", mend="-smgs, or -ncmoe instead of -ot",
)  # fmt: skip
def graph_scheduling_off(case: Case) -> Iterator[Found]:
    """`-ot` turns the scheduling of `-sm graph` off, by which cards work together, unless `-smgs` is given."""
    forced = {"-smgs", "--split-mode-graph-scheduling"} & set(case.flags.other)
    if _together(case) and case.flags.split_mode == "graph" and case.flags.overrides and not forced:
        yield Found("-ot turns the graph scheduling of -sm graph off: the cards wait for each other")


@rule(
    "graph-option-without-effect", "info", _SM, "ik_llama.cpp src/llama.cpp:8696, llama-load-tensors.cpp:4808, 5337",
    only="ik_llama.cpp", mend="leave it out, or -sm graph",
)  # fmt: skip
def graph_option_without_effect(case: Case) -> Iterator[Found]:
    """Options of `-sm graph` without it, and `--max-gpu` that limits nothing."""
    given = dict.fromkeys(_BELONGING[o.split()[0]] for o in case.flags.other if o.split()[0] in _BELONGING)
    if given and not _together(case):
        yield Found(f"{', '.join(given)}: nothing without -sm graph on two cards or more")
    most = option_value(case.flags.other, ("--max-gpu",))
    if most and most.isdigit() and _together(case) and int(most) >= len(case.devices):
        yield Found(f"--max-gpu {most} limits nothing: there are {len(case.devices)} cards")


@rule(
    "reduce-type-unknown", "error", _SM, "ik_llama.cpp common/common.cpp:2279, 4390", only="ik_llama.cpp",
    mend="-grt f16, bf16, f32 or q8_0",
)  # fmt: skip
def reduce_type_unknown(case: Case) -> Iterator[Found]:
    """`-grt` takes four types; another aborts the program."""
    kind = option_value(case.flags.other, ("-grt", "--graph-reduce-type"))
    if kind is not None and kind not in _REDUCE_TYPES:
        yield Found(f"-grt {kind[:40]}: it is one of {', '.join(_REDUCE_TYPES)}")


@rule("split-mode-approximate", "info", _SM, "docs/check.md")
def split_mode_approximate(case: Case) -> Iterator[Found]:
    """Memory of some split modes is a rough figure here, and the speed of more."""
    mode = case.flags.split_mode
    if len(case.devices) < 2 or mode not in ("graph", "attn", "row", "tensor"):
        return
    if mode == "tensor" and not case.ik:
        yield Found("-sm tensor: its speed is a formula: approximate")
    else:
        speed = "its speed is a formula" if mode in ("graph", "tensor") else "so is its speed"
        if case.ik and case.memory.basis != "approximate":
            yield Found(f"-sm {mode}: {speed}: approximate")
            return
        shared = case.ik and can_share(case.model, case.flags)
        how = "its compute buffers are" if shared else "its memory is"
        yield Found(f"-sm {mode}: {how} computed as that of -sm layer, {speed}: approximate")
