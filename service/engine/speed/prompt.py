"""Seconds of one micro-batch of a prompt: matrix products, copies of weights from RAM, attention, launches.

Nothing overlaps: the published runs show none (but for the CPU, which reads while it computes).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from service.engine.calibration import Coefficients
from service.engine.engines import engine_spec
from service.engine.speed.attention import batch_form, batch_operations, cache_bytes, heads_a_kv_head, visible
from service.engine.speed.generation import link_seconds, own_coefficient
from service.engine.speed.machine import CUDA_KERNELS, CardRate, CpuRate, Machine
from service.engine.speed.tensor_parallel import attention_ways, cards_seconds, is_by_rows, reduction_seconds
from service.engine.speed.work import Attention, Seconds, Weights, Work, no_time, overlap, time_of_type

_CYCLE_WEIGHTS = 8
_CYCLE_OPERATIONS = 128
_FP4 = ("mxfp4", "nvfp4")  # on Blackwell in its own units
_WMMA = ("rdna3", "rdna3.5")
_MATRIX_UNITS = (*_WMMA, "rdna4")
_WMMA_HEAD = 128  # values: attention of longer heads does without RDNA's matrix units (llama.cpp pull request 26419)
_SMALL_HEAD = 64  # values: kernels are made for 128
_BATCH_OVERLAP = 1.5  # reading and computing of a batch on a CPU overlap less than those of a token (fitted form)
_IN_AND_OUT = 5  # bytes: an activation goes into a product in 8 bits and comes out in f32
_EXPERT_TENSORS = 3  # up, gate and down: the loop over experts is counted once a layer


class MicroBatch:
    """One micro-batch of `n_tokens`. What does not depend on the depth is worked out once."""

    def __init__(self, work: Work, machine: Machine, p: Coefficients, n_tokens: int) -> None:
        self.work, self.machine, self.p, self.n_tokens = work, machine, p, n_tokens
        self._copied = False  # whether any weights in RAM are copied to a card
        self._products = self._multiply()
        self._attending = [_AttendingLayers.of(self, layer) for layer in work.attention]

    def seconds(self, n_kv: int) -> Seconds:
        work, machine, p, n_tokens, parts = self.work, self.machine, self.p, self.n_tokens, dict(self._products)
        self._attend(parts, n_kv)
        parts["attention"] += _states(work, machine, p, n_tokens)
        waiting, sending = reduction_seconds(work, machine, p, n_tokens)
        parts["copies over PCIe"] += sending
        parts["synchronisation"] += waiting
        _overheads(parts, work, machine, p, n_tokens, self._copied)
        return parts

    def _multiply(self) -> Seconds:
        work, machine, p, n_tokens = self.work, self.machine, self.p, self.n_tokens
        parts, in_ram, multiplying = no_time(), _InRam(), [0.0] * (work.n_devices + 1)
        known: dict[tuple[object, ...], float] = {}
        of_experts, loop = hit_share(work, n_tokens), _expert_loop(work, p)
        for weights in work.weights:
            if weights.use == "head":
                continue
            device, hit = weights.device, of_experts if weights.use == "expert" else 1.0
            if device == work.n_devices and weights.is_copied(n_tokens):
                device, self._copied = machine.first, True
            if weights.stored != device:
                parts["copies over PCIe"] += _crossing(work, machine, weights, device, p, n_tokens)
            if device == work.n_devices:
                in_ram.add(work, weights, machine.batch_cpu, p, n_tokens, hit)
            else:
                card = machine.cards[device]
                key = weights.type, weights.use, weights.interleaved, weights.fused, machine.kinds[device]
                if key not in known:
                    known[key] = _times_of_multiplying(work, weights, card, p)
                multiplying[device] += _multiply_on_card(work, weights, card, p, n_tokens, hit, known[key])
                if weights.use == "expert" and card.backend in CUDA_KERNELS:
                    parts["launch overhead"] += weights.n_tensors * work.n_expert * hit * loop / _EXPERT_TENSORS
        parts["weights on GPU"] = cards_seconds(work, multiplying)
        parts["experts in RAM"], parts["other weights in RAM"] = in_ram.seconds(machine.batch_cpu)
        return parts

    def _attend(self, parts: Seconds, n_kv: int) -> None:
        work, machine, n_tokens = self.work, self.machine, self.n_tokens
        by_card = [0.0] * (work.n_devices + 1)
        for layer, device, is_copied, rate in self._attending:
            if is_copied:
                card = machine.cards[min(device, layer.device)]
                n_bytes = cache_bytes(work, layer, n_kv + 0.75 * n_tokens)
                parts["copies over PCIe"] += n_bytes * card.copy / card.link
            operations = batch_operations(work, layer, n_tokens, n_kv)
            if device < work.n_devices:
                by_card[device] += operations * rate
                by_card[device] += _scores(work, layer, machine.cards[device], self.p, n_tokens, n_kv)
            else:
                parts["attention"] += operations * rate
        parts["attention"] += cards_seconds(work, by_card, attention_ways(work))

    def attends_on(self, layer: Attention) -> int:
        """Return the device on which a layer attends: the first GPU if its weights in RAM are copied, with its
        cache, or that which fetches the cache."""
        if layer.fetched_to is not None:
            return layer.fetched_to
        copied = self._copied and 0 < layer.copied_from <= self.n_tokens
        return self.machine.first if copied and layer.device == self.work.n_devices else layer.device


class _AttendingLayers(NamedTuple):
    """Layers of one geometry, the device on which they attend, and the seconds of one operation there.

    `is_copied`: their cache is copied to it.
    """

    layer: Attention
    device: int
    is_copied: bool
    rate: float

    @classmethod
    def of(cls, batch: MicroBatch, layer: Attention) -> _AttendingLayers:
        work, machine, device = batch.work, batch.machine, batch.attends_on(layer)
        if device < work.n_devices:
            rate = _card_attention(work, layer, machine.cards[device], batch.p)
        else:
            rate = _cpu_attention(work, machine.batch_cpu, batch.p)
        return cls(layer, device, device != layer.device, rate)


def batch_seconds(work: Work, machine: Machine, p: Coefficients, n_tokens: int, n_kv: int) -> Seconds:
    """Return the seconds of one micro-batch of `n_tokens` that starts at depth `n_kv`, by part."""
    return MicroBatch(work, machine, p, n_tokens).seconds(n_kv)


def hit_share(work: Work, n_tokens: float) -> float:
    """Return the expected share of the experts that a batch uses, with uniform routing."""
    return float(1 - (1 - work.share) ** n_tokens)


def _crossing(work: Work, machine: Machine, weights: Weights, device: int, p: Coefficients, n_tokens: int) -> float:
    """Return the seconds in which weights reach the device that computes with them, from elsewhere."""
    if weights.device == weights.stored == work.n_devices:
        return _copy(work, machine, weights, p, n_tokens)
    return link_seconds(work, machine, weights.stored, device, weights.n_bytes) * machine.first_card.copy


def _copy(work: Work, machine: Machine, weights: Weights, p: Coefficients, n_tokens: int) -> float:
    """Only experts that the batch uses are copied (ik_llama.cpp pull request 698; llama.cpp pull request 15346)."""
    some = weights.use == "expert" and work.rules.copies.used_only
    share = hit_share(work, n_tokens ** p["copy.hit_exponent"]) if some else 1.0
    multiple = machine.first_card.copy
    if work.rules.interleaves:
        multiple *= p["copy.repacked"]
    elif not work.rules.copies.pinned:
        multiple *= p["copy.pageable"]
    if machine.windows:
        multiple *= p["copy.windows"]
    return weights.n_bytes * share * multiple / machine.first_card.link


def _times_of_multiplying(work: Work, weights: Weights, card: CardRate, p: Coefficients) -> float:
    """Return the factor over ideal time that a card takes to multiply a batch with weights of a kind."""
    multiple = card.matmul * (1.0 if card.emulated else _of_type(work, weights, card, p))
    if is_by_rows(work):
        multiple *= p["row.matmul"]
    if weights.use == "expert":
        multiple *= card.matmul_expert * own_coefficient(work, p, "gpu_matmul.expert")
        if engine_spec(work.engine).memory.fuses_up_and_gate and not weights.fused:
            multiple *= p["gpu_matmul.unfused"]
    return multiple


def _multiply_on_card(
    work: Work, weights: Weights, card: CardRate, p: Coefficients, n_tokens: int, hit: float, multiple: float
) -> float:  # fmt: skip
    operations = 2.0 * weights.n_elements * n_tokens
    seconds = weights.n_bytes * hit * card.read / card.bandwidth
    if weights.use == "expert":
        operations *= work.share
        seconds += 2 * weights.n_elements * hit * p["expert_rows"] * card.matmul / card.operations
    return seconds + operations * multiple / card.operations


def _of_type(work: Work, weights: Weights, card: CardRate, p: Coefficients) -> float:
    """Return how much slower than its ideal int8 kernels a card multiplies weights of a type, in builds of the day."""
    generation = "" if weights.type in _FP4 and "native_fp4" in work.lacks else card.generation
    by_type = time_of_type(work.engine, card.backend, generation, weights.type)
    multiple = p.get(f"gpu_matmul.{weights.quant}", 1.0) if by_type is None else by_type
    for kind in (card.backend, f"{card.backend}.{card.generation}"):
        multiple *= p.get(f"gpu_matmul.{weights.quant}.{kind}", 1.0)
    multiple *= own_coefficient(work, p, "gpu_matmul")
    multiple *= own_coefficient(work, p, "gpu_matmul", f".{card.backend}.{card.generation}")
    return multiple * _old_matmul(work, weights, card, p)


def _old_matmul(work: Work, weights: Weights, card: CardRate, p: Coefficients) -> float:
    """Return how much slower older builds multiply a batch on a card: each change is of one back end's kernels."""
    multiple = 1.0
    if card.backend == "vulkan" and "vulkan_attention" in work.lacks:
        multiple *= p["before.vulkan_batches"]
    if card.backend == "rocm" and card.generation in _WMMA and "wmma_batches" in work.lacks:
        multiple *= p["before.wmma_batches"]
    if card.backend not in CUDA_KERNELS:
        return multiple
    if "quantised_batches" in work.lacks:
        multiple *= p["before.quantised_batches"]
    if weights.interleaved and "interleaved_batches" in work.lacks:
        multiple *= p["before.interleaved_batches"]
    if weights.use == "expert":
        late = "expert_batches" if "expert_batches" in work.lacks else "expert_tiles"
        multiple *= p[f"before.{late}"] if late in work.lacks else 1.0
    return multiple


