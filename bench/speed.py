"""Predicted against published speed: `python -m bench.speed` prints errors and coverage by class and depth.

In-sample: the parameters were fitted on these runs. Predictions are of today's builds, the runs mostly of 2025: what a
build did differently then (flash attention, thresholds, kernels) counts as error here. Only the defaults of flags are
read as of the date of the run. One number for each case and depth band: the median over its rows.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench import scoreboard
from service.engine.catalogue import engine_devices, resolve
from service.engine.commands import parse
from service.engine.config import Device, Engine, Flags, Override, Placement
from service.engine.errors import AdvisorError
from service.engine.estimate import Estimate
from service.engine.goal import Goal
from service.engine.hardware import Hardware, Rig
from service.engine.memory import place
from service.engine.model import Model
from service.engine.speed import goal_seconds, predict_speed
from tests.models import build

DATA = Path(__file__).parent.parent / "tests" / "data" / "perf.jsonl"
DEPTHS_A_CASE = 7
SHALLOW, DEEP = 1_024, 8_192
CLASSES = ("CPU only", "one GPU", "one GPU + CPU", "several GPUs", "several GPUs + CPU", "all")
BANDS = ("depth 0", "deep", "any")

# Runs that say nothing of the config they state; their authors or the record explain why.
DISTRUSTED = {
    "disc357-AesSedai-1": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-3": "CUDA and BLAS build with hidden GPUs",
    "disc357-AesSedai-7": "CUDA build with hidden GPUs",
    "disc491-Ph0rk0z-4": "R8 tensors on GPUs, not in the header",
    "disc201-VinnyG9-1": "BIOS snoop mode",
    "disc258-ubergarm-1": "half of its twin's speed, no stated fact explains it",
    "disc548-Gaolingx-2": "bf16 with -rtr, misuse by the maintainer's word",
    "disc562-ikawrakow-1": "Vulkan backend",
    "pr598-ubergarm-3": "Vulkan backend",
    "issue255-binjiechen-1": "BLAS build",
    "issue490-nux-4": "NUMA accident between two builds",
    "pr520-quasar-1": "placement not published",
    "pr520-quasar-2": "placement not published",
    "lpr12922-4onen-2": "development branch, below any bound",
    "pr1821-davidsyoung-1": "summary table, settings inferred",
    "pr1821-davidsyoung-2": "summary table, settings inferred",
    "pr1821-davidsyoung-3": "summary table, settings inferred",
    "pr1821-davidsyoung-4": "summary table, settings inferred",
}

# First day on which a flag left out means what it means today (ik_llama.cpp: its pull requests and examples; llama.cpp:
# -fa auto since August 2025).
FLASH_BY_DEFAULT = {"ik_llama.cpp": "2025-10-15", "llama.cpp": "2025-08-30"}
FUSED_BY_DEFAULT = "2025-10-01"
MLA_BY_DEFAULT = "2025-07-01"
# Until then -op counted operations otherwise, and 26, 27 and 29 were all matrix products of weights.
OPERATIONS_MOVED = "2025-09-01"


class Point(msgspec.Struct, frozen=True):
    """One published speed beside the predicted one, in tokens a second."""

    case: str
    phase: str
    kind: str
    depth: int
    observed: float
    predicted: Estimate

    @property
    def error(self) -> float:
        """Logarithm of predicted over observed."""
        return math.log(self.predicted.expected / self.observed)


class Setup(msgspec.Struct, frozen=True):
    """A case made into what the speed model takes."""

    engine: Engine
    model: Model
    flags: Flags
    rig: Rig
    devices: tuple[Device, ...]

    def placed(self, flags: Flags) -> Placement:
        """Return the placement of `flags` on this setup."""
        return place(self.engine, self.model, flags, [d.free for d in self.devices])


def setup_of(case: dict[str, Any]) -> Setup:
    """Return the setup of a case. Raises AdvisorError for a command or hardware that cannot be read."""
    command = case["command"] or f"{case['tool']} -m model.gguf"
    parsed = parse(command, case["engine"], program=case["tool"])
    flags = as_of(parsed.flags, command, case["engine"], case["date"])
    rig = resolve(msgspec.convert(case["hardware"], Hardware))
    order = stated_order(rig, case["hardware"].get("notes") or "")
    model = build(case["model"]["shape"], case["model"]["mix"])
    return Setup(case["engine"], model, flags, rig, engine_devices(rig, case["engine"], order))


def as_of(flags: Flags, command: str, engine: str, date: str) -> Flags:
    """Return the flags with the defaults of their date, and with what a command says in words."""
    words = set(command.split())
    changes: dict[str, Any] = {}
    if date < FLASH_BY_DEFAULT[engine] and not words & {"-fa", "--flash-attn"}:
        changes["flash_attn"] = "off"
    if date < FUSED_BY_DEFAULT and not words & {"-fmoe", "--fused-moe"}:
        changes["fused_moe"] = False
    if date < MLA_BY_DEFAULT and flags.mla is None:
        changes["mla"] = 0
    if date < OPERATIONS_MOVED and any(o.startswith("-op 26,0,27,0,29,0") for o in flags.other):
        changes["op_offload"] = False
    if "all experts on the CPU" in command:
        changes["overrides"] = (Override("exps", "CPU"),)
    return msgspec.structs.replace(flags, **changes)


def stated_order(rig: Rig, notes: str) -> tuple[int, ...]:
    """Return the cards in the order of a note such as `CUDA order 5090,4090`, else fastest first."""
    found = re.search(r"CUDA order ([\w,]+)", notes)
    names, left = (found[1].split(",") if found else []), list(range(len(rig.cards)))
    if len(names) != len(left):
        return tuple(left)
    return tuple(left.pop(next(i for i, c in enumerate(left) if name in rig.cards[c].name)) for name in names)


def kind_of(placement: Placement) -> str:
    """Return the class of a placement, as the tables name it."""
    host = placement.n_devices
    weights = [d for name, d in placement.tensors.items() if "_norm" not in name and "token_embd" not in name]
    if not host:
        return "CPU only"
    return ("one GPU" if host == 1 else "several GPUs") + (" + CPU" if host in weights else "")


def points_of(case: dict[str, Any], setup: Setup) -> Iterator[Point]:
    """Yield every speed that a case holds, at most seven depths of a sweep."""
    rows = case["rows"]
    count = len(rows)
    chosen = sorted({0, 1, 2, count // 4, count // 2, 3 * count // 4, count - 1} & set(range(count)))[:DEPTHS_A_CASE]
    warm = "--warmup-batch" in (case["command"] or "")
    for index in chosen:
        yield from _row_points(case, setup, rows[index], cold=index == 0 and not warm and count > 2)
    for entry in case["bench"] or []:
        found = re.fullmatch(r"(pp|tg)(\d+)", entry["test"])
        if found:
            yield _bench_point(case, setup, entry, found[1], int(found[2]))


def _row_points(case: dict[str, Any], setup: Setup, row: Sequence[float], cold: bool) -> Iterator[Point]:
    n_prompt, n_token, n_kv, _, pp, _, tg = row
    flags = setup.flags
    if case["tool"] == "llama-sweep-bench":
        n = int(n_prompt)
        flags = msgspec.structs.replace(flags, n_ubatch=n, n_batch=max(n, flags.n_batch))
    placement = setup.placed(flags)
    if not cold:
        yield _prompt_point(case, setup, flags, placement, (int(n_prompt), int(n_kv)), pp)
    yield _token_point(case, setup, flags, placement, (int(n_token), int(n_kv)), tg)


def _bench_point(case: dict[str, Any], setup: Setup, entry: dict[str, Any], phase: str, n: int) -> Point:
    changes = {"n_ubatch": entry.get("n_ubatch"), "threads": entry.get("threads"), "n_gpu_layers": entry.get("ngl")}
    flags = msgspec.structs.replace(setup.flags, **{k: v for k, v in changes.items() if v is not None})
    placement, depth = setup.placed(flags), entry.get("n_depth") or 0
    point = _prompt_point if phase == "pp" else _token_point
    return point(case, setup, flags, placement, (n, depth), entry["t_s"])


def _prompt_point(
    case: dict[str, Any], setup: Setup, flags: Flags, placement: Placement, test: tuple[int, int], observed: float
) -> Point:
    n, depth = test
    goal = Goal(preset="chat", prompt=n, output=0, depth=depth, context=depth + n, parallel=1, min_tg=None, min_pp=None)
    t = goal_seconds(setup.engine, setup.model, flags, placement, setup.rig, setup.devices, goal)
    speed = Estimate(n / t.high, n / t.expected, n / t.low, t.basis)
    return Point(case["id"], "PP", kind_of(placement), depth, observed, speed)


def _token_point(
    case: dict[str, Any], setup: Setup, flags: Flags, placement: Placement, test: tuple[int, int], observed: float
) -> Point:
    n, depth = test
    n_kv = depth + n // 2
    tg = predict_speed(setup.engine, setup.model, flags, placement, setup.rig, setup.devices, n_kv).tg
    return Point(case["id"], "TG", kind_of(placement), depth, observed, tg)


def collect(path: Path = DATA) -> tuple[list[Point], Counter[str]]:
    """Return the points of all cases that are trusted and can be read, and how many others there are, by reason."""
    points: list[Point] = []
    left_out: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        case = msgspec.json.decode(line)
        if case["id"] in DISTRUSTED:
            left_out["distrusted"] += 1
            continue
        try:
            points += points_of(case, setup_of(case))
        except AdvisorError as error:
            left_out[f"{type(error).__name__}: {error.detail[:60]}"] += 1
    return points, left_out


def in_band(point: Point, band: str) -> bool:
    """Return whether a point belongs to a band of depths."""
    return band == "any" or (point.depth < SHALLOW if band == "depth 0" else point.depth >= DEEP)


def summary(points: Sequence[Point]) -> str:
    """Return cases, median, p80 and p90 of the absolute error, bias, coverage and width of the interval as one row."""
    by_case: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_case[point.case].append(point)
    signed = [statistics.median(p.error for p in of_case) for of_case in by_case.values()]
    errors = sorted(abs(e) for e in signed)
    inside = statistics.mean(
        statistics.mean(p.predicted.low <= p.observed <= p.predicted.high for p in of_case)
        for of_case in by_case.values()
    )
    width = statistics.median(p.predicted.high / p.predicted.low for p in points)
    cells = [_percent(errors[min(int(q * len(errors)), len(errors) - 1)]) for q in (0.5, 0.8, 0.9)]
    bias = f"{(math.exp(statistics.median(signed)) - 1) * 100:+.0f} %"
    return " | ".join([f"{len(errors):5}", *cells, f"{bias:>6}", f"{inside * 100:6.0f} %", f"{width:7.2f}"])


def _percent(error: float) -> str:
    return f"{(math.exp(error) - 1) * 100:4.0f} %"


def report(points: Sequence[Point]) -> Iterator[str]:
    """Yield the tables of TG and PP as Markdown."""
    for phase in ("TG", "PP"):
        yield f"| {phase} | cases | median | p80 | p90 | bias | coverage | high/low |"
        yield "|---|---|---|---|---|---|---|---|"
        for kind in CLASSES:
            for band in BANDS:
                chosen = [p for p in points if p.phase == phase and kind in (p.kind, "all") and in_band(p, band)]
                if chosen:
                    yield f"| {kind}, {band} | {summary(chosen)} |"
        yield ""


def worst(points: Sequence[Point], count: int) -> Iterator[str]:
    """Yield the cases with the largest errors, by phase."""
    for phase in ("TG", "PP"):
        by_case: dict[str, list[Point]] = defaultdict(list)
        for point in points:
            if point.phase == phase:
                by_case[point.case].append(point)
        middle = {case: statistics.median(p.error for p in of_case) for case, of_case in by_case.items()}
        for case in sorted(middle, key=lambda c: -abs(middle[c]))[:count]:
            first = by_case[case][0]
            yield f"{phase} {math.exp(middle[case]):5.2f} x {case} ({first.kind}, observed {first.observed:.1f} t/s)"


def main() -> None:
    """Print the tables, what was left out, and the worst cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worst", type=int, default=10, help="how many of the worst cases to list (default: 10)")
    arguments = parser.parse_args()
    points, left_out = collect()
    print("In-sample: the parameters were fitted on these runs. Predictions are of today's builds.\n")
    print("\n".join(report(points)))
    print("left out:", *(f"{count} x {reason}" for reason, count in left_out.most_common()), sep="\n  ")
    print("\nworst cases, predicted over observed:", *worst(points, arguments.worst), sep="\n  ")
    print("", *scoreboard.report(scoreboard.lines()), sep="\n")


if __name__ == "__main__":
    main()
