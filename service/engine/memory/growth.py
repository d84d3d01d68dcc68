"""RAM that a server allocates while it runs, beyond what it prints at its start: cached prompts and checkpoints.

Sources: llama.cpp 0c1e57098 tools/server/server-context.cpp (create_checkpoint, and where it is asked for),
server-task.cpp (server_prompt_cache), src/llama-kv-cache.cpp (state_write), src/llama-memory-hybrid.cpp; ik_llama.cpp
8337e4cd3 examples/server/server-context.cpp:1799 (create_checkpoint for recurrent models only), common/common.h:554.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.memory.cache import attention_cache, recurrent_state
from service.engine.memory.spec import make_spec
from service.engine.model import Model
from service.engine.run.settings import option_value
from service.engine.units import MIB

PROMPTS = ("-cram", "--cache-ram")
CHECKPOINTS = ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints", "-ctx-ckpt")
_PROMPT_CACHE_MIB = 8192
_CHECKPOINTS_A_SLOT = 32
# llama.cpp pull 19408, of 7 February 2026: "by default the last 8"; of 32 in a log of 17 March (issue 20509). Builds
# between these days count as today's, which take more.
_OLDER_CHECKPOINTS, _OLDER_UNTIL = 8, "2026-02-07"
_STEP_MIB = 256


class Growth(NamedTuple):
    """What a server may take: bytes of prompts (None: no limit), and of each checkpoint, so many of them a slot."""

    prompts: int | None
    checkpoint: int
    a_slot: int
    slots: int

    @property
    def checkpoints(self) -> int:
        """Bytes of all checkpoints of all slots."""
        return self.checkpoint * self.a_slot * self.slots

    @property
    def total(self) -> int:
        """Bytes of both; those of checkpoints alone where prompts have no limit."""
        return (self.prompts or 0) + self.checkpoints


def growth_of(engine: Engine, model: Model, flags: Flags, date: str | None = None) -> Growth:
    """Return what llama-server with these flags may allocate in RAM while it runs, beyond what it starts with.

    `date`: that of the build, None for today's.
    """
    default = _OLDER_CHECKPOINTS if date and date <= _OLDER_UNTIL else _CHECKPOINTS_A_SLOT
    limit = _number(flags, PROMPTS, _PROMPT_CACHE_MIB)
    a_slot = max(_number(flags, CHECKPOINTS, default), 0)
    size = checkpoint_bytes(engine, model, flags) if a_slot else 0
    return Growth(None if limit < 0 else limit * MIB, size, a_slot if size else 0, max(flags.n_parallel, 1))


def _number(flags: Flags, names: tuple[str, ...], default: int) -> int:
    """The value of an option; the default where it is not a number, at which the program would stop."""
    written = option_value(flags.other, names) or ""
    return int(written) if written.lstrip("-").isdecimal() else default


def checkpoint_bytes(engine: Engine, model: Model, flags: Flags) -> int:
    """Return the bytes of one checkpoint: the part of a slot's state that cannot be rolled back token by token.

    That is the recurrent state of one sequence, and where the engine keeps windows only, the rows in the window.
    """
    one = msgspec.structs.replace(flags, n_parallel=1)
    spec = make_spec(engine, model, one)
    spec = msgspec.structs.replace(spec, n_snapshots=0, n_stream=1)
    total = 0
    for layer in model.layers:
        total += sum(tensor.n_bytes for tensor in recurrent_state(model, spec, layer))
        if layer.n_swa and engine_spec(engine).memory.checkpoints_windows and not spec.swa_full:
            for tensor in attention_cache(model, spec, layer):
                total += tensor.n_bytes * min(layer.n_swa, spec.n_kv) // tensor.ne[1]
    return total


def bounds(engine: Engine, growth: Growth, left: int) -> list[str]:
    """Return the options that bound a server to `left` more bytes of RAM; [] where it stays below them anyway.

    Checkpoints take precedence, because without one a prompt is processed again from its start; a quarter stays free.
    """
    if growth.prompts is not None and growth.total <= left:
        return []
    room, words = max(left, 0) * 3 // 4, []
    if growth.checkpoints:
        kept = min(growth.a_slot, room // (growth.checkpoint * growth.slots))
        if kept < growth.a_slot:
            words.append(f"{engine_spec(engine).memory.checkpoint_option} {kept}")
        room -= kept * growth.checkpoint * growth.slots
    most = growth.prompts if growth.prompts is not None else _PROMPT_CACHE_MIB * MIB
    kept = min(most, room) // MIB // _STEP_MIB * _STEP_MIB
    return [f"-cram {kept}", *words]