def _expert_loop(work: Work, p: Coefficients) -> float:
    """Return the seconds of starting kernels for one expert that the batch hits, after those for the one before it."""
    loop = p["expert_loop"] * own_coefficient(work, p, "expert_loop")
    return loop * (p["before.expert_loop"] if "expert_batches" in work.lacks else 1.0)


class _InRam(msgspec.Struct):
    """The CPU's share of a micro-batch, summed: bytes read and seconds of computing, for experts and other weights."""

    expert_bytes: float = 0.0
    other_bytes: float = 0.0
    expert_computing: float = 0.0
    other_computing: float = 0.0

    def add(self, work: Work, weights: Weights, cpu: CpuRate, p: Coefficients, n_tokens: int, hit: float) -> None:
        used = work.share if weights.use == "expert" else 1.0
        own = engine_spec(work.engine).speed
        operations = 2.0 * weights.n_elements * used * n_tokens
        seconds = (
            operations * cpu.matmul * own.cpu_matmul(work, weights, cpu.family, p) / (cpu.cycles * _CYCLE_OPERATIONS)
        )
        if cpu.kind == "zen5" and "zen5_batches" in work.lacks:
            seconds *= p["before.zen5_batches"]
        unpack = p["cpu_unpack"] * cpu.matmul * (p["cpu_unpack.kt"] if weights.quant == "kt" else 1.0)
        unpack *= own_coefficient(work, p, "cpu_matmul")
        seconds += weights.n_elements * hit * unpack / (cpu.cycles * _CYCLE_WEIGHTS)
        if cpu.two_sockets:
            seconds *= p["cpu_matmul.two_sockets"]
        activations = _activation_bytes(work, weights, n_tokens) * p["cpu_activations"]
        if weights.use == "expert":
            self.expert_bytes += weights.n_bytes * hit + activations
            self.expert_computing += seconds
        else:
            self.other_bytes += weights.n_bytes + activations
            self.other_computing += seconds

    def seconds(self, cpu: CpuRate) -> tuple[float, float]:
        reads = (self.expert_bytes * cpu.read_batch, self.other_bytes * cpu.read_batch)
        total = overlap(sum(reads), self.expert_computing + self.other_computing, _BATCH_OVERLAP)
        experts, others = reads[0] + self.expert_computing, reads[1] + self.other_computing
        whole = experts + others
        return (total * experts / whole, total * others / whole) if whole else (0.0, 0.0)


