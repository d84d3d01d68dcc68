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
from service.engine.planner.explaining.upgrades import Upgrade, asks_for_best, changed, usual
from service.engine.planner.pricing.fit import in_mib
from service.engine.planner.pricing.support import unsupported_backend
from service.engine.planner.ranking.rank import Contender, rank
from service.engine.planner.search.all_variants import search
from service.engine.planner.search.outcome import SearchCase, on_cpu_alone
from service.engine.speed.predict import speed_point

MAX_QUESTIONS = 8
_NOTHING = 0.02  # of the speed: a smaller change that is too close to call counts as none
_WORTH_LISTING = 0.01  # of the time of today's request: what an upgrade has to save to be listed
_SMALLEST = 2  # variants that are tried where nothing fits today


class Present(NamedTuple):
    """The machine and the answer of today. `chosen`: indices of the variants that may be advised; `first`: its first
    config, None where nothing fits."""

    hardware: Hardware
    rig: Rig
    goal: Goal
    constraints: Constraints
    names: Sequence[str]
    models: Sequence[Model]
    chosen: Sequence[int]
    engines: Sequence[Engine]
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
    upgrade = changed(present.hardware, present.rig, text)
    one = _upgraded(present, upgrade, wider=True)
    tried = _restricted(present, one.engine, wider=True)
    return WhatIf(asked=text, text=_sentence(present, one), upgrades=[one], restricted=tried)


def _best(present: Present, text: str) -> WhatIf:
    tried = [_upgraded(present, one, wider=False) for one in usual(present.hardware, present.rig)]
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
    return WhatIf(asked=text, text=says, upgrades=found, restricted=_restricted(present, None, wider=False))


def _gains(present: Present, one: Upgraded) -> bool:
    """Whether it saves time that anybody notices, or something fits that did not."""
    first = present.first
    return first is None or (one.seconds_saved or 0.0) >= _WORTH_LISTING * first.seconds.expected


def _helps(one: Upgraded) -> bool:
    gains = [g for g in (one.tg, one.pp) if g is not None]
    return not gains or any(g.called and g.times > 1 for g in gains)


def _cases(present: Present, rig: Rig, wider: bool) -> list[SearchCase]:
    """Search cases for the variant that is first today, and if `wider` the next one with more bits; where nothing fits,
    for the smallest ones. With today's engine, unless it does not drive the machine's cards."""
    by_bits = sorted(present.chosen, key=lambda i: present.models[i].bpw)
    chosen, engines, first = by_bits[:_SMALLEST], present.engines, present.first
    if first is not None:
        larger = [i for i in by_bits if present.models[i].bpw > first.bpw][:1] if wider else []
        chosen = [first.variant, *(i for i in larger if i != first.variant)]
        drives = (engine for engine in (first.engine, *engines) if not unsupported_backend(engine, rig))
        engines = [next(drives, first.engine)]
    constraints = _constraints(present.constraints)
    return [SearchCase(e, i, present.models[i], rig, present.goal, constraints) for i in chosen for e in engines]


def _constraints(constraints: Constraints) -> Constraints:
    """The constraints for other cards: of reserves stated for each of today's, the largest holds for all."""
    stated = constraints.reserve_mib
    return replace(constraints, reserve_mib=max(stated, default=None)) if isinstance(stated, list) else constraints


def _restricted(present: Present, engine: Engine | None, *, wider: bool) -> str:
    if present.first is None:
        return f"tried: the {_SMALLEST} smallest variants"
    name, engine = present.names[present.first.variant], engine or present.first.engine
    more = ", and the next variant with more bits" if wider else ""
    return f"tried: {name} with {engine}{more}; compared with today's first config"


def _upgraded(present: Present, upgrade: Upgrade, wider: bool) -> Upgraded:
    rigs = tuple(replace(rig, beside=present.rig.beside) for rig in rigs_of(upgrade.hardware, present.rig.fitted))
    if is_one_machine(rigs):
        today = {card.backend for card in present.rig.cards}
        rigs = tuple(rig for rig in rigs if {card.backend for card in rig.cards} == today) or rigs
    cases = [case for rig in rigs for case in _cases(present, rig, wider)]
    outcomes = search([*cases, *on_cpu_alone(cases, present.engines)])
    ranked = rank([c for outcome in outcomes for c in outcome.contenders], present.goal).order
    same = [c for c in ranked if present.first is None or c.variant == present.first.variant]
    empty = Upgraded(
        change=upgrade.text,
        component=upgrade.component,
        hardware=to_shorthand(upgrade.hardware),
        vram_gib=upgrade.vram_gib,
        ram_gib=upgrade.ram_gib,
    )
    if not same:
        least = min((o.shortfall.n_bytes for o in outcomes if o.shortfall), default=None)
        reasons = [o.refusal for o in outcomes if o.refusal]
        short = f"{in_mib(least):,} MiB too little" if least is not None else next(iter(reasons), "nothing fits")
        return replace(empty, refused=short)
    found = _described(empty, present, same[0])
    if ranked[0].variant != same[0].variant:
        more = ranked[0]
        tg = more.speed.tg.expected
        text = f"{present.names[more.variant]} ({more.bpw:.2f} bpw) would come first, at TG {tg:,.1f} t/s"
        found = replace(found, also=text)
    return found


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
    if one.speed is None:
        today = present.first
        lost = f"{present.names[today.variant]} no longer fits" if today else "still does not fit"
        return f"{one.change}: {lost}, {one.refused}."
    if one.tg is None or one.pp is None:
        return f"{one.change}: {one.variant} fits, TG {one.speed.tg_tps:,.1f} t/s, PP {one.speed.pp_tps:,.0f} t/s."
    if all(not gain.called and abs(gain.times - 1) < _NOTHING for gain in (one.tg, one.pp)):
        return f"{one.change}: changes nothing for {one.variant}{f'; {one.also}' if one.also else ''}."
    tg = f"TG {one.speed.tg_tps:,.1f} t/s, {gain_text(one.tg)}"
    text = f"{one.change}: {tg}; PP {one.speed.pp_tps:,.0f} t/s, {gain_text(one.pp)}"
    per = f"; TG {one.tg_per_gib:+.3f} t/s per GiB" if one.tg_per_gib else ""
    also = f"; {one.also}" if one.also else ""
    return f"{text}{per}{also}."
