"""Speed of a config at a depth, for one request or several at once, the time of a goal, what limits it, comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from service.engine.advice import SpeedPoint
from service.engine.calibration import Calibration, Coefficients, Part
from service.engine.config import Device, Flags
from service.engine.estimate import Z80, Estimate
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.run.environment import Binding, binding_of, one_socket, prefix_of
from service.engine.run.resolved import ResolvedRun
from service.engine.speed.generation import Token, token_seconds
from service.engine.speed.interval import CALLED, Phase, Trust, comparison_of, share_of, spread_of_ratio, trust
from service.engine.speed.machine import CpuRate, Machine, machine_of
from service.engine.speed.prompt import MicroBatch, batch_seconds
from service.engine.speed.sums import work_of
from service.engine.speed.tensor_parallel import is_parallel, pipeline_gain
from service.engine.speed.work import Seconds, Work, overlap

# Usual prompts, as multiples of a goal's, and their share of requests: the mean is the goal's prompt.
_PROMPTS = ((0.3, 1 / 4), (0.55, 1 / 4), (0.8, 1 / 4), (2.35, 1 / 4))
# Times of reading RAM. `distribute` and `isolate` against one bound socket: ik_llama.cpp discussion 396 (40, 27 and
# 10 t/s). `interleave` against the calibration's two sockets: its published runs (discussion 491, pull request 762)
# are 4 % slower than predicted, of which reading RAM is half.
_TIMES: dict[Binding, float] = {
    "unset": 1.0, "interleave": 1.09, "bound": 1.0, "distribute": 40 / 27, "isolate": 40 / 10,
}  # fmt: skip
# What widens the 80 % interval of the class besides: of each of these one machine was published.
_LESS_KNOWN: dict[Binding, float] = {"distribute": 1.6, "isolate": 2.0}
Resource: TypeAlias = Literal["GPU", "RAM and CPU", "link", "waiting"]
# Attention counts as work of the GPU: with a cache in RAM it is a small part of what the CPU does.
_PARTS: dict[Resource, tuple[Part, ...]] = {
    "GPU": ("weights on GPU", "attention"),
    "RAM and CPU": ("experts in RAM", "other weights in RAM"),
    "link": ("copies over PCIe",),
    "waiting": ("launch overhead", "synchronisation"),
}
_MORE_RAM = 4 / 3  # DDR5-6400 for 4800, DDR4-3200 for 2400
TOO_FAST = 1.15  # of `at_once`: median of predicted over measured in published tables
_ALIKE = 0.62  # exponent: n tokens choose as many experts as so many that have nothing in common
_WITHIN = 1.5  # a factor within which 80 % of them lie
_WITHIN_UNSEEN = 2.0  # for several cards or weights in RAM, of which there are none among them
_BASIS = "formula"
_LARGE = 2048  # tokens of a batch, from which on its time grows by arithmetic alone


class Speed(msgspec.Struct, frozen=True):
    """What llama-sweep-bench would print at one depth, in tokens a second, and where the time goes.

    `parts_tg`: seconds of one token; `parts_pp`: seconds of one micro-batch of `n_ubatch` tokens.
    `calibration`: what it was predicted by.
    """

    pp: Estimate
    tg: Estimate
    parts_pp: Seconds
    parts_tg: Seconds
    n_ubatch: int
    calibration: Calibration


def predict_speed(run: ResolvedRun, n_kv: int) -> Speed:
    """Return PP and TG of one sequence with `n_kv` tokens in the cache, each with an 80 % interval."""
    rig, devices = bound_rig(run.rig, run.binding), run.devices
    p = rig.calibration.coefficients
    work, machine = work_of(run), bound_machine(run.rig, devices, run.flags, p, run.binding)
    tg = token_seconds(work, machine, p, n_kv)
    pp = batch_seconds(work, machine, p, work.n_ubatch, n_kv)
    known = all(rig.cards[d.gpu].bandwidth_known for d in devices)
    for_pp = widened(trust(work, rig, devices, pp, "pp", n_kv), run.rig, run.binding)
    for_tg = widened(trust(work, rig, devices, tg, "tg", n_kv), run.rig, run.binding)
    return Speed(
        pp=_estimate(work.n_ubatch, pp, for_pp),
        tg=_estimate(1, tg, for_tg, _least_seconds(work, machine) if known else 0),
        parts_pp=pp,
        parts_tg=tg,
        n_ubatch=work.n_ubatch,
        calibration=rig.calibration,
    )


def speed_point(n_kv: int, speed: Speed) -> SpeedPoint:
    """Return the speed at one depth in the shape that answers have, rounded to 0.01 tokens per second."""
    return SpeedPoint(
        n_kv=n_kv,
        pp_tps=round(speed.pp.expected, 2),
        pp_low=round(speed.pp.low, 2),
        pp_high=round(speed.pp.high, 2),
        tg_tps=round(speed.tg.expected, 2),
        tg_low=round(speed.tg.low, 2),
        tg_high=round(speed.tg.high, 2),
        basis=speed.tg.basis,
    )


def goal_seconds(run: ResolvedRun, goal: Goal) -> Estimate:
    """Return the seconds of one request of `goal`: its prompt on top of its depth, then its output.

    The prompt runs in micro-batches; the last, partial one may fall under the threshold for copies. `parallel` is not
    counted: it is the time of one request alone.
    """
    work, rig, devices = work_of(run), bound_rig(run.rig, run.binding), run.devices
    spent = request_of(run.rig, devices, run.flags, goal, run.binding).spent(work)
    end = goal.depth + goal.prompt
    for_pp = widened(trust(work, rig, devices, spent.batch, "pp", end), run.rig, run.binding)
    for_tg = widened(trust(work, rig, devices, spent.token, "tg", end), run.rig, run.binding)
    return Estimate(
        low=spent.prompt / for_pp.factor + spent.output / for_tg.factor,
        expected=spent.prompt + spent.output,
        high=spent.prompt * for_pp.factor + spent.output * for_tg.factor,
        basis=for_tg.basis,
    )


def typical_seconds(run: ResolvedRun, goal: Goal) -> float:
    """Return the expected seconds of a usual request of `goal`, whose own prompt is the mean of many.

    There are three short prompts for each long one, so that a threshold near the goal's own prompt, or near one of
    them, decides little.
    """
    work = work_of(run)
    request = request_of(run.rig, run.devices, run.flags, goal, run.binding)
    prompts = ((max(round(goal.prompt * times), 1), share) for times, share in _PROMPTS)
    return sum(share * replace(request, goal=replace(goal, prompt=n)).seconds(work) for n, share in prompts)


class Spent(NamedTuple):
    """Seconds of a request's prompt and of its output, with the parts of its first micro-batch and of a token."""

    prompt: float
    output: float
    batch: Seconds
    token: Seconds


