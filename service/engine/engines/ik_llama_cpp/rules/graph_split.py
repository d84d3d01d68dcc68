"""Findings about ik_llama.cpp's `-sm graph`, and how it divides layers over cards."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.engines.ik_llama_cpp.graph_split import splits_graph
from service.engine.engines.ik_llama_cpp.shares import graph_split_aborts, partly_moved
from service.engine.rules.case import Case
from service.engine.rules.rule import CARDS, SPLIT_MODES, Found, rule
from service.engine.run.overrides import matching_names
from service.engine.run.settings import option_value

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
    "graph-split-impossible", "error", SPLIT_MODES,
    "ik_llama.cpp src/llama.cpp:3895-3930, 8121; graphs/build_deepseek2.cpp:18",
    fix="-sm layer", refused="loading",
)  # fmt: skip
def graph_split_impossible(case: Case) -> Iterator[Found]:
    """`-sm graph` needs two GPUs and an architecture that it supports (else a warning: placed by layer)."""
    mode = case.flags.split_mode
    if mode not in _MODES:
        return
    if len(case.devices) < 2:
        yield Found(f"-sm {mode} needs at least two GPUs: the engine stops")
    elif not splits_graph(case.model):
        message = f"-sm {mode}: {case.model.architecture} is not supported by it: placed as with -sm layer"
        yield Found(message, severity="warning")
    elif "--dsa" in case.flags.other or "-dsa" in case.flags.other:
        yield Found(f"--dsa does not work with -sm {mode}: the engine ignores it", severity="warning")
    elif case.model.mla is not None and (case.flags.flash_attn == "off" or case.flags.mla == 0):
        message = f"-sm {mode} with latent attention needs flash attention and -mla 1 or more: the engine aborts"
        yield Found(message, "-fa on -mla 3")
    elif case.model.architecture == "gemma4" and case.flags.flash_attn == "off":
        yield Found(f"-sm {mode} with gemma4 needs flash attention", "-fa on")


@rule(
    "graph-split-partial-experts", "error", SPLIT_MODES,
    "ik_llama.cpp src/llama-load-tensors.cpp:5638, ggml-cuda.cu:852, pull request 1890",
    fix="all of up, gate and down of a block, or none",
)  # fmt: skip
def graph_split_partial_experts(case: Case) -> Iterator[Found]:
    """With `-sm graph`, a layer's experts are divided among the cards all together or not at all."""
    if case.flags.split_mode not in _MODES or len(case.devices) < 2:
        return
    moved = {name for one in case.flags.overrides for name in matching_names(case.model, one.pattern)}
    layer = partly_moved(case.model, moved)
    if layer is not None:
        yield Found(f"-ot moves only part of block {layer}'s experts: with -sm graph the rest is allocated nowhere")


@rule(
    "graph-split-one-card", "error", SPLIT_MODES, "ik_llama.cpp ggml/src/ggml.c:6179",
    fix="-sm layer, or -ts with more equal shares", refused="loading",
)  # fmt: skip
def graph_split_one_card(case: Case) -> Iterator[Found]:
    """With `-sm graph`, two cards or more need a share of every layer: a small one may be rounded to nothing."""
    if not _together(case) or case.allocator == "lab":
        return
    stops = graph_split_aborts(case.run)
    if stops is not None:
        yield Found(stops)


@rule(
    "graph-split-partial-layers", "warning", SPLIT_MODES, "ik_llama.cpp pull request 1835",
    fix="-ngl 999, and experts to RAM with -ot or -ncmoe",
)  # fmt: skip
def graph_split_partial_layers(case: Case) -> Iterator[Found]:
    """`-sm graph` with only some of the layers is broken for models with shared experts."""
    shared = any("_shexp." in tensor.name for tensor in case.model.tensors)
    n = case.flags.n_gpu_layers
    if _together(case) and shared and 0 < n < case.model.n_layer:
        yield Found(
            f"-sm {case.flags.split_mode} with -ngl {n} of {case.model.n_layer} layers and shared experts is broken"
        )


