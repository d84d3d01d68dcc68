"""llama.cpp's `-sm tensor`: the memory of every card, by its slice of every weight and cache.

All cards are one device to the scheduler; a tensor is cut along one axis in steps that keep heads and blocks whole, or
is on every card. Source: llama.cpp src/llama-model.cpp:377-885 (llama_meta_device_get_split_state),
ggml/src/ggml-backend-meta.cpp:1180.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import lcm, prod
from typing import NamedTuple

import msgspec

from service.engine.engines.llama_cpp import ARCHITECTURES
from service.engine.estimate import Estimate
from service.engine.layers import Layer
from service.engine.memory.cache import CacheTensor, cache_tensors
from service.engine.memory.device_shares import f32
from service.engine.memory.figures import DeviceBytes, Memory
from service.engine.memory.graph import CUDA_ALIGNMENT, Shape, contiguous_bytes, cuda_row_padding, geometry
from service.engine.memory.predict import MemoryPrediction
from service.engine.memory.scheduler import SchedulerOptions
from service.engine.model import Model, Recurrent
from service.engine.run.placement import ROPE_FACTORS
from service.engine.run.resolved import ResolvedRun
from service.engine.tensor_names import layer_of
from service.engine.units import MIB, pad

_STEP = 128  # elements that slices are rounded to where it does not leave a card without any
_OUTPUT, _SSM_OUT = "attn_output.weight", "ssm_out.weight"
_DOWN = ("ffn_down.weight", "ffn_down_exps.weight")


class _Part(NamedTuple):
    """A run of elements along the axis, cut in steps of `step`; it is there `times` times, each cut alike."""

    length: int
    step: int
    times: int = 1


class _Cut(NamedTuple):
    """How a tensor is cut: along `axis`, part by part."""

    axis: int
    parts: tuple[_Part, ...]


class Slices:
    """The slices of one model on `n_cards`, as `-ts` shares them (equally where it is not given)."""

    def __init__(self, model: Model, n_cards: int, tensor_split: Sequence[float]) -> None:
        self.model, self.n_cards = model, n_cards
        shares = [*tensor_split, *[0.0] * n_cards][:n_cards]
        self.shares = shares if any(shares) else []
        self.gated = model.architecture == "qwen3next"  # attn_q has a gate next to each head's query
        self._known: dict[tuple[str, tuple[int, ...], _Cut | None, int], list[int]] = {}
        self._rotations = self._count_alike()

    def weight(self, name: str) -> list[int]:
        """Return the bytes that each card's buffer reserves for the weight `name` (`output.weight` where tied)."""
        tensor = self.model.by_name.get(name) or self.model.by_name["token_embd.weight"]
        layer = layer_of(tensor.name)
        cut = self._weight_cut(tensor.name, layer, tensor.dims)
        return self._reserved(tensor.type, tensor.dims, cut, self._rotation(layer))

    def cache(self, layer: Layer, tensors: Sequence[CacheTensor]) -> list[int]:
        """Return the bytes of the layer's cache on each card."""
        cuts = self._cache_cuts(layer, tensors) if tensors else []
        rotation = self._rotation(layer.index)
        found = [self._reserved(t.kind, t.ne, cut, rotation) for t, cut in zip(tensors, cuts, strict=True)]
        return [sum(parts) for parts in zip(*found, strict=True)] if found else [0] * self.n_cards

    def _reserved(self, kind: str, dims: tuple[int, ...], cut: _Cut | None, rotation: int) -> list[int]:
        key = kind, dims, cut, rotation
        if key not in self._known:
            self._known[key] = self._bytes_of_slices(*key)
        return self._known[key]

    def _bytes_of_slices(self, kind: str, dims: tuple[int, ...], cut: _Cut | None, rotation: int) -> list[int]:
        shapes = [dims] * self.n_cards
        if cut is not None:
            lengths = self._lengths(cut.parts, rotation)
            shapes = [(*dims[: cut.axis], n, *dims[cut.axis + 1 :]) for n in lengths]
        return [_buffer_bytes(kind, shape) for shape in shapes]

    def _lengths(self, parts: Sequence[_Part], rotation: int) -> list[int]:
        n, lengths = self.n_cards, [0] * self.n_cards
        for part in parts:
            low = 0
            for j in range(n):
                last = j == n - 1
                high = part.length if last else self._boundary(part.length, j, rotation) // part.step * part.step
                lengths[(j + rotation) % n] += (high - low) * part.times
                low = high
        return lengths

    def _boundary(self, length: int, j: int, rotation: int) -> int:
        if not self.shares:
            return length * (j + 1) // self.n_cards
        running: list[float] = []
        for i in range(self.n_cards):
            share = f32(self.shares[(i + rotation) % self.n_cards])
            running.append(f32(running[-1] + share) if running else share)
        return int(f32(f32(f32(length) * running[j]) / running[-1]))

    def _rotation(self, index: int | None) -> int:
        """Each layer starts with another card, counted among the layers of its kind."""
        if index is None:
            return (self.model.n_layer - self.model.n_layer_nextn) % self.n_cards
        return self._rotations[index] % self.n_cards

    def _count_alike(self) -> list[int]:
        """For each layer, how many of its kind are before it."""
        seen: Counter[tuple[str, bool]] = Counter()
        before = []
        for layer in self.model.layers:
            kind = layer.kind, bool(layer.n_swa)
            before.append(seen[kind])
            seen[kind] += 1
        return before

    def _block(self, layer: int, *parts: str) -> int:
        names = (f"blk.{layer}.{part}" for part in parts)
        tensor = next((self.model.by_name[name] for name in names if name in self.model.by_name), None)
        return 1 if tensor is None else geometry(tensor.type)[0]

    def _weight_cut(self, name: str, index: int | None, dims: tuple[int, ...]) -> _Cut | None:
        """How a weight is cut, None for one that every card has."""
        if index is None:
            return _Cut(1, (_Part(dims[1], 1),)) if name == "output.weight" else None
        part = name.split(".", 2)[2]
        if part.startswith("ffn_"):
            match = re.fullmatch(r"ffn_(up|gate|gate_up|down)(_exps)?\.(weight|bias)", part)
            if match is None or (match[3] == "bias" and match[1] in ("down", "gate_up")):
                return None
            axis = 0 if match[1] == "down" or match[3] == "bias" else 1
            step = lcm(self._block(index, *_DOWN), _STEP)
            both = match[1] == "gate_up" or (match[1] == "up" and self._holds_gate(index, dims[axis]))
            return _Cut(axis, (_Part(dims[axis] // 2, step, 2) if both else _Part(dims[axis], step),))
        layer = self.model.layers[index]
        return self._recurrent_cut(part, layer) if layer.kind == "recurrent" else self._attention_cut(part, layer, dims)

    def _holds_gate(self, index: int, n: int) -> bool:
        """Phi-3 and others keep the gate in the same tensor."""
        alone = f"blk.{index}.ffn_gate.weight" not in self.model.by_name
        return alone and n == 2 * self.model.int_value("feed_forward_length")

    def _steps(self, layer: Layer) -> tuple[int, int, int, int]:
        """Elements of Q, K and V, and heads, that stay together: the heads of a KV head, and whole blocks."""
        group = layer.n_head // max(1, layer.n_head_kv)
        together, block = group * layer.head_dim_k, self._block(layer.index, _OUTPUT, _SSM_OUT)
        while block < _STEP and block * self.n_cards < together:
            block *= 2
        step = lcm(together, block)
        heads_kv = step // group // layer.head_dim_k
        return step, heads_kv * layer.head_dim_k, heads_kv * layer.head_dim_v, step // layer.head_dim_k

    def _attention_cut(self, part: str, layer: Layer, dims: tuple[int, ...]) -> _Cut | None:
        queries, keys, values, heads = self._steps(layer)
        if self.gated:
            queries = lcm(2 * (layer.n_head // max(1, layer.n_head_kv)) * layer.head_dim_k, queries)
        name, axis = part.removesuffix(".weight").removesuffix(".bias"), 0 if part.endswith(".bias") else 1
        if name == "attn_qkv":
            return _Cut(axis, self._fused_parts(layer, queries, keys, values))
        if name in ("attn_q_norm", "attn_k_norm"):
            return None if len(dims) == 1 or dims[1] == 1 else _Cut(1, (_Part(dims[1], 1),))
        if part in ("attn_output.weight", "attn_sinks.weight"):
            return _Cut(0, (_Part(dims[0], heads if name == "attn_sinks" else heads * layer.head_dim_v),))
        if name == "attn_gate":
            return _Cut(1, (_Part(dims[1], heads if dims[1] == layer.n_head else queries),))
        steps = {"attn_q": queries, "attn_k": keys, "attn_v": values}
        return _Cut(axis, (_Part(dims[axis], steps[name]),)) if name in steps else None

    def _fused_parts(self, layer: Layer, queries: int, keys: int, values: int) -> tuple[_Part, ...]:
        n_q, n_k = layer.n_head * layer.head_dim_k, layer.n_head_kv * layer.head_dim_k
        n_v = layer.n_head_kv * layer.head_dim_v
        first = _Part(2 * n_q if self.gated else n_q, queries)
        return (first, _Part(n_k, keys, 2)) if n_k == n_v else (first, _Part(n_k, keys), _Part(n_v, values))

    def _recurrent_cut(self, part: str, layer: Layer) -> _Cut | None:
        r = self.model.recurrent
        if r is None or not r.state_size:  # a short convolution has no heads to deal out
            return None
        step, key, value = self._state_step(layer, r), r.state_size * r.group_count, r.state_size * r.time_step_rank
        heads = step // r.state_size
        mixed, split = (_Part(key, step, 2), _Part(value, step)), (_Part(value, step),)
        each = (_Part(r.time_step_rank, heads),)
        cuts = {
            "attn_qkv.weight": _Cut(1, mixed), "ssm_conv1d.weight": _Cut(1, mixed), "attn_gate.weight": _Cut(1, split),
            "ssm_out.weight": _Cut(0, split), "ssm_dt.bias": _Cut(0, each), "ssm_a": _Cut(0, each),
            "ssm_alpha.weight": _Cut(1, each), "ssm_beta.weight": _Cut(1, each),
            "ssm_ba.weight": _Cut(1, (_Part(2 * r.time_step_rank, 2 * heads),)),
        }  # fmt: skip
        return cuts.get(part)

    def _state_step(self, layer: Layer, r: Recurrent) -> int:
        return lcm(self._block(layer.index, _SSM_OUT), _STEP, r.state_size)

    def _cache_cuts(self, layer: Layer, tensors: Sequence[CacheTensor]) -> list[_Cut | None]:
        r = self.model.recurrent
        if self.model.architecture in ARCHITECTURES.having("unknown_slices"):
            return [None] * len(tensors)
        if layer.kind != "recurrent" or r is None:
            _, keys, values, _ = self._steps(layer)
            return [_Cut(0, (_Part(t.ne[0], step),)) for t, step in zip(tensors, (keys, values), strict=False)]
        if not r.state_size:
            return [None] * len(tensors)
        step, past = self._state_step(layer, r), r.conv_kernel - 1
        key, value = r.state_size * r.group_count * past, r.state_size * r.time_step_rank * past
        mixed = (_Part(key, step * past, 2), _Part(value, step * past))
        return [_Cut(0, mixed), _Cut(0, (_Part(tensors[1].ne[0], step * r.state_size),))]


def _buffer_bytes(kind: str, dims: tuple[int, ...]) -> int:
    shape: Shape = (*dims, 1, 1, 1)[:4]  # type: ignore[assignment]
    n_bytes = contiguous_bytes(kind, shape) if prod(shape) else 0
    return pad(n_bytes + cuda_row_padding(kind, shape[0]), CUDA_ALIGNMENT)


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
    unknown = model.architecture in ARCHITECTURES.having("unknown_slices")
    basis = "approximate" if unsliced or unknown else memory.basis
    return msgspec.structs.replace(memory, devices=devices, placement=run.placement, basis=basis)


class _Sliced(MemoryPrediction):
    """A model on cards that the scheduler sees as one, which takes no work on weights in RAM and fuses no kernels."""

    def _options(self, *, few_tokens: bool = False, as_loaded: bool = False) -> SchedulerOptions:
        return replace(super()._options(few_tokens=few_tokens), offload=False, fused=False)

    def on_cards(self, together: tuple[DeviceBytes, ...], slices: Slices) -> tuple[DeviceBytes, ...]:
        """Return the bytes on each card, and in RAM, of what all cards hold together."""
        one, ram = together
        shared = sum(pad(t.nbytes, CUDA_ALIGNMENT) for t in self.model.tensors if t.name in ROPE_FACTORS)
        total = [shared if 0 in self.ropes else 0] * slices.n_cards
        for name, device in self.placement.tensors.items():
            if device == 0 and name not in ROPE_FACTORS:
                total = [a + b for a, b in zip(total, slices.weight(name), strict=True)]
        kv = self._sliced_caches(slices)
        cards = (
            msgspec.structs.replace(one, weights=w, kv=k, overhead=self._with_exchange(one.overhead, len(kv)))
            for w, k in zip(total, kv, strict=True)
        )
        return (*cards, ram)

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
