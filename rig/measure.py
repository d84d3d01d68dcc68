"""Measure with a rig: python -m rig.measure RIG [--runs N --seed S] [--model NAME … --write FILE | --compare FILE].

RIG: the folder that rig.build printed. Without --compare, N random commands on random cards and models are measured and
written as lines of `tests/data/memory_rig_*.jsonl`; each is held to the prediction on the way. --compare: N lines of
such a file (of ik_llama.cpp also `memory_arch_ik.jsonl` and `memory_split_ik.jsonl`), chosen by the seed, are measured
again. --fit: commands with ik_llama.cpp's `--fit`, on cards that may be too small (lines of `memory_fit_ik.jsonl`).
--gpu-day, in place of all that: the commands of a GPU day (`rig/gpu_day.py`) for three cards. Ends with 1 where
a figure differs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from rig.commands import flags_run_with, random_fit, random_run
from rig.gpu_plan import Machine, plan
from service.engine.commands.parse import parse
from service.engine.commands.render import launch
from service.engine.config import Engine
from service.engine.model import Model
from service.engine.run_flags import to_flags
from service.engine.units import MIB
from tests import models
from tests.bare_runs import memory_on

_BUFFER = re.compile(
    r"(\w+)(?:\(\))?(?: DSV4 \w+)?\s+(?:(model|KV|RS|state|output|compute) )?buffer size\s*(?:=|is)\s*([\d.]+) MiB"
)
_GRAPH = re.compile(r"(splits|nodes)\s*=\s*(\d+)")
_PARTS = {"": "weights", "model": "weights", "output": "output", "compute": "compute"} | dict.fromkeys(
    ("KV", "RS", "state"), "kv"
)
_CARD = re.compile(r"CUDA(\d+)")
_STORED = ("weights", "kv", "compute", "output", "derived")
_TO_RAM = re.compile(r"Adding experts CPU overrides for layer (\d+)")  # as --fit chooses
_EXPERTS_OF = re.compile(r"blk\\.(\d+)\\..*exps")  # the rule that does
_NO_PLACEMENT = "Unable to auto-fit model"
_UNPRINTED = "derived_bytes"  # what is made of weights when they are loaded
_SPLIT = ("weights_bytes", "kv_bytes")  # of these ik_llama.cpp prints what all cards have, with -sm graph
_CARDS = "all cards"  # of recorded figures that are theirs together
_EXCHANGE = 32 * MIB  # -sm tensor on two cards: what they add up in, which the recorded figures leave out
_LAST = 4
_SECONDS = 240
_FREE = 23_900  # MiB of a card of 24 GiB
_COPIED = 8 << 30  # what is loaded by copying in RAM, within a minute
PROGRAMS = {"server": "llama-server", "bench": "llama-bench", "sweep": "llama-sweep-bench"}


class Run(NamedTuple):
    """What a line asks for: the model, the cards' free MiB, the program and its words."""

    model: str
    mix: str
    tool: str
    free_mib: tuple[int, ...]
    args: tuple[str, ...]


class Printed(NamedTuple):
    """What the engine printed: MiB to two decimals by device and part, and the graph; `failed`: its last words.

    `taken`: bytes that each card had given, after each of its last changes: llama-bench goes on at once, and the last
    may be the pool of its first operation. `to_ram`: layers whose experts `--fit` puts into RAM.
    """

    mib: dict[str, dict[str, float]]
    splits: int
    nodes: int
    failed: str | None = None
    taken: tuple[tuple[int, ...], ...] = ()
    to_ram: tuple[int, ...] = ()
    unprinted: tuple[str, ...] = (_UNPRINTED,)


