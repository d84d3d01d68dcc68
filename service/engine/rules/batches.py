"""Micro-batches: whether experts in RAM go to the GPU for prompts, and what `-b` allows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.config import Flags
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule
from service.engine.units import MIB

_SIZES = (1024, 2048, 4096, 8192)
_LINK = "the-micro-batch-and-the-link"
_PROMPT, _OUTPUT = 4_096, 512  # tokens of the request that a larger micro-batch must make faster as a whole


@rule(
    "micro-batch-below-threshold", "warning", _LINK, "ik_llama.cpp ggml-cuda.cu:5180-5214, pull request 520",
    only="ik_llama.cpp", mend="-ub of at least 32 * experts / experts used, if it fits",
)  # fmt: skip
def micro_batch_below_threshold(case: Case) -> Iterator[Found]:
    """ik_llama.cpp computes experts in RAM on the CPU for batches below 32 * n_expert / n_expert_used tokens.

    Said where the larger micro-batch fits beside what is placed now, and makes a whole request faster.
    """
    copied = case.flags.op_offload and not case.flags.runtime_repack
    if not (case.experts_in_ram and case.devices and copied) or case.n_ubatch >= case.threshold:
        return
    size = next((n for n in _SIZES if n >= case.threshold), None)
    if size is None or size > case.flags.n_ctx:
        return
    mended = msgspec.structs.replace(case.flags, n_ubatch=size, n_batch=max(size, case.flags.n_batch))
    pp, tg = case.gain(flags=mended)
    if pp < WORTH_SAYING or _request(case) < WORTH_SAYING * _request(case, mended) or not case.fits(mended):
        return
    more = case.predict(mended).devices[0].compute - case.memory.devices[0].compute
    yield Found(
        f"-ub {case.n_ubatch} is below {case.threshold} tokens: the CPU computes the experts in RAM for prompts; "
        f"-ub {size} sends them to the GPU: PP {case.speed().pp.expected:,.0f} to "
        f"{case.speed(flags=mended).pp.expected:,.0f} t/s by the speed model, for {max(more, 0) / MIB:,.0f} MiB more "
        f"on {case.devices[0].name}",
        f"-ub {size} -b {max(size, case.flags.n_batch)}",
        pp=pp,
        tg=max(tg, 1.0),
    )


def _request(case: Case, flags: Flags | None = None) -> float:
    """Seconds of a request."""
    speed = case.speed(flags=flags)
    return _PROMPT / speed.pp.expected + _OUTPUT / speed.tg.expected


@rule(
    "batch-below-micro-batch", "warning", _LINK,
    "llama_init_from_model of both engines: n_ubatch = min(n_batch, n_ubatch)", mend="-b as large as -ub",
)  # fmt: skip
def batch_below_micro_batch(case: Case) -> Iterator[Found]:
    """`-ub` is cut to `-b` by both engines."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b < ub:
        pp, tg = case.gain(flags=msgspec.structs.replace(case.flags, n_batch=ub))
        yield Found(f"-ub {ub} is larger than -b {b}: micro-batches have {b} tokens", f"-b {ub}", pp=pp, tg=tg)


@rule(
    "batch-no-multiple", "info", _LINK, "llama_decode of both engines cuts a batch into micro-batches of n_ubatch",
    mend="-b a multiple of -ub",
)  # fmt: skip
def batch_no_multiple(case: Case) -> Iterator[Found]:
    """A batch that is no multiple of the micro-batch ends in a short one, each time."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b > ub and b % ub:
        message = f"-b {b} is no multiple of -ub {ub}: the last micro-batch of each batch has {b % ub} tokens only"
        yield Found(message, f"-b {-(-b // ub) * ub}")