def _activation_bytes(work: Work, weights: Weights, n_tokens: int) -> float:
    """Return the bytes of inputs and outputs of a batch's products, each counted once, as if matrices were square."""
    experts, used = (work.n_expert, work.n_expert_used) if weights.use == "expert" else (1, 1)
    sides = math.sqrt(weights.n_elements * weights.n_tensors / experts)  # of all its tensors, added up
    return n_tokens * used * sides * _IN_AND_OUT


def _states(work: Work, machine: Machine, p: Coefficients, n_tokens: int) -> float:
    """Return the seconds in which recurrent layers take up a batch: every token changes the state."""
    if not work.recurrent:
        return 0.0
    old = p["before.recurrent"] if "recurrent_kernels" in work.lacks else 1.0
    in_ram = work.state_bytes[-1] * p["recurrent_batch.cpu"] / machine.batch_cpu.bandwidth
    if work.delta_bytes and "fused_delta_net" in work.lacks:
        name = "before.recurrent_batch.cpu"
        in_ram *= p[name] * own_coefficient(work, p, name)
    else:
        in_ram *= old
    seconds = 0.0
    for n_bytes, card in zip(work.state_bytes, machine.cards, strict=False):
        own = p.get(f"recurrent_batch.{card.backend}", 1.0)
        seconds += n_bytes * p["recurrent_batch"] * own / card.bandwidth
    return (seconds * old + in_ram) * n_tokens