@rule(
    "graph-scheduling-off", "warning", SPLIT_MODES, "ik_llama.cpp src/llama.cpp:8696, pull requests 1060 and 1068",
    fix="-smgs, or -ncmoe instead of -ot",
)  # fmt: skip
def graph_scheduling_off(case: Case) -> Iterator[Found]:
    """`-ot` turns off the scheduling that makes cards work together in `-sm graph`, unless `-smgs` is given."""
    forced = {"-smgs", "--split-mode-graph-scheduling"} & set(case.flags.other)
    if _together(case) and case.flags.split_mode == "graph" and case.flags.overrides and not forced:
        option = "--fit" if case.parsed.fit else "-ot"
        yield Found(f"{option} turns off the graph scheduling of -sm graph: the cards wait for each other")


@rule(
    "graph-option-without-effect", "info", SPLIT_MODES,
    "ik_llama.cpp src/llama.cpp:8696, llama-load-tensors.cpp:4808, 5337",
    fix="leave it out, or -sm graph",
)  # fmt: skip
def graph_option_without_effect(case: Case) -> Iterator[Found]:
    """Options of `-sm graph` without `-sm graph`, and a `--max-gpu` that limits nothing."""
    given = dict.fromkeys(_BELONGING[o.split()[0]] for o in case.flags.other if o.split()[0] in _BELONGING)
    if given and not _together(case):
        names = [option.split()[0] for option in case.flags.other if option.split()[0] in _BELONGING]
        fix = f"leave out {', '.join(names)}"
        yield Found(f"{', '.join(given)}: no effect without -sm graph on two or more cards", fix)
    most = option_value(case.flags.other, ("--max-gpu",))
    if most and most.isdigit() and _together(case) and int(most) >= len(case.devices):
        yield Found(f"--max-gpu {most} limits nothing: there are {len(case.devices)} cards", "leave out --max-gpu")


@rule(
    "reduce-type-unknown", "error", SPLIT_MODES, "ik_llama.cpp common/common.cpp:2279, 4390",
    fix="-grt f16, bf16, f32 or q8_0", refused="loading",
)  # fmt: skip
def reduce_type_unknown(case: Case) -> Iterator[Found]:
    """`-grt` takes four types; any other aborts the program."""
    kind = option_value(case.flags.other, ("-grt", "--graph-reduce-type"))
    if kind is not None and kind not in _REDUCE_TYPES:
        yield Found(f"-grt {kind[:40]}: choose from {', '.join(_REDUCE_TYPES)}", "-grt f16")


@rule(
    "none-with-several-gpus", "warning", CARDS, "ik_llama.cpp src/llama.cpp:4639-4657, 8341-8349",
    fix="CUDA_VISIBLE_DEVICES=0 before the command; leave out -sm",
)  # fmt: skip
def none_with_several_gpus(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-sm none` still gives caches and norms to GPUs it does not use."""
    if case.flags.split_mode == "none" and len(case.devices) > 1:
        yield Found("-sm none with several visible GPUs: caches and norms may be assigned to a GPU that is not used")


@rule(
    "cpu-moe-by-share", "warning", "what--ngl--cmoe-and--ncmoe-count",
    "ik_llama.cpp src/llama-load-tensors.cpp:269-354", fix="-ot rules that name the layers",
)  # fmt: skip
def cpu_moe_by_share(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `-ncmoe` takes the last layers; on several GPUs, a share of the last layers of each.

    Builds of before 19 March 2026 take the first, and with `-sm graph` all before 7 August.
    """
    n, which = case.flags.n_cpu_moe, case.run.rules.expert_layers
    graph = case.flags.split_mode in _MODES
    counted_from_first = which == "first" or (which != "last" and graph)
    if not n or case.flags.cpu_moe or len(case.devices) < 2 or n >= case.model.n_layer or counted_from_first:
        return
    if graph:
        yield Found(f"-ncmoe {n} with -sm graph means the last {n} layers with experts, not the first", severity="info")
    elif case.flags.n_gpu_layers <= case.model.n_layer:
        message = f"-ncmoe {n} with -ngl {case.flags.n_gpu_layers}: layers in RAM use up the last GPU's share"
        yield Found(message, "-ngl 999, or -ot rules")
    else:
        message = f"-ncmoe {n} does not mean the first {n} layers: each GPU gives up the last layers of its share"
        yield Found(message, severity="info")
