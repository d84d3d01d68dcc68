"""What a prediction of memory says: bytes of each device, and how they are known."""

from __future__ import annotations

import msgspec

from service.engine.config import Placement
from service.engine.estimate import Estimate


class DeviceBytes(msgspec.Struct, frozen=True):
    """Bytes on one device. `derived`: copies made at load time that no buffer line shows (ik's attn_kv_b)."""

    weights: int
    kv: int
    compute: int
    output: int
    derived: int
    overhead: Estimate

    @property
    def total(self) -> float:
        """Everything, with the expected overhead."""
        return self.weights + self.kv + self.compute + self.output + self.derived + self.overhead.expected


class Memory(msgspec.Struct, frozen=True):
    """Memory of one config: GPUs in the engine's order, the CPU last. `graph_splits` and `graph_nodes` as ik prints.

    `basis`, the weakest class of knowledge used: `exact` by arithmetic, `measured` in our data, `source only`, or
    `approximate` (an unknown architecture, or a split mode that is not modelled).
    """

    devices: tuple[DeviceBytes, ...]
    placement: Placement
    graph_splits: int
    graph_nodes: int
    basis: str
