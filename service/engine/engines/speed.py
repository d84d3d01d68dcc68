"""The interface of an engine for the speed model: since when it is as fast as today, and its own coefficients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:  # nothing is loaded for the interface: this room asks the engines itself
    from service.engine.calibration import Coefficients
    from service.engine.speed.work import Weights, Work

SpeedChange: TypeAlias = Literal[
    "flash_attention", "flash_attention_kernels", "repack_on_the_fly", "interleaved_batches", "zen5_batches",
    "moe_graphs", "odd_head_ratios", "batch_attention", "sliding_windows", "expert_batches", "cpu_repack",
    "quantised_batches", "recurrent_kernels", "wmma_attention", "wmma_batches", "vulkan_attention", "native_fp4",
    "expert_tiles", "recurrent_launches", "delta_net_copies", "fused_delta_net",
    "hyper_connections_cuda", "hyper_connections_sycl", "hyper_connections_vulkan", "hyper_connections_metal",
]  # fmt: skip


class Milestone(msgspec.Struct, frozen=True):
    """`change` is in builds from `date` (YYYY-MM-DD) on. `source`: a pull request, or why that day.

    Days are those on which a pull request was merged, or, where none is known, between which published runs change
    ("inferred").
    """

    change: SpeedChange
    date: str
    source: str


class EngineSpeed(ABC):
    """How fast an engine is. `key`: the end of the names of its own coefficients; one that does not exist counts 1."""

    key: str
    milestones: tuple[Milestone, ...] = ()

    @abstractmethod
    def cpu_matmul(self, work: Work, weights: Weights, family: str, p: Coefficients) -> float:
        """Return how much slower than q4_0 in ik_llama.cpp a CPU of this family multiplies this kind of weights."""

    @abstractmethod
    def cpu_attention(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        """Return factors by which attention of a batch on the CPU is slower than the common coefficient says."""

    @abstractmethod
    def cpu_attention_token(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        """Return the same for a token."""
