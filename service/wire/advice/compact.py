"""An advice small enough to embed (`?detail=card`): what a launcher needs to start a model, in a versioned format.

Within a version, fields are only added. Every figure is the advice's own; commands are split into words as `exec` takes
them, so that nobody has to parse a shell's quotes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from service.engine.advice import AdvisedConfig
from service.engine.commands.config_files import launch_of
from service.engine.config import Engine
from service.structs import made_from
from service.wire.advice.advice import Advice
from service.wire.advice.card import fact_of, fact_words
from service.wire.problem import Problem

MOST_CONFIGS = 5


class CompactDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A config's memory on a device, and the device's capacity, in MiB. `device`: the engine's name for it."""

    device: str
    gpu: str | None
    used_mib: float
    capacity_mib: float


class CompactSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens per second at a depth of `depth` tokens: the estimate, and the ends of the 80 % interval."""

    depth: int
    tg: float
    tg_low: float
    tg_high: float
    pp: float
    pp_low: float
    pp_high: float


class CompactConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A config to start: `env` and `command` (a launcher such as `numactl`, the program, its arguments) as words.

    `download`: the command that downloads its files to where `command` expects them; empty for files on this disk.
    `label`: what it was picked for, if anything. `loss_percent`: of perplexity, relative to 16 bits. `notes`: what else
    to know, such as that other people's logs show different memory.
    """

    rank: int
    label: str
    engine: Engine
    variant: str
    context: int
    env: dict[str, str]
    command: list[str]
    download: str
    devices: list[CompactDevice]
    speed: CompactSpeed
    loss_percent: float | None
    notes: list[str] = []


class CompactAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """An advice in short. `version` is raised when a field is removed or changes its meaning.

    `configs`: best first, at most five; empty until `state` is `ready`, and if nothing fits, which `sentence` then
    states. `assumed`: facts on hardware and goal that were not stated, as sentences.
    """

    version: Literal[1] = 1
    id: str
    state: Literal["queued", "running", "ready", "failed"]
    repo: str
    revision: str | None
    sentence: str | None
    configs: list[CompactConfig]
    assumed: list[str]
    problem: Problem | None
    url: str | None


def compact(advice: Advice) -> CompactAdvice:
    return made_from(
        CompactAdvice, advice, sentence=advice.headline,
        configs=[_config(one) for one in advice.configs[:MOST_CONFIGS]],
        assumed=[fact_words(fact_of(one, advice.hardware.gpus)) for one in advice.assumed],
    )  # fmt: skip


def _config(one: AdvisedConfig) -> CompactConfig:
    launch, at = launch_of(one.commands.server), one.speed[-1]
    return CompactConfig(
        rank=one.rank, label=one.pick.name if one.pick else "", engine=one.engine, variant=one.variant,
        context=one.flags.n_ctx, env=launch.env, command=[*launch.prefix, launch.program, *launch.arguments],
        download=one.commands.download,
        devices=[
            CompactDevice(device=d.device, gpu=d.gpu, used_mib=d.total_mib, capacity_mib=d.capacity_mib)
            for d in one.devices
        ],
        speed=CompactSpeed(
            depth=at.n_kv, tg=at.tg_tps, tg_low=at.tg_low, tg_high=at.tg_high, pp=at.pp_tps, pp_low=at.pp_low,
            pp_high=at.pp_high,
        ),
        loss_percent=one.loss_percent[1] if one.loss_percent else None, notes=one.notes,
    )  # fmt: skip