class TimedRequest(msgspec.Struct, frozen=True):
    """One request of a goal on a machine: its prompt on top of its depth, then its output."""

    machine: Machine
    goal: Goal
    coefficients: Coefficients

    def micro_batch(self, work: Work) -> MicroBatch:
        return MicroBatch(work, self.machine, self.coefficients, work.n_ubatch)

    def token(self, work: Work) -> Token:
        return Token(work, self.machine, self.coefficients)

    def spent(self, work: Work, full: MicroBatch | None = None, one: Token | None = None) -> Spent:
        """Return where the time of the request goes with this work. Time is linear in depth: the middle is the mean.

        `full`: its `micro_batch`, and `one`: its `token`, where these are known.
        """
        p, goal = self.coefficients, self.goal
        prompt, batch = prompt_seconds(work, self.machine, p, goal.depth, goal.prompt, full)
        token = (one or self.token(work)).seconds(goal.depth + goal.prompt + goal.output / 2)
        return Spent(prompt, sum(token.values()) * goal.output, batch, token)

    def seconds(self, work: Work, full: MicroBatch | None = None, one: Token | None = None) -> float:
        """Return the expected seconds of the request with this work; `full`, `one`: as `spent` takes them."""
        spent = self.spent(work, full, one)
        return spent.prompt + spent.output


