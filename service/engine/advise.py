"""`advise()`: variants and hardware in, ranked configs and refusals out."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import replace

from service.engine.advice import AdviceBody, AdvisedConfig, AtOnce
from service.engine.calibration import Calibration
from service.engine.catalogue import is_one_machine, rigs_of
from service.engine.commands.companions import image_tokens_asked
from service.engine.commands.parse import ParsedCommand, assumed_command
from service.engine.config import Device, Engine, Flags
from service.engine.errors import InvalidInput, UnknownVariant
from service.engine.estimate import Estimate
from service.engine.gguf.header import Header
from service.engine.goal import Constraints, Goal, GoalRequest, resolve_goal
from service.engine.hardware import Assumption, Hardware, Rig
from service.engine.memory.companions import Companion, projector
from service.engine.memory.encoder import Images
from service.engine.memory.graphs import share_graphs
from service.engine.memory.report import device_table
from service.engine.model import Model
from service.engine.planner.explaining.answer import drive_headline, goal_assumptions, headline, refusal
from service.engine.planner.explaining.commands import Files, lines_of
from service.engine.planner.explaining.comparison import current_command_sentence, versus_current
from service.engine.planner.explaining.costly_constraints import costly_constraints
from service.engine.planner.explaining.hints import with_hints
from service.engine.planner.explaining.picked import with_picks
from service.engine.planner.explaining.proposals import Source, with_proposals
from service.engine.planner.explaining.reasons import difference, notes_of, reasons, what_limits
from service.engine.planner.explaining.rejected import rejected
from service.engine.planner.explaining.what_if import Present, answers, check_questions
from service.engine.planner.pricing.fit import limits_of, max_context
from service.engine.planner.pricing.logits import benchmark_reason, smaller_benchmark
from service.engine.planner.ranking.current_command import (
    FIELD,
    CurrentCommand,
    as_config,
    current_command_of,
    goal_of,
    mine_of,
    parsed_command,
    variant_in_use,
    with_current,
)
from service.engine.planner.ranking.rank import Contender, picks, rank
from service.engine.planner.ranking.ties import Ties, active_bpw, ties, with_comparisons
from service.engine.planner.search.all_variants import Report, no_report, of_one_build, search
from service.engine.planner.search.from_drive import FromDrive, best_from_drive
from service.engine.planner.search.options import check_user_flags, goal_with_user_flags, kept_flags, rule_errors
from service.engine.planner.search.outcome import Outcome, SearchCase, on_cpu_alone
from service.engine.planner.search.simple import shortest
from service.engine.purpose import goal_of_purpose
from service.engine.quality import has_imatrix, quality_loss
from service.engine.rules.companion_headers import images_by, larger_than_context
from service.engine.run.devices import backend_named, rig_of_command
from service.engine.run.environment import bound_ram, prefix_of, within_ram
from service.engine.speed.predict import at_once, predict_speed, speed_point
from service.engine.speed.work import milliseconds
from service.engine.versions import versions


class VariantModel(msgspec.Struct, frozen=True):
    """One variant with its files and the model that its headers describe; the header of `files.projector`, if any."""

    name: str
    files: Files
    model: Model
    projector: Header | None = None


def advise(
    variants: Sequence[VariantModel], hardware: Hardware, goal: GoalRequest, constraints: Constraints,
    what_if: Sequence[str] = (), calibration: Calibration | None = None, report: Report = no_report,
) -> AdviceBody:  # fmt: skip
    """Return ranked configs for these variants on this hardware, and a refusal for each one that cannot be advised.

    `what_if`: questions about other hardware, as `planner.explaining.upgrades` reads them. `calibration`: what speeds
    are predicted by; None: the one that comes with the engine. `report` is called with the progress. Raises
    UnknownHardware or InvalidHardware for hardware that cannot be resolved, InvalidInput for a goal that contradicts
    itself or a question that is not understood, UnknownVariant for a constraint that names a variant the repo lacks.
    """
    share_graphs(v.model for v in variants)
    *makes, rig = _rigs(variants, hardware, constraints, calibration)
    if isinstance(constraints.reserve_mib, list):
        makes = []  # one number a card counts all cards
    _check_constraints(constraints, variants, rig)
    check_questions(hardware, what_if)
    parsed = parsed_command(constraints)
    asked, for_purpose = goal_of_purpose([v.model for v in variants], goal)
    goal, taken = goal_of(parsed, goal_with_user_flags(asked, constraints))
    n_ctx_train = min(v.model.n_ctx_train for v in variants)
    wanted = resolve_goal(goal, n_ctx_train)
    current = _in_use(parsed, variants, rig_of_command(hardware, parsed, calibration), wanted) if parsed else None
    outcomes = search(_cases((*makes, rig), variants, wanted, constraints, parsed), report=report)
    if is_one_machine((*makes, rig)):
        rig, outcomes = of_one_build(outcomes, rig, wanted, backend_named(parsed) if parsed else None)
    contenders = [c for outcome in outcomes for c in outcome.contenders]
    found, picked = shortest(rank(contenders, wanted))
    ranked = with_current(current, found, wanted) if current else found
    tied = ties(ranked[0], contenders, wanted) if ranked else Ties()
    configs = _configs(ranked, variants, wanted, constraints, current, asked, tied)
    sources = [Source(variant.files, constraints.models_dir, variant.projector) for variant in variants]
    configs = with_proposals(with_hints(configs, ranked, rig), ranked, sources)
    configs = with_picks(configs, ranked, picked, outcomes)
    refused = [refusal(o.case.engine, variants[o.case.variant].name, o, wanted) for o in _refused(outcomes)]
    sentence = headline(configs, ranked, refused, rig, wanted)
    if not configs and (read := best_from_drive(outcomes, wanted)):
        configs = _drive_configs(read, variants, wanted, constraints, outcomes)
        sentence = drive_headline(configs[0], sentence)
        refused = [r for r in refused if all(r.variant != c.variant for c in configs)]
    return AdviceBody(
        headline=sentence + (current_command_sentence(current, configs) if current else ""),
        hardware=hardware,
        assumed=[
            *(assumed_command(parsed, FIELD) if parsed else ()),
            *rig.assumed,
            *goal_assumptions(goal, wanted, n_ctx_train),
            *(for_purpose + taken),
            *_assumed_builds(constraints),
        ],
        goal=wanted,
        configs=configs,
        refused=refused,
        considered=sum(outcome.considered for outcome in outcomes),
        placed=sum(outcome.placed for outcome in outcomes),
        losers=rejected(outcomes, ranked, [v.name for v in variants], wanted),
        versions=versions(calibration.version if calibration else None),
        what_if=answers(_present(variants, hardware, rig, wanted, constraints, found, parsed), what_if),
        mine=mine_of(current, found, wanted) if current else None,
    )


def _rigs(
    variants: Sequence[VariantModel], hardware: Hardware, constraints: Constraints, calibration: Calibration | None
) -> tuple[Rig, ...]:
    """The machine as each build sees it, with what the variants' projectors take at most."""
    rigs = rigs_of(hardware, calibration)
    headers = {id(variant.projector): variant.projector for variant in variants if variant.projector}  # shared by many
    if not headers:
        return tuple(rigs)
    most = []
    for engine in constraints.engine_names:
        flags = kept_flags(engine, constraints)
        found = [_projector(header, engine, constraints, flags, ()) for header in headers.values()]
        most.append((engine, max(int(sum(one.weights) + one.compute[0].high) for one in found)))
    return tuple(replace(rig, projectors=tuple(most)) for rig in rigs)


