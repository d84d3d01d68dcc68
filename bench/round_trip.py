"""Every command of random advices, checked: the advice's own figures to the byte, inside the reserve, no rule broken.

    python -m bench.round_trip [--advices 1000] [--seed 1] [--budget-only]

An advice is made from flags; its commands are text. Each command goes through `check` as a user's would. What differs,
does not fit under the reserve, or draws an error or a warning is printed, and makes the exit code 1.
`--budget-only`: no commands; is what each config takes within what its machine gives? Of these machines some run
Windows or WSL, some have a card that drives a display, and a fifth have one memory for GPU and CPU.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from msgspec.structs import replace

from bench.requests import Request, random_request
from bench.stamp import stamp
from service.engine.advice import AdvisedConfig
from service.engine.advise import advise
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.config import Flags, Tool
from service.engine.errors import InvalidInput
from service.engine.hardware import Card, Hardware, Rig
from service.engine.hardware_text import parse_hardware
from service.engine.memory.figures import Memory
from service.engine.memory.predict import predict_memory
from service.engine.rules.all_rules import findings
from service.engine.rules.case import case_of
from service.engine.run.resolved import resolve_run
from service.engine.units import MIB

TOOLS: tuple[Tool, ...] = ("server", "bench")
_MOST_PRINTED = 100
_SYSTEMS = (None, "Ubuntu 24.04", "Windows 11", "WSL2")
_SHARING = (
    *("DGX Spark", "Strix Halo 128GB", "Strix Halo 128GB, Windows 11", "Mac Studio M3 Ultra 512GB"),
    *("MacBook Pro M4 Pro 24GB", "MacBook Air M1 8GB", "Mac Studio M2 Ultra 192GB"),
)
Outcome = tuple[Counter[str], list[str]]


def one_advice(seed: int) -> Outcome:
    """Return counts and faults of the advice to the request of this seed."""
    request = random_request(random.Random(seed))
    counts, wrong = Counter[str](), list[str]()
    try:
        body = advise(request.variants, request.hardware, request.goal, request.constraints)
    except InvalidInput:
        return Counter({"requests refused": 1}), wrong
    except Exception as error:  # the very thing that is looked for
        return counts, [f"seed {seed}: {request.model}, {type(error).__name__}: {error}"]
    counts["advices"] += 1
    counts["advices without a config"] += not body.configs
    rig = resolve(request.hardware)
    for config in body.configs:
        counts["configs"] += 1
        for tool in TOOLS:
            counts["commands"] += 1
            wrong += [f"seed {seed} #{config.rank} {tool}: {text}" for text in problems(request, config, rig, tool)]
    return counts, wrong


def within_budget(seed: int) -> Outcome:
    """Return counts, and what takes more than its machine gives, of the advice to the request of this seed."""
    rng = random.Random(seed)
    request = random_request(rng)
    try:
        hardware = _machine(rng, request.hardware)
        body = advise(request.variants, hardware, request.goal, request.constraints)
    except InvalidInput:
        return Counter({"requests refused": 1}), []
    rig, reserve, windows = resolve(hardware), request.constraints.reserve_mib, hardware.os in ("Windows 11", "WSL2")
    wrong = [f"seed {seed} #{c.rank}: {text}" for c in body.configs for text in over_budget(c, rig, reserve, windows)]
    n = len(body.configs)
    return Counter({"advices": 1, "configs": n, "advices without a config": not n}), wrong


def _machine(rng: random.Random, hardware: Hardware) -> Hardware:
    if rng.random() < 0.2:
        return parse_hardware(rng.choice(_SHARING))
    gpus = [replace(gpu, display=i == 0 and rng.random() < 0.5) for i, gpu in enumerate(hardware.gpus)]
    return replace(hardware, gpus=gpus, os=rng.choice(_SYSTEMS))


def over_budget(
    config: AdvisedConfig, rig: Rig, reserve_mib: int | Sequence[int] | None, under_windows: bool
) -> Iterator[str]:
    """Yield what a config takes of a device beyond what the machine gives: RAM, and each card less its reserve."""
    *cards, cpu = config.devices
    unified = {card.name for card in rig.cards if card.unified}
    in_ram = cpu.total_mib + sum(row.total_mib for row in cards if row.gpu in unified)
    if in_ram > rig.usable_ram / MIB and config.strategy != "experts from a drive":  # mapped: what RAM holds, it holds
        yield f"{in_ram:,.0f} MiB of RAM, of {rig.usable_ram / MIB:,.0f}"
    reserves = _reserves(rig, reserve_mib, under_windows)
    rooms = [(card.name, card.free / MIB - kept) for card, kept in zip(rig.cards, reserves, strict=True)]
    for row in cards:
        room = max(room for name, room in rooms if name == row.gpu)
        if row.total_mib > room:
            yield f"{row.device}: {row.total_mib:,.0f} MiB, of {room:,.0f} that its reserve leaves"


def _reserves(rig: Rig, stated_mib: int | Sequence[int] | None, under_windows: bool) -> tuple[float, ...]:
    if stated_mib is None:
        return tuple(_least_free(card, under_windows) for card in rig.cards)
    return tuple(float(stated_mib) if isinstance(stated_mib, int) else stated_mib[i] for i in range(len(rig.cards)))


def _least_free(card: Card, under_windows: bool) -> float:
    """MiB to keep free on a card. Windows lets a program have a card less 768 MiB at most, what is in use included."""
    usual = 1024.0 if card.display else 512.0
    if not under_windows or card.unified:
        return usual
    return max(usual, (min(768 * MIB, card.total / 5) - (card.total - card.free)) / MIB)


def problems(request: Request, config: AdvisedConfig, rig: Rig, tool: Tool) -> Iterator[str]:
    """Yield the faults of one command of a config."""
    command = getattr(config.commands, tool)
    model = next(v.model for v in request.variants if v.name == config.variant)
    reserve = request.constraints.reserve_mib
    case = case_of(parse(command, config.engine), model, rig, command, "cuda", reserve_mib=reserve)
    free = [device.free for device in case.devices]
    stated = predict_memory(
        resolve_run(config.engine, model, _as_run(config, case.tool), rig, case.devices, tool=case.tool)
    )
    if case.memory.devices != stated.devices or case.memory.placement != stated.placement:
        yield f"another memory than the flags': {command}"
    if tool == "server":
        yield from _other_figures(config, [row.total_mib for row in case.table])
    yield from _over_the_reserve(config, case.memory, free)
    for found in findings(case):
        said = config.strategy == "experts from a drive" and found.rule == "ram-too-small"
        if found.severity != "info" and not said:
            yield f"{found.rule}: {found.message}"


def _other_figures(config: AdvisedConfig, totals: list[float]) -> Iterator[str]:
    said = [row.total_mib for row in config.devices]
    if said != totals:
        yield f"the advice says {said} MiB, the check {totals}"


def _as_run(config: AdvisedConfig, tool: Tool) -> Flags:
    """A benchmark of llama.cpp has one slot, and a smaller micro-batch where only that fits."""
    if tool != "bench" or config.engine != "llama.cpp":
        return config.flags
    smaller = config.smaller_benchmark
    return replace(config.flags, n_parallel=1, n_ubatch=smaller.n_ubatch if smaller else config.flags.n_ubatch)


def _over_the_reserve(config: AdvisedConfig, memory: Memory, free: list[int]) -> Iterator[str]:
    for i, (row, room) in enumerate(zip(config.devices, free, strict=False)):
        total = memory.total(i)
        if total.expected + row.reserve_mib * MIB > room or total.high > room:
            needs, has = total.high / MIB, room / MIB
            yield f"{row.device}: {needs:,.0f} MiB and a reserve of {row.reserve_mib:,.0f}, has {has:,.0f}"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advices", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget-only", action="store_true")
    options = parser.parse_args()
    print(stamp(), flush=True)
    counts, n_wrong = Counter[str](), 0
    with ProcessPoolExecutor() as pool:
        of_one = within_budget if options.budget_only else one_advice
        seeds = range(options.seed, options.seed + options.advices)
        for seed, (more, found) in zip(seeds, pool.map(of_one, seeds), strict=True):
            counts += more
            print(f"seed {seed}: {_counted(more)}, {len(found)} problems", flush=True)
            for text in found[: max(_MOST_PRINTED - n_wrong, 0)]:
                print(text, flush=True)
            n_wrong += len(found)
    print(_counted(counts))
    print(f"{n_wrong} problems")
    return 1 if n_wrong else 0


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)


if __name__ == "__main__":
    sys.exit(main())
