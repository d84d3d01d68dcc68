"""A ggml compute graph in miniature: tensors, views, and the order in which an engine runs them.

`GraphBuilder` has the tensor algebra of ggml.c (shapes, strides, which results are views) and `expand`, the order of
ggml_build_forward_expand. `finish` turns the nodes into a `Graph` of plain lists, which the scheduler and the
allocator replay for any placement: the graph itself does not depend on where the weights are.

Sources of what operations may do: ggml/src/ggml-alloc.c (ggml_op_can_inplace) and ggml-backend.cpp (ggml_is_view_op) of
both engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import NamedTuple, TypeAlias

from service.engine.ggml_types import type_named

NONE = "NONE"
VIEW_OPS = frozenset({"VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"})
IN_PLACE = frozenset(
    {"SCALE", "ADD", "ADD_ID", "SUB", "MUL", "DIV", "SQR", "SQRT", "LOG", "UNARY", "ROPE", "RMS_NORM", "SOFT_MAX"}
)
MIN_OFFLOAD_BATCH = 32  # tokens from which weights in RAM are copied to a GPU: both engines' ggml-cuda.cu

Shape: TypeAlias = tuple[int, int, int, int]
_MAX_TENSORS = 600_000  # the largest known graph, one head at a time, has some 150,000
CUDA_ALIGNMENT = 128  # of a tensor in a CUDA buffer, ggml-cuda.cu
_CUDA_ROW_PADDING = 512  # MATRIX_ROW_PADDING, ggml-cuda/common.cuh of both engines


@cache
def geometry(kind: str) -> tuple[int, int, int]:
    """Return (block elements, block bytes, bytes in front of each row) of a type."""
    t = type_named(kind)
    return t.block, t.bytes, t.row_meta_bytes


def row_size(kind: str, n: int) -> int:
    """Return the bytes of `n` elements in a row (ggml_row_size)."""
    block, size, meta = geometry(kind)
    return meta + n // block * size


@cache
def cuda_row_padding(kind: str, n: int) -> int:
    """Return the bytes a CUDA buffer reserves after a quantised tensor with rows of `n` (ggml-cuda.cu:748)."""
    if geometry(kind)[0] == 1 or n % _CUDA_ROW_PADDING == 0:
        return 0
    return row_size(kind, _CUDA_ROW_PADDING - n % _CUDA_ROW_PADDING)


def joined_type(one: str, other: str) -> str:
    """Return the type of a matrix that is made of two at load time (ik llama.cpp:2892-2973, attn_kv_b)."""
    return one if one == other and one in ("f16", "bf16") else "q8_0"


class Slot(NamedTuple):
    """Something that lives outside the arenas: a weight, its per-layer copy (`rope`), or a cache tensor.

    `kind`: weight | derived | rope | cache. `derived`: made at load time from the weight `name`. `layer` is the block
    of a cache or rope copy. `card` holds it where each card has its share, else -1.
    """

    kind: str
    name: str
    layer: int
    card: int = -1


class Node:
    """A tensor of the graph. `root`: the tensor that a view shows a part of. `slot`: index of what is not computed."""

    __slots__ = ("index", "kind", "n_bytes", "nb", "ne", "op", "root", "slot", "src", "visited")

    def __init__(
        self, index: int, op: str, kind: str, ne: Shape, nb: Shape, n_bytes: int, src: list[Node], root: Node | None
    ) -> None:
        self.index, self.op, self.kind, self.ne, self.nb = index, op, kind, ne, nb
        self.n_bytes, self.src, self.root = n_bytes, src, root
        self.slot, self.visited = -1, False


@dataclass(slots=True)
class KeepAlive:
    """Tensors that a fused CUDA kernel keeps until `until` has run; `first` is the pattern's first node."""

    first: int
    until: int
    tensors: tuple[int, ...]


