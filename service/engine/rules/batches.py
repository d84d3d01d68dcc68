"""Micro-batches: whether experts in RAM go to the GPU for prompts, and what `-b` allows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.rules.case import Case
from service.engine.rules.found import WORTH_SAYING, Found, info, warning

_SIZES = (1024, 2048, 4096, 8192)


def micro_batch_below_threshold(case: Case) -> Iterator[Found]:
    """ik_llama.cpp computes experts in RAM on the CPU for batches below 32 * n_expert / n_expert_used tokens."""
    copied = case.flags.op_offload and not case.flags.runtime_repack
    if not (case.ik and case.experts_in_ram and case.devices and copied):
        return
    if case.n_ubatch >= case.threshold:
        return
    size = next((n for n in _SIZES if n >= case.threshold), None)
    if size is None or size > case.flags.n_ctx:
        return
    mended = msgspec.structs.replace(case.flags, n_ubatch=size, n_batch=max(size, case.flags.n_batch))
    pp, tg = case.gain(flags=mended)
    if pp < WORTH_SAYING:
        return
    more = case.predict(mended).devices[0].compute - case.memory.devices[0].compute
    yield warning(
        "micro-batch-below-threshold",
        f"-ub {case.n_ubatch} is below {case.threshold} tokens: the CPU computes the experts in RAM for prompts; "
        f"-ub {size} sends them to the GPU: PP {case.speed().pp.expected:,.0f} to "
        f"{case.speed(flags=mended).pp.expected:,.0f} t/s by the speed model, for {max(more, 0) / 2**20:,.0f} MiB more "
        f"on {case.devices[0].name}",
        f"-ub {size} -b {max(size, case.flags.n_batch)}",
        "ik_llama.cpp ggml-cuda.cu:5180-5214, pull request 520",
        pp=pp,
        tg=max(tg, 1.0),
    )


def batch_below_micro_batch(case: Case) -> Iterator[Found]:
    """`-ub` is cut to `-b` by both engines."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b < ub:
        mended = msgspec.structs.replace(case.flags, n_batch=ub)
        pp, tg = case.gain(flags=mended)
        message = f"-ub {ub} is larger than -b {b}: micro-batches have {b} tokens"
        source = "llama_init_from_model of both engines: n_ubatch = min(n_batch, n_ubatch)"
        yield warning("batch-below-micro-batch", message, f"-b {ub}", source, pp=pp, tg=tg)
    elif ub > 0 and b % ub:
        message = f"-b {b} is no multiple of -ub {ub}: the last micro-batch of each batch has {b % ub} tokens only"
        source = "llama_decode of both engines cuts a batch into micro-batches of n_ubatch"
        yield info("batch-no-multiple", message, f"-b {-(-b // ub) * ub}", source)
