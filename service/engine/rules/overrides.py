"""`-ot` rules that do nothing, or that the engine stops at."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.config import Override
from service.engine.overrides import MAX_RULES
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning

_FIRST_WINS = "ik_llama.cpp src/llama-load-tensors.cpp:458-486, llama.cpp src/llama-model-loader.cpp:1234-1262"
_SHOWN = 4


def override_refused(case: Case) -> Iterator[Found]:
    """Patterns that std::regex refuses or that take too long, devices that do not exist, too many rules."""
    for rule in case.rules:
        if rule.refused is not None:
            message = f"-ot {_shown(rule.written)}: {rule.refused}; the figures are without this rule"
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
            message = f"-ot {_shown(rule.written)}: matches no tensor of this model"
            yield warning("override-matches-nothing", message, _likely(case, rule.written.pattern), _FIRST_WINS)


def _likely(case: Case, pattern: str) -> str | None:
    if "exps" in pattern and not case.model.moe_layers:
        return "leave it out: the model has no routed experts; ffn_(up|gate|down)\\. are its dense ones"
    layers = case.model.n_layer - case.model.n_layer_nextn
    return f"names look like blk.0.ffn_down_exps.weight; the layers are 0 to {layers - 1}; a dot is \\."


def override_never_wins(case: Case) -> Iterator[Found]:
    """A rule of which every match was taken by a rule before it: the first that matches wins.

    Those that would have changed nothing are told together.
    """
    taken: dict[str, Override] = {}
    idle: list[str] = []
    for rule in case.rules:
        names = rule.names or ()
        if names and all(name in taken for name in names):
            if {taken[name].device for name in names} == {rule.written.device}:
                idle.append(_shown(rule.written))
            else:
                yield _beaten(rule.written, list(dict.fromkeys(_shown(taken[name]) for name in names)))
        taken = dict.fromkeys(names, rule.written) | taken
    if idle:
        more = f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""
        message = f"{', '.join(idle[:_SHOWN])}{more}: rules before them send the same tensors to the same device"
        yield info("override-never-wins", message, "leave them out", _FIRST_WINS)


def _beaten(rule: Override, before: list[str]) -> Found:
    message = f"-ot {_shown(rule)} never wins: {', '.join(before[:_SHOWN])} before it takes all its tensors"
    return warning("override-never-wins", message, "put it before the broader rule", _FIRST_WINS)


def _shown(rule: Override) -> str:
    return f"{rule.pattern[:60]}={rule.device[:40]}"
