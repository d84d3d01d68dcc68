"""Measures one run: starts and watches the benchmark program, again until its figures agree or its time is up.

Loading is timed separately: a run's budget counts from the moment when the engine has its buffers. Each further repeat
starts the program again, since llama-sweep-bench repeats only its first row.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from service.engine.errors import InvalidFlags
from service.engine.measured.classify import Failure, classify, without_card
from service.engine.measured.reader import Reader
from service.engine.measured.rows import MeasuredRow, merged
from service.engine.measured.summary import agreed, memory_of
from service.engine.reduction import reduced
from service.structs import made_from
from service.wire.measuring.agent import MAX_LOG_CHARACTERS, Report, RunDocument
from service.wire.results.results import Seen
from workers.agent.arguments import EngineCommand, engine_command, host_environment
from workers.agent.engines import readable_of
from workers.agent.local import EngineProgram, LocalGpu
from workers.agent.models import PageCache, page_cache
from workers.agent.policy import Policy, allows_engine, allows_gpu, pause_path
from workers.agent.preflight import Declined, cards_of
from workers.agent.probe import Gpus, open_gpus
from workers.agent.process import CannotStart, Ended, NotConfined, ProcessLimits, held_by_engine, run_engine
from workers.agent.usage import Meter, UsageOfDay
from workers.agent.watch import Halt, Sampler, Watch

RECORD = "engine.json"
_RAM_SECONDS = 1.0
_MAX_PASSES = 8
_MAX_REPEATS = 4  # of llama-bench in one pass
_NAMES = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "metal": "Metal"}

OnRow = Callable[[MeasuredRow], None]
Stop = Callable[[], str | None]


class Measured(Seen, frozen=True, kw_only=True):
    """The outcome of a run: rows, or why there are none (both, if it failed midway). Fields as in `Report`."""

    rows: tuple[MeasuredRow, ...] = ()
    failure: Failure | None = None
    log: str = ""

    def report(self, fence: int, program: EngineProgram, *, files_confirmed: bool) -> Report:
        build = program.build
        return made_from(
            Report,
            self,
            fence=fence,
            engine_sha256=build.sha256,
            engine_version=build.version,
            engine_commit=build.commit,
            files_confirmed=files_confirmed,
        )


def measure(
    document: RunDocument,
    program: EngineProgram,
    files: Sequence[Path],
    gpus: Sequence[LocalGpu],
    policy: Policy,
    on_row: OnRow,
    stop: Stop,
    *,
    watched: Gpus | None = None,
    state: Path | None = None,
    usage: UsageOfDay | None = None,
) -> Measured:
    """Run a document on this machine and return the outcome; whatever goes wrong becomes a Failure, never an exception.

    `files`: the model's shards in order. `gpus`: all of this machine's. `on_row` gets each row as it is measured;
    `stop` is asked four times a second and ends the run by returning a reason. `watched`: the cards to watch for
    foreign use, by default this machine's. `state`: the agent's folder, for the pause file and the record of what was
    started. `usage`: where consumption is noted and checked against the owner's daily limits, if given.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-") as folder:
        run = _EngineRun(document, program, files, policy, on_row, stop, Path(folder), state)
        try:
            run.prepare(gpus, watched or open_gpus(), usage)
            return run.measure()
        except Declined as end:
            return run.measured(end.failure)
        finally:
            if run.meter is not None:
                run.meter.close()


