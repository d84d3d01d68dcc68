"""The forecast of a candidate, in closed form: the bound by which candidates are pruned before they are placed.

Weights and cache are taken as a liquid that fills the cards, the fastest first, with no layer to keep whole: first what
every token reads, then the FFN that may stay in RAM. Compute buffers are underestimated. So a forecast is optimistic in
speed and in what fits; its seconds come from the speed functions that placements are timed with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from service.engine.config import Device, Engine, Flags, Placement
from service.engine.ggml_types import type_named
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.memory.cache import cache_bytes
from service.engine.memory.least import rough_compute
from service.engine.memory.spec import make_spec
from service.engine.model import Model
from service.engine.planner.pricing.candidate import Candidate, Strategy
from service.engine.planner.pricing.fit import MemoryLimits, Shortfall
from service.engine.planner.pricing.support import runs_on_gpu
from service.engine.run.copies import MIN_BATCH, NEVER
from service.engine.run.resolved import resolve_run
from service.engine.speed.predict import TimedRequest, request_of
from service.engine.speed.sums import parallel_cards, weights_of, work_of
from service.engine.speed.work import Attention, Weights, Work
from service.engine.tensor_names import layer_of, role_of
from service.engine.units import MIB

_CONTEXT = 300 * MIB  # the least that a CUDA context takes (memory/overhead.py)
_NOTHING = 1e-12  # a share so small is a rounding error
_OPTIMISTIC = 0.6  # of the rough compute buffer, which is within some 20 % for nine devices in ten


class Forecast(NamedTuple):
    """At best: the goal's seconds, and TG and PP at its depth; all 0 with a `shortfall`, which says what is missing.

    `idle`: everything fits without one of the cards, so that fewer cards are as fast.
    """

    strategy: Strategy
    seconds: float
    tg: float
    pp: float
    shortfall: Shortfall | None
    idle: bool = False


class Fill(NamedTuple):
    """Shares of what every token reads (`fixed`) and of the FFN (`pieces`) on each card; the rest is in RAM.

    `missing`: the bytes of the first that no card has room for.
    """

    fixed: tuple[float, ...]
    pieces: tuple[float, ...]
    missing: float


class Forecaster:
    """The forecasts of one engine and model on one rig, for one goal. `base`: flags for FFN in RAM, of any batch."""

    def __init__(
        self, engine: Engine, model: Model, rig: Rig, goal: Goal, base: Flags, date: str | None = None
    ) -> None:
        self.engine, self.model, self.rig, self.goal = engine, model, rig, goal
        self.placement, names = _pieces_in_ram(engine, model)
        self._all_on_card = replace(self.placement, tensors=dict.fromkeys(self.placement.tensors, 0))
        self.work = work_of(resolve_run(engine, model, base, rig, (), date, placement=self.placement))
        by_name = model.by_name
        self.piece_bytes = sum(by_name[name].nbytes for name in names)
        ram_only = [t for t in model.tensors if self.placement.tensors.get(t.name) == 1 and t.name not in names]
        self.ram_only_bytes = sum(t.nbytes for t in ram_only)
        embedding = by_name.get("token_embd.weight")
        tied = embedding.nbytes if model.tied and embedding is not None else 0
        on_card = (by_name[name] for name, device in self.placement.tensors.items() if device == 0 and name in by_name)
        self.fixed_bytes = tied + sum(t.nbytes for t in on_card)
        self.pieces = weights_of(model, sorted(names), 1, self.work)
        self.ram_only = weights_of(model, [t.name for t in ram_only], 1, self.work)
        self.fixed = tuple(w for w in self.work.weights if w.device == 0)
        head = [name for name in self.placement.tensors if name.startswith("output")]
        whole = [n for n, device in self.placement.tensors.items() if device == 0 and n not in head]
        self.fixed_in_ram, self.head_in_ram = (weights_of(model, names, 1, self.work) for names in (whole, head))
        self._caches: dict[tuple[str, str], int] = {}
        self._buffers: dict[tuple[int, str, str, int | None], tuple[int, int]] = {}
        self._requests: dict[tuple[Device, ...], TimedRequest] = {}

    def forecast(
        self, candidate: Candidate, devices: Sequence[Device], limits: MemoryLimits, known: Shortfall | None = None
    ) -> Forecast:
        """Return the forecast of a candidate. `known`: what it was found short of with everything on the cards."""
        flags = candidate.flags
        cache = self._cache(flags)
        rooms = self._rooms(flags, devices, limits)
        if known is not None:
            total = min(sum(rooms), self.fixed_bytes + cache + self.piece_bytes)
            rooms = _limited(rooms, total - known.n_bytes)
        fills = self._fills(flags, rooms, cache, devices)
        fill = fills[0]
        in_ram = self.ram_only_bytes + fill.missing + max(1 - sum(fill.pieces), 0.0) * self.piece_bytes
        needed = in_ram + (self._on_cards(fill, cache) if limits.shared else 0)
        short = Shortfall("RAM", int(needed - limits.host)) if needed > limits.host else None
        if (flags.split_mode != "layer" or limits.one_pool) and (in_ram > self.ram_only_bytes + 1 or min(rooms) <= 0):
            short = short or Shortfall(devices[-1].name if devices else "RAM", max(int(in_ram), 1))
        if short is not None:
            return Forecast(_strategy(fill, bool(devices), bool(self.ram_only)), 0.0, 0.0, 0.0, short)
        return min((self._timed(candidate, devices, one) for one in fills), key=lambda one: one.seconds)

    def bytes_on_cards(self, flags: Flags) -> int:
        """Return the bytes of weights and cache where all that can be is on the cards."""
        return self.fixed_bytes + self.piece_bytes + self._cache(flags)

    def _timed(self, candidate: Candidate, devices: Sequence[Device], fill: Fill) -> Forecast:
        strategy = _strategy(fill, bool(devices), bool(self.ram_only))
        work, request = self._work(candidate.flags, fill), self._request(tuple(devices), candidate.flags)
        token = request.token(work)
        full = request.micro_batch(work)
        batch = full.seconds(self.goal.depth)
        copies = devices and candidate.flags.op_offload
        if copies and strategy != "all on GPU" and "op_offload" not in candidate.user_fields:
            alone = request.micro_batch(work.without_copies())
            on_cpu = alone.seconds(self.goal.depth)
            full, batch = min((full, batch), (alone, on_cpu), key=lambda pair: sum(pair[1].values()))
        tg, pp = 1 / sum(token.seconds(self.goal.depth).values()), full.n_tokens / sum(batch.values())
        return Forecast(strategy, request.seconds(full.work, full, token), tg, pp, None, _leaves_one_idle(fill))

    def _request(self, devices: tuple[Device, ...], flags: Flags) -> TimedRequest:
        if devices not in self._requests:
            self._requests[devices] = request_of(self.rig, devices, flags, self.goal)
        return self._requests[devices]

    # -- bytes ---------------------------------------------------------------------------------------------------

    def _cache(self, flags: Flags) -> int:
        key = (flags.cache_type_k, flags.cache_type_v)
        if key not in self._caches:
            spec = make_spec(self.engine, self.model, flags)
            self._caches[key] = sum(cache_bytes(self.model, spec))
        return self._caches[key]

    def _rooms(self, flags: Flags, devices: Sequence[Device], limits: MemoryLimits) -> list[float]:
        """Bytes for weights and cache on each card: without reserve, CUDA context, and an optimistic compute buffer."""
        if not devices:
            return []
        usual, first = self._compute(flags)
        rooms = [d.free - reserve - _CONTEXT - usual for d, reserve in zip(devices, limits.reserve, strict=True)]
        rooms[0] -= first if sum(rooms) < self.piece_bytes + self.fixed_bytes else 0
        return [max(room, 0.0) for room in rooms]

    def _compute(self, flags: Flags) -> tuple[float, float]:
        """Bytes of a card's compute buffer, and those that the first card needs more for weights copied from RAM."""
        key = (flags.n_ubatch, flags.cache_type_k, flags.cache_type_v, flags.n_logits)
        if key not in self._buffers:
            spec = make_spec(self.engine, self.model, flags)
            staged = rough_compute(self.model, spec, self.placement)[0]
            usual = rough_compute(self.model, spec, self._all_on_card)[0]
            self._buffers[key] = (int(usual * _OPTIMISTIC), int(max(staged - usual, 0) * _OPTIMISTIC))
        return self._buffers[key]

    def _fills(self, flags: Flags, rooms: list[float], cache: int, devices: Sequence[Device]) -> list[Fill]:
        """The fills to time: the cards that read fastest first, and those that compute fastest first if these differ.

        Where not all that every token reads fits, and the model has no experts, also as `-ngl` places whole layers;
        where all fits the cards, also by their speed, which lets them work on several micro-batches at once.
        """
        cards, whole = [self.rig.cards[d.gpu] for d in devices], self.fixed_bytes + cache
        if flags.split_mode != "layer":
            return [self._even(rooms, whole, [card.bandwidth_gbs for card in cards])]
        readers = sorted(range(len(cards)), key=lambda i: -cards[i].bandwidth_gbs)
        computers = sorted(range(len(cards)), key=lambda i: -cards[i].int8_tops)
        fills = [self._filled(rooms, whole, list(order)) for order in {tuple(readers): 0, tuple(computers): 0}]
        several = len(cards) > 1 and self.goal.prompt > flags.n_ubatch  # cards, and micro-batches
        if several and self.work.pipeline and _all_on_cards(fills[0]):
            fills.append(self._even(rooms, whole, [card.int8_tops for card in cards]))
        if fills[0].missing > 1 and not self.model.moe_layers:
            fills.append(self._whole_layers(rooms, whole))
        return fills

    def _whole_layers(self, rooms: Sequence[float], whole: int) -> Fill:
        """Layers with all that belongs to them: fewer changes of device than with their FFN in RAM."""
        shares = tuple(room / max(whole + self.piece_bytes, 1) for room in rooms)
        return Fill(shares, shares, max(1 - sum(shares), 0.0) * whole)

    def _filled(self, rooms: list[float], whole: int, order: Sequence[int]) -> Fill:
        fixed, pieces = [0.0] * len(rooms), [0.0] * len(rooms)
        left_fixed, left_pieces = float(whole), float(self.piece_bytes)
        for i in order:
            taken = min(rooms[i], left_fixed)
            fixed[i], left_fixed = taken / max(whole, 1), left_fixed - taken
            more = min(rooms[i] - taken, left_pieces)
            pieces[i], left_pieces = more / max(self.piece_bytes, 1), left_pieces - more
        return Fill(tuple(fixed), tuple(pieces), left_fixed)

    def _even(self, rooms: list[float], whole: int, speeds: Sequence[float]) -> Fill:
        total = whole + self.piece_bytes
        taken = even_shares(rooms, speeds, total)
        shares = tuple(n_bytes / max(total, 1) for n_bytes in taken)
        return Fill(shares, shares, max(total - sum(taken), 0.0))

    def _on_cards(self, fill: Fill, cache: int) -> float:
        return sum(fill.fixed) * (self.fixed_bytes + cache) + sum(fill.pieces) * self.piece_bytes

    # -- work ----------------------------------------------------------------------------------------------------

    def _work(self, flags: Flags, fill: Fill) -> Work:
        """The work with cards filled like this: layers in RAM and changes of device as the shares imply."""
        n = len(fill.fixed)
        on_cards, n_layer = min(sum(fill.fixed), 1.0), self.work.n_layer
        gpu_layers = round(on_cards * n_layer)
        in_ram = 1 - min(sum(fill.pieces), 1.0)
        split_layers = int(in_ram * len(self._ffn_layers()) + 1e-6) if self.pieces else 0
        mixed = max(split_layers - (n_layer - gpu_layers), 0)
        used = sum(share > 0 for share in fill.fixed)
        work = replace(
            self.work,
            n_devices=n,
            weights=(
                *_on_cards(self.fixed, fill.fixed),
                *_rest(self.fixed_in_ram, fill.fixed),
                *_on_cards(self.pieces, fill.pieces),
                *_rest(self.pieces, fill.pieces),
                *_at(self.ram_only if n else (*self.ram_only, *self.head_in_ram), n),
            ),
            attention=_attention(self.work.attention, fill.fixed),
            state_bytes=_states(self.work.state_bytes[0], fill.fixed),
            gpu_layers=gpu_layers,
            host_layers=mixed + n_layer - gpu_layers,
            host_changes=2 * mixed + (gpu_layers < n_layer) if n else 0,
            card_changes=max(used - 1, 0),
            rules=replace(self.work.rules, copies=replace(self.work.rules.copies, pinned=True)),
            unfused_layers=min(self.work.unfused_layers, gpu_layers),
            cache_k=_element(flags.cache_type_k),
            cache_v=_element(flags.cache_type_v),
            split_mode=flags.split_mode,
            parallel_cards=parallel_cards(flags, n),
            n_ubatch=max(min(flags.n_ubatch, flags.n_batch), 1),
        )
        return work if n and flags.op_offload else work.without_copies()

    def _ffn_layers(self) -> Sequence[int]:
        return self.model.moe_layers or range(self.model.n_layer - self.model.n_layer_nextn)


