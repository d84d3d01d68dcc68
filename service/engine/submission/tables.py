"""From mangled lines to the tables of benchmark programs. Every row is proved, or refused with its line.

A row of llama-sweep-bench proves itself: tokens / seconds is the speed printed, in both phases, with as many decimals
as the program prints, and N_KV is a multiple of PP (it grows by a micro-batch: ik_llama.cpp 8337e4cd3
examples/sweep-bench/sweep-bench.cpp:226-289). A row of llama-bench has the columns of its head, its test, and a speed
with two decimals (examples/llama-bench/llama-bench.cpp:2022). A line is joined with those after it only if it is no row
by itself and the joined one is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from service.engine.logs.bench_rows import PLUS_MINUS, PrintedRow, RowReader
from service.engine.logs.requests import Program
from service.engine.submission.lines import Line, wrong_line

Tool: TypeAlias = Literal["llama-sweep-bench", "llama-batched-bench", "llama-bench"] | Program

_MOST_JOINED = 6
_MAX_LINE = 16_000  # three rules of -ot for each of 94 layers
_MAY_BE_HEAD = re.compile("PP|model|test")
_FIRST = ("PP", "model")
_SWEEP = ("PP", "TG", "N_KV", "T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s")
_TABLES: tuple[tuple[Tool, tuple[str, ...]], ...] = (
    ("llama-sweep-bench", _SWEEP),
    ("llama-sweep-bench", (*_SWEEP, "RSS HWM", "VRAM delta")),
    ("llama-batched-bench", ("PP", "TG", "B", *_SWEEP[2:], "T s", "S t/s")),
)
_HEADS = {re.sub(r"\s", "", "".join(columns)): (tool, columns) for tool, columns in _TABLES}
_DECIMALS = {"T_PP s": 3, "S_PP t/s": 2, "T_TG s": 3, "S_TG t/s": 2, "T s": 3, "S t/s": 2}
_FREE = ("RSS HWM", "VRAM delta")
_COUNT = re.compile(r"\d{1,9}|\d{1,3}(?:[.,'\u2019]\d{3}){1,2}")
_FIGURE = re.compile(r"(\d{1,9})[.,](\d{1,6})")
_NUMERIC = re.compile(r"\d(?:[\d.,'\u2019]{0,22}\d)?|n/a|±|\+/-")
_RULE = re.compile(r"^[ \t|:+=\\\u2500-\u257f-]*$")
_BENCH_HEAD = re.compile(r"\|(?P<columns>[^|]+(?:\|[^|]+){1,40})\|test\|t/s\|?")
_ESCAPED = re.compile(r"\\([|_*])")
_TEST = re.compile(r"(?:(?:pp|tg) ?\d{1,9}|pp\d{1,9}\+tg\d{1,9}|tg\d{1,9}@pp\d{1,9})(?: ?@ ?d\d{1,9})?")
_SPEED = re.compile(rf"(\d{{1,9}})[.,](\d\d)(?: ?{PLUS_MINUS} ?\d{{1,9}}[.,]\d\d)?")
_DEVIATION = re.compile(rf"^[|\s]*{PLUS_MINUS}\s*\d{{1,9}}[.,]\d\d[|\s]*$")
BOTH_PHASES = "the time of both phases together, which is not a speed of either"


class Printed(NamedTuple):
    """What one program printed, as a table or as JSON.

    `stated` holds the cells or values that all its rows share, by name. `left_out` has a sentence for each test whose
    time is not of one phase of one request. `used` are the numbers of its lines, of which `line` is the first.
    """

    tool: Tool
    rows: list[PrintedRow]
    stated: dict[str, str]
    left_out: list[str]
    used: set[int]
    line: int


class _Head(NamedTuple):
    tool: Tool
    columns: tuple[str, ...]
    n_lines: int


def read_table(lines: Sequence[Line]) -> Printed | None:
    """Return the table of a paste, None if there is none.

    Raises InvalidInput (field `text`), which names the line, for a row that is not proved or has no head above it, for
    a second table, and for rows of another configuration.
    """
    table: _TableReader | None = None
    at = 0
    while at < len(lines):
        head = _head(lines, at)
        if head and table:
            raise wrong_line(lines[at].number, "a second table begins here: send each run separately")
        if head:
            table = _TableReader(head, lines[at].number)
            table.take(lines[at : at + head.n_lines])
            at += head.n_lines
        elif table is None:
            _refuse_headless(lines[at])
            at += 1
        else:
            at += table.read(lines, at)
    return table.result() if table else None


def _head(lines: Sequence[Line], at: int) -> _Head | None:
    """Return the table head that begins in a line, None if none does.

    Only a head that begins with its table's first column may go on in the next lines.
    """
    if not _MAY_BE_HEAD.search(lines[at].text):
        return None
    joined = ""
    for n_lines, line in enumerate(lines[at : at + _MOST_JOINED], 1):
        joined += line.text
        squeezed = _squeezed(joined)
        if not line.text.strip() or len(joined) > _MAX_LINE or not (n_lines == 1 or squeezed.startswith(_FIRST)):
            return None
        if squeezed in _HEADS:
            behind = _squeezed(lines[at + n_lines].text) if at + n_lines < len(lines) else ""
            if not behind or squeezed + behind not in _HEADS:
                return _Head(*_HEADS[squeezed], n_lines)
        elif columns := _bench_columns(joined):
            return _Head("llama-bench", columns, n_lines)
    return None


def _squeezed(text: str) -> str:
    return re.sub(r"[\s|*\\]", "", text)


def _bench_columns(text: str) -> tuple[str, ...] | None:
    bars = text.replace("\t", "|") if "|" not in text else text
    squeezed = re.sub(r"[\s*\\]", "", bars)
    match = _BENCH_HEAD.fullmatch(squeezed if squeezed.startswith("|") else "|" + squeezed)
    return (*match["columns"].split("|"), "test", "t/s") if match else None


class _TableReader:
    """Reads the rows after a head."""

    def __init__(self, head: _Head, line: int) -> None:
        self._head, self._line = head, line
        self._rows: list[PrintedRow] = []
        self._stated: dict[str, str] | None = None
        self._left_out: list[str] = []
        self._used: set[int] = set()
        self._in_table = True  # the line before was of this table
        self._other = ""  # what a row has that the first has not
        self._last_depth = -1
        self._first: list[str] = []  # the first row's cells
        self._reader = RowReader()
        if head.tool != "llama-bench":
            self._reader.read("|" + "|".join(head.columns) + "|")

    def take(self, lines: Sequence[Line]) -> None:
        self._used |= {line.number for line in lines}

    def result(self) -> Printed:
        return Printed(self._head.tool, self._rows, self._stated or {}, self._left_out, self._used, self._line)

    def read(self, lines: Sequence[Line], at: int) -> int:
        """Read the row that begins at a line, if one does, and return how many lines were read."""
        text = lines[at].text
        if not text.strip() or _RULE.match(text):
            return 1
        if not self._row_like(text):
            self._in_table = False
            return 1
        read = self._sweep if self._head.tool != "llama-bench" else self._bench
        joined = [""]
        for n_lines, line in enumerate(lines[at : at + _MOST_JOINED], 1):
            if n_lines > 1 and (not line.text.strip() or _RULE.match(line.text)):
                break
            joined = [
                each + gap + line.text.strip() for each in joined for gap in (("",) if n_lines == 1 else ("", " "))
            ]
            if n_lines == 1 and not self._aligned(line.text):
                break
            if any(map(read, dict.fromkeys(joined))):
                n_lines += self._trailing(lines, at + n_lines)
                self.take(lines[at : at + n_lines])
                self._in_table = True
                return n_lines
        raise wrong_line(lines[at].number, self._why())

    def _aligned(self, text: str) -> bool:
        """Return whether a row has the widths of the first one, as all rows of a sweep have when they are printed.

        Only a figure that fills its cell makes it wider.
        """
        cells = text.strip().split("|")[1:-1]
        if self._head.tool == "llama-bench" or len(cells) != len(self._head.columns):
            return True
        if not self._first and text.strip().startswith("|  "):
            self._first = cells
        for cell, first in zip(cells, self._first, strict=False):
            longer = max(cell, first, key=len)
            if not cell.endswith(" ") or (len(cell) != len(first) and longer != f" {longer.strip()} "):
                return False
        return True

    def _row_like(self, text: str) -> bool:
        if len(text) > _MAX_LINE:
            return False
        if self._head.tool == "llama-bench" and "|" in text:
            # A column of -ot has the equals signs of its rules; other lines with them are a log's.
            cells = _cells(text) if "=" in text else []
            return "=" not in text or text.lstrip().startswith("|") or any(map(_TEST.fullmatch, cells[-2:-1]))
        if "=" in text:
            return False
        tokens = _tokens(text)
        numeric = sum(1 for token in tokens if _NUMERIC.fullmatch(token))
        if "|" in text:
            return numeric >= max(2, len(tokens) // 2) or (self._in_table and numeric > 0)
        if self._head.tool == "llama-bench":
            return text.count("\t") >= 2 or (self._in_table and numeric == len(tokens))
        return numeric >= (1 if self._in_table and numeric == len(tokens) else 4) and 2 * numeric > len(tokens)

    def _why(self) -> str:
        if self._other:
            return f"a row of another configuration ({self._other}): send each run separately"
        if self._head.tool == "llama-bench":
            columns = len(self._head.columns)
            return f"no complete row of llama-bench: {columns} columns, the test, and a speed such as 163.57 ± 0.40"
        return f"no complete row of {self._head.tool}: tokens / seconds must be the speed printed, in both phases"

    # -- llama-sweep-bench, llama-batched-bench

    def _sweep(self, text: str) -> bool:
        cells = _tokens(text)
        columns = self._head.columns
        if len(cells) != len(columns):
            return False
        plain = [_cell(name, cell) for name, cell in zip(columns, cells, strict=True)]
        if None in plain:
            return False
        stated = dict(zip(columns, (cell or "" for cell in plain), strict=True))
        if stated.get("B", "1") != "1":
            return self._together(stated)
        found = self._reader.read("|" + "|".join(stated.values()) + "|")
        if not found or not self._in_order(stated):
            return False
        self._rows += found
        return True

    def _together(self, row: dict[str, str]) -> bool:
        """Leave out a row of several sequences at a time, if it is one: their tokens count together.

        With `-pps` the prompt is one for all, and so is its place in the cache with `-kvu` (llama.cpp
        tools/batched-bench/batched-bench.cpp).
        """
        n, n_prompt, n_gen = int(row["B"]), int(row["PP"]), int(row["TG"])
        if int(row["N_KV"]) not in (n * (n_prompt + n_gen), n_prompt + n * n_gen):
            return False
        for prompts in (n * n_prompt, n_prompt):
            one = row | {"PP": str(prompts), "TG": str(n * n_gen), "B": "1"}
            if self._reader.read("|" + "|".join(one.values()) + "|"):
                what = f"the speed of {n} sequences together, not of one"
                self._left_out.append(f"PP {n_prompt}, TG {n_gen}, B {n}: {what}")
                return True
        return False

    def _in_order(self, row: dict[str, str]) -> bool:
        n_prompt, n_gen, depth = int(row["PP"]), int(row["TG"]), int(row["N_KV"])
        if self._head.tool == "llama-batched-bench":
            return depth == n_prompt + n_gen
        if depth % n_prompt or depth <= self._last_depth:
            return False
        self._last_depth = depth
        return True

    # -- llama-bench

    def _trailing(self, lines: Sequence[Line], at: int) -> int:
        """Return 1 if a line is a deviation that was wrapped off the end of a row, else 0."""
        bench = self._head.tool == "llama-bench" and at < len(lines)
        return 1 if bench and _DEVIATION.match(lines[at].text) else 0

    def _bench(self, text: str) -> bool:
        cells = _cells(text)
        columns = self._head.columns
        if "ot" in columns and len(cells) > len(columns):  # it has the bars of its regular expressions
            at, surplus = columns.index("ot"), len(cells) - len(columns)
            cells[at : at + surplus + 1] = ["|".join(cells[at : at + surplus + 1])]
        if len(cells) != len(columns):
            return False
        test, speed = re.sub(r"\s+", " ", cells[-2]), _SPEED.fullmatch(cells[-1].replace("*", ""))
        if not _TEST.fullmatch(test) or speed is None:
            return False
        stated = dict(zip(columns[:-2], cells[:-2], strict=True))
        found = self._reader.read(f"| | | {test} | {speed[1]}.{speed[2]} |")
        if not self._same(stated):
            return False
        self._rows += found
        if not found:
            self._left_out.append(f"{test}: {BOTH_PHASES}")
        return True

    def _same(self, stated: dict[str, str]) -> bool:
        """Return whether a row has the settings of the rows before it, as all rows of one run have."""
        squeezed = {name: re.sub(r"\s+", "", cell) for name, cell in stated.items()}
        if self._stated is None:
            self._stated = squeezed
        self._other = next((f"other {name}" for name, cell in squeezed.items() if cell != self._stated[name]), "")
        return not self._other


def _cell(name: str, text: str) -> str | None:
    """Return a cell as the program wrote it, None if it cannot be of this column."""
    text = text.strip("*`")
    if name in _FREE:
        return text if _NUMERIC.fullmatch(text) else None
    if name not in _DECIMALS:
        return re.sub(r"\D", "", text) if _COUNT.fullmatch(text) else None
    match = _FIGURE.fullmatch(text)
    return f"{match[1]}.{match[2]}" if match and len(match[2]) == _DECIMALS[name] else None


def _tokens(text: str) -> list[str]:
    return text.replace("|", " ").replace("\\", "").split()


def _cells(text: str) -> list[str]:
    bars = text.replace("\t", "|") if "|" not in text else _ESCAPED.sub(r"\1", text)
    return [cell.strip() for cell in bars.strip().removeprefix("|").removesuffix("|").split("|")]


def _refuse_headless(line: Line) -> None:
    tokens = _tokens(line.text) if len(line.text) <= _MAX_LINE else []
    sweep = any(len(columns) == len(tokens) and all(map(_cell, columns, tokens)) for _, columns in _TABLES)
    cells = _cells(line.text) if tokens and "|" in line.text else []
    bench = len(cells) >= 3 and _SPEED.fullmatch(cells[-1].replace("*", "")) and _TEST.fullmatch(cells[-2])
    if sweep or bench:
        raise wrong_line(line.number, "a row without the header of its table: paste the line with the column names too")
