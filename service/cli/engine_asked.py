"""Asks the engine itself for a model's memory before any download: `advisor check --engine-dir`.

llama.cpp's llama-fit-params computes its buffers without reading weights. It gets a file with the model's true metadata
and tensor table, made-up tokens and a sparse hole for data, and runs under the same limits as a host's engines.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from service.engine.commands.parse import ParsedCommand
from service.engine.commands.render import launch
from service.engine.errors import InvalidInput
from service.engine.gguf.header import ArraySummary
from service.engine.gguf.write import Value, data_bytes, header_bytes, tokenizer
from service.engine.model import Model
from workers.agent.engines import options_of
from workers.agent.process import ProcessLimits, run_engine

PROGRAM = "llama-fit-params"
_SECONDS = 300
_ROW = re.compile(r"^(\S+) (\d+) (\d+) (\d+)\s*$", re.M)


class Figures(NamedTuple):
    """The engine's figures for one device, in MiB rounded down: weights, cache and compute buffer."""

    device: str
    weights_mib: int
    kv_mib: int
    compute_mib: int


def write_without_weights(model: Model, path: Path) -> None:
    """Write a GGUF with the model's metadata and tensor table, made-up tokens, and a sparse hole for data."""
    kept: dict[str, Value] = {
        key: value
        for key, value in model.metadata.items()
        if not key.startswith(("tokenizer.", "split.")) and not isinstance(value, ArraySummary) and value != []
    }
    try:
        head = header_bytes({**kept, **tokenizer(model.n_vocab)}, model.tensors)
    except struct.error as error:
        raise InvalidInput(f"the header has a value that cannot be written again: {error}", field="model") from error
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(len(head) + data_bytes(model.tensors))


def ask_engine(folder: Path, parsed: ParsedCommand, model: Model) -> list[Figures]:
    """Return the figures of llama-fit-params in `folder` for a command. Raises InvalidInput if it prints none."""
    program = folder / PROGRAM
    if parsed.engine != "llama.cpp" or not program.is_file():
        what = f"{folder} has no {PROGRAM}" if parsed.engine == "llama.cpp" else f"{parsed.engine} has no {PROGRAM}"
        raise InvalidInput(f"{what}, which reports llama.cpp's buffers without weights", field="engine_dir")
    known = _known(program)
    flags = msgspec.structs.replace(
        parsed.flags, jinja=None, other=tuple(o for o in parsed.flags.other if o.partition(" ")[0] in known)
    )
    with tempfile.TemporaryDirectory() as run_in, tempfile.TemporaryDirectory() as models:
        file = Path(models) / "model.gguf"
        write_without_weights(model, file)
        made = launch("llama.cpp", "server", flags, model_path=str(file))
        # -nr: otherwise repacked weights are in no row
        words = [str(program), *_only_known(made.arguments, known), "-nr", "-fit", "off", "-fitp", "on"]
        limits = ProcessLimits(folder=Path(run_in), seconds=_SECONDS, readable=(file, folder), confined=False)
        ended = run_engine(words, {"HOME": run_in, "PATH": os.defpath}, limits, lambda _: None, lambda: None)
    printed = ended.tail.decode(errors="replace")
    rows = [Figures(name, *map(int, figures)) for name, *figures in _ROW.findall(printed)]
    if not rows:
        last = printed.strip().splitlines()[-1:] or ["nothing"]
        raise InvalidInput(f"{PROGRAM} printed no buffers; its last lines: {last[0][:300]}", field="engine_dir")
    return rows


def _known(program: Path) -> frozenset[str]:
    """Return the options in a program's --help."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, errors="replace")
    return frozenset(options_of(f"{done.stdout}\n{done.stderr}"))


def _only_known(words: Sequence[str], known: frozenset[str]) -> list[str]:
    """Return a server's words without options (and their values) that the program lacks, and without -fit."""
    kept, skipping = list[str](), False
    for word in words:
        if re.match(r"--?[A-Za-z]", word):
            skipping = word not in known or word == "-fit"
        if not skipping:
            kept.append(word)
    return kept
