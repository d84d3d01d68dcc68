"""What to measure of the advice given: configs and the command in use, in the form in which a host runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.advice import AdvisedConfig, DeviceMemory, Mine, SpeedPoint
from service.engine.commands.parse import ParsedCommand
from service.engine.commands.tables import MODEL_REPO, MODEL_URL
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags, InvalidInput
from service.engine.goal import Goal
from service.engine.run_flags import Closed, RunFlags, closed

Kind: TypeAlias = Literal["config", "baseline", "step"]
N_GEN = 64  # output tokens of one repeat: they take seconds, at speeds that are worth measuring
_BEST = 2
_MOST_DROPPED = 40
_NAMES_THE_MODEL = (*MODEL_REPO, "-hff", "--hf-file", *MODEL_URL, "-hft", "--hf-token")
_CARDS = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_OF_THE_ENGINE = ("GGML_", "LLAMA_ARG_", "OMP_", "GOMP_", "KMP_")
_HARMLESS = ("sudo", "nohup", "time", "exec", "env", "nice", "setsid")
_INTERLEAVED = ("numactl", "--interleave=all")


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One config to measure. `depths` in tokens; `n_prompt`, `n_gen` of one repeat; `dropped`: words left out.

    `devices`, `speed`: as the advice has them.
    """

    kind: Kind
    config: str | None
    name: str
    engine: Engine
    variant: str
    flags: RunFlags
    depths: tuple[int, ...]
    n_prompt: int
    n_gen: int
    devices: list[DeviceMemory]
    speed: list[SpeedPoint]
    dropped: tuple[str, ...] = ()


class Chosen(msgspec.Struct, frozen=True):
    """What is measured, in the order of the ranking, and sentences about what no host may be asked to measure."""

    measurements: tuple[Measurement, ...]
    refused: tuple[str, ...]


def chosen(
    configs: Sequence[AdvisedConfig], goal: Goal, mine: Mine | None, command: ParsedCommand | None,
    asked: Sequence[str] | None = None, baseline: bool = True,
) -> Chosen:  # fmt: skip
    """Return what to measure of an advice: the configs `asked` for by id; by default the best two, the best of the
    other engine, and the command in use (`mine`, which `command` is) as the baseline.

    Raises InvalidInput for an id that is none of the advice's.
    """
    found: list[Measurement] = []
    refused: list[str] = []
    for config in _asked(configs, asked):
        try:
            found.append(_of_config(config, goal, mine, command))
        except InvalidFlags as error:
            refused.append(f"#{config.rank}: {error.detail}")
    if baseline and mine is not None and command is not None and all(m.config != "mine" for m in found):
        try:
            found.append(_of_baseline(mine, command, goal))
        except InvalidFlags as error:
            refused.append(f"your command: {error.detail}")
    return Chosen(tuple(found), tuple(refused))


def _asked(configs: Sequence[AdvisedConfig], asked: Sequence[str] | None) -> list[AdvisedConfig]:
    known = {config.id: config for config in configs}
    if asked is None:
        other = next((config for config in configs if config.engine != configs[0].engine), None)
        best = [*configs[:_BEST], *([other] if other else [])]
        return list({config.id: config for config in best}.values())
    for i, name in enumerate(asked):
        if name not in known:
            raise InvalidInput("the advice has no config of this id", field=f"configs[{i}]", choices=tuple(known))
    return [known[name] for name in dict.fromkeys(asked)]


def _of_config(config: AdvisedConfig, goal: Goal, mine: Mine | None, command: ParsedCommand | None) -> Measurement:
    if config.is_mine and mine is not None and command is not None:
        own = _of_baseline(mine, command, goal)
        return msgspec.structs.replace(own, kind="config", config=config.id, name=f"#{config.rank}")
    return _measurement(config, closed(config.flags), goal, kind="config", config=config.id, name=f"#{config.rank}")


def _of_baseline(mine: Mine, command: ParsedCommand, goal: Goal) -> Measurement:
    if not mine.fits or any(finding.severity == "error" for finding in mine.findings):
        raise InvalidFlags(f"it would not run: {mine.verdict}", field="baseline")
    run = as_run(mine.flags, command)
    dropped = tuple(dict.fromkeys((*run.dropped, *(word[:200] for word in mine.unknown))))[:_MOST_DROPPED]
    run = Closed(run.flags, dropped)
    return _measurement(mine, run, goal, kind="baseline", config=None, name="your command")


def _measurement(
    of: AdvisedConfig | Mine, run: Closed, goal: Goal, *, kind: Kind, config: str | None, name: str
) -> Measurement:  # fmt: skip
    """The measurement of a config as its prediction was made: at depths up to the goal's, with a micro-batch as
    prompt, which is smaller than the config's where only that fits."""
    flags, speed = run.flags, of.speed
    if (smaller := of.smaller_benchmark) is not None:
        flags, speed = msgspec.structs.replace(flags, n_ubatch=smaller.n_ubatch), smaller.speed
    n_prompt = min(flags.n_ubatch, flags.n_ctx)
    room = max(flags.n_ctx - max(n_prompt, N_GEN), 0)
    return Measurement(
        kind=kind,
        config=config,
        name=name,
        engine=of.engine,
        variant=of.variant,
        flags=flags,
        depths=tuple(sorted({min(depth, room) for depth in (0, goal.depth // 2, goal.depth)})),
        n_prompt=n_prompt,
        n_gen=N_GEN,
        devices=of.devices,
        speed=speed,
        dropped=run.dropped,
    )


def as_run(flags: Flags, command: ParsedCommand) -> Closed:
    """Return somebody's command in the form that a host may be asked to run, and the words that this leaves out.

    `flags`: the command's, as its engine takes them. Raises InvalidFlags for options that cannot be left out because
    the result would be another.
    """
    run = closed(_with_prefix(flags, command))
    words = dict.fromkeys((*run.dropped, *_left_away(command)))
    return Closed(run.flags, tuple(word[:200] for word in words)[:_MOST_DROPPED])


def _with_prefix(flags: Flags, command: ParsedCommand) -> Flags:
    """The flags without what names the model, and with what runs before the program."""
    prefix = tuple(word for word in command.prefix if word not in _HARMLESS)
    if prefix and prefix != _INTERLEAVED:
        raise InvalidFlags(
            f"it is started with {' '.join(prefix)[:100]}, which no host may be asked to run", field="baseline"
        )
    for name in command.env:
        if name.startswith(_OF_THE_ENGINE):
            raise InvalidFlags(
                f"{name[:80]} changes what the engine does, and cannot be asked of a host", field="baseline"
            )
    if command.varied:
        raise InvalidFlags(f"{command.varied[0][:80]} has several values: it is several commands", field="baseline")
    stated = {"-ngl", "--gpu-layers", "--n-gpu-layers"} & {*command.used}
    placed = flags.overrides or flags.cpu_moe or flags.n_cpu_moe or flags.tensor_split or stated
    if engine_spec(command.engine).fit_places and command.tool == "server" and command.fit and not placed:
        message = f"{command.engine} places it by itself (-fit), which its benchmark does not do"
        raise InvalidFlags(message, field="baseline")
    other = tuple(word for word in flags.other if word.partition(" ")[0] not in _NAMES_THE_MODEL)
    numa = "distribute" if prefix else flags.numa
    return msgspec.structs.replace(flags, other=other, numa=numa)


def _left_away(command: ParsedCommand) -> tuple[str, ...]:
    variables = tuple(name for name in command.env if name not in _CARDS)
    return (*command.rest, *variables, *(word for word in command.prefix if word in _HARMLESS))
