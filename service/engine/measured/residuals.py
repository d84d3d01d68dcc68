"""What others measured on the same cards says of an estimate: a correction that no owner, and no tenth of the owners,
can move by more than 3 %.

An observation is the logarithm of measured over predicted speed. An owner has one voice, however many results: their
median m_i, cut to [-CUT, CUT], with the largest of their weights w_i. The shift is

    sum(w_i * cut(m_i)) / (sum(w_i) + UNMOVED)

the mean of the voices and of UNMOVED more that say the estimate is right. One more owner, whatever it claims and
whatever the others do, moves it by 3 % at most; so do colluding owners with a tenth of the weight; all together by CUT
(docs/trust.md has the proof, bench/results/residuals.txt what it gains: where all weights are on cards, and nowhere
else). The asker's own results are another matter (`nearby`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.config import CPU, Flags
from service.engine.measured.nearby import FARTHEST, Correction, Phase, moved
from service.engine.run_flags import RunFlags

UNMOVED = 4.0
CUT = 0.146
"""With owners of the weight W already, one more moves the shift by at most CUT (2 W + 4) / ((W + 5) (W + 4)): the
largest is 0.2021 CUT, less than log 1.03."""
_DISAGREE = 3  # owners, from which on their disagreement says something of the uncertainty
_SIGMA = 1.4826  # a standard deviation of a normal distribution over its median absolute deviation


class Residual(msgspec.Struct, frozen=True):
    """Logarithm of measured over predicted speed of a result on the same cards, by phase. `owner`: whose it is;
    `weight`: 1 for what a host measured that is proven, less for what is only said."""

    owner: str
    error: dict[Phase, float]
    weight: float = 1.0


class _Voice(msgspec.Struct, frozen=True):
    error: float
    weight: float


def shared(prior: float, phase: Phase, observed: Sequence[Residual]) -> Correction:
    """Return the correction by others' results of an estimate whose logarithm has the standard deviation `prior`.

    The shift implies that the shared error has 1 / (1 + UNMOVED) of the variance. Owners who scatter by more than the
    rest widen the interval.
    """
    by_owner: dict[str, list[Residual]] = {}
    for one in observed:
        if abs(one.error.get(phase, math.inf)) <= FARTHEST:
            by_owner.setdefault(one.owner, []).append(one)
    voices = [
        _Voice(statistics.median(one.error[phase] for one in his), max(one.weight for one in his))
        for his in by_owner.values()
    ]
    if not voices:
        return Correction(0.0, prior)
    weight = sum(voice.weight for voice in voices)
    shift = sum(voice.weight * max(-CUT, min(CUT, voice.error)) for voice in voices) / (weight + UNMOVED)
    known = weight / (weight + UNMOVED) / (1 + UNMOVED)
    return Correction(shift, max(prior * math.sqrt(1 - known), _scatter(voices)))


def _scatter(voices: Sequence[_Voice]) -> float:
    """The standard deviation of the owners' voices, from their median absolute deviation; 0 where they are too few."""
    if len(voices) < _DISAGREE:
        return 0.0
    middle = statistics.median(voice.error for voice in voices)
    return _SIGMA * statistics.median(abs(voice.error - middle) for voice in voices)


def with_residuals(point: SpeedPoint, observed: Sequence[Residual]) -> SpeedPoint:
    """Return the speed at a depth corrected by others' results, basis `calibrated on N results`."""
    return moved(point, lambda prior, phase: shared(prior, phase, observed), len(observed))


def all_on_cards(flags: Flags | RunFlags, devices: Sequence[DeviceMemory]) -> bool:
    """Return whether every layer of a config is on cards, with its cache; the token embedding never is."""
    cards = any(row.weights_mib > 0 for row in devices if row.device != CPU)
    cache_in_ram = any(row.kv_mib > 0 for row in devices if row.device == CPU)
    kept_in_ram = flags.cpu_moe or flags.n_cpu_moe or any(rule.device == CPU for rule in flags.overrides)
    return cards and not cache_in_ram and not kept_in_ram
