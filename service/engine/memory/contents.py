"""What is stored on every device before anything is computed: weights, caches, and copies made when a model is loaded.

Sums over a placement, without a graph: every size is worked out once a model.
"""

from __future__ import annotations

import msgspec

from service.engine.architectures import architecture
from service.engine.engines import engine_spec
from service.engine.estimate import Estimate
from service.engine.memory.cache import cache_bytes
from service.engine.memory.overhead import expert_cache, gpu_overhead
from service.engine.memory.spec import GraphSpec
from service.engine.memory.stored import derived_by_layer, plain_bytes, reserved_bytes
from service.engine.run.placement import ROPE_FACTORS, rope_devices
from service.engine.run.resolved import ResolvedRun


class Contents:
    """What a run stores in memory: the sums, and what all parts of a prediction need.

    `model` and `placement` are those after loading.
    """

    def __init__(self, run: ResolvedRun) -> None:
        self.run, self.engine, self.flags = run, run.engine, run.flags
        self.model, self.placement = run.loaded
        self.allocates = engine_spec(run.engine).memory
        self.cuda, self.cpu = run.allocator == "cuda", self.placement.n_devices
        self.ropes = rope_devices(run.engine, self.model, run.flags, self.placement)
        self.spec: GraphSpec = msgspec.structs.replace(run.graph_spec, rope_owners=self._rope_owners())

    def _rope_owners(self) -> tuple[int, ...]:
        """For each layer the first that reads the same copy of the rope factors; () where each has its own."""
        if self.allocates.rope_factors_for_each == "layer" or not any(
            name in self.model.by_name for name in ROPE_FACTORS
        ):
            return ()
        return tuple(self.ropes.index(device) for device in self.ropes)

    # -- weights -------------------------------------------------------------------------------------------------

    def weights(self) -> list[int]:
        """Return the bytes of weights on each device, CPU last, as the engine stores them there."""
        total, cpu = [0] * (self.cpu + 1), self.cpu
        in_ram = plain_bytes(self.model)
        on_card = reserved_bytes(self.model) if self.cuda else in_ram
        n_bytes = [*[on_card] * cpu, in_ram]
        for name, device in self.placement.tensors.items():
            total[device] += n_bytes[device][name]
        for name in ROPE_FACTORS & self.placement.tensors.keys():  # every layer or device has its own
            device = self.placement.tensors[name]
            total[device] -= (in_ram if device == cpu else on_card)[name]
        self._add_rope_factors(total)
        if self.allocates.repeats_expert_biases:
            self._add_duplicated_biases(total)
        head = self.placement.tensors.get("output.weight")
        if (
            self.model.tied
            and head == self.placement.tensors["token_embd.weight"]
            and self.allocates.shares_tied_head(self)
        ):
            total[head] -= self._tied_bytes(head)
        return total

    def _tied_bytes(self, device: int) -> int:
        """Bytes of the second token embedding of a tied model, which is not stored after all."""
        tensor = self.model.by_name["token_embd.weight"]
        return reserved_bytes(self.model)[tensor.name] if self.cuda and device != self.cpu else tensor.nbytes

    def _add_rope_factors(self, total: list[int]) -> None:
        """Add the copies of rope factors, one for every layer or device. Gemma's are for its full layers only."""
        full_only = architecture(self.model.architecture).rope_factors_of_full_layers
        turning = [d for d, la in zip(self.ropes, self.model.layers, strict=False) if not (full_only and la.n_swa)]
        for tensor in self.model.tensors:
            if tensor.name in ROPE_FACTORS:
                for device in turning if self.allocates.rope_factors_for_each == "layer" else sorted(set(turning)):
                    total[device] += tensor.nbytes

    def _add_duplicated_biases(self, total: list[int]) -> None:
        """Count the copy of an expert's bias that lies next to its weight where an override moved only the weight."""
        tensors = self.placement.tensors
        for name, device in tensors.items():
            if name.endswith("_exps.bias"):
                weight = tensors.get(name.removesuffix("bias") + "weight", device)
                if weight != device:
                    total[weight] += self.model.by_name[name].nbytes

    def derived(self) -> list[int]:
        """Bytes of the attention matrices that the engine makes when the file lacks them."""
        total = [0] * (self.cpu + 1)
        for layer, n_bytes in enumerate(derived_by_layer(self.engine, self.model, self.spec.mla)):
            source = self.placement.tensors.get(f"blk.{layer}.attn_k_b.weight", self.placement.layers[layer])
            total[source] += n_bytes
        return total

    # -- caches --------------------------------------------------------------------------------------------------

    def caches(self) -> list[int]:
        """Return the bytes of caches on each device, CPU last."""
        total = [0] * (self.cpu + 1)
        plain = cache_bytes(self.model, self.spec)
        reserved = cache_bytes(self.model, self.spec, cuda_padding=True) if self.cuda else plain
        for layer, device in enumerate(self.placement.caches):
            if device is not None:
                total[device] += plain[layer] if device == self.cpu else reserved[layer]
        return total

    # -- what is not printed -------------------------------------------------------------------------------------

    def overhead(self, device: int, growth: int = 0) -> Estimate:
        """Return what no engine prints; `growth`: what compute takes more once the command's policy holds."""
        if device == self.cpu or not self.cuda:
            return Estimate(growth, growth, growth)
        cards = self.run.rig.cards  # none where only memory is asked about
        capability = cards[self.run.devices[device].gpu].compute_capability if cards else None
        found = gpu_overhead(self.engine, self.model, self.spec, self.placement, device, capability)
        growth += expert_cache(self.model, self.flags, self.placement, device)
        return Estimate(found.low + growth, found.expected + growth, found.high + growth)