def _projector(
    header: Header, engine: Engine, constraints: Constraints, flags: Flags, devices: Sequence[Device]
) -> Companion:
    """The projector on the first of the devices, or in RAM."""
    return projector(header, len(devices), 0, _images(engine, constraints, flags))


def _images(engine: Engine, constraints: Constraints, flags: Flags) -> Images:
    return images_by(constraints.build_of(engine).rules, flags, image_tokens_asked(flags.other))


def _image_notes(
    header: Header | None, engine: Engine, constraints: Constraints, flags: Flags, goal: Goal
) -> Iterator[str]:
    told = larger_than_context(header, _images(engine, constraints, flags), goal.context_each) if header else None
    if told:
        yield f"{told[0]}: {told[1]} scales larger ones down"


def _cases(
    rigs: Sequence[Rig], variants: Sequence[VariantModel], goal: Goal, constraints: Constraints,
    parsed: ParsedCommand | None,
) -> list[SearchCase]:  # fmt: skip
    in_use = parsed.engine if parsed else None
    cases = [
        SearchCase(engine, index, variants[index].model, rig, goal, constraints, variants[index].name, in_use)
        for rig in rigs
        for index in _chosen(variants, constraints)
        for engine in constraints.engine_names
    ]
    return [*cases, *on_cpu_alone(cases, constraints.engine_names)]


def _assumed_builds(constraints: Constraints) -> Iterator[Assumption]:
    for build in map(constraints.build_of, constraints.engine_names):
        if build.doubt:
            what = "defaults, the spelling of flags, buffers and speed"
            yield Assumption("constraints.engines", build.label, build.doubt, what)


