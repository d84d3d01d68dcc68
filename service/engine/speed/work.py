"""Work: what one config makes the devices do, whatever they are: bytes, weights, attention and changes of device."""

from __future__ import annotations

import msgspec

from service.engine.config import Engine
from service.engine.model import Mla
from service.engine.speed.builds import Change
from service.engine.speed.tensors import Use

# GGML_CUDA_MIN_BATCH_OFFLOAD of ik_llama.cpp, GGML_OP_OFFLOAD_MIN_BATCH of llama.cpp
MIN_COPY_TOKENS = 32


class Weights(msgspec.Struct, frozen=True):
    """Weights of one use and kind of type on one device: bytes, elements, tensors.

    `quant`: k | iqk | iq | iq1 | kt | f (k: legacy types too); `legacy`: q4_0, q8_0, iq4_nl. `movable`: from RAM,
    they may be copied to a GPU for a batch.
    """

    device: int
    use: Use
    quant: str
    legacy: bool
    interleaved: bool
    movable: bool
    n_bytes: int
    n_elements: int
    n_tensors: int


class Attention(msgspec.Struct, frozen=True):
    """`count` layers of one geometry whose cache is on `device`. `movable`: their weights in RAM may go to a GPU for a
    batch, and their attention with them."""

    device: int
    count: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    n_swa: int
    movable: bool


class Move(msgspec.Struct, frozen=True):
    """Bytes of weights that cross from one device to another at every evaluation."""

    source: int
    target: int
    n_bytes: int


class Work(msgspec.Struct, frozen=True):
    """Everything about a config that speed depends on, but for the hardware and the depth.

    `mla_mode` 0: heads are cached; 1 and 3: the latent is; 2: the latent, without flash attention for one token.
    `cache_k`, `cache_v` in bytes an element; `n_ubatch` tokens of a micro-batch; `state_bytes` of recurrent layers by
    device, CPU last; `expert_copy_tokens`: the batch from which experts in RAM are copied to the first GPU,
    those that the batch uses with `active_experts_only`. `lacks`: what the build does not have yet.
    `host_changes` between CPU and GPU and `card_changes` between GPUs are those of one evaluation.
    """

    engine: Engine
    n_devices: int
    weights: tuple[Weights, ...]
    attention: tuple[Attention, ...]
    moves: tuple[Move, ...]
    state_bytes: tuple[int, ...]
    n_embd: int
    n_expert: int
    n_expert_used: int
    mla: Mla | None
    mla_mode: int
    n_layer: int
    gpu_layers: int
    host_layers: int
    host_changes: int
    card_changes: int
    cache_k: float
    cache_v: float
    flash: bool
    fused: bool
    repacked: bool
    copies: bool
    active_experts_only: bool
    expert_copy_tokens: float
    pinned: bool
    split_mode: str
    n_ubatch: int
    lacks: frozenset[Change]

    @property
    def share(self) -> float:
        """The share of the experts that one token uses."""
        return self.n_expert_used / self.n_expert if self.n_expert else 1.0

    @property
    def recurrent(self) -> bool:
        """Whether some layers keep a state in place of a cache."""
        return any(self.state_bytes)
