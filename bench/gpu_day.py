"""What a GPU day's file means: `python -m bench.gpu_day gpu-day/gpu-day.jsonl [--out DIR] [--busy]`.

Prints each figure next to what is predicted here: memory beyond the printed buffers, speeds by type and micro-batch,
from which batch copying experts pays, what a hop costs; then which parameters of the speed model the day would move.
DIR (default `use` next to the file) gets what others take of it: `results.json` with the headers of the models next to
it, and `hardware.json` (`advisor advise -H @DIR/hardware.json --measured DIR/results.json`), and `cases.jsonl` in the
form of tests/data/perf_2026.jsonl. Speeds of the CPU that were measured while other programs kept it busy are shown and
left out of all that, unless --busy is given.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.fit import rows_of_tests
from bench.runs import setup_of, tests_of
from rig.gpu_file import Day, Line, MemorySeen, read
from rig.gpu_models import file_name
from rig.gpu_plan import Step
from service.cli.inputs import load_settings
from service.cli.own_results import speeds_of
from service.engine.advice import DeviceMemory
from service.engine.calibration import shipped
from service.engine.commands.render import render
from service.engine.config import CPU
from service.engine.engines import engine_spec
from service.engine.hardware import Hardware
from service.engine.logs.read import LogBuffers
from service.engine.logs.requests import MeasuredSpeed
from service.engine.measured.rows import MeasuredRow
from service.engine.run_flags import to_flags
from service.engine.speed.fitting import Fit
from service.flows.advice.check_direct import check_directly
from service.wire.advice.check import BatchCase, Checked
from tests.models import build, write_gguf

_STEPS = 4  # of Gauss-Newton
_MOVED = 0.5  # spreads of a parameter from which it is told
_BUSY = 0.1  # of the cores: from then on what the CPU computes is not what it can
_PARTS = ("weights_mib", "kv_mib", "compute_mib", "output_mib")


class Compared(NamedTuple):
    """One speed: measured, predicted and the ends of its 80 % interval, in tokens a second."""

    step: Step
    phase: str
    n_kv: int
    measured: float
    expected: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured / self.expected


class Predictions:
    """What is predicted of a day's steps; the headers of its models lie in `folder`."""

    def __init__(self, day: Day, folder: Path) -> None:
        self.day, self.folder = day, folder
        self.settings = load_settings({"ADVISOR_CACHE_MIB": "0"})

    def hardware(self, step: Step) -> Hardware:
        """Return the machine with the cards of a step alone, in their order."""
        whole = self.day.head.hardware
        return msgspec.structs.replace(whole, gpus=[whole.gpus[i] for i in step.cards])

    def header(self, step: Step) -> Path:
        """Return a file with the header of a step's model, written once."""
        path = self.folder / file_name(step.model, step.mix)
        return path if path.exists() else write_gguf(path, step.model, step.mix)[0]

    def check(self, step: Step, command: str, measured: list[MeasuredSpeed] | None = None) -> Checked:
        """Return the check of a command with a step's model and cards."""
        path = self.header(step)
        case = BatchCase(
            command=command, model=str(path), hardware=self.hardware(step), engine=step.engine, measured=measured
        )
        return check_directly(self.settings, case)

    def speeds(self, line: Line) -> list[Compared]:
        """Return what a speed step measured next to what is predicted."""
        rows = _rows(line)
        name = self.header(line.step).name
        command = render(line.step.engine, "server", to_flags(line.step.flags), model_path=name)
        found = self.check(line.step, command, list(speeds_of(rows))).compared
        return [
            Compared(line.step, one.what, one.n_kv or 0, one.measured, one.expected, one.low, one.high)
            for one in found
            if one.what in ("pp", "tg")
        ]


def _rows(line: Line) -> Sequence[MeasuredRow]:
    return line.result.report.rows if line.result is not None else ()


def machine_line(day: Day) -> str:
    """Return what the day was measured on, with the rates of RAM and of copies that were measured first."""
    told = day.head.hardware
    cards = [
        f"{gpu.name} ({gpu.pcie or 'link not known'}, copies {gpu.measured_copy_gbs or '?'} GB/s)" for gpu in told.gpus
    ]
    cpu = f"{told.cpu.model}, {told.cpu.physical_cores} cores" if told.cpu else "CPU not known"
    ram = f"RAM read at {told.ram.measured_bandwidth_gbs or '?'} GB/s" if told.ram else "RAM not known"
    return f"{day.head.started_at[:10]}: {', '.join(cards) or 'no GPU'}; {cpu}; {ram}"


