"""Seconds of one micro-batch of a prompt: matrix products, copies of weights from RAM, attention, launches.

Nothing overlaps: the published runs show none (but for the CPU, which reads while it computes).
"""

from __future__ import annotations

import msgspec

from service.engine.speed.attention import batch_form, batch_operations, cache_bytes, heads_a_kv_head
from service.engine.speed.calibration import Coefficients
from service.engine.speed.generation import move_seconds
from service.engine.speed.machine import CardRate, CpuRate, Machine
from service.engine.speed.parts import Seconds, no_time, overlap
from service.engine.speed.together import attention_ways, cards_seconds, reduction_seconds
from service.engine.speed.work import MIN_COPY_TOKENS, Attention, Weights, Work

_CYCLE_WEIGHTS = 8
_CYCLE_OPERATIONS = 128
_EXPERT_TENSORS = 3  # up, gate and down: the loop over experts is counted once a layer


def batch_seconds(work: Work, machine: Machine, p: Coefficients, n_tokens: int, n_kv: int) -> Seconds:
    """Return the seconds of one micro-batch of `n_tokens` that starts at depth `n_kv`, by part."""
    parts, in_ram, multiplying = no_time(), _InRam(), [0.0] * (work.n_devices + 1)
    copied = False
    for weights in work.weights:
        if weights.use == "head":
            continue
        device = weights.device
        if device == work.n_devices and is_copied(work, weights, n_tokens):
            parts["copies over PCIe"] += _copy(work, machine, weights, p, n_tokens)
            device, copied = 0, True
        if device == work.n_devices:
            in_ram.add(work, weights, machine.batch_cpu, p, n_tokens)
        else:
            multiplying[device] += _multiply_on_card(work, weights, machine.cards[device], p, n_tokens)
            parts["launch overhead"] += _expert_loop(work, weights, p, n_tokens)
    parts["weights on GPU"] = cards_seconds(work, multiplying)
    parts["experts in RAM"], parts["other weights in RAM"] = in_ram.seconds(work, machine.batch_cpu, p)
    _attend(parts, work, machine, p, n_tokens, n_kv, moves=copied)
    waiting, sending = reduction_seconds(work, machine, p, n_tokens)
    parts["copies over PCIe"] += move_seconds(work, machine, p) + sending
    parts["synchronisation"] += waiting
    _overheads(parts, work, machine, p, n_tokens, copied)
    return parts


def is_copied(work: Work, weights: Weights, n_tokens: int) -> bool:
    """Return whether a weight in RAM goes to the first GPU for a batch of `n_tokens`."""
    if not (work.copies and weights.movable):
        return False
    return n_tokens >= (work.expert_copy_tokens if weights.use == "expert" else MIN_COPY_TOKENS)


def hit_share(work: Work, weights: Weights, n_tokens: float) -> float:
    """Return the expected share of the experts that a batch uses, with uniform routing (1 for dense weights)."""
    return float(1 - (1 - work.share) ** n_tokens) if weights.use == "expert" else 1.0


def _copy(work: Work, machine: Machine, weights: Weights, p: Coefficients, n_tokens: int) -> float:
    """Only experts that the batch uses are copied (ik_llama.cpp pull request 698; llama.cpp pull request 15346)."""
    share = hit_share(work, weights, n_tokens ** p["copy.hit_exponent"]) if work.active_experts_only else 1.0
    multiple = p["copy"]
    if work.repacked:
        multiple *= p["copy.repacked"]
    elif not work.pinned:
        multiple *= p["copy.pageable"]
    if machine.windows:
        multiple *= p["copy.windows"]
    return weights.n_bytes * share * multiple / machine.cards[0].link


