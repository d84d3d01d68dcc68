"""Memory against buffer sizes that people posted: older builds, real CUDA cards.

    python -m bench.memory_published [--show N]

The KV cache of every row with a stated context and type, and the compute buffers of the rows whose posts say enough to
derive one, each with the rules of the build of its day (`history.json` of its folder). Every figure outside the
target is listed with its cause, or as not explained.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from service.engine.engines import engine_spec
from service.engine.units import MIB
from tests.memory_published import NotDerivable, PublishedRow, published_rows

CACHE_TARGET, COMPUTE_TARGET = 0.01, 0.10
NOT_EXPLAINED = "not explained"
CACHE_CAUSES = {
    "pr260-davidsyoung-table-2": "the table's context is no multiple of 256; the figure is that of 16,384 tokens",
    "disc258-ubergarm-5": "the post does not state -mla: 0 by default then, but the figure is that of a latent cache",
    "disc286-ubergarm-1": "the post does not state -mla: 0 by default then, but the figure is that of a latent cache",
}
COMPUTE_CAUSES = {
    "disc258-ubergarm-3": "the post does not print the -ot rules",
    "disc258-magikRUKKOLA-2": "the post does not print its own command; here with the one it refers to",
    "issue450-cmoncure-1": "the post does not print its command",
    "pr492-ubergarm-1": "the command is that of another run",
}
_FIRST_FLASH_MLA = "2025-03-13"  # ik_llama.cpp pull 253


class Figure(NamedTuple):
    """One figure of one device, in MiB. `without_copies`: the prediction if no weights in RAM were copied to GPUs."""

    row: PublishedRow
    device: str
    predicted: float
    measured: float
    without_copies: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def caches() -> list[Figure]:
    """Return the whole KV cache of every row that states its context and type."""
    stated = [r for r in published_rows() if r.record["kv_mib"] and {"n_ctx", "ctk"} <= set(r.settings)]
    return [Figure(r, "all", r.cache(), r.record["kv_mib"], 0) for r in stated]


def computes() -> tuple[list[Figure], Counter[str]]:
    """Return the compute buffers that can be derived, and the number of rows that cannot be, by reason."""
    found: list[Figure] = []
    reasons: Counter[str] = Counter()
    for row in published_rows():
        if not row.record["compute"]:
            reasons["no figure"] += 1
            continue
        try:
            both = [row.memory(op_offload=offload).devices for offload in (True, False)]
        except NotDerivable as reason:
            reasons[str(reason)] += 1
            continue
        for name, mib in row.record["compute"].items():
            index = int(name[4:]) if name[4:].isdigit() else -1
            predicted, without = (devices[index].compute / MIB for devices in both)
            if mib:
                found.append(Figure(row, "host" if index < 0 else "GPU", predicted, mib, without))
    return found, reasons


def cache_cause(figure: Figure) -> str:
    """Return why a cache differs."""
    return CACHE_CAUSES.get(figure.row.id, NOT_EXPLAINED)


def compute_cause(figure: Figure) -> str:
    """Return why a compute buffer differs."""
    row, model, flags = figure.row, figure.row.model(), figure.row.flags()
    if "flash_attn" not in row.settings:
        return "the post does not state flash attention"
    if row.id in COMPUTE_CAUSES:
        return COMPUTE_CAUSES[row.id]
    if model.mla is not None and not engine_spec(row.engine).memory.latent_mode(model, flags, row.build.rules.memory):
        return "K and V of every head in a model with latent attention: approximate, no description of that graph"
    if model.mla is not None and flags.flash_attn == "on" and row.record["date"] < _FIRST_FLASH_MLA:
        return "flash attention on a latent cache before pull 253: not described"
    if abs(figure.without_copies / figure.measured - 1) <= COMPUTE_TARGET:
        return "the figure is the one without copies of weights from RAM"
    return NOT_EXPLAINED


def table(label: str, figures: Iterable[Figure], target: float) -> None:
    """Print the errors by month of the build."""
    months: dict[str, list[float]] = defaultdict(list)
    for figure in figures:
        for month in ("all", figure.row.month):
            months[month].append(abs(figure.error))
    print(f"\n{label:<24}{'n':>5}{'within':>9}{'median':>9}{'max':>9}   (target: {target:.0%})")
    for month in sorted(months):
        errors = months[month]
        within = sum(error <= target for error in errors) / len(errors)
        print(f"  {month:<22}{len(errors):>5}{within:>9.1%}{statistics.median(errors):>9.2%}{max(errors):>9.1%}")


def outside(figures: list[Figure], target: float, causes: list[str], show: int) -> None:
    """Print the causes of the figures outside `target`, counted, and the figures of each."""
    by_cause: dict[str, list[Figure]] = defaultdict(list)
    for figure, cause in zip(figures, causes, strict=True):
        if abs(figure.error) > target:
            by_cause[cause].append(figure)
    for cause, found in sorted(by_cause.items(), key=lambda item: -len(item[1])):
        print(f"  {len(found):>3} outside: {cause}")
        for f in found[:show]:
            print(f"        {f.row.id} {f.device}: {f.predicted:.1f}, posted {f.measured:.1f} ({f.row.record['date']})")


def show_published(show: int) -> bool:
    """Print all tables, and `show` figures for each cause; return whether every cache that differs has a cause."""
    figures = caches()
    causes = [cache_cause(f) for f in figures]
    table("KV cache, all devices", figures, CACHE_TARGET)
    outside(figures, CACHE_TARGET, causes, show)
    derived, reasons = computes()
    for device in ("GPU", "host"):
        found = [f for f in derived if f.device == device]
        table(f"compute, {device}", found, COMPUTE_TARGET)
        outside(found, COMPUTE_TARGET, [compute_cause(f) for f in found], show)
    print(f"\nno compute buffer derived: {', '.join(f'{n} rows, {reason}' for reason, n in reasons.most_common())}")
    return all(abs(f.error) <= CACHE_TARGET or c != NOT_EXPLAINED for f, c in zip(figures, causes, strict=True))


def main() -> int:
    """Print the tables; non-zero if a cache differs without a known cause."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--show", type=int, default=99, help="figures listed for each cause")
    return 0 if show_published(parser.parse_args().show) else 1


if __name__ == "__main__":
    sys.exit(main())