def memory_lines(predictions: Predictions, lines: Sequence[Line]) -> Iterator[str]:
    """Yield a table of the memory steps, and what a context and a pool were seen to take."""
    yield "Memory in MiB: printed; beyond it, once loaded and behind a prompt; predicted beyond it (low to high)"
    idle, pools = list[float](), list[float]()
    for line in lines:
        if line.memory is None:
            continue
        yield line.step.id
        rows = {row.device: row for row in predictions.check(line.step, line.memory.command).memory.devices}
        for device, printed, beyond, after in _beyond(line.memory):
            if device not in rows:
                continue
            low, expected, high = _other(rows[device])
            off = printed - _sum(rows[device])
            told = "as predicted" if abs(off) < 0.1 else f"{off:+,.2f} of the predicted buffers"
            most = beyond if after is None else after
            where = "" if device == CPU else " inside" if low <= most <= high else " OUTSIDE"
            grown = f"{'none':>9}" if after is None else f"{after:>+9,.1f}"
            yield (
                f"  {device:<6} {printed:>9,.1f} ({told}) {beyond:>+9,.1f} {grown}   "
                f"{expected:,.0f} ({low:,.0f} to {high:,.0f}){where}"
            )
            if device != CPU:
                idle.append(beyond)
                pools += [] if after is None else [after - beyond]
    if idle:
        of = f"{min(idle):,.0f} to {max(idle):,.0f}"
        yield f"a card idle beyond its buffers: median {statistics.median(idle):,.0f} MiB ({of})"
    if pools:
        yield f"grown behind a prompt (pool): median {statistics.median(pools):,.0f} MiB, up to {max(pools):,.0f}"


def _beyond(seen: MemorySeen) -> Iterator[tuple[str, float, float, float | None]]:
    """Yield (device, printed, taken beyond it when idle, and behind a prompt where one was answered) in MiB."""
    printed, after = {one.device: _printed(one) for one in seen.buffers}, {one.device: one.taken for one in seen.after}
    for idle in seen.idle:
        own, grown = printed.get(idle.device, 0.0), after.get(idle.device)
        yield idle.device, own, idle.taken - own, None if grown is None else grown - own


def _printed(one: LogBuffers) -> float:
    return sum(getattr(one, part) or 0.0 for part in _PARTS)


def _sum(row: DeviceMemory) -> float:
    return float(sum(getattr(row, part) for part in _PARTS))


def _other(row: DeviceMemory) -> tuple[float, float, float]:
    own = _sum(row)
    return row.total_low_mib - own, row.total_mib - own, row.total_high_mib - own


def speed_lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield a table of the speeds, and how far off they are in the middle."""
    yield "Speed in tokens a second: measured, predicted (80 % interval), measured over predicted"
    for one in found:
        where = "" if one.low <= one.measured <= one.high else " OUTSIDE"
        at = f" at {one.n_kv:,}" if one.n_kv else ""
        yield (
            f"  {one.phase.upper()} {one.measured:>10,.1f} {one.expected:>10,.1f} ({one.low:,.1f} to {one.high:,.1f}) "
            f"x{one.ratio:.2f}{where}  {one.step.id}{at}"
        )
    for phase in ("pp", "tg"):
        own = [one for one in found if one.phase == phase]
        if own:
            inside = sum(one.low <= one.measured <= one.high for one in own)
            middle = statistics.median(one.ratio for one in own)
            yield f"{phase.upper()}: x{middle:.2f} of the prediction in the middle, {inside} of {len(own)} inside"


def type_lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield the prompts of each type over those of q4_0 on the same device, measured and predicted."""
    own = [one for one in found if one.step.about == "types" and one.phase == "pp"]
    base = {_device(one.step): one for one in own if _kind(one.step) == "q4_0"}
    rows = [(one, base[_device(one.step)]) for one in own if _device(one.step) in base and _kind(one.step) != "q4_0"]
    if rows:
        yield "Prompts by type, over q4_0: measured, predicted (service/engine/data/type_speeds.json)"
    for one, q4_0 in rows:
        told = f"{one.measured / q4_0.measured:>6.2f} {one.expected / q4_0.expected:>6.2f}"
        yield f"  {told}  {_kind(one.step)} {' '.join(map(str, _device(one.step)))}"


def _device(step: Step) -> tuple[str, str]:
    return step.engine, "card" if step.cards else "CPU"


def _kind(step: Step) -> str:
    return step.mix.rpartition("=")[2]


