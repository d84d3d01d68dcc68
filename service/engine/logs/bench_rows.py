"""Rows that the benchmark programs of both engines print: one reader for each format, fed line by line.

- llama-sweep-bench: a table, or one JSON object a line (ik_llama.cpp 8337e4cd3
  examples/sweep-bench/sweep-bench.cpp:504-537).
- llama-batched-bench: the same table with a column B; only B = 1 is read. Its N_KV is what the cache holds at the end.
- llama-bench: a Markdown table, a JSON array, or one JSON object a line (llama.cpp 0c1e57098
  tools/llama-bench/llama-bench.cpp:1800-1848, 2060-2117; ik_llama.cpp examples/llama-bench/llama-bench.cpp:1400-1437).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, NamedTuple, TypeVar

import msgspec

MAX_JSON = 1 << 20
MAX_REPEATS = 64
MAX_TPS = 1_000_000.0
MAX_SECONDS = 86_400.0
MAX_TOKENS = 100_000_000
_MAX_TABLE_LINE = 4_000
_MAX_OBJECT_LINES = 256
_SWEEP_HEAD = re.compile(r"\|\s*PP\s*\|\s*TG\s*\|(?:\s*B\s*\|)?\s*N_KV\s*\|")
_COUNT = re.compile(r"[0-9]{1,9}")
_NUMBER = re.compile(r"[0-9]{1,9}(?:\.([0-9]{1,9}))?")
# Before a deviation: `±`, or what a console of another code page shows for its two bytes (┬▒, Â±, 卤, ?).
PLUS_MINUS = r"(?:±|\+/?-|[^\x00-\x7f\s]{1,3}|\?{1,2})"
# In early 2024 a blank follows pp and tg (llama.cpp's pull requests 4766, 4812).
_BENCH_TEST = re.compile(r"(pp|tg) ?([0-9]{1,9})(?:\s*@\s*(?:d|pp)([0-9]{1,9}))?")
_BENCH_SPEED = re.compile(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)\s*(?:{PLUS_MINUS}\s*[0-9]{{1,9}}(?:\.[0-9]{{1,9}})?)?")
_AFTER_PROMPT = re.compile(r"tg[0-9]{1,9}@pp[0-9]{1,9}")


class PrintedRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row as a benchmark program printed it, whose times and speeds were found to agree.

    `n_kv` is how many tokens were in the cache when measuring began. `pp_seconds` and `tg_seconds` hold the time of
    each repeat, if the program prints it; `pp_tps` and `tg_tps` are the tokens per second that it printed.
    """

    n_kv: int
    n_prompt: int = 0
    n_gen: int = 0
    pp_seconds: tuple[float, ...] = ()
    tg_seconds: tuple[float, ...] = ()
    pp_tps: float | None = None
    tg_tps: float | None = None


class RowReader:
    """Reads rows from lines of one output, in any of the formats. It never raises: an unsound row is left out."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._object: list[str] | None = None

    @property
    def in_object(self) -> bool:
        """Return whether the lines read so far end within an object of a JSON array."""
        return self._object is not None

    def read(self, line: str) -> list[PrintedRow]:
        """Return the rows that this line completes, for most lines none or one."""
        text = line.strip()
        if text == "{":
            self._object = []
        elif self._object is not None and text.startswith('"'):
            self._object = _with(self._object, text)
        elif self._object is not None and text.startswith("}"):
            text, self._object = "{" + "".join(self._object) + "}", None
            return list(_json_rows(text))
        elif text.startswith(("{", "[{")):
            return list(_json_rows(text))
        elif "|" in text and len(text) <= _MAX_TABLE_LINE:
            return list(self._table_rows(text))
        return []

    def _table_rows(self, text: str) -> Iterator[PrintedRow]:
        cells = [cell.strip() for cell in text.partition("|")[2].removesuffix("|").split("|")]
        if _SWEEP_HEAD.search(text):
            self._head = cells
        elif self._head and len(cells) == len(self._head) and _COUNT.fullmatch(cells[0]):
            yield from _sweep_rows(dict(zip(self._head, cells, strict=True)))
        elif len(cells) >= 4:
            # Its last columns are the test and `mean ± deviation`, without times.
            asked, printed = _BENCH_TEST.fullmatch(cells[-2]), _BENCH_SPEED.fullmatch(cells[-1])
            if asked and printed:
                tps = float(printed[1])
                yield from _one_phase(asked[1], int(asked[2]), int(asked[3] or 0), (), tps)


def _with(lines: list[str], text: str) -> list[str] | None:
    """Return an object's lines with one more; None if they are too many to be a test of llama-bench."""
    return [*lines, text] if len(lines) < _MAX_OBJECT_LINES and len(text) <= MAX_JSON else None


def _json_rows(text: str) -> Iterator[PrintedRow]:
    if len(text) > MAX_JSON:
        return
    if '"speed_pp"' in text:
        line = _decoded(text, _SweepLine)
        if line is not None:
            pp = _timed(line.pp, _Printed(line.t_pp, _SIXTH), _Printed(line.speed_pp, _SIXTH))
            tg = _timed(line.tg, _Printed(line.t_tg, _SIXTH), _Printed(line.speed_tg, _SIXTH))
            if pp is not None and tg is not None:
                yield _both(line.n_kv, line.pp, line.tg, pp, tg)
    elif '"avg_ts"' in text:
        tests = _decoded(text, list[_BenchTest]) if text.startswith("[") else [_decoded(text, _BenchTest)]
        for test in tests or ():
            if test is not None:
                yield from _bench_test(test)


