"""A prediction of memory: the bytes of each device, and how they are known."""

from __future__ import annotations

import msgspec

from service.engine.config import Placement
from service.engine.estimate import Estimate

COMPUTE_SPREAD = {"exact": 0.0, "measured": 0.0, "source only": 0.05, "approximate": 0.3}  # by basis, of a buffer


class DeviceBytes(msgspec.Struct, frozen=True):
    """Bytes on one device. `derived`: copies made at load time that no buffer line shows (ik's attn_kv_b)."""

    weights: int
    kv: int
    compute: int
    output: int
    derived: int
    overhead: Estimate


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

    def total(self, device: int) -> Estimate:
        """Return all bytes of one device, a range: what no engine prints has one, and a rough compute buffer."""
        d = self.devices[device]
        printed, spread = d.weights + d.kv + d.compute + d.output + d.derived, COMPUTE_SPREAD[self.basis] * d.compute
        low, expected, high = d.overhead.low - spread, d.overhead.expected, d.overhead.high + spread
        return Estimate(printed + low, printed + expected, printed + high, self.basis)
