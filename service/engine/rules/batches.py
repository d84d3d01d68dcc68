"""Micro-batches: whether experts in RAM go to the GPU for prompts, where that loses, and what `-b` allows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.rules.case import Case
from service.engine.rules.rule import LINK, WORTH_SAYING, Found, rule
from service.engine.run.copies import MIN_BATCH, MOE_FUSED_UP_GATE, MUL_MAT_ID

_SIZES = (1_024, 2_048, 4_096)  # tokens of a larger micro-batch


@rule(
    "batch-below-micro-batch", "warning", LINK,
    "llama_init_from_model of both engines: n_ubatch = min(n_batch, n_ubatch)", fix="-b as large as -ub",
)  # fmt: skip
def batch_below_micro_batch(case: Case) -> Iterator[Found]:
    """Both engines reduce `-ub` to `-b`."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b < ub:
        pp, tg = case.gain(flags=msgspec.structs.replace(case.flags, n_batch=ub))
        yield Found(f"-ub {ub} is larger than -b {b}: micro-batches have only {b} tokens", f"-b {ub}", pp=pp, tg=tg)


@rule(
    "micro-batch-small", "warning", LINK, "llama.cpp ggml-cuda.cu:5636-5655, ik_llama.cpp ggml-cuda.cu:5180-5214: the "
    "experts in RAM are copied once for each micro-batch; computed: memory and speed with larger ones",
    fix="-ub 1024 to 4096, where it fits", about="speed",
)  # fmt: skip
def micro_batch_small(case: Case) -> Iterator[Found]:
    """Experts in RAM that are copied to the GPU for each micro-batch, with room for larger ones on the cards."""
    if not case.copies_experts or case.n_ubatch > _SIZES[0]:
        return
    n_bytes = sum(case.model.by_name[name].nbytes for name in case.experts_in_ram)
    card = case.device_name(case.flags.first_gpu)
    yield Found(
        f"{n_bytes / 1e9:,.0f} GB of experts are copied to {card} for each {case.n_ubatch} tokens of a "
        "prompt, and larger micro-batches fit",
        severity="warning" if case.n_ubatch < _SIZES[0] else "info",
        changes=lambda: iter([larger_micro_batches(case, case.n_ubatch + 1)]),
    )


def larger_micro_batches(case: Case, least: int) -> list[str]:
    """Return the changes to each usual micro-batch of at least so many tokens that fits and leaves the reserve."""
    found = []
    for size in _SIZES:
        batch = max(size, case.flags.n_batch)
        larger = msgspec.structs.replace(case.flags, n_ubatch=size, n_batch=batch)
        if least <= size <= case.flags.n_ctx and case.fits(larger):
            found.append(f"-ub {size} -b {batch}")
    return found


@rule(
    "batch-no-multiple", "info", LINK, "llama_decode of both engines cuts a batch into micro-batches of n_ubatch",
    fix="-b a multiple of -ub",
)  # fmt: skip
def batch_no_multiple(case: Case) -> Iterator[Found]:
    """A batch that is not a multiple of the micro-batch always ends in a short one."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b > ub and b % ub:
        message = f"-b {b} is not a multiple of -ub {ub}: the last micro-batch of each batch has only {b % ub} tokens"
        yield Found(message, f"-b {-(-b // ub) * ub}")


_SWITCHES = ("-nopo", "--no-op-offload", "-op", "--offload-policy")


@rule(
    "copying-loses", "warning", LINK,
    "ik_llama.cpp issues 765 (67 against 93 t/s without) and 490 (481 against 606 at -ub 512); llama.cpp "
    "ggml-cuda.cu:5636 (GGML_OP_OFFLOAD_MIN_BATCH)",
    fix="-op 28,0,31,0 (ik_llama.cpp), GGML_OP_OFFLOAD_MIN_BATCH above -ub (llama.cpp), or a larger -ub",
    about="speed",
)  # fmt: skip
def copying_loses(case: Case) -> Iterator[Found]:
    """On a slow link, the CPU multiplies experts in RAM faster than they are copied to the GPU for each micro-batch.

    Reported where it fits with the current placement, and is no slower with a full cache either: caches in RAM are
    copied too.
    """
    if not case.copies_experts or any(option.startswith("-op ") for option in case.flags.other):
        return
    fixed = msgspec.structs.replace(case.flags, op_offload=False)
    pp, _ = case.gain(flags=fixed)
    if pp < WORTH_SAYING or "GGML_OP_OFFLOAD_MIN_BATCH" in case.parsed.env:
        return
    if case.gain(case.flags.n_ctx, flags=fixed)[0] < 1 or not case.fits(fixed):
        return
    off = case.spec.offload.switched_off.format(tokens=case.n_ubatch + 1)
    break_even = _break_even(case)
    link = case.rig.cards[case.devices[case.flags.first_gpu].gpu].pcie_gbs
    n_bytes = sum(case.model.by_name[name].nbytes for name in case.experts_in_ram)
    yield Found(
        f"each micro-batch copies up to {n_bytes / 1e9:,.0f} GB of experts over a link of {link:,.0f} GB/s: on the "
        f"CPU, prompts with -ub {case.n_ubatch} would be {pp:.1f} times as fast",
        f"{off}, or -ub {break_even} -b {max(break_even, case.flags.n_batch)}" if break_even else off,
        pp=pp,
    )


@rule(
    "copying-off", "warning", LINK, "llama.cpp ggml-cuda.cu:5636-5655 (--no-op-offload, GGML_OP_OFFLOAD_MIN_BATCH); "
    "ik_llama.cpp pull request 405 (-op); computed: memory and speed with copies",
    fix="leave the switch out", about="speed",
)  # fmt: skip
def copying_off(case: Case) -> Iterator[Found]:
    """The command makes the CPU compute experts in RAM for prompts, where copying them to the GPU would be faster."""
    copies = case.run.treatment.copies
    if not (case.experts_in_ram and case.devices):
        return
    if not case.flags.op_offload or copies.off & {MUL_MAT_ID, MOE_FUSED_UP_GATE}:
        switch = next((name for name in case.parsed.used if name in _SWITCHES), "-op")
        yield Found(
            f"{switch} makes the CPU compute experts in RAM for prompts: copying them to the GPU is faster here",
            f"leave out {switch}",
        )
    elif copies.min_batch > case.n_ubatch >= MIN_BATCH and case.environment.least_batch is not None:
        yield Found(
            f"GGML_OP_OFFLOAD_MIN_BATCH={copies.min_batch} is more than -ub {case.n_ubatch}: experts in RAM are never "
            "copied for prompts, and copying them is faster here",
            f"GGML_OP_OFFLOAD_MIN_BATCH={MIN_BATCH} before the command",
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
