"""Seconds of one generated token: bytes over bandwidth, the cache, launches and changes of device.

Form and values: fitted on published runs (calibration.json); every coefficient is a multiple of ideal time or seconds.
"""

from __future__ import annotations

from service.engine.calibration import Coefficients
from service.engine.engines import engine_spec
from service.engine.speed.attention import (
    Form,
    cache_bytes,
    heads_a_kv_head,
    latent_operations,
    token_form,
    token_operations,
)
from service.engine.speed.machine import CUDA_KERNELS, CardRate, CpuRate, Machine
from service.engine.speed.tensor_parallel import (
    attention_ways,
    cards_seconds,
    is_by_rows,
    is_parallel,
    reduction_seconds,
)
from service.engine.speed.work import Attention, Seconds, Weights, Work, no_time, overlap

_CYCLE_WEIGHTS = 8  # weights a cycle and core, the unit of the fitted coefficients
_CYCLE_OPERATIONS = 16
_LAPTOP_MAX = 400e9  # bytes a second of an M1 Max, to whose launches others are compared


class Token:
    """One generated token. What does not depend on the depth is worked out once."""

    def __init__(self, work: Work, machine: Machine, p: Coefficients) -> None:
        self.work, self.machine, self.p = work, machine, p
        self._parts = parts = no_time()
        parts["weights on GPU"] = cards_seconds(work, self._reading())
        parts["experts in RAM"], parts["other weights in RAM"] = _read_in_ram(work, machine.token_cpu, p)
        waiting, sending = reduction_seconds(work, machine, p, 1)
        parts["copies over PCIe"] = crossing_seconds(work, machine) + sending
        parts["launch overhead"] = p["token"] + _launches(work, machine, p)
        parts["synchronisation"] = _synchronisation(work, machine, p) + waiting

    def seconds(self, n_kv: float) -> Seconds:
        """Return the seconds of one token at depth `n_kv`, by part."""
        work, machine, p, parts = self.work, self.machine, self.p, dict(self._parts)
        attending = [0.0] * (work.n_devices + 1)
        for layer in work.attention:
            device = layer.device if layer.fetched_to is None else layer.fetched_to
            if device != layer.device:
                card = machine.cards[min(device, layer.device)]
                parts["copies over PCIe"] += cache_bytes(work, layer, n_kv) * card.copy / card.link
            if device < work.n_devices:
                attending[device] += _attention_on_card(work, layer, machine.cards[device], p, n_kv)
            else:
                parts["attention"] += _attention_on_cpu(work, layer, machine.token_cpu, p, n_kv)
        parts["attention"] += cards_seconds(work, attending, attention_ways(work)) + _states(work, machine, p)
        return parts

    def _reading(self) -> list[float]:
        """Seconds in which each card reads its weights."""
        work, machine, p = self.work, self.machine, self.p
        seconds, known = [0.0] * (work.n_devices + 1), dict[tuple[str, int], tuple[float, ...]]()
        for weights in work.weights:
            device = weights.device
            if device < work.n_devices:
                key, card = (weights.type, machine.kinds[device]), machine.cards[device]
                if key not in known:
                    known[key] = _times_of_reading(weights, card, p)
                seconds[device] += _read_on_card(work, weights, card, p, known[key])
        return seconds


def token_seconds(work: Work, machine: Machine, p: Coefficients, n_kv: float) -> Seconds:
    """Return the seconds of one token at depth `n_kv`, by part."""
    return Token(work, machine, p).seconds(n_kv)


def _times_of_reading(weights: Weights, card: CardRate, p: Coefficients) -> tuple[float, ...]:
    """Factors by which a card reads weights of a type slower than the common coefficient says."""
    names = (weights.quant, f"{weights.quant}.{card.backend}", f"{weights.type}.{card.backend}")
    return tuple(p.get(f"gpu_read.{name}", 1.0) for name in names)


