"""Engines that behave as recorded, for tests of everything that runs one: streams, failures, hangs, floods.

`install(folder, "llama-sweep-bench", "ok")` puts an executable of that name into a folder; see `program.py` for what
the cases do. It takes the real program's options (`options.json` of the engine) and refuses others in its words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from service.engine.commands.tables import known_options
from service.engine.config import Engine

DATA = Path(__file__).parents[1] / "data"
ENGINES: dict[str, Engine] = {"llama-sweep-bench": "ik_llama.cpp", "llama-bench": "llama.cpp"}
_BUILDS = {"llama-sweep-bench": "ik_llama.cpp-8337e4cd3", "llama-bench": "llama.cpp-0c1e57098"}
# As these builds print it (recorded November 2026).
_VERSIONS = {
    "llama-sweep-bench": "version: 4840 (8337e4cd3)\nbuilt with cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu\n",
    "llama-bench": "version: 0.5.0-dev (build 0, commit 0c1e57098)\nbuilt with GNU 12.2.0 for Linux x86_64\n",
}
_ONE_NAME = {
    "--help": "-h", "--usage": "-h", "--model": "-m", "--batch-size": "-b", "--ubatch-size": "-ub", "--ctx-size": "-c",
    "--predict": "-n", "--n-predict": "-n", "--n-gen": "-n", "--n-prompt": "-p", "--n-depth": "-d", "--output": "-o",
    "--repetitions": "-r",
}  # fmt: skip
_USUAL: dict[str, Any] = {
    "delay": 0.0, "exit_status": 0, "signal": 0, "stderr": "", "stdout": "", "rows": 2, "bytes": 100_000_000,
    "pp_tps": 400.0, "tg_tps": 20.0, "half_depth": 20_000, "spread": 0.0, "host": "127.0.0.1", "port": 9,
    "devices": "Available devices:\n  (none)\n",
}  # fmt: skip


def failure(name: str) -> dict[str, Any]:
    """Return one recorded or source-true failure of tests/data/engine_failures.jsonl."""
    return next(one for one in failures() if one["id"] == name)


def failures() -> list[dict[str, Any]]:
    """Return all recorded and source-true failures, with what each is."""
    return [json.loads(line) for line in (DATA / "engine_failures.jsonl").read_text().splitlines()]


def recorded(name: str) -> str:
    """Return a recorded output, such as `ik-sweep-table.stderr`."""
    return (DATA / "engine_logs" / name).read_text()


def install(folder: Path, program: str, case: str, **options: Any) -> Path:
    """Put a program that behaves as `case` says into a folder, and return its path.

    Cases: ok (rows for the arguments given), ok_table, ok_jsonl, recorded (a recorded output as it was), a failure's id
    of engine_failures.jsonl, hang, flood, flood_without_newline, segfault, illegal_instruction, killed, nan,
    million_tps, partial_then_crash, forks_children, writes_files, opens_network, tells_environment; the last four go on
    as `ok`. `options`: delay (seconds before each row), pp_tps, tg_tps, half_depth, spread, exit_status, rows, bytes,
    host, port, devices.
    """
    told = _USUAL | _names(program) | _output(program, case) | {"case": case, "program": program}
    if case not in _CASES:
        one = failure(case)
        told |= {key: one[key] for key in ("stderr", "stdout", "exit_status", "signal")} | {"case": "fails"}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / program
    source = Path(__file__).with_name("program.py").read_text()
    path.write_text(f"#!{Path(sys.executable).resolve()} -IS\n{source}")
    path.chmod(0o755)
    path.with_name(path.name + ".case").write_text(json.dumps(told | options))
    return path


_CASES = {
    "ok", "ok_table", "ok_jsonl", "recorded", "hang", "flood", "flood_without_newline", "segfault",
    "illegal_instruction", "killed", "nan", "million_tps", "partial_then_crash", "forks_children", "writes_files",
    "opens_network", "tells_environment",
}  # fmt: skip


def _names(program: str) -> dict[str, Any]:
    known = known_options(ENGINES[program], program)
    return {
        "names": _ONE_NAME,
        "value": sorted(name for name, takes_value in known.items() if takes_value),
        "bare": sorted(name for name, takes_value in known.items() if not takes_value),
        "help": (DATA / "help" / f"{_BUILDS[program]}-{program}.txt").read_text(),
        "version": _VERSIONS[program],
    }


def _output(program: str, case: str) -> dict[str, Any]:
    """Return what is printed before rows, or all of it where the case is `recorded`."""
    if program == "llama-bench":
        array = recorded("main-bench-json.stdout")
        test = json.loads(array)[0]
        fields = {name: test[name] for name in list(test)[: list(test).index("n_prompt")]}
        return {"test": fields, "stdout": array} if case == "recorded" else {"test": fields}
    text = recorded("ik-sweep-table.stderr")
    return {"stderr": text if case == "recorded" else text.partition("\n\nmain: n_kv_max")[0] + "\n"}
