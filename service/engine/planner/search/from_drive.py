"""Configs where nothing fits into RAM and VRAM: a mixture of experts whose experts are read from a drive, slowly.

llama.cpp maps the file by default. Attention and cache go to the cards with as many experts as fit; the other experts
stay mapped, and RAM keeps those that it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.advice import Pick, Reason
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.planner.pricing.candidate import Candidate, Strategy, base_flags
from service.engine.planner.pricing.fit import Fitted, Problem, slack
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.search.candidates import cache_pairs
from service.engine.planner.search.forecasts import Forecasts
from service.engine.planner.search.layout_flags import starts_of, tensor_split_for
from service.engine.planner.search.options import for_build, wanted_flags
from service.engine.planner.search.outcome import Outcome, contender_of
from service.engine.speed.drive import DRIVE, DriveReads, drive_reads, from_drive
from service.engine.speed.predict import Speed, predict_speed
from service.engine.units import GIB

_MICRO_BATCHES = (2048, 512)
_MOST = 4
_LEAST_TG = 0.1  # below it a hundred tokens take a quarter of an hour


class FromDrive(NamedTuple):
    """A config that reads experts from a drive, and what it reads.

    Its problem has a limit of RAM that is beyond what there is, by the bytes that stay on the drive.
    """

    contender: Contender
    reads: DriveReads

    def speed(self, n_kv: int) -> Speed:
        return from_drive(predict_speed(self.contender.fitted.run, n_kv), self.reads)

    @property
    def reasons(self) -> list[Reason]:
        """Reasons that say what it reads, and what share of the time that takes."""
        share = self.reads.token.expected * self.contender.speed.tg.expected
        text = (
            f"{self.reads.beyond / GIB:.0f} GiB of the experts do not fit in RAM: each token reads about "
            f"{self.reads.a_token / GIB:.1f} GiB from the drive, and each micro-batch of a prompt nearly all of them"
        )
        return [
            Reason("experts-from-drive", text),
            Reason(
                "limit-tokens", f"generation: reading the drive takes {share * 100:.0f} % of the time, at {_rate()}"
            ),
        ]

    @property
    def note(self) -> str:
        """What the user has to know before running it."""
        return f"assumed: an NVMe drive that reads {_rate()} (PCIe 4.0); keep mmap on and the file on that drive"


def best_from_drive(outcomes: Sequence[Outcome], goal: Goal) -> list[FromDrive]:
    """Return the best config of each variant with experts on a drive, at most four by cost, among them the fastest.

    The cost is that of the pick `fast`, unless quality was asked for: all are far below reading speed, and those who
    ran R1 like this gave up quality for speed (r/LocalLLaMA: the 2.5 bits of UD-Q2_K_XL, 212 GB, mapped with 96 GB of
    RAM). Empty where none generates a token in ten seconds. `outcomes`: of a search that found nothing that fits.
    """
    found = [one for outcome in outcomes for one in _configs(outcome)]
    usable = [one for one in found if one.contender.speed.tg.low >= _LEAST_TG]
    best: dict[int, FromDrive] = {}
    weighed: Pick | None = None if goal.preset == "quality" else "fast"
    for one in sorted(usable, key=lambda one: one.contender.cost(goal, weighed)):
        best.setdefault(one.contender.variant, one)
    shown = list(best.values())[:_MOST]
    fastest = min(best.values(), key=lambda one: one.contender.seconds.expected, default=None)
    return shown if fastest is None or fastest in shown else [*shown[:-1], fastest]


def _configs(outcome: Outcome) -> Iterator[FromDrive]:
    case, model = outcome.case, outcome.case.model
    pins = engine_spec(case.engine).offload.pins_overridden
    if outcome.shortfall is None or pins or not model.moe_layers:
        return
    forecasts, cards = Forecasts(case), tuple(range(len(case.rig.cards)))
    problem, build = forecasts.problem(cards), forecasts.build
    for n_ubatch, copies in product(_MICRO_BATCHES, (True, False) if cards else (True,)):
        start = _candidate(outcome, n_ubatch, copies=copies)
        for candidate in wanted_flags(case).applied_to(iter([start])):
            try:
                written = for_build(case.engine, candidate, build) if build.date else candidate
            except InvalidFlags:
                continue
            fitted = _most_on_cards(problem, written)
            found = _config(outcome, problem, written, fitted) if fitted else None
            if found:
                yield found


def _candidate(outcome: Outcome, n_ubatch: int, *, copies: bool) -> Candidate:
    case, cards = outcome.case, tuple(range(len(outcome.case.rig.cards)))
    pair = cache_pairs(case.engine, case.model, case.rig.cards, case.constraints)[0][0]
    strategy: Strategy = "FFN in RAM" if cards else "CPU only"
    flags = base_flags(case.engine, case.model, case.rig, case.goal, strategy, n_ubatch, *pair)
    return Candidate("experts from a drive", cards, replace(flags, mmap=None, op_offload=copies))


def _most_on_cards(problem: Problem, candidate: Candidate) -> Fitted | None:
    """The flags with the fewest layers' experts off the cards that lets these hold the rest; None where none does."""
    flags, n_layer = candidate.flags, problem.model.n_layer
    if not problem.devices:
        return problem.tried(flags)
    if "n_cpu_moe" in candidate.user_fields or "cpu_moe" in candidate.user_fields:
        return _if_cards_hold(problem, flags)
    low, high, best = 0, n_layer, _if_cards_hold(problem, replace(flags, n_cpu_moe=n_layer))
    while best is not None and low < high:
        middle = (low + high) // 2
        found = _if_cards_hold(problem, replace(flags, n_cpu_moe=middle))
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return _with_split(problem, best) if best else None


