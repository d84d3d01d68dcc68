"""`-ot` rules that do nothing, or that the engine stops at."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands.reader import NOT_SET, VARIABLE
from service.engine.commands.tables import option_named
from service.engine.config import Override
from service.engine.overrides import MAX_RULES
from service.engine.rules.case import Case
from service.engine.rules.rule import OVERRIDES, Found, rule
from service.engine.run.devices import VISIBLE, first_unknown_card

_FIRST_WINS = "ik_llama.cpp src/llama-load-tensors.cpp:458-486, llama.cpp src/llama-model-loader.cpp:1234-1262"
_SHOWN = 4


@rule(
    "override-refused", "error", OVERRIDES, "ik_llama.cpp common/common.cpp:849, llama.cpp common/arg.cpp:252",
    fix="REGEX=DEVICE with a device of this machine, without ',' and '=' in the regex", refused="options",
)  # fmt: skip
def override_refused(case: Case) -> Iterator[Found]:
    """Patterns that std::regex refuses or that take too long, devices that do not exist; a warning where there are more
    rules than are read here."""
    for one in case.rules:
        if one.refused is not None:
            message = f"-ot {_shown(one.written)}: {one.refused}; the figures are without this rule"
            yield Found(message, f"leave out -ot {one.written.pattern}={one.written.device}")
    if len(case.rules) > MAX_RULES:
        message = f"{len(case.rules)} -ot rules: the figures are for the first {MAX_RULES}"
        yield Found(message, "write layers as (1|2|3) in one rule", severity="warning")


@rule(
    "device-unknown", "error", "which-card-is-cuda0", "parse_device_list (ik_llama.cpp common.cpp, llama.cpp arg.cpp): "
    "names are compared exactly", fix="a name of this machine's devices", refused="options",
)  # fmt: skip
def device_unknown(case: Case) -> Iterator[Found]:
    """Names in `-dev` that are not devices of this machine."""
    for name in (name for name in case.unknown_devices if not (case.has_remote and name.startswith("RPC"))):
        there = ", ".join(device.name for device in case.devices) or "none"
        right = next((device.name for device in case.devices if device.name.lower() == name.lower()), "")
        yield Found(f"-dev {name[:40]}: there is no such device; in use: {there}", right and f"-dev {right}")


@rule(
    "card-not-there", "warning", "which-card-is-cuda0", "CUDA programming guide, CUDA environment variables: an entry "
    "that names no card hides itself and all that follow", fix="numbers or UUIDs of this machine's cards",
)  # fmt: skip
def card_not_there(case: Case) -> Iterator[Found]:
    """The variable that shows cards to the engine names one that this machine does not have, or is `$GPU`."""
    for name in VISIBLE:
        if VARIABLE.fullmatch(case.parsed.env.get(name, "")):
            message = f"{name}={case.parsed.env[name][:60]}: {NOT_SET}; the figures are for all cards"
            yield Found(message, "write its value")
    wrong = first_unknown_card(case.parsed.env, case.rig)
    if wrong:
        seen = ", ".join(f"{device.name} ({case.rig.cards[device.gpu].name})" for device in case.devices)
        yield Found(f"{wrong}: no such card is known here; it and all after it are hidden, leaving {seen or 'no GPU'}")


@rule("override-matches-nothing", "warning", OVERRIDES, _FIRST_WINS, fix="a pattern that matches, or leave it out")
def override_matches_nothing(case: Case) -> Iterator[Found]:
    """A rule that no tensor of this model matches; neither engine says so."""
    for one in case.rules:
        if one.names == ():
            yield Found(
                f"-ot {_shown(one.written)}: matches no tensor of this model", _likely(case, one.written.pattern)
            )
    for name in () if case.model.moe_layers else case.parsed.used:
        option = option_named(name, bench=False)
        if option is not None and option.field in ("cpu_moe", "n_cpu_moe"):
            yield Found(f"{name}: the model has no routed experts, so nothing moves", f"leave out {name}")


def _likely(case: Case, pattern: str) -> str:
    if "exps" in pattern and not case.model.moe_layers:
        return "leave it out: the model has no routed experts; ffn_(up|gate|down)\\. are its dense ones"
    layers = case.model.n_layer - case.model.n_layer_nextn
    return f"names look like blk.0.ffn_down_exps.weight; the layers are 0 to {layers - 1}; a dot is \\."


@rule("override-never-wins", "warning", OVERRIDES, _FIRST_WINS, fix="put it before the broader rule")
def override_never_wins(case: Case) -> Iterator[Found]:
    """A rule whose matches were all taken by earlier rules: the first that matches wins.

    Those that would have changed nothing are listed together, for information.
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
    return Found(f"-ot {_shown(written)} never wins: {', '.join(before[:_SHOWN])} before it takes all of its tensors")


def _shown(written: Override) -> str:
    return f"{written.pattern[:60]}={written.device[:40]}"
