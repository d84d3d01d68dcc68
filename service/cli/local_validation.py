"""Measures configs of an advice on this machine with the agent's own code: same commands, limits and parsing.

No enrolment and no account: the measurements are shown next to the predictions, and saved in a file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import msgspec

from service.cli.inputs import cache_folder
from service.cli.local_files import FilesOf, hash_files, local_files, model_path, repo_files, shards
from service.cli.progress import Progress
from service.engine.catalogue import card_order, cards_named, resolve
from service.engine.commands.render import launch
from service.engine.config import CPU
from service.engine.errors import InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured.chosen import Measurement, chosen
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import measured_seconds
from service.engine.run_flags import to_flags
from service.structs import made_from
from service.wire.advice.advice import Advice
from service.wire.advice.repo import RepoView
from service.wire.measuring.agent import RunDocument
from service.wire.measuring.runs import Run, RunOutcome, Validation
from service.wire.measuring.validation_text import row_text
from service.wire.results.results import ResultModel, outcome
from service.wire.results.submissions import FORMAT, SavedResult, SavedResults
from workers.agent.engines import BENCH, SWEEP
from workers.agent.local import Machine
from workers.agent.measure import Measured, measure
from workers.agent.models import Hashes, find_models
from workers.agent.policy import EnginePolicy, ModelPolicy, Policy
from workers.agent.preflight import Declined, Prepared, are_confirmed, prepare
from workers.agent.probe import describe, open_gpus

_LOADING_MINUTES = 60  # more than loading any model takes that is worth measuring


def measure_locally(
    advice: Advice, repo: RepoView | None, configs: Sequence[str] | None, arguments: argparse.Namespace
) -> tuple[Validation, SavedResults]:
    """Measure configs of an advice, by default those that a service would, and save what was measured in a file.

    Return the outcome, in the form of a validation, and what was saved. `repo`: the listing of the advice's repo, None
    if only local files are known. Raises AdvisorError.
    """
    if advice.goal is None:
        raise InvalidInput("it has no goal, so the depths to measure at are unknown", field="ADVICE")
    picked = chosen(advice.configs, advice.goal, None, None, configs)
    engines = arguments.engine_dir or _on_path()
    models = arguments.models or _folders(advice, picked.measurements)
    policy = local_policy(engines, models, arguments.minutes)
    with Progress() as progress:
        progress.show(0, "looking at this machine")
        hashes = _hashes()
        machine = describe(policy, open_gpus(), hashes)
        files = repo_files(advice, repo) if repo and advice.revision else None
        if files is None:
            machine = _hashed(advice, picked.measurements, machine, policy, hashes, progress)
            files = local_files(advice, machine.models)
        here = LocalValidation(advice, machine, policy, files, arguments.minutes)
        with here.ends_early():
            here.measure(picked.measurements, progress)
    kept = here.results()
    if kept.results:
        keep(kept, arguments.result or Path(f"advisor-result-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"))
    return here.validation([*picked.refused, *here.left_out]), kept


def _on_path() -> list[Path]:
    found = (shutil.which(name) for name in (SWEEP, BENCH))
    return [Path(path).parent for path in found if path]


def _folders(advice: Advice, measurements: Sequence[Measurement]) -> list[Path]:
    """Return the folders that the advice's commands read from; relative ones start at the current folder."""
    folders = (model_path(advice, one).parent for one in measurements)
    return [folder for folder in dict.fromkeys(folders) if folder.is_dir()]


def _hashes() -> Hashes:
    folder = cache_folder(os.environ)
    folder.mkdir(parents=True, exist_ok=True)
    return Hashes(folder / "hashes.json")


def _hashed(
    advice: Advice,
    measurements: Sequence[Measurement],
    machine: Machine,
    policy: Policy,
    hashes: Hashes,
    progress: Progress,
) -> Machine:
    """Return the machine with the hashes of the files to measure; what is missing here is reported later."""
    for one in measurements:
        with suppress(Declined):
            _gpus(one, machine.probe.hardware)
            _builds(one, machine)
            hash_files(shards(advice, one, machine.models), hashes, progress.line)
    return msgspec.structs.replace(machine, models=find_models(policy, hashes))


