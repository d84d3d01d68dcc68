"""Findings about commands of llama.cpp alone."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import msgspec

from service.engine.commands.companions import projector_of
from service.engine.commands.tables import MODEL_REPO, MODEL_URL
from service.engine.engines.llama_cpp.caches import window_rows
from service.engine.engines.llama_cpp.kernels import not_yet
from service.engine.engines.llama_cpp.memory import split_aborts, split_refused
from service.engine.memory.spec import make_spec
from service.engine.rules.cache import UNQUANTISED
from service.engine.rules.case import Case
from service.engine.rules.rule import (
    BUILDING,
    CACHE,
    CARDS,
    LINK,
    MMAP,
    OVERRIDES,
    UNASKED,
    Found,
    Rule,
    rule,
    rules_in,
)
from service.engine.run.settings import option_value
from service.engine.units import GIB, MIB

_LEAST = 256 * MIB
_LAZY_FROM = 4 * GIB
_WITH_KERNEL = ("f32", "f16", "bf16", "q8_0", "q4_0")  # in usual builds, for K and V of the same type
_READ_LAZILY = frozenset({"gemma4", "qwen4exp"})
_UNSHIFTABLE = frozenset({"deepseek4", "step35"})
# AMD's CPUs with graphics: of socket AM5 all but those with an F, those with a G, and laptops' (AMD's specifications)
_WITH_GRAPHICS = re.compile(
    r"\bryzen\s(?:ai\b|(?:[3579]\s)?(?:pro\s)?(?:[79]\d{3}(?:x3d2?|x)?|[5-9]\d{3}(?:ge?|hx3d|h[sx]?|u))(?![\w-]))", re.I
)
_HIDES = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_SHORT_MIB = 1024  # left on a card, from which on copies of its inputs matter


@rule(
    "pipeline-copies", "info", BUILDING, "llama.cpp ggml/CMakeLists.txt: GGML_SCHED_MAX_COPIES 4",
    fix="build with -DGGML_SCHED_MAX_COPIES=1",
)  # fmt: skip
def pipeline_copies(case: Case) -> Iterator[Found]:
    """llama.cpp keeps four copies of every input on cards that hold the whole model, even where room is short.

    Where they do not fit it continues without them, and works on one micro-batch at a time.
    """
    flags = case.flags
    placed = flags.overrides or flags.cpu_moe or flags.n_cpu_moe or flags.no_kv_offload
    whole = flags.n_gpu_layers > case.model.n_layer and flags.split_mode == "layer"
    left = [row.capacity_mib - row.total_high_mib for row in case.table[:-1]]
    if case.gives_up_pipeline:
        yield Found(
            "the copies of every input that several GPUs keep to work on several micro-batches at a time do not fit: "
            "the engine continues without them, and so do these figures"
        )
    elif len(left) > 1 and whole and not placed and min(left) < _SHORT_MIB:
        rule_too = (
            f"; a rule that moves nothing, such as -ot output_norm={case.devices[case.placement.head].name}, ends that "
            "as well: prompts take one micro-batch at a time then"
        )
        message = "with several GPUs every input is kept four times on each, and memory is short here"
        helps = "output_norm.weight" in case.model.by_name and not case.lacks("-ot")
        yield Found(message + rule_too if helps else message)


@rule(
    "bench-rules-by-semicolon", "warning", OVERRIDES,
    "llama.cpp tools/llama-bench/llama-bench.cpp: ';' between rules, ',' "
    "between tests", fix="';' between the rules: all in one -ot",
)  # fmt: skip
def bench_rules_by_semicolon(case: Case) -> Iterator[Found]:
    """llama-bench reads ',' in `-ot`, and a second `-ot`, as further tests, each with one of the rules."""
    split = [option for option in case.parsed.varied if option.startswith(("-ot ", "--override-tensor"))]
    if split:
        yield Found(f"{split[0][:80]}: llama-bench runs one test per rule; the figures are for the first")


@rule(
    "split-mode-refused", "error", "layers-or-together--sm",
    "llama.cpp src/llama-model.cpp:1144, src/llama-arch.cpp:1142, llama-context.cpp:3851",
    fix="-sm layer", refused="options",
)  # fmt: skip
def split_mode_refused(case: Case) -> Iterator[Found]:
    """llama.cpp's CUDA back end no longer has `-sm row`, and `-sm tensor` and `none` do not work with everything."""
    if not case.devices:
        return
    if case.flags.split_mode == "row" and case.parsed.build.date is None:
        message = "-sm row: the CUDA back end of this build has no split buffers; the model does not load"
        yield Found(message, None if case.experts_in_ram else "-sm layer, or -sm tensor")
    refused = split_refused(case.model, msgspec.structs.replace(case.flags, split_mode=case.parsed.flags.split_mode))
    if refused is not None:
        yield Found(refused)


