"""llama-bench's CSV and SQL: each row as the fields that its JSON would have, but for the time of each repeat."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from service.engine.errors import InvalidInput
from service.engine.submission.lines import Line

_HEAD = re.compile(r"(?:\w+,){8,80}avg_ts,stddev_ts")
_INSERT = re.compile(r"INSERT INTO \w{1,40} \((?P<names>[\w, ]{20,2000})\) VALUES \((?P<values>.{20,8000})\);?")
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \w{1,40} \(|  \w{1,40} (?:TEXT|INTEGER|REAL),?|\);")
_COUNTS = ("n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns")
_RATES = ("avg_ts", "stddev_ts")


class Row(NamedTuple):
    """One test: the number of its line, and its fields by name."""

    line: int
    fields: dict[str, Any]


def read_delimited(lines: Sequence[Line]) -> tuple[list[Row], set[int]]:
    """Return the tests that CSV or SQL of llama-bench hold, and the numbers of all its lines.

    Raises InvalidInput (field `text`) for a row that has not the fields of its head, or whose time and rate disagree.
    """
    rows: list[Row] = []
    used: set[int] = set()
    names: list[str] = []
    for line in lines:
        text = line.text.strip()
        if _HEAD.fullmatch(text):
            names = text.split(",")
        elif match := _INSERT.fullmatch(text):
            values = [value.replace("''", "'") for value in _QUOTED.findall(match["values"])]
            rows.append(_row(line, match["names"].split(", "), values))
        elif names and text.startswith('"'):
            rows.append(_row(line, names, next(csv.reader([text]))))
        elif not (rows or names or _TABLE.match(line.text)) or not _TABLE.fullmatch(line.text.rstrip()):
            continue
        used.add(line.number)
    return (rows, used) if rows else ([], set())


def _row(line: Line, names: Sequence[str], values: Sequence[str]) -> Row:
    if len(names) != len(values):
        raise _wrong(line, f"{len(values)} values for {len(names)} columns")
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    try:
        fields |= {name: int(fields[name]) for name in _COUNTS if name in fields}
        fields |= {name: float(fields[name]) for name in _RATES}
        _require_one_measurement(fields)
    except (KeyError, ValueError) as error:
        raise _wrong(line, f"no whole row of llama-bench ({error})") from error
    return Row(line.number, fields)


def _require_one_measurement(fields: dict[str, Any]) -> None:
    """The mean of rates is at least the rate of the mean time, and the same where no repeat was off."""
    tokens, rate = fields["n_prompt"] + fields["n_gen"], fields["avg_ts"]
    least = 1e9 * tokens / fields["avg_ns"] if fields["avg_ns"] > 0 else 0.0
    if not 0 < least <= rate * (1 + 1e-6) or (not fields["stddev_ns"] and rate > least * (1 + 1e-6)):
        raise ValueError("avg_ns and avg_ts are not of one measurement")


def _wrong(line: Line, why: str) -> InvalidInput:
    return InvalidInput(f"line {line.number}: {why}", field="text")
