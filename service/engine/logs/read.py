"""From an engine's log to figures: buffers of each device, graph splits, offloaded layers, speeds.

Both engines print these lines (`llm_load_tensors`, `load_tensors`, `llama_kv_cache_init`, …). The function names before
them changed over time, so figures are found without them. llama.cpp prints them only at `-lv 4`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from service.engine.config import CPU, Engine
from service.engine.engines import all_engines
from service.engine.errors import InvalidInput
from service.engine.logs.requests import MeasuredSpeed, read_speeds

MAX_LOG = 1 << 20
_MAX_LINES = 1 << 16
_MAX_LINE = 2_000
_MAX_DEVICES = 64
_MAX_NAMES = 200
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.:\[\]-]{0,60}")
_SIZE = re.compile(r"\s*=\s*(\d{1,12}\.\d\d) MiB")
_LABEL = "buffer size"
_PROJECTOR = "compute_meta:"  # alloc_ or reserve_, llama.cpp tools/mtmd/clip.cpp: its lines look like the model's
_SPLITS = re.compile(r"\bsplits\s*=\s*(\d{1,9})")
_OFFLOADED = re.compile(r"offloaded (\d{1,6})/(\d{1,6}) layers to GPU")
_ARCHITECTURE = re.compile(r"general\.architecture str\s+= (\S{1,64})|(?:print_meta|print_info): arch\s+= (\S{1,64})")
_END = re.compile(r"^(?:\d[\d.]* [A-Z] )?~llama_context: ")
_FREE = re.compile(r"using device (\w{1,40})\b.{0,200} - (\d{1,9}) MiB free")
_START = re.compile(r"llama_model_loader: loaded meta data with")
# Host buffers are one row here: "CPU is the sum of all host buffers".
_HOST = re.compile(r"(?:CPU(?:_Mapped|_REPACK)?|[A-Za-z]+_Host|Host)$")
_PARTS = {"KV": "kv", "RS": "kv", "model": "weights", "compute": "compute", "output": "output"}
_TOTALS = ("CUDA_Split",)  # ik_llama.cpp's sum over all devices


class LogBuffers(msgspec.Struct, frozen=True, kw_only=True):
    """Buffers of one device in MiB; null if the log has no line for it."""

    device: str
    weights_mib: float | None = None
    kv_mib: float | None = None
    compute_mib: float | None = None
    output_mib: float | None = None


class LogReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says.

    `offloaded` is how many layers are on GPUs, and of how many. `architecture` is that of the last model loaded.
    `engine` is the one whose function names the lines begin with. `speeds`: of benchmark rows, or `of_requests`;
    `unused` says why other requests are left out.
    """

    buffers: tuple[LogBuffers, ...] = ()
    graph_splits: int | None = None
    offloaded: tuple[int, int] | None = None
    speeds: tuple[MeasuredSpeed, ...] = ()
    architecture: str | None = None
    engine: Engine | None = None
    of_requests: bool = False
    unused: tuple[str, ...] = ()


def read_log(text: str) -> LogReading:
    """Return what a pasted log says; if it holds several runs, what the last one says.

    The buffers are the weights and those of the context that takes the most memory. Raises InvalidInput (field `log`)
    if the log is too long or has too many lines, or holds neither buffers nor requests nor speeds.
    """
    if len(text) > MAX_LOG:
        raise InvalidInput(f"the log has more than {MAX_LOG:,} characters: cut it to one run", field="log")
    lines = [line[:_MAX_LINE] for line in text.splitlines() if line]
    if len(lines) > _MAX_LINES:
        raise InvalidInput(f"the log has more than {_MAX_LINES:,} lines: cut it to one run", field="log")
    run = _last_run(lines)
    speeds = read_speeds(run)
    reading = LogReading(
        buffers=_buffers(run),
        graph_splits=_graph_splits(run),
        offloaded=_offloaded(run),
        speeds=speeds.rows,
        of_requests=speeds.of_requests,
        unused=speeds.unused,
        architecture=_architecture(run),
        engine=next((one.name for one in all_engines() if any(map(one.logs.lines.match, run))), None),
    )
    if not reading.buffers and not reading.speeds and not reading.unused:
        wanted = "lines with `buffer size =`, a table of llama-sweep-bench or llama-bench, or `eval time =`"
        raise InvalidInput(f"the log contains nothing that can be used: {wanted}", field="log")
    return reading