def run_engine(rig: Mapping[str, str], run: Run, file: Path) -> Printed:
    """Start the program, read what it prints until the graph is reserved, and end it."""
    log = file.with_suffix(".log")
    log.write_text("")
    env = os.environ | {"RIG_LOG": str(log), "RIG_FREE_MIB": ",".join(map(str, run.free_mib))}
    if rig["engine"] == "llama.cpp":
        env |= {"GGML_BACKEND_PATH": rig["backend"], "LD_PRELOAD": rig["preload"]}
        words = _words_of_llama_cpp(run)
    else:
        env |= {"LD_PRELOAD": f"{rig['preload']} {rig['backend']}"}
        words = []
    program = str(Path(rig["programs"]) / PROGRAMS[run.tool])
    process = subprocess.Popen(
        [program, "-m", str(file), *run.args, *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True, cwd=file.parent,
    )  # fmt: skip
    Path(f"/proc/{process.pid}/oom_score_adj").write_text("1000")  # a mistake here must not cost another program
    late = threading.Timer(_SECONDS, process.kill)
    late.start()
    try:
        printed = read(process.stdout or ())
        rows = [line.split() for line in log.read_text().splitlines()]
        cards = range(len(run.free_mib))
        changes = [[int(n) for name, n in rows if name == f"CUDA{card}"] for card in cards]
        return printed._replace(taken=tuple((0, *itertools.accumulate(one))[-_LAST:] for one in changes))
    finally:
        late.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _words_of_llama_cpp(run: Run) -> list[str]:
    """What makes its programs print their buffers, and place as they are told, on these cards."""
    loud = ["-v"] if run.tool == "bench" else ["-lv", "4", "-fit", "off", "--no-warmup", "--port", "0"]
    if "-lm" not in run.args and "-mmp" not in run.args:
        loud += ["-lm", "none"]  # a mapped file's buffer is printed as the range of its tensors, not as their sum
    return [*loud, "-dev", (",", "/")[run.tool == "bench"].join(f"CUDA{i}" for i in range(len(run.free_mib)))]


def read(lines: Any) -> Printed:
    """Return what the lines say, up to the first line about the graph's splits."""
    found: dict[str, dict[str, float]] = {}
    graph = {"splits": 0, "nodes": 0}
    tail: list[str] = []
    to_ram: list[int] = []
    unprinted: tuple[str, ...] = (_UNPRINTED,)
    for line in lines:
        tail = [*tail[-4:], line.rstrip()]
        if buffer := _BUFFER.search(line):
            parts = found.setdefault(_device(buffer[1]), {})
            part = _PARTS[buffer[2] or ""]
            parts[part] = round(parts.get(part, 0) + float(buffer[3]), 2)
        to_ram += map(int, _TO_RAM.findall(line))
        if "DSV4 cache:" in line:  # ik_llama.cpp prints its sum only
            unprinted = (_UNPRINTED, "kv_bytes")
        numbers = {name: int(number) for name, number in _GRAPH.findall(line)} if "graph" in line else {}
        graph |= numbers
        if "splits" in numbers:
            return Printed(found, graph["splits"], graph["nodes"], to_ram=tuple(to_ram), unprinted=unprinted)
    return Printed(found, graph["splits"], graph["nodes"], failed="\n".join(tail))


def _device(name: str) -> str:
    return name if _CARD.fullmatch(name) or name in ("Meta", "CUDA_Split") else "Host"


def recorded(path: Path) -> Iterator[tuple[dict[str, Any], Run]]:
    """Yield the lines of a file of measured runs, as `differences` reads them."""
    for line in path.read_text().splitlines():
        row = json.loads(line)
        free = row["free_mib"] if "free_mib" in row else row["free_mib_per_gpu"]
        cards = free if isinstance(free, list) else [free] * row["gpus"]
        row.setdefault("tool", "sweep")
        if "compute_mib" in row:
            row["measured"] = _of_all_cards(row)
        yield row, Run(row["model"], row["mix"], row["tool"], tuple(cards), tuple(row["args"]))


def _of_all_cards(row: dict[str, Any]) -> dict[str, Any]:
    """A line of `memory_split_ik.jsonl` in the form of the others."""
    names = [*(f"CUDA{i}" for i in range(len(row["compute_mib"]) - 1)), "Host"]
    devices = {name: {"compute_mib": mib} for name, mib in zip(names, row["compute_mib"], strict=True)}
    devices[_CARDS] = {"weights_mib": row["weights_mib"], "kv_mib": row["kv_mib"]}
    return {"devices": devices, "graph_splits": row["graph_splits"], "graph_nodes": row["graph_nodes"]}


def differences(row: dict[str, Any], printed: Printed) -> list[str]:
    """Return where a line and what was printed now differ: bytes of cards exactly, the rest as the engine prints it."""
    measured, wrong = row["measured"], list[str]()
    no_placement = _NO_PLACEMENT in (printed.failed or "")
    if no_placement != measured.get("no_placement", False):
        return [f"--fit {'found no' if no_placement else 'found a'} placement, unlike recorded"]
    if printed.failed is not None:
        return [] if no_placement else [f"the engine ended: {printed.failed}"]
    together = "tensor" in row.get("args", ())  # one device stands for all cards then
    for name, parts in measured["devices"].items():
        card = _CARD.fullmatch(name)
        if card and all(part.endswith("_bytes") for part in parts):
            whole = sum(parts.values()) + (_EXCHANGE if together and len(printed.taken) == 2 else 0)
            taken = printed.taken[int(card[1])]
            if whole not in taken:
                wrong.append(f"{name}: {taken[-1]} bytes, recorded {whole}")
        for part, figure in parts.items() if not (card and together) else ():
            if (
                part == _UNPRINTED
                or (part in printed.unprinted)
                or (card and part in _SPLIT and "CUDA_Split" in printed.mib)
            ):
                continue
            now, mib = _printed(printed, name, part), figure and (figure / MIB if part.endswith("_bytes") else figure)
            most = 0.0151 if card else 0.021  # the sum of up to four printed figures
            if mib is not None and abs(now - mib) > most:
                wrong.append(f"{name} {part}: {now:.2f} MiB, recorded {mib:.2f}")
    graph = {"graph_splits": printed.splits, "graph_nodes": printed.nodes, "experts_in_ram": list(printed.to_ram)}
    return wrong + [f"{key}: {n}, recorded {measured[key]}" for key, n in graph.items() if measured.get(key, n) != n]


def _printed(printed: Printed, name: str, part: str) -> float:
    """The MiB that were printed for a part (`weights_bytes`, `kv_mib`, …) of a device, or of all cards."""
    wanted = {"CPU": "Host"}.get(name, name)
    devices = [d for d in printed.mib if d != "Host"] if wanted == _CARDS else [wanted]
    return sum(printed.mib.get(device, {}).get(part.rpartition("_")[0], 0.0) for device in devices)


def _slow(run: Run) -> bool:
    """Whether loading copies what is large in RAM: `-sm tensor` cuts weights, `-rtr` and `-muge` lay them out anew."""
    return bool({"tensor", "-rtr", "-muge"} & set(run.args)) and models.build(run.model, run.mix).n_bytes > _COPIED


class Files:
    """Header-true models whose data are holes, made when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, dict[tuple[str, str], Path]()

    def of(self, model: str, mix: str) -> Path:
        """Return the file of a model in a mix."""
        key = (model, mix)
        if key not in self.made:
            path = self.folder / f"{len(self.made)}.gguf"
            self.made[key] = models.write_gguf(path, model, mix)[0]
        return self.made[key]


def _compare(rig: dict[str, str], path: Path, n: int, seed: int, files: Files) -> int:
    rows = [(row, run) for row, run in recorded(path) if not _slow(run)]
    chosen = random.Random(seed).sample(rows, min(n, len(rows)))
    wrong = 0
    for row, run in chosen:
        found = differences(row, run_engine(rig, run, files.of(run.model, run.mix)))
        wrong += bool(found)
        print(f"{row['id']} {run.model} {run.mix}: {'equal' if not found else '; '.join(found)}", flush=True)
    print(f"{len(chosen) - wrong} of {len(chosen)} lines of {path.name} measured again, equal")
    return wrong


def _measure(rig: dict[str, str], asked: argparse.Namespace, files: Files) -> int:
    rng, wrong, n, kind = random.Random(asked.seed), 0, asked.runs, "fit" if asked.fit else "rig"
    with (asked.write or Path(os.devnull)).open("a") as out:
        for i in range(n):
            run = Run(*(random_fit(rng) if asked.fit else random_run(rng, rig["engine"], asked.model)))
            printed = run_engine(rig, run, files.of(run.model, run.mix))
            row = _row(f"{kind}{asked.seed}-{i:04}", rig["engine"], run, printed)
            found = _held(row, run, printed)
            wrong += bool(found)
            out.write(json.dumps(row) + "\n")
            print(f"{row['id']} {run.model} {' '.join(run.args)}: {'; '.join(found) or 'as predicted'}", flush=True)
    print(f"{n - wrong} of {n} random runs as predicted")
    return wrong


def _measure_gpu_day(rig: dict[str, str], files: Files) -> int:
    """Hold each command of a GPU day to the prediction; return how many differ."""
    found, tool = dict[str, list[str]](), "server" if rig["engine"] == "llama.cpp" else "sweep"
    for step in plan(Machine(cards=(24 << 30,) * 3, threads=1, engines=(cast("Engine", rig["engine"]),))):
        if not step.cards or step.flags.mmap:  # of a mapped file the range of its tensors is printed
            continue
        told = launch(step.engine, "server" if tool == "server" else "bench", to_flags(step.flags), model_path="")
        run = Run(step.model, step.mix, tool, (_FREE,) * len(step.cards), told.arguments[2:])
        printed = run_engine(rig, run, files.of(run.model, run.mix))
        found[step.id] = _held(_row(step.id, rig["engine"], run, printed), run, printed)
        print(f"{step.id}: {'; '.join(found[step.id]) or 'as predicted'}", flush=True)
    wrong = sum(map(bool, found.values()))
    print(f"{len(found) - wrong} of {len(found)} commands of a GPU day as predicted")
    return wrong


def _row(name: str, engine: str, run: Run, printed: Printed) -> dict[str, Any]:
    """A line as it was printed."""
    devices = {device: {f"{part}_mib": mib for part, mib in parts.items()} for device, parts in printed.mib.items()}
    return {
        "id": name, "engine": engine, "model": run.model, "mix": run.mix, "allocator": "cuda", "tool": run.tool,
        "gpus": len(run.free_mib), "free_mib": list(run.free_mib), "args": list(run.args),
        "measured": {"devices": devices, "graph_splits": printed.splits, "graph_nodes": printed.nodes},
    }  # fmt: skip


def _held(row: dict[str, Any], run: Run, printed: Printed) -> list[str]:
    """Hold a line to the prediction; where they agree, the line gets the prediction's bytes."""
    ours = predicted(row["engine"], run, models.build(run.model, run.mix))
    wrong = differences({"args": run.args, "measured": ours}, printed)
    if not wrong:
        row["measured"] = ours
    return [one.replace("recorded", "predicted") for one in wrong]


def predicted(engine: Engine, run: Run, model: Model) -> dict[str, Any]:
    """Return what a run on `model` is predicted to take, in the form of a recorded line's `measured`."""
    parsed = parse(f"{PROGRAMS[run.tool]} -m m.gguf {shlex.join(run.args)}", engine)
    free = [n * MIB for n in run.free_mib]
    flags = flags_run_with(parsed, model, free)
    if flags is None:
        return {"devices": {}, "no_placement": True}
    ours = memory_on(engine, model, flags, free, tool=parsed.tool)
    names = [*(f"CUDA{i}" for i in range(len(free))), "Host"]
    devices = {
        name: {f"{part}_bytes": getattr(figures, part) for part in _STORED}
        for name, figures in zip(names, ours.devices, strict=True)
    }
    found = {"devices": devices, "graph_splits": ours.graph_splits, "graph_nodes": ours.graph_nodes}
    if "--fit" in run.args:
        found["experts_in_ram"] = [int(n[1]) for rule in flags.overrides if (n := _EXPERTS_OF.match(rule.pattern))]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rig", type=Path)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--model", action="append", default=[], help="of tests/shapes, for random commands; repeatable")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--gpu-day", action="store_true")
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no engine is left behind
    rig = json.loads((asked.rig / "rig.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        if asked.gpu_day:
            return min(_measure_gpu_day(rig, files), 1)
        if asked.compare:
            return min(_compare(rig, asked.compare, asked.runs, asked.seed, files), 1)
        return min(_measure(rig, asked, files), 1)


if __name__ == "__main__":
    sys.exit(main())
