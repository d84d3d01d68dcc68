"""A run's document as the words that are started: this program alone decides what they are, and no shell reads them.

The document has enumerated flags, numbers within ranges and patterns of a grammar (service/engine/run_flags.py). Paths
are this host's own. Nothing else becomes a word.
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
# What hides all cards from a runtime; llama.cpp's Vulkan backend reads indices from its own variable (ggml-vulkan.cpp).
_VISIBLE = {"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "HIP_VISIBLE_DEVICES", "vulkan": "GGML_VK_VISIBLE_DEVICES"}


class EngineCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What is started for a run: words and the whole environment.

    `last_depth`: N_KV of the last row that is wanted, behind which the program may be ended; None: it ends by itself.
    """

    words: tuple[str, ...]
    environment: dict[str, str]
    last_depth: int | None


def engine_command(
    document: RunDocument, program: str, options: Collection[str], model: str, environment: Mapping[str, str],
    *, repeats: int = 1, numactl: str | None = None,
) -> EngineCommand:  # fmt: skip
    """Return what measures a run: `program` is the bench program, `options` those its `--help` names, `model` the first
    shard, all on this host. `numactl`: its path, None where there is none.

    Raises InvalidFlags for what this engine or host cannot be given.
    """
    flags = to_flags(document.flags)
    tests, extra, last = _tests(document, options, repeats)
    words = launch(document.engine, "bench", flags, model_path=model, program=program, tests=tests)
    before = _prefix(document, numactl)
    return EngineCommand(
        words=(*before, words.program, *words.arguments, *extra), environment=dict(environment), last_depth=last
    )


def _prefix(document: RunDocument, numactl: str | None) -> tuple[str, ...]:
    """The advised command of `--numa distribute` is run by numactl: RAM of all nodes in turn."""
    if document.flags.numa != "distribute":
        return ()
    if numactl is None:
        raise InvalidFlags("numactl is not installed on this host: --numa distribute is run by it", field="flags.numa")
    return (numactl, *_INTERLEAVED)


def _tests(
    document: RunDocument, options: Collection[str], repeats: int
) -> tuple[BenchTests | None, tuple[str, ...], int | None]:
    """Return (llama-bench's tests, words behind the config's, the last depth wanted)."""
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
    """Return (the stride of the rows that llama-sweep-bench is to measure, N_KV of the last row wanted).

    Its rows lie a micro-batch apart, begin at 0 and need a micro-batch of the context each (sweep-bench.cpp:221 of
    ik_llama.cpp 8337e4cd3). The stride is that of the smallest depth above 0; the last row is the one next to the
    deepest depth.
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
    """Return all variables that an engine gets: where programs and libraries are, a home that is `folder`, and `cards`.

    `cards`: UUIDs (CUDA) or numbers, in the order that CUDA0, CUDA1 … of the flags mean. Every other card is hidden,
    of the other runtimes too. No variable of the agent's own but the paths is handed on.
    """
    found = {name: value for name in _INHERITED if len(value := os.environ.get(name, "")) in range(1, _MAX_INHERITED)}
    found |= {"HOME": folder, "TMPDIR": folder, "LC_ALL": "C.UTF-8", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    hidden = {"cuda": "-1", "rocm": "-1", "vulkan": ""}
    return found | {_VISIBLE[name]: ",".join(cards) if name == backend and cards else hidden[name] for name in hidden}
