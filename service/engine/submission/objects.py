"""From mangled lines to the JSON, CSV or SQL that benchmark programs print: whole objects, or none."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from service.engine.logs.bench_rows import PrintedRow, RowReader
from service.engine.submission.lines import Line, wrong_line
from service.engine.submission.tables import BOTH_PHASES, Printed, Tool

_HEAD = re.compile(r"(?:\w+,){8,80}avg_ts,stddev_ts")
_INSERT = re.compile(r"INSERT INTO \w{1,40} \((?P<names>[\w, ]{20,2000})\) VALUES \((?P<values>.{20,8000})\);?")
_QUOTED = re.compile(r"'((?:[^']|'')*)'")
_TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS \w{1,40} \(|  \w{1,40} (?:TEXT|INTEGER|REAL),?|\);")
_COUNTS = ("n_prompt", "n_gen", "n_depth", "avg_ns", "stddev_ns")
_RATES = ("avg_ts", "stddev_ts")


def read_delimited(lines: Sequence[Line]) -> tuple[dict[int, dict[str, Any]], set[int]]:
    """Return the tests in llama-bench's CSV or SQL by their lines, and the numbers of all lines that belong to it.

    Raises InvalidInput (field `text`) for a row that lacks fields of its head, or whose time and rate disagree.
    """
    rows: dict[int, dict[str, Any]] = {}
    used: set[int] = set()
    names: list[str] = []
    for line in lines:
        text = line.text.strip()
        if _HEAD.fullmatch(text):
            names = text.split(",")
        elif match := _INSERT.fullmatch(text):
            values = [value.replace("''", "'") for value in _QUOTED.findall(match["values"])]
            rows[line.number] = _row(line, match["names"].split(", "), values)
        elif names and text.startswith('"'):
            rows[line.number] = _row(line, names, next(csv.reader([text])))
        elif not (rows or names or _TABLE.match(line.text)) or not _TABLE.fullmatch(line.text.rstrip()):
            continue
        used.add(line.number)
    return (rows, used) if rows else ({}, set())


def _row(line: Line, names: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    if len(names) != len(values):
        raise wrong_line(line.number, f"{len(values)} values for {len(names)} columns")
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    try:
        fields |= {name: int(fields[name]) for name in _COUNTS if name in fields}
        fields |= {name: float(fields[name]) for name in _RATES}
        _require_one_measurement(fields)
    except (KeyError, ValueError) as error:
        raise wrong_line(line.number, f"no complete row of llama-bench ({error})") from error
    return fields


def _require_one_measurement(fields: dict[str, Any]) -> None:
    """Raise ValueError if times and rates cannot be of one measurement.

    The mean of the rates is at least the rate of the mean time, and it is the same if all repeats took the same time.
    """
    tokens, rate = fields["n_prompt"] + fields["n_gen"], fields["avg_ts"]
    least = 1e9 * tokens / fields["avg_ns"] if fields["avg_ns"] > 0 else 0.0
    if not 0 < least <= rate * (1 + 1e-6) or (not fields["stddev_ns"] and rate > least * (1 + 1e-6)):
        raise ValueError("avg_ns and avg_ts are not from one measurement")


_BEGINS = re.compile(r"^\s*(?:\[\s*(?:\{|$)|\{)")
_MARK = re.compile(r'"(?:\\.|[^"\\])*"|[\[{]+|[\]}]+')
_DEEPER = {"{": 1, "[": 1, "}": -1, "]": -1}
_SPEEDS = ('"speed_pp"', '"speed_tg"', '"avg_ts"', '"samples_ns"')
_CURLY = str.maketrans("\u201c\u201d\u201e\u201f", '""""')
_MEASURED = re.compile(
    r"n_prompt|n_gen|n_depth|test|test_time|(?:avg|stddev|samples)_\w{1,9}"
    r"|pp|tg|n_kv|[ts]_[pt][pg]|speed_[pt][pg]|rss_hwm_mib|vram_delta_mib"
)
_MOST_OBJECTS = 2_000


class _Piece(NamedTuple):
    line: int
    n_lines: int
    text: str