def copy_lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield prompts with experts in RAM, copied or not, by micro-batch, and from where copying pays."""
    own = [one for one in found if one.step.about == "copies" and one.phase == "pp" and not one.step.flags.mmap]
    for engine in dict.fromkeys(one.step.engine for one in own):
        by_batch: dict[int, dict[bool, Compared]] = {}
        for one in own:
            if one.step.engine == engine:
                by_batch.setdefault(one.step.flags.n_ubatch, {})[one.step.flags.op_offload] = one
        both = {batch: pair for batch, pair in sorted(by_batch.items()) if len(pair) == 2}
        yield f"Experts in RAM, {engine}: prompts with copies to the card / without, measured and predicted"
        for batch, pair in both.items():
            on, off = pair[True], pair[False]
            yield (
                f"  -ub {batch:<5} {on.measured:>8,.0f} / {off.measured:<8,.0f} "
                f"{on.expected:>8,.0f} / {off.expected:<8,.0f}"
            )
        model = build(own[0].step.model, own[0].step.mix)
        least = engine_spec(engine).offload.expert_tokens(model.n_expert, model.n_expert_used)
        pays = [batch for batch, pair in both.items() if pair[True].measured > pair[False].measured * 1.05]
        should = [batch for batch, pair in both.items() if pair[True].expected > pair[False].expected * 1.05]
        told = f"{min(pays, default='none')} (predicted: {min(should, default='none')})"
        yield f"  pays from -ub {told}; the engine copies from {least}"


def copy_rate_lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield GB/s at which experts in RAM reach the card in a prompt, from page-locked RAM and from a mapped file."""
    prompts = {one.step.id: one for one in found if one.phase == "pp"}
    for one in prompts.values():
        step = one.step
        if step.about != "copies" or not step.flags.op_offload or step.flags.n_ubatch != 2048:
            continue
        on_card = prompts.get(f"experts {step.engine} q4_0 card ub2048 experts")
        if on_card is None:
            continue
        n_bytes = sum(t.nbytes for t in build(step.model, step.mix).tensors if "_exps." in t.name)
        seconds = step.n_prompt / one.measured - on_card.step.n_prompt / on_card.measured
        kind, rate = "a mapped file" if step.flags.mmap else "own RAM", n_bytes / 1e9 / seconds
        yield f"experts of {n_bytes / 1e9:.1f} GB from {kind} to the card, {step.engine}: {rate:.1f} GB/s"


def hop_lines(found: Sequence[Compared]) -> Iterator[str]:
    """Yield what a further card costs a token."""
    tokens = {one.step.id: one for one in found if one.phase == "tg"}
    known = shipped().parameters["change.card"].value
    for one in tokens.values():
        step = one.step
        alone = tokens.get(f"types {step.engine} q4_0 card ub512")
        if step.about == "splits" and alone is not None:
            more = (1 / one.measured - 1 / alone.measured) / (len(step.cards) - 1) * 1e6
            told = f" (change.card: {known * 1e6:.0f})" if step.flags.split_mode == "layer" else ""
            what = f"a token on {len(step.cards)} cards, -sm {step.flags.split_mode}, {step.engine}"
            yield f"{what}: {more:+,.0f} µs a further card{told}"


def author(day: Day) -> str:
    """Return what the cases of a day begin with: no two machines or days share it, for the fit groups by it."""
    digest = hashlib.sha256(msgspec.json.encode(day.head)).hexdigest()[:8]
    return f"gpuday{day.head.started_at[:10].replace('-', '')}{digest}"


def case_of(line: Line, hardware: Hardware, name: str) -> dict[str, Any]:
    """Return a speed step as a case of tests/data/perf_2026.jsonl: `bench.runs` and the fit take it."""
    step, rows = line.step, _rows(line)
    tool = engine_spec(step.engine).programs["bench"]
    report = line.result.report if line.result else None
    own: dict[str, Any] = msgspec.to_builtins(hardware)
    return {
        "id": name, "source": "make gpu-day", "date": line.at[:10],
        "engine": step.engine, "backend": "CUDA" if step.cards else None,
        "build": report.engine_version if report else None, "tool": tool,
        "command": render(step.engine, "bench", to_flags(step.flags), model_path="model.gguf"),
        "notes": step.id, "quality": "high", "ab_group": None, "ab_label": None, "inferred": [],
        "model": {"shape": step.model, "mix": step.mix},
        "hardware": {k: v for k, v in own.items() if v is not None},
        **_entries(step, rows, tool),
    }  # fmt: skip