def request_of(
    rig: Rig, devices: Sequence[Device], flags: Flags, goal: Goal, binding: Binding | None = None
) -> TimedRequest:  # fmt: skip
    """Return one request of `goal` on `devices` of `rig`, with the threads of `flags`.

    `binding` None: as a command with these flags is written.
    """
    p, bound = rig.calibration.coefficients, binding or binding_of(prefix_of(flags.numa), flags.numa)
    return TimedRequest(bound_machine(rig, devices, flags, p, bound), goal, p)


def versus(a: Speed, b: Speed, phase: Phase, same_engine: bool = True) -> Estimate:
    """Return how many times faster `a` is than `b` on one rig, with an 80 % interval that leaves out shared errors.

    Where a rig's memory, link or cards are better or worse than expected, they are so for both configs: only parts that
    take a different share of the time count, and the scatter of single runs on a rig.
    """
    known = a.calibration
    ours, theirs = (a.parts_tg, b.parts_tg) if phase == "tg" else (a.parts_pp, b.parts_pp)
    spread = spread_of_ratio(ours, theirs, known.comparisons[comparison_of(ours, phase)], same_engine)
    tokens = 1.0 if phase == "tg" else a.n_ubatch / b.n_ubatch
    ratio, factor = tokens * sum(theirs.values()) / sum(ours.values()), math.exp(Z80 * spread)
    return Estimate(ratio / factor, ratio, ratio * factor, known.basis)


def is_called(ratio: Estimate) -> bool:
    """Return whether the faster one may be named: that is right at least three times of four."""
    return abs(math.log(ratio.expected)) >= math.log(ratio.high / ratio.expected) * CALLED / Z80


def _estimate(n_tokens: int, parts: Seconds, reliable: Trust, least: float = 0.0) -> Estimate:
    speed = n_tokens / sum(parts.values())
    high = speed * reliable.factor
    return Estimate(speed / reliable.factor, speed, min(high, n_tokens / least) if least else high, reliable.basis)


def _least_seconds(work: Work, machine: Machine) -> float:
    """The roofline of one token: the weights on GPUs at their full stated bandwidth, of all that work together."""
    active = [
        (w.device, w.n_bytes * (work.share if w.use == "expert" else 1.0))
        for w in work.weights
        if w.device < work.n_devices
    ]
    if is_parallel(work):
        return sum(n_bytes for _, n_bytes in active) / sum(card.bandwidth for card in machine.cards)
    return sum(n_bytes / machine.cards[device].bandwidth for device, n_bytes in active)