def local_policy(engines: Sequence[Path], models: Sequence[Path], minutes: int) -> Policy:
    """Return the policy for runs from the command line, whose user owns the machine and knows its screen.

    Another program that computes on a GPU still prevents a run; a desktop's memory on a card does not. Engines are
    confined from network and files where the system can do so, but need not be, since the user could start them anyway.
    """
    return Policy(
        engines=EnginePolicy(folders=tuple(str(folder.resolve()) for folder in engines)),
        models=ModelPolicy(folders=tuple(str(folder.resolve()) for folder in models)),
        max_minutes=minutes + _LOADING_MINUTES,
        foreign_mib_percent=100,
        allow_root=True,
        allow_unconfined=True,
    )


@contextmanager
def signals_told(tell: Callable[[str], None]) -> Iterator[None]:
    """Pass the name of the first SIGTERM or Ctrl-C within the block to `tell`; a second one ends the block at once."""
    told = False

    def end(number: int, _: FrameType | None) -> None:
        nonlocal told
        if told:
            raise KeyboardInterrupt
        told = True
        tell(signal.Signals(number).name)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class LocalValidation:
    """Measures one config after the other, and collects the results."""

    def __init__(self, advice: Advice, machine: Machine, policy: Policy, files: FilesOf, minutes: int) -> None:
        self.advice, self.machine, self.policy, self.files, self.minutes = advice, machine, policy, files, minutes
        self.runs: list[Run] = []
        self.kept: list[SavedResult] = []
        self.left_out: list[str] = []
        self._asked_to_end: str | None = None

    def ends_early(self) -> AbstractContextManager[None]:
        """Let SIGTERM or Ctrl-C end the measuring during the block; results so far are kept."""

        def end(name: str) -> None:
            self._asked_to_end = f"ended early by {name}"

        return signals_told(end)

    def measure(self, measurements: Sequence[Measurement], progress: Progress) -> None:
        """Measure each config; one that cannot be measured becomes a failed run with the reason."""
        for number, one in enumerate(measurements):
            if self._asked_to_end is not None:
                n = len(measurements) - number
                self.left_out.append(f"{self._asked_to_end}: {n} of {len(measurements)} were not measured")
                return
            doing = _Doing(one, number, len(measurements), progress, lambda: self._asked_to_end)
            try:
                document = self._document(one)
                prepared = prepare(document, self.machine, self.policy)
            except Declined as refused:
                self._note(one, None, Measured(failure=refused.failure))
            else:
                gpus = self.machine.gpus
                measured = measure(document, prepared.program, prepared.files, gpus, self.policy, doing.row, doing.look)
                self._keep(document, prepared, measured, one)
                self._note(one, prepared, measured, confirmed=are_confirmed(document, prepared.models))

    def validation(self, refused: Sequence[str]) -> Validation:
        """Return the outcome in the form of a validation on other machines."""
        timed = [(seconds, run) for run in self.runs if (seconds := self._seconds(run)) is not None]
        best = min(timed, key=lambda pair: pair[0], default=(0.0, None))[1]
        return Validation(
            id="here",
            advice=self.advice.id,
            mode="validate",
            state="done",
            runs=self.runs,
            hosts=[],
            refused=list(refused),
            best=best.config if best else None,
            created_at=_now(),
        )

    def results(self) -> SavedResults:
        probe = self.machine.probe
        hardware = msgspec.structs.replace(probe.hardware, notes=None)
        return SavedResults(
            format=FORMAT, advice=self.advice.id, agent=probe.agent, hardware=hardware, results=self.kept
        )

    def _document(self, one: Measurement) -> RunDocument:
        """Return the run's document. Raises Declined if this machine lacks GPUs, a build or files for it."""
        gpus, builds = _gpus(one, self.machine.probe.hardware), _builds(one, self.machine)
        found = self.files(one)
        return made_from(
            RunDocument,
            one,
            engine_builds=builds,
            repo=found.repo,
            revision=found.revision,
            files=found.files,
            seconds=self.minutes * 60,
            gpus=gpus,
        )

    def _keep(self, document: RunDocument, prepared: Prepared, measured: Measured, one: Measurement) -> None:
        confirmed = are_confirmed(document, prepared.models)
        model = ResultModel(repo=document.repo, revision=document.revision, variant=one.variant, files=document.files)
        report = measured.report(1, prepared.program, files_confirmed=confirmed)
        self.kept.append(SavedResult(model=model, document=document, report=report, measured_at=_now()))

    def _note(
        self, one: Measurement, prepared: Prepared | None, measured: Measured, *, confirmed: bool = False
    ) -> None:
        run = made_from(
            Run,
            one,
            id=f"here-{len(self.runs) + 1}",
            state="failed" if measured.failure else "succeeded",
            attempt=1,
            host="this machine" if prepared else None,
            match=None,
            progress=None,
            rows=list(measured.rows),
            outcome=_outcome(one, prepared, measured, confirmed) if prepared and measured.rows else None,
            failure=measured.failure,
            dropped=list(one.dropped),
        )
        self.runs.append(run)

    def _seconds(self, run: Run) -> float | None:
        """Return the measured seconds of the goal's request; None if nothing was measured."""
        goal = self.advice.goal
        return measured_seconds(run.outcome.speed, goal) if run.outcome and goal else None