def _sweep_rows(row: Mapping[str, str]) -> Iterator[PrintedRow]:
    """Yield what a row of a table measured.

    llama-sweep-bench first generates with N_KV tokens in the cache, then reads the prompt there, so one row holds both.
    llama-batched-bench (it has a column B) reads the prompt into an empty cache and generates after it, which are two
    rows.
    """
    counts = [row.get(name, "") for name in ("PP", "TG", "N_KV")]
    if row.get("B", "1") != "1" or not all(_COUNT.fullmatch(count) for count in counts):
        return
    n_prompt, n_gen, n_kv = map(int, counts)
    pp = _phase(n_prompt, row.get("T_PP s"), row.get("S_PP t/s"))
    tg = _phase(n_gen, row.get("T_TG s"), row.get("S_TG t/s"))
    if pp is None or tg is None or n_kv > MAX_TOKENS:
        return
    if "B" in row:
        yield PrintedRow(n_kv=0, n_prompt=n_prompt, pp_seconds=pp.seconds, pp_tps=pp.tps)
        yield PrintedRow(n_kv=n_prompt, n_gen=n_gen, tg_seconds=tg.seconds, tg_tps=tg.tps)
    else:
        yield _both(n_kv, n_prompt, n_gen, pp, tg)


class _SweepLine(msgspec.Struct):
    n_kv: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
    pp: int
    tg: int
    t_pp: float
    speed_pp: float
    t_tg: float
    speed_tg: float


class _Phase(NamedTuple):
    seconds: tuple[float, ...]
    tps: float


def _both(n_kv: int, n_prompt: int, n_gen: int, pp: _Phase, tg: _Phase) -> PrintedRow:
    return PrintedRow(
        n_kv=n_kv,
        n_prompt=n_prompt,
        n_gen=n_gen,
        pp_seconds=pp.seconds,
        tg_seconds=tg.seconds,
        pp_tps=pp.tps,
        tg_tps=tg.tps,
    )


class _Printed(NamedTuple):
    """A figure as printed, and half a unit of its last digit, by which rounding may have changed it."""

    value: float
    half: float


_SIXTH = 0.5e-6


def _printed(text: str | None) -> _Printed | None:
    match = _NUMBER.fullmatch(text) if text else None
    return _Printed(float(match[0]), 0.5 * 10.0 ** -len(match[1] or "")) if match else None


def _phase(n_tokens: int, seconds: str | None, tps: str | None) -> _Phase | None:
    """Return a phase of a table row, None if it is unsound; without a column of times it has no seconds."""
    speed = _printed(tps)
    if speed is None or not 0 < n_tokens <= MAX_TOKENS or not 0 < speed.value < MAX_TPS:
        return None
    if seconds is None:
        return _Phase((), speed.value)
    time = _printed(seconds)
    return _timed(n_tokens, time, speed) if time else None


def _timed(n_tokens: int, time: _Printed, speed: _Printed) -> _Phase | None:
    """Return the phase, None if time and speed cannot be of the same measurement or are beyond any machine's.

    The engine divides in 32 bits (sweep-bench.cpp:484-488), so a millionth is allowed besides the rounding of the
    print.
    """
    if not (0 < time.value <= MAX_SECONDS and 0 < speed.value < MAX_TPS and 0 < n_tokens <= MAX_TOKENS):
        return None
    slack = speed.half + 1e-6 * speed.value
    fastest = n_tokens / (time.value - time.half) if time.value > time.half else MAX_TPS
    if not n_tokens / (time.value + time.half) - slack <= speed.value <= fastest + slack:
        return None
    return _Phase((time.value,), speed.value) if n_tokens / time.value < MAX_TPS else None


class _BenchTest(msgspec.Struct):
    n_prompt: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
    n_gen: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
    avg_ts: float
    n_depth: Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)] | None = None
    samples_ns: list[Annotated[int, msgspec.Meta(gt=0, le=int(MAX_SECONDS * 1e9))]] = []
    test: str | None = None


def _bench_test(test: _BenchTest) -> Iterator[PrintedRow]:
    """Yield the row of a test. `-pg` times both phases together, which is a speed of neither; `-gp` only the output."""
    depth = test.n_depth or 0
    if test.n_prompt and test.n_gen:
        if not (test.test and _AFTER_PROMPT.fullmatch(test.test)):
            return
        kind, n_tokens, depth = "tg", test.n_gen, depth + test.n_prompt
    else:
        kind, n_tokens = ("pp", test.n_prompt) if test.n_prompt else ("tg", test.n_gen)
    speeds = [1e9 * n_tokens / ns for ns in test.samples_ns]
    if speeds and abs(sum(speeds) / len(speeds) - test.avg_ts) > 1e-6 + 1e-6 * abs(test.avg_ts):
        return
    seconds = tuple(ns / 1e9 for ns in test.samples_ns[:MAX_REPEATS])
    yield from _one_phase(kind, n_tokens, depth, seconds, test.avg_ts)


def _one_phase(kind: str, n_tokens: int, depth: int, seconds: tuple[float, ...], tps: float) -> Iterator[PrintedRow]:
    speeds = (tps, *(n_tokens / each for each in seconds))
    if not (0 < n_tokens <= MAX_TOKENS and depth <= MAX_TOKENS and all(0 < speed < MAX_TPS for speed in speeds)):
        return
    if kind == "pp":
        yield PrintedRow(n_kv=depth, n_prompt=n_tokens, pp_seconds=seconds, pp_tps=tps)
    else:
        yield PrintedRow(n_kv=depth, n_gen=n_tokens, tg_seconds=seconds, tg_tps=tps)


_Decoded = TypeVar("_Decoded")


def _decoded(text: str, kind: type[_Decoded]) -> _Decoded | None:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
