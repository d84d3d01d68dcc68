"""What an answer says besides its configs: the headline, the refusals, and what was assumed about the goal."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.advice import AdvisedConfig, Refusal
from service.engine.catalogue.budget import usable_ram
from service.engine.config import Engine
from service.engine.goal import Constraints, Goal, GoalRequest, resolve_goal
from service.engine.hardware import Assumption, Rig
from service.engine.planner.pricing.fit import Shortfall, in_mib
from service.engine.planner.ranking.rank import Contender, beginning, reaches
from service.engine.planner.search.options import kept_placement
from service.engine.planner.search.outcome import Outcome, SearchCase
from service.engine.purpose import purpose_of
from service.engine.units import GIB

_ANY_CONTEXT = 1 << 24


def headline(
    configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], refused: Sequence[Refusal], rig: Rig, goal: Goal
) -> str:
    """Return the headline, in words for newcomers: whether it runs, how fast, and with how much memory."""
    ram_assumed = any(a.field == "hardware.ram.total_gb" for a in rig.assumed)
    if not configs:
        return _nothing(refused) + (f" This assumes {_ram(rig)} of RAM: say how much there is." if ram_assumed else "")
    first, speed = configs[0], configs[0].speed[-1]
    fits = "Yes" if reaches(ranked[0].speed, goal) else _below_the_minimum(configs, ranked, goal)
    word = beginning(fits, first.loss_percent)
    rate, total = f"{speed.tg_tps:,.1f} t/s ({speed.tg_low:,.1f} to {speed.tg_high:,.1f})", ""
    if purpose_of(ranked[0].problem.model) != "text":
        rate = f"{speed.pp_tps:,.0f} t/s of input ({speed.pp_low:,.0f} to {speed.pp_high:,.0f})"
    elif (all_of := first.at_once) is not None:
        low, high = all_of.low / all_of.requests, all_of.high / all_of.requests
        rate = f"{all_of.each:,.1f} t/s ({low:,.1f} to {high:,.1f}) for each of {all_of.requests} concurrent requests"
        total = f"{all_of.tps:,.0f} in total, "
    return (
        f"{word}: {first.variant} with {first.engine}, about {rate} {speed.after}, {total}"
        f"{_quality(first)}with {_memory(first, rig)}{', RAM assumed' if ram_assumed else ''}."
    )


def drive_headline(config: AdvisedConfig, nothing_fits: str) -> str:
    """Return the headline of a config that reads experts from a drive. `nothing_fits`: the one of `headline`."""
    speed = config.speed[-1]
    return (
        f"Only slowly, from a drive: {config.variant} with {config.engine}, about {speed.tg_tps:,.1f} t/s "
        f"({speed.tg_low:,.1f} to {speed.tg_high:,.1f}) {speed.after}, {_quality(config)}with experts "
        f"that do not fit in RAM read from an NVMe drive. Without the drive, {nothing_fits.removeprefix('No: ')}"
    )


def _nothing(refused: Sequence[Refusal]) -> str:
    short = [r for r in refused if r.short_by_mib is not None]
    if short:
        nearest = min(short, key=lambda r: r.short_by_mib or 0)
        change = f" It would fit with {nearest.smallest_change}." if nearest.smallest_change else ""
        return (
            f"No: nothing here fits. {nearest.variant} with {nearest.engine} comes closest: {nearest.reason}.{change}"
        )
    reasons = {r.engine: r.reason for r in refused}
    return f"No: {'; '.join(reasons.values())}." if reasons else "No: there is nothing to try."


def _below_the_minimum(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], goal: Goal) -> str:
    """The headline's beginning where the first config misses the goal's minimum: which of the configs that reach
    it loses least, if any does.
    """
    reaching = [(one.loss, c.rank, c) for c, one in zip(configs, ranked, strict=False) if reaches(one.speed, goal)]
    if not reaching:
        return f"It fits, but nothing here reaches the goal's {_minimum(goal)}"
    *_, faster = min(reaching, key=lambda one: one[:2])
    return f"It fits, but is slower than the goal's {_minimum(goal)}, which #{faster.rank} ({faster.variant}) reaches"


def _minimum(goal: Goal) -> str:
    wanted = ((goal.min_tg, "t/s"), (goal.min_pp, "t/s for prompts"))
    return " and ".join(f"{least:g} {unit}" for least, unit in wanted if least)


def _quality(config: AdvisedConfig) -> str:
    """What the variant loses, for the headline; empty where that is not known."""
    if config.loss_percent is None:
        return ""
    low, expected, high = config.loss_percent
    if expected < 0.05:
        return "perplexity as at 16-bit, "
    digits = 0 if expected >= 10 else 1
    return f"perplexity about {expected:,.{digits}f} % ({low:,.{digits}f} to {high:,.{digits}f}) above 16-bit, "


def _memory(config: AdvisedConfig, rig: Rig) -> str:
    gpus = [d for d in config.devices if d.device != "CPU"]
    if gpus and rig.one_pool:
        return f"{sum(d.total_mib for d in config.devices) / 1024:.0f} of the {_ram(rig)} that GPU and CPU share"
    parts = []
    if gpus:
        used, there = sum(d.total_mib for d in gpus) / 1024, sum(d.capacity_mib for d in gpus) / 1024
        parts.append(f"{used:.0f} of {there:.0f} GiB on {'the GPU' if len(gpus) == 1 else f'{len(gpus)} GPUs'}")
    ram = next(d.total_mib for d in config.devices if d.device == "CPU") / 1024
    parts.append(f"{ram:.0f} of {_ram(rig)} in RAM" if ram >= 0.5 else "almost nothing in RAM")
    return " and ".join(parts)


def _ram(rig: Rig) -> str:
    return f"{rig.ram_bytes / GIB:.0f} GiB"


def refusal(engine: Engine, variant: str, outcome: Outcome, goal: Goal) -> Refusal:
    """Return why an engine cannot run a variant here. `outcome`: of a search without contenders."""
    if outcome.shortfall is None:
        return Refusal(
            variant=variant, engine=engine, kind="engine", reason=outcome.refusal or "nothing could be tried"
        )
    short = outcome.shortfall
    by = in_mib(short.n_bytes)
    apart = any(not card.unified for card in outcome.case.rig.cards)
    where = f"on {short.device}" if short.device != "RAM" else "RAM and VRAM together" if apart else "RAM"
    return Refusal(
        variant=variant,
        engine=engine,
        kind="memory",
        reason=f"{by:,} MiB too little {where}{_as_kept(outcome.case.constraints)}",
        short_by_mib=by,
        smallest_change=_smallest_change(short, by, goal, outcome.case),
    )


def _as_kept(constraints: Constraints) -> str:
    """Which flags that the user keeps place the model, so that nothing else was tried; empty if none does."""
    kept = kept_placement(constraints)
    return f", with everything placed by the kept {kept} (without it, more placements are tried)" if kept else ""


def _smallest_change(short: Shortfall, by: int, goal: Goal, case: SearchCase) -> str:
    less = f"a context below {goal.context:,} tokens"
    if short.device == "RAM":
        other = "fewer bits per weight" if short.n_bytes < case.model.n_bytes else less
        return f"{more_ram(case.rig, short.n_bytes)} GiB more RAM or {other}"
    return f"{by:,} MiB more free on {short.device}, or {less}"


def more_ram(rig: Rig, n_bytes: int) -> int:
    """Return how many GiB more RAM give a model so many bytes more: the system keeps a share of those too."""

    def usable(gib: int) -> int:
        return usable_ram(rig.ram_bytes + gib * GIB, rig.os, rig.cpu_model, rig.sockets, reported=False)

    fewest = -(-n_bytes // GIB)
    return next((gib for gib in range(fewest, 2 * fewest + 2) if usable(gib) - usable(0) >= n_bytes), fewest)


def goal_assumptions(asked: GoalRequest, goal: Goal, n_ctx_train: int) -> list[Assumption]:
    """Return the assumptions where the model's trained context is too short for the preset's numbers, or the user's."""
    preset = resolve_goal(asked, _ANY_CONTEXT)
    beyond = goal.context > n_ctx_train * goal.parallel
    why = f"as asked; the model was trained for {n_ctx_train:,}, and llama.cpp's server uses no more for one request"
    affected = "the cache, and answers beyond that length"
    long = [Assumption("goal.context", f"{goal.context:,}", why, affected)] if beyond else []
    return long + [
        Assumption(
            f"goal.{name}",
            f"{taken:,}",
            f"the preset's {meant:,} is more than the model was trained for",
            "the speeds shown",
        )
        for name, taken, meant in (("context", goal.context, preset.context), ("depth", goal.depth, preset.depth))
        if taken != meant
    ]
