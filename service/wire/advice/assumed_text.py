"""What was assumed, as people say it: `RAM = 64 GB`, and what to write to state it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.engine.hardware import Assumption, Gpu
from service.engine.measured.identity import short_name
from service.wire.advice.advice import Fact

# By the last part of the path: the name, the unit of the value, and what states it; {card} is the GPU's name.
_NAMES = {
    "total_gb": ("RAM", " GB", "128GB"),
    "mts": ("RAM speed", " MT/s", "DDR5-5600"),
    "channels": ("RAM channels", "", "DDR5-5600 x2"),
    "cpu": ("CPU", "", "Ryzen 9 7950X"),
    "ghz": ("CPU clock", " GHz", ""),
    "gpus": ("GPUs", "", "2x RTX 3090"),
    "vram_gib": ("VRAM of the {card}", " GiB", "{card} 12GB"),
    "pcie": ("PCIe link of the {card}", "", "{card} PCIe 4.0 x16"),
    "bandwidth_gbs": ("memory bandwidth of the {card}", " GB/s", ""),
    "fp16_tflops": ("FP16 throughput of the {card}", " TFLOPS", ""),
    "name": ("name of the {card}", "", ""),
    "context": ("context", " tokens", ""),
    "depth": ("depth", " tokens", ""),
    "engines": ("build of the engine", "", ""),
}


def fact_of(one: Assumption, gpus: Sequence[Gpu]) -> Fact:
    """Return an assumption with its name and unit in words; `gpus`: those of the request, empty where not at hand."""
    last = one.field.rpartition(".")[2]
    name, unit, say = _NAMES.get(last, (last.replace("_", " "), "", ""))
    number = re.search(r"gpus\[(\d+)\]", one.field)
    index = int(number[1]) if number else 0
    card = short_name(gpus[index].name) if index < len(gpus) else f"GPU {index + 1}" if index else "GPU"
    if "{card}" in say and index >= len(gpus):
        say = ""  # an example has a real name
    value = f"{one.value}{unit}" if re.fullmatch(r"[\d.,]+", one.value) else one.value
    return Fact(name=name.format(card=card), value=value, why=one.why, changes=one.matters, say=say.format(card=card))


def fact_words(fact: Fact) -> str:
    """Return one line about what was assumed."""
    say = f"; to state it, write for example `{fact.say}`" if fact.say else ""
    return f"assumed: {fact.name} = {fact.value} ({fact.why}); affects {fact.changes}{say}"
