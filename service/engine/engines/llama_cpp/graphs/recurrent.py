"""llama.cpp: how graphs read and write the recurrent states of the sequences in a batch.

Source: llama.cpp src/llama-graph.cpp (build_rs, build_rs_inp_impl).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from service.engine.engines.llama_cpp.graphs.blocks import LlamaGraph
from service.engine.memory.graph import Node
from service.engine.memory.graphs.base import MissingTensor
from service.engine.model import Recurrent


class StateInput(NamedTuple):
    """The rows of this batch's states (`main`), and of those that are only moved (`extra`)."""

    main: Node
    extra: Node

    @property
    def n_seq(self) -> int:
        """Sequences in the batch."""
        return self.main.ne[0]


def state_input(g: LlamaGraph, n_seq: int) -> StateInput:
    """Return the input for a batch of `n_seq` of the cache's sequences."""
    rows = g.input("i32", g.spec.n_seq)
    return StateInput(g.view(rows, (n_seq,)), g.view(rows, (g.spec.n_seq - n_seq,)))


def recurrent_sizes(g: LlamaGraph) -> Recurrent:
    """Return the sizes of the model's states. Raises MissingTensor."""
    if g.model.recurrent is None:
        raise MissingTensor("the sizes of the recurrent state")
    return g.model.recurrent


def read_state(
    g: LlamaGraph, cache: Node, states: StateInput, read: Callable[[Node, Node], Node] | None = None
) -> Node:
    """Clear and read the state of this batch's sequences, by `read(states, rows)` if given, and move the others'."""
    size = cache.ne[0]
    rows = g.reshape(cache, size, cache.ne[1])
    first = g.view(rows, (size,))
    g.expand(g.new("SCALE", "f32", first.ne, first, root=first, nb=first.nb))
    found = (read or g.get_rows)(rows, states.main)
    g.expand(found)
    moved = g.get_rows(rows, states.extra)
    g.expand(g.copy_into(moved, g.view(cache, (size, states.extra.ne[0]), cache.nb[1:2])))
    return found


def write_window(g: LlamaGraph, window: Node, cache: Node, n_last: int) -> None:
    """Keep the last `n_last` inputs of a convolution [inputs, channels, sequences], once for every way back."""
    _, n_mixed, n_seq, _ = window.ne
    for _ in range(1 + g.spec.n_snapshots):
        last = g.view(window, (n_last, n_mixed, n_seq), window.nb[1:3])
        g.expand(g.copy_into(last, g.view(cache, (n_last * n_mixed, n_seq), cache.nb[1:2])))
