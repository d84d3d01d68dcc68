"""The command in use as a contender: what `check` knows of it, and its rank among the configs that were found."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec

from service.engine.advice import AdvisedConfig, Commands, Mine, Reason, SmallerBenchmark, SpeedPoint
from service.engine.builds import BuildAsked
from service.engine.commands.companions import file_name
from service.engine.commands.parse import ParsedCommand, parse
from service.engine.commands.render import render
from service.engine.commands.tables import MODEL_REPO
from service.engine.config import Flags
from service.engine.errors import InvalidFlags, UnknownVariant
from service.engine.finding import Finding
from service.engine.gguf.header import Header
from service.engine.goal import Constraints, Goal, GoalRequest
from service.engine.hardware import Assumption, Rig
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Candidate, strategy_of
from service.engine.planner.pricing.fit import Fitted, MemoryLimits, Problem, max_context
from service.engine.planner.pricing.logits import benchmark_reason, smaller_benchmark
from service.engine.planner.ranking.rank import Contender, first_of
from service.engine.quality import ranking_loss
from service.engine.rules.all_rules import findings, in_order
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import CompanionHeaders
from service.engine.run.settings import option_value
from service.engine.speed.predict import goal_seconds, speed_point, typical_seconds
from service.engine.speed.work import milliseconds
from service.engine.units import MIB

FIELD = "constraints.current_command"
_FILE_OPTIONS = ("-hff", "--hf-file")
_OWN_PLACEMENT = "fit-places-itself"  # a finding that is kept though only info: the engine decides the placement


class CurrentCommand(msgspec.Struct, frozen=True, dict=True):
    """The command in use: its case, itself as a contender, its findings. `because`: why it has no rank, else None."""

    case: Case
    name: str
    contender: Contender
    findings: list[Finding]
    because: str | None

    @property
    def works(self) -> bool:
        """Whether it runs: it fits, and the engine refuses nothing in it. Only then its speeds mean anything."""
        return self.case.all_fits and all(f.severity != "error" for f in self.findings)

    @cached_property
    def smaller_benchmark(self) -> SmallerBenchmark | None:
        """How its benchmark differs, where that needs a smaller micro-batch to fit."""
        return smaller_benchmark(self.contender.problem, self.contender.fitted)


def parsed_command(constraints: Constraints) -> ParsedCommand | None:
    """Return the command in use, parsed; None where none was given. Raises InvalidFlags."""
    if constraints.current_command is None:
        return None
    try:
        parsed = parse(constraints.current_command, constraints.current_engine)
        build = constraints.build_of(parsed.engine)
        if build.date is None:
            return parsed
        return parse(constraints.current_command, parsed.engine, build=BuildAsked(date=build.date))
    except InvalidFlags as error:
        raise InvalidFlags(error.detail, field=FIELD, choices=error.choices) from error


def variant_in_use(named: Sequence[tuple[str, Sequence[str]]], parsed: ParsedCommand) -> int:
    """Return the index of the variant that a command runs. `named`: the name of each, and the paths of its files.

    It is the one that holds the command's file, or that `-hf OWNER/NAME:VARIANT` names, or the only one. Raises
    UnknownVariant.
    """
    other = parsed.flags.other
    file = file_name(option_value(other, _FILE_OPTIONS) or parsed.model_path or "")
    tag = (option_value(other, MODEL_REPO) or "").partition(":")[2]
    for i, (name, paths) in enumerate(named):
        if (file and any(file_name(path) == file for path in paths)) or (tag and name.lower() == tag.lower()):
            return i
    if len(named) == 1 and not tag:
        return 0
    what = f"none of this repo's variants contains the command's file {file[:120]!r}" if file else "it names no file"
    raise UnknownVariant(
        f"{what}: name the repo as OWNER/NAME:VARIANT, with the one that the command runs",
        field=FIELD,
        choices=tuple(n for n, _ in named)[:40],
    )


def goal_of(parsed: ParsedCommand | None, goal: GoalRequest) -> tuple[GoalRequest, list[Assumption]]:
    """Return the goal, with the command's context where none was asked for, and the assumption that says so."""
    if parsed is None or goal.context is not None or parsed.tool == "bench" or parsed.flags.n_ctx < 1:
        return goal, []
    n_ctx = parsed.flags.n_ctx
    if n_ctx < sum(getattr(goal, name) or 0 for name in ("prompt", "output", "depth")):
        return goal, []
    taken = Assumption("goal.context", f"{n_ctx:,}", "as in the command in use", "memory of the cache")
    return msgspec.structs.replace(goal, context=n_ctx), [taken]


