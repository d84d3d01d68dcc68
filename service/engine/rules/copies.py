"""Experts in RAM that are copied to a GPU for prompts: what prevents it, and where it loses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.ggml_types import type_named
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule

_LINK = "the-micro-batch-and-the-link"
# ik_llama.cpp 8337e4cd3 ggml.h, enum ggml_op, counted from NONE = 0.
_OPERATIONS = {27: "MUL_MAT", 28: "MUL_MAT_ID", 30: "FUSED_UP_GATE", 31: "MOE_FUSED_UP_GATE"}
_OBSOLETE = {26, 29}


@rule(
    "repacked-with-large-micro-batch", "warning", "repacking", only="ik_llama.cpp", mend="leave out -rtr",
    source="ik_llama.cpp discussion 491 (287 to 169 t/s at -ub 4096, 54 to 228 at -ub 512)",
)  # fmt: skip
def repacked_with_large_micro_batch(case: Case) -> Iterator[Found]:
    """`-rtr` keeps experts in RAM on the CPU for prompts, unless their new type has GPU kernels."""
    if not (case.flags.runtime_repack and case.experts_in_ram and case.devices):
        return
    stuck = [name for name in case.experts_in_ram if _loses_gpu(case, name)]
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


def _loses_gpu(case: Case, name: str) -> bool:
    tensor = case.model.by_name.get(name)
    repacked = type_named(tensor.type).repack_to if tensor else None
    return repacked is not None and not type_named(repacked).cuda_ik


@rule(
    "copying-loses", "warning", _LINK,
    "ik_llama.cpp issues 765 (67 against 93 t/s without) and 490 (481 against 606 at -ub 512); llama.cpp "
    "ggml-cuda.cu:5636 (GGML_OP_OFFLOAD_MIN_BATCH)",
    mend="-op 28,0,31,0 (ik_llama.cpp), GGML_OP_OFFLOAD_MIN_BATCH above -ub (llama.cpp), or a larger -ub",
)  # fmt: skip
def copying_loses(case: Case) -> Iterator[Found]:
    """On a slow link, experts in RAM are multiplied faster by the CPU than copied to the GPU for each micro-batch.

    Said where it fits beside what is placed now, and loses nothing with a full cache either: caches in RAM are copied
    too.
    """
    if not (case.experts_in_ram and case.devices and case.flags.op_offload) or case.n_ubatch < case.threshold:
        return
    if any(option.startswith("-op ") for option in case.flags.other):
        return
    mended = msgspec.structs.replace(case.flags, op_offload=False)
    pp, _ = case.gain(flags=mended)
    if pp < WORTH_SAYING or "GGML_OP_OFFLOAD_MIN_BATCH" in case.parsed.env:
        return
    if case.gain(case.flags.n_ctx, flags=mended)[0] < 1 or not case.fits(mended):
        return
    off = "-op 28,0,31,0" if case.ik else f"GGML_OP_OFFLOAD_MIN_BATCH={case.n_ubatch + 1} before the command"
    break_even = _break_even(case)
    link = case.rig.cards[case.devices[0].gpu].pcie_gbs
    n_bytes = sum(case.model.by_name[name].nbytes for name in case.experts_in_ram)
    yield Found(
        f"for each micro-batch up to {n_bytes / 1e9:,.0f} GB of experts cross a link of {link:,.0f} GB/s: on the CPU "
        f"prompts of -ub {case.n_ubatch} would be {pp:.1f} times as fast",
        f"{off}, or -ub {break_even}, from which on copying gains" if break_even else off,
        pp=pp,
    )


def _break_even(case: Case) -> int | None:
    """The first larger micro-batch with which copying is at least as fast, and everything fits."""
    for size in (1024, 2048, 4096, 8192):
        if case.n_ubatch < size <= case.flags.n_ctx:
            larger = msgspec.structs.replace(case.flags, n_ubatch=size, n_batch=max(size, case.flags.n_batch))
            without = msgspec.structs.replace(larger, op_offload=False)
            if case.speed(flags=larger).pp.expected >= case.speed(flags=without).pp.expected:
                return size if case.fits(larger) else None
    return None


@rule(
    "host-buffers-off", "warning", _LINK, only="llama.cpp", mend="leave out --no-host",
    source="llama.cpp pull request 14990 (host buffers instead of repacked ones: prompts 36 to 56 % faster)",
)  # fmt: skip
def host_buffers_off(case: Case) -> Iterator[Found]:
    """`--no-host` lets the CPU repack experts in RAM, which then are not copied to the GPU for prompts."""
    if "--no-host" in case.flags.other and case.experts_in_ram and case.devices and case.flags.op_offload:
        yield Found("--no-host repacks experts in RAM for the CPU: they are not copied to the GPU for prompts")


@rule(
    "obsolete-op-numbers", "warning", _LINK, "ik_llama.cpp 8337e4cd3 ggml.h, enum ggml_op", only="ik_llama.cpp",
    mend="-op 28,0,31,0 keeps all experts in RAM on the CPU",
)  # fmt: skip
def obsolete_op_numbers(case: Case) -> Iterator[Found]:
    """`-op` with the numbers that guides of 2025 give: today they mean other operations."""
    option = next((o for o in case.flags.other if o.startswith("-op ")), "")
    numbers = {int(n) for n in option.removeprefix("-op ").split(",")[::2] if n.strip().isdigit()}
    named = ", ".join(f"{number} is {name}" for number, name in _OPERATIONS.items())
    if case.parsed.build.date is None and numbers & _OBSOLETE:
        yield Found(f"{option}: the numbers of operations changed; today {named}")


@rule(
    "op-numbers-without-experts", "info", _LINK, "ik_llama.cpp issue 765: 27,0,29,0 did nothing to the experts",
    only="ik_llama.cpp", mend="-op 28,0,31,0",
)  # fmt: skip
def op_numbers_without_experts(case: Case) -> Iterator[Found]:
    """`-op` that turns copying off for one of the two operations of experts only."""
    option = next((o for o in case.flags.other if o.startswith("-op ")), "")
    numbers = option.removeprefix("-op ").split(",")
    off = {n for n, value in zip(numbers[::2], numbers[1::2], strict=False) if value.strip() == "0"}
    if case.experts_in_ram and case.parsed.build.date is None and len(off & {"28", "31"}) == 1:
        yield Found(f"{option}: experts are two operations, 28 (down) and 31 (up and gate); one is still copied")