def _multiply_on_card(work: Work, weights: Weights, card: CardRate, p: Coefficients, n_tokens: int) -> float:
    multiple = card.matmul * p.get(f"gpu_matmul.{weights.quant}", 1.0)
    if work.engine == "llama.cpp":
        multiple *= p["gpu_matmul.llama_cpp"]
    if weights.interleaved and "interleaved_batches" in work.lacks:
        multiple *= p["before.interleaved_batches"]
    operations = 2.0 * weights.n_elements * n_tokens
    hit = hit_share(work, weights, n_tokens)
    seconds = weights.n_bytes * hit * card.read / card.bandwidth
    if weights.use == "expert":
        operations *= work.share
        multiple *= p["gpu_matmul.expert"]
        if "expert_batches" in work.lacks:
            multiple *= p["before.expert_batches"]
        if work.engine == "ik_llama.cpp" and not work.fused:
            multiple *= p["gpu_matmul.unfused"]
        seconds += 2 * weights.n_elements * hit * p["expert_rows"] * card.matmul / card.operations
    return seconds + operations * multiple / card.operations


def _expert_loop(work: Work, weights: Weights, p: Coefficients, n_tokens: int) -> float:
    """Return the seconds of starting kernels for every expert that the batch hits, one after the other."""
    if weights.use != "expert":
        return 0.0
    loop = p["expert_loop"] * (p["before.expert_loop"] if "expert_batches" in work.lacks else 1.0)
    return weights.n_tensors * work.n_expert * hit_share(work, weights, n_tokens) * loop / _EXPERT_TENSORS


class _InRam(msgspec.Struct):
    """The CPU's share of a micro-batch, summed: bytes read and seconds of computing, for experts and other weights."""

    expert_bytes: float = 0.0
    other_bytes: float = 0.0
    expert_computing: float = 0.0
    other_computing: float = 0.0

    def add(self, work: Work, weights: Weights, cpu: CpuRate, p: Coefficients, n_tokens: int) -> None:
        """Count weights that the CPU multiplies with a batch."""
        hit = hit_share(work, weights, n_tokens)
        used = work.share if weights.use == "expert" else 1.0
        operations = 2.0 * weights.n_elements * used * n_tokens
        seconds = operations * cpu.matmul * _matmul_kind(work, weights, p) / (cpu.cycles * _CYCLE_OPERATIONS)
        if cpu.kind == "zen5" and "zen5_batches" in work.lacks:
            seconds *= p["before.zen5_batches"]
        unpack = p["cpu_unpack"] * cpu.matmul * (p["cpu_unpack.kt"] if weights.quant == "kt" else 1.0)
        if work.engine == "llama.cpp":
            unpack *= p["cpu_matmul.llama_cpp"]
        seconds += weights.n_elements * hit * unpack / (cpu.cycles * _CYCLE_WEIGHTS)
        if cpu.two_sockets:
            seconds *= p["cpu_matmul.two_sockets"]
        if weights.use == "expert":
            self.expert_bytes += weights.n_bytes * hit
            self.expert_computing += seconds
        else:
            self.other_bytes += weights.n_bytes
            self.other_computing += seconds

    def seconds(self, work: Work, cpu: CpuRate, p: Coefficients) -> tuple[float, float]:
        """Return the CPU's seconds for (experts, other weights)."""
        reads = (self.expert_bytes * cpu.read_batch, self.other_bytes * cpu.read_batch)
        total = overlap(sum(reads), self.expert_computing + self.other_computing)
        experts, others = reads[0] + self.expert_computing, reads[1] + self.other_computing
        whole = experts + others
        return (total * experts / whole, total * others / whole) if whole else (0.0, 0.0)


def _matmul_kind(work: Work, weights: Weights, p: Coefficients) -> float:
    """Return how much slower than interleaved k-quants of ik_llama.cpp the CPU multiplies this kind of weights."""
    if work.engine == "llama.cpp":
        kind = "f" if weights.quant == "f" else "llama_cpp_legacy" if weights.legacy else f"llama_cpp_{weights.quant}"
        multiple = p["cpu_matmul.llama_cpp"] * p.get(f"cpu_matmul.{kind}", p["cpu_matmul.llama_cpp_other"])
        if "cpu_repack" in work.lacks and weights.quant == "k":
            multiple *= p["before.cpu_repack"]
        return multiple * (p["cpu_matmul.expert"] if weights.use == "expert" else 1.0)
    if weights.quant == "f":
        multiple = p["cpu_matmul.f"]
    elif weights.interleaved:
        kind = "iq" if weights.quant == "iq1" else weights.quant
        multiple = p.get(f"cpu_matmul.interleaved_{kind}", 1.0)
    elif "repack_on_the_fly" in work.lacks:
        kind = "legacy" if weights.legacy else "iq" if weights.quant == "iq1" else weights.quant
        multiple = p[f"before.plain_{kind}"]
    else:
        multiple = p["cpu_matmul.plain_kt" if weights.quant == "kt" else "cpu_matmul.plain"]
    if weights.use == "expert":
        return multiple * p["cpu_matmul.expert"]
    return multiple if "repack_on_the_fly" in work.lacks else multiple * p["cpu_matmul.dense"]


