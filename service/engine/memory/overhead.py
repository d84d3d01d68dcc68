"""GPU memory that no engine prints: the CUDA context, and the pool of temporary buffers.

Sizes: engine_rules 3.8 of the design notes, from ggml-cuda.cu and mmq.cu of both engines; the context is an estimate.
The pool never shrinks, so it is as large as the largest operation needs.
"""

from __future__ import annotations

from math import prod

from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.estimate import Estimate
from service.engine.ggml_types import type_named
from service.engine.hardware import Card
from service.engine.kept import kept
from service.engine.memory.graph import MIN_OFFLOAD_BATCH
from service.engine.memory.spec import GraphSpec
from service.engine.model import Model
from service.engine.run.settings import option_value
from service.engine.tensor_names import role_of
from service.engine.units import MIB, pad

# Context, kernels and cuBLAS of one process, low to high. Of compute capability 9.0 as measured on an H100: 593 MiB
# where nothing used cuBLAS, to 850 with it and what of the pool no formula here has (docs/memory.md).
_CONTEXT = (300 * MIB, 450 * MIB, 600 * MIB)
_HOPPER, _CONTEXT_ON_HOPPER = 9.0, (590 * MIB, 650 * MIB, 850 * MIB)


def free_at_start(card: Card) -> int:
    """Return the bytes of a card that an engine finds free when it starts, of which `-fit` fills all but its margin.

    An amount that is stated is the engine's own. What nvidia-smi shows, as the catalogue's total is, is more by what
    the driver keeps, for which the reserve stands, and by the context: an RTX 4090 of 24,564 MiB has 24,080 for CUDA
    and 23,605 free (llama.cpp pull 22673), a 5090 of 32,607 has 32,109 and 31,588.
    """
    stated = card.free < card.total and card.pci_index is None
    if stated or card.unified or card.backend != "cuda":
        return card.free
    return max(card.free - card.reserve - _context(card.compute_capability)[1], 0)


def _context(capability: float | None) -> tuple[int, int, int]:
    return _CONTEXT_ON_HOPPER if capability == _HOPPER else _CONTEXT


def gpu_overhead(
    engine: Engine, model: Model, spec: GraphSpec, placement: Placement, device: int, capability: float | None
) -> Estimate:
    """Return the bytes beyond the printed buffers on GPU `device` of a compute capability: context and pool."""
    case = (engine, model, spec, placement, device)
    pool = max(_matrix_buffers(*case), _fused_results(*case), _cache_copies(*case))
    low, expected, high = _context(capability)
    return Estimate(low + 0.5 * pool, expected + pool, high + 1.25 * pool)


def expert_cache(model: Model, flags: Flags, placement: Placement, device: int) -> int:
    """Return the bytes of llama.cpp's `--moe-cache-mib` on GPU `device`: divided as the layers are; 0 without experts
    in RAM (tools/server/README.md of October 2026; what it takes beyond the number is not known).
    """
    asked = option_value(flags.other, ("--moe-cache-mib",)) or "0"
    on_cards = [one for one in placement.layers[: model.n_layer] if one != placement.n_devices]
    in_ram = any(placement.tensors.get(name) == placement.n_devices for name in _expert_names(model))
    if not asked.isdecimal() or not in_ram or not on_cards:
        return 0
    return int(asked) * MIB * on_cards.count(device) // len(on_cards)


@kept
def _matrix_shapes(model: Model) -> dict[tuple[str, tuple[int, ...], bool], list[str]]:
    """Names of the matrices by type, shape and whether they are routed experts."""
    found: dict[tuple[str, tuple[int, ...], bool], list[str]] = {}
    for t in model.tensors:
        if len(t.dims) > 1 and t.type != "f32" and role_of(t.name) not in ("token_embd", "nextn"):
            found.setdefault((t.type, t.dims, role_of(t.name) == "expert"), []).append(t.name)
    return found