class _EngineRun:
    def __init__(
        self, document: RunDocument, program: EngineProgram, files: Sequence[Path], policy: Policy,
        on_row: OnRow, stop: Stop, folder: Path, state: Path | None,
    ) -> None:  # fmt: skip
        self.document, self.program, self.files, self.policy = document, program, tuple(files), policy
        self.on_row, self.stop, self.folder, self.state = on_row, stop, folder, state
        self.began = time.monotonic()
        self.rows: list[MeasuredRow] = []
        self.measuring_seconds = 0.0
        self.load_seconds: float | None = None
        self.log = ""
        self.page_cache: PageCache = page_cache(self.files)
        self.cards: list[LocalGpu] = []
        self.sampler: Sampler | None = None
        self.meter: Meter | None = None

    def prepare(self, gpus: Sequence[LocalGpu], watched: Gpus, usage: UsageOfDay | None) -> None:
        """Check the run against the policy, and that the machine is free. Raises Declined."""
        if not allows_engine(self.policy, self.program.build.sha256):
            raise Declined("refused_by_policy", "this host's policy does not allow this build")
        self.cards = cards_of(self.document, gpus, self.policy)
        allowed = [gpu.index for gpu in gpus if allows_gpu(self.policy, gpu.index, gpu.uuid)]
        pause = pause_path(self.policy, self.state or self.folder)
        self.watch = Watch(watched, allowed, self.policy, pause)
        halt = self.watch.before()
        if halt is not None:
            raise Declined(halt.kind, halt.why, transient=True)
        self.sampler = sampler = Sampler(watched, allowed)
        indices = [gpu.index for gpu in self.cards]
        if usage is not None:
            self.meter = Meter(usage, self.policy, len(indices), lambda: sampler.joules(indices))

    def measure(self) -> Measured:
        """Repeat the program until its figures agree, and return all of them. Raises Declined."""
        assert self.sampler is not None  # noqa: S101 - prepare() made it
        repeats = 1
        with self.sampler:
            for number in range(_MAX_PASSES):
                one = _Pass(self, self.command(repeats))
                failure = one.run()
                if failure is not None:
                    # Stopping for the owner is no failure of the run: figures of earlier complete passes stand.
                    return self.measured(None if number and one.is_for_owner else failure)
                repeats = self.more(one.measuring_seconds / repeats)
                if not repeats:
                    break
        return self.measured(None)

    def command(self, repeats: int) -> EngineCommand:
        backend = self.cards[0].backend if self.cards else "cpu"
        cards = [gpu.uuid or str(gpu.index) for gpu in self.cards]
        environment = host_environment(str(self.folder), backend if backend != "metal" else "cpu", cards)
        options = self.program.build.options
        try:
            return engine_command(
                self.document, str(self.program.path), options, str(self.files[0]), environment,
                repeats=repeats, numactl=shutil.which("numactl"),
            )  # fmt: skip
        except InvalidFlags as error:
            raise Declined("refused_by_policy", str(error)) from None

    def more(self, seconds: float) -> int:
        """Return how often the next pass repeats each measurement, 0 if no more is needed. `seconds`: of one repeat."""
        if agreed(self.rows):
            return 0
        fit = int(self.seconds_left() / max(seconds, 0.001))
        return min(fit, _MAX_REPEATS) if self.document.engine == "llama.cpp" else min(fit, 1)

    def seconds_left(self) -> float:
        """Return what is left of the time budgets: for measuring, and the owner's for a whole run."""
        all_of_it = self.policy.max_minutes * 60 - (time.monotonic() - self.began) - (self.load_seconds or 0)
        return min(self.document.seconds - self.measuring_seconds, all_of_it)

    def measured(self, failure: Failure | None) -> Measured:
        """Return the figures so far, with what the log says about buffers and splits."""
        memory = memory_of(self.log)
        if self.cards and failure is None:
            failure = without_card(self.log, memory.buffers)
            self.rows = [] if failure else self.rows
        names = [f"{_NAMES[gpu.backend]}{i}" for i, gpu in enumerate(self.cards)]
        indices = [gpu.index for gpu in self.cards]
        return Measured(
            rows=tuple(merged(self.rows)),
            failure=failure,
            buffers=memory.buffers,
            graph_splits=memory.graph_splits,
            devices=self.sampler.uses(indices, names) if self.sampler else (),
            load_seconds=self.load_seconds,
            page_cache=self.page_cache,
            gpu_seconds=round(len(self.cards) * (time.monotonic() - self.began), 1),
            log=_shown(self.log, self.files),
        )