@dataclass(slots=True)
class Graph:
    """A finished graph: lists indexed by tensor, and the nodes and leafs in order.

    `root` is -1 for what is no view; `home` the slot that fixes a tensor's device (its own or its root's), `weight` the
    slot of the first weight among a node's sources, `offloadable` whether a card takes the product with it from RAM,
    `overwrites` the positions of sources that the result may replace.
    `weights`: the weights, and the views of them (without gaps): what `bind` gives the bytes of a model. `padding` and
    `flash_copies`: bytes that a CUDA buffer reserves beyond the tensor. `pins`: (node, layer) that the engine puts on
    the layer's device, `ram_pins` into RAM with `-nkvo`. `without_kernel`: what CUDA cannot compute.
    `norms_at_weights`: norms and products that ik runs where their weight is, with its slot. `stored`: the slots that a
    node reads directly. `flash_layers`: (node, layer) of every flash attention. `layer_starts`: the first tensor of
    each layer, and the first after the last. `on_cards`: (tensor, card) of what ik's `-sm graph` adds up, `starts`:
    nodes that begin a split whatever is before them. `filled_in`: what a sum fills in on cards that had no part of it,
    with the sum.
    """

    op: list[str]
    n_bytes: list[int]
    root: list[int]
    sources: list[tuple[int, ...]]
    overwrites: list[tuple[int, ...]]
    slot: list[int]
    home: list[int]
    weight: list[int]
    offloadable: list[bool]
    padding: list[int]
    slots: list[Slot]
    weights: list[tuple[int, Shape]]
    nodes: list[int]
    leafs: list[int]
    inputs: list[int]
    outputs: frozenset[int]
    pins: list[tuple[int, int]]
    ram_pins: list[int]
    flash_copies: dict[int, tuple[int, int]] = field(default_factory=dict)
    without_kernel: frozenset[int] = frozenset()
    norms_at_weights: list[tuple[int, int, int]] = field(default_factory=list)
    stored: dict[int, tuple[int, ...]] = field(default_factory=dict)
    flash_layers: list[tuple[int, int]] = field(default_factory=list)
    keep_alives: list[KeepAlive] = field(default_factory=list)
    layer_starts: list[int] = field(default_factory=list)
    on_cards: list[tuple[int, int]] = field(default_factory=list)
    starts: frozenset[int] = frozenset()
    filled_in: dict[int, int] = field(default_factory=dict)


def _strides(kind: str, ne: Shape) -> Shape:
    block, size, meta = geometry(kind)
    row = meta + ne[0] // block * size
    return (size, row, row * ne[1], row * ne[1] * ne[2])


def _n_bytes(kind: str, ne: Shape, nb: Shape) -> int:
    if 0 in ne:
        return 0
    block, size, meta = geometry(kind)
    first = size + (ne[0] - 1) * nb[0] if block == 1 else meta + ne[0] // block * size
    return first + (ne[1] - 1) * nb[1] + (ne[2] - 1) * nb[2] + (ne[3] - 1) * nb[3]


@lru_cache(maxsize=4096)
def _without_gaps(kind: str, ne: Shape) -> tuple[Shape, int]:
    """Return strides and bytes of a tensor without gaps."""
    nb = _strides(kind, ne)
    return nb, _n_bytes(kind, ne, nb)


def contiguous_bytes(kind: str, ne: Shape) -> int:
    """Return the bytes of a tensor without gaps (ggml_nbytes)."""
    return _without_gaps(kind, ne)[1]


class GraphTooLarge(Exception):
    """A graph has more tensors than any model's, because a header has absurd counts."""


