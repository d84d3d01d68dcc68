"""Tensors on the wrong device: up and gate apart, types without GPU kernels, experts where they need not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from service.engine.ggml_types import type_named
from service.engine.planner.support import runs_on_gpu, unsupported
from service.engine.rules.case import Case
from service.engine.rules.found import WORTH_SAYING, Found, error, warning

_TINY = 100_000  # elements: norms, biases and scales cost nothing wherever they are


def cannot_load(case: Case) -> Iterator[Found]:
    """An architecture, tensor types or a make of cards that the engine cannot run."""
    reason = unsupported(case.engine, case.model, case.rig)
    if reason:
        source = "ggml/src/ggml.c (type_traits) and src/llama-arch.cpp of both engines"
        yield error("cannot-load", reason, None, source)


def up_gate_apart(case: Case) -> Iterator[Found]:
    """ik_llama.cpp runs up and gate of a layer as one operation: apart, one crosses to the other for every token."""
    if not case.ik:
        return
    tensors = case.placement.tensors
    apart = {}
    for name, device in tensors.items():
        gate = name.replace(".ffn_up", ".ffn_gate")
        if gate != name and name.endswith(".weight") and tensors.get(gate, device) != device:
            apart[gate] = device
    if not apart:
        return
    pp, tg = case.gain(placement=case.moved(apart))
    layers = ", ".join(name.split(".")[1] for name in list(apart)[:12])
    yield warning(
        "up-gate-apart",
        f"up and gate are on different devices in {len(apart)} layers ({layers}): ik_llama.cpp fuses them, so one "
        f"crosses for every token; together TG would be about {tg:.1f} times as fast",
        "match both in one rule: ffn_(up|gate)_exps",
        "ik_llama.cpp issue 521 and pull request 520; discussion 613",
        pp=pp,
        tg=tg,
    )


def type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """Row-interleaved and other CPU-only types on a GPU: the weights cross to the CPU for every token."""
    wrong = {}
    for name, device in case.placement.tensors.items():
        tensor = case.model.by_name.get(name)
        if tensor is None or device == case.cpu or len(tensor.dims) < 2 or tensor.nbytes < _TINY:
            continue
        if not runs_on_gpu(case.engine, tensor.type):
            wrong[name] = tensor.type
    if not wrong:
        return
    pp, tg = case.gain(placement=case.moved(dict.fromkeys(wrong, case.cpu)))
    types = ", ".join(f"{n} of {kind.upper()}" for kind, n in Counter(wrong.values()).most_common())
    yield warning(
        "type-without-gpu-kernel",
        f"tensors that no GPU can multiply are on GPUs ({types}): they cross to the CPU for every token; in RAM TG "
        f"would be about {tg:.1f} times as fast",
        f"send them to RAM with -ot, such as {next(iter(wrong)).removesuffix('.weight')}=CPU",
        "ik_llama.cpp ggml-cuda.cu:4848-4906, llama.cpp ggml-cuda.cu:5243-5269 (supports_op); discussion 491",
        pp=pp,
        tg=tg,
    )


def experts_left_on_gpu(case: Case) -> Iterator[Found]:
    """A mixture of experts that does not fit its cards, and no rule that leaves experts in RAM."""
    small = [row.device for row in case.table[:-1] if not row.fits]
    if not small or not case.model.moe_layers or case.experts_in_ram:
        return
    mended = msgspec.structs.replace(case.flags, cpu_moe=True)
    fits = case.fits(mended)
    outcome = "with it, everything fits" if fits else "with it, more is still needed: see does-not-fit"
    yield error(
        "experts-left-on-gpu",
        f"all experts are on {', '.join(small)}, which they do not fit; nothing sends them to RAM; {outcome}",
        "-ot exps=CPU at the end, after rules for the layers that stay on GPUs",
        "ik_llama.cpp discussion 258; llama.cpp pull request 15077 (--cpu-moe)",
    )


def experts_in_ram_needlessly(case: Case) -> Iterator[Found]:
    """Experts in RAM although the whole model fits on the cards."""
    if not case.experts_in_ram or not case.devices or case.flags.n_gpu_layers <= case.model.n_layer:
        return
    whole = msgspec.structs.replace(case.flags, overrides=(), cpu_moe=False, n_cpu_moe=0)
    if case.model.n_bytes > sum(device.free for device in case.devices) or not case.fits(whole):
        return
    memory = case.predict(whole)
    pp, tg = case.gain(flags=whole, placement=memory.placement)
    if tg >= WORTH_SAYING:
        yield warning(
            "experts-in-ram-needlessly",
            f"the whole model fits on the GPUs with this context: without rules TG would be about {tg:.1f} times as "
            f"fast, PP {pp:.1f} times",
            "leave out -ot, --cpu-moe and --n-cpu-moe",
            "computed: memory and speed of this command without its rules",
            pp=pp,
            tg=tg,
        )


def repacked_with_large_micro_batch(case: Case) -> Iterator[Found]:
    """`-rtr` keeps experts in RAM on the CPU for prompts, unless their new type has GPU kernels."""
    if not (case.ik and case.flags.runtime_repack and case.experts_in_ram and case.devices):
        return
    stuck = [name for name in case.experts_in_ram if _loses_gpu(case, name)]
    if not stuck or case.n_ubatch < case.threshold:
        return
    without = msgspec.structs.replace(case.flags, runtime_repack=False)
    pp, tg = case.gain(flags=without)
    if pp < WORTH_SAYING:
        return
    yield warning(
        "repacked-with-large-micro-batch",
        f"-rtr turns {len(stuck)} expert tensors in RAM into types that no GPU multiplies: with -ub {case.n_ubatch} "
        f"they would be copied to the GPU for prompts; without -rtr PP would be about {pp:.1f} times as fast",
        "leave out -rtr",
        "ik_llama.cpp discussion 491 (287 to 169 t/s at -ub 4096, 54 to 228 at -ub 512)",
        pp=pp,
        tg=tg,
    )


def _loses_gpu(case: Case, name: str) -> bool:
    tensor = case.model.by_name.get(name)
    repacked = type_named(tensor.type).repack_to if tensor else None
    return repacked is not None and not type_named(repacked).cuda_ik