def current_command_of(
    parsed: ParsedCommand, variant: int, name: str, model: Model, rig: Rig, goal: Goal, projector: Header | None
) -> CurrentCommand:
    """Return the command in use, which runs the variant with this index and name, with figures as `check` has them.

    `projector`: the one that is loaded with this variant, counted where the command loads one.
    """
    case = case_of(parsed, model, rig, "", "cuda", CompanionHeaders(projector=projector))
    told = in_order(findings(case, None))
    wrong = [f for f in told if f.severity != "info" or f.rule == _OWN_PLACEMENT]
    return CurrentCommand(case, name, _contender(case, variant, goal), wrong, _because(case, wrong, goal))


def _contender(case: Case, variant: int, goal: Goal) -> Contender:
    model, rig, flags, devices = case.model, case.rig, case.flags, case.devices
    cards = tuple(device.gpu for device in devices)
    as_layers = msgspec.structs.replace(flags, split_mode="layer")  # its user knows how fast `-sm graph` is here
    limits = MemoryLimits((0,) * len(devices), rig.ram_bytes, shared=any(rig.cards[i].unified for i in cards))
    return Contender(
        engine=case.engine,
        variant=variant,
        bpw=model.bpw,
        loss=ranking_loss(model),
        candidate=Candidate(strategy_of(case.placement), cards, as_layers),
        problem=Problem(case.engine, model, devices, limits, rig, goal, environment=case.environment),
        fitted=Fitted(case.run, case.memory),
        speed=case.speed(goal.depth),
        seconds=goal_seconds(case.run, goal),
        typical=typical_seconds(case.run, goal),
    )


def _because(case: Case, wrong: Sequence[Finding], goal: Goal) -> str | None:
    broken = next((f for f in wrong if f.severity == "error"), None)
    small = [row for row in case.table if not row.fits]
    if small and all(rule.refused is None for rule in case.rules):
        worst = max(small, key=lambda row: row.total_high_mib - row.capacity_mib)
        return (
            f"does not fit: {(worst.total_high_mib - worst.capacity_mib) / 1024:,.1f} GiB too little on {worst.device}"
        )
    if broken:
        return f"is broken: {broken.message}"
    if case.parsed.tool == "server" and case.flags.n_ctx < goal.context:
        return f"has a context of {case.flags.n_ctx:,} tokens, but the goal needs {goal.context:,}"
    return None


def rank_of(current: CurrentCommand, ranked: Sequence[Contender], goal: Goal) -> int | None:
    """Return the rank of the command among ranked contenders, 1 where none beats it; None where it does not count."""
    if current.because is not None:
        return None
    if not ranked:
        return 1
    own = _as_tight(current.contender, ranked[0])
    if first_of([own, ranked[0]], goal) is own:
        return 1
    return 2 + sum(c.seconds.expected < current.contender.seconds.expected for c in ranked[1:])


def _as_tight(own: Contender, other: Contender) -> Contender:
    """The command in use with the limit of RAM that other configs have, so that filling it costs as much as them."""
    limits = msgspec.structs.replace(own.problem.limits, host=other.problem.limits.host)
    return msgspec.structs.replace(own, problem=msgspec.structs.replace(own.problem, limits=limits))


def with_current(current: CurrentCommand, ranked: Sequence[Contender], goal: Goal) -> list[Contender]:
    """Return the ranked contenders; where none beats the command in use, with it first and without its equal."""
    if rank_of(current, ranked, goal) != 1:
        return list(ranked)
    own = current.contender
    same = (own.engine, own.variant, own.fitted.flags, own.candidate.cards)
    return [own, *(c for c in ranked if (c.engine, c.variant, c.fitted.flags, c.candidate.cards) != same)]


