"""Values that no engine can use, and values that mean something else than they look like."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.rules.case import Case
from service.engine.rules.rule import Found, rule

_FLAGS = "flags-that-are-gone-or-another-engines"
_COUNTS = (
    ("n_ctx", "-c", 0, "0"),
    ("n_batch", "-b", 1, "2048"),
    ("n_ubatch", "-ub", 0, "512"),
    ("n_gpu_layers", "-ngl", 0, "999"),
    ("n_cpu_moe", "-ncmoe", 0, "0"),
)


@rule(
    "value-not-understood", "error", _FLAGS, "ik_llama.cpp common/common.cpp, llama.cpp common/arg.cpp: std::stoi "
    "throws, or takes the digits that a word begins with; the lists of names throw",
    fix="a value that the option takes",
)  # fmt: skip
def value_not_understood(case: Case) -> Iterator[Found]:
    """A word where a number belongs (`16k` too), or a name that neither engine knows; the figures are without it."""
    for wrong in case.parsed.refused:
        choices = "" if len(wrong.choices) == 1 else ", ".join(wrong.choices)
        change = f"{wrong.option} {wrong.choices[0]}" if len(wrong.choices) == 1 else f"leave out {wrong.option}"
        yield Found(
            f"{wrong.detail[:200]}; the figures are without it{f'; it is one of {choices}' if choices else ''}",
            change if wrong.option else None,
        )


@rule(
    "value-out-of-range", "error", _FLAGS, "llama_init_from_model of both engines: n_ctx and n_batch are unsigned",
    fix="a value that the engine can use",
)  # fmt: skip
def value_out_of_range(case: Case) -> Iterator[Found]:
    """A count below what there can be."""
    for field, option, least, right in _COUNTS:
        value = getattr(case.parsed.flags, field)
        if value < least:
            yield Found(
                f"{option} {value}: the engine cannot start with it; the figures are without it", f"{option} {right}"
            )


@rule(
    "micro-batch-zero", "info", "the-micro-batch-and-the-link",
    "ik_llama.cpp src/llama.cpp:8174, llama.cpp src/llama-context.cpp:248", fix="-ub with the tokens meant",
)  # fmt: skip
def micro_batch_zero(case: Case) -> Iterator[Found]:
    """`-ub 0` means as many tokens as `-b`."""
    if case.parsed.flags.n_ubatch == 0:
        yield Found(f"-ub 0 means -ub {case.flags.n_ubatch}, as many tokens as -b", f"-ub {case.flags.n_ubatch}")


@rule(
    "threads-zero", "warning", "threads-and-sockets", "ik_llama.cpp common/common.cpp:1142; llama.cpp common/arg.cpp: "
    "std::thread::hardware_concurrency()", fix="-t with the number of physical cores",
)  # fmt: skip
def threads_zero(case: Case) -> Iterator[Found]:
    """`-t 0` or less means all logical processors, SMT included."""
    n, cores = case.parsed.flags.threads, case.rig.physical_cores
    if n is not None and n <= 0:
        on_cpu = case.memory.devices[-1].weights > case.model.n_bytes // 20
        message = f"-t {n} means one thread for each logical processor, where the {cores} physical cores do best"
        yield Found(message, f"-t {cores}, or leave out -t", severity=None if on_cpu else "info")