def _attend(
    parts: Seconds, work: Work, machine: Machine, p: Coefficients, n_tokens: int, n_kv: int, moves: bool
) -> None:
    """Add attention. Layers in RAM whose weights are copied attend on the first GPU, and their cache goes there too."""
    by_card = [0.0] * (work.n_devices + 1)
    for layer in work.attention:
        device = layer.device
        if device == work.n_devices and layer.movable and moves and work.copies and n_tokens >= MIN_COPY_TOKENS:
            device = 0
            n_bytes = cache_bytes(work, layer, n_kv + 0.75 * n_tokens)
            parts["copies over PCIe"] += n_bytes * p["copy"] / machine.cards[0].link
        operations = batch_operations(work, layer, n_tokens, n_kv)
        if device < work.n_devices:
            by_card[device] += operations * _card_attention(work, layer, machine.cards[device], p)
        else:
            parts["attention"] += operations * _cpu_attention(work, machine.batch_cpu, p)
    parts["attention"] += cards_seconds(work, by_card, attention_ways(work))


def _card_attention(work: Work, layer: Attention, card: CardRate, p: Coefficients) -> float:
    """Seconds an operation of attention on a card."""
    multiple = p["gpu_attention"]
    if work.engine == "llama.cpp":
        multiple *= p["gpu_attention.llama_cpp"]
    elif "flash_attention" in work.lacks:
        multiple *= p["before.flash_attention_batch"]
    elif "batch_attention" not in work.lacks:
        multiple *= p["gpu_attention.ik_llama_cpp"]
    if heads_a_kv_head(work, layer) not in (1, 2, 4, 8, 16):
        multiple *= p["gpu_attention.odd_ratio"]
    if not work.flash:
        multiple *= p["gpu_attention.no_flash"]
    form = batch_form(work)
    if form != "heads":
        multiple *= p[f"gpu_attention.{form}"]
    return multiple / (card.operations / 2)


def _cpu_attention(work: Work, cpu: CpuRate, p: Coefficients) -> float:
    """Seconds an operation of attention on the CPU."""
    multiple = p["cpu_attention"] * cpu.matmul * cpu.attention
    if work.engine == "llama.cpp":
        multiple *= p[f"cpu_attention.llama_cpp{'_flash' if work.flash else ''}"]
    else:
        if "repack_on_the_fly" not in work.lacks:
            multiple *= p["cpu_attention.ik_llama_cpp"]
        if not work.flash:
            multiple *= p["cpu_attention.no_flash"]
    if cpu.two_sockets:
        multiple *= p["cpu_matmul.two_sockets"]
    form = batch_form(work)
    if form != "heads":
        multiple *= p[f"cpu_attention.{form}"]
    return multiple / (cpu.cycles * _CYCLE_OPERATIONS)


def _overheads(parts: Seconds, work: Work, machine: Machine, p: Coefficients, n_tokens: int, copied: bool) -> None:
    n_layer = work.gpu_layers or (work.n_layer if copied else 0)
    parts["launch overhead"] += n_layer * p["prompt_layer"]
    if copied:
        parts["synchronisation"] += max(work.host_layers, 1) * p["copy.layer"]
    else:
        parts["synchronisation"] += work.host_layers * p["cpu_prompt_layer"]
    if work.host_changes and machine.cards:
        n_bytes = work.host_changes * n_tokens * work.n_embd * 4
        parts["copies over PCIe"] += n_bytes * p["activations"] / machine.cards[0].link