@rule(
    "split-mode-may-abort", "warning", "layers-or-together--sm",
    "llama.cpp issues 26837 and 24486 (uneven shares), 27116 (cache types)", fix="-sm layer", costs=True,
)  # fmt: skip
def split_mode_may_abort(case: Case) -> Iterator[Found]:
    """llama.cpp's `-sm tensor` in combinations that were seen to abort, at the first answer or later."""
    together = case.flags.split_mode == "tensor" and len(case.devices) > 1
    if together and (what := split_aborts(case.model, case.flags, len(case.devices))):
        kind = "-ctk q8_0 -ctv q8_0, or " if "a cache" in what else ""
        yield Found(f"-sm tensor was seen to abort with {what}", f"{kind}-sm layer")


@rule(
    "latent-cache-types-differ", "error", CACHE, "llama.cpp src/llama-context.cpp:3865",
    fix="the same type for -ctk and -ctv", refused="loading",
)  # fmt: skip
def latent_cache_types_differ(case: Case) -> Iterator[Found]:
    """llama.cpp keeps K and V of a latent cache in one tensor, and refuses two types."""
    kinds = (case.flags.cache_type_k, case.flags.cache_type_v)
    if case.latent_cache and kinds[0] != kinds[1]:
        message = f"-ctk {kinds[0]} with -ctv {kinds[1]}: a latent cache has one type; the engine does not start"
        yield Found(message, f"-ctk {kinds[0]} -ctv {kinds[0]}")


@rule(
    "host-buffers-off", "warning", LINK, fix="leave out --no-host",
    source="llama.cpp pull request 14990 (host buffers instead of repacked ones: prompts 36 to 56 % faster)",
)  # fmt: skip
def host_buffers_off(case: Case) -> Iterator[Found]:
    """`--no-host` lets the CPU repack experts in RAM, which are then not copied to the GPU for prompts."""
    if "--no-host" in case.flags.other and case.experts_in_ram and case.devices and case.flags.op_offload:
        yield Found("--no-host repacks experts in RAM for the CPU: they are not copied to the GPU for prompts")


_FIT = "llama.cpp pull request 16653; common/fit.cpp: it gives up when -ngl, -ts or -ot is set"


@rule(
    "lazy-embeddings", "info", MMAP, "llama.cpp src/llama-model-loader.cpp:1088 (4 GiB), src/models/gemma4.cpp:59, "
    "qwen4exp.cpp:192",
)  # fmt: skip
def lazy_embeddings(case: Case) -> Iterator[Found]:
    """`-lzm`, auto by default: says which embeddings are read from disk row by row, or that it changes nothing."""
    mode = option_value(case.flags.other, ("-lzm", "--lazy-mode")) or ""
    found = case.model.by_name.get("per_layer_token_embd.weight")
    size = found.nbytes if found and case.model.architecture in _READ_LAZILY else 0
    if size and (mode == "on" or (mode in ("", "auto") and size > _LAZY_FROM)):
        given = f"-lzm {mode}" if mode else "-lzm is auto by default"
        kept = f"{size / GIB:,.1f} GiB of embeddings stay on disk and are read row by row"
        yield Found(f"{given}: {kept}; the table counts them in RAM")
    elif mode and (not size or mode != "off"):
        why = (
            f"the embeddings are {size / GIB:,.1f} GiB, and auto begins at 4"
            if size
            else "the model has no such tensors"
        )
        yield Found(f"-lzm {mode[:20]} changes nothing: {why}")


@rule("fit-left-on", "warning", UNASKED, _FIT, fix="-fit off, or -c with the tokens you need")
def fit_left_on(case: Case) -> Iterator[Found]:
    """llama.cpp's `-fit` is on by default: with a placement given it only shortens the context, if that was not set."""
    now, trained = case.flags.n_ctx, case.model.n_ctx_train
    if case.parsed.fit and case.devices and not case.fit_places and not case.parsed.flags.n_ctx and now < trained:
        yield Found(
            "-fit is on by default: with -ngl, -ts or -ot it moves nothing, but without -c it shortens the context, "
            f"here from {trained:,} to {now:,} tokens"
        )


@rule(
    "slots-by-default", "info", UNASKED, "llama.cpp tools/server/server.cpp: n_parallel -1 is 4 with a shared cache",
    fix="-np 1",
)  # fmt: skip
def slots_by_default(case: Case) -> Iterator[Found]:
    """llama.cpp's server has four slots: reported where one slot would need clearly less memory."""
    if case.parsed.program != "llama-server" or {"-np", "--parallel"} & set(case.parsed.used):
        return
    if case.flags.n_parallel <= 1 or case.parsed.build.date or not case.devices:
        return
    one = case.predict(msgspec.structs.replace(case.flags, n_parallel=1))
    saved = sum(a.kv + a.compute - b.kv - b.compute for a, b in zip(case.memory.devices, one.devices, strict=True))
    if saved >= _LEAST:
        yield Found(f"without -np the server has {case.flags.n_parallel} slots: one needs {saved / MIB:,.0f} MiB less")


