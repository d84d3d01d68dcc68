"""What single flags amount to in the engine: rows of the cache, tokens of a micro-batch, how it drafts."""

from __future__ import annotations

from collections.abc import Sequence

from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.model import Model
from service.engine.units import pad

PADDING = 256  # of a cache's rows (ik llama-context.h:74)


def padded_context(engine: Engine, model: Model, flags: Flags) -> int:
    """Return the rows of the whole cache: `-c` padded."""
    n_ctx, memory = flags.n_ctx or model.n_ctx_train, engine_spec(engine).memory
    without = flags.flash_attn == "off" or model.architecture in memory.without_flash_attention
    return pad(n_ctx, memory.padding_without_flash_attention if without else PADDING)


def micro_batch(engine: Engine, model: Model, flags: Flags) -> int:
    """Return the tokens of the worst-case batch: min(n_ctx, -b, -ub)."""
    return max(1, min(padded_context(engine, model, flags), flags.n_batch, flags.n_ubatch))


def loads_next_tokens(flags: Flags) -> bool:
    """Return whether the model's own next-token layers are loaded to draft with: `--spec-type` names mtp.

    ik common/common.cpp:4287 (mparams.mtp); llama.cpp common/common.cpp:1625 (load_mtp: draft-mtp without `-md`).
    """
    types = {kind.partition(":")[0] for kind in speculation_types(flags)}
    return bool(types & {"mtp", "draft-mtp"})


def drafts_next_tokens(engine: Engine, flags: Flags) -> bool:
    """Return whether next-token layers draft: ik_llama.cpp leaves them out where there are several slots."""
    several = flags.n_parallel > 1 and engine_spec(engine).commands.next_tokens_in_one_slot
    return loads_next_tokens(flags) and not several


def speculation_types(flags: Flags) -> tuple[str, ...]:
    """Return the entries of all `--spec-type` options; in ik_llama.cpp each may carry `:key=value,…`."""
    values = [option.partition(" ")[2] for option in flags.other if option.startswith("--spec-type ")]
    return tuple(part for value in values for part in ([value] if ":" in value else value.split(",")) if part)


def option_value(options: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the value of the last of `names` among options such as `-dev CUDA0`, or None."""
    values = [value for name, _, value in (option.partition(" ") for option in options) if name in names]
    return values[-1] if values else None


def numbers_of(flags: Flags, *names: str) -> list[int]:
    """Return the whole numbers of the last option of these names, such as 1024,2048; none where it is not given."""
    return [int(one) for one in (option_value(flags.other, names) or "").split(",") if one.strip().isdigit()]
