"""Seconds of one generated token: bytes over bandwidth, the cache, launches and changes of device.

Form and values: fitted on published runs (calibration.json); every coefficient is a multiple of ideal time or seconds.
"""

from __future__ import annotations

from service.engine.speed.attention import (
    Form,
    cache_bytes,
    heads_a_kv_head,
    latent_operations,
    token_form,
    token_operations,
)
from service.engine.speed.calibration import Coefficients
from service.engine.speed.machine import CardRate, CpuRate, Machine
from service.engine.speed.parts import Seconds, no_time, overlap
from service.engine.speed.together import attention_ways, cards_seconds, is_together, reduction_seconds
from service.engine.speed.work import Attention, Weights, Work

_CYCLE_WEIGHTS = 8  # weights a cycle and core that the fit counts with
_CYCLE_OPERATIONS = 16


def token_seconds(work: Work, machine: Machine, p: Coefficients, n_kv: float) -> Seconds:
    """Return the seconds of one token at depth `n_kv`, by part."""
    parts, reading, attending = no_time(), [0.0] * (work.n_devices + 1), [0.0] * (work.n_devices + 1)
    for weights in work.weights:
        if weights.device < work.n_devices:
            reading[weights.device] += _read_on_card(work, weights, machine.cards[weights.device], p)
    parts["weights on GPU"] = cards_seconds(work, reading)
    parts["experts in RAM"], parts["other weights in RAM"] = _read_in_ram(work, machine.token_cpu, p)
    for layer in work.attention:
        if layer.device < work.n_devices:
            attending[layer.device] += _attention_on_card(work, layer, machine.cards[layer.device], p, n_kv)
        else:
            parts["attention"] += _attention_on_cpu(work, layer, machine.token_cpu, p, n_kv)
    parts["attention"] += cards_seconds(work, attending, attention_ways(work)) + _states(work, machine, p)
    waiting, sending = reduction_seconds(work, machine, p, 1)
    parts["copies over PCIe"] = move_seconds(work, machine, p) + sending
    parts["launch overhead"] = p["token"] + _launches(work, p)
    parts["synchronisation"] = _synchronisation(work, machine, p) + waiting
    return parts


def _read_on_card(work: Work, weights: Weights, card: CardRate, p: Coefficients) -> float:
    seconds = weights.n_bytes / card.bandwidth * card.read * p.get(f"gpu_read.{weights.quant}", 1.0)
    return seconds * work.share * p["gpu_read.expert"] if weights.use == "expert" else seconds


def _read_in_ram(work: Work, cpu: CpuRate, p: Coefficients) -> tuple[float, float]:
    """Return the CPU's seconds for (experts, other weights): it reads them while it multiplies."""
    reading, computing = [0.0, 0.0], [0.0, 0.0]
    for weights in work.weights:
        if weights.device == work.n_devices:
            other, share = (0, work.share) if weights.use == "expert" else (1, 1.0)
            if weights.interleaved:
                share *= p["ram_read.interleaved"]
            reading[other] += weights.n_bytes * share
            computing[other] += weights.n_elements * share * p[f"cpu_dot.{weights.quant}"]
    read = cpu.read * (p["ram_read.moe"] if work.n_expert else 1.0)
    dot = cpu.dot / (cpu.cycles * _CYCLE_WEIGHTS)
    if cpu.two_sockets:
        dot *= p["cpu_dot.two_sockets"]
    if cpu.windows:
        dot *= p["windows.cpu"] * (p["windows.two_sockets"] if cpu.two_sockets else 1.0)
    if work.engine == "llama.cpp":
        read, dot = read * p["ram_read.llama_cpp"], dot * p["cpu_dot.llama_cpp"]
    total = overlap(sum(reading) * read, sum(computing) * dot)
    costs = [r * read + c * dot for r, c in zip(reading, computing, strict=True)]
    whole = sum(costs)
    return (total * costs[0] / whole, total * costs[1] / whole) if whole else (0.0, 0.0)