def _matrix_buffers(engine: Engine, model: Model, spec: GraphSpec, placement: Placement, device: int) -> int:
    """Bytes of the quantised activations, or dequantised weights, of the largest product on the device."""
    largest = 0
    for (kind, dims, expert), names in _matrix_shapes(model).items():
        size = _product_buffer(engine, kind, dims, spec.n_tokens * (model.n_expert_used if expert else 1))
        if size > largest and any(placement.tensors.get(name) == device for name in names):
            largest = size
    return largest


def _product_buffer(engine: Engine, kind: str, dims: tuple[int, ...], rows: int) -> int:
    t = type_named(kind)
    if engine_spec(engine).types.quantised_products(t):
        return rows * pad(dims[0], 512) * 36 // 32
    dequantised = 2 * prod(dims[:2]) if t.block > 1 else 0
    return dequantised + 2 * rows * (dims[0] + dims[1])


def _fused_results(engine: Engine, model: Model, spec: GraphSpec, placement: Placement, device: int) -> int:
    """Bytes of results that a fused up and gate keeps in the pool while it multiplies: both of routed experts, also of
    those copied to GPU 0, and the one of up of others (ik_llama.cpp, ggml-cuda.cu:3235 and 3563)."""
    if not engine_spec(engine).memory.pools_results:
        return 0
    return max(_expert_results(model, spec, placement, device), _dense_result(model, spec, placement, device))


def _dense_result(model: Model, spec: GraphSpec, placement: Placement, device: int) -> int:
    if not spec.rules.fused_dense:
        return 0
    on_card = (name for name in _dense_names(model) if placement.tensors.get(name) == device)
    return 4 * spec.n_tokens * max((model.by_name[name].dims[1] for name in on_card), default=0)


def _expert_results(model: Model, spec: GraphSpec, placement: Placement, device: int) -> int:
    if not model.moe_layers or not spec.fused_moe:
        return 0
    up = next((n for n in _expert_names(model) if placement.tensors.get(n) == device), None)
    if up is None and device == 0 and spec.n_tokens * model.n_expert_used >= MIN_OFFLOAD_BATCH * model.n_expert:
        up = next((n for n in _expert_names(model) if placement.tensors.get(n) == placement.n_devices), None)
    if up is None:
        return 0
    return 2 * 4 * spec.n_tokens * model.n_expert_used * model.by_name[up].dims[1]


@kept
def _dense_names(model: Model) -> list[str]:
    """Up of every layer's dense network whose gate has the same quantised type: only these two are fused."""
    by_name = model.by_name
    ups = (t for t in model.tensors if t.name.endswith("ffn_up.weight") and type_named(t.type).block > 1)
    gates = ((t, by_name.get(t.name.replace("ffn_up", "ffn_gate"))) for t in ups)
    return [up.name for up, gate in gates if gate is not None and gate.type == up.type]


@kept
def _expert_names(model: Model) -> list[str]:
    return [t.name for t in model.tensors if t.name.endswith(("ffn_up_exps.weight", "ffn_gate_up_exps.weight"))]


def _cache_copies(engine: Engine, model: Model, spec: GraphSpec, placement: Placement, device: int) -> int:
    """Bytes of the f16 copy that is made of a quantised cache, a layer at a time; 0 if it is in the compute buffer."""
    if (
        not engine_spec(engine).memory.pools_results
        or not spec.flash_attn
        or (spec.type_k == "f16" and spec.type_v == "f16")
    ):
        return 0
    largest = 0
    for layer, cache in zip(model.layers, placement.caches, strict=True):
        if cache != device or not layer.attends:
            continue
        if model.mla is not None and spec.mla:
            width = model.mla.kv_lora_rank + model.mla.rope if spec.type_k != "f16" else 0
        else:
            width = layer.n_head_kv * (
                layer.head_dim_k * (spec.type_k != "f16") + layer.head_dim_v * (spec.type_v != "f16")
            )
        largest = max(largest, 2 * spec.n_kv * width)
    return largest
