"""Micro-batches: whether experts in RAM go to the GPU for prompts, and what `-b` allows."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.rules.case import Case
from service.engine.rules.rule import LINK, Found, rule

_SIZES = (1_024, 2_048, 4_096)  # tokens of a larger micro-batch


@rule(
    "batch-below-micro-batch", "warning", LINK,
    "llama_init_from_model of both engines: n_ubatch = min(n_batch, n_ubatch)", fix="-b as large as -ub",
)  # fmt: skip
def batch_below_micro_batch(case: Case) -> Iterator[Found]:
    """`-ub` is cut to `-b` by both engines."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b < ub:
        pp, tg = case.gain(flags=msgspec.structs.replace(case.flags, n_batch=ub))
        yield Found(f"-ub {ub} is larger than -b {b}: micro-batches have {b} tokens", f"-b {ub}", pp=pp, tg=tg)


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
    yield Found(
        f"{n_bytes / 1e9:,.0f} GB of experts are copied to {case.devices[0].name} for each {case.n_ubatch} tokens of a "
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
    """A batch that is not a multiple of the micro-batch ends in a short one, each time."""
    b, ub = case.flags.n_batch, case.flags.n_ubatch
    if b > ub and b % ub:
        message = f"-b {b} is not a multiple of -ub {ub}: the last micro-batch of each batch has {b % ub} tokens only"
        yield Found(message, f"-b {-(-b // ub) * ub}")