def read_objects(lines: Sequence[Line]) -> Printed | None:
    """Return what benchmark programs printed as JSON, CSV or SQL, None if there is none.

    Raises InvalidInput (field `text`), which names the line where an object begins, if the object is not whole, if its
    times and speeds disagree, or if it is of another configuration than the one before.
    """
    found: Printed | None = None
    depth = -1
    for piece in _pieces(lines):
        for one in _decoded(piece):
            tool: Tool = "llama-sweep-bench" if "speed_pp" in one else "llama-bench"
            stated = _settings(one)
            found = _same_run(found, tool, stated, piece.line)
            rows = _proved(one, piece.line)
            if tool == "llama-sweep-bench" and not depth < (depth := rows[0].n_kv):
                raise wrong_line(
                    piece.line, "a second run begins here, or rows are out of order: send each run separately"
                )
            found.rows.extend(rows)
            if not rows:
                found.left_out.append(f"pp{one['n_prompt']}+tg{one['n_gen']}: {BOTH_PHASES}")
        if found is not None:
            found.used.update(range(piece.line, piece.line + piece.n_lines))
    used = found.used if found else ()
    for line in lines:
        if line.number not in used and any(mark in line.text for mark in _SPEEDS):
            raise wrong_line(line.number, "this is a part of JSON, without its beginning")
    return _delimited(lines, found)


def _delimited(lines: Sequence[Line], found: Printed | None) -> Printed | None:
    """Return `found` with what llama-bench printed as CSV or SQL added."""
    rows, used = read_delimited(lines)
    for line, fields in rows.items():
        found = _same_run(found, "llama-bench", _settings(fields), line)
        printed = RowReader().read(msgspec.json.encode(fields).decode())
        found.rows.extend(printed)
        if not printed:
            found.left_out.append(f"pp{fields['n_prompt']}+tg{fields['n_gen']}: {BOTH_PHASES}")
    if found is not None:
        found.used.update(used)
    return found


def _settings(one: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in one.items() if not _MEASURED.fullmatch(name)}


def _same_run(found: Printed | None, tool: Tool, stated: dict[str, str], line: int) -> Printed:
    if found is None:
        found = Printed(tool, [], stated, [], set(), line)
    if found.tool != tool or found.stated != stated:
        raise wrong_line(line, "another program, model or configuration than before: send each run separately")
    return found


def _proved(one: dict[str, Any], line: int) -> list[PrintedRow]:
    """Return the rows of an object; none for a test that times both phases together.

    Raises InvalidInput if its times, speeds and depth are not those of one measurement; both engines print all of them.
    """
    rows = RowReader().read(msgspec.json.encode(one).decode())
    if not rows and one.get("n_prompt") and one.get("n_gen"):
        return []
    if not rows or not all(row.pp_seconds or row.tg_seconds for row in rows):
        raise wrong_line(line, "its times and its speeds do not agree, or are none")
    if "speed_pp" in one and (rows[0].n_kv % rows[0].n_prompt or rows[0].n_kv >= one.get("n_kv_max", rows[0].n_kv + 1)):
        raise wrong_line(line, "its n_kv is not a multiple of pp below n_kv_max")
    return rows


def _decoded(piece: _Piece) -> list[dict[str, Any]]:
    if not any(mark in piece.text for mark in _SPEEDS):
        return []
    try:
        value = msgspec.json.decode(piece.text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise wrong_line(piece.line, f"the JSON that begins here is incomplete: {error}") from error
    objects = value if isinstance(value, list) else [value]
    if len(objects) > _MOST_OBJECTS or not all(
        isinstance(one, dict) and ("speed_pp" in one or "avg_ts" in one) for one in objects
    ):
        raise wrong_line(piece.line, "the JSON that begins here is not what llama-bench or llama-sweep-bench writes")
    return objects


def _pieces(lines: Sequence[Line]) -> Iterator[_Piece]:
    """Yield each JSON value without its line ends: where it was broken over two lines, they are joined with no gap."""
    at = 0
    while at < len(lines):
        if not _BEGINS.match(lines[at].text):
            at += 1
            continue
        piece = _piece(lines, at)
        yield piece
        at += piece.n_lines


def _piece(lines: Sequence[Line], at: int) -> _Piece:
    """Return the value that begins in a line; if it does not end, everything to the end of the paste."""
    joined, depth, seen = "", 0, 0
    for n_lines, line in enumerate(lines[at:], 1):
        joined += line.text.strip().translate(_CURLY)
        for mark in _MARK.finditer(joined, seen):
            seen = mark.end()
            depth += _DEEPER.get(mark[0][0], 0) * len(mark[0])
            if depth <= 0:
                return _Piece(lines[at].number, n_lines, joined)
    return _Piece(lines[at].number, len(lines) - at, joined)