def _attention_on_card(work: Work, layer: Attention, card: CardRate, p: Coefficients, n_kv: float) -> float:
    form = token_form(work)
    read = p["gpu_cache"]
    ratio = heads_a_kv_head(work, layer)
    if work.cache_k < 1.5:
        read *= p["gpu_cache.quantised_latent"] if work.mla else ratio ** p["gpu_cache.quantised_exponent"]
    if work.engine == "llama.cpp" and ratio == 12:
        read *= p["gpu_cache.llama_cpp_ratio_12"]
    if work.lacks:
        read *= _old_cache(work, form, ratio, p)
    latent = p["gpu_latent"] * (p["gpu_latent.llama_cpp"] if work.engine == "llama.cpp" else 1.0)
    if work.engine == "llama.cpp" and "flash_attention" in work.lacks:
        latent *= p["before.latent"]
    if form == "mla2":
        read, latent = read * p["gpu_cache.mla2"], latent * p["gpu_latent.mla2"]
    operations = latent_operations(work, layer, n_kv)
    return cache_bytes(work, layer, n_kv) / card.bandwidth * read + operations * latent / (card.operations / 2)


def _old_cache(work: Work, form: Form, ratio: int, p: Coefficients) -> float:
    """How much slower older builds read the cache: no reuse in a group, or kernels for 1, 2, 4, 8 and 16 heads only."""
    if "flash_attention" in work.lacks:
        if work.engine == "llama.cpp":
            return p["before.gpu_cache"]
        return float(ratio ** p["before.gpu_cache_exponent"]) if form == "heads" else 1.0
    if work.engine == "ik_llama.cpp" and "odd_head_ratios" in work.lacks and ratio not in (1, 2, 4, 8, 16):
        return p["before.odd_head_ratios"]
    return 1.0


def _attention_on_cpu(work: Work, layer: Attention, cpu: CpuRate, p: Coefficients, n_kv: float) -> float:
    read = p["cpu_cache"] / cpu.bandwidth
    if cpu.two_sockets:
        read *= p["ram_read.two_sockets"]
    compute = p["cpu_attention_token"] * cpu.dot / (cpu.cycles * _CYCLE_OPERATIONS)
    if work.engine == "llama.cpp":
        compute *= p[f"cpu_attention_token.llama_cpp{'_flash' if work.flash else ''}"]
    elif not work.flash:
        compute *= p["cpu_attention_token.no_flash"]
    form = token_form(work)
    if form != "heads":
        compute *= p[f"cpu_attention_token.{form}"]
    return cache_bytes(work, layer, n_kv) * read + token_operations(work, layer, n_kv) * compute


def _states(work: Work, machine: Machine, p: Coefficients) -> float:
    """Recurrent states are read and written whole for every token."""
    seconds = work.state_bytes[-1] * p["cpu_cache"] / machine.token_cpu.bandwidth
    for n_bytes, card in zip(work.state_bytes, machine.cards, strict=False):
        seconds += n_bytes * p["gpu_cache"] / card.bandwidth
    return 2 * seconds


def move_seconds(work: Work, machine: Machine, p: Coefficients) -> float:
    """Return the seconds of weights that cross between devices at every evaluation, over the slower of their links."""
    seconds = 0.0
    for move in work.moves:
        ends = [machine.cards[d].link for d in (move.source, move.target) if d < work.n_devices]
        seconds += move.n_bytes / min(ends) * p["copy"]
    return seconds


def _launches(work: Work, p: Coefficients) -> float:
    layer = p["launch.layer"]
    if work.n_expert:
        layer += p["launch.moe"]
        if work.engine == "ik_llama.cpp" and not work.fused:
            layer += p["launch.unfused"]
    if work.mla:
        layer += p["launch.mla"]
    if "moe_graphs" in work.lacks:
        layer *= p["before.moe_graphs"]
    return work.gpu_layers * layer * (p["launch.llama_cpp"] if work.engine == "llama.cpp" else 1.0)


def _synchronisation(work: Work, machine: Machine, p: Coefficients) -> float:
    change = p["change.host"] * (p["change.host_windows"] if machine.windows else 1.0)
    threads = p["cpu_layer"] + p["cpu_layer.thread"] * machine.token_cpu.cores
    between_cards = 0.0 if is_together(work) else work.card_changes * p["change.card"]
    return work.host_changes * change + between_cards + work.host_layers * threads
