"""What is stored on every device before anything is computed: weights, caches, and copies made when a model is loaded.

The bytes a CUDA buffer reserves, and types without a kernel (ggml_backend_cuda_device_supports_op of both engines'
ggml-cuda.cu, by the type table). Sums over a placement, without a graph: every size is worked out once a model.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from service.engine.architectures import architecture
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.estimate import Estimate
from service.engine.ggml_types import ROW_TABLE, type_named
from service.engine.kept import kept
from service.engine.memory.cache import cache_bytes
from service.engine.memory.graph import CUDA_ALIGNMENT, Slot, cuda_row_padding
from service.engine.memory.overhead import expert_cache, gpu_overhead
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model
from service.engine.run.placement import ROPE_FACTORS, rope_devices
from service.engine.run.resolved import ResolvedRun
from service.engine.units import pad


@kept
def plain_bytes(model: Model) -> dict[str, int]:
    """Return the bytes of each tensor by its name in a placement: a tied head is `output.weight`."""
    return _with_head(model, {t.name: t.nbytes for t in model.tensors})


@kept
def reserved_bytes(model: Model) -> dict[str, int]:
    """Return what a CUDA buffer reserves for each tensor: rows padded to 512, all rounded up to 128 bytes."""
    sizes = {t.name: pad(t.nbytes + cuda_row_padding(t.type, t.dims[0]), CUDA_ALIGNMENT) for t in model.tensors}
    return _with_head(model, sizes)


def _with_head(model: Model, sizes: dict[str, int]) -> dict[str, int]:
    if model.tied and "token_embd.weight" in sizes:
        sizes.setdefault("output.weight", sizes["token_embd.weight"])
    return sizes


@kept
def derived_by_layer(model: Model, engine: Engine, mode: int) -> tuple[int, ...]:
    """Return the bytes of what the engine makes of the tensors of each layer that is loaded, by latent mode."""
    memory = engine_spec(engine).memory
    anyway = memory.loaded_anyway.get(model.architecture)
    layers = range(model.n_layer if anyway else model.n_layer - model.n_layer_nextn)
    return tuple(memory.derived_bytes(model, i, mode) for i in layers)


@kept
def _expert_biases(model: Model) -> list[tuple[str, str, int]]:
    """The name of each expert bias, that of its weight, and its bytes."""
    biases = (t for t in model.tensors if t.name.endswith("_exps.bias"))
    return [(t.name, t.name.removesuffix("bias") + "weight", t.nbytes) for t in biases]


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

    def weights(self) -> list[int]:
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
        n_bytes = sum(tensor.nbytes for name in ROPE_FACTORS if (tensor := self.model.by_name.get(name)) is not None)
        if not n_bytes:
            return
        full_only = architecture(self.model.architecture).rope_factors_of_full_layers
        turning = [d for d, la in zip(self.ropes, self.model.layers, strict=False) if not (full_only and la.n_swa)]
        for device in turning if self.allocates.rope_factors_for_each == "layer" else sorted(set(turning)):
            total[device] += n_bytes

    def _add_duplicated_biases(self, total: list[int]) -> None:
        """Count the copy of an expert's bias that lies next to its weight where an override moved only the weight."""
        tensors = self.placement.tensors
        for name, of_weight, n_bytes in _expert_biases(self.model):
            device = tensors.get(name)
            if device is not None and (weight := tensors.get(of_weight, device)) != device:
                total[weight] += n_bytes

    def _without_kernels(self, older: Sequence[str] = ()) -> set[str]:
        """The types after loading that no GPU multiplies by; `older`: with those that an older build had none for."""
        has_kernels = engine_spec(self.engine).types.gpu_kernels
        return {name for name in self.model.types if name in older or not has_kernels(type_named(name))}

    def stays_in_ram(self, slots: Sequence[Slot]) -> frozenset[int]:
        """Return the indices of the slots with a weight that no GPU can multiply by, so that its product stays in
        RAM."""
        stuck = self._without_kernels(self.spec.rules.only_in_ram) if self.cuda else None
        if not stuck:
            return frozenset()
        tensors = ((i, self.model.by_name.get(slot.name)) for i, slot in enumerate(slots) if slot.kind == "weight")
        return frozenset(i for i, tensor in tensors if tensor is not None and tensor.type in stuck)

    def lacks_kernels(self) -> bool:
        """Return whether a weight on a card is of a type that the engine's CUDA build cannot multiply by."""
        without = self._without_kernels() - {ROW_TABLE} if self.cuda else None
        if not without:
            return False
        on_cards = (name for name, device in self.placement.tensors.items() if device != self.cpu)
        return any(tensor.type in without for name in on_cards if (tensor := self.model.by_name.get(name)))

    def derived(self) -> list[int]:
        """Bytes of the attention matrices that the engine makes when the file lacks them."""
        total = [0] * (self.cpu + 1)
        for layer, n_bytes in enumerate(derived_by_layer(self.model, self.engine, self.spec.mla)):
            source = self.placement.tensors.get(f"blk.{layer}.attn_k_b.weight", self.placement.layers[layer])
            total[source] += n_bytes
        return total

    def caches(self) -> list[int]:
        total = [0] * (self.cpu + 1)
        plain = cache_bytes(self.model, self.spec)
        reserved = cache_bytes(self.model, self.spec, cuda_padding=True) if self.cuda else plain
        for layer, device in enumerate(self.placement.caches):
            if device is not None:
                total[device] += plain[layer] if device == self.cpu else reserved[layer]
        return total

    def overhead(self, device: int, growth: int = 0) -> Estimate:
        """Return what no engine prints; `growth`: what compute takes more once the command's policy holds."""
        if device == self.cpu or not self.cuda:
            return Estimate(growth, growth, growth)
        cards = self.run.rig.cards  # none where only memory is asked about
        capability = cards[self.run.devices[device].gpu].compute_capability if cards else None
        found = gpu_overhead(self.engine, self.model, self.spec, self.placement, device, capability)
        growth += expert_cache(self.model, self.flags, self.placement, device)
        return Estimate(found.low + growth, found.expected + growth, found.high + growth)
