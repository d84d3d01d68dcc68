"""Findings about what ik_llama.cpp keeps in RAM, pins, moves and copies to a card.

Those about models that load in some forms only were each tried on build 8337e4cd3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from service.engine.commands.expert_rules import expert_override
from service.engine.config import CPU
from service.engine.engines.ik_llama_cpp.graphs.compressed import rows_reached
from service.engine.engines.ik_llama_cpp.merged import attention_types
from service.engine.planner.pricing.support import indexer_refused
from service.engine.rules.batches import larger_micro_batches
from service.engine.rules.case import Case, WrittenRule
from service.engine.rules.rule import CACHE, LINK, MMAP, OVERRIDES, READ, UNASKED, WORTH_SAYING, Found, rule
from service.engine.tensor_names import layer_of

_UP_OR_GATE = re.compile(r"\.ffn_(?:up|gate)_exps\.")
_QKV = ("attn_q.weight", "attn_k.weight", "attn_v.weight")
_MERGING = {"-mqkv", "--merge-qkv", "-muge", "--merge-up-gate-experts", "--merge-up-gate-exps"}


@rule("override-ignored", "warning", OVERRIDES, "ik_llama.cpp src/llama.cpp:7761-7764", fix="-ngl 999")
def override_ignored(case: Case) -> Iterator[Found]:
    """ik_llama.cpp drops all rules when no layer is offloaded."""
    if case.rules and case.devices and case.flags.n_gpu_layers <= 0:
        yield Found("with -ngl 0 ik_llama.cpp ignores every -ot rule")


@rule(
    "merged-qkv-ignores-overrides", "warning", OVERRIDES,
    "ik_llama.cpp src/llama-load-tensors.cpp: the merged tensor is "
    "made in its layer's context", fix="leave out -mqkv",
)  # fmt: skip
def merged_qkv_ignores_overrides(case: Case) -> Iterator[Found]:
    """`-mqkv` keeps attn_q, attn_k and attn_v of a layer where the layer is, even if `-ot` moves them."""
    if not {"-mqkv", "--merge-qkv"} & set(case.flags.other):
        return
    moved = [
        name for one in case.rules for name in one.names or () if name.endswith(_QKV) and _elsewhere(case, one, name)
    ]
    if moved:
        yield Found(f"-mqkv ignores -ot for {moved[0]} and {len(moved) - 1} more: these stay with their layers")


@rule(
    "merged-qkv-in-part", "info", OVERRIDES, "ik_llama.cpp src/llama-load-tensors.cpp:4532 (merge_qkv)",
    fix="leave out -mqkv, or leave out --merge-qkv",
)  # fmt: skip
def merged_qkv_in_part(case: Case) -> Iterator[Found]:
    """`-mqkv` merges only matrices of one type, and none with `-sm graph`; it turns mmap off even then."""
    if not {"-mqkv", "--merge-qkv"} & set(case.flags.other):
        return
    if case.flags.split_mode in ("graph", "attn") and len(case.devices) > 1:
        yield Found(f"-mqkv merges nothing with -sm {case.flags.split_mode}, but turns mmap off")
        return
    kinds = [attention_types(case.model, layer) for layer in range(case.model.n_layer)]
    unlike = [types for types in kinds if len(types) == 3 and len(set(types)) > 1]
    if unlike:
        pairs = sum(types[0] == types[1] for types in unlike)
        message = (
            f"q, k and v differ in type in {len(unlike)} of {case.model.n_layer} layers ({', '.join(unlike[0])}): "
        )
        yield Found(message + (f"there only q and k are merged in {pairs}" if pairs else "nothing is merged there"))


def _elsewhere(case: Case, one: WrittenRule, name: str) -> bool:
    layer = layer_of(name)
    home = case.placement.layers[layer] if layer is not None else case.cpu
    return one.written.device != (CPU if home == case.cpu else case.devices[home].name)


# ik ggml-cuda.cu:4913: what GET_ROWS reads on CUDA. llama.cpp's list (ggml-cuda.cu:5280) has k- and i-quants too.
_ROWS_IK = frozenset({"f16", "f32", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})


@rule(
    "up-gate-apart", "warning", "up-gate-and-down-together",
    "ik_llama.cpp issue 521 and pull request 520; discussion 613", about="speed",
    fix="match both in one rule: ffn_(up|gate)_exps",
)  # fmt: skip
def up_gate_apart(case: Case) -> Iterator[Found]:
    """ik_llama.cpp fuses up and gate of a layer: on different devices, one is copied across for every token."""
    apart = {w.row.name: w.computed for w in case.run.weights if w.fused and w.row.up and w.stored != w.computed}
    layers = [name.split(".")[1] for name in apart]
    if apart:
        yield Found(
            f"up and gate are on different devices in {len(apart)} layers ({', '.join(layers[:12])}): ik_llama.cpp "
            "fuses them, so one is copied across for every token",
            changes=lambda: iter([list(_together(case, apart))]),
        )


def _together(case: Case, apart: dict[str, int]) -> Iterator[str]:
    """Both where up is, both where gate is: by the devices of either."""
    for part in ("up", "gate"):
        by_device: dict[int, list[int]] = {}
        for name in apart:
            leading = _UP_OR_GATE.sub(f".ffn_{part}_exps.", name)
            by_device.setdefault(case.placement.tensors[leading], []).append(int(name.split(".")[1]))
        rules = [
            f"-ot '{expert_override(layers, ('up', 'gate'))}={case.device_name(device)}'"
            for device, layers in sorted(by_device.items())
        ]
        yield f"{' '.join(rules)} before the other rules"


@rule(
    "embeddings-on-gpu", "warning", READ, "ik_llama.cpp ggml-cuda.cu:4913 (supports_op, GET_ROWS)",
    fix="-ot token_embd=CPU before the other rules",
)  # fmt: skip
def embeddings_on_gpu(case: Case) -> Iterator[Found]:
    """A rule puts `token_embd` on a GPU that cannot read rows of its type: all of it is copied for every token."""
    tensor = case.model.by_name.get("token_embd.weight")
    winner = next((one.written.device for one in case.rules if "token_embd.weight" in (one.names or ())), CPU)
    if tensor is not None and winner != CPU and tensor.type.lower() not in _ROWS_IK:
        yield Found(f"token_embd of {tensor.type.upper()} is on {winner}, which cannot read its rows")


@rule(
    "micro-batch-below-threshold", "warning", LINK, "ik_llama.cpp ggml-cuda.cu:5180-5214, pull request 520",
    fix="-ub of at least 32 * experts / experts used, if it fits", about="speed",
)  # fmt: skip
def micro_batch_below_threshold(case: Case) -> Iterator[Found]:
    """ik_llama.cpp computes experts in RAM on the CPU for batches below 32 * n_expert / n_expert_used tokens.

    Reported where a larger micro-batch fits with the current placement and is faster.
    """
    copied = case.flags.op_offload and not case.flags.runtime_repack
    if case.experts_in_ram and case.devices and copied and case.n_ubatch < case.threshold:
        yield Found(
            f"-ub {case.n_ubatch} is below {case.threshold} tokens: the CPU computes the experts in RAM for prompts; "
            f"with larger micro-batches the GPU does, for prompts of {case.threshold:,} tokens and more",
            changes=lambda: iter([larger_micro_batches(case, case.threshold)]),
        )


# ik_llama.cpp 8337e4cd3 ggml.h, enum ggml_op, counted from NONE = 0.
_OPERATIONS = {27: "MUL_MAT", 28: "MUL_MAT_ID", 30: "FUSED_UP_GATE", 31: "MOE_FUSED_UP_GATE"}
_EXPERTS_OF_2025 = 27  # as docs/parameters.md still has it; alone, for with others it may be meant as it is today
_OBSOLETE = {26, 29}


@rule(
    "repacked-with-large-micro-batch", "warning", "repacking", fix="leave out -rtr",
    source="ik_llama.cpp discussion 491 (287 to 169 t/s at -ub 4096, 54 to 228 at -ub 512)", about="speed",
)  # fmt: skip
def repacked_with_large_micro_batch(case: Case) -> Iterator[Found]:
    """`-rtr` makes the CPU compute experts in RAM for prompts, unless their new type has GPU kernels."""
    if not (case.flags.runtime_repack and case.experts_in_ram and case.devices):
        return
    in_ram = (w for w in case.run.weights if w.row.use == "expert" and w.stored == case.cpu)
    stuck = [w for w in in_ram if w.type is not w.row.type and not case.run.treatment.has_gpu_kernel(w.type)]
    if not stuck or case.n_ubatch < case.threshold:
        return
    pp, tg = case.gain(flags=msgspec.structs.replace(case.flags, runtime_repack=False))
    if pp >= WORTH_SAYING:
        yield Found(
            f"-rtr turns {len(stuck)} expert tensors in RAM into types that no GPU multiplies: with -ub "
            f"{case.n_ubatch} they would be copied to the GPU for prompts; without -rtr PP would be about {pp:.1f} "
            "times as fast",
            pp=pp,
            tg=tg,
        )


@rule(
    "obsolete-op-numbers", "warning", LINK, "ik_llama.cpp 8337e4cd3 ggml.h, enum ggml_op",
    fix="leave out -op, or -op 28,0,31,0",
)  # fmt: skip
def obsolete_op_numbers(case: Case) -> Iterator[Found]:
    """`-op` with numbers from 2025 guides: today they mean other operations."""
    option = next((o for o in case.flags.other if o.startswith("-op ")), "")
    numbers = {int(n) for n in option.removeprefix("-op ").split(",")[::2] if n.strip().isdigit()}
    named = ", ".join(f"{number} is {name}" for number, name in _OPERATIONS.items())
    if case.parsed.build.date is None and (numbers & _OBSOLETE or numbers == {_EXPERTS_OF_2025}):
        yield Found(f"{option}: operation numbers have changed; today {named}")


@rule(
    "op-numbers-without-experts", "info", LINK, "ik_llama.cpp issue 765: 27,0,29,0 did nothing to the experts",
    fix="leave out -op, or -op 28,0,31,0",
)  # fmt: skip
def op_numbers_without_experts(case: Case) -> Iterator[Found]:
    """An `-op` that turns copying off for only one of the experts' two operations."""
    option = next((o for o in case.flags.other if o.startswith("-op ")), "")
    numbers = option.removeprefix("-op ").split(",")
    off = {n for n, value in zip(numbers[::2], numbers[1::2], strict=False) if value.strip() == "0"}
    if case.experts_in_ram and case.parsed.build.date is None and len(off & {"28", "31"}) == 1:
        yield Found(
            f"{option}: experts use two operations, 28 (down) and 31 (up and gate), and one of them is still copied"
        )


