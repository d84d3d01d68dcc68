"""`advise --measured FILE`: corrects the estimates of all configs by measurements on this machine."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from service.cli.inputs import file_text
from service.cli.sending import saved_results
from service.engine.catalogue import resolve
from service.engine.commands.parse import parse
from service.engine.commands.render import bash, launch
from service.engine.config import Engine
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware
from service.engine.logs.requests import MeasuredSpeed
from service.engine.measured.identity import match_kind
from service.engine.measured.nearby import FARTHEST, Nearness, Observation, Phase
from service.engine.measured.rows import MeasuredRow
from service.engine.planner.ranking.measured import rerank, with_nearby_results
from service.engine.run_flags import to_flags
from service.engine.submission.reading import read_paste
from service.flows.advice.check_direct import check_directly
from service.settings import Settings
from service.wire.advice.advice import Advice
from service.wire.advice.check import BatchCase
from service.wire.results.submissions import ON_DISK, SavedResult, SavedResults

_MAX_FILE = 16 << 20
_MOST_SPEEDS = 200
_OWNER = "yours"  # all runs count as one source, being from one machine


class _OwnRun(NamedTuple):
    """One measurement: its command, its model's repo or path, and its rows."""

    engine: Engine
    command: str
    model: str
    rows: Sequence[MeasuredRow]


def with_own(settings: Settings, advice: Advice, files: Sequence[str]) -> Advice:
    """Return an advice corrected by the runs in `files`, and ranked again.

    A file is one saved by `validate --here`, or a command with a benchmark's or server's output. For models on this
    disk, the saved names are looked for next to the file (headers suffice), else the advice's own model is used. Raises
    InvalidInput for a file without measurements or from another machine, AdvisorError if its model cannot be read.
    """
    if advice.goal is None or not advice.configs:
        return advice
    runs = [run for file in files for run in _runs(file, advice)]
    errors = [(run, _error(settings, run, advice.hardware)) for run in runs]
    for text in _beyond(errors):
        print(text, file=sys.stderr)
    near = {
        config.id: [
            Observation(_OWNER, _nearness(run, advice, config.variant, config.engine), error)
            for run, error in errors
            if error
        ]
        for config in advice.configs
    }
    configs = with_nearby_results(advice.configs, advice.goal, near)
    new = rerank(configs, advice.headline or "", advice.goal, {}, advice.configs)
    return msgspec.structs.replace(advice, configs=new.configs, headline=new.headline)


def _beyond(errors: Sequence[tuple[_OwnRun, dict[Phase, float]]]) -> Iterator[str]:
    for run, error in errors:
        for phase, off in error.items():
            if abs(off) > FARTHEST:
                told = (
                    f"{phase.upper()} was {math.exp(off):.2g} times what was expected of {run.model.rpartition('/')[2]}"
                )
                yield f"{told}: more than three times off says more about that run, so it corrects nothing"


def _nearness(run: _OwnRun, advice: Advice, variant: str, engine: Engine) -> Nearness:
    repo, _, its_variant = run.model.rpartition(":")
    same_model = advice.repo in (repo, run.model)
    same_variant = same_model and (its_variant == variant or run.model == advice.repo)
    return Nearness(variant=same_variant, engine=run.engine == engine, model=same_model)


def _runs(file: str, advice: Advice) -> Iterator[_OwnRun]:
    text = file_text(file, "--measured", _MAX_FILE)
    kept = saved_results(text)
    if kept is not None:
        if match_kind(advice.hardware, resolve(advice.hardware), kept.hardware, resolve(kept.hardware)) != "exact":
            raise InvalidInput(f"{file} was measured on another machine than --hardware says", field="--measured")
        yield from _of_saved(file, kept, advice)
        return
    said = read_paste(text)
    if not said.rows or said.command is None:
        raise InvalidInput(f"{file} contains no command with its output", field="--measured")
    yield _OwnRun(parse(said.command).engine, said.command, advice.repo, said.rows)


def _of_saved(file: str, kept: SavedResults, advice: Advice) -> Iterator[_OwnRun]:
    measured = [one for one in kept.results if one.report.rows]
    if not measured:
        raise InvalidInput(f"nothing was measured in {file}", field="--measured")
    for one in measured:
        engine = one.document.engine
        made = launch(engine, "server", to_flags(one.document.flags), model_path=one.document.files[0].path)
        yield _OwnRun(engine, bash(made), _model_of(file, one, advice), one.report.rows)


def _model_of(file: str, one: SavedResult, advice: Advice) -> str:
    """Return the name of a saved result's model: its repo and variant, or its path on this disk."""
    if one.model.repo != ON_DISK:
        return f"{one.model.repo}:{one.model.variant}"
    local = Path(file).parent / one.document.files[0].name
    return str(local) if local.is_file() else advice.repo


def _error(settings: Settings, run: _OwnRun, hardware: Hardware) -> dict[Phase, float]:
    """Return the median of log(measured / expected speed), by phase."""
    case = BatchCase(command=run.command, model=run.model, hardware=hardware, engine=run.engine)
    speeds = list(speeds_of(run.rows))[:_MOST_SPEEDS]
    compared = check_directly(settings, msgspec.structs.replace(case, measured=speeds)).compared
    found: dict[Phase, float] = {}
    phases: tuple[Phase, ...] = ("pp", "tg")
    for phase in phases:
        off = [math.log(one.measured / one.expected) for one in compared if one.what == phase and one.expected > 0]
        if off:
            found[phase] = statistics.median(off)
    return found


def speeds_of(rows: Sequence[MeasuredRow]) -> Iterator[MeasuredSpeed]:
    """Yield the median of each row's repeats, in the form that a check takes."""
    for row in rows:
        pp = statistics.median(row.pp_tps) if row.pp_tps else None
        tg = statistics.median(row.tg_tps) if row.tg_tps else None
        yield MeasuredSpeed(n_kv=row.n_kv, n_prompt=row.n_prompt or None, pp_tps=pp, tg_tps=tg)
