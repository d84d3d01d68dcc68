"""Outputs of benchmark programs as they print them, and what chats, terminals and editors make of them."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

DATA = Path(__file__).parents[2] / "data"
Sweep: TypeAlias = tuple[int, int, int, float, float]  # PP, TG, N_KV, T_PP, T_TG
BENCH_HEAD = (
    "| model                          |       size |     params | backend    | threads |            test |"
    "                  t/s |\n"
    "| ------------------------------ | ---------: | ---------: | ---------- | ------: | --------------: |"
    " -------------------: |\n"
)
SWEEP_HEAD = (
    "|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |\n"
    "|-------|--------|--------|----------|----------|----------|----------|\n"
)


@cache
def recorded(name: str) -> str:
    """Return a recorded output of tests/data/engine_logs."""
    return (DATA / "engine_logs" / name).read_text()


def sweep_table(rows: Sequence[Sweep]) -> str:
    """Return what llama-sweep-bench prints (sweep-bench.cpp:534)."""
    line = "|{:6d} | {:6d} | {:6d} | {:8.3f} | {:8.2f} | {:8.3f} | {:8.2f} |\n"
    return SWEEP_HEAD + "".join(line.format(pp, tg, n_kv, t, pp / t, u, tg / u) for pp, tg, n_kv, t, u in rows)


def sweep_jsonl(rows: Sequence[Sweep]) -> str:
    """Return what llama-sweep-bench prints with `--output-format jsonl`."""
    return "".join(
        f'{{"n_kv_max": 1048576, "n_batch": 2048, "n_ubatch": {pp}, "pp": {pp}, "tg": {tg}, "n_kv": {n_kv}, '
        f'"t_pp": {t:f}, "speed_pp": {pp / t:f}, "t_tg": {u:f}, "speed_tg": {tg / u:f} }}\n'
        for pp, tg, n_kv, t, u in rows
    )


def bench_table(tests: Sequence[tuple[str, int, int, float]]) -> str:
    """Return what llama-bench prints as Markdown: of (pp or tg, tokens, depth, t/s)."""
    return BENCH_HEAD + "".join(
        f"| {'qwen3 0.6B Q4_K - Medium':30s} | 319.96 MiB |   596.05 M | CPU        |       2 | "
        f"{kind + str(n) + (f' @ d{depth}' if depth else ''):>15s} | {f'{tps:.2f} ± {tps / 100:.2f}':>20s} |\n"
        for kind, n, depth, tps in tests
    )


def bench_json(tests: Sequence[tuple[str, int, int, list[int]]], lines: bool) -> str:
    """Return what llama-bench prints with `-o json` or `-o jsonl`: of (pp or tg, tokens, depth, ns of each repeat)."""
    made = [_test(*test) for test in tests]
    if lines:
        return "".join(json.dumps(one) + "\n" for one in made)
    array = json.dumps(made, indent=2)
    return array.replace("[\n      ", "[ ").replace(",\n      ", ", ").replace("\n    ]", " ]") + "\n"


def _test(kind: str, n_tokens: int, depth: int, times: list[int]) -> dict[str, Any]:
    speeds = [1e9 * n_tokens / ns for ns in times]
    test: dict[str, Any] = json.loads(recorded("main-bench-json.stdout"))[0]
    return test | {
        "n_prompt": n_tokens * (kind == "pp"), "n_gen": n_tokens * (kind == "tg"), "n_depth": depth,
        "avg_ts": round(sum(speeds) / len(speeds), 6), "samples_ns": times, "samples_ts": speeds,
    }  # fmt: skip


@cache
def published() -> list[dict[str, Any]]:
    """Return the published runs of tests/data/perf.jsonl."""
    return [json.loads(line) for line in (DATA / "perf.jsonl").read_text().splitlines()]


# --- what becomes of them ---------------------------------------------------------------------------------------------


def _each(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(map(change, text.split("\n")))


def _hard_wrapped(width: int) -> Callable[[str], str]:
    return lambda text: "\n".join(
        line[i : i + width] for line in text.split("\n") for i in range(0, max(len(line), 1), width)
    )


def _soft_wrapped(width: int) -> Callable[[str], str]:
    """Broken at blanks, which are lost there, as mail programs and editors do."""

    def wrap(text: str) -> str:
        lines = (textwrap.wrap(line, width, break_on_hyphens=False, drop_whitespace=True) for line in text.split("\n"))
        return "\n".join("\n".join(parts) for parts in lines)

    return wrap


def _without_outer_pipes(line: str) -> str:
    return line.strip().removeprefix("|").removesuffix("|") if line.lstrip().startswith("|") else line


def _with_commas(line: str) -> str:
    return re.sub(r"(?<=\d)\.(?=\d)", ",", line) if "|" in line else line


def _bold(line: str) -> str:
    return re.sub(r"(\d+\.\d\d) \|$", r"**\1** |", line) if line.startswith("|") else line


def _coloured(line: str) -> str:
    return re.sub(r"(\d+)", "\x1b[1;32m\\1\x1b[0m", line)


def _escaped(line: str) -> str:
    return line.replace("|", "\\|").replace("_", "\\_") if "|" in line else line


HARMLESS: dict[str, Callable[[str], str]] = {
    "as it was": lambda text: text,
    "discord": _each(lambda line: "> " + line),
    "discord block": lambda text: ">>> " + text,
    "github quote of a quote": _each(lambda line: ">> " + line),
    "quote without blank": _each(lambda line: ">" + line),
    "fence": lambda text: f"Here it is:\n```\n{text}\n```\nthanks!\n",
    "fence with a language": lambda text: f"```bash\n{text}\n```",
    "fence that closes behind the last line": lambda text: f"```{text.rstrip()}```",
    "details": lambda text: f"<details>\n<summary>log</summary>\n\n```text\n{text}\n```\n</details>",
    "colours": _each(_coloured),
    "non-breaking spaces": lambda text: text.replace(" ", "\u00a0"),
    "zero width": lambda text: "\ufeff" + text.replace("|", "|\u200b").replace('"n', '\u200b"n'),
    "windows ends": lambda text: text.replace("\n", "\r\n"),
    "old mac ends": lambda text: text.replace("\n", "\r"),
    "double spaced": lambda text: text.replace("\n", "\n\n"),
    "indented": _each(lambda line: "        " + line),
    "trailing blanks": _each(lambda line: line + "   "),
    "docker compose logs": _each(lambda line: "llama-1  | " + line),
    "docker compose logs -t": _each(lambda line: "bench_1       | 2026-11-27T21:13:18.123456789Z " + line),
    "journalctl": _each(lambda line: "nov 27 21:13:18 box llama-sweep-bench[123]: " + line),
    "journalctl -o short-iso": _each(lambda line: "2026-11-27T21:13:18+0100 box docker[99]: " + line),
    "kubectl logs --prefix": _each(lambda line: "[pod/llama-7d9c/llama] " + line),
    "html": lambda text: text.replace("&", "&amp;").replace('"', "&quot;").replace("|", "&#124;"),
}
OF_TABLES: dict[str, Callable[[str], str]] = {
    "no outer pipes": _each(_without_outer_pipes),
    "locale commas": _each(_with_commas),
    "drawn pipes": lambda text: text.replace("|", "│"),
    "wide pipes": lambda text: text.replace("|", "｜"),
    "bold speeds": _each(_bold),
    "printed on a Windows console": lambda text: text.replace("±", "┬▒"),  # UTF-8 as code page 437
    "escaped": _each(_escaped),
    "squeezed": _each(lambda line: re.sub(" +", " ", line)),
    "no blanks": _each(lambda line: line.replace(" ", "") if "PP" in line or re.match(r"\|\s*\d", line) else line),
    "tabs": _each(lambda line: re.sub(r" *\| *", "\t", line.strip(" |")) if line.startswith("|") else line),
}
WRAPS: dict[str, Callable[[str], str]] = {
    **{f"wrapped at {width}": _hard_wrapped(width) for width in (30, 37, 40, 52, 60, 67, 80, 100, 113, 120)},
    **{f"wrapped at blanks before {width}": _soft_wrapped(width) for width in (30, 40, 45, 60, 72, 80, 100, 120)},
}
ALL = HARMLESS | OF_TABLES | WRAPS