@rule(
    "mmap-needed", "info", MMAP, "ik_llama.cpp src/llama-mmap.cpp:302, llama-model-loader.cpp:662, "
    "llama-load-tensors.cpp:5309", fix="GGML_CUDA_NO_PINNED=1 before the command, or leave out",
)  # fmt: skip
def mmap_needed(case: Case) -> Iterator[Found]:
    """`-thp`, `--defer-experts` and `--prefetch-experts` need a mapped file, but something turned mapping off."""
    wanted = {"-thp", "--transparent-huge-pages", "--defer-experts", "--prefetch-experts"} & set(case.flags.other)
    off = case.run.mmap_off or min(_MERGING & set(case.flags.other), default=None)
    if wanted and off:
        yield Found(
            f"{min(wanted)} does nothing: it needs a memory-mapped file, but {off} turns mmap off",
            f"GGML_CUDA_NO_PINNED=1 before the command, or leave out {min(wanted)}",
        )


@rule(
    "defer-experts-elsewhere", "info", MMAP, "ik_llama.cpp src/llama.cpp:4999",
    fix="leave it out",
)  # fmt: skip
def defer_experts_elsewhere(case: Case) -> Iterator[Found]:
    """`--defer-experts` works only on Linux, and only on experts."""
    if "--defer-experts" in case.flags.other and (case.rig.os != "linux" or not case.model.moe_layers):
        why = f"on {case.rig.os}" if case.rig.os != "linux" else "with a model without experts"
        yield Found(f"--defer-experts does nothing {why}", "leave out --defer-experts")


