"""`-ot` rules that do nothing, or that the engine stops at."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.overrides import MAX_RULES
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning

_FIRST_WINS = "ik_llama.cpp src/llama-load-tensors.cpp:458-486, llama.cpp src/llama-model-loader.cpp:1234-1262"
_SHOWN = 8


def override_refused(case: Case) -> Iterator[Found]:
    """Patterns that std::regex refuses or that take too long, devices that do not exist, too many rules."""
    for rule in case.rules:
        if rule.refused is not None:
            text = f"{rule.written.pattern[:80]}={rule.written.device[:40]}"
            message = f"-ot {text}: {rule.refused}; the figures are without this rule"
            yield error("override-refused", message, None, "ik_llama.cpp common/common.cpp:849, llama.cpp arg.cpp:252")
    if len(case.rules) > MAX_RULES:
        message = f"{len(case.rules)} -ot rules: only the first {MAX_RULES} are read here"
        yield error("override-refused", message, "write layers as (1|2|3) in one rule", "docs/check.md")


def device_unknown(case: Case) -> Iterator[Found]:
    """Names in `-dev` that are no device of this machine."""
    for name in case.unknown_devices:
        there = ", ".join(device.name for device in case.devices) or "none"
        yield error(
            "device-unknown", f"-dev {name[:40]}: there is no such device; used are: {there}", None, _FIRST_WINS
        )


def override_ignored(case: Case) -> Iterator[Found]:
    """ik_llama.cpp drops all rules when no layer is offloaded."""
    if case.ik and case.rules and case.flags.n_gpu_layers <= 0:
        message = "with -ngl 0 ik_llama.cpp ignores every -ot rule"
        yield warning("override-ignored", message, "-ngl 999", "ik_llama.cpp src/llama.cpp:7761-7764")


def override_matches_nothing(case: Case) -> Iterator[Found]:
    """A rule that no tensor of this model matches; neither engine says so."""
    for rule in case.rules:
        if rule.names == ():
            message = f"-ot {rule.written.pattern[:80]}={rule.written.device}: matches no tensor of this model"
            yield warning("override-matches-nothing", message, _likely(case, rule.written.pattern), _FIRST_WINS)


def _likely(case: Case, pattern: str) -> str | None:
    if "exps" in pattern and not case.model.moe_layers:
        return "leave it out: the model has no routed experts; ffn_(up|gate|down)\\. are its dense ones"
    layers = case.model.n_layer - case.model.n_layer_nextn
    return f"names look like blk.0.ffn_down_exps.weight; the layers are 0 to {layers - 1}; a dot is \\."


def override_never_wins(case: Case) -> Iterator[Found]:
    """A rule of which every match was taken by a rule before it: the first that matches wins."""
    taken: dict[str, str] = {}
    for rule in case.rules:
        names = rule.names or ()
        if names and all(name in taken for name in names):
            before = sorted({taken[name] for name in names})
            same = {r.written.device for r in case.rules if r.written.pattern in before} == {rule.written.device}
            make = info if same else warning
            yield make(
                "override-never-wins",
                f"-ot {rule.written.pattern[:80]}={rule.written.device} never wins: all its {len(names)} tensors are "
                f"taken by {', '.join(p[:60] for p in before[:_SHOWN])} before it",
                "leave it out" if same else "put it before the broader rule",
                _FIRST_WINS,
            )
        taken |= {name: rule.written.pattern for name in names if name not in taken}
