"""Rows while the program runs: any format, any chunks, hostile bytes."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine.measured.classify import classify
from service.engine.measured.reader import MAX_ROWS, Reader
from service.engine.measured.rows import MeasuredRow
from service.engine.measured.summary import memory_of
from tests.engine_replay import failures

DATA = Path(__file__).parents[2] / "data"
LOGS = ["ik-sweep-table.stderr", "ik-sweep-jsonl.stderr", "main-bench-json.stdout", "main-bench-md.stdout"]
TABLE_HEAD = b"|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n|-------|---|\n"
ROW = b"|   512 |     32 |    512 |    2.300 |   222.63 |    3.845 |     8.32 |\n"


def recorded(name: str) -> bytes:
    return (DATA / "engine_logs" / name).read_bytes()


def rows(*chunks: bytes) -> list[MeasuredRow]:
    reader = Reader()
    return [row for chunk in chunks for row in reader.feed(chunk)]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(i, len(data)) for i in at), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


# --- what the real programs printed -----------------------------------------------------------------------------------


def test_a_recorded_sweep_has_its_raw_times() -> None:
    table, jsonl = rows(recorded(LOGS[0])), rows(recorded(LOGS[1]))
    assert table[1] == MeasuredRow(n_kv=512, n_prompt=512, n_gen=32, pp_seconds=(2.3,), tg_seconds=(3.845,))
    assert [row.n_kv for row in table] == [row.n_kv for row in jsonl] == [0, 512, 1024, 1536]
    assert jsonl[0].pp_tps == pytest.approx((274.679718,), rel=1e-6)


def test_a_recorded_bench_has_every_repeat_and_a_table_without_times_one() -> None:
    pp, tg, deep, _ = rows(recorded(LOGS[2]))
    assert (pp.n_prompt, pp.pp_seconds, pp.tg_seconds) == (512, (4.21139073, 4.36902308), ())
    assert tg.n_gen == 32
    assert tg.tg_tps == pytest.approx((15.4989, 10.2679), rel=1e-5)
    assert deep.n_kv == 1024
    table = rows(recorded(LOGS[3]))
    assert [speed for row in table for speed in row.pp_tps or row.tg_tps] == pytest.approx([163.57, 26.03])


def test_a_row_is_there_as_soon_as_it_is_printed() -> None:
    array = recorded(LOGS[2])
    first = array.index(b"\n  }") + len(b"\n  }")
    reader = Reader()
    assert len(reader.feed(array[:first])) == 1  # llama-bench flushes here, in the middle of a line
    assert len(reader.feed(array[first:])) == 3


@given(st.sampled_from(LOGS), st.lists(st.integers(0, 12_000), max_size=20))
def test_how_the_output_is_cut_does_not_matter(name: str, at: list[int]) -> None:
    assert rows(*cut(recorded(name), at)) == rows(recorded(name))


@given(
    st.binary(max_size=300), st.lists(st.integers(0, 1000), max_size=10), st.sampled_from([ROW, b"  }", b'{"n_kv": 1'])
)
def test_how_hostile_bytes_are_cut_does_not_matter(junk: bytes, at: list[int], more: bytes) -> None:
    data = TABLE_HEAD + junk + more + junk + b"\n" + ROW
    assert rows(*cut(data, at)) == rows(data)


# --- what any run would print -----------------------------------------------------------------------------------------

TOKENS = st.integers(1, 65_536)
SECONDS = st.floats(0.05, 80_000)
SWEEP = st.tuples(TOKENS, TOKENS, st.integers(0, 4_000_000), SECONDS, SECONDS)


@given(st.lists(SWEEP, max_size=20), st.booleans())
def test_any_sweep_reads_back(found: list[tuple[int, int, int, float, float]], with_memory: bool) -> None:
    kept = [one for one in found if all(0.01 < n / s < 900_000 for n, s in ((one[0], one[3]), (one[1], one[4])))]
    more = b"  31200.1 |        n/a |" if with_memory else b""
    head = TABLE_HEAD.split(b"\n")[0] + (b"    RSS HWM | VRAM delta |" if with_memory else b"")
    line = b"|%6d | %6d | %6d | %8.3f | %8.2f | %8.3f | %8.2f |" + more + b"\n"
    table = b"".join(line % (pp, tg, n_kv, t, pp / t, u, tg / u) for pp, tg, n_kv, t, u in kept)
    jsonl = "".join(
        f'{{"n_kv_max": 4096, "pp": {pp}, "tg": {tg}, "n_kv": {n_kv}, "t_pp": {t:f}, "speed_pp": {pp / t:f}, '
        f'"t_tg": {u:f}, "speed_tg": {tg / u:f} }}\n'
        for pp, tg, n_kv, t, u in kept
    )
    for output, digits in ((head + b"\n" + table, 3), (jsonl.encode(), 6)):
        read = rows(b"llm_load_tensors: noise\n" + output)
        assert [(row.n_prompt, row.n_gen, row.n_kv) for row in read] == [one[:3] for one in kept]
        assert [(row.pp_seconds[0], row.tg_seconds[0]) for row in read] == [
            (float(f"{t:.{digits}f}"), float(f"{u:.{digits}f}")) for _, _, _, t, u in kept
        ]


def bench_fields(kind: str, n_tokens: int, depth: int, times: list[int]) -> dict[str, Any]:
    speeds = [1e9 * n_tokens / ns for ns in times]
    test: dict[str, Any] = json.loads(recorded(LOGS[2]))[0]
    return test | {
        "n_prompt": n_tokens * (kind == "pp"), "n_gen": n_tokens * (kind == "tg"), "n_depth": depth,
        "avg_ts": round(sum(speeds) / len(speeds), 6), "samples_ns": times, "samples_ts": speeds,
    }  # fmt: skip


BENCH = st.tuples(
    st.sampled_from(["pp", "tg"]), TOKENS, st.integers(0, 200_000),
    st.lists(st.integers(80_000_000, 10**13), min_size=1, max_size=8),
)  # fmt: skip


@given(st.lists(BENCH, max_size=6))
def test_any_bench_reads_back(found: list[tuple[str, int, int, list[int]]]) -> None:
    tests = [bench_fields(*one) for one in found]
    array = json.dumps(tests, indent=2).replace("[\n      ", "[ ").replace(",\n      ", ", ").replace("\n    ]", " ]")
    jsonl = "".join(json.dumps(one) + "\n" for one in tests)
    wanted = [
        (depth, n_tokens * (kind == "pp"), n_tokens * (kind == "tg"), tuple(ns / 1e9 for ns in times))
        for kind, n_tokens, depth, times in found
    ]
    for output in (array + "\n", jsonl):
        read = rows(output.encode())
        assert [(row.n_kv, row.n_prompt, row.n_gen, row.pp_seconds or row.tg_seconds) for row in read] == wanted


def published() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / "perf.jsonl").read_text().splitlines()]


def test_every_published_sweep_reads_back_from_a_table_and_from_jsonl() -> None:
    sweeps = [one["rows"] for one in published() if one["tool"] == "llama-sweep-bench"]
    assert sum(map(len, sweeps)) > 2_800
    for sweep in sweeps:
        table = b"".join(b"|%6d | %6d | %6d | %8.3f | %8.2f | %8.3f | %8.2f |\n" % tuple(row) for row in sweep)
        names = ("pp", "tg", "n_kv", "t_pp", "speed_pp", "t_tg", "speed_tg")
        read = rows(TABLE_HEAD + table)
        assert [(r.n_prompt, r.n_gen, r.n_kv, *r.pp_seconds, *r.tg_seconds) for r in read] == [
            (pp, tg, n_kv, t_pp, t_tg) for pp, tg, n_kv, t_pp, _, t_tg, _ in sweep
        ]
        exact = [dict(zip(names, row, strict=True)) for row in sweep]
        exact = [row | {"speed_pp": row["pp"] / row["t_pp"], "speed_tg": row["tg"] / row["t_tg"]} for row in exact]
        assert rows("".join(json.dumps(row) + "\n" for row in exact).encode()) == read


def test_every_published_bench_reads_back_from_markdown() -> None:
    tests = [test for one in published() for test in one["bench"] if "(" not in test["test"]]
    assert len(tests) > 230
    for test in tests:
        depth = f" @ d{test['n_depth']}" if test["n_depth"] else ""
        line = f"| m | 1 GiB | CUDA | {test['test']}{depth} | {test['t_s']:.2f} ± {test.get('sd', 0):.2f} |\n"
        (read,) = rows(line.encode())
        assert read.n_kv == test["n_depth"]
        assert (read.pp_tps or read.tg_tps) == pytest.approx((round(test["t_s"], 2),))


# --- what nobody measured ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        ROW.replace(b"3.845", b"  nan"),
        ROW.replace(b"8.32", b" inf"),
        ROW.replace(b"222.63", b" 1e309"),
        ROW.replace(b"2.300", b"-2.30"),
        ROW.replace(b"222.63", b"333.63"),  # no time of which this is the speed
        ROW.replace(b"2.300", b"0.000"),
        b"| 512 | 32 | 512 | 0.001 | 512000.00 | 0.000 | 32000000.00 |\n",
        b"| 1000 | 32 | 512 | 0.001 | 1000000.00 | 3.845 | 8.32 |\n",  # a million tokens a second
        ROW.replace(b"|   512", b"|     0"),
        ROW.replace(b"512 |    2.3", b"9999999999 |    2.3"),
        ROW.replace(b"   512", b"5\x0012", 1),
        b"\x1b[32m" + ROW,
        ROW.replace(b"8.32", b"8.32\xff"),
        ROW.replace(b"222.63", "٢٢٢.63".encode()),
        ROW.rstrip(),  # not ended yet: more digits may come
        b'{"n_kv": 0, "pp": 512, "tg": 32, "t_pp": 1e-9, "speed_pp": 5.12e11, "t_tg": 1, "speed_tg": 32}\n',
        b'{"n_kv": 0, "pp": 512, "tg": 32, "t_pp": NaN, "speed_pp": NaN, "t_tg": 1, "speed_tg": 32}\n',
        b'{"n_kv": 0, "pp": 512, "tg": 32, "t_pp": 1e309, "speed_pp": 1, "t_tg": 1, "speed_tg": 32}\n',
        b'{"n_kv": -1, "pp": 512, "tg": 32, "t_pp": 1, "speed_pp": 512, "t_tg": 1, "speed_tg": 32}\n',
        b'{"n_kv": true, "pp": "512", "tg": 32, "t_pp": 1, "speed_pp": 512, "t_tg": 1, "speed_tg": 32}\n',
        b'{"n_prompt": 512, "n_gen": 128, "n_depth": 0, "avg_ts": 30.0}\n',  # both phases in one time
        b'{"n_prompt": 512, "n_gen": 0, "avg_ts": 512.0, "samples_ns": [ 2000000000 ]}\n',
        b'{"n_prompt": 512, "n_gen": 0, "avg_ts": 512.0, "samples_ns": [ 0 ]}\n',
        b'{"n_prompt": 0, "n_gen": 0, "avg_ts": 5.0}\n',
        b"| m | 1 GiB | CUDA | 99 | tg64 | nan \xc2\xb1 0.00 |\n",
        b"| m | 1 GiB | CUDA | 99 | pp512+tg64 | 30.00 \xc2\xb1 0.10 |\n",
        b'{"speed_pp": ' + b"[" * 100_000 + b"\n",
    ],
)
def test_what_nobody_measured_makes_no_row(line: bytes) -> None:
    assert rows(TABLE_HEAD + line) == []
    assert len(rows(TABLE_HEAD + line.rstrip() + b"\n" + ROW.replace(b"| ", b"|  "))) >= 1


@given(st.binary(max_size=2_000))
def test_no_bytes_whatever_raise(data: bytes) -> None:
    reader = Reader()
    reader.feed(data)
    reader.feed(b"\n" + data)
    assert isinstance(reader.log, str)


@pytest.mark.parametrize(
    "line",
    [ROW, ROW.replace(b"512", b"x12"), b"y\n", b"error: failed memory\n", b"  {\n", b'"a": 1,\n', b'{"avg_ts": 1}\n'],
)
def test_floods_cost_little_and_leave_bounded_rows_and_text(line: bytes) -> None:
    block, reader = line * (1_000_000 // len(line)), Reader()
    reader.feed(TABLE_HEAD)
    started = time.process_time()
    found = sum(len(reader.feed(block)) for _ in range(10))
    assert time.process_time() - started < 3
    assert found == (MAX_ROWS if line == ROW else 0)
    assert len(reader.log) <= 200_000


def test_a_line_without_end_is_forgotten_and_what_follows_is_read() -> None:
    reader = Reader()
    for _ in range(30):
        reader.feed(b'{"speed_pp": ' * 8_000)
    assert len(reader.log) < 3_000
    assert len(reader.feed(b"\n" + TABLE_HEAD + ROW)) == 1


# --- the excerpt ------------------------------------------------------------------------------------------------------


def test_the_excerpt_of_a_long_log_still_tells_memory_and_cause() -> None:
    noise = b"llama_graph_n_input_tensors: input tensor 'inp_pos' is used by node 'Kcur-27' (ROPE)\n" * 20_000
    log = recorded("main-bench-verbose.stderr")
    reader = Reader()
    reader.feed(log + noise + b"~llama_context: done\n" + noise + b"last words\x1b[0m\xff")
    assert memory_of(reader.log).buffers == memory_of(log.decode()).buffers
    assert reader.log.endswith("last words[0m\ufffd")
    assert len(reader.log) < 40_000


def test_a_short_log_is_kept_as_it_was() -> None:
    reader = Reader()
    reader.feed(recorded(LOGS[0]))
    assert reader.log == recorded(LOGS[0]).decode()


@pytest.mark.parametrize("one", failures(), ids=lambda one: one["id"])
def test_a_failure_is_recognised_from_the_excerpt_behind_any_noise(one: dict[str, Any]) -> None:
    reader = Reader()
    reader.feed(one["stdout"].encode() + b"llama_kv_cache: layer  23: dev = CUDA1\n" * 10_000 + one["stderr"].encode())
    found = classify(one["exit_status"], one["signal"] or None, False, reader.log, one["engine"])
    assert found is not None
    assert (found.kind, found.needed_mib) == (one["kind"], one["needed_mib"])
