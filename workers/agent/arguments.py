"""Turns a run's document into a command line. Only this module decides on its words, and no shell reads them.

The document holds enumerated flags, numbers within ranges and patterns of a grammar (service/engine/run_flags.py);
paths are this host's own. Nothing else becomes a word.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.commands.reader import BenchTests
from service.engine.commands.render import launch
from service.engine.errors import InvalidFlags
from service.engine.run_flags import to_flags
from service.wire.measuring.agent import RunDocument

Backend: TypeAlias = Literal["cuda", "rocm", "vulkan", "cpu"]

_INTERLEAVED = ("--interleave=all",)
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "SYSTEMROOT")
_MAX_INHERITED = 8192
# What hides cards from a runtime. llama.cpp's Vulkan backend reads indices from a variable of its own
# (ggml-vulkan.cpp).
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES", "vulkan": "GGML_VK_VISIBLE_DEVICES"}


class EngineCommand(msgspec.Struct, frozen=True, kw_only=True):
    """The command line of a run and its whole environment.

    `last_depth`: N_KV of the last wanted row, after which the program may be stopped; None if it ends by itself.
    """

    words: tuple[str, ...]
    environment: dict[str, str]
    last_depth: int | None


def engine_command(
    document: RunDocument, program: str, options: Collection[str], model: str, environment: Mapping[str, str],
    *, repeats: int = 1, numactl: str | None = None,
) -> EngineCommand:  # fmt: skip
    """Return the command that measures a run.

    `program`: the benchmark program; `options`: those its `--help` lists; `model`: the first shard; `numactl`: its
    path, if this host has it. Raises InvalidFlags for what this engine or host does not support.
    """
    flags = to_flags(document.flags)
    tests, extra, last = _tests(document, options, repeats)
    words = launch(document.engine, "bench", flags, model_path=model, program=program, tests=tests)
    before = _prefix(document, numactl)
    return EngineCommand(
        words=(*before, words.program, *words.arguments, *extra), environment=dict(environment), last_depth=last
    )


def _prefix(document: RunDocument, numactl: str | None) -> tuple[str, ...]:
    """Return what to put before the command: the advice for `--numa distribute` interleaves RAM over nodes by
    numactl."""
    if document.flags.numa != "distribute":
        return ()
    if numactl is None:
        raise InvalidFlags("numactl is not installed on this host, and --numa distribute needs it", field="flags.numa")
    return (numactl, *_INTERLEAVED)


def _tests(
    document: RunDocument, options: Collection[str], repeats: int
) -> tuple[BenchTests | None, tuple[str, ...], int | None]:
    """Return (llama-bench's tests, words to append, the last wanted depth)."""
    if document.engine == "llama.cpp":
        tests = BenchTests(
            prompts=(document.n_prompt,), generations=(document.n_gen,), depths=tuple(sorted(set(document.depths)))
        )
        return tests, ("-r", str(repeats), "-o", "jsonl", "-v"), None
    stride, last = sweep_rows(document)
    words = ["-n", str(document.n_gen)]
    if "--sweep-stride" in options:
        words += ["--sweep-stride", str(stride)]
    if "--output-format" in options:
        words += ["--output-format", "jsonl"]
    if "-wb" in options or "--warmup-batch" in options:
        words += ["-wb"]
    return None, tuple(words), last


def sweep_rows(document: RunDocument) -> tuple[int, int]:
    """Return (the stride between rows that llama-sweep-bench is to measure, N_KV of the last wanted row).

    Its rows start at 0, one micro-batch apart, and each needs a micro-batch of context (sweep-bench.cpp:221 of
    ik_llama.cpp 8337e4cd3). The stride is the smallest depth above 0; the last row is the one nearest the deepest
    depth.
    """
    batch = document.flags.n_ubatch
    room = document.flags.n_ctx - max(batch, document.n_gen)
    if room < 0:
        raise InvalidFlags(f"a context of {document.flags.n_ctx} has no room for one row", field="flags.n_ctx")
    last = room // batch
    steps = sorted({min(last, round(depth / batch)) for depth in document.depths})
    stride = next((step for step in steps if step), 1)
    rows = min(round(steps[-1] / stride), last // stride)
    return stride, rows * stride * batch


def host_environment(folder: str, backend: Backend, cards: Sequence[str]) -> dict[str, str]:
    """Return an engine's whole environment: the paths of programs and libraries, `folder` as its home, and `cards`.

    `cards`: UUIDs (CUDA) or numbers, in the order of CUDA0, CUDA1 … in the flags. All other cards are hidden, also from
    the other runtimes. Of the agent's own variables only the paths are passed on.
    """
    found = {name: value for name in _INHERITED if len(value := os.environ.get(name, "")) in range(1, _MAX_INHERITED)}
    found |= {"HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    hidden = {"cuda": "-1", "rocm": "-1", "vulkan": ""}
    return found | {_VISIBLE[name]: ",".join(cards) if name == backend and cards else hidden[name] for name in hidden}