def even_shares(rooms: Sequence[float], speeds: Sequence[float], total: float) -> list[float]:
    """Return what each card takes of `total` so that all are done at the same time, none beyond its room.

    The sum is less than `total` where the rooms are too small.
    """
    taken, open_cards = [0.0] * len(rooms), set(range(len(rooms)))
    left = total
    while open_cards and left > 1:
        speed = sum(speeds[i] for i in open_cards)
        full = {i for i in open_cards if rooms[i] <= left * speeds[i] / speed}
        for i in full or open_cards:
            taken[i] = rooms[i] if full else left * speeds[i] / speed
        left = total - sum(taken)
        open_cards -= full or open_cards
    return taken


def _element(kind: str) -> float:
    return type_named(kind).bpw / 8


def _limited(rooms: Sequence[float], total: float) -> list[float]:
    """The rooms reduced to `total` in sum, those of the last cards first."""
    left, found = max(total, 0.0), []
    for room in rooms:
        found.append(min(room, left))
        left -= found[-1]
    return found


def _pieces_in_ram(engine: Engine, model: Model) -> tuple[Placement, set[str]]:
    """The placement with all FFN in RAM and the rest on one card; and the names of the FFN that can run on a card."""
    role, running = "expert" if model.moe_layers else "dense_ffn", model.n_layer - model.n_layer_nextn
    pieces: set[str] = set()
    away: set[str] = set()
    for tensors in model.by_layer[:running]:
        ffn = [t for t in tensors if role_of(t.name) == role]
        away.update(t.name for t in ffn)
        if all(runs_on_gpu(engine, t.type) for t in ffn):
            pieces.update(t.name for t in ffn)
    loaded = [t.name for t in model.tensors if (layer_of(t.name) or 0) < running]
    where = {name: int(name in away or role_of(name) == "token_embd") for name in loaded}
    where.setdefault("output.weight", 0)
    caches = (0,) * running + (None,) * (model.n_layer - running)
    return Placement(1, where, (0,) * model.n_layer, caches, 0), pieces