def _entries(step: Step, rows: Sequence[MeasuredRow], tool: str) -> dict[str, Any]:
    if tool == "llama-sweep-bench":
        return {"bench": [], "rows": [
            [r.n_prompt, r.n_gen, r.n_kv, statistics.median(r.pp_seconds), statistics.median(r.pp_tps),
             statistics.median(r.tg_seconds), statistics.median(r.tg_tps)]
            for r in rows if r.pp_seconds and r.tg_seconds
        ]}  # fmt: skip
    phases = [(f"pp{r.n_prompt}", r.n_kv, r.pp_tps) for r in rows] + [(f"tg{r.n_gen}", r.n_kv, r.tg_tps) for r in rows]
    return {"rows": [], "bench": [
        {"test": test, "n_depth": n_kv, "n_ubatch": step.flags.n_ubatch, "threads": step.flags.threads,
         "t_s": round(statistics.median(tps), 3), "sd": round(statistics.pstdev(tps), 3)}
        for test, n_kv, tps in phases if tps
    ]}  # fmt: skip


def fit_lines(cases: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the parameters that the day moves by more than half of their spread, what is in force being the prior."""
    tests = [test for case in cases for test in tests_of(setup_of(dict(case), "gpu-day"), every=True)]
    known = {
        name: msgspec.structs.replace(p, prior=p.value, prior_spread=p.spread if p.prior_spread else 0.0)
        for name, p in shipped().parameters.items()
    }
    fit = Fit(rows_of_tests(tests), known)
    at = fit.start()
    for _ in range(_STEPS):
        at = fit.step(at, fit.slopes(at))
    spreads = fit.spreads(at, fit.slopes(at))
    moved = {n: math.log(at.values[n] / known[n].value) / known[n].spread for n in fit.names}
    yield f"{len(tests)} speeds fitted alone, each parameter held by its own spread:"
    for name in sorted(fit.names, key=lambda n: -abs(moved[n])):
        if abs(moved[name]) > _MOVED:
            p = known[name]
            yield (
                f"  {name}: {p.value:.4g} to {at.values[name]:.4g} ({moved[name]:+.1f} spreads; "
                f"spread {p.spread:.2f} to {spreads[name]:.2f}): {p.meaning}"
            )
    if not any(abs(one) > _MOVED for one in moved.values()):
        yield "  none moves by half of its spread"


def write_use(day: Day, cases: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write what `advisor` and the fit take; the headers of the models are there already."""
    (folder / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(day.results()), indent=1))
    (folder / "hardware.json").write_bytes(msgspec.json.encode(day.head.hardware))
    (folder / "cases.jsonl").write_bytes(b"".join(msgspec.json.encode(case) + b"\n" for case in cases))


def is_busy(line: Line, cores: int) -> bool:
    """Whether other programs kept the CPU from what it can, in a step that computes there."""
    on_cpu = not line.step.cards or line.step.flags.cpu_moe
    return on_cpu and line.others > _BUSY * cores


def report(day: Day, folder: Path, busy: bool) -> Iterator[str]:
    """Yield all that is printed, and write what others take into `folder`. `busy`: of a busy CPU too."""
    folder.mkdir(parents=True, exist_ok=True)
    predictions = Predictions(day, folder)
    good = [line for line in day.lines if line.done]
    measured = [line for line in good if line.result is not None]
    cpu = day.head.hardware.cpu
    doubtful = [line for line in measured if is_busy(line, (cpu.physical_cores if cpu else None) or 1)]
    used = [line for line in measured if busy or line not in doubtful]
    cases = [case_of(line, predictions.hardware(line.step), f"{author(day)}-{i}") for i, line in enumerate(used, 1)]
    speeds = [one for line in measured for one in predictions.speeds(line)]
    yield machine_line(day)
    yield from memory_lines(predictions, day.lines)
    for part in (speed_lines, type_lines, copy_lines, copy_rate_lines, hop_lines):
        yield from part(speeds)
    if doubtful:
        most = max(line.others for line in doubtful)
        left = "used all the same" if busy else "shown, and not used: measure again, or add --busy"
        yield f"{len(doubtful)} steps were measured while other programs kept up to {most:.1f} cores busy: {left}"
    if cases:
        yield from fit_lines(cases)
    for line in day.lines:
        if line.failure is not None:
            yield f"failed: {line.step.id}: {line.failure.text}"
    write_use(msgspec.structs.replace(day, lines=used), cases, folder)
    yield f"{len(good)} of {len(day.lines)} steps have figures; {len(cases)} cases in {folder / 'cases.jsonl'}"
    if cases:
        yield f"to use it here: advisor advise MODEL -H @{folder}/hardware.json --measured {folder}/results.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the report of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--busy", action="store_true")
    asked = parser.parse_args(arguments)
    for line in report(read(asked.file), asked.out or asked.file.parent / "use", asked.busy):
        print(line)


if __name__ == "__main__":
    main()
