"""The facts of ik_llama.cpp by room, and how fast it is since when."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from service.engine.builds import BuildRules, History, Recorded
from service.engine.engines.ik_llama_cpp import ARCHITECTURES
from service.engine.engines.ik_llama_cpp.commands import IkCommands
from service.engine.engines.ik_llama_cpp.fit import fitted
from service.engine.engines.ik_llama_cpp.memory import IkMemory
from service.engine.engines.spec import EngineSpec, LogFormat, OffloadPolicy, TypeSupport
from service.engine.engines.speed import EngineSpeed, Milestone
from service.engine.speed.work import time_of_type
from service.engine.tables import table_of

if TYPE_CHECKING:
    from service.engine.calibration import Coefficients
    from service.engine.speed.work import Weights, Work


class IkSpeed(EngineSpeed):
    """ik_llama.cpp's speed."""

    key = "ik_llama_cpp"
    milestones = table_of("milestones.json", tuple[Milestone, ...], "service.engine.engines.ik_llama_cpp")

    def cpu_matmul(self, work: Work, weights: Weights, family: str, p: Coefficients) -> float:
        """Return the coefficient of interleaved types, of plain ones (which are repacked on the fly), or of floats."""
        by_type = time_of_type(work.engine, family, "", weights.type)
        if weights.quant == "f":
            multiple = p["cpu_matmul.f"]
        elif weights.interleaved:
            kind = "iq" if weights.quant == "iq1" else weights.quant
            multiple = p.get(f"cpu_matmul.interleaved_{kind}", 1.0)
        elif "repack_on_the_fly" in work.lacks:
            kind = "legacy" if weights.legacy else "iq" if weights.quant == "iq1" else weights.quant
            multiple = p[f"before.plain_{kind}"]
        else:
            known = by_type is not None or weights.quant != "kt"
            multiple = p["cpu_matmul.plain" if known else "cpu_matmul.plain_kt"] * (by_type or 1.0)
        if weights.use == "expert":
            return multiple * p["cpu_matmul.expert"]
        return multiple if "repack_on_the_fly" in work.lacks else multiple * p["cpu_matmul.dense"]

    def cpu_attention(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        kernels = () if "repack_on_the_fly" in work.lacks else (p["cpu_attention.ik_llama_cpp"],)
        return kernels if work.flash else (*kernels, p["cpu_attention.no_flash"])

    def cpu_attention_token(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        return () if work.flash else (p["cpu_attention_token.no_flash"],)


class _Repository(msgspec.Struct, frozen=True):
    """`builds`: by day, `NUMBER:COMMIT` of the main line and `COMMIT` of other branches. `options`: by program."""

    builds: dict[str, str]
    options: dict[str, dict[str, str]]


def read_history() -> History:
    """Return what is known of its builds; `builds.json` is written by `scripts/write_builds.py`."""
    recorded = table_of("history.json", Recorded, __package__)
    repository = table_of("builds.json", _Repository, __package__)
    words = [(word, date) for date, line in repository.builds.items() for word in line.split()]
    return History(
        today=recorded.today,
        changes=recorded.changes,
        numbers=tuple(sorted((int(word.partition(":")[0]), date) for word, date in words if ":" in word)),
        commits={word.rpartition(":")[2]: date for word, date in words},
        options=repository.options,
        defaults=BuildRules(),
    )


SPEC = EngineSpec(
    name="ik_llama.cpp",
    repository="https://github.com/ikawrakow/ik_llama.cpp",
    programs={"server": "llama-server", "bench": "llama-sweep-bench"},
    history=read_history(),
    architectures=ARCHITECTURES,
    projectors=frozenset(
        (  # 37d82c231 examples/mtmd/clip-impl.h
            "mlp",
            "ldp",
            "ldpv2",
            "resampler",
            "adapter",
            "qwen2vl_merger",
            "qwen2.5vl_merger",
            "qwen3vl_merger",
            "gemma3",
            "gemma4v",
            "gemma4a",
            "idefics3",
            "pixtral",
            "ultravox",
            "internvl",
            "llama4",
            "qwen2a",
            "qwen2.5o",
            "voxtral",
            "lfm2",
            "kimivl",
            "kimik25",
            "lightonocr",
            "cogvlm",
            "janus_pro",
            "minimax_m3_vl",
        )
    ),
    types=TypeSupport(
        loads=attrgetter("ik"), gpu_kernels=attrgetter("cuda_ik"), quantised_products=attrgetter("cuda_mmq_ik")
    ),
    offload=OffloadPolicy(  # ggml-cuda.cu:5180; src/llama-load-tensors.cpp:5309
        least=32, by_experts=True, switched_off="-op 28,0,31,0", pins_overridden=True, has_options=True
    ),
    commands=IkCommands(),
    memory=IkMemory(),
    speed=IkSpeed(),
    # it kept the names that llama.cpp gave up in 2025 (llm_load_tensors is load_tensors there)
    # a type without a block size: it divides by it in the header (recorded with types 40 and 42, which llama.cpp has)
    logs=LogFormat(lines=re.compile(r"^llm_load_(?:tensors|print_meta):"), signal_at_unknown_type=8),
    backends=frozenset({"cuda"}),
    neglected_backends=frozenset({"metal", "vulkan"}),
    tested_capability=7.5,  # README: Turing or newer; pull 2079
    # iqk_mul_mat.cpp stops with "Unsupported CPU" where neither AVX2 nor NEON is there (IQK_IMPLEMENT)
    lacking_isas=frozenset({"sse", "avx"}),
    metal_device="Metal",
    forked="2024-08-12",  # pull 17, the last merge of llama.cpp
    fit=fitted,
)