def _refused(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes of each engine and variant that fits on none of the machine's rigs; the nearest to fitting of
    each."""
    by_rig: dict[tuple[str, int], list[Outcome]] = {}
    for outcome in outcomes:
        by_rig.setdefault((outcome.case.engine, outcome.case.variant), []).append(outcome)
    none = [group for group in by_rig.values() if all(not o.contenders and _was_tried(o) for o in group)]
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
            f"reserve_mib has {len(stated)} numbers for {len(rig.cards)} GPUs: give one number, or one per GPU",
            field="constraints.reserve_mib",
        )
    check_user_flags(constraints, rig)


def _chosen(variants: Sequence[VariantModel], constraints: Constraints) -> list[int]:
    def wanted(v: VariantModel) -> bool:
        named = constraints.variants is None or v.name in constraints.variants
        return named and (constraints.min_bpw or 0) <= v.model.bpw <= (constraints.max_bpw or 64)

    chosen = [i for i, v in enumerate(variants) if wanted(v)]
    if not chosen:
        sizes = ", ".join(f"{v.name} {v.model.bpw:.2f}" for v in sorted(variants, key=lambda v: v.model.bpw)[:20])
        raise InvalidInput(f"no variant is within that range of bits per weight: {sizes}", field="constraints.min_bpw")
    return chosen if constraints.variants else _unlike(variants, chosen)


def _unlike(variants: Sequence[VariantModel], chosen: Sequence[int]) -> list[int]:
    """Leave out variants whose tensors are those of another that is named for more bits.

    Where rows have a length that a type cannot divide, all names of two and three bits stand for the same types
    (Nemotron-3-Nano: UD-Q3_K_M and UD-IQ4_NL of 18.19 GiB each, jeanfbrito.github.io).
    """
    types = {i: (has_imatrix(variants[i].model), _types(variants[i].model)) for i in chosen}
    most: dict[object, int] = {}
    for i in chosen:
        most[types[i]] = max(most.get(types[i], 0), _named_bits(variants[i].name))
    return [i for i in chosen if _named_bits(variants[i].name) in (0, most[types[i]])]


def _types(model: Model) -> frozenset[tuple[str, str]]:
    return frozenset((tensor.name, tensor.type) for tensor in model.tensors)


def _named_bits(name: str) -> int:
    """Return the bits that a variant's name states, 0 for none."""
    return int(found[1]) if (found := re.search(r"Q(\d)", name, re.I)) else 0


def _present(
    variants: Sequence[VariantModel], hardware: Hardware, rig: Rig, goal: Goal, constraints: Constraints,
    found: Sequence[Contender], parsed: ParsedCommand | None,
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
        in_use=parsed.engine if parsed else None,
        first=found[0] if found else None,
    )


def _in_use(parsed: ParsedCommand, variants: Sequence[VariantModel], rig: Rig, goal: Goal) -> CurrentCommand:
    number = variant_in_use([(v.name, v.files.paths) for v in variants], parsed)
    own = variants[number]
    return current_command_of(parsed, number, own.name, own.model, rig, goal, own.projector)


def _configs(
    ranked: list[Contender], variants: Sequence[VariantModel], goal: Goal, constraints: Constraints,
    current: CurrentCommand | None, asked: GoalRequest, tied: Ties,
) -> list[AdvisedConfig]:  # fmt: skip
    configs = [
        _own(current, constraints)
        if current and contender is current.contender
        else _config(number, contender, variants[contender.variant], goal, constraints, current)
        for number, contender in enumerate(ranked, 1)
    ]
    if ranked and not (current and ranked[0] is current.contender):
        hurts = costly_constraints(ranked[0], variants[ranked[0].variant].model, constraints, goal, asked)
        configs[0] = replace(configs[0], notes=[*configs[0].notes, *hurts])
    names = [variant.name for variant in variants]
    for i, (contender, following) in enumerate(pairwise(ranked)):
        text = difference(contender, following, names, i + 2)
        configs[i] = replace(configs[i], versus_next=text)
    return with_comparisons(configs, ranked, tied)


def _own(current: CurrentCommand, constraints: Constraints) -> AdvisedConfig:
    problem = current.contender.problem
    reserve = limits_of(problem.rig, constraints, current.contender.candidate.cards).kept
    own = as_config(current, problem.goal, reserve)
    return replace(
        own,
        bpw_active=active_bpw(problem.model),
        imatrix=has_imatrix(problem.model),
        loss_percent=_rounded(quality_loss(problem.model)),
    )


def _rounded(loss: Estimate) -> tuple[float, float, float]:
    return round(loss.low, 2), round(loss.expected, 2), round(loss.high, 2)


def _config(
    number: int, contender: Contender, variant: VariantModel, goal: Goal, constraints: Constraints,
    current: CurrentCommand | None,
) -> AdvisedConfig:  # fmt: skip
    engine, flags, cards = contender.engine, contender.fitted.flags, contender.candidate.cards
    problem, rig = contender.problem, contender.problem.rig
    devices, limits = problem.devices, problem.limits
    run = contender.fitted.run
    bound = within_ram(rig, bound_ram(prefix_of(flags.numa, rig.nodes_a_socket), rig))
    loaded = [_projector(variant.projector, engine, constraints, flags, devices)] if variant.projector else []
    table = device_table(contender.fitted.memory, devices, limits.kept, bound, loaded)
    smaller = smaller_benchmark(problem, contender.fitted)
    bench_ubatch = smaller.n_ubatch if smaller else None
    lines = lines_of(contender, flags, variant.files, constraints.models_dir, table[-1], bench_ubatch)
    depths = sorted({0, goal.depth // 2, goal.depth})
    together = None
    if goal.parallel > 1 and contender.candidate.strategy != "experts from a drive":
        together = _together(at_once(run, goal.parallel, goal.depth), goal)
    of_images = _image_notes(variant.projector, engine, constraints, flags, goal)
    notes = [*of_images, *notes_of(contender, rig, goal, together)]
    why = [*reasons(contender, variant.model, rig, first=number == 1), *what_limits(contender, goal.depth)]
    if smaller:
        why.append(benchmark_reason(engine, flags.n_ubatch, smaller))
    if problem.build and problem.build.date:
        notes = [*rule_errors(engine, lines.server, variant.model, rig, problem.build), *notes]
    return AdvisedConfig(
        id=hashlib.sha256(msgspec.json.encode((engine, variant.name, flags, cards))).hexdigest()[:12],
        rank=number,
        engine=engine,
        variant=variant.name,
        bpw=round(variant.model.bpw, 3),
        bpw_active=active_bpw(variant.model),
        imatrix=has_imatrix(variant.model),
        loss_percent=_rounded(quality_loss(variant.model)),
        strategy=contender.candidate.strategy,
        flags=flags,
        commands=lines,
        build=problem.build.label if problem.build else "",
        devices=table,
        speed=[speed_point(n_kv, predict_speed(run, n_kv)) for n_kv in depths],
        deeper=[speed_point(n_kv, predict_speed(run, n_kv)) for n_kv in goal.deeper],
        token_ms=milliseconds(predict_speed(run, goal.depth).parts_tg),
        goal_seconds=(contender.seconds.low, contender.seconds.expected, contender.seconds.high),
        max_context=max_context(contender.problem, contender.fitted, variant.model.n_ctx_train),
        reasons=why,
        notes=notes,
        versus_mine=versus_current(current, contender, variant.name) if current and current.works else None,
        at_once=together,
        weighed=contender.weighed,
        smaller_benchmark=smaller,
    )


def _together(found: Estimate, goal: Goal) -> AtOnce:
    low, tps, high, each = (
        round(x, 2) for x in (found.low, found.expected, found.high, found.expected / goal.parallel)
    )
    return AtOnce(requests=goal.parallel, n_kv=goal.depth, tps=tps, low=low, high=high, each=each)


def _drive_configs(
    found: Sequence[FromDrive], variants: Sequence[VariantModel], goal: Goal, constraints: Constraints,
    outcomes: Sequence[Outcome],
) -> list[AdvisedConfig]:  # fmt: skip
    """The configs with their picks. `found`: the best first."""
    contenders = [one.contender for one in found]
    configs = [
        _drive_config(number, one, variants[one.contender.variant], goal, constraints)
        for number, one in enumerate(found, 1)
    ]
    picked = picks(sorted(contenders, key=lambda c: c.seconds.expected), goal, contenders[0])
    return with_picks(configs, contenders, picked, outcomes)


def _drive_config(
    number: int, one: FromDrive, variant: VariantModel, goal: Goal, constraints: Constraints
) -> AdvisedConfig:  # fmt: skip
    """The config with its speeds when experts are read from a drive, and the context that was asked for."""
    config, reading = _config(number, one.contender, variant, goal, constraints, None), one.reads.token.expected
    why = [reason for reason in config.reasons if not reason.rule.startswith("limit-")]
    return replace(
        config,
        speed=[speed_point(at.n_kv, one.speed(at.n_kv)) for at in config.speed],
        deeper=[speed_point(at.n_kv, one.speed(at.n_kv)) for at in config.deeper],
        token_ms=config.token_ms | {"reading the drive": round(1000 * reading, 3)},
        max_context=goal.context,
        smaller_benchmark=config.smaller_benchmark and replace(config.smaller_benchmark, speed=[]),
        reasons=[*why, *one.reasons],
        notes=[one.note, *config.notes],
    )
