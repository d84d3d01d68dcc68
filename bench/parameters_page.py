"""The text of docs/speed-parameters.md: every parameter of the shipped calibration, related ones in one table.

`python -m bench.pages` writes it.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from service.engine.calibration import Calibration, Parameter, shipped

_INTRODUCTION = """\
# Parameters of the speed model

Calibration {version}, from {runs} published runs. `python -m bench.pages` writes this page;
[Calibration](speed.md#calibration) describes the fit, and `service/engine/data/calibration.json` has the priors.

- A value without a unit multiplies the ideal time, or the value that its meaning names after "over".
- ×/÷ is one standard deviation of the value, as a factor.
- *Fixed* values are not fitted. "GPU day" marks values fitted to this project's own runs.
- The values describe current builds. Those under `before` apply to older builds.
"""
_INTERVALS = """\
## Intervals

The 80 % interval reaches from the predicted speed divided by its factor to the speed times the factor. Assumed facts
(`unknown.…`) widen it further.

| interval | factor | Metal | ROCm | SYCL | Vulkan | all four |
|---|---|---|---|---|---|---|"""
_OF_INTERVALS = ("metal", "rocm", "sycl", "vulkan", "other")
_NAMES = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "sycl": "SYCL", "metal": "Metal"}


class _Table(NamedTuple):
    """Parameters whose names differ in two parts: `pattern` has them as `row` and `column`."""

    heading: str
    introduction: str
    pattern: re.Pattern[str]
    columns: Sequence[str]
    meanings: bool = False  # a last column says what a row means


_TABLES = (
    _Table(
        "Generations of cards in CUDA",
        "`gpu_read`: time of reading weights, over bytes / stated bandwidth. `gpu_matmul`: time of a batch's products, "
        "over\noperations / INT8 peak. `gpu_watt`: INT8 TOPS from a watt of board power.",
        re.compile(
            r"(?P<column>gpu_read|gpu_matmul|gpu_watt)\."
            r"(?P<row>pascal|volta|turing|ampere|ga100|ada|hopper|blackwell|other)"
        ),
        ("gpu_read", "gpu_matmul", "gpu_watt"),
    ),
    _Table(
        "Back ends",
        "The name of a parameter is that of its row, followed by its column (`gpu_read.rocm`).",
        re.compile(r"(?!before\.|launch\.recurrent)(?P<row>[\w.]+)\.(?P<column>cuda|rocm|vulkan|sycl|metal)"),
        tuple(_NAMES),
        meanings=True,
    ),
    _Table(
        "Generations of cards by back end",
        "Over the value of the back end, for example `gpu_read.rocm.rdna2`. `gpu_compute`: products and attention of a "
        "batch.",
        re.compile(
            r"(?P<column>gpu_read|gpu_compute|gpu_attention|launch)\."
            r"(?P<row>(?:cuda|rocm|vulkan|sycl|metal)\.(?!hopper)[\w.]+)"
        ),
        ("gpu_read", "gpu_compute", "gpu_attention", "launch"),
    ),
    _Table(
        "CPUs",
        "`ram_read`: reading weights, over the average CPU. `cpu_dot`: products for a token, over Zen 4. `cpu_matmul`: "
        "time\nof a batch, over operations / (128 a cycle and core). `cpu_attention`: attention of a batch, over its "
        "products.",
        re.compile(
            r"(?P<column>ram_read|cpu_dot|cpu_matmul|cpu_attention)\."
            r"(?P<row>zen1|zen2|zen4|zen5|intel_avx2|intel_vnni|other)"
        ),
        ("ram_read", "cpu_dot", "cpu_matmul", "cpu_attention"),
    ),
)


def parameters_markdown() -> str:
    """Return docs/speed-parameters.md."""
    known = shipped()
    parts = [_INTRODUCTION.format(version=known.version, runs=known.n_runs)]
    left = dict(known.parameters)
    for table in _TABLES:
        parts.append("\n".join(_rows(table, left)) + "\n")
    parts.append("\n".join(_single(left)) + "\n")
    parts.append("\n".join([_INTERVALS, *_intervals(known)]))
    return "\n".join(parts) + "\n"


def _rows(table: _Table, left: dict[str, Parameter]) -> Iterator[str]:
    """Yield a table, and take its parameters out of those that are left."""
    rows: dict[str, dict[str, Parameter]] = defaultdict(dict)
    for name in list(left):
        if match := table.pattern.fullmatch(name):
            rows[match["row"]][match["column"]] = left.pop(name)
    titles = [_NAMES.get(column, f"`{column}`") for column in table.columns]
    yield f"## {table.heading}\n\n{table.introduction}\n"
    yield _line(["", *titles, *(["meaning"] if table.meanings else [])])
    yield "|---" * (len(titles) + 1 + table.meanings) + "|"
    for row, found in rows.items():
        cells = [_value(found[column]) if column in found else "" for column in table.columns]
        yield _line([f"`{row}`", *cells, *([_of_back_end(found)] if table.meanings else [])])


def _single(left: Mapping[str, Parameter]) -> Iterator[str]:
    yield "## Others\n"
    yield _line(["parameter", "value", "unit", "meaning"])
    yield "|---|---|---|---|"
    for name, p in left.items():
        yield _line([f"`{name}`", _value(p), "" if p.unit == "ratio" else p.unit, _escaped(p.meaning)])


def _value(p: Parameter) -> str:
    notes = ["*fixed*"] * (not p.prior_spread) + ["GPU day"] * (p.source == "GPU day")
    return f"{p.value:g} ×/÷ {math.exp(p.spread):.2f}" + (f" ({', '.join(notes)})" if notes else "")


def _of_back_end(found: Mapping[str, Parameter]) -> str:
    """Return what a row means, in words that name no back end."""
    return re.sub(r"\b(ROCm|Vulkan|SYCL|Metal)\b", "the back end", _escaped(next(iter(found.values())).meaning))


def _escaped(meaning: str) -> str:
    return meaning.replace("*", r"\*")


def _intervals(known: Calibration) -> Iterator[str]:
    """Yield a row for each interval, with its factors by back end side by side."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name, factor in known.intervals.items():
        stem, _, last = name.rpartition(".")
        row, column = (stem, last) if last in _OF_INTERVALS else (name, "")
        rows[row][column] = f"{factor:g}"
    for row, factors in rows.items():
        yield _line([f"`{row}`", *(factors.get(column, "") for column in ("", *_OF_INTERVALS))])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