@rule(
    "cache-types-without-kernel", "warning", CACHE,
    "llama.cpp ggml-cuda/fattn.cu, ggml_cuda_get_best_fattn_kernel; issues 28455 (q5_1: 1511 to 197 t/s), 28633 (q4_1 "
    "with q8_0: 34 t/s instead of 659), pull 27150 (f16 with q8_0: 11582 to 379)",
    fix="one type of f16, bf16, q8_0 and q4_0 for both, or a build with -DGGML_CUDA_FA_ALL_QUANTS=ON", costs=True,
)  # fmt: skip
def cache_types_without_kernel(case: Case) -> Iterator[Found]:
    """Cache types for which builds with the usual options have no flash attention on NVIDIA's and AMD's cards."""
    flags, kinds = case.flags, (case.flags.cache_type_k, case.flags.cache_type_v)
    if not _may_use_flash_kernels(case) or flags.n_gpu_layers <= 0 or case.latent_cache:
        return
    if (kinds[0] == kinds[1] and kinds[0] in _WITH_KERNEL) or _heads_not_yet(case):
        return
    if flags.flash_attn == "on":
        effect = (
            "attention runs on the CPU, and prompts were measured 8 to 30 times slower; the figures are for a build"
        )
    elif kinds[1] in UNQUANTISED:
        effect = "flash attention is turned off, which takes more memory; the figures are for a build"
    else:
        effect = "the server ends, because it turns flash attention off and V needs it; the figures are for a build"
    yield Found(
        f"-ctk {kinds[0]} -ctv {kinds[1]}: builds without -DGGML_CUDA_FA_ALL_QUANTS=ON, such as the prebuilt ones, "
        f"have no GPU kernel for this: {effect} that has it",
        changes=lambda: iter([["-ctk q8_0 -ctv q8_0"], ["-ctk q4_0 -ctv q4_0"]]),
    )


def _may_use_flash_kernels(case: Case) -> bool:
    """Return whether attention on the cache is left to cards of NVIDIA or AMD, as a kernel of flash attention."""
    cards = any(case.rig.cards[device.gpu].backend in ("cuda", "rocm") for device in case.devices)
    knows = case.model.architecture not in case.spec.memory.without_flash_attention
    return cards and knows and case.flags.flash_attn != "off" and not case.flags.no_kv_offload


def _heads_not_yet(case: Case) -> list[int]:
    """Return the sizes of heads for whose cache on a card no kernel had been written when the build was made."""
    types, rules = (case.flags.cache_type_k, case.flags.cache_type_v), case.run.rules
    layers = zip(case.model.layers, case.placement.caches, strict=True)
    on_cards = {layer.head_dim_k for layer, at in layers if layer.attends and at is not None and at < case.cpu}
    return [] if case.latent_cache else sorted(size for size in on_cards if not_yet(size, types, rules))


@rule(
    "cache-without-kernel-yet", "warning", CACHE,
    "llama.cpp pulls 16208 (27 September 2025: quantised caches with heads of 64 and 256), 15454 (the check before "
    "it), 20525 (bf16); reddit.com/r/LocalLLaMA/comments/1ng0fmv (gpt-oss-120b with q4_0: 10 t/s for 35, prompts 60 "
    "to 90 for 1,200)", until="2026-03-22", fix="update the engine, or -ctk f16 -ctv f16", costs=True,
)  # fmt: skip
def cache_without_kernel_yet(case: Case) -> Iterator[Found]:
    """In older builds no card of NVIDIA or AMD attends to a quantised cache with heads of other sizes than 128, or to
    one of bf16."""
    sizes, kinds = _heads_not_yet(case), (case.flags.cache_type_k, case.flags.cache_type_v)
    if not sizes or not _may_use_flash_kernels(case):
        return
    if case.flags.flash_attn == "on":
        effect = "the CPU attends, to which the cache is copied for every token and batch, as the figures count"
    elif kinds[1] in UNQUANTISED:
        effect = "flash attention is turned off, which takes more memory"
    else:
        effect = "the server ends, because it turns flash attention off and V needs it"
    heads = " and ".join(map(str, sizes))
    yield Found(
        f"-ctk {kinds[0]} -ctv {kinds[1]}: this build has no GPU kernel for this with heads of {heads}; {effect}",
        changes=lambda: iter([["-ctk f16 -ctv f16"]]),
    )