class _Doing:
    """Shows one run's progress."""

    def __init__(
        self, one: Measurement, number: int, n_all: int, progress: Progress, asked_to_end: Callable[[], str | None]
    ) -> None:
        self._name, self._asked_to_end = f"{one.variant} {one.engine}", asked_to_end
        self._number, self._all, self._progress = number, n_all, progress
        self._expected = len(one.depths) * (2 if one.engine == "llama.cpp" else 1)
        self._rows = 0

    def row(self, row: MeasuredRow) -> None:
        self._rows += 1
        self._progress.line(f"{self._name} {row_text(row)}")

    def look(self) -> str | None:
        """Show the progress, four times a second while an engine runs; return why to end the run, if it was
        interrupted."""
        step = "measuring" if self._rows else "loading"
        share = (self._number + min(self._rows / self._expected, 1.0)) / self._all
        self._progress.show(share, f"{self._name}: {step} ({self._number + 1} of {self._all})")
        return self._asked_to_end()


def _gpus(one: Measurement, hardware: Hardware) -> tuple[int, ...]:
    """Return this machine's cards in the order of the config's CUDA0, CUDA1 … Raises Declined."""
    wanted = [device.gpu or "" for device in one.devices if device.device != CPU]
    order, rig = card_order(hardware), resolve(hardware)
    cards = [card for card in cards_named(rig, wanted) if card is not None]
    if len(cards) < len(wanted):
        has = ", ".join(card.name for card in rig.cards) or "no GPU"
        what = f"it needs {', '.join(wanted)}, and this machine has {has}: ask for advice for this machine"
        raise Declined("refused_by_policy", what)
    return tuple(order[card] for card in cards)


def _builds(one: Measurement, machine: Machine) -> tuple[str, ...]:
    """Return the local builds that know the config's options, newest first. Raises Declined."""
    builds = [program.build for program in machine.engines if program.build.engine == one.engine]
    needed = launch(one.engine, "bench", to_flags(one.flags), model_path="model.gguf").options
    fit = tuple(build.sha256 for build in builds if needed <= set(build.options))
    if fit:
        return fit
    program = "llama-sweep-bench" if one.engine == "ik_llama.cpp" else "llama-bench"
    if not builds:
        raise Declined(
            "engine_missing", f"there is no {program} of {one.engine} here: name its folder with --engine-dir"
        )
    unknown = sorted(needed - set(builds[0].options))
    raise Declined("engine_missing", f"the {program} here does not know {', '.join(unknown[:5])}: a newer build would")


def _outcome(one: Measurement, prepared: Prepared, measured: Measured, confirmed: bool) -> RunOutcome:
    build = prepared.program.build
    name = build.commit or build.version or build.sha256[:12]
    return outcome(
        measured.rows, measured, one.engine, one.devices, one.speed, build=name, measured_at=_now(), confirmed=confirmed
    )


def keep(results: SavedResults, path: Path) -> None:
    """Save the results to a new file, never replacing an existing one."""
    with path.open("xb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(results), indent=2))
    print(f"the result is kept in {path}", file=sys.stderr)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
