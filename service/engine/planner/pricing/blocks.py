"""The blocks of a model, as they are placed: what stays with the attention, and the pieces that may lie elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec

from service.engine.config import Engine
from service.engine.gguf.header import Tensor
from service.engine.kept import kept
from service.engine.layers import Layer
from service.engine.memory.contents import reserved_bytes
from service.engine.model import Model
from service.engine.planner.pricing.support import runs_on_gpu
from service.engine.tensor_names import role_of

Part: TypeAlias = Literal["up and gate", "down"]


class Piece(msgspec.Struct, frozen=True):
    """Tensors of a block that move together, with their biases and scales. `n_bytes`: what a card reserves for them."""

    part: Part
    names: tuple[str, ...]
    n_bytes: int


class Block(msgspec.Struct, frozen=True):
    """A block: what stays with its attention (`fixed`), and its pieces. Blocks of one `kind` cost the same anywhere.

    `ram_only`: pieces of a type without GPU kernels, which stay in RAM. `fixed_bytes`: what a card reserves for
    `fixed`, without the cache.
    """

    index: int
    kind: int
    fixed: tuple[str, ...]
    fixed_bytes: int
    pieces: tuple[Piece, ...]
    ram_only: tuple[Piece, ...]

    @property
    def movable_bytes(self) -> int:
        return sum(piece.n_bytes for piece in self.pieces)


@kept
def blocks_of(model: Model, engine: Engine) -> tuple[Block, ...]:
    """Return the blocks that run (no next-token layers). Their pieces are routed experts, without any the dense FFN.

    Up and gate are one piece, down is another.
    """
    kinds: dict[object, int] = {}
    return tuple(_block(engine, model, i, kinds) for i in range(model.n_layer - model.n_layer_nextn))


def _block(engine: Engine, model: Model, index: int, kinds: dict[object, int]) -> Block:
    tensors, reserved = model.by_layer[index], reserved_bytes(model)
    role = "expert" if model.moe_layers else "dense_ffn"
    parts: dict[Part, list[Tensor]] = {}
    fixed = []
    for tensor in tensors:
        if role_of(tensor.name) == role:
            parts.setdefault("down" if ".ffn_down" in tensor.name else "up and gate", []).append(tensor)
        else:
            fixed.append(tensor)
    pieces = [
        (Piece(part, tuple(t.name for t in found), sum(reserved[t.name] for t in found)), found)
        for part, found in sorted(parts.items(), reverse=True)
    ]
    able = all(runs_on_gpu(engine, t.type) for _, found in pieces for t in found)
    chosen = tuple(piece for piece, _ in pieces)
    kind = kinds.setdefault(_likeness(model.layers[index], tensors), len(kinds))
    names = tuple(t.name for t in fixed)
    fixed_bytes = sum(reserved[t.name] for t in fixed)
    return Block(index, kind, names, fixed_bytes, chosen if able else (), () if able else chosen)


def _likeness(layer: Layer, tensors: Sequence[Tensor]) -> object:
    """What two blocks must have in common to cost the same: the shape of the layer, and names and shapes of tensors."""
    return (msgspec.structs.replace(layer, index=0), tuple((t.name.split(".", 2)[2], t.type, t.dims) for t in tensors))
