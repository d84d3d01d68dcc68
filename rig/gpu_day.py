"""A GPU day: what only a real card can tell, measured in half an hour (`make gpu-day`).

python -m rig.gpu_day [--minutes 30] [--out gpu-day] [--engine-dir DIR …] [--only ENGINE] [--cpu] [--small] [--dry-run]

Builds both engines (or takes those in --engine-dir), makes models of its own, and measures the most valuable first
until the time is over. Every figure is a line of OUT/gpu-day.jsonl as soon as it is there; what fails is a line with
the reason, and the day goes on. Started again, it goes on where it was, and tries again at the end what failed.
`python -m bench.gpu_day OUT/gpu-day.jsonl` says what the figures mean. On a machine without a GPU it does all that
does not need one. --cpu leaves cards alone; --small takes models of one layer. Ends with 1 where nothing was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

from rig.gpu_build import build, is_built
from rig.gpu_file import FORMAT, Day, Head, Line, append, last_words, read
from rig.gpu_memory import Failed, see_memory
from rig.gpu_models import file_name, write_model
from rig.gpu_plan import Machine, Step, estimate, plan
from service import __version__
from service.cli.local_validation import local_policy, signals_told
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.errors import AdvisorError, InvalidInput
from service.engine.hardware import Hardware
from service.engine.measured.classify import Failure, without_card
from service.measure import copy_gbs, ram_read_gbs
from service.wire.measuring.agent import RunDocument, RunFile
from service.wire.results.results import ResultModel
from service.wire.results.submissions import ON_DISK, SavedResult
from workers.agent.engines import find_engines
from workers.agent.local import EngineProgram, LocalGpu
from workers.agent.measure import measure
from workers.agent.probe import Gpus, find_hardware, open_gpus

FILE = "gpu-day.jsonl"
ENGINES: tuple[Engine, ...] = ("llama.cpp", "ik_llama.cpp")  # the first one takes less time to build


def say(text: str) -> None:
    """Print a line of progress at once."""
    print(text, flush=True)


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """This machine: its cards, how they are watched, and what was asked for."""

    hardware: Hardware
    cards: tuple[LocalGpu, ...]
    gpus: Gpus
    machine: Machine
    engine_dirs: tuple[Path, ...]
    out: Path

    @property
    def models(self) -> Path:
        """The folder of the models that are made."""
        return self.out / "models"

    def is_there(self, step: Step) -> bool:
        """Whether what a step needs has been made: its model, or the engine that it builds."""
        if step.kind != "build":
            return (self.models / file_name(step.model, step.mix)).exists()
        return bool(self.engine_dirs) or is_built(step.engine, cuda=bool(self.cards))


def look(asked: argparse.Namespace, before: Head | None) -> Here:
    """Return this machine; its RAM and links are measured, unless the file has them. Raises InvalidInput for a file of
    another machine."""
    gpus = open_gpus()
    found = () if asked.cpu else gpus.cards()
    cards = tuple(card for card, _ in found)
    if before is not None and [gpu.name for gpu in before.hardware.gpus] != [gpu.name for _, gpu in found]:
        raise InvalidInput(f"{asked.out / FILE} is of other cards than are used now: name another --out")
    if before is not None or asked.dry_run:
        hardware = before.hardware if before else find_hardware(tuple(g for _, g in found), measure=lambda: None)
    else:
        say("measuring RAM and links")
        rates = {} if asked.cpu else copy_gbs()
        own = tuple(
            msgspec.structs.replace(gpu, measured_copy_gbs=round(rates[card.uuid], 1) if card.uuid in rates else None)
            for card, gpu in found
        )
        hardware = find_hardware(own, measure=lambda: round(ram_read_gbs(None, None), 1))
    hardware = msgspec.structs.replace(hardware, gpus=hardware.gpus if cards else [], notes=None)
    cores = (hardware.cpu.physical_cores if hardware.cpu else None) or 1
    wanted = [asked.only] if asked.only else list(ENGINES)
    machine = Machine(
        cards=tuple(card.total or 0 for card in cards), threads=cores, engines=tuple(wanted), small=asked.small
    )
    return Here(
        hardware=hardware, cards=cards, gpus=gpus, machine=machine, engine_dirs=tuple(asked.engine_dir), out=asked.out
    )


class DayAtWork:
    """Goes through the steps that are left, as long as there is time."""

    def __init__(self, here: Here, day: Day | None, ends_at: float) -> None:
        self.here, self.ends_at = here, ends_at
        self.file = here.out / FILE
        self.before = {line.step.id: line for line in day.lines} if day else {}
        self.programs: dict[Engine, EngineProgram | None] = {}
        self.spent: list[tuple[float, float]] = []  # seconds that steps should have taken, and took
        self.n_measured = 0
        self.asked_to_end: str | None = None

    def left(self) -> list[Step]:
        """Return the steps without a figure, those that failed before last. A build is looked for each time."""
        steps = plan(self.here.machine)
        new = [step for step in steps if step.id not in self.before or step.kind == "build"]
        failed = [step for step in steps if step not in new and not self.before[step.id].done]
        return new + failed

    def run(self) -> None:
        """Measure step by step; each is written as it ends. Those that the time is too short for are left out."""
        steps, n_short, n_without, n_failed = self.left(), 0, 0, 0
        for number, step in enumerate(steps):
            if self.asked_to_end:
                n_short += len(steps) - number
                break
            if time.monotonic() + self._estimate(step) > self.ends_at:
                n_short += 1
                continue
            line = self._measured(step)
            if line is None:
                n_without += 1
                continue
            n_failed += not line.done
            append(self.file, line)
            say(f"{number + 1}/{len(steps)} {step.id}: {_told(line)}; {self._left_text(steps[number + 1 :])}")
            self._drop_models(steps[number + 1 :])
        if n_without:
            say(f"{n_without} steps were left out: their engine is not there")
        if n_short:
            why = self.asked_to_end or "the time is over"
            say(f"ends here, {why}: {n_short} steps are left, and the same command goes on with them")
        elif not n_without:
            again = f", {n_failed} without a figure: the same command tries them again" if n_failed else ""
            say(f"complete: every step has run{again}")

    def _measured(self, step: Step) -> Line | None:
        began, should = time.monotonic(), estimate(step, self.here.machine, self.here.is_there(step))
        all_before, own_before = busy_seconds()
        line = self._line(step, began)
        if line is None:
            return None
        all_after, own_after = busy_seconds()
        others = (all_after - all_before - own_after + own_before) / max(time.monotonic() - began, 0.1)
        if step.kind != "build":
            self.spent.append((should, line.seconds))
        self.n_measured += line.done and step.kind != "build"
        return msgspec.structs.replace(line, others=round(max(others, 0.0), 2))

    def _estimate(self, step: Step) -> float:
        return self._pace() * estimate(step, self.here.machine, self.here.is_there(step))

    def _pace(self) -> float:
        """How much longer steps take here than they should, by the last of them."""
        last = self.spent[-8:]
        return min(max(sum(took for _, took in last) / sum(should for should, _ in last), 0.3), 4.0) if last else 1.0

    def _left_text(self, steps: Sequence[Step]) -> str:
        needs = sum(map(self._estimate, steps)) / 60
        return f"{len(steps)} left, {needs:.0f} min of {max(self.ends_at - time.monotonic(), 0) / 60:.0f}"

    def _line(self, step: Step, began: float) -> Line | None:
        """Run one step; None for one whose engine is not there, which a later start may have."""
        try:
            if step.kind == "build":
                return self._build(step, began)
            program = self.programs.get(step.engine)
            if program is None:
                return None
            path, sha256 = write_model(self.here.models, step.model, step.mix)
            if step.kind == "memory":
                return self._memory(step, program, path, began)
            return self._speed(step, program, path, sha256, began)
        except Failed as failed:
            return _line(step, began, failure=failed.failure, tail=failed.tail, memory=failed.seen)
        except (AdvisorError, OSError, ValueError) as error:  # one step must not cost the others
            text = last_words(f"{type(error).__name__}: {error}")[:500]
            return _line(step, began, failure=Failure(kind="refused_by_engine", transient=False, text=text))

    def _build(self, step: Step, began: float) -> Line:
        found = self._find(step.engine, self.here.engine_dirs)
        if found is None and not self.here.engine_dirs:
            folder, tail = self._make(step.engine)
            found = self._find(step.engine, [folder] if folder else [])
            if found is None:
                failure = Failure(kind="engine_missing", transient=True, text=f"{step.engine} could not be built")
                return _line(step, began, failure=failure, tail=tail)
        self.programs[step.engine] = found
        if found is None:
            text = f"none of the folders of --engine-dir holds {step.engine}"
            return _line(step, began, failure=Failure(kind="engine_missing", transient=True, text=text))
        return _line(step, began, build=found.build)

    def _find(self, engine: Engine, folders: Sequence[Path]) -> EngineProgram | None:
        policy = local_policy(folders, [], 60)
        return next((one for one in find_engines(policy) if one.build.engine == engine), None) if folders else None

    def _make(self, engine: Engine) -> tuple[Path | None, str]:
        """Build an engine, for CUDA where there are cards; return its folder, or None, and the end of the log."""
        log = self.here.out / f"build-{engine}.log"
        cuda, jobs = bool(self.here.cards), self.here.machine.threads
        folder = build(engine, log, self._why_end, say, cuda=cuda, jobs=jobs)
        return folder, last_words(log.read_text(errors="replace"))

    def _why_end(self) -> str | None:
        """Why what goes on has to end: it was asked to, or the time is over."""
        return self.asked_to_end or ("the time is over" if time.monotonic() > self.ends_at else None)

    def _memory(self, step: Step, program: EngineProgram, path: Path, began: float) -> Line:
        server = program.path.with_name(engine_spec(step.engine).programs["server"])
        cards = [self.here.cards[i] for i in step.cards]
        with tempfile.TemporaryDirectory(prefix="gpu-day-") as folder:
            seen = see_memory(step, server, path, cards, self.here.gpus, Path(folder), lambda: self.asked_to_end)
        no_card = without_card("", seen.buffers) if step.cards else None
        if no_card is not None:
            raise Failed(no_card, "", None)
        return _line(step, began, memory=seen)

    def _speed(self, step: Step, program: EngineProgram, path: Path, sha256: str, began: float) -> Line:
        file = RunFile(path=path.name, size=path.stat().st_size, sha256=sha256)
        document = RunDocument(
            engine=step.engine, repo=ON_DISK, revision=sha256, files=(file,), flags=step.flags, depths=step.depths,
            n_prompt=step.n_prompt, n_gen=step.n_gen, seconds=step.seconds, engine_builds=(program.build.sha256,),
            gpus=step.cards,
        )  # fmt: skip
        policy = local_policy([program.path.parent], [path.parent], 1)
        found = measure(
            document, program, [path], self.here.cards, policy, lambda _: None, lambda: self.asked_to_end,
            watched=self.here.gpus,
        )  # fmt: skip
        if found.failure is not None:
            return _line(step, began, failure=found.failure, tail=last_words(found.log))
        model = ResultModel(repo=ON_DISK, revision=sha256, variant=path.stem, files=(file,))
        report = found.report(1, program, files_confirmed=True)
        return _line(step, began, result=SavedResult(model=model, document=document, report=report, measured_at=_now()))

    def _drop_models(self, steps: Sequence[Step]) -> None:
        """Models that no later step needs take no room."""
        needed = {Path(file_name(step.model, step.mix)).stem for step in steps if step.model}
        for path in self.here.models.glob("*"):
            if path.stem not in needed:
                path.unlink()
        if not needed and self.here.models.exists():
            self.here.models.rmdir()

    def ends_early(self) -> contextlib.AbstractContextManager[None]:
        """Let Ctrl-C or SIGTERM end the day behind what is written; a second one at once."""

        def end(name: str) -> None:
            self.asked_to_end = f"ended by {name}"

        return signals_told(end)


def busy_seconds() -> tuple[float, float]:
    """Return seconds of processor time since this machine started, and those of this program and what it started."""
    times = psutil.cpu_times()
    own = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(times) - times.idle - getattr(times, "iowait", 0.0), sum(u.ru_utime + u.ru_stime for u in own)


def _line(step: Step, began: float, **found: object) -> Line:
    return Line(step=step, seconds=round(time.monotonic() - began, 1), at=_now(), **found)  # type: ignore[arg-type]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _told(line: Line) -> str:
    """One line's figures in short."""
    if line.failure is not None:
        return f"failed ({line.failure.kind}): {line.failure.text}"
    if line.build is not None:
        return f"{line.build.version or line.build.sha256[:12]} with {', '.join(line.build.backends)}"
    if line.memory is not None:
        pairs = zip(line.memory.idle, line.memory.after, strict=True)
        return ", ".join(f"{a.device} {a.taken:,.0f} MiB idle, {b.taken:,.0f} after" for a, b in pairs)
    rows = line.result.report.rows if line.result else ()
    speeds = [f"PP {max(row.pp_tps):,.1f}" for row in rows if row.pp_seconds]
    speeds += [f"TG {max(row.tg_tps):,.1f}" for row in rows if row.tg_seconds]
    return f"{', '.join(speeds)} t/s in {line.seconds:.0f} s"


