"""A benchmark program that behaves as recorded: told how to by the file NAME.case next to it.

Standard library only, and no import from this repository: `install` copies it into a folder under an engine's name.
What it prints is what the real programs printed (tests/data/engine_logs); speeds, delays and mishaps are the case's.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

HERE = Path(sys.argv[0]).resolve()
CASE: dict[str, Any] = json.loads(HERE.with_name(HERE.name + ".case").read_text())
SWEEP = CASE["program"] == "llama-sweep-bench"


def main() -> None:
    """Do what the case says, with the arguments given."""
    arguments = parsed(sys.argv[1:])
    mishaps: dict[str, Callable[[], object]] = {
        "recorded": recorded,
        "hang": hang,
        "flood": flood,
        "flood_without_newline": flood_without_newline,
        "segfault": lambda: killed(signal.SIGSEGV),
        "illegal_instruction": lambda: killed(signal.SIGILL),
        "killed": lambda: killed(signal.SIGKILL),
    }
    if CASE["case"] in mishaps:
        mishaps[CASE["case"]]()
    if CASE["case"] == "fails":
        fails()
    if not os.path.isfile(arguments["-m"]):
        missing_model(arguments["-m"])
    helpers = {
        "forks_children": forks_children,
        "writes_files": writes_files,
        "opens_network": opens_network,
        "tells_environment": tells_environment,
    }
    if CASE["case"] in helpers:
        helpers[CASE["case"]]()
    sweep(arguments) if SWEEP else bench(arguments)
    sys.exit(CASE["exit_status"])


# --- arguments --------------------------------------------------------------------------------------------------------


def parsed(words: list[str]) -> dict[str, str]:
    """Return the options given, by the names used here; what the engine does not know ends the program as there."""
    given = {"-m": "", "-b": "2048", "-ub": "512", "-c": "4096", "-n": "-1", "-p": "512", "-d": "0", "-r": "5"}
    given |= {"-o": "md", "--sweep-stride": "1", "--output-format": "table"}
    if not SWEEP:
        given["-n"] = "128"
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name = CASE["names"].get(word, word)
        if name in ("-h", "--version", "--list-devices"):
            told(name)
        if word not in CASE["value"] and word not in CASE["bare"]:
            unknown_flag(word)
        if word in CASE["value"]:
            if not rest:
                unknown_flag(word)
            given[name] = rest.pop(0)
    return given


def told(name: str) -> NoReturn:
    texts = {"-h": CASE["help"], "--version": CASE["version"], "--list-devices": CASE["devices"]}
    # llama.cpp 0c1e57098 and ik_llama.cpp 8337e4cd3 print versions on standard error, help on standard output.
    print(texts[name], end="", file=sys.stderr if name == "--version" else sys.stdout)
    sys.exit(0)


def unknown_flag(word: str) -> NoReturn:
    what = "unknown argument" if SWEEP and word not in CASE["value"] else "invalid parameter for argument"
    print(f"error: {what}: {word}", file=sys.stderr)
    print(CASE["help"], end="", flush=True)
    sys.exit(1)


def missing_model(path: str) -> NoReturn:
    if SWEEP:
        print(f"gguf_init_from_file: failed to open '{path}': 'No such file or directory'", file=sys.stderr)
        print(f"llama_model_load: error loading model: llama_model_loader: failed to load model from {path}\n",
              file=sys.stderr)  # fmt: skip
        print("llama_model_load_from_file: failed to load model\nmain: error: unable to load model", file=sys.stderr)
    else:
        print("[", flush=True)
        print(f"llama_bench: error: failed to load model '{path}'", file=sys.stderr)
    sys.exit(1)


# --- rows -------------------------------------------------------------------------------------------------------------


def pause() -> None:
    time.sleep(CASE["delay"])


def recorded() -> NoReturn:
    """Print a recorded output as it was, whatever the arguments are, its rows `delay` apart."""
    for name, stream in (("stderr", sys.stderr), ("stdout", sys.stdout)):
        for line in CASE[name].splitlines(keepends=True):
            if line[:1] in ("|", "{") or line.strip() in ("}", "},"):
                pause()
            print(line, end="", file=stream, flush=True)
    sys.exit(CASE["exit_status"])


def speeds(n_kv: int) -> tuple[float, float]:
    """Return PP and TG at a depth: halved over `half_depth` tokens, one measurement `spread` from the next."""
    slower = 1 / (1 + n_kv / CASE["half_depth"])
    return CASE["pp_tps"] * slower * noise(), CASE["tg_tps"] * slower * noise()


def noise() -> float:
    spread: float = CASE["spread"]
    return 1 + spread * random.uniform(-1.7, 1.7)


def sweep(given: dict[str, str]) -> None:
    """As llama-sweep-bench: PP tokens of a micro-batch behind each depth, TG tokens before them, all on stderr."""
    n_ctx, n_ubatch, stride = int(given["-c"]), int(given["-ub"]), int(given["--sweep-stride"])
    n_gen = int(given["-n"]) if int(given["-n"]) > 0 else n_ubatch // 4
    jsonl = given["--output-format"] == "jsonl" or CASE["case"] == "ok_jsonl"
    print(CASE["stderr"], end="", file=sys.stderr, flush=True)
    if not jsonl or CASE["case"] == "ok_table":
        print("\n|    PP |     TG |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |", file=sys.stderr)
        print("|-------|--------|--------|----------|----------|----------|----------|", file=sys.stderr, flush=True)
    for i, n_kv in enumerate(range(0, n_ctx, n_ubatch)):
        if i % stride:
            continue
        pause()
        crash_at(i)
        pp, tg = speeds(n_kv)
        row = sweep_row(n_ubatch, n_gen, n_kv, n_ubatch / pp, n_gen / tg, jsonl and CASE["case"] != "ok_table", given)
        print(row, file=sys.stderr, flush=True)


def sweep_row(pp: int, tg: int, n_kv: int, t_pp: float, t_tg: float, jsonl: bool, given: dict[str, str]) -> str:
    s_pp, s_tg = pp / t_pp, tg / t_tg
    if CASE["case"] == "nan":
        t_tg, s_pp, s_tg = float("nan"), float("inf"), float("nan")
    if CASE["case"] == "million_tps":
        t_tg, s_tg = tg / 1e6, 1e6
    if not jsonl:
        return f"|{pp:6d} | {tg:6d} | {n_kv:6d} | {t_pp:8.3f} | {s_pp:8.2f} | {t_tg:8.3f} | {s_tg:8.2f} |"
    head = f'{{"n_kv_max": {given["-c"]}, "n_batch": {given["-b"]}, "n_ubatch": {given["-ub"]}, "flash_attn": 1, '
    head += '"n_gpu_layers": -1, "n_threads": 2, "n_threads_batch": 2, '
    return head + (
        f'"pp": {pp}, "tg": {tg}, "n_kv": {n_kv}, "t_pp": {t_pp:.6f}, "speed_pp": {s_pp:.6f}, '
        f'"t_tg": {t_tg:.6f}, "speed_tg": {s_tg:.6f} }}'
    )


def bench(given: dict[str, str]) -> None:
    """As llama-bench: for each depth the prompts, then the outputs, on stdout in the format asked for."""
    print(CASE["stderr"], end="", file=sys.stderr, flush=True)
    form, first, i = given["-o"], True, 0
    print({"json": "[", "md": BENCH_HEAD}.get(form, ""), end="\n" if form in ("json", "md") else "", flush=True)
    for depth in map(int, given["-d"].split(",")):
        for kind, sizes in (("pp", given["-p"]), ("tg", given["-n"])):
            for n_tokens in filter(None, map(int, sizes.split(","))):
                pause()
                crash_at(i)
                bench_row(form, first, kind, n_tokens, depth, int(given["-r"]))
                first, i = False, i + 1
    print({"json": "\n]", "md": "\nbuild: 0c1e570 (1)"}.get(form, ""), flush=True)


BENCH_HEAD = (
    "| model                          |       size |     params | backend    | threads |            test |"
    "                  t/s |\n| ------------------------------ | ---------: | ---------: | ---------- | ------: |"
    " --------------: | -------------------: |"
)


def bench_row(form: str, first: bool, kind: str, n_tokens: int, depth: int, repeats: int) -> None:
    samples = [n_tokens / speeds(depth)[kind == "tg"] for _ in range(repeats)]
    if CASE["case"] == "million_tps":
        samples = [n_tokens / 2e6] * repeats
    times = [max(round(seconds * 1e9), 1) for seconds in samples]
    each = [1e9 * n_tokens / ns for ns in times]
    mean = sum(each) / repeats
    deviation = (sum((x - mean) ** 2 for x in each) / max(repeats - 1, 1)) ** 0.5
    if CASE["case"] == "nan":
        mean = deviation = float("nan")
    if form == "md":
        name = f"{kind}{n_tokens}" + (f" @ d{depth}" if depth else "")
        speed = f"{mean:.2f} ± {deviation:.2f}"
        print(f"| qwen3 0.6B Q4_K - Medium       | 319.96 MiB |   596.05 M | CPU        |       2 | {name:>15} | "
              f"{speed:>20} |", flush=True)  # fmt: skip
        return
    fields = dict(CASE["test"])
    fields |= {"n_prompt": n_tokens * (kind == "pp"), "n_gen": n_tokens * (kind == "tg"), "n_depth": depth}
    fields |= {"avg_ns": round(sum(times) / repeats), "stddev_ns": 0}
    ends = {"avg_ts": f"{mean:.6f}", "stddev_ts": f"{deviation:.6f}"}
    ends |= {
        "samples_ns": f"[ {', '.join(map(str, times))} ]",
        "samples_ts": f"[ {', '.join(f'{x:g}' for x in each)} ]",
    }
    texts = [f'"{name}": {json.dumps(value)}' for name, value in fields.items()]
    texts += [f'"{name}": {value}' for name, value in ends.items()]
    if form == "jsonl":
        print("{" + ", ".join(texts) + "}", flush=True)
    else:
        print("" if first else ",\n", "  {\n    ", ",\n    ".join(texts), "\n  }", sep="", end="", flush=True)


# --- mishaps ----------------------------------------------------------------------------------------------------------


def crash_at(row: int) -> None:
    """End in the middle of a row, as a program that asserts does."""
    if CASE["case"] == "partial_then_crash" and row == CASE["rows"]:
        print("|   512 |    128 |   10", end="", file=sys.stderr if SWEEP else sys.stdout, flush=True)
        print("\nggml/src/ggml-cuda.cu:144: CUDA error", file=sys.stderr, flush=True)
        killed(signal.SIGABRT)


def fails() -> NoReturn:
    """Print the words of a recorded or source-true failure and end as it did."""
    print(CASE["stderr"], end="", file=sys.stderr, flush=True)
    print(CASE["stdout"], end="", flush=True)
    if CASE["signal"]:
        killed(CASE["signal"])
    sys.exit(CASE["exit_status"])


def killed(number: int) -> NoReturn:
    signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
    os.kill(os.getpid(), number)
    while True:
        time.sleep(1)


def hang() -> NoReturn:
    """Print nothing, heed nothing that can be ignored."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(60)