def _read_on_card(work: Work, weights: Weights, card: CardRate, p: Coefficients, times: tuple[float, ...]) -> float:
    seconds = weights.n_bytes / card.bandwidth * card.read
    for one in times:
        seconds *= one
    if "quantised_batches" in work.lacks and card.backend in CUDA_KERNELS:
        seconds *= p["before.gpu_read"]
    if is_by_rows(work):
        seconds *= p["row.read"]
    if card.emulated:
        seconds = overlap(seconds, weights.n_elements * card.emulated)
    return seconds * work.share * card.read_expert if weights.use == "expert" else seconds


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
    read, dot = read * cpu.crowded, dot * cpu.crowded
    if cpu.windows:
        dot *= p["windows.cpu"] * (p["windows.two_sockets"] if cpu.two_sockets else 1.0)
    read, dot = read * own_coefficient(work, p, "ram_read"), dot * own_coefficient(work, p, "cpu_dot")
    total = overlap(sum(reading) * read, sum(computing) * dot)
    costs = [r * read + c * dot for r, c in zip(reading, computing, strict=True)]
    whole = sum(costs)
    return (total * costs[0] / whole, total * costs[1] / whole) if whole else (0.0, 0.0)


def own_coefficient(work: Work, p: Coefficients, name: str, cards: str = "") -> float:
    """Return the factor by which the engine differs from the common coefficient of this name, 1 if it does not."""
    return p.get(f"{name}.{engine_spec(work.engine).speed.key}{cards}", 1.0)


def _attention_on_card(work: Work, layer: Attention, card: CardRate, p: Coefficients, n_kv: float) -> float:
    form = token_form(work)
    read = card.cache
    ratio = heads_a_kv_head(work, layer)
    if work.cache_k < 1.5:
        read *= p["gpu_cache.quantised_latent"] if work.mla else ratio ** p["gpu_cache.quantised_exponent"]
    read *= p.get(f"gpu_cache.{engine_spec(work.engine).speed.key}_ratio_{ratio}", 1.0)
    if work.lacks:
        read *= _old_cache(work, form, ratio, p)
    latent = p["gpu_latent"] * own_coefficient(work, p, "gpu_latent")
    if "flash_attention_kernels" in work.lacks:
        latent *= p["before.latent"]
    if form == "mla2":
        read, latent = read * p["gpu_cache.mla2"], latent * p["gpu_latent.mla2"]
    operations = latent_operations(work, layer, n_kv)
    return cache_bytes(work, layer, n_kv) / card.bandwidth * read + operations * latent / (card.operations / 2)


def _old_cache(work: Work, form: Form, ratio: int, p: Coefficients) -> float:
    """How much slower older builds read the cache: no reuse in a group, or kernels for 1, 2, 4, 8 and 16 heads only."""
    if "flash_attention_kernels" in work.lacks:
        return p["before.gpu_cache"]
    if "flash_attention" in work.lacks:
        return float(ratio ** p["before.gpu_cache_exponent"]) if form == "heads" else 1.0
    if "odd_head_ratios" in work.lacks and ratio not in (1, 2, 4, 8, 16):
        return p["before.odd_head_ratios"]
    return 1.0


def _attention_on_cpu(work: Work, layer: Attention, cpu: CpuRate, p: Coefficients, n_kv: float) -> float:
    read = p["cpu_cache"] / cpu.bandwidth
    if cpu.two_sockets:
        read *= p["ram_read.two_sockets"]
    compute = p["cpu_attention_token"] * cpu.dot / (cpu.cycles * _CYCLE_OPERATIONS)
    for multiple in engine_spec(work.engine).speed.cpu_attention_token(work, p):
        compute *= multiple
    form = token_form(work)
    if form != "heads":
        compute *= p[f"cpu_attention_token.{form}"]
    return cache_bytes(work, layer, n_kv) * read + token_operations(work, layer, n_kv) * compute


def _states(work: Work, machine: Machine, p: Coefficients) -> float:
    """Recurrent states are read and written whole for every token, those of delta nets in RAM by one thread, too."""
    seconds = work.state_bytes[-1] * p["cpu_cache"] / machine.token_cpu.bandwidth
    for n_bytes, card in zip(work.state_bytes, machine.cards, strict=False):
        seconds += n_bytes * card.cache / card.bandwidth
    return 2 * seconds + _one_thread(work, p)