def show_plan(here: Here, steps: Sequence[Step], minutes: float, show: Callable[[str], None]) -> None:
    """Show every step with the minutes at which it should end, and where the time is over."""
    total, is_over, written = 0.0, False, set[str]()
    for step in steps:
        name = file_name(step.model, step.mix)
        total += estimate(step, here.machine, name in written or here.is_there(step)) / 60
        written |= {name} if step.model else set()
        if total > minutes and not is_over:
            show(f"--- {minutes:g} minutes are over; the rest is for a second start ---")
            is_over = True
        show(f"{total:6.1f} min  {step.id}")
    show(f"{len(steps)} steps, {total:.0f} minutes when every one runs")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--out", type=Path, default=Path("gpu-day"))
    parser.add_argument("--engine-dir", type=Path, action="append", default=[])
    parser.add_argument("--only", choices=ENGINES)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    asked = parser.parse_args(arguments)
    ends_at = time.monotonic() + asked.minutes * 60
    try:
        day = read(asked.out / FILE) if (asked.out / FILE).exists() else None
        here = look(asked, day.head if day else None)
    except InvalidInput as error:
        sys.exit(error.detail)
    at_work = DayAtWork(here, day, ends_at)
    if asked.dry_run:
        show_plan(here, at_work.left(), asked.minutes, say)
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    if day is None:
        head = Head(format=FORMAT, agent=f"offload-advisor/{__version__}", hardware=here.hardware, started_at=_now())
        append(at_work.file, head)
    with at_work.ends_early():
        at_work.run()
    say(f"python -m bench.gpu_day {at_work.file}   # what it means")
    return 0 if at_work.n_measured or day else 1


if __name__ == "__main__":
    sys.exit(main())
