"""`advise()`: variants and hardware in, ranked configs and refusals out. The one entry to the engine's knowledge."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from service.engine.advice import AdviceBody, AdvisedConfig, DeviceMemory, SpeedPoint
from service.engine.catalogue import rigs_of
from service.engine.commands import ParsedCommand
from service.engine.config import Device
from service.engine.errors import InvalidInput, UnknownVariant
from service.engine.goal import Constraints, Goal, GoalRequest, resolve_goal
from service.engine.hardware import Assumption, Hardware, Rig
from service.engine.memory import Memory, predict_memory, report
from service.engine.model import Model
from service.engine.planner import describe
from service.engine.planner.answer import goal_assumptions, headline, refusal
from service.engine.planner.build import said_by_rules
from service.engine.planner.fit import max_context
from service.engine.planner.fixed import what_hurts
from service.engine.planner.front import active_bpw, compared, has_imatrix
from service.engine.planner.gains import about_mine, versus_mine
from service.engine.planner.kept import check_kept, goal_with_kept
from service.engine.planner.losers import losers
from service.engine.planner.mine import (
    InUse,
    as_config,
    as_mine,
    goal_of,
    in_use,
    parsed_command,
    variant_in_use,
    with_mine,
)
from service.engine.planner.rank import Contender, rank
from service.engine.planner.search import Case, Outcome, limits_of, search
from service.engine.planner.what_if import Present, answers, check_questions
from service.engine.planner.write import Files, commands
from service.engine.speed import predict_speed, speed_point
from service.engine.versions import versions


class VariantModel(msgspec.Struct, frozen=True):
    """One variant with its files and the model that its headers describe."""

    name: str
    files: Files
    model: Model


def advise(
    variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
    what_if: Sequence[str] = (),
) -> AdviceBody:  # fmt: skip
    """Return ranked configs for these variants on this hardware, and a refusal for each one that cannot be advised.

    `what_if`: questions about other hardware, as `planner.upgrades` reads them. Raises UnknownHardware or
    InvalidHardware for hardware that cannot be resolved, InvalidInput for a goal that contradicts itself or a question
    that is not understood, UnknownVariant for a constraint that names a variant the repo lacks.
    """
    *makes, rig = rigs_of(hardware)
    if isinstance(constraints.reserve_mib, list):
        makes = []  # one number a card counts all cards
    _check_constraints(constraints, variants, rig)
    check_questions(hardware, what_if)
    check_kept(constraints, rig)
    parsed = parsed_command(constraints)
    asked = goal
    goal, taken = goal_of(parsed, goal_with_kept(goal, constraints))
    n_ctx_train = min(v.model.n_ctx_train for v in variants)
    wanted = resolve_goal(goal, n_ctx_train)
    mine = _in_use(parsed, variants, rig, wanted) if parsed else None
    outcomes = search(
        [
            Case(engine, index, variants[index].model, one, wanted, constraints)
            for one in (*makes, rig)
            for index in _chosen(variants, constraints)
            for engine in constraints.engine_names
        ]
    )
    contenders = [c for outcome in outcomes for c in outcome.contenders]
    found = rank(contenders, wanted)
    ranked = with_mine(mine, found, wanted) if mine else found
    configs = _configs(ranked, variants, wanted, constraints, mine, asked)
    refused = [refusal(o.case.engine, variants[o.case.variant].name, o, wanted) for o in _refused(outcomes)]
    return AdviceBody(
        headline=headline(configs, ranked, refused, rig, wanted) + (about_mine(mine, configs) if mine else ""),
        hardware=hardware,
        assumed=[*rig.assumed, *goal_assumptions(goal, wanted, n_ctx_train), *taken, *_assumed_builds(constraints)],
        goal=wanted,
        configs=configs,
        refused=refused,
        considered=sum(outcome.considered for outcome in outcomes),
        placed=sum(outcome.placed for outcome in outcomes),
        losers=losers(outcomes, ranked, [v.name for v in variants], wanted),
        versions=versions(),
        what_if=answers(_present(variants, hardware, rig, wanted, constraints, found), what_if) if what_if else [],
        mine=as_mine(mine, found, wanted) if mine else None,
    )


def _assumed_builds(constraints: Constraints) -> Iterator[Assumption]:
    for build in map(constraints.build_of, constraints.engine_names):
        if build.newer or build.about:
            why = "newer builds than this one are not known here" if build.newer else "its date is between known ones"
            yield Assumption("constraints.engines", build.label, why, "defaults, the spelling of flags, and buffers")


def _refused(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Each engine and variant of which nothing fits, however the cards are used; of several ways the nearest."""
    ways: dict[tuple[str, int], list[Outcome]] = {}
    for outcome in outcomes:
        ways.setdefault((outcome.case.engine, outcome.case.variant), []).append(outcome)
    none = [group for group in ways.values() if all(not o.contenders and _was_tried(o) for o in group)]
    return [min(group, key=lambda o: o.shortfall.n_bytes if o.shortfall else sys.maxsize) for group in none]


def _was_tried(outcome: Outcome) -> bool:
    return outcome.refusal is not None or outcome.all_failed or outcome.placed > 0


def _check_constraints(constraints: Constraints, variants: Sequence[VariantModel], rig: Rig) -> None:
    names = [v.name for v in variants]
    for name in constraints.variants or ():
        if name not in names:
            raise UnknownVariant(
                f"the repo has no variant {name!r}", field="constraints.variants", choices=tuple(names[:40])
            )
    stated = constraints.reserve_mib
    if isinstance(stated, list) and len(stated) != len(rig.cards):
        raise InvalidInput(
            f"reserve_mib has {len(stated)} numbers for {len(rig.cards)} GPUs: give one number, or one a GPU",
            field="constraints.reserve_mib",
        )


