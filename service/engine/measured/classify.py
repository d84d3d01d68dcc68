"""Why a benchmark program ended without rows, from how it ended and what it printed last: a failure is a result too.

Wording: ik_llama.cpp 8337e4cd3 and llama.cpp 0c1e57098; file and line stand at each pattern, here and in
`failures.json`, ik_llama.cpp's first.
llama-bench tells causes with `-v` only (its log callback is empty otherwise, llama-bench.cpp:2224-2284).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec

from service.engine.config import CPU, Engine
from service.engine.engines import engine_spec
from service.engine.logs.read import LogBuffers, free_mib, taken_mib
from service.engine.tables import table_of
from service.engine.units import MIB

FailureKind: TypeAlias = Literal[
    "out_of_memory", "unknown_flag", "unknown_type", "wrong_architecture", "cannot_read_model", "crashed", "hung",
    "no_output", "gave_way", "refused_by_engine", "refused_by_policy", "model_missing", "engine_missing", "stopped",
]  # fmt: skip


_DEVICE = re.compile(r"(CUDA|ROCm|Vulkan|SYCL|MTL|Metal|CPU)[0-9]{0,3}")


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why there is no result. `transient`: the same run may succeed when it is tried again.

    `device`: which memory was too small; `needed_mib`: the buffer that found no room there; `short_by_mib`: how much at
    least there is too little, where the log says what was free.
    """

    kind: FailureKind
    transient: bool
    text: Annotated[str, msgspec.Meta(max_length=500)]
    device: Annotated[str, msgspec.Meta(max_length=32)] | None = None
    needed_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None
    short_by_mib: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None


class _Room(NamedTuple):
    """What found no room: on which device (None: not said), MiB (None: not said)."""

    device: str | None
    needed_mib: int | None


class _NoRoom(msgspec.Struct, frozen=True):
    """A line that says that memory was too small, `bytes` or `mib` of it on a `device`, named from its groups."""

    pattern: str
    source: str
    device: str | None = None

    def rooms(self, lines: Sequence[str]) -> Iterator[_Room]:
        """Yield what found no room by these lines."""
        for said in filter(None, map(re.compile(self.pattern).search, lines)):
            found = said.groupdict()
            mib = float(found.get("mib") or 0) or int(found.get("bytes") or 0) / MIB
            yield _Room(self.device and self.device.format(**found), _up(mib) if mib else None)


class _Said(msgspec.Struct, frozen=True):
    """A line that says why, and what it means: with the line's groups by number, all of them as `said`."""

    kind: FailureKind
    pattern: str
    text: str
    source: str


class _Table(msgspec.Struct, frozen=True):
    """`plain`: what others than the host's owner are told of each kind. `signals`: what they mean, and if a run may
    succeed after one."""

    plain: dict[FailureKind, str]
    memory: tuple[_NoRoom, ...]
    said: tuple[_Said, ...]
    signals: dict[int, tuple[str, bool]]


@cache
def _table() -> _Table:
    return table_of("failures.json", _Table)


def in_plain_words(failure: Failure) -> Failure:
    """Return a failure with a sentence of ours in place of the host's words: it is for others than the host's owner."""
    device = failure.device if failure.device and _DEVICE.fullmatch(failure.device) else None
    text = _table().plain.get(failure.kind) or f"it does not fit into the memory of {device or 'the host'}"
    if failure.kind == "out_of_memory" and failure.short_by_mib:
        text += f": {failure.short_by_mib:,} MiB too little"
    return msgspec.structs.replace(failure, text=text, device=device)


_MAX_LINES = 3_000
_MAX_LINE = 1_000
_MAX_SAID = 200