def _card_attention(work: Work, layer: Attention, card: CardRate, p: Coefficients) -> float:
    """Seconds an operation of attention on a card."""
    multiple = card.attention
    if "flash_attention" in work.lacks:
        multiple *= p["before.flash_attention_batch"]
    elif "batch_attention" not in work.lacks:
        multiple *= own_coefficient(work, p, "gpu_attention")
    if heads_a_kv_head(work, layer) not in (1, 2, 4, 8, 16):
        multiple *= p["gpu_attention.odd_ratio"]
    if "vulkan_attention" in work.lacks and card.backend == "vulkan":
        multiple *= p["before.vulkan_attention"]
    wmma = "wmma_attention" not in work.lacks and layer.head_dim_k <= _WMMA_HEAD
    if card.backend == "rocm" and card.generation in _MATRIX_UNITS and not wmma:
        multiple *= p["gpu_attention.no_wmma"]
    if layer.head_dim_k <= _SMALL_HEAD:
        multiple *= p["gpu_attention.small_heads"]
    if not work.flash:
        multiple *= p["gpu_attention.no_flash"]
    form = batch_form(work)
    if form != "heads":
        multiple *= p[f"gpu_attention.{form}"]
    return multiple / (card.operations / 2)


def _scores(work: Work, layer: Attention, card: CardRate, p: Coefficients, n_tokens: int, n_kv: int) -> float:
    """Return the seconds in which scores are written and read back (f32) where flash attention does not keep them."""
    if work.flash:
        return 0.0
    n_bytes = 4.0 * layer.count * layer.n_head * n_tokens * visible(layer, n_kv + 0.75 * n_tokens, n_tokens)
    return n_bytes * p["gpu_attention.scores"] / card.bandwidth


def _cpu_attention(work: Work, cpu: CpuRate, p: Coefficients) -> float:
    """Seconds an operation of attention on the CPU."""
    multiple = p["cpu_attention"] * cpu.matmul * cpu.attention
    for own in engine_spec(work.engine).speed.cpu_attention(work, p):
        multiple *= own
    if cpu.two_sockets:
        multiple *= p["cpu_matmul.two_sockets"]
    form = batch_form(work)
    if form != "heads":
        multiple *= p[f"cpu_attention.{form}"]
    return multiple / (cpu.cycles * _CYCLE_OPERATIONS)


def _overheads(parts: Seconds, work: Work, machine: Machine, p: Coefficients, n_tokens: int, copied: bool) -> None:
    n_layer = work.gpu_layers or (work.n_layer if copied else 0)
    parts["launch overhead"] += n_layer * p["prompt_layer"] * (machine.first_card.launch if machine.cards else 1.0)
    if copied:
        parts["synchronisation"] += max(work.host_layers, 1) * p["copy.layer"]
    else:
        parts["synchronisation"] += work.host_layers * p["cpu_prompt_layer"]
    if work.host_changes and machine.cards:
        n_bytes = work.host_changes * n_tokens * work.n_embd * 4
        parts["copies over PCIe"] += n_bytes * p["activations"] / machine.first_card.link