def _architecture(lines: list[str]) -> str | None:
    found = [match for line in lines if (match := _ARCHITECTURE.search(line))]
    return (found[-1][1] or found[-1][2]) if found else None


def _last_run(lines: list[str]) -> list[str]:
    starts = [i for i, line in enumerate(lines) if _START.search(line)]
    return lines[starts[-1] :] if len(starts) > 1 else lines


def _buffers(lines: list[str]) -> tuple[LogBuffers, ...]:
    """Return the buffers of each device: the weights, and those of the context that takes the most memory.

    Weights stay loaded all the time, while contexts are made one after the other.
    """
    contexts = [_context(part) for part in _contexts(lines)]
    found = {device: {"weights": size} for device, size in _weights(lines).items()}
    for device, parts in max(contexts, key=lambda one: sum(sum(parts.values()) for parts in one.values())).items():
        found.setdefault(device, {}).update(parts)
    rows = list(found.items())[:_MAX_DEVICES]
    return tuple(LogBuffers(device=d, **{f"{p}_mib": round(v, 2) for p, v in row.items()}) for d, row in rows)


def _contexts(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines up to the end of each context, and last those after it.

    Only llama.cpp's destructor tells where a context ends: with `-v` it prints one line for each backend. llama-bench
    makes a context for every test (llama-context.cpp:483-498 of 0c1e57098).
    """
    parts: list[list[str]] = [[]]
    ended = False
    for line in lines:
        if _END.match(line):
            ended = True
            continue
        if ended:
            parts.append([])
            ended = False
        parts[-1].append(line)
    return parts


def _weights(lines: Sequence[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, part, size in filter(None, map(_buffer, lines)):
        if part == "weights":
            found[_device(name)] = found.get(_device(name), 0.0) + size
    return found


def _context(lines: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return the MiB of each part of a context (`kv`, `compute`, `output`) on each device.

    Caches come in several buffers, which add up. A compute buffer that is printed again is the same one, grown.
    """
    found: dict[str, dict[str, float]] = {}
    compute: dict[str, float] = {}
    for name, part, size in filter(None, map(_buffer, lines)):
        if part == "compute":
            compute[name] = size
        elif part != "weights":
            row = found.setdefault(_device(name), {})
            row[part] = row.get(part, 0.0) + size
    for name, size in compute.items():
        row = found.setdefault(_device(name), {})
        row["compute"] = row.get("compute", 0.0) + size
    return found


def taken_mib(lines: Sequence[str]) -> dict[str, float]:
    """Return the MiB taken on each device at the end of these lines: by weights, and by the last context."""
    taken = _weights(lines)
    for device, parts in _context(_contexts(lines)[-1]).items():
        taken[device] = taken.get(device, 0.0) + sum(parts.values())
    return taken


def free_mib(lines: Sequence[str]) -> dict[str, int]:
    """Return the MiB that each card had free before loading (`using device CUDA0 … - 24105 MiB free`)."""
    return {m[1]: int(m[2]) for line in lines if (m := _FREE.search(line)) and m[1] != CPU}


def _buffer(line: str) -> tuple[str, str, float] | None:
    """Return buffer type, part and MiB of a line such as `CUDA0 KV buffer size = 224.00 MiB`, None for others."""
    before, label, after = line.partition(_LABEL)
    if _PROJECTOR in before:
        return None
    size = _SIZE.match(after) if label else None
    words = before[-_MAX_NAMES:].split()
    part = words.pop() if words and words[-1] in _PARTS else "model"
    if size is None or not words or words[-1] in _TOTALS or not _NAME.fullmatch(words[-1]):
        return None
    return words[-1], _PARTS[part], float(size[1])


def _device(name: str) -> str:
    return CPU if _HOST.match(name) else name


def _graph_splits(lines: list[str]) -> int | None:
    found = [match for line in lines if _PROJECTOR not in line and (match := _SPLITS.search(line))]
    return int(found[-1][1]) if found else None


def _offloaded(lines: list[str]) -> tuple[int, int] | None:
    found = [match for line in lines if (match := _OFFLOADED.search(line))]
    return (int(found[-1][1]), int(found[-1][2])) if found else None
