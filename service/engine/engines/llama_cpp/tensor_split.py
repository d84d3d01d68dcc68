"""Memory with llama.cpp's `-sm tensor`: all cards are one to the scheduler, each has its slice of what is stored."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from service.engine.engines.llama_cpp.slices import Slices
from service.engine.estimate import Estimate
from service.engine.memory.cache import cache_tensors
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.graph import CUDA_ALIGNMENT
from service.engine.memory.predict import MemoryPrediction
from service.engine.memory.scheduler import SchedulerOptions
from service.engine.run.placement import ROPE_FACTORS
from service.engine.run.resolved import ResolvedRun
from service.engine.units import MIB, pad

_EXCHANGE_BYTES = 32 * MIB


def predict_tensor_split(run: ResolvedRun) -> Memory:
    """Return the memory of every card and of RAM. Raises InvalidFlags."""
    model, free = run.model, run.free
    flags = msgspec.structs.replace(run.flags, split_mode="layer", tensor_split=(), flash_attn="on")
    one = msgspec.structs.replace(run.devices[0], free=sum(free))
    together = msgspec.structs.replace(run, devices=(one,)).with_flags(flags)
    prediction = _Sliced(together)
    memory = prediction.memory()
    devices = prediction.on_cards(memory.devices, Slices(model, len(free), run.flags.tensor_split))
    unsliced = model.recurrent is not None and not model.recurrent.state_size
    basis = "approximate" if unsliced else memory.basis
    return msgspec.structs.replace(memory, devices=devices, placement=run.placement, basis=basis)


class _Sliced(MemoryPrediction):
    """A model on cards that the scheduler sees as one, which takes no work on weights in RAM and fuses no kernels."""

    def _options(self, *, few_tokens: bool = False, as_loaded: bool = False) -> SchedulerOptions:
        return replace(super()._options(few_tokens=few_tokens), offload=False, fused=False)

    def on_cards(self, together: tuple[DeviceBytes, ...], slices: Slices) -> tuple[DeviceBytes, ...]:
        """Return the bytes on each card, and in RAM, of what all cards hold together."""
        one, ram = together
        weights, kv = self._sliced_weights(slices), self._sliced_caches(slices)
        cards = (
            msgspec.structs.replace(one, weights=w, kv=k, overhead=self._with_exchange(one.overhead, len(kv)))
            for w, k in zip(weights, kv, strict=True)
        )
        return (*cards, ram)

    def _sliced_weights(self, slices: Slices) -> list[int]:
        shared = sum(pad(t.nbytes, CUDA_ALIGNMENT) for t in self.model.tensors if t.name in ROPE_FACTORS)
        total = [shared if 0 in self.ropes else 0] * slices.n_cards
        for name, device in self.placement.tensors.items():
            if device == 0 and name not in ROPE_FACTORS:
                total = [a + b for a, b in zip(total, slices.weight(name), strict=True)]
        return total

    def _sliced_caches(self, slices: Slices) -> list[int]:
        total = [0] * slices.n_cards
        for layer, device in enumerate(self.placement.caches):
            if device == 0:
                facts = self.model.layers[layer]
                parts = slices.cache(facts, cache_tensors(self.model, self.spec, facts))
                total = [a + b for a, b in zip(total, parts, strict=True)]
        return total

    def _with_exchange(self, overhead: Estimate, n_cards: int) -> Estimate:
        """Two cards add up their results in a buffer of 32 MiB each (ggml-cuda/allreduce.cu:242), or by NCCL."""
        if n_cards != 2 or not self.cuda:
            return overhead
        low, expected, high = (n + _EXCHANGE_BYTES for n in (overhead.low, overhead.expected, overhead.high))
        return Estimate(low, expected, high, overhead.basis)