def _chosen(variants: Sequence[VariantModel], constraints: Constraints) -> list[int]:
    def wanted(v: VariantModel) -> bool:
        named = constraints.variants is None or v.name in constraints.variants
        return named and (constraints.min_bpw or 0) <= v.model.bpw <= (constraints.max_bpw or 64)

    chosen = [i for i, v in enumerate(variants) if wanted(v)]
    if not chosen:
        sizes = ", ".join(f"{v.name} {v.model.bpw:.2f}" for v in sorted(variants, key=lambda v: v.model.bpw)[:20])
        raise InvalidInput(f"no variant has that many bits per weight: {sizes}", field="constraints.min_bpw")
    return chosen


def _present(
    variants: Sequence[VariantModel], hardware: Hardware, rig: Rig, goal: Goal, constraints: Constraints,
    found: Sequence[Contender],
) -> Present:  # fmt: skip
    return Present(
        hardware=hardware,
        rig=rig,
        goal=goal,
        constraints=constraints,
        names=[v.name for v in variants],
        models=[v.model for v in variants],
        chosen=_chosen(variants, constraints),
        engines=constraints.engine_names,
        first=found[0] if found else None,
    )


def _in_use(parsed: ParsedCommand, variants: Sequence[VariantModel], rig: Rig, goal: Goal) -> InUse:
    number = variant_in_use([(v.name, v.files.paths) for v in variants], parsed)
    return in_use(parsed, number, variants[number].name, variants[number].model, rig, goal)


def _configs(
    ranked: list[Contender], variants: Sequence[VariantModel], goal: Goal, constraints: Constraints,
    mine: InUse | None, asked: GoalRequest,
) -> list[AdvisedConfig]:  # fmt: skip
    configs = [
        _own(mine, constraints)
        if mine and contender is mine.contender
        else _config(number, contender, variants[contender.variant], goal, constraints, mine)
        for number, contender in enumerate(ranked, 1)
    ]
    if ranked and not (mine and ranked[0] is mine.contender):
        hurts = what_hurts(ranked[0], variants[ranked[0].variant].model, constraints, goal, asked)
        configs[0] = replace(configs[0], notes=[*configs[0].notes, *hurts])
    names = [variant.name for variant in variants]
    for i, (contender, following) in enumerate(pairwise(ranked)):
        text = describe.difference(contender, following, names, i + 2)
        configs[i] = replace(configs[i], versus_next=text)
    return compared(configs, ranked)


def _own(mine: InUse, constraints: Constraints) -> AdvisedConfig:
    problem = mine.contender.problem
    reserve = limits_of(problem.rig, constraints, mine.contender.candidate.cards).reserve
    own = as_config(mine, problem.goal, reserve)
    return replace(own, bpw_active=active_bpw(problem.model), imatrix=has_imatrix(problem.model))


def _config(
    number: int, contender: Contender, variant: VariantModel, goal: Goal, constraints: Constraints, mine: InUse | None
) -> AdvisedConfig:
    engine, flags, cards = contender.engine, contender.fitted.flags, contender.candidate.cards
    problem, rig = contender.problem, contender.problem.rig
    devices, limits = problem.devices, problem.limits
    free = [device.free for device in devices]
    memory = predict_memory(engine, variant.model, flags, free, tool="server", rules=problem.rules)
    lines = commands(engine, variant.model, flags, variant.files, rig, cards, constraints.models_dir, problem.build)
    notes = describe.notes(contender, rig, goal)
    if problem.build and problem.build.date:
        notes = [*said_by_rules(engine, lines.server, variant.model, rig, problem.build), *notes]
    return AdvisedConfig(
        id=hashlib.sha256(msgspec.json.encode((engine, variant.name, flags, cards))).hexdigest()[:12],
        rank=number,
        engine=engine,
        variant=variant.name,
        bpw=round(variant.model.bpw, 3),
        bpw_active=active_bpw(variant.model),
        imatrix=has_imatrix(variant.model),
        strategy=contender.candidate.strategy,
        flags=flags,
        commands=lines,
        build=problem.build.label if problem.build else "",
        devices=device_table(memory, devices, limits.reserve, rig),
        speed=[_speed_at(n_kv, contender, variant.model, rig) for n_kv in sorted({0, goal.depth // 2, goal.depth})],
        goal_seconds=(contender.seconds.low, contender.seconds.expected, contender.seconds.high),
        max_context=max_context(contender.problem, contender.fitted, variant.model.n_ctx_train),
        reasons=describe.reasons(contender, variant.model, rig),
        notes=notes,
        versus_mine=versus_mine(mine, contender, variant.name) if mine and mine.works else None,
    )


def device_table(memory: Memory, devices: Sequence[Device], reserve: Sequence[int], rig: Rig) -> list[DeviceMemory]:
    """Return the memory of every device with the names of the cards; the CPU is last.

    Cards without memory of their own take theirs from RAM: what is free there is free for both.
    """
    *rows, host = report(memory, devices, reserve, rig.ram_bytes)
    shared = sum(row.total_mib for row, d in zip(rows, devices, strict=True) if rig.cards[d.gpu].unified)
    free = round(host.free_mib - shared, 2)
    named = [replace(row, gpu=rig.cards[d.gpu].name) for row, d in zip(rows, devices, strict=True)]
    return [*named, replace(host, free_mib=free, fits=host.fits and free >= 0)]


def _speed_at(n_kv: int, contender: Contender, model: Model, rig: Rig) -> SpeedPoint:
    placement, devices = contender.fitted.memory.placement, contender.problem.devices
    flags, date = contender.fitted.flags, contender.problem.date
    speed = predict_speed(contender.engine, model, flags, placement, rig, devices, n_kv, date)
    return speed_point(n_kv, speed)