def classify(
    exit_status: int | None, signal: int | None, timed_out: bool, tail: str, engine: Engine, *, n_rows: int = 0
) -> Failure | None:  # fmt: skip
    """Return why a program gave no result; None where it ended well and measured something.

    `exit_status`: None where a `signal` ended it (a status above 128 is a signal that a wrapper passed on).
    `timed_out`: it was ended because its time was over. `tail`: the end of what it printed on both streams, with the
    lines about memory before it if they are at hand. `n_rows`: rows that were read of it. `text` of the result has no
    control characters and is bounded.
    """
    if signal is None and 128 < (exit_status or 0) < 128 + 65:
        signal = (exit_status or 0) - 128
    lines = [line[:_MAX_LINE] for line in tail.splitlines()[-_MAX_LINES:]]
    if timed_out:
        return _hung(n_rows)
    if exit_status == 0:
        return (
            None
            if n_rows
            else Failure(kind="no_output", transient=False, text="it ended normally but measured nothing")
        )
    for find in (_memory, _words, _abort):
        failure = find(lines, engine)
        if failure is not None:
            return failure
    unread = not any("loaded meta data" in line for line in lines)
    if signal is not None and signal == engine_spec(engine).logs.signal_at_unknown_type and unread:
        return _type_unknown(engine)
    return _by_signal(signal) if signal else _unknown(exit_status, lines)


# ggml-cuda.cu:207; ggml-cuda/ggml-cuda.cu:226: the engine goes on with the CPU
_NO_CARD = re.compile(r"ggml_cuda_init: failed to initialize (\w{1,10}): (.{1,200})")


def without_card(log: str, buffers: Sequence[LogBuffers]) -> Failure | None:
    """Return that an engine which was to use cards goes on with the CPU alone, where its log or buffers say so.

    What it measures then is of the CPU.
    """
    said = _NO_CARD.search(log)
    if said is None and not (buffers and all(one.device == CPU for one in buffers)):
        return None
    why = f"{said[1]} did not start: {_plain(said[2])}" if said else "it was built without support for it"
    return Failure(kind="engine_missing", transient=False, text=f"the engine used no card: {why}")


def _type_unknown(engine: Engine) -> Failure:
    """A tensor type without a block size, at which the engine ends before it says anything."""
    text = f"{engine} crashed in the model's header, as it does on a tensor type that it does not know"
    return Failure(kind="unknown_type", transient=False, text=text)


def _hung(n_rows: int) -> Failure:
    text = (
        f"it was not finished when its time was up, after {n_rows} rows"
        if n_rows
        else "it printed no row within the time limit"
    )
    return Failure(kind="hung", transient=False, text=text)


def _up(mib: float) -> int:
    return min(math.ceil(round(mib, 2)), 1 << 24)


# ggml-cuda.cu:140-143; ggml-cuda/ggml-cuda.cu:105-107 (GGML_CUDA_NAME: CUDA, ROCm or MUSA)
_CARD_FAULT = re.compile(r"^(?:\d[\d.]* [A-Z] )?(CUDA|ROCm|MUSA) error: (.*)")
_CARD = re.compile(r"^(?:\d[\d.]* [A-Z] )?  current device: (\d{1,2}),")
# What the buffer was for, said right after: llama.cpp:1610, llama-kv-cache.cpp:288; ggml-alloc.c:774; llama.cpp:4786.
_PARTS = (
    (re.compile(r"buffer for (?:kv|rs) cache|kv_cache_init\(\) failed"), "the cache"),
    (re.compile(r"compute (?:\w\w )?buffers|gallocr_reserve_n"), "compute buffers"),
    (re.compile(r"error loading model: (?:unable to allocate|std::bad_alloc)"), "the weights"),
)


def _memory(lines: Sequence[str], _engine: Engine) -> Failure | None:
    """Return that memory was too small, if it was: sizes and names are in different lines of the same event."""
    all_lines, lines = lines, lines[_reserved(lines) :]
    rooms = [room for one in _table().memory for room in one.rooms(lines)]
    rooms += filter(None, [_pool(lines)])
    if not rooms:
        return None
    device = next((room.device for room in rooms if room.device), None)
    sizes = [room.needed_mib for room in rooms if room.needed_mib and room.device in (None, device)]
    return _no_room(_Room(_card_or_cpu(device), max(sizes, default=None)), all_lines)


def _reserved(lines: Sequence[str]) -> int:
    """Return where the last context had its buffers: what failed before was tried again and went well (ik_llama.cpp
    tries compute buffers again without pipelining, llama.cpp:8643-8646)."""
    return max((i + 1 for i, line in enumerate(lines) if "compute buffer size =" in line), default=0)