def prompt_seconds(
    work: Work, machine: Machine, p: Coefficients, depth: int, prompt: int, full: MicroBatch | None = None
) -> tuple[float, Seconds]:  # fmt: skip
    """Return the seconds of a prompt from `depth` on, and the parts of its first micro-batch.

    `full`: a whole micro-batch of this work, where it is known.
    Full micro-batches are integrated by Simpson's rule over the first, middle and last: their time is linear in depth
    but for sliding windows.
    """
    u = min(work.n_ubatch, prompt)
    count, rest = divmod(prompt, u)
    gain = pipeline_gain(work, machine, p, count)
    batch = full if full is not None and full.n_tokens == u else MicroBatch(work, machine, p, u)
    first = batch.seconds(depth)
    total = sum(first.values()) * count
    if count > 1:
        last = depth + (count - 1) * u
        middle = sum(batch.seconds((depth + last) // 2).values())
        end = sum(batch.seconds(last).values())
        total = count * (sum(first.values()) + 4 * middle + end) / 6
    total /= gain
    if rest:
        total += sum(batch_seconds(work, machine, p, rest, depth + count * u).values())
    return total, first


def bound_rig(rig: Rig, binding: Binding) -> Rig:
    """Return the part of a machine that a command with this binding reads from."""
    return one_socket(rig) if rig.sockets > 1 and binding not in ("unset", "interleave") else rig


def bound_machine(rig: Rig, devices: Sequence[Device], flags: Flags, p: Coefficients, binding: Binding) -> Machine:
    """Return the rates of `bound_rig` and some of its GPUs, with RAM as fast as this binding of `rig` leaves it."""
    machine, times = machine_of(bound_rig(rig, binding), devices, flags, p), _TIMES[binding] if rig.sockets > 1 else 1.0
    return replace(machine, token_cpu=_slower(machine.token_cpu, times), batch_cpu=_slower(machine.batch_cpu, times))


def widened(trusted: Trust, rig: Rig, binding: Binding) -> Trust:
    """Return the interval of a speed, wider where little is published of the binding."""
    more = math.log(_LESS_KNOWN.get(binding, 1.0)) if rig.sockets > 1 else 0.0
    return Trust(math.exp(math.hypot(math.log(trusted.factor), more)), trusted.basis)


def _slower(cpu: CpuRate, times: float) -> CpuRate:
    return replace(cpu, read=cpu.read * times, read_batch=cpu.read_batch * times)


class Limit(msgspec.Struct, frozen=True):
    """The resource that takes most of the time, its share of it, and upper bounds of what improvements gain.

    `gains`: how many times faster the config would be if that resource were infinitely fast; `ram`: with RAM a third
    faster.
    """

    resource: Resource
    share: float
    gains: dict[Resource, float]
    ram: float


def limit_of(run: ResolvedRun, parts: Seconds, phase: Phase, n_kv: int) -> Limit:
    """Return what limits a time made of `parts`: of a token at depth `n_kv`, or of a micro-batch that starts there."""
    on_cpu = not run.placement.n_devices
    names = {**_PARTS, "RAM and CPU": (*_PARTS["RAM and CPU"], "attention"), "GPU": ()} if on_cpu else _PARTS
    shares = {resource: share_of(parts, of) for resource, of in names.items()}
    largest = max(shares, key=lambda resource: shares[resource])
    gains = {resource: 1 / max(1 - share, 0.01) for resource, share in shares.items()}
    faster = replace(run.rig, cpu_bandwidth_gbs=run.rig.cpu_bandwidth_gbs * _MORE_RAM)
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = bound_machine(faster, run.devices, run.flags, p, run.binding)
    then = (
        token_seconds(work, machine, p, n_kv) if phase == "tg" else batch_seconds(work, machine, p, work.n_ubatch, n_kv)
    )
    return Limit(largest, shares[largest], gains, sum(parts.values()) / sum(then.values()))


def at_once(run: ResolvedRun, n: int, n_kv: int) -> Estimate:
    """Return the tokens a second of `n` requests together, each with `n_kv` tokens in its cache.

    Weights are read once for all, of the experts those that any of the tokens chose; arithmetic, caches and states
    count for each. A bias is fitted; how alike the tokens choose is what published prompts of 1 to 512 tokens say (0.55
    to 0.69). 89 figures of 20 published tables (tests/data/many_at_once.jsonl, one card each) have a median error of
    11 % (`python -m bench.at_once`). No table of several cards or of weights in RAM was found.
    """
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = bound_machine(run.rig, run.devices, run.flags, p, run.binding)
    expected = n / (TOO_FAST * sum(evaluation(work, machine, p, n, n_kv).values()))
    factor = _WITHIN if work.n_devices == 1 and not work.host_layers else _WITHIN_UNSEEN
    return Estimate(expected / factor, expected, expected * factor, _BASIS)


def evaluation(work: Work, machine: Machine, p: Coefficients, n: int, n_kv: int) -> Seconds:
    """Return the seconds of one evaluation with a token of each of `n` requests, by part; for one request a token's."""
    chosen = 1 - (1 - work.share) ** n**_ALIKE
    parts = token_seconds(replace(work, n_expert_used=chosen * work.n_expert), machine, p, n_kv)
    large, larger = (batch_seconds(work.without_copies(), machine, p, size, 0) for size in (_LARGE, 2 * _LARGE))
    each = {part: (larger[part] - large[part]) / _LARGE for part in parts}
    parts["attention"] *= n
    if n > 1:
        parts["weights on GPU"] += n * each["weights on GPU"]
        for part in ("experts in RAM", "other weights in RAM"):
            parts[part] = overlap(parts[part], n * each[part])
    return parts