def _one_thread(work: Work, p: Coefficients) -> float:
    """Return the seconds of one thread with states of delta nets, for which the others wait, however many they are.

    llama.cpp takes a state out of the cache with GET_ROWS, for which ggml_get_n_tasks allows one thread (ggml-cpu.c);
    before GATED_DELTA_NET, its REPEAT, SUM_ROWS and SCALE of whole states had one thread, too.
    """
    seconds = work.delta_bytes * p["cpu_state"] * own_coefficient(work, p, "cpu_state")
    if "fused_delta_net" in work.lacks:
        seconds *= p["before.cpu_state"] * own_coefficient(work, p, "before.cpu_state")
    if "delta_net_copies" in work.lacks:
        seconds *= p["before.cpu_state.copies"]
    return seconds


def crossing_seconds(work: Work, machine: Machine) -> float:
    """Return the seconds of weights that cross to another device for every token."""
    moving = [w for w in work.weights if w.stored != w.device]
    seconds = sum(link_seconds(work, machine, w.stored, w.device, w.n_bytes) for w in moving)
    return seconds * machine.first_card.copy if moving else 0.0


def link_seconds(work: Work, machine: Machine, source: int, target: int, n_bytes: float) -> float:
    """Return the seconds that bytes take from one device to another, at the rate of the slower of their links."""
    return n_bytes / min(machine.cards[d].link for d in (source, target) if d < work.n_devices)


def _launches(work: Work, machine: Machine, p: Coefficients) -> float:
    layer = p["launch.layer"]
    if work.n_expert:
        layer += p["launch.moe"]
    if work.mla:
        layer += p["launch.mla"]
    seconds = work.gpu_layers * layer
    if work.recurrent_layers:
        seconds += work.recurrent_layers * _recurrent_launch(work, machine, p)
    if work.hyper_connections:
        seconds += work.n_layer * _hyper_connections_launch(work, machine, p)
    if engine_spec(work.engine).memory.fuses_up_and_gate:
        seconds += work.unfused_layers * p["launch.unfused"]
    if "moe_graphs" in work.lacks and machine.cards and machine.first_card.backend == "cuda":
        seconds *= p["before.moe_graphs"]
    if machine.cards:
        seconds *= machine.first_card.launch
    return seconds * own_coefficient(work, p, "launch")


def _recurrent_launch(work: Work, machine: Machine, p: Coefficients) -> float:
    """Seconds more a recurrent layer. Its small kernels wait for Apple's chips to finish, the larger ones sooner."""
    seconds = p["launch.recurrent"]
    if "recurrent_kernels" in work.lacks:
        seconds *= p["before.recurrent"]
    elif "recurrent_launches" in work.lacks:
        seconds *= p["before.recurrent_launches"]
    if machine.cards and machine.first_card.backend == "metal":
        seconds *= (_LAPTOP_MAX / machine.first_card.bandwidth) ** p["launch.recurrent_exponent.metal"]
    return seconds


def _hyper_connections_launch(work: Work, machine: Machine, p: Coefficients) -> float:
    """Seconds more a layer with hyper-connections, which were some 300 small operations before they were fused.

    Of layers on the CPU no run is known: they are taken to need as much.
    """
    seconds, backend = p["launch.hyper_connections"], machine.first_card.backend if machine.cards else "cuda"
    if f"hyper_connections_{'cuda' if backend in CUDA_KERNELS else backend}" in work.lacks:
        seconds += p["before.hyper_connections"] * p.get(f"before.hyper_connections.{backend}", 1.0)
    return seconds


def _synchronisation(work: Work, machine: Machine, p: Coefficients) -> float:
    cpu = machine.token_cpu
    threads = (p["cpu_layer"] + p["cpu_layer.thread"] * cpu.cores) * cpu.crowded
    if not machine.cards:
        return work.host_layers * threads
    first = machine.first_card
    change = first.change_host * (p["change.host_windows"] if machine.windows else 1.0)
    between_cards = 0.0 if is_parallel(work) else work.card_changes * first.change
    return work.host_changes * change + between_cards + work.host_layers * threads
