"""What every part of a model costs on every device, in seconds of one request of the goal.

The predicted time is linear in where things are, but for the CPU's overlap of reading and computing, which depends on
the mix of types alone. So the cost of moving a part is the difference that it makes to the whole request, taken once
for each kind of block and device from the speed functions that `check` uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from service.engine.config import Flags, Override, Placement
from service.engine.model import Model
from service.engine.planner.pricing.blocks import Block
from service.engine.planner.pricing.fit import Problem
from service.engine.speed.machine import Machine
from service.engine.speed.predict import TimedRequest, request_of
from service.engine.speed.sums import weights_of, work_of
from service.engine.speed.work import Attention, Weights, Work

_WITH_RULES = (Override("exps", "CPU"),)  # any rule: with one, ik_llama.cpp pins weights in RAM, and copies them faster


class Costs(msgspec.Struct, frozen=True):
    """Seconds of one request. `base`: everything fixed on the first card, all pieces in RAM.

    By kind of block and device: `fixed` (what stays with the attention, and the cache, against the first card) and
    `pieces` (each piece on the device against RAM). `head` by device, against the first card. `host_change`,
    `card_change` and `host_layer` (a block with weights in RAM): what one more of them costs. `away_change`: what a
    change between cards counts as where a piece would leave its attention's card. Published runs leave its cost open
    by a factor of two, and some were slower with pieces on a second card: it has to pay at the upper end.
    """

    base: float
    fixed: tuple[tuple[float, ...], ...]
    pieces: tuple[tuple[tuple[float, ...], ...], ...]
    head: tuple[float, ...]
    host_change: float
    card_change: float
    away_change: float
    host_layer: float


def costs_of(problem: Problem, flags: Flags, blocks: Sequence[Block]) -> Costs:
    """Return the costs of `flags`, whose `-ot` rules and `-ts` do not matter here, for all kinds of `blocks`."""
    n_devices = len(problem.devices)
    placement = _everything_on_the_first(problem.model, blocks, n_devices)
    moved = replace(flags, overrides=_WITH_RULES)
    work = work_of(problem.run(moved, placement))
    request = request_of(problem.rig, problem.devices, flags, problem.goal)
    base = request.seconds(work)
    kinds: dict[int, Block] = {}
    for block in blocks:
        kinds.setdefault(block.kind, block)
    parts = _Parts(problem, work, request, base)
    card_change = request.seconds(replace(work, card_changes=work.card_changes + 1)) - base
    ordered, alike = [kinds[kind] for kind in sorted(kinds)], _alike(request.machine)
    return Costs(
        base=base,
        fixed=tuple(_by_card(alike, partial(parts.fixed, block)) for block in ordered),
        pieces=tuple(
            tuple(_by_card(alike, partial(parts.moved, piece.names, n_devices)) for piece in block.pieces)
            for block in ordered
        ),
        head=_by_card(alike, partial(parts.moved, ("output.weight", "output_norm.weight"), 0)),
        host_change=request.seconds(replace(work, host_changes=work.host_changes + 1)) - base,
        card_change=card_change,
        away_change=card_change * math.exp(problem.rig.calibration.parameters["change.card"].spread),
        host_layer=request.seconds(replace(work, host_layers=work.host_layers + 1)) - base,
    )


def _alike(machine: Machine) -> list[int]:
    """For each card the first one on which a part costs the same: one with the same rates that has nothing yet.

    That is not the first card, which has everything, nor may another one have the weights that are copied for batches.
    """
    kinds = machine.kinds
    return [d if d == 0 or machine.first else kinds.index(kind, 1) for d, kind in enumerate(kinds)]


def _by_card(alike: Sequence[int], cost: Callable[[int], float]) -> tuple[float, ...]:
    found = {card: cost(card) for card in dict.fromkeys(alike)}
    return tuple(found[card] for card in alike)


def _everything_on_the_first(model: Model, blocks: Sequence[Block], n_devices: int) -> Placement:
    away = {name for block in blocks for piece in (*block.pieces, *block.ram_only) for name in piece.names}
    running = len(blocks)
    tensors = {t.name: n_devices if t.name in away else 0 for t in model.tensors if ".nextn." not in t.name}
    tensors["token_embd.weight"] = n_devices
    tensors.setdefault("output.weight", 0)
    caches = (0,) * running + (None,) * (model.n_layer - running)
    return Placement(n_devices, tensors, (0,) * model.n_layer, caches, 0)


class _Parts:
    """The seconds that moving a part adds to the request."""

    def __init__(self, problem: Problem, work: Work, request: TimedRequest, base: float) -> None:
        self.problem, self.work, self.request, self.base = problem, work, request, base

    def moved(self, names: Sequence[str], source: int, target: int) -> float:
        """Return what tensors cost more on `target` than on `source`."""
        if source == target:
            return 0.0
        return self.request.seconds(self._with(self._weights(names, source, target))) - self.base

    def fixed(self, block: Block, target: int) -> float:
        """Return what the fixed part of a block, its cache and its state cost more on a card than on the first."""
        if target == 0:
            return 0.0
        work = self._with(self._weights(block.fixed, 0, target))
        work = _with_attention(work, self.work.attention, self._attention(block), target)
        return self.request.seconds(self._with_state(work, block, target)) - self.base

    def _weights(self, names: Sequence[str], source: int, target: int) -> list[Weights]:
        """The weights of tensors, negative on the device that they leave."""
        return [
            replace(w, n_bytes=sign * w.n_bytes, n_elements=sign * w.n_elements, n_tensors=sign * w.n_tensors)
            for device, sign in ((source, -1), (target, 1))
            for w in weights_of(self.problem.model, names, device, self.work)
        ]

    def _with(self, more: list[Weights]) -> Work:
        return replace(self.work, weights=(*self.work.weights, *more))

    def _attention(self, block: Block) -> Attention | None:
        layer = self.problem.model.layers[block.index]
        if not layer.attends:
            return None
        same = (a for a in self.work.attention if (a.n_head, a.n_head_kv, a.head_dim_k, a.head_dim_v, a.n_swa) == (
            layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.head_dim_v, layer.n_swa))  # fmt: skip
        return next(same, None)

    def _with_state(self, work: Work, block: Block, target: int) -> Work:
        state, r = list(work.state_bytes), self.problem.model.recurrent
        if r is not None and self.problem.model.layers[block.index].recurs:
            size = 4 * (r.n_conv + r.n_state)
            state[0], state[target] = state[0] - size, state[target] + size
        return replace(work, state_bytes=tuple(state))


def _with_attention(work: Work, attention: Sequence[Attention], one: Attention | None, target: int) -> Work:
    if one is None:
        return work
    rest = [replace(a, count=a.count - 1) if a == one else a for a in attention]
    return replace(work, attention=(*rest, replace(one, device=target, count=1)))
