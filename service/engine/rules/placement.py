"""Whole layers in RAM, room on the cards for experts, and which card layers belong to."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from service.engine.commands.expert_rules import expert_override
from service.engine.commands.tables import option_named
from service.engine.config import Flags
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule
from service.engine.tensor_names import layer_of

_COUNT = "what--ngl--cmoe-and--ncmoe-count"


@rule(
    "layers-in-ram", "warning", _COUNT, "ik_llama.cpp pull request 232 (attention on the GPU: TG 1.58 times as fast); "
    "computed: memory and speed with all layers on GPUs", fix="-ngl 999, with -ot exps=CPU where experts do not fit",
    about="speed",
)  # fmt: skip
def layers_in_ram(case: Case) -> Iterator[Found]:
    """`-ngl` leaves whole layers in RAM, with attention and cache, or only the head, although all would fit.

    For a mixture of experts: although everything but its experts would fit. Where the engine places the layers itself,
    `fit-places-itself` says so.
    """
    n = case.flags.n_gpu_layers
    if not case.devices or case.fit_places or n > case.model.n_layer or n < 0:
        return
    for fixed, text in _all_layers(case):
        if not case.fits(fixed):
            continue
        pp, tg = case.gain(run=case.run_of(fixed))
        if tg >= WORTH_SAYING:
            what = (
                "the output head"
                if n == case.model.n_layer and case.spec.memory.head_moves_last
                else _counted(sum(where == case.cpu for where in case.placement.layers))
            )
            words = text.rpartition("; ")[2]
            message = f"-ngl {n} leaves {what} in RAM: with {words} TG would be about {tg:.1f} times as fast"
            yield Found(f"{message}, PP {pp:.1f} times, and everything fits", text, pp=pp, tg=tg)
        return


def _counted(n: int) -> str:
    return f"{n} layer{'' if n == 1 else 's'}"


def _all_layers(case: Case) -> Iterator[tuple[Flags, str]]:
    whole = msgspec.structs.replace(case.flags, n_gpu_layers=999)
    yield whole, "-ngl 999"
    if case.model.moe_layers and not case.flags.cpu_moe:
        yield (
            msgspec.structs.replace(whole, overrides=(), n_cpu_moe=0, cpu_moe=True),
            without_rules(case) + "-ngl 999 -ot exps=CPU",
        )


def without_rules(case: Case) -> str:
    """Return what leaves out the options of the command that place experts; "" where there are none."""
    fields = {name: option.field for name in case.parsed.used if (option := option_named(name, False))}
    named = [name for name, field in fields.items() if field in ("overrides", "n_cpu_moe", "cpu_moe")]
    return f"leave out {' and '.join(named)}; " if named else ""


_RESERVE_MIB, _RESERVE = 1024, 0.04  # left free on a card in addition to what is proposed, of its capacity
_FASTER = 1.15  # times the bandwidth of another card


@rule(
    "room-for-experts", "info", "one-more-layer-of-experts",
    "ik_llama.cpp discussion 477 (5 layers 3.40 t/s, 24 layers 5.77); computed: memory and speed with the rule",
    fix="-ot for more layers before the other rules, or a smaller -ncmoe", about="speed",
)  # fmt: skip
def room_for_experts(case: Case) -> Iterator[Found]:
    """Room on the cards for some of the experts that are in RAM, where that makes tokens clearly faster."""
    layers = _layers_in_ram(case)
    if not layers or not case.devices or case.flags.n_gpu_layers <= case.model.n_layer:
        return
    if case.flags.split_mode not in ("layer", "row") or not case.all_fits:
        return
    after, filled = _filled(case)
    count = sum(n for n, _ in filled.values())
    if not filled or count >= len(layers):
        return
    pp, tg = case.gain(run=after.run)
    if tg >= WORTH_SAYING:
        rows = [case.table[device] for device in sorted(filled)]
        rooms = [(f"{row.capacity_mib - row.total_high_mib:,.0f}", row.device) for row in rows]
        (room, device), more = rooms[0], "".join(f", {room} on {device}" for room, device in rooms[1:])
        about = "about " if case.flags.split_mode == "row" else ""  # its memory is computed as for -sm layer
        message = f"{about}{room} MiB are free on {device}{more}: the experts of {count} more layers would fit"
        yield Found(f"{message}, and TG would be {about}{tg:.2f} times as fast", _together(filled), pp=pp, tg=tg)


def onto_cards(case: Case) -> Iterator[list[str]]:
    """Yield the change that takes as much out of RAM as the cards have room for, if they have some."""
    changes: list[str] = []
    if 0 <= case.flags.n_gpu_layers <= case.model.n_layer and (whole := case.changed("-ngl 999")):
        case, changes = (whole, ["-ngl 999"]) if all(row.fits for row in whole.table[:-1]) else (case, [])
    if case.flags.split_mode not in ("layer", "none"):
        return
    _, filled = _filled(case, cards_only=True)
    if changes := [*changes, *([_together(filled)] if filled else [])]:
        yield ["; ".join(changes)]


def more_experts(case: Case) -> str:
    """Return the change that takes as many experts out of RAM as the cards have room for; "" where they have none."""
    return _together(_filled(case)[1])


def _layers_in_ram(case: Case) -> dict[int, int]:
    """Layers all of whose experts are in RAM, with their bytes."""
    found: dict[int, int] = {}
    for name in case.experts_in_ram:
        layer = layer_of(name)
        if layer is not None:
            found[layer] = found.get(layer, 0) + case.model.by_name[name].nbytes
    return {i: n for i, n in found.items() if case.placement.layers[i] < case.cpu}


def _rooms(case: Case) -> list[int]:
    """Bytes of each card that may be filled: all but a reserve."""
    reserved = [max(_RESERVE_MIB, _RESERVE * row.capacity_mib) for row in case.table[:-1]]
    rows = zip(case.table, reserved, strict=False)
    return [int((row.capacity_mib - row.total_high_mib - keep) * 2**20) for row, keep in rows]


def _bandwidth(case: Case, device: int) -> float:
    return case.rig.cards[case.devices[device].gpu].bandwidth_gbs


def _filled(case: Case, *, cards_only: bool = False) -> tuple[Case, dict[int, tuple[int, str]]]:
    """Return the case with as many experts on the cards as fit, and of each card how many layers and what to write.

    `cards_only`: RAM may be too small still.
    """
    filled: dict[int, tuple[int, str]] = {}
    for device in sorted(range(case.cpu), key=lambda i: -_bandwidth(case, i)):
        layers, room = _layers_in_ram(case), _rooms(case)[device]
        own = sorted(i for i in layers if case.placement.layers[i] == device)
        n = 0
        while n < len(own) and sum(layers[i] for i in own[: n + 1]) <= room:
            n += 1
        for count in range(n, max(n - 3, 0), -1):
            text = _with_more(case, device, own[:count])
            after = case.changed(text)
            if after and all(row.fits for row in (after.table[:-1] if cards_only else after.table)):
                case, filled[device] = after, (count, text)
                break
    return case, filled


def _together(filled: dict[int, tuple[int, str]]) -> str:
    return "; ".join(text for _, text in filled.values())


def _with_more(case: Case, device: int, layers: list[int]) -> str:
    flags = case.flags
    if (flags.n_cpu_moe or flags.cpu_moe) and not flags.overrides and case.cpu == 1:
        now = case.model.n_layer if flags.cpu_moe else min(flags.n_cpu_moe, case.model.n_layer)
        return f"-ncmoe {max(now - len(layers), 0)}{'; leave out -cmoe' if flags.cpu_moe else ''}"
    before = " before the other rules" if flags.overrides or flags.cpu_moe or flags.n_cpu_moe else ""
    return f"-ot '{expert_override(layers)}={case.devices[device].name}'{before}"


@rule(
    "layers-on-slower-card", "warning", "unlike-cards",
    "computed: memory and speed with other shares; ik_llama.cpp issue 629", fix="-ts with more for the faster card",
    about="speed",
)  # fmt: skip
def layers_on_slower_card(case: Case) -> Iterator[Found]:
    """Layers on a slow card while a clearly faster one has room for them, and prompts lose nothing."""
    speeds = [_bandwidth(case, i) for i in range(case.cpu)]
    if case.flags.split_mode != "layer" or case.cpu < 2 or max(speeds) < _FASTER * min(speeds):
        return
    if case.flags.n_gpu_layers <= 0 or not case.all_fits:
        return
    found = [one for shares in _shares(case, speeds) if (one := _gain_with(case, shares))]
    best = max((one for one in found if one[1] >= 1), default=None)
    if best is not None and best[0] >= WORTH_SAYING:
        tg, pp, text = best
        message = f"{case.devices[speeds.index(max(speeds))].name} is faster and has room for more layers"
        yield Found(
            f"{message}: with {text}, TG would be {tg:.2f} times as fast, PP {pp:.2f} times", text, pp=pp, tg=tg
        )


def _shares(case: Case, speeds: list[float]) -> Iterator[tuple[float, ...]]:
    """Shares by free memory, with more and more for the faster cards."""
    for power in (0, 1, 2, 3):
        weights = [device.free * speed**power for device, speed in zip(case.devices, speeds, strict=True)]
        yield tuple(float(max(round(100 * w / sum(weights)), 1)) for w in weights)


def _gain_with(case: Case, shares: tuple[float, ...]) -> tuple[float, float, str] | None:
    """Gains of TG and PP with other shares, and how to write them; None where they do not fit."""
    fixed = msgspec.structs.replace(case.flags, tensor_split=shares)
    if not case.fits(fixed):
        return None
    pp, tg = case.gain(run=case.run_of(fixed))
    return tg, pp, f"-ts {','.join(f'{share:.0f}' for share in shares)}"