def mine_of(current: CurrentCommand, ranked: Sequence[Contender], goal: Goal) -> Mine:
    """Return the command in use as an answer has it."""
    rank, seconds, parsed = rank_of(current, ranked, goal), current.contender.seconds, current.case.parsed
    return Mine(
        verdict=_verdict(current, rank, len(ranked)),
        engine=current.case.engine,
        build=parsed.build.label,
        variant=current.name,
        flags=current.case.flags,
        unknown=[word[:200] for word in parsed.unknown[:40]],
        devices=current.case.table,
        fits=current.case.all_fits,
        speed=_speeds(current, goal),
        goal_seconds=(seconds.low, seconds.expected, seconds.high),
        findings=current.findings,
        rank=rank,
        smaller_benchmark=current.smaller_benchmark,
    )


def _verdict(current: CurrentCommand, rank: int | None, n_others: int) -> str:
    warnings = sum(f.severity == "warning" for f in current.findings)
    suffix = f"; {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if current.because is not None:
        return f"Your command {current.because}{suffix}."
    if rank == 1:
        return f"Your command is the best found: keep it{suffix}."
    return f"Your command works and would be #{rank} of {n_others + 1}{suffix}."


def _speeds(current: CurrentCommand, goal: Goal) -> list[SpeedPoint]:
    depths = sorted({0, goal.depth // 2, goal.depth})
    return [speed_point(n_kv, current.case.speed(n_kv)) for n_kv in depths]


def as_config(current: CurrentCommand, goal: Goal, reserve: Sequence[int]) -> AdvisedConfig:
    """Return the command in use as the config that comes first. `reserve`: bytes that a GPU should keep free."""
    case, contender, smaller = current.case, current.contender, current.smaller_benchmark
    seconds = contender.seconds
    return AdvisedConfig(
        id="mine",
        rank=1,
        engine=case.engine,
        variant=current.name,
        bpw=round(case.model.bpw, 3),
        strategy=contender.candidate.strategy,
        flags=case.flags,
        commands=_commands(case, smaller),
        devices=case.table,
        speed=_speeds(current, goal),
        deeper=[speed_point(n_kv, case.speed(n_kv)) for n_kv in goal.deeper],
        token_ms=milliseconds(case.speed(goal.depth).parts_tg),
        goal_seconds=(seconds.low, seconds.expected, seconds.high),
        max_context=max_context(contender.problem, contender.fitted, case.model.n_ctx_train),
        reasons=[
            Reason("mine", "this is your own command: nothing tried serves the goal better"),
            *([benchmark_reason(case.engine, case.n_ubatch, smaller)] if smaller else []),
        ],
        notes=_notes(current, reserve),
        weighed=contender.weighed,
        is_mine=True,
        smaller_benchmark=smaller,
    )


def _notes(current: CurrentCommand, reserve: Sequence[int]) -> list[str]:
    small = [row for row, least in zip(current.case.table, reserve, strict=False) if row.free_mib < least / MIB]
    close = [f"only {row.free_mib:,.0f} MiB stay free on {row.device}" for row in small]
    return [*close, *(f.message for f in current.findings)]


def _commands(case: Case, smaller: SmallerBenchmark | None) -> Commands:
    """The command in its build's spelling; options that change no figure are left out where it was no server."""
    parsed = case.parsed
    server = case.flags
    if parsed.tool == "server":
        server = msgspec.structs.replace(server, other=(*server.other, *parsed.rest))
    bench = msgspec.structs.replace(case.flags, n_ubatch=smaller.n_ubatch) if smaller else case.flags
    return Commands(download="", server=_rendered(case, "server", server), bench=_rendered(case, "bench", bench))


def _rendered(case: Case, tool: str, flags: Flags) -> str:
    parsed = case.parsed
    try:
        return render(
            case.engine,
            "server" if tool == "server" else "bench",
            flags,
            model_path=parsed.model_path or "model.gguf",
            env=parsed.env,
            prefix=parsed.prefix,
            build=parsed.build,
        )
    except InvalidFlags:
        return ""  # llama-bench does not take every cache type of the server
