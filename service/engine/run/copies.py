"""Which weights in RAM are copied to a GPU for a batch, and how: thresholds, switches, pinned memory.

Sources: ik_llama.cpp ggml-cuda.cu:5180-5214 and :5299-5391 (`-cuda`), pull requests 405, 520, 698 and 1813; llama.cpp
ggml-cuda.cu:5636-5655, pull request 15346.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from service.engine.builds import MemoryRules
from service.engine.config import Engine, Flags
from service.engine.engines import engine_spec
from service.engine.ggml_types import GgmlType
from service.engine.model import Model
from service.engine.run.environment import PLAIN, Environment
from service.engine.run.settings import option_value

MIN_BATCH = 32  # GGML_CUDA_MIN_BATCH_OFFLOAD of ik_llama.cpp, GGML_OP_OFFLOAD_MIN_BATCH of llama.cpp
# Operations of ik_llama.cpp as `-op` numbers them (ggml.h, enum ggml_op).
MUL_MAT, MUL_MAT_ID, FUSED_UP_GATE, MOE_FUSED_UP_GATE = 27, 28, 30, 31
NEVER = 0


class Copies(msgspec.Struct, frozen=True):
    """How weights in RAM reach the first GPU for a batch.

    `enabled`: there is a GPU, and the command does not forbid it. `min_batch`: tokens from which dense weights are
    copied; experts from `experts_each` times as many (the experts of a layer by those that a token uses).
    `per_byte`: for experts, `min_batch` is this times the bytes of a weight (0: it is not). `off`: operations whose
    weights stay. `experts`: routed experts are copied at all. `fused_experts`: those of a fused up and gate are copied
    too. `used_only`: only the experts that the batch uses are. `pinned`: RAM is page-locked, so that copies run at the
    full rate of the link.
    """

    enabled: bool
    min_batch: int = MIN_BATCH
    experts_each: float = 1.0
    per_byte: float = 0.0
    off: frozenset[int] = frozenset()
    experts: bool = True
    fused_experts: bool = True
    used_only: bool = True
    pinned: bool = False

    @property
    def expert_tokens(self) -> int:
        """The tokens of a batch from which experts are copied, whatever forbids it, where `per_byte` is not asked."""
        return max(math.ceil(self.min_batch * self.experts_each), 1)

    def least_tokens(self, operation: int, kind: GgmlType) -> int:
        """Return the tokens of a batch from which `operation` runs on the first GPU with weights of `kind` in RAM.

        NEVER: not for any batch.
        """
        if not self.enabled or operation in self.off:
            return NEVER
        if operation == MOE_FUSED_UP_GATE and not self.fused_experts:
            return NEVER
        if operation not in (MUL_MAT_ID, MOE_FUSED_UP_GATE):
            return self.min_batch
        if not self.experts:
            return NEVER
        if not self.per_byte:
            return self.expert_tokens
        return max(math.ceil(int(self.per_byte * kind.bpw / 8) * self.experts_each), 1)


def copies_of(
    engine: Engine, model: Model, flags: Flags, n_devices: int, rules: MemoryRules, environment: Environment = PLAIN,
    *, pins_host: bool = False,
) -> Copies:  # fmt: skip
    """Return how these flags copy weights in an environment. `pins_host`: the engine page-locks what lies in RAM."""
    enabled = flags.op_offload and n_devices > 0
    locked = flags.mmap is False or pins_host
    pinned = environment.pins and (locked or environment.registers)
    policy = engine_spec(engine).offload
    if not policy.has_options:
        return Copies(
            enabled,
            min_batch=policy.least if environment.least_batch is None else max(environment.least_batch, 1),
            used_only=rules.copies_used_experts,
            pinned=pinned,
        )
    cuda = _cuda_options(flags)
    by_experts = rules.threshold_by_experts and model.n_expert > 0
    return Copies(
        enabled,
        min_batch=int(cuda.get("offload-batch-size", MIN_BATCH)),
        experts_each=model.n_expert / max(model.n_expert_used, 1) if by_experts else 1.0,
        per_byte=max(cuda.get("offload-batch-size-per-byte", 0.0), 0.0),
        off=frozenset(_switched_off(flags)),
        experts=rules.copies_with_repack or not flags.runtime_repack,
        fused_experts=rules.copies_fused_experts,
        used_only="-no-ooae" not in flags.other and (rules.copies_used_experts or "-ooae" in flags.other),
        pinned=pinned,
    )


def _switched_off(flags: Flags) -> Iterator[int]:
    """Operations whose weights ik_llama.cpp's `-op operation,0` leaves in RAM."""
    text = next((o for o in flags.other if o.startswith("-op ")), "")
    numbers = [int(n) for n in text.removeprefix("-op ").split(",") if n.strip().isdigit()]
    return (operation for operation, on in zip(numbers[::2], numbers[1::2], strict=False) if not on)


def _cuda_options(flags: Flags) -> dict[str, float]:
    """ik_llama.cpp's `-cuda key=value,…` with numbers for values; the last option replaces those before it."""
    pairs = (part.partition("=") for part in (option_value(flags.other, ("-cuda", "--cuda-params")) or "").split(","))
    return {key.strip(): float(value) for key, _, value in pairs if _is_number(value)}


def _is_number(text: str) -> bool:
    digits = text.strip().removeprefix("-").replace(".", "", 1)
    return digits.isascii() and digits.isdigit() and len(digits) < 10
