"""Tokens a second of several requests at once: one evaluation gives a token to each of them.

Weights are read once for all, of the experts those that any of the tokens chose; arithmetic, caches and states count
for each. A bias is fitted; how alike the tokens choose is what published prompts of 1 to 512 tokens say (0.55 to 0.69).
89 figures of 20 published tables (tests/data/many_at_once.jsonl, one card each) have a median error of 11 % (`python -m
bench.at_once`). No table of several cards or of weights in RAM was found.
"""

from __future__ import annotations

import msgspec

from service.engine.calibration import Coefficients
from service.engine.estimate import Estimate
from service.engine.run.resolved import ResolvedRun
from service.engine.speed.binding import bound_machine
from service.engine.speed.generation import token_seconds
from service.engine.speed.machine import Machine
from service.engine.speed.parts import Seconds, overlap
from service.engine.speed.prompt import batch_seconds
from service.engine.speed.sums import work_of
from service.engine.speed.work import Work

TOO_FAST = 1.15  # median of predicted over measured in those tables
_ALIKE = 0.62  # exponent: n tokens choose as many experts as so many that have nothing in common
_WITHIN = 1.5  # a factor within which 80 % of them lie
_WITHIN_UNSEEN = 2.0  # for several cards or weights in RAM, of which there are none among them
_BASIS = "formula"
_LARGE = 2048  # tokens of a batch, from which on its time grows by arithmetic alone


def at_once(run: ResolvedRun, n: int, n_kv: int) -> Estimate:
    """Return the tokens a second of `n` requests together, each with `n_kv` tokens in its cache."""
    p, work = run.rig.calibration.coefficients, work_of(run)
    machine = bound_machine(run.rig, run.devices, run.flags, p, run.binding)
    expected = n / (TOO_FAST * sum(evaluation(work, machine, p, n, n_kv).values()))
    factor = _WITHIN if work.n_devices == 1 and not work.host_layers else _WITHIN_UNSEEN
    return Estimate(expected / factor, expected, expected * factor, _BASIS)


def evaluation(work: Work, machine: Machine, p: Coefficients, n: int, n_kv: int) -> Seconds:
    """Return the seconds of one evaluation with a token of each of `n` requests, by part; for one request a token's."""
    chosen = 1 - (1 - work.share) ** n**_ALIKE
    parts = token_seconds(msgspec.structs.replace(work, n_expert_used=chosen * work.n_expert), machine, p, n_kv)
    large, larger = (batch_seconds(work.without_copies(), machine, p, size, 0) for size in (_LARGE, 2 * _LARGE))
    each = {part: (larger[part] - large[part]) / _LARGE for part in parts}
    parts["attention"] *= n
    if n > 1:
        parts["weights on GPU"] += n * each["weights on GPU"]
        for part in ("experts in RAM", "other weights in RAM"):
            parts[part] = overlap(parts[part], n * each[part])
    return parts