def flood() -> NoReturn:
    """Write `bytes` of lines that look like rows and are none."""
    written(b"| 512 | 128 | x | 1.000 | 512.00 | 1.000 | 128.00 |\n" * 20_000, sys.stderr if SWEEP else sys.stdout)
    sys.exit(CASE["exit_status"])


def flood_without_newline() -> NoReturn:
    written(b'{"speed_pp": ' * 80_000, sys.stderr if SWEEP else sys.stdout)
    sys.exit(CASE["exit_status"])


def written(block: bytes, stream: TextIO) -> None:
    left = CASE["bytes"]
    while left > 0:
        left -= os.write(stream.fileno(), block[:left])


def forks_children() -> None:
    """Leave a child in the process group and one in its own session, both deaf to SIGTERM; their numbers on stderr."""
    for own_session in (False, True):
        child = os.fork()
        if child == 0:
            if own_session:
                os.setsid()
            hang()
        print(f"child {child}", file=sys.stderr, flush=True)


def writes_files() -> None:
    """Try to write where an engine has no business, and tell how that went."""
    for folder in (HERE.parent, Path.home(), Path("/tmp"), Path("/etc"), Path.cwd()):
        path = folder / "written-by-an-engine"
        try:
            path.write_text("hello")
            print(f"wrote {path}", file=sys.stderr, flush=True)
        except OSError as error:
            print(f"could not write {path}: {error.strerror}", file=sys.stderr, flush=True)


def opens_network() -> None:
    """Try to reach the case's address (`host`, `port`), and tell how that went."""
    try:
        socket.create_connection((CASE["host"], CASE["port"]), timeout=2).close()
        print("connected", file=sys.stderr, flush=True)
    except OSError as error:
        print(f"could not connect: {error}", file=sys.stderr, flush=True)


def tells_environment() -> None:
    """Print the environment, the working directory and the arguments, one JSON object on a line."""
    told_of = {"environment": dict(os.environ), "directory": os.getcwd(), "arguments": sys.argv}
    print("told: " + json.dumps(told_of), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