def _all_on_cards(fill: Fill) -> bool:
    return bool(fill.pieces) and sum(fill.pieces) >= 1 - 1e-9 and fill.missing <= 1


def _leaves_one_idle(fill: Fill) -> bool:
    """Whether everything is on the cards, and nothing on one of them."""
    shares = [fixed + pieces for fixed, pieces in zip(fill.fixed, fill.pieces, strict=True)]
    return _all_on_cards(fill) and min(shares) <= 0


def _strategy(fill: Fill, gpus: bool, ram_only: bool) -> Strategy:
    if not gpus:
        return "CPU only"
    if fill.missing > 1:
        return "layers in RAM"
    return "all on GPU" if _all_on_cards(fill) and not ram_only else "FFN in RAM"


def _on_cards(weights: Sequence[Weights], shares: Sequence[float]) -> list[Weights]:
    return [_part(w, device, share) for w in weights for device, share in enumerate(shares) if share > _NOTHING]


def _rest(weights: Sequence[Weights], shares: Sequence[float]) -> list[Weights]:
    """What the cards' shares leave in RAM."""
    left = 1 - sum(shares)
    return [_part(w, len(shares), left) for w in weights] if left > _NOTHING else []


def _part(w: Weights, device: int, share: float) -> Weights:
    return replace(
        w,
        device=device,
        stored=device,
        n_bytes=int(w.n_bytes * share),
        n_elements=int(w.n_elements * share),
        n_tensors=int(w.n_tensors * share),
    )


def _at(weights: Sequence[Weights], device: int) -> list[Weights]:
    return [replace(w, device=device, stored=device) for w in weights]


def _attention(layers: Sequence[Attention], shares: Sequence[float]) -> tuple[Attention, ...]:
    """Whole layers by share; the cards take the layers first. Those in RAM attend on a card where copies are made."""
    found = []
    for layer in layers:
        done, summed = 0, 0.0
        for device, share in enumerate(shares):
            summed += share
            upto = min(round(summed * layer.count), layer.count)
            if upto > done:
                found.append(replace(layer, device=device, count=upto - done))
                done = upto
        if done < layer.count:
            found.append(
                replace(layer, device=len(shares), count=layer.count - done, copied_from=MIN_BATCH if shares else NEVER)
            )
    return tuple(found)


def _states(n_bytes: int, shares: Sequence[float]) -> tuple[int, ...]:
    on_cards = [int(n_bytes * share) for share in shares]
    return (*on_cards, n_bytes - sum(on_cards))
