"""A command and the build that it runs on: options of another time, and what a newer build would change."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.config import CPU
from service.engine.memory import predict_memory
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning
from service.engine.units import MIB

_SOURCE = {
    "ik_llama.cpp": "ik_llama.cpp, history of common/common.cpp and examples/llama-bench/llama-bench.cpp",
    "llama.cpp": "llama.cpp, the pull requests listed in docs/check.md",
}
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


def option_too_new(case: Case) -> Iterator[Found]:
    """Options that the build does not have yet, or that it had for a while only."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        if build.has(case.parsed.program, name) is False:
            came = build.next_change(case.parsed.program, name)
            when = f"it came on {came}" if came else "it was gone by then"
            message = f"a build {build.label} has no {name}: {when}"
            yield error("option-of-another-time", message, _BEFORE.get(name, f"leave out {name}"), _SOURCE[case.engine])


def option_gone_since(case: Case) -> Iterator[Found]:
    """Options that the build has and today's does not: good to know before an update."""
    build = case.parsed.build
    for name in case.parsed.used if build.date else ():
        gone = build.next_change(case.parsed.program, name)
        if gone and build.has(case.parsed.program, name):
            message = f"{name} is right for a build {build.label}, and gone since {gone}"
            yield info("option-gone-since", message, None, _SOURCE[case.engine])


def flash_attention_value(case: Case) -> Iterator[Found]:
    """Older builds take `-fa` without a value: what follows it is an unknown word to them."""
    build = case.parsed.build
    bare = "bare -fa" in case.parsed.old or not {"-fa", "--flash-attn"} & set(case.parsed.used)
    if build.rules.flash_attn_value == "none" and not bare and case.parsed.program != "llama-bench":
        fix = "leave out -fa" if case.flags.flash_attn == "off" else "-fa alone"
        message = f"-fa takes no value in a build {build.label}: the word behind it is refused"
        yield error("option-of-another-time", message, fix, "ik_llama.cpp pull 944, llama.cpp pull 15434")


def copies_of_ram(case: Case) -> Iterator[Found]:
    """Older builds of ik_llama.cpp with several GPUs: pipeline copies of what is in RAM."""
    flags, copies = case.flags, case.parsed.build.rules.memory.n_copies
    overridden = any(rule.device == CPU for rule in flags.overrides)
    if case.ik and copies > 1 and case.cpu > 1 and overridden and flags.n_gpu_layers > case.model.n_layer:
        yield warning(
            "copies-of-ram",
            f"builds of that time make {copies} pipeline copies with several GPUs: of the weights in RAM too, which "
            "cannot be allocated; the figures are those of a build without",
            "build with -DGGML_SCHED_MAX_COPIES=1, the default since 2025-09-02",
            "ik_llama.cpp pulls 751 and 879, issues 437 and 500",
        )


def older_build(case: Case) -> Iterator[Found]:
    """What the same flags need with today's build, where that is clearly less."""
    if not case.parsed.build.date:
        return
    free = [device.free for device in case.devices]
    now = predict_memory(case.engine, case.model, case.flags, free, allocator=case.allocator, tool=case.tool)
    pairs = list(zip(case.table, case.memory.devices, now.devices, strict=True))
    less = [(row, a.compute, b.compute) for row, a, b in pairs if b.compute < _WORTH_UPDATING * a.compute]
    if less:
        row, a, b = max(less, key=lambda one: one[1] - one[2])
        message = f"today's build needs {b / MIB:,.0f} MiB for the compute buffer of {row.device} instead of"
        source = "the memory model with the rules of both builds (docs/check.md, Builds)"
        yield info("older-build", f"{message} {a / MIB:,.0f}, with the same flags", "update the engine", source)