_COMPRESSED_TYPES = ("f16", "bf16", "q8_0")


@rule(
    "compressed-cache-refused", "error", CACHE, "ik_llama.cpp src/llama-dsv4.cpp:21, ggml.c:9166 (contiguous mask)",
    fix="-ctk q8_0 or f16, flash attention on", refused="loading",
)  # fmt: skip
def compressed_cache_refused(case: Case) -> Iterator[Found]:
    """DeepSeek V4 allows only three cache types, and without flash attention only contexts within its window."""
    if case.model.architecture != "deepseek4":
        return
    kind, n_ctx = case.flags.cache_type_k, case.run.n_ctx
    if kind not in _COMPRESSED_TYPES:
        yield Found(f"-ctk {kind}: DeepSeek V4's cache is f16, bf16 or q8_0; the engine does not start", "-ctk q8_0")
    if case.flags.flash_attn == "off" and n_ctx > rows_reached(case.model, case.run.n_ubatch):
        yield Found("-fa off: the engine stops at its first graph where -c is beyond DeepSeek V4's window", "-fa on")


@rule(
    "indexer-not-loaded", "error", UNASKED, "ik_llama.cpp src/llama-load-tensors.cpp:4341 (wrong number of tensors)",
    fix="a file from before llama.cpp's pull request 24908", refused="loading",
)  # fmt: skip
def indexer_not_loaded(case: Case) -> Iterator[Found]:
    """ik_llama.cpp does not load files of MiniMax-M3 that contain its indexer."""
    if indexer_refused(case.engine, case.model):
        yield Found("the file has MiniMax-M3's indexer, which ik_llama.cpp does not know; it does not load")
