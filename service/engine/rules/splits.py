"""`-ot` rules that do nothing or stop the engine; how several GPUs split layers, and modes llama.cpp cannot take."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands.reader import NOT_SET, VARIABLE
from service.engine.commands.tables import option_named
from service.engine.config import CPU, Override
from service.engine.overrides import MAX_RULES
from service.engine.rules.case import Case
from service.engine.rules.rule import CARDS, OVERRIDES, SPLIT_MODES, Found, rule
from service.engine.run.devices import VISIBLE, first_unknown_card
from service.engine.units import GIB

_ALIKE = 0.05  # cards of one kind differ by what the driver keeps
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
    return f"names look like blk.0.ffn_down_exps.weight; the layers are 0 to {layers - 1}; write a dot as \\."


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


@rule(
    "split-left-to-chance", "warning", CARDS,
    "ik_llama.cpp src/llama.cpp:4434-4464, llama.cpp src/llama-model.cpp:1589-1625", fix="-ts, one share for each GPU",
)  # fmt: skip
def split_left_to_chance(case: Case) -> Iterator[Found]:
    """Without `-ts` the engine splits by the memory free at startup, so the split may differ each time."""
    sizes = [device.total for device in case.devices]
    if len(sizes) < 2 or case.flags.tensor_split or case.flags.split_mode == "none" or case.flags.n_gpu_layers <= 0:
        return
    if (max(sizes) - min(sizes)) / max(sizes) <= _ALIKE:
        return
    by = case.spec.memory.divides_by
    shares = ",".join(f"{device.free / GIB:.0f}" for device in case.devices)
    yield Found(
        f"the {len(sizes)} GPUs differ and -ts is not set: layers are split by {by} at startup, which may vary",
        f"-ts {shares}",
    )


@rule("shares-without-gpu", "warning", CARDS, "common_params: -ts of both engines", fix="one share for each GPU")
def shares_without_gpu(case: Case) -> Iterator[Found]:
    """More `-ts` shares than GPUs."""
    given = len(case.parsed.flags.tensor_split)
    if given > len(case.devices):
        kept = case.parsed.flags.tensor_split[: len(case.devices)]
        fix = f"-ts {','.join(f'{share:g}' for share in kept)}" if any(kept) else "leave out -ts"
        yield Found(f"-ts has {given} shares for {len(case.devices)} GPUs: the rest is ignored", fix)


@rule(
    "card-without-share", "info", CARDS, "ik_llama.cpp src/llama.cpp:8351-8370: a context on every visible card; "
    "missing -ts entries are 0", fix="CUDA_VISIBLE_DEVICES without it, or a share for it",
)  # fmt: skip
def card_without_share(case: Case) -> Iterator[Found]:
    """A visible card that `-ts` gives nothing still holds a context; not reported where `-ot` sends experts to it."""
    shares = case.flags.tensor_split
    used = set(case.placement.tensors.values())
    idle = [
        device.name
        for i, device in enumerate(case.devices)
        if shares and not (shares[i] if i < len(shares) else 0) and i not in used
    ]
    if idle and any(shares) and case.flags.split_mode == "layer" and case.flags.n_gpu_layers > 0:
        yield Found(
            f"-ts gives {', '.join(idle)} nothing, and nothing else is placed there: only a context takes memory"
        )


@rule("main-gpu-unknown", "error", CARDS, "llama_model_load of both engines", fix="-mg 0", refused="loading")
def main_gpu_unknown(case: Case) -> Iterator[Found]:
    """`-mg` names a GPU that is not there."""
    main = case.parsed.flags.main_gpu
    if main is not None and case.devices and not 0 <= main < len(case.devices):
        yield Found(f"-mg {main}: GPUs are numbered 0 to {len(case.devices) - 1}; the figures are for -mg 0")


@rule(
    "main-gpu-without-effect", "warning", CARDS,
    "ik_llama.cpp src/llama.cpp:4639-4657, llama.cpp src/llama.cpp: the main GPU is used with -sm none and row only",
    fix="leave out -mg; CUDA_VISIBLE_DEVICES puts a card first",
)  # fmt: skip
def main_gpu_without_effect(case: Case) -> Iterator[Found]:
    """`-mg` chooses the one card of `-sm none`; with layers split over several cards it changes nothing."""
    main = case.parsed.flags.main_gpu  # `--fit` sets one of its own
    if not main or len(case.devices) < 2 or case.flags.split_mode not in ("layer", "graph"):
        return
    first = case.devices[0].name
    names = [case.rig.cards[device.gpu].name for device in case.devices]
    cards = ", ".join(f"{i} is {name}" for i, name in enumerate(names))
    listed = f" ({cards})" if len(set(names)) > 1 else ""
    yield Found(
        f"-mg {main} does nothing with -sm {case.flags.split_mode}: {first} stays the first card, to which "
        f"experts in RAM are copied for prompts. CUDA_VISIBLE_DEVICES can list another card first{listed}",
        changes=lambda: iter([[*_made_first(case, main), "leave out -mg"]]),
    )


def _made_first(case: Case, main: int) -> Iterator[str]:
    """Show the card that `-mg` names before the others, where nothing names devices by their number."""
    named = case.flags.tensor_split or (
        case.parsed.flags.overrides and any(r.device != CPU for r in case.parsed.flags.overrides)
    )
    if not named and not set(VISIBLE) & set(case.parsed.env):
        rest = (str(i) for i in range(len(case.devices)) if i != main)
        yield f"CUDA_VISIBLE_DEVICES={','.join([str(main), *rest])} before the command; leave out -mg"


@rule("split-mode-approximate", "info", SPLIT_MODES, "docs/check.md")
def split_mode_approximate(case: Case) -> Iterator[Found]:
    """The memory of some split modes is a rough figure here, and so is the speed of several."""
    mode = case.flags.split_mode
    if len(case.devices) < 2 or mode not in ("graph", "attn", "row", "tensor"):
        return
    speed = "so is its speed" if mode == "attn" else "its speed comes from a formula"
    how = case.spec.memory.roughly_split(case.model, case.flags, case.memory.basis)
    if how is None:
        yield Found(f"-sm {mode}: {speed} and is approximate")
    else:
        yield Found(f"-sm {mode}: {how}, {speed}: all of it is approximate")
