"""What another card, more memory or a wider link would gain: the search is run again on the changed machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.advice import Upgraded, WhatIf
from service.engine.catalogue import is_one_machine, resolve, rigs_of
from service.engine.config import Engine
from service.engine.errors import InvalidInput
from service.engine.goal import Constraints, Goal
from service.engine.hardware import Hardware, Rig
from service.engine.hardware_text.form import to_shorthand
from service.engine.model import Model
from service.engine.planner.explaining.comparison import gain, gain_text
from service.engine.planner.explaining.memory_asked import FIELD
from service.engine.planner.explaining.upgrade_notes import config_notes, machine_notes
from service.engine.planner.explaining.upgrades import Upgrade, asks_for_best, changed, usual
from service.engine.planner.pricing.fit import in_mib
from service.engine.planner.ranking.rank import Contender, Ranked, rank
from service.engine.planner.search.all_variants import of_one_build, search
from service.engine.planner.search.outcome import Outcome, SearchCase, on_cpu_alone
from service.engine.planner.search.simple import shortest
from service.engine.speed.predict import speed_point

MAX_QUESTIONS = 8
_NOTHING = 0.02  # of the speed: a smaller change that is too close to call counts as none
_WORTH_LISTING = 0.01  # of the time of today's request: what an upgrade has to save to be listed
_SMALLEST = 2  # variants that are tried where nothing fits today


class Present(NamedTuple):
    """The machine and the answer of today. `chosen`: indices of the variants that may be advised; `in_use`: the engine
    of the command in use; `first`: its first config, None where nothing fits."""

    hardware: Hardware
    rig: Rig
    goal: Goal
    constraints: Constraints
    names: Sequence[str]
    models: Sequence[Model]
    chosen: Sequence[int]
    engines: Sequence[Engine]
    in_use: Engine | None
    first: Contender | None


def check_questions(hardware: Hardware, questions: Sequence[str]) -> None:
    """Raise InvalidInput for too many questions, or one that is not understood."""
    if len(questions) > MAX_QUESTIONS:
        raise InvalidInput(f"{len(questions)} questions are too many, at most {MAX_QUESTIONS}", field=FIELD)
    rig = resolve(hardware)
    for text in questions:
        if not asks_for_best(text):
            changed(hardware, rig, text)


def answers(present: Present, questions: Sequence[str]) -> list[WhatIf]:
    """Return the answer to each question. Raises InvalidInput for one that is not understood."""
    return [_best(present, text) if asks_for_best(text) else _answer(present, text) for text in questions]


def _answer(present: Present, text: str) -> WhatIf:
    one = _upgraded(present, changed(present.hardware, present.rig, text), all_variants=True)
    return WhatIf(asked=text, text=_sentence(present, one), upgrades=[one], restricted=_compared(present, one.engine))


def _best(present: Present, text: str) -> WhatIf:
    tried = [_upgraded(present, one, all_variants=False) for one in usual(present.hardware, present.rig)]
    found = [one for one in tried if one.refused is None and _gains(present, one)]
    found.sort(key=lambda u: -(u.seconds_saved or 0.0))
    if not tried:
        says = "Nothing can be added to this machine."
    elif not found and present.first is None:
        says = "None of the usual upgrades is enough on its own to make anything fit."
    elif not found:
        says = f"None of the usual upgrades saves {100 * _WORTH_LISTING:g} % of a request's time."
    elif not _helps(found[0]):
        says = "None of the usual upgrades makes this config clearly faster."
    else:
        says = _sentence(present, found[0])
    return WhatIf(asked=text, text=says, upgrades=found, restricted=_restricted(present))


def _gains(present: Present, one: Upgraded) -> bool:
    """Whether it saves time that anybody notices, or something fits that did not."""
    first = present.first
    return first is None or (one.seconds_saved or 0.0) >= _WORTH_LISTING * first.seconds.expected


def _helps(one: Upgraded) -> bool:
    gains = [g for g in (one.tg, one.pp) if g is not None]
    return not gains or any(g.called and g.times > 1 for g in gains)


def _first_on(present: Present, rigs: Sequence[Rig], variants: Sequence[int]) -> tuple[list[Contender], list[Outcome]]:
    """Return what comes first of these variants on the changed machine (nothing where none fits), found as for a
    request about that machine, and the outcomes of the search."""
    constraints = _constraints(present.constraints)
    cases = [
        SearchCase(e, i, present.models[i], rig, present.goal, constraints, present.names[i], present.in_use)
        for rig in rigs for i in variants for e in present.engines
    ]  # fmt: skip
    outcomes = search([*cases, *on_cpu_alone(cases, present.engines)], only_first=True)
    if is_one_machine(rigs):
        _, outcomes = of_one_build(outcomes, rigs[-1], present.goal)
    first = rank([c for o in outcomes for c in o.contenders], present.goal).order[:1]
    return shortest(Ranked(first, {"balanced": first[0]} if first else {})).order[:1], outcomes


def _constraints(constraints: Constraints) -> Constraints:
    """The constraints for other cards: of reserves stated for each of today's, the largest holds for all."""
    stated = constraints.reserve_mib
    return replace(constraints, reserve_mib=max(stated, default=None)) if isinstance(stated, list) else constraints


