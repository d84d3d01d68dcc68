"""Where every tensor and cache is, from the flags alone. How layers are divided is the engine's (`placement.py`)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.builds import TODAY, MemoryRules
from service.engine.config import Engine, Flags, Placement
from service.engine.engines import engine_spec
from service.engine.errors import InvalidFlags
from service.engine.kept import kept
from service.engine.model import Model
from service.engine.run.overrides import overridden
from service.engine.run.settings import loads_next_tokens
from service.engine.tensor_names import layer_of

ROPE_FACTORS = frozenset({"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"})
_INPUTS = ("token_embd.", "per_layer_token_embd.", "position_embd.", "token_types.")
_INPUT_NORM, _OUTPUT_NORM = "token_embd_norm.weight", "output_norm.weight"


def place(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules = TODAY
) -> Placement:  # fmt: skip
    """Return the device of every tensor, layer and cache. `free`: bytes free on each GPU, in the engine's order.

    `cpu_moe` and `n_cpu_moe` are read as if they stood after all `overrides`: in llama.cpp the order on the command
    line decides, in ik_llama.cpp they always come last. With `-sm none` everything is on the main GPU; modes that
    split tensors are placed by layer. `rules`: those of the build. Raises InvalidFlags for patterns or devices that the
    engine would refuse.
    """
    memory = engine_spec(engine).memory
    refused = memory.split_refused(model, flags) if free else None
    if refused is not None:
        raise InvalidFlags(refused, field="-sm", choices=("layer",))
    if flags.split_mode == "none" and len(free) > 1:
        return _on_one_device(engine, model, flags, free, rules)
    layers, moved = memory.place_layers(model, flags, free, rules)
    return _assemble(engine, model, flags, layers, moved, len(free))


def _on_one_device(
    engine: Engine, model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> Placement:  # fmt: skip
    n, main = len(free), flags.main_gpu or 0
    if not 0 <= main < n:
        raise InvalidFlags(f"-mg {main}, but the GPUs are numbered 0 to {n - 1}", field="main_gpu")
    alone = replace(flags, overrides=(), tensor_split=())
    memory = engine_spec(engine).memory
    layers, moved = memory.place_layers(model, alone, [free[main]], rules)
    asked = {} if memory.ignores_overrides(flags) else overridden(model, flags.overrides, n)
    moved = {name: n if device else main for name, device in moved.items()} | asked
    return _assemble(engine, model, flags, [n if device else main for device in layers], moved, n)


def _assemble(
    engine: Engine, model: Model, flags: Flags, layers: list[int], rules: dict[str, int], n_devices: int
) -> Placement:
    memory, next_tokens = engine_spec(engine).memory, loads_next_tokens(flags)
    where, places = [*layers, n_devices], _places(model, engine, next_tokens)
    tensors = dict(zip(places, map(where.__getitem__, places.values()), strict=True))
    for name in rules.keys() & tensors.keys():
        if not (memory.inputs_stay_in_ram and _is_input(model, name)):
            tensors[name] = rules[name]
    if model.tied:
        tensors["output.weight"] = rules.get("token_embd.weight", layers[-1])
    caches = tuple(
        None
        if layer.kind == "nextn" and not (next_tokens and memory.caches_next_tokens)
        else n_devices
        if flags.no_kv_offload
        else layers[layer.index]
        for layer in model.layers
    )
    return Placement(n_devices, tensors, tuple(layers[:-1]), caches, layers[-1])


def _is_input(model: Model, name: str) -> bool:
    """LFM2's output norm carries the name of other models' input norm (llama.cpp src/llama-arch.cpp:442)."""
    return name.startswith(_INPUTS) or (name == _INPUT_NORM and _OUTPUT_NORM in model.by_name)


@kept
def _places(model: Model, engine: Engine, next_tokens: bool) -> dict[str, int]:
    """For each tensor that is loaded the layer whose device it follows: the one after all for the head, and after that
    the CPU. No flag but drafting changes it."""
    memory, found = engine_spec(engine).memory, dict[str, int]()
    anyway = memory.loaded_anyway.get(model.architecture)
    loaded = model.n_layer - (0 if next_tokens else model.n_layer_nextn)
    first = memory.on_first_layer | ROPE_FACTORS
    if _OUTPUT_NORM not in model.by_name:
        first -= {_INPUT_NORM}
    for tensor in model.tensors:
        name, layer = tensor.name, layer_of(tensor.name)
        if layer is not None and layer >= loaded and not (anyway and anyway.search(name)):
            continue
        place = model.n_layer + 1 if _is_input(model, name) else model.n_layer if layer is None else layer
        found[name] = 0 if name in first else place
    return found


def rope_devices(engine: Engine, model: Model, flags: Flags, placement: Placement) -> tuple[int, ...]:
    """Return the device of each layer's copy of the rope factors."""
    memory = engine_spec(engine).memory
    n_layer = model.n_layer if memory.rope_factors_for_each == "layer" else model.n_layer - model.n_layer_nextn
    layers = placement.layers[:n_layer]
    if not any(name in model.by_name for name in ROPE_FACTORS) or memory.ignores_overrides(flags):
        return layers
    rules = overridden(model, flags.overrides, placement.n_devices)
    moved = next((rules[name] for name in ROPE_FACTORS if name in rules), None)
    return layers if moved is None else (moved,) * n_layer
