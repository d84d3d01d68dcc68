"""A command and the build that it runs on: options of another time, and what a newer build would change."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.builds import today
from service.engine.memory import predict_memory
from service.engine.rules.case import Case
from service.engine.rules.rule import BUILDING, Found, rule
from service.engine.units import MIB

_FLAGS = "flags-that-are-gone-or-another-engines"
_HISTORY = (
    "ik_llama.cpp, history of common/common.cpp and examples/llama-bench/llama-bench.cpp, pull 944; llama.cpp, the "
    "pull requests listed in docs/check.md, 15434"
)
_BEFORE = {
    "-no-fmoe": "leave it out: it was off", "--no-fused-moe": "leave it out: it was off",
    "-no-ooae": "leave it out: it was off", "--no-offload-only-active-experts": "leave it out: it was off",
    "-no-fa": "leave it out: it was off", "--no-flash-attn": "leave it out: it was off",
    "-ncmoe": "-ot with the layers' experts", "--n-cpu-moe": "-ot with the layers' experts",
    "-cmoe": "-ot exps=CPU", "--cpu-moe": "-ot exps=CPU",
    "-lm": "--no-mmap or --mlock", "--load-mode": "--no-mmap or --mlock",
    "-dev": "CUDA_VISIBLE_DEVICES", "--device": "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
_WORTH_UPDATING = 0.9  # of today's buffer in the older one


@rule("option-of-another-time", "error", _FLAGS, _HISTORY, fix="that build's spelling")
def option_of_another_time(case: Case) -> Iterator[Found]:
    """Options that the build does not have yet, or had for a while only; `-fa` with a value before it took one."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        if build.has(case.parsed.program, name) is False:
            came = build.next_change(case.parsed.program, name)
            when = f"it came on {came}" if came else "it was gone by then"
            yield Found(f"a build {build.label} has no {name}: {when}", _BEFORE.get(name, f"leave out {name}"))
    bare = "bare -fa" in case.parsed.old or not {"-fa", "--flash-attn"} & set(case.parsed.used)
    if build.rules.flash_attn_value == "none" and not bare and case.parsed.program != "llama-bench":
        fix = "leave out -fa" if case.flags.flash_attn == "off" else "-fa alone"
        yield Found(f"-fa takes no value in a build {build.label}: the word behind it is refused", fix)


@rule("option-gone-since", "info", _FLAGS, _HISTORY)
def option_gone_since(case: Case) -> Iterator[Found]:
    """Options that the build has and today's does not: good to know before an update."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        gone = build.next_change(case.parsed.program, name)
        if gone and build.has(case.parsed.program, name):
            yield Found(f"{name} is right for a build {build.label}, and gone since {gone}")


@rule(
    "older-build", "info", BUILDING, "the memory model with the rules of both builds (docs/check.md, Builds)",
    fix="update the engine",
)  # fmt: skip
def older_build(case: Case) -> Iterator[Found]:
    """What the same flags need with today's build, where that is clearly less."""
    if not case.parsed.build.date:
        return
    now = predict_memory(msgspec.structs.replace(case.run, build=today(case.engine)).with_flags(case.flags))
    pairs = list(zip(case.table, case.memory.devices, now.devices, strict=True))
    less = [(row, a.compute, b.compute) for row, a, b in pairs if b.compute < _WORTH_UPDATING * a.compute]
    if less:
        row, a, b = max(less, key=lambda one: one[1] - one[2])
        message = f"today's build needs {b / MIB:,.0f} MiB for the compute buffer of {row.device} instead of"
        yield Found(f"{message} {a / MIB:,.0f}, with the same flags")
