"""The roofline: the fastest that a machine could run a model with any engine. What is faster was not measured on it.

A token reads every weight that it uses once, so no output is faster than all memory of the machine together delivers
these bytes; a prompt's token costs two operations a weight, so no prompt is faster than all arithmetic together does
them. Both are far above what engines reach (bench/results/speed.txt): the bound rules out the impossible, not the
unlikely. Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from service.engine.advice import DeviceMemory, SpeedPoint
from service.engine.catalogue import resolve
from service.engine.errors import InvalidInput
from service.engine.hardware import Card, Gpu, Hardware, Rig
from service.engine.measured.rows import MeasuredRow
from service.engine.model import Model
from service.engine.tensor_names import role_of
from service.engine.versions import versions


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Memory and speed as predicted. `most_tg`, `most_pp`: tokens a second that no machine of this kind can exceed.

    `calibration`: its version (as in Versions; by default the shipped one). `own_rig`: the prediction is for the
    machine that measured; else for one with the same cards, whose memory is the same, but not its speed.
    """

    devices: list[DeviceMemory]
    speed: list[SpeedPoint]
    most_tg: float
    most_pp: float
    calibration: str = msgspec.field(default_factory=lambda: versions().calibration)
    own_rig: bool = True


_OVERCLOCKED = 1.25  # memory and cores may run above the catalogue's figure
_UNKNOWN = 4.0  # times the bandwidth of a card that is assumed from similar ones, and what matrix units may add
_UNTOLD = ("apple m5", "battlemage", "alchemist")  # of which the catalogue has the shaders' peak, not their units'
_CACHES_TPS = 50_000.0  # a model that lies in the caches of its devices is bound by the engine's own steps
_CPU_OPERATIONS = 256.0  # int8 operations of one core and cycle: two 512-bit units of 64 lanes, multiply and add
_CPU_BANDWIDTH = 2.0  # the catalogue's is what the engine is seen to read; the modules' own is higher
_TERA, _GIGA = 1e12, 1e9


def bounding_rig(hardware: Hardware) -> Rig:
    """Return the machine by which its results are bounded. Raises UnknownHardware, InvalidHardware.

    Cards have the catalogue's bandwidth if it knows them, whatever is stated; memory has at most _CPU_BANDWIDTH times
    the catalogue's. Who sends a result states the hardware, and could otherwise raise the bound of a known card.
    """
    gpus = [msgspec.structs.replace(gpu, bandwidth_gbs=_stated_alone(gpu, hardware)) for gpu in hardware.gpus]
    ram = hardware.ram and msgspec.structs.replace(hardware.ram, measured_bandwidth_gbs=None)
    plain = resolve(msgspec.structs.replace(hardware, gpus=gpus, ram=ram))
    stated = resolve(hardware).cpu_bandwidth_gbs
    most = min(stated, _CPU_BANDWIDTH * plain.cpu_bandwidth_gbs)
    return msgspec.structs.replace(plain, cpu_bandwidth_gbs=max(most, plain.cpu_bandwidth_gbs))


def _stated_alone(gpu: Gpu, hardware: Hardware) -> float | None:
    """The bandwidth that is stated of a card which the catalogue does not know; None: it does, or nothing is stated."""
    if gpu.bandwidth_gbs is None:
        return None
    one = msgspec.structs.replace(gpu, bandwidth_gbs=None)
    known = resolve(msgspec.structs.replace(hardware, gpus=[one])).cards[0].bandwidth_known
    return None if known else gpu.bandwidth_gbs


def most_tg(model: Model, rig: Rig, slots: int = 1) -> float:
    """Return output tokens per second that `rig` cannot exceed with `model`; `slots`: sequences at once."""
    read = sum(_share(model, t.name) * t.nbytes for t in model.tensors)
    cards = sum(card.bandwidth_gbs * (1 if card.bandwidth_known else _UNKNOWN) for card in rig.cards)
    bandwidth = (cards * _OVERCLOCKED + rig.cpu_bandwidth_gbs * _CPU_BANDWIDTH) * _GIGA
    return slots * min(bandwidth / max(read, 1.0), _CACHES_TPS)


def most_pp(model: Model, rig: Rig) -> float:
    """Return prompt tokens per second that `rig` cannot exceed with `model`."""
    used = sum(_share(model, t.name) * t.n_elements for t in model.tensors)
    cards = sum(max(card.int8_tops, card.fp16_tflops) * _times(card) for card in rig.cards)
    cores = rig.physical_cores * rig.ghz * _GIGA * _CPU_OPERATIONS
    return (cards * _TERA * _OVERCLOCKED + cores * _OVERCLOCKED) / (2 * max(used, 1.0))


def _times(card: Card) -> float:
    """How many times the catalogue's operations a card may have: it knows no peak of some matrix units."""
    return _UNKNOWN if card.generation in _UNTOLD or not card.bandwidth_known else 1.0


def require_possible(rows: Sequence[MeasuredRow], most_tg: float, most_pp: float) -> None:
    """Raise InvalidInput, with the row's path, for speeds that memory and arithmetic of the rig do not allow."""
    limits = (("tg_seconds", most_tg), ("pp_seconds", most_pp))
    for i, row in enumerate(rows):
        for (name, most), speeds in zip(limits, (row.tg_tps, row.pp_tps), strict=True):
            fastest = max(speeds, default=0.0)
            if not math.isfinite(fastest) or fastest > most:
                what = f"{fastest:,.0f} t/s is impossible: at most {most:,.0f} can be read on this rig"
                raise InvalidInput(what, field=f"rows[{i}].{name}")


def _share(model: Model, name: str) -> float:
    """The part of a tensor that one token uses: the chosen experts; of the token embedding next to nothing."""
    role = role_of(name)
    if role == "token_embd":
        return 1.0 if model.tied else 0.0
    return model.expert_share if role == "expert" else 1.0
