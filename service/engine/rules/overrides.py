"""`-ot` rules that do nothing, or that the engine stops at."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.config import CPU, Override
from service.engine.overrides import MAX_RULES
from service.engine.rules.case import Case, WrittenRule
from service.engine.rules.devices import first_unknown_card
from service.engine.rules.rule import Found, rule
from service.engine.tensor_names import layer_of

_FIRST_WINS = "ik_llama.cpp src/llama-load-tensors.cpp:458-486, llama.cpp src/llama-model-loader.cpp:1234-1262"
_OT = "rules-of--ot"
_SHOWN = 4
_QKV = ("attn_q.weight", "attn_k.weight", "attn_v.weight")


@rule(
    "override-refused", "error", _OT, "ik_llama.cpp common/common.cpp:849, llama.cpp common/arg.cpp:252",
    mend="REGEX=DEVICE with a device of this machine, without ',' and '=' in the regex",
)  # fmt: skip
def override_refused(case: Case) -> Iterator[Found]:
    """Patterns that std::regex refuses or that take too long, devices that do not exist, too many rules."""
    for one in case.rules:
        if one.refused is not None:
            message = f"-ot {_shown(one.written)}: {one.refused}; the figures are without this rule"
            yield Found(message, "CPU: it is pinned by itself" if one.written.device == "CUDA_Host" else "")
    if len(case.rules) > MAX_RULES:
        message = f"{len(case.rules)} -ot rules: only the first {MAX_RULES} are read here"
        yield Found(message, "write layers as (1|2|3) in one rule")


@rule(
    "device-unknown", "error", "which-card-is-cuda0", "parse_device_list (ik_llama.cpp common.cpp, llama.cpp arg.cpp): "
    "names are compared exactly", mend="a name of this machine's devices",
)  # fmt: skip
def device_unknown(case: Case) -> Iterator[Found]:
    """Names in `-dev` that are no device of this machine."""
    for name in case.unknown_devices:
        there = ", ".join(device.name for device in case.devices) or "none"
        right = next((device.name for device in case.devices if device.name.lower() == name.lower()), "")
        yield Found(f"-dev {name[:40]}: there is no such device; used are: {there}", right and f"-dev {right}")


@rule(
    "card-not-there", "warning", "which-card-is-cuda0", "CUDA programming guide, CUDA environment variables: an entry "
    "that names no card hides itself and all that follow", mend="numbers or UUIDs of this machine's cards",
)  # fmt: skip
def card_not_there(case: Case) -> Iterator[Found]:
    """The variable that shows cards to the engine names one that this machine does not have."""
    wrong = first_unknown_card(case.parsed.env, case.rig)
    if wrong:
        seen = ", ".join(f"{device.name} ({case.rig.cards[device.gpu].name})" for device in case.devices)
        yield Found(f"{wrong}: no such card is known here; it and all behind it are hidden, seen: {seen or 'no GPU'}")


@rule(
    "override-ignored", "warning", _OT, "ik_llama.cpp src/llama.cpp:7761-7764", only="ik_llama.cpp", mend="-ngl 999"
)  # fmt: skip
def override_ignored(case: Case) -> Iterator[Found]:
    """ik_llama.cpp drops all rules when no layer is offloaded."""
    if case.rules and case.devices and case.flags.n_gpu_layers <= 0:
        yield Found("with -ngl 0 ik_llama.cpp ignores every -ot rule")


@rule("override-matches-nothing", "warning", _OT, _FIRST_WINS, mend="a pattern that matches, or leave it out")
def override_matches_nothing(case: Case) -> Iterator[Found]:
    """A rule that no tensor of this model matches; neither engine says so."""
    for one in case.rules:
        if one.names == ():
            yield Found(
                f"-ot {_shown(one.written)}: matches no tensor of this model", _likely(case, one.written.pattern)
            )


def _likely(case: Case, pattern: str) -> str:
    if "exps" in pattern and not case.model.moe_layers:
        return "leave it out: the model has no routed experts; ffn_(up|gate|down)\\. are its dense ones"
    layers = case.model.n_layer - case.model.n_layer_nextn
    return f"names look like blk.0.ffn_down_exps.weight; the layers are 0 to {layers - 1}; a dot is \\."


@rule("override-never-wins", "warning", _OT, _FIRST_WINS, mend="put it before the broader rule")
def override_never_wins(case: Case) -> Iterator[Found]:
    """A rule of which every match was taken by a rule before it: the first that matches wins.

    Those that would have changed nothing are told together, for information.
    """
    taken: dict[str, Override] = {}
    idle: list[str] = []
    for one in case.rules:
        names = one.names or ()
        if names and all(name in taken for name in names):
            if {taken[name].device for name in names} == {one.written.device}:
                idle.append(_shown(one.written))
            else:
                yield _beaten(one.written, list(dict.fromkeys(_shown(taken[name]) for name in names)))
        taken = dict.fromkeys(names, one.written) | taken
    if idle:
        more = f" and {len(idle) - _SHOWN} more" if len(idle) > _SHOWN else ""
        message = f"{', '.join(idle[:_SHOWN])}{more}: rules before them send the same tensors to the same device"
        yield Found(message, "leave them out", severity="info")


def _beaten(written: Override, before: list[str]) -> Found:
    return Found(f"-ot {_shown(written)} never wins: {', '.join(before[:_SHOWN])} before it takes all its tensors")


def _shown(written: Override) -> str:
    return f"{written.pattern[:60]}={written.device[:40]}"


@rule(
    "bench-rules-by-semicolon", "warning", _OT, "llama.cpp tools/llama-bench/llama-bench.cpp: ';' between rules, ',' "
    "between tests", only="llama.cpp", mend="';' between the rules, in one -ot",
)  # fmt: skip
def bench_rules_by_semicolon(case: Case) -> Iterator[Found]:
    """llama-bench takes ',' in `-ot`, and a second `-ot`, for further tests, each with one of the rules."""
    split = [option for option in case.parsed.varied if option.startswith(("-ot ", "--override-tensor"))]
    if split:
        yield Found(f"{split[0][:80]}: llama-bench runs a test for each of the rules; the figures are for the first")


@rule(
    "merged-qkv-ignores-overrides", "warning", _OT, "ik_llama.cpp src/llama-load-tensors.cpp: the merged tensor is "
    "made in its layer's context", only="ik_llama.cpp", mend="leave out -mqkv",
)  # fmt: skip
def merged_qkv_ignores_overrides(case: Case) -> Iterator[Found]:
    """`-mqkv` puts attn_q, attn_k and attn_v of a layer where the layer is, whatever `-ot` says."""
    if not {"-mqkv", "--merge-qkv"} & set(case.flags.other):
        return
    moved = [
        name for one in case.rules for name in one.names or () if name.endswith(_QKV) and _elsewhere(case, one, name)
    ]
    if moved:
        yield Found(f"-mqkv ignores -ot for {moved[0]} and {len(moved) - 1} more: they stay with their layers")


def _elsewhere(case: Case, one: WrittenRule, name: str) -> bool:
    layer = layer_of(name)
    home = case.placement.layers[layer] if layer is not None else case.cpu
    return one.written.device != (CPU if home == case.cpu else case.devices[home].name)