def _compared(present: Present, engine: Engine | None) -> str:
    if present.first is None:
        return "nothing fits today"
    name = present.names[present.first.variant]
    return f"{name} with {engine or present.first.engine} is compared with today's first config"


def _restricted(present: Present) -> str:
    if present.first is None:
        return f"tried: the {_SMALLEST} smallest variants"
    return f"tried: {present.names[present.first.variant]} alone; compared with today's first config"


def _upgraded(present: Present, upgrade: Upgrade, *, all_variants: bool) -> Upgraded:
    """Return what the changed machine gains for today's variant, and if `all_variants`, what would come first on it."""
    rigs = tuple(
        replace(rig, projectors=present.rig.projectors) for rig in rigs_of(upgrade.hardware, present.rig.fitted)
    )
    if is_one_machine(rigs):
        in_use = {card.backend for card in present.rig.cards}
        rigs = tuple(rig for rig in rigs if {card.backend for card in rig.cards} == in_use) or rigs
    by_bits = sorted(present.chosen, key=lambda i: present.models[i].bpw)
    today = present.first.variant if present.first else None
    variants = by_bits if all_variants else by_bits[:_SMALLEST] if today is None else [today]
    best, outcomes = _first_on(present, rigs, variants)
    same = best
    if today is not None and (not best or best[0].variant != today):
        same, outcomes = _first_on(present, rigs, [today])
    after = resolve(upgrade.hardware)
    empty = Upgraded(
        change=upgrade.text,
        component=upgrade.component,
        hardware=to_shorthand(upgrade.hardware),
        vram_gib=upgrade.vram_gib,
        ram_gib=upgrade.ram_gib,
        notes=list(machine_notes(present.hardware, upgrade.hardware, present.rig, after)),
    )
    also = _would_come_first(present, best[0]) if best and best != same else None
    if not same:
        least = min((o.shortfall.n_bytes for o in outcomes if o.shortfall), default=None)
        reasons = [o.refusal for o in outcomes if o.refusal]
        short = f"{in_mib(least):,} MiB too little" if least is not None else next(iter(reasons), "nothing fits")
        return replace(empty, refused=short, also=also)
    found = _described(empty, present, same[0])
    if present.first is not None and found.pp is not None:
        notes = config_notes(present.first, same[0], after, found.pp.times)
        found = replace(found, notes=[*notes, *empty.notes])
    return replace(found, also=also)


def _would_come_first(present: Present, best: Contender) -> str:
    name, tg, pp = present.names[best.variant], best.speed.tg.expected, best.speed.pp.expected
    return f"{name} ({best.bpw:.2f} bpw) with {best.engine} would come first, at TG {tg:,.1f} t/s, PP {pp:,.0f} t/s"


def _described(empty: Upgraded, present: Present, best: Contender) -> Upgraded:
    seconds = best.seconds
    found = replace(
        empty,
        engine=best.engine,
        variant=present.names[best.variant],
        strategy=best.candidate.strategy,
        gpus=len(best.candidate.cards),
        speed=speed_point(present.goal.depth, best.speed),
        goal_seconds=(round(seconds.low, 2), round(seconds.expected, 2), round(seconds.high, 2)),
    )
    first = present.first
    if first is None:
        return found
    tg, pp = (gain(best.speed, first.speed, phase, best.engine == first.engine) for phase in ("tg", "pp"))
    added = empty.vram_gib + empty.ram_gib
    return replace(
        found,
        tg=tg,
        pp=pp,
        seconds_saved=round(first.seconds.expected - seconds.expected, 2),
        tg_per_gib=round(tg.tps / added, 4) if added > 0 else None,
        pp_per_gib=round(pp.tps / added, 3) if added > 0 else None,
    )


def _sentence(present: Present, one: Upgraded) -> str:
    first, notes = present.first, "".join(f" {_capital(note, one)}." for note in one.notes)
    also = f"; {one.also}" if one.also else ""
    if one.speed is None:
        lost = f"{present.names[first.variant]} no longer fits" if first else "still does not fit"
        return f"{one.change}: {lost}, {one.refused}{also}.{notes}"
    if first is None or one.tg is None or one.pp is None:
        return (
            f"{one.change}: {one.variant} fits, TG {one.speed.tg_tps:,.1f} t/s, PP {one.speed.pp_tps:,.0f} t/s.{notes}"
        )
    if all(not gain.called and abs(gain.times - 1) < _NOTHING for gain in (one.tg, one.pp)):
        return f"{one.change}: changes nothing for {one.variant}{also}.{notes}"
    tg = f"TG {one.speed.tg_tps:,.1f} t/s, {gain_text(one.tg)}"
    text = f"{one.change}: {one.variant}: {tg}; PP {one.speed.pp_tps:,.0f} t/s, {gain_text(one.pp)}"
    today = first.seconds.expected
    takes = f"; a request takes {_seconds(today - (one.seconds_saved or 0.0))} instead of {_seconds(today)}"
    per = f"; TG {one.tg_per_gib:+.3f} t/s per GiB" if one.tg_per_gib else ""
    return f"{text}{takes}{per}{also}.{notes}"


def _capital(note: str, one: Upgraded) -> str:
    """The note as a sentence; a variant's name stays as it is written."""
    return note if one.variant and note.startswith(one.variant) else f"{note[:1].upper()}{note[1:]}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
