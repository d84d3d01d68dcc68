"""Where ik_llama.cpp puts layers, and what `-ot`, `-cmoe` and `-ncmoe` move.

Sources: src/llama-load-tensors.cpp:262-486, src/llama.cpp:7752-7764, common/common.cpp:2167-2186.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.builds import MemoryRules
from service.engine.config import Flags
from service.engine.engines.ik_llama_cpp.layers import split_layers, with_cpu_layers
from service.engine.memory import device_shares
from service.engine.memory.device_shares import f32
from service.engine.model import Model
from service.engine.run.overrides import overridden

_CPU_MOE = re.compile(r"ffn_(up|down|gate|gate_up)_exps\.(weight|scale)")
_WEIGHTS_ONLY = re.compile(r"ffn_(up|down|gate|gate_up)_exps\.weight")  # where each device gives up some (line 347)


def place_layers(
    model: Model, flags: Flags, free: Sequence[int], rules: MemoryRules
) -> tuple[list[int], dict[str, int]]:  # fmt: skip
    """Return the device of each layer and, last, of the head; and of each tensor that a flag moves."""
    cpu = len(free)
    if not free or flags.n_gpu_layers <= 0:
        return [cpu] * (model.n_layer + 1), {}
    if rules.layers_by_bytes:
        walked = split_layers(model, flags, free, rules)
    else:
        walked = device_shares.split_layers(model, flags, free, head_first=False)
    moved = _cpu_experts(model, flags, walked, cpu, rules) | overridden(model, flags.overrides, cpu)
    return with_cpu_layers(walked, model, flags, cpu), moved


def _cpu_experts(
    model: Model, flags: Flags, walked: Sequence[int], cpu: int, rules: MemoryRules
) -> dict[str, int]:  # fmt: skip
    """`-cmoe` and `-ncmoe`: the last N layers with experts, or, with `-sm layer`, each device's share of N.

    Older builds: blocks 0 to N-1 (also with several GPUs), or with one GPU only.
    """
    n = 999 if flags.cpu_moe else flags.n_cpu_moe
    if not n:
        return {}
    moved = _CPU_MOE
    if rules.expert_layers == "first" or (rules.expert_layers != "last" and (cpu == 1 or n >= model.n_layer)):
        layers = list(range(min(n, model.n_layer)))
    elif cpu == 1 or n >= model.n_layer or flags.split_mode in ("graph", "attn"):
        layers = [i for i in range(model.n_layer - model.n_layer_nextn) if model.layers[i].moe][-n:]
    else:
        moved = _WEIGHTS_ONLY
        layers = _share_of_each_device(walked[: model.n_layer], n, cpu)
    names = (t.name for i in layers for t in model.by_layer[i])
    return {name: cpu for name in names if moved.match(name.split(".", 2)[2])}


def _share_of_each_device(walked: Sequence[int], n: int, n_devices: int) -> list[int]:
    """src/llama-load-tensors.cpp:269-354: round(N * layers / n_layer) of each, corrected to sum N."""
    counts = [walked.count(d) for d in range(n_devices)]
    exact = [count * n / len(walked) for count in counts]
    quota = [int(f32(f32(count / len(walked)) * n) + 0.5) for count in counts]
    while sum(quota) > n:
        quota[max((d for d in range(n_devices) if quota[d]), key=lambda d: quota[d] - 1 - exact[d])] -= 1
    while sum(quota) < n:
        quota[min((d for d in range(n_devices) if quota[d] < counts[d]), key=lambda d: quota[d] + 1 - exact[d])] += 1
    layers = []
    for i in range(len(walked) - 1, -1, -1):
        if quota[walked[i]] > 0:
            quota[walked[i]] -= 1
            layers.append(i)
    return layers