@rule(
    "integrated-graphics-as-card", "warning", CARDS,
    "llama.cpp pull request 23007 (integrated GPUs are told from cards); issues 23152 (b9174, 16 May 2026), 22013 and "
    "8618: \"invalid device function\", out of memory", until="2026-05-17",
    fix="HIP_VISIBLE_DEVICES with the numbers of the cards alone, or a build of June 2026 or later",
)  # fmt: skip
def integrated_graphics_as_card(case: Case) -> Iterator[Found]:
    """Older builds do not tell a Ryzen's graphics from cards in ROCm: they get layers as well, or end the program."""
    cards, cpu = case.rig.cards, case.rig.cpu_model or ""
    stated = all(one.field != "hardware.cpu" for one in case.rig.assumed) and _WITH_GRAPHICS.search(cpu)
    on_rocm = cards and all(card.backend == "rocm" and not card.unified for card in cards)
    chosen = option_value(case.parsed.flags.other, ("-dev", "--device")) or case.flags.split_mode == "none"
    if not (stated and on_rocm and case.devices) or chosen or any(name in case.parsed.env for name in _HIDES):
        return
    yield Found(
        f"this build takes the graphics of the {cpu} for another card, if they are on and ROCm sees them: they get "
        "layers, or the program ends because it has no code for them (--list-devices lists what it sees)"
    )


@rule(
    "cache-reuse-without-effect", "info", CACHE,
    "llama.cpp tools/server/server-context.cpp: \"cache_reuse is not supported by this context, it will be disabled\"; "
    "get_can_shift of src/llama-kv-cache.cpp, llama-kv-cache-iswa.cpp and llama-kv-cache-dsv4.cpp; issue 18497 "
    "(Qwen3-Next: the whole prompt is processed again)",
    fix="leave out --cache-reuse",
)  # fmt: skip
def cache_reuse_without_effect(case: Case) -> Iterator[Found]:
    """`--cache-reuse` shifts parts of a prompt in the cache, which not every cache can do."""
    least = option_value(case.parsed.rest, ("--cache-reuse",)) or ""
    why = _cannot_shift(case) if least.isdecimal() and int(least) and case.parsed.program == "llama-server" else ""
    if why:
        yield Found(f"--cache-reuse {least} does nothing: {why}; what a prompt begins with is reused all the same")


def _cannot_shift(case: Case) -> str:
    """Return why parts of this cache cannot be moved to other positions; empty if they can."""
    images = projector_of(case.parsed)
    if images is not None and (images.path or case.companion_headers.projector):
        return "the server turns it off with a projector"
    if case.model.recurrent is not None:
        return "recurrent layers cannot leave out a part of what they have read"
    if case.model.architecture in _UNSHIFTABLE:
        return f"the server turns it off for {case.model.architecture}"
    if case.parsed.build.date is None and case.model.position_axes > 1:
        return "the server turns it off for models whose positions have several axes (M-RoPE)"
    spec = make_spec(case.engine, case.model, case.flags, rules=case.run.rules)
    if all(window_rows(layer.n_swa, spec) == spec.n_kv for layer in case.model.layers if layer.n_swa):
        return ""
    whole = case.predict(msgspec.structs.replace(case.flags, other=(*case.flags.other, "--swa-full")))
    more = sum(a.kv - b.kv for a, b in zip(whole.devices, case.memory.devices, strict=True))
    return f"the cache of a sliding window cannot be shifted; --swa-full would allow it, for {more / MIB:,.0f} MiB more"


@rule(
    "swa-full-without-effect", "info", CACHE,
    "llama.cpp tools/server/server-context.cpp: \"swa_full is not supported by this model, it will be disabled\"",
    fix="leave out --swa-full",
)  # fmt: skip
def swa_full_without_effect(case: Case) -> Iterator[Found]:
    """`--swa-full` is about layers with a sliding window."""
    windows = case.model.int_value("attention.sliding_window") or any(layer.n_swa for layer in case.model.layers)
    if "--swa-full" in case.flags.other and not windows:
        yield Found(f"--swa-full does nothing: no layer of {case.model.architecture} has a sliding window")


@rule(
    "router", "warning", UNASKED, "llama.cpp tools/server/README.md, \"Using multiple models\"",
    fix="check the preset file, which checks each of its models",
)  # fmt: skip
def router(case: Case) -> Iterator[Found]:
    """A server that is started without a model, with presets or a folder of them."""
    given = sorted({"--models-preset", "--models-dir"} & set(case.parsed.used))
    named = case.parsed.model_path or {*MODEL_REPO, *MODEL_URL} & set(case.parsed.used)
    if given and not named:
        yield Found(
            f"{given[-1]}: this server loads no model itself. It starts a server for each model asked for, with "
            "these options and those of its preset, which the figures do not include"
        )


RULES: tuple[Rule, ...] = rules_in(sys.modules[__name__])