class GraphBuilder:
    """The tensor algebra of ggml.c. Every method returns a new Node; only `expand` puts nodes into the graph."""

    def __init__(self) -> None:
        self.all: list[Node] = []
        self.nodes: list[Node] = []
        self.leafs: list[Node] = []
        self.slots: list[Slot] = []
        self.inputs: set[int] = set()
        self.outputs: set[int] = set()
        self.pins: list[tuple[int, int]] = []
        self.ram_pins: list[int] = []
        self.reduced: dict[int, list[int]] = {}
        self.starts: set[int] = set()
        self.filled_in: dict[int, int] = {}
        self.layer_starts: list[int] = []

    def new(
        self, op: str, kind: str, ne: tuple[int, ...], *src: Node | None, root: Node | None = None,
        nb: Shape | None = None,
    ) -> Node:  # fmt: skip
        """Return a tensor of type `kind` and shape `ne` (padded with ones); contiguous unless `nb` is given."""
        shape: Shape = (*ne, 1, 1, 1)[:4]  # type: ignore[assignment]
        if nb is None:
            nb, n_bytes = _without_gaps(kind, shape)
        else:
            n_bytes = _n_bytes(kind, shape, nb)
        sources = [s for s in src if s is not None]
        if root is not None and root.root is not None:
            root = root.root
        if len(self.all) >= _MAX_TENSORS:
            raise GraphTooLarge
        node = Node(len(self.all), op, kind, shape, nb, n_bytes, sources, root)
        self.all.append(node)
        return node

    def stored(self, slot: Slot, kind: str, *ne: int) -> Node:
        """Return a weight or cache tensor."""
        node = self.new(NONE, kind, ne)
        node.slot = len(self.slots)
        self.slots.append(slot)
        return node

    def input(self, kind: str, *ne: int) -> Node:
        """Return a tensor that the engine fills on the host before each batch."""
        node = self.new(NONE, kind, ne)
        self.inputs.add(node.index)
        return node

    def output(self, node: Node) -> Node:
        """Mark `node` as an output, which is never freed or overwritten."""
        self.outputs.add(node.index)
        return node

    def pin(self, node: Node, layer: int) -> Node:
        """Ask for `node` to run on the default device of `layer`, whatever its neighbours do."""
        self.pins.append((node.index, layer))
        return node

    def apply(self, op: str, x: Node, *src: Node | None) -> Node:
        """Return `op(x, *src)` of x's shape, in f32."""
        return self.new(op, "f32", x.ne, x, *src)

    def add(self, a: Node, b: Node) -> Node:
        """Return a + b, of the shape and type of a."""
        return self.new("ADD", a.kind, a.ne, a, b)

    def mul(self, a: Node, b: Node) -> Node:
        """Return a times b by element, of the shape and type of a."""
        return self.new("MUL", a.kind, a.ne, a, b)

    def mul_mat(self, w: Node, x: Node) -> Node:
        """Return w·x: [w.ne1, x.ne1, x.ne2, x.ne3]."""
        return self.new("MUL_MAT", "f32", (w.ne[1], x.ne[1], x.ne[2], x.ne[3]), w, x)

    def mul_mat_id(self, w: Node, x: Node, ids: Node) -> Node:
        """Return the product with each token's experts: [w.ne1, used, tokens]."""
        return self.new("MUL_MAT_ID", "f32", (w.ne[1], ids.ne[0], x.ne[2]), w, x, ids)

    def get_rows(self, a: Node, ids: Node) -> Node:
        """Return the rows `ids` of `a`, in f32: [a.ne0, ids.ne0, ids.ne1, ids.ne2]."""
        return self.new("GET_ROWS", "f32", (a.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]), a, ids)

    def concat(self, a: Node, b: Node, dim: int) -> Node:
        """Return `a` with `b` after it in dimension `dim`."""
        ne = list(a.ne)
        ne[dim] += b.ne[dim]
        return self.new("CONCAT", a.kind, tuple(ne), a, b)

    def cont(self, a: Node, *ne: int) -> Node:
        """Return a contiguous copy of `a`, of shape `ne` if given."""
        return self.new("CONT", a.kind, ne or a.ne, a)

    def cast(self, a: Node, kind: str) -> Node:
        """Return `a` in another type. ggml_cast lists the result among its own sources."""
        node = self.new("CPY", kind, a.ne, a)
        node.src.append(node)
        return node

    def copy_into(self, a: Node, target: Node) -> Node:
        """Return the node that writes `a` into `target`, which makes it a view of target's root (ggml_cpy)."""
        return self.new("CPY", target.kind, target.ne, a, target, root=target, nb=target.nb)

    def set_rows(self, target: Node, rows: Node, ids: Node) -> Node:
        """Return the node that writes `rows` into `target`, a view of it (ggml_set_rows)."""
        return self.new("SET_ROWS", target.kind, target.ne, rows, ids, target, root=target, nb=target.nb)

    def reduce(self, parts: dict[int, Node]) -> Node:
        """Return the sum of the parts on the cards that are their keys, in place of the last one (ggml_reduce)."""
        last = parts[max(parts)]
        node = self.new("REDUCE", last.kind, last.ne, *parts.values(), root=last, nb=last.nb)
        self.reduced[node.index] = list(parts)
        self.starts.add(node.index)
        return node

    def reshape(self, a: Node, *ne: int) -> Node:
        return self.new("RESHAPE", a.kind, ne, a, root=a)

    def view(self, a: Node, ne: tuple[int, ...], nb: tuple[int, ...] = ()) -> Node:
        """Return a view of shape `ne`; `nb` are the strides of dimensions 1 and up, contiguous where not given."""
        shape: Shape = (*ne, 1, 1, 1)[:4]  # type: ignore[assignment]
        strides = list(_strides(a.kind, shape))
        for i in range(1, 4):
            if i <= len(nb):
                strides[i] = nb[i - 1]
            elif nb:
                strides[i] = strides[i - 1] * shape[i - 1]
        return self.new("VIEW", a.kind, shape, a, root=a, nb=tuple(strides))  # type: ignore[arg-type]

    def permute(self, a: Node, *axes: int) -> Node:
        """Return `a` with dimension i moved to `axes[i]`."""
        ne, nb = [0] * 4, [0] * 4
        for i, axis in enumerate(axes):
            ne[axis], nb[axis] = a.ne[i], a.nb[i]
        return self.new("PERMUTE", a.kind, tuple(ne), a, root=a, nb=tuple(nb))  # type: ignore[arg-type]

    def swap_heads(self, a: Node) -> Node:
        """Return `a` with dimensions 1 and 2 exchanged."""
        return self.permute(a, 0, 2, 1, 3)

    def transpose(self, a: Node) -> Node:
        """Return a view of `a` with dimensions 0 and 1 exchanged."""
        ne: Shape = (a.ne[1], a.ne[0], a.ne[2], a.ne[3])
        return self.new("TRANSPOSE", a.kind, ne, a, root=a, nb=(a.nb[1], a.nb[0], a.nb[2], a.nb[3]))

    def expand(self, *targets: Node) -> None:
        """Append what `targets` depend on and is not in the graph yet, depth first, sources in order."""
        for target in targets:
            if target.visited:
                continue
            target.visited = True
            stack = [(target, 0)]
            while stack:
                node, i = stack.pop()
                src = node.src
                while i < len(src) and src[i].visited:
                    i += 1
                if i < len(src):
                    src[i].visited = True
                    stack.append((node, i + 1))
                    stack.append((src[i], 0))
                else:
                    (self.leafs if node.op == NONE else self.nodes).append(node)


