"""Results as a table with one line per measured row, for CSV and Parquet.

A text cell that a spreadsheet could take for a formula begins with an apostrophe; text has no control characters.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Iterator
from typing import TypeAlias

from service.wire.plain_text import clean
from service.wire.results.results import Result

Cell: TypeAlias = str | int | float | bool | None
_FORMULA = (*"=+-@\t\r", *"\uff1d\uff0b\uff0d\uff20")  # full-width forms too, which some spreadsheets accept
_MOST_TEXT = 8_000

_KINDS: tuple[tuple[type[str] | type[int] | type[float], str], ...] = (
    (str, "id origin state tier model model_slug variant arch"),
    (int, "n_params n_active"),
    (float, "bpw"),
    (str, "repo revision engine build rig rig_slug"),
    (int, "vram_mib"),
    (str, "cpu"),
    (int, "ram_gib n_kv n_prompt n_gen"),
    (float, "pp_tps tg_tps"),
    (int, "repeats"),
    (str, "failure command contributor host published_by published_url licence measured_at created_at"),
)
COLUMNS = {name: kind for kind, names in _KINDS for name in names.split()}
"""Name and type of each column, in order; any cell may be empty."""


def table_rows(results: Iterable[Result]) -> Iterator[dict[str, Cell]]:
    """Yield a row of COLUMNS for each measured row; for a failure, one without speeds."""
    for result in results:
        shared = _shared(result)
        for row in result.rows:
            measured: dict[str, Cell] = {
                "n_kv": row.n_kv,
                "n_prompt": row.n_prompt,
                "n_gen": row.n_gen,
                "pp_tps": round(statistics.median(row.pp_tps), 3) if row.pp_seconds else None,
                "tg_tps": round(statistics.median(row.tg_tps), 3) if row.tg_seconds else None,
                "repeats": max(len(row.pp_seconds), len(row.tg_seconds)),
            }
            yield {name: _cell((shared | measured).get(name)) for name in COLUMNS}
        if not result.rows:
            yield {name: _cell(shared.get(name)) for name in COLUMNS}


def _shared(result: Result) -> dict[str, Cell]:
    same = ("id", "origin", "state", "tier", "engine", "build", "command", "contributor", "host", "licence")
    of_model = ("variant", "arch", "n_params", "n_active", "bpw", "repo", "revision")
    found: dict[str, Cell] = {name: getattr(result, name) for name in (*same, "measured_at", "created_at")}
    found |= {name: getattr(result.model, name) for name in of_model}
    found |= {name: getattr(result.rig, name) for name in ("vram_mib", "cpu", "ram_gib")}
    return found | {
        "model": result.model.name,
        "model_slug": result.model.slug,
        "rig": result.rig.name,
        "rig_slug": result.rig.slug,
        "failure": result.failure.kind if result.failure else None,
        "published_by": result.published.by if result.published else None,
        "published_url": result.published.url if result.published else None,
    }


def _cell(value: Cell) -> Cell:
    return as_text(value) if isinstance(value, str) else value


def as_text(value: str) -> str:
    """Return text as a cell: on one line, printable, cut to length, and never a formula."""
    formula = value.startswith(_FORMULA)
    plain = " ".join(clean(value).split())[:_MOST_TEXT]
    return f"'{plain}" if formula or plain.startswith(_FORMULA) else plain


def csv_head() -> str:
    """Return the first line of a CSV file of results."""
    return _line(COLUMNS)


def csv_lines(results: Iterable[Result]) -> Iterator[str]:
    """Yield the lines of results in CSV (RFC 4180)."""
    for row in table_rows(results):
        yield _line("" if cell is None else cell for cell in row.values())


def _line(cells: Iterable[Cell]) -> str:
    written = io.StringIO()
    csv.writer(written).writerow(list(cells))
    return written.getvalue()