class _Pass:
    """One start of the program."""

    def __init__(self, run: _EngineRun, command: EngineCommand) -> None:
        self.of, self.command = run, command
        self.reader = Reader()
        self.rows: list[MeasuredRow] = []
        self.began = time.monotonic()
        self.loaded: float | None = None
        self.halt: Halt | None = None
        self.no_card: Failure | None = None
        self.is_done = self.is_hung = self.is_for_owner = False
        self.measuring_seconds = 0.0
        self.next_ram_look = 0.0

    def run(self) -> Failure | None:
        """Run the program and add its rows to the run's; return why it failed, None if it did not."""
        of = self.of
        limits = ProcessLimits(
            folder=of.folder,
            seconds=max(1.0, of.policy.max_minutes * 60 - (self.began - of.began)),
            readable=(*of.files, *readable_of(of.program.path, of.program.libraries, of.policy)),
            record=of.state / RECORD if of.state else None,
            confined=not of.policy.allow_unconfined,
        )
        try:
            ended = run_engine(self.command.words, self.command.environment, limits, self.take, self.why_stop)
        except CannotStart as error:
            return Failure(kind="engine_missing", transient=False, text=str(error)[:500])
        except NotConfined as error:
            raise Declined("refused_by_policy", str(error)) from None
        self.measuring_seconds = time.monotonic() - self.began - (self.loaded or 0)
        of.measuring_seconds += self.measuring_seconds
        if of.load_seconds is None:
            of.load_seconds = round(self.loaded, 3) if self.loaded is not None else None
        of.rows += self.rows
        failure = self.failure(ended)
        if failure is not None or not of.log:
            of.log = self.reader.log
        return failure

    def take(self, lines: bytes) -> None:
        now = time.monotonic() - self.began
        found = self.reader.feed(lines)
        if self.of.cards and b"failed to initialize" in lines:
            self.no_card = without_card(lines.decode(errors="replace"), ())
        if self.no_card is not None:
            return
        if self.loaded is None and (b"splits" in lines or found):
            self.loaded = now
        last = self.command.last_depth
        for row in found:
            if last is None or row.n_kv <= last:
                self.rows.append(row)
                self.of.on_row(row)
            self.is_done = self.is_done or (last is not None and row.n_kv >= last)

    def why_stop(self) -> str | None:
        """Return why to stop: owner and service come first, then that all wanted rows are there or the time is up."""
        sampler = self.of.sampler
        self.halt = self.of.watch.during(sampler.latest if sampler else ()) or self._over_limits()
        if self.halt is not None:
            self.is_for_owner = True
            return self.halt.why
        why = self.of.stop()
        if why is not None:
            self.halt = Halt(kind="stopped", why=why)
            return why
        if self.is_done:
            return "done"
        if self.no_card is not None:
            return self.no_card.text
        if self.loaded is None or time.monotonic() - self.began - self.loaded < self.of.seconds_left():
            return None
        self.is_done = bool(self.rows or self.of.rows)
        self.is_hung = not self.is_done
        return "its time is over"

    def _over_limits(self) -> Halt | None:
        """Check the owner's limits. A daily limit gives the run back for another host; the one of RAM would hit it
        again."""
        over = self.of.meter.why_over() if self.of.meter else None
        if over is not None:
            return Halt(kind="gave_way", why=over)
        most = self.of.policy.max_ram_gib
        if most is None or time.monotonic() < self.next_ram_look:
            return None
        self.next_ram_look = time.monotonic() + _RAM_SECONDS
        held = held_by_engine() / 2**30
        return (
            Halt(kind="stopped", why=f"the engine holds {held:.1f} GiB of RAM, over the owner's {most:g}")
            if held > most
            else None
        )

    def failure(self, ended: Ended) -> Failure | None:
        if self.is_done:
            return None
        if self.halt is not None:
            return Failure(kind=self.halt.kind, transient=True, text=self.halt.why[:500])
        if self.no_card is not None:
            return self.no_card
        if ended.stopped_why is not None and not self.is_hung:
            return Failure(kind="crashed", transient=False, text=ended.stopped_why[:500])
        timed_out = ended.timed_out or self.is_hung
        engine, n_rows = self.of.document.engine, len(self.rows)
        return classify(ended.exit_status, ended.signal, timed_out, self.reader.log, engine, n_rows=n_rows)


def _shown(text: str, files: Sequence[Path]) -> str:
    """Return the log without this machine's names and paths, shortened in the middle if it is long."""
    for path in files:
        text = text.replace(str(path), path.name)
    if len(text) > MAX_LOG_CHARACTERS:
        half = MAX_LOG_CHARACTERS // 2 - 8
        text = f"{text[:half]}\n[…]\n{text[-half:]}"
    return reduced(text)[:MAX_LOG_CHARACTERS]