def is_contiguous(node: Node) -> bool:
    """Return whether the strides of `node` are those of a tensor without gaps."""
    return node.nb == _strides(node.kind, node.ne)


def finish(
    builder: GraphBuilder, *, in_place: Collection[str], offloadable: Callable[[Node], bool],
    weightless: Collection[str] = (),
) -> Graph:  # fmt: skip
    """Return the graph as lists, by an engine's rules.

    `in_place`: operations that may overwrite a source. `offloadable`: whether a card takes an operation whose weight is
    in RAM. `weightless`: operations that are not drawn to where their weights are.
    """
    every, slots = builder.all, builder.slots
    layouts: dict[tuple[str, Shape, Shape], int] = {}
    layout = [layouts.setdefault((n.kind, n.ne, n.nb), len(layouts)) for n in every]
    paddings = [cuda_row_padding(kind, ne[0]) for kind, ne, _ in layouts]
    home = [n.slot if n.root is None else n.root.slot for n in every]
    weight = [-1 if not n.src or n.op in weightless else _weight(n, slots) for n in every]
    return Graph(
        op=[n.op for n in every],
        n_bytes=[n.n_bytes for n in every],
        root=[-1 if n.root is None else n.root.index for n in every],
        sources=[tuple([s.index for s in n.src]) for n in every],
        overwrites=[_overwrites(n, layout) if n.op in in_place else () for n in every],
        slot=[n.slot for n in every],
        home=home,
        weight=weight,
        offloadable=[of >= 0 and offloadable(n) for n, of in zip(every, weight, strict=True)],
        padding=[paddings[of] for of in layout],
        slots=slots,
        weights=[(n.index, n.ne) for n, of in zip(every, home, strict=True) if of >= 0 and slots[of].kind != "cache"],
        nodes=[n.index for n in builder.nodes],
        leafs=[n.index for n in builder.leafs],
        inputs=[n.index for n in builder.leafs if n.index in builder.inputs],
        outputs=frozenset(builder.outputs),
        pins=builder.pins,
        ram_pins=builder.ram_pins,
        stored={n.index: read for n in builder.nodes if (read := tuple([s.slot for s in n.src if s.slot >= 0]))},
        layer_starts=builder.layer_starts,
        starts=frozenset(builder.starts),
        filled_in=builder.filled_in,
    )


def _overwrites(node: Node, layout: list[int]) -> tuple[int, ...]:
    """Sources of the node's own layout; views and weights too, for the copy of one on another device is neither."""
    own = layout[node.index]
    return tuple([i for i, s in enumerate(node.src) if layout[s.index] == own])


def _weight(node: Node, slots: list[Slot]) -> int:
    for s in node.src:
        if s.slot >= 0 and slots[s.slot].kind != "cache":
            return s.slot
    return -1