def _card_or_cpu(device: str | None) -> str | None:
    """Host buffers have names of their own (CPU_Mapped, CPU_REPACK, CUDA_Host): all are RAM."""
    return CPU if device and (device.startswith("CPU") or device.endswith("_Host")) else device


def _pool(lines: Sequence[str]) -> _Room | None:
    """A card's memory ran out while the graph ran: the pool of temporary buffers, which no buffer size counts."""
    for i, line in enumerate(lines):
        fault = _CARD_FAULT.match(line)
        if fault and fault[2].startswith("out of memory"):
            card = next(filter(None, map(_CARD.match, lines[i + 1 : i + 2])), None)
            return _Room(f"{fault[1]}{int(card[1])}" if card else None, None)
    return None


def _no_room(room: _Room, lines: Sequence[str]) -> Failure:
    in_ram = room.device == CPU
    where = "RAM" if in_ram else f"on {room.device or 'a device'}"
    part = next((name for pattern, name in _PARTS for line in lines if pattern.search(line)), None)
    short = _short_by(room, lines)
    text = f"does not fit: needed {room.needed_mib:,} MiB more {where}" if room.needed_mib else ""
    text = text or f"does not fit: {where if in_ram else f'memory {where}'} ran out"
    text += f" for {part}" if part else ""
    text += f", at least {short:,} MiB more than was free" if short else ""
    return Failure(
        kind="out_of_memory",
        transient=False,
        text=text,
        device=room.device,
        needed_mib=room.needed_mib,
        short_by_mib=short,
    )


def _short_by(room: _Room, lines: Sequence[str]) -> int | None:
    """Return how much is missing at least: what lay there already, and what was asked for, above what was free."""
    free = free_mib(lines).get(room.device or "")
    if free is None or room.needed_mib is None:
        return None
    short = room.needed_mib + taken_mib(lines).get(room.device or "", 0.0) - free
    return _up(short) if short > 0 else None


_QUIET = re.compile(r"llama_bench: error: failed to (load model|create context)")


def _words(lines: Sequence[str], engine: Engine) -> Failure | None:
    for said in _table().said:
        for match in map(re.compile(said.pattern).search, lines):
            if match:
                groups = [_plain(group or "") for group in match.groups()]
                text = said.text.format(*groups, engine=engine, said=" ".join(filter(None, groups)))
                return Failure(kind=said.kind, transient=False, text=text)
    return None


# ggml.c:253-272 in both: `file:line: GGML_ASSERT(…) failed`, or the words given to GGML_ABORT
_ABORT = re.compile(r"(?:^|/)([\w.-]{1,60}\.(?:c|h|cc|cu|cuh|cpp|hpp|m)):(\d{1,6}): (.+)")


def _abort(lines: Sequence[str], _engine: Engine) -> Failure | None:
    """Return that an assertion failed or a card did; a card's fault may be gone the next time."""
    for line in lines:
        fault = _CARD_FAULT.match(line)
        if fault:
            return Failure(kind="crashed", transient=True, text=f"it crashed: {fault[1]} error: {_plain(fault[2])}")
    for line in reversed(lines):
        match = _ABORT.search(line)
        if match:
            text = f"it crashed at {match[1]}:{match[2]}: {_plain(match[3])}"
            return Failure(kind="crashed", transient=False, text=text)
    return None


def _by_signal(signal: int) -> Failure:
    text, transient = _table().signals.get(signal, (f"it was terminated by signal {signal}", False))
    return Failure(kind="crashed", transient=transient, text=text)


def _unknown(exit_status: int | None, lines: Sequence[str]) -> Failure:
    quiet = next((match for line in lines if (match := _QUIET.search(line))), None)
    if quiet:
        text = f"llama-bench could not {quiet[1]} and does not say why without -v"
        return Failure(kind="crashed", transient=False, text=text)
    last = next((_plain(line) for line in reversed(lines) if _plain(line)), None)
    text = f"it exited with status {exit_status}" + (f", and last printed: {last}" if last else " and printed nothing")
    return Failure(kind="crashed", transient=False, text=text)


def _plain(text: str) -> str:
    """Return printable characters only, on one line, bounded: what an engine printed is not to be trusted."""
    kept = "".join(char if char.isprintable() else " " for char in text[:_MAX_LINE])
    return " ".join(kept.split())[:_MAX_SAID]