def _with_split(problem: Problem, fitted: Fitted) -> Fitted:
    """The same with a `-ts` that states the split which the engine makes by itself, if one does exactly that."""
    free = [device.free for device in problem.devices]
    starts = starts_of(fitted.placement, len(free))
    split = tensor_split_for(problem.engine, problem.model, fitted.flags, free, starts)
    run = problem.run(split) if split is not None else fitted.run
    return Fitted(run, fitted.memory) if run.placement == fitted.placement else fitted


def _if_cards_hold(problem: Problem, flags: Flags) -> Fitted | None:
    """The run of the flags with its memory; None where the cards are too small, whatever RAM is short of."""
    found = problem.tried(flags)
    return found if min(slack(problem, found.memory)[:-1]) >= 0 else None


def _config(outcome: Outcome, problem: Problem, candidate: Candidate, fitted: Fitted) -> FromDrive | None:
    run, goal = fitted.run, problem.goal
    reads = drive_reads(run, -slack(problem, fitted.memory)[-1])
    if reads is None or not problem.starts(run):
        return None
    roomy = replace(problem, limits=replace(problem.limits, host=problem.limits.host + int(reads.beyond) + 1))
    mapped = contender_of(outcome.case, candidate, roomy, fitted, outcome.loss)
    seconds, batches = mapped.seconds, -(-goal.prompt // fitted.flags.n_ubatch)
    reading = _sum(_times(reads.batch, batches), _times(reads.token, goal.output))
    with_reads = _sum(seconds, reading)
    speed = from_drive(mapped.speed, reads)
    return FromDrive(replace(mapped, speed=speed, seconds=with_reads, typical=with_reads.expected), reads)


def _times(one: Estimate, n: int) -> Estimate:
    return Estimate(one.low * n, one.expected * n, one.high * n)


def _sum(one: Estimate, other: Estimate) -> Estimate:
    return Estimate(one.low + other.low, one.expected + other.expected, one.high + other.high, one.basis)


def _rate() -> str:
    return f"{DRIVE / 1e9:.0f} GB/s"
