"""`check()`: a command in, everything that is known of it out; also where it does not fit or would be refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from service.engine.advice import SpeedPoint
from service.engine.builds import Build, BuildAsked
from service.engine.check.compare import (
    comparable_speeds,
    compare_buffers,
    compare_speeds,
    log_findings,
    measured_findings,
    slow_phase,
)
from service.engine.check.fixed import fixed_command
from service.engine.check.learning import Reported, reported_findings
from service.engine.check.report import CheckedMemory, CheckReport, CompanionMemory, FixedFigures
from service.engine.commands.parse import ParsedCommand, assumed_command, build_named, known_words, parse
from service.engine.commands.reader import READ_AS
from service.engine.config import ENGINES, Allocator, Engine
from service.engine.engines import all_engines
from service.engine.errors import InvalidInput
from service.engine.finding import Finding
from service.engine.hardware import Assumption, Rig
from service.engine.logs.read import read_log
from service.engine.logs.requests import MeasuredSpeed
from service.engine.model import Model
from service.engine.planner.pricing.support import unsupported
from service.engine.purpose import purpose_of
from service.engine.rules.all_rules import findings, in_order, refused
from service.engine.rules.case import Case, case_of
from service.engine.rules.companion_headers import NO_COMPANIONS, CompanionHeaders
from service.engine.run.effective import effective_flags
from service.engine.speed.predict import speed_point
from service.engine.units import mib

DEPTHS = (0, 4_096, 16_384, 65_536)
MAX_DEPTHS = 64
_WORTH_A_GIB = 512  # MiB, from which on a shortage is told in GiB
_NOTICED = 0.01  # of the speed that counts: a difference from here on is told
_CORRECTED = "Corrected,"
_REMOTE = "Cannot say with RPC servers, which are not computed; on this machine alone: "
_SAID_OF_REMOTE = ("rpc-not-supported", "container-limits", "environment-not-counted", "not-as-pasted", "cannot-load")
_BUILD_DECIDES = "defaults, the meaning of flags, and buffers"


def check(
    command: str, engine: Engine | None, model: Model, hardware: Rig, *, depths: Sequence[int] | None = None,
    allocator: Allocator = "cuda", measured: Sequence[MeasuredSpeed] = (), log: str | None = None,
    build: BuildAsked | str | None = None, companion_headers: CompanionHeaders = NO_COMPANIONS,
    reserve_mib: int | Sequence[int] | None = None, reported: Sequence[Reported] = (),
) -> CheckReport:  # fmt: skip
    """Return memory, speed and findings of a command; `measured` speeds and a pasted `log` next to what is expected.

    `engine` None: that of the log, else guessed from the command. `build`: whose defaults and meaning of flags hold;
    None: today's. `companion_headers`: of the draft model and projector that the command loads.
    `depths` in tokens; None: some up to the context of a slot.
    `reserve_mib`: what proposed changes leave free on every GPU, or a list by card; None: as in an advice.
    `reported`: where logs of others differ from what is computed of this architecture.
    What the engine would stop at is a finding, and the figures are without it.
    Raises InvalidFlags for a command that cannot be read, InvalidInput for an unknown build, a log without figures or
    too many depths.
    """
    if len(depths or ()) > MAX_DEPTHS or any(n < 0 for n in depths or ()):
        raise InvalidInput(f"at most {MAX_DEPTHS} depths, none below 0", field="depths")
    if isinstance(reserve_mib, Sequence) and len(reserve_mib) != len(hardware.cards):
        raise InvalidInput(f"one number, or one for each of {len(hardware.cards)} GPUs", field="reserve_mib")
    reading = read_log(log) if log is not None else None
    asked = engine or (reading.engine if reading else None)
    parsed, why = _that_runs(parse(command, asked, build=build), command, model, hardware, build)
    case = case_of(parsed, model, hardware, command, allocator, companion_headers, reserve_mib)
    strange = list(log_findings(case, reading)) if reading else []
    known = reading if reading and not any(one.rule == "log-of-another-model" for one in strange) else None
    compared = [
        *compare_speeds(case, [*measured, *(comparable_speeds(case, known) if known else ())]),
        *(compare_buffers(case, known) if known else ()),
    ]
    names = [device.name for device in case.devices]
    others = reported_findings(reported, case.parsed.build, model.architecture, names)
    shown = [*strange, *measured_findings(compared), *others]
    found = in_order([*shown, *_holding(case, findings(case, slow_phase(compared)))])
    fixed = fixed_command(case, command, found, build)
    corrected = fixed.case if fixed else None
    named = build is None and build_named(parsed.words.program or "") is not None
    return CheckReport(
        verdict=_verdict(case, found, corrected, has_run=bool(compared or known), asked=build is not None or named),
        engine=case.engine,
        build=case.parsed.build.label,
        program=case.parsed.program,
        fits=case.all_fits,
        memory=_memory(case),
        speed=_speed(case, depths),
        findings=found,
        fixed=fixed.line if fixed else None,
        fixed_figures=_figures(corrected, depths) if corrected else None,
        compared=compared,
        assumed=[
            *assumed_command(parsed, "command"),
            *why,
            *hardware.assumed,
            *_assumed_build(case.parsed.build, asked=build is not None, named=named),
        ],
        flags=effective_flags(case.run, case.parsed.flags, parsed.used),
    )


def _holding(case: Case, found: Sequence[Finding]) -> Sequence[Finding]:
    """Return what holds of a command. With RPC servers, which get layers first, nothing is known of where things lie,
    and no share or rule can be advised."""
    if not case.has_remote:
        return found
    options = (one for one in found if one.rule in _SAID_OF_REMOTE or refused().get(one.rule) == "options")
    return [one for one in options if "RPC[" not in one.message]


def _memory(case: Case) -> CheckedMemory:
    return CheckedMemory(case.table, case.memory.graph_splits, list(_companions(case)))


def _speed(case: Case, depths: Sequence[int] | None) -> list[SpeedPoint]:
    depths = sorted(set(depths)) if depths else [n for n in DEPTHS if n < case.context_each]
    return [speed_point(n_kv, case.speed(n_kv)) for n_kv in depths]


def _figures(corrected: Case, depths: Sequence[int] | None) -> FixedFigures:
    return FixedFigures(fits=corrected.all_fits, memory=_memory(corrected), speed=_speed(corrected, depths))


def _that_runs(
    parsed: ParsedCommand, command: str, model: Model, rig: Rig, build: BuildAsked | str | None
) -> tuple[ParsedCommand, list[Assumption]]:  # fmt: skip
    """Return the command, and what was guessed of it: its engine, where nothing names that.

    It is read for the other engine where only that can run the model on this machine, and knows as many of its words.
    A program whose path names an engine is that engine's.
    """
    if not parsed.guessed or any(name in (parsed.words.program or "") for name in ENGINES):
        return parsed, []
    why = "not given: guessed from the options"
    if reason := unsupported(parsed.engine, model, rig, parsed.build.date):
        options = parsed.words.options
        known = known_words(parsed.engine, options)
        for one in all_engines():
            runs = one.name != parsed.engine and unsupported(one.name, model, rig) is None
            if runs and known_words(one.name, options) >= known and (other := _read_for(one.name, command, build)):
                parsed, why = other, f"none was given, and {reason}"
                break
    return parsed, [Assumption("engine", parsed.engine, why, "everything")]


def _read_for(engine: Engine, command: str, build: BuildAsked | str | None) -> ParsedCommand | None:
    """Return the command read for an engine; None if that has no such build."""
    try:
        return parse(command, engine, build=build)
    except InvalidInput:
        return None


def _companions(case: Case) -> Iterator[CompanionMemory]:
    for one in case.companions:
        for device, row in enumerate(case.table):
            compute = one.compute[device]
            if one.weights[device] or one.kv[device] or compute.high:
                yield CompanionMemory(
                    kind=one.kind,
                    device=row.device,
                    weights_mib=mib(one.weights[device]),
                    kv_mib=mib(one.kv[device]),
                    compute_mib=mib(compute.expected),
                    compute_low_mib=mib(compute.low),
                    compute_high_mib=mib(compute.high),
                )


def _assumed_build(build: Build, *, asked: bool, named: bool) -> Iterator[Assumption]:
    if named:
        yield Assumption("build", build.label, "the program's folder or image names it", _BUILD_DECIDES)
    elif build.doubt:
        yield Assumption("build", build.label, build.doubt, _BUILD_DECIDES)
    elif not asked:
        yield Assumption("build", build.label, "no build was given: the newest known here", _BUILD_DECIDES)


def _verdict(case: Case, found: Sequence[Finding], corrected: Case | None, *, has_run: bool, asked: bool) -> str:
    """The first sentence: starts, fits or not, how fast, and how much is wrong. What `has_run` did start, then.

    Where the command that is `corrected` in all is clearly faster or slower, it names that speed, too.
    """
    small = [row for row in case.table if not row.fits]
    speed, now = _speed_words(case), _rate(case)
    then = _rate(corrected) if corrected else now
    differs, now_fits = abs(then / now - 1) >= _NOTICED, corrected is not None and corrected.all_fits
    as_fixed = f", {then:,.1f} with the fixes" if differs else ""
    unloadable = next((one for one in found if one.rule == "cannot-load"), None)
    fits = "fits, apart from what is not counted" if any(one.rule == "not-counted" for one in found) else "fits"
    if unloadable is not None:
        text = f"Does not run: {unloadable.message}"
    elif small:
        short = max(small, key=lambda row: row.total_high_mib - row.capacity_mib)
        lacks = short.total_high_mib - short.capacity_mib
        over = f"{lacks / 1024:,.1f} GiB too little" if lacks >= _WORTH_A_GIB else f"{lacks:,.0f} MiB too little"
        if case.from_drive:
            text = f"Runs from the drive: {over} RAM, {speed}{'' if now_fits else as_fixed}"
        else:
            surely = any(case.surely_short(i) for i in range(case.cpu + 1))
            text = f"{'Does' if surely else 'May'} not fit: {over}{'' if surely else ' at worst'} on {short.device}"
        text += f", and too little on {_count(len(small) - 1, 'other device')}" if len(small) > 1 else ""
        if corrected and now_fits:
            text += f"; with the fixes it {fits}: {_speed_words(corrected)}"
    else:
        text = f"{fits.capitalize()}: {speed}{as_fixed}"
    if not small and not has_run and unloadable is None and (otherwise := _started_otherwise(found, asked=asked)):
        if corrected and differs and otherwise.endswith(_CORRECTED):
            speed, as_fixed = _speed_words(corrected), f", instead of {now:,.1f} as written"
        text = f"{otherwise} it {fits}: {speed}{as_fixed}"
    if case.has_remote and unloadable is None:
        text = f"{_REMOTE}{text[0].lower()}{text[1:]}"
    errors = sum(f.severity == "error" for f in found)
    warnings = sum(f.severity == "warning" for f in found)
    return f"{text}; {_count(errors, 'error')}, {_count(warnings, 'warning')}."


def _rate(case: Case) -> float:
    """The speed that counts: of reading where the model writes no text."""
    speed = case.speed()
    return (speed.tg if purpose_of(case.model) == "text" else speed.pp).expected


def _speed_words(case: Case) -> str:
    at = speed_point(0, case.speed())  # rounded as in the table
    if purpose_of(case.model) != "text":
        return f"PP about {at.pp_tps:,.0f} t/s ({at.pp_low:,.0f} to {at.pp_high:,.0f}) with an empty cache"
    return f"TG about {at.tg_tps:,.1f} t/s ({at.tg_low:,.1f} to {at.tg_high:,.1f}) with an empty cache"


def _started_otherwise(found: Sequence[Finding], *, asked: bool) -> str:
    """Say that the program ends at its options, or takes a value for another; "" where it does neither."""
    wrong = [f for f in found if f.rule in refused() and f.severity == "error"]
    ends = [f for f in wrong if READ_AS not in f.message]
    if not wrong:
        return ""
    why = (ends or wrong)[0].message.split("; ")[0]
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    if not ends:
        return f"Runs, but not as meant: {why}{more}. As meant,"
    of = "" if asked else " with today's build"
    return f"Does not start{of}: {why}{more}. {_CORRECTED}"


def _count(n: int, what: str) -> str:
    return f"{n or 'no'} {what}{'' if n == 1 else 's'}"
