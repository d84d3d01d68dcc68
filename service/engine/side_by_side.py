"""Several models on one machine: which of them fit in memory side by side, and the files that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import ceil

import msgspec

from service.engine.advice import AdvisedConfig
from service.engine.commands.config_files import Served
from service.engine.commands.parse import parse
from service.engine.config import CPU
from service.engine.goal import Constraints
from service.engine.hardware import Rig
from service.engine.purpose import writes_text
from service.engine.run.devices import visible_cards
from service.engine.units import GIB, MIB, gib

MAX_MODELS = 8


class SideBySide(msgspec.Struct, frozen=True, kw_only=True):
    """`together`: largest sets of models, by name, that fit at once; none where no two do. `text`: that in words."""

    together: list[list[str]]
    text: str


def side_by_side(configs: Mapping[str, AdvisedConfig], rig: Rig) -> SideBySide:
    """Return which of these configs, one a model, fit on their machine `rig` at the same time.

    They fit where on every device the sum of what the engines take (`total_high_mib`: each process has its own context
    and pools) is within the capacity. At most `MAX_MODELS` are compared; sizes are in MiB.
    """
    needs = {name: memory_by_device(config, rig) for name, config in list(configs.items())[:MAX_MODELS]}
    found: list[tuple[str, ...]] = []
    for size in range(len(needs), 1, -1):
        for names in combinations(needs, size):
            inside = any(set(names) <= set(larger) for larger in found)
            if not inside and not _short([needs[name] for name in names]):
                found.append(names)
    return SideBySide(together=[list(names) for names in found], text=_text(needs, found))


def served(name: str, config: AdvisedConfig) -> Served:
    """Return a config as a model of a file for other programs, with its memory and speed as remarks."""
    use = ", ".join(f"{d.device} {d.total_mib:,.0f} of {d.capacity_mib:,.0f} MiB" for d in config.devices)
    speed = config.speed[-1]
    reads_only = not writes_text(config.flags.other)
    rate = f"{speed.pp_tps:,.0f} t/s of input" if reads_only else f"{speed.tg_tps:,.1f} t/s"
    about = f"{config.variant} with {config.engine}: about {rate} {speed.after}"
    return Served(
        name=name, engine=config.engine, server=config.commands.server, docker=config.commands.docker,
        systemd=config.commands.systemd, remarks=(about, use),
    )  # fmt: skip


def memory_by_device(config: AdvisedConfig, rig: Rig) -> dict[str, tuple[float, float]]:
    """Return what a config takes at most and what there is, in MiB, by device of the machine: `RAM`, `GPU 0`, ….

    GPUs are numbered as the rig's cards are, whatever the config's variables make the engine call them; those that
    have no memory of their own count as RAM, of which there is what a model may take.
    """
    parsed = parse(config.commands.server, config.engine)
    cards = iter(visible_cards(parsed.env, rig))
    found: dict[str, tuple[float, float]] = {}
    for device in config.devices:
        card = None if device.device == CPU else next(cards)
        if card is None or rig.cards[card].one_pool:
            taken, _ = found.get("RAM", (0.0, 0.0))
            found["RAM"] = (taken + device.total_high_mib, rig.usable_ram / MIB)
        else:
            found[f"GPU {card}"] = (device.total_high_mib, device.capacity_mib)
    return found


def room_left(others: Sequence[AdvisedConfig], rig: Rig, constraints: Constraints) -> Constraints | None:
    """Return `constraints` of a model that runs at the same time as `others`; None where they leave no RAM.

    On every GPU what they take is reserved with what is reserved anyway; of the RAM they leave the rest.
    """
    taken: dict[str, float] = {}
    for config in others:
        for device, (mib, _) in memory_by_device(config, rig).items():
            taken[device] = taken.get(device, 0.0) + mib
    kept = rig.reserves(range(len(rig.cards)), constraints.reserve_mib)
    reserve = [ceil(n_bytes / MIB + taken.get(f"GPU {card}", 0.0)) for card, n_bytes in enumerate(kept)]
    return _limited(constraints, reserve, rig.usable_ram / GIB - taken.get("RAM", 0.0) * MIB / GIB)


def even_share(n_models: int, rig: Rig, constraints: Constraints) -> Constraints | None:
    """Return `constraints` of each of `n_models` that have as much of every device each; None where that is no RAM."""
    kept = rig.reserves(range(len(rig.cards)), constraints.reserve_mib)
    totals = [card.total for card in rig.cards]
    reserve = [ceil((total - (total - n_bytes) / n_models) / MIB) for total, n_bytes in zip(totals, kept, strict=True)]
    return _limited(constraints, reserve, rig.usable_ram / GIB / n_models)


def _limited(constraints: Constraints, reserve_mib: list[int], ram_gib: float) -> Constraints | None:
    ram = min(ram_gib, constraints.max_ram_gib or ram_gib)
    return msgspec.structs.replace(constraints, reserve_mib=reserve_mib, max_ram_gib=ram) if ram > 0 else None


def _short(needs: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """By how many MiB each device is too small for all of them."""
    missing: dict[str, float] = {}
    for device in {name for one in needs for name in one}:
        uses = [one[device] for one in needs if device in one]
        over = sum(total for total, _ in uses) - min(capacity for _, capacity in uses)
        if over > 0:
            missing[device] = over
    return missing


def _text(needs: Mapping[str, Mapping[str, tuple[float, float]]], found: Sequence[Sequence[str]]) -> str:
    if found and len(found[0]) == len(needs):
        return "All of them fit side by side."
    said = [f"{' and '.join(names)} fit side by side." for names in found]
    for pair in combinations(needs, 2):
        if not any(set(pair) <= set(names) for names in found):
            short = _short([needs[name] for name in pair])
            where = ", ".join(f"{device} lacks {gib(mib * MIB):.1f} GiB" for device, mib in sorted(short.items()))
            said.append(f"{' and '.join(pair)} do not: {where}. Unload one before the other starts.")
    return " ".join(said)
