"""The facts of llama.cpp by room, and how fast it is since when."""

from __future__ import annotations

import re
from operator import attrgetter
from typing import TYPE_CHECKING

from service.engine.builds import BuildRules, History, Recorded
from service.engine.engines.llama_cpp import ARCHITECTURES
from service.engine.engines.llama_cpp.commands import LlamaCommands
from service.engine.engines.llama_cpp.fit import fitted
from service.engine.engines.llama_cpp.memory import LlamaMemory
from service.engine.engines.spec import EngineSpec, LogFormat, OffloadPolicy, TypeSupport
from service.engine.engines.speed import EngineSpeed, Milestone
from service.engine.ggml_types import GgmlType
from service.engine.tables import table_of

if TYPE_CHECKING:
    from service.engine.calibration import Coefficients
    from service.engine.speed.work import Weights, Work


_NO_MMQ = frozenset({"iq1_m"})  # quantised, but multiplied by cuBLAS (ggml-cuda/mmq.cu)


class LlamaSpeed(EngineSpeed):
    """llama.cpp's speed."""

    key = "llama_cpp"
    milestones = table_of("milestones.json", tuple[Milestone, ...], "service.engine.engines.llama_cpp")

    def cpu_matmul(self, work: Work, weights: Weights, family: str, p: Coefficients) -> float:
        kind = "f" if weights.quant == "f" else "llama_cpp_legacy" if weights.legacy else f"llama_cpp_{weights.quant}"
        multiple = p["cpu_matmul.llama_cpp"] * p.get(f"cpu_matmul.{kind}", p["cpu_matmul.llama_cpp_other"])
        multiple *= p.get(f"cpu_matmul.llama_cpp.{family}", 1.0)
        if "cpu_repack" in work.lacks and weights.quant == "k":
            multiple *= p["before.cpu_repack"]
        return multiple * (p["cpu_matmul.expert"] if weights.use == "expert" else 1.0)

    def cpu_attention(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        return (p[f"cpu_attention.llama_cpp{'_flash' if work.flash else ''}"],)

    def cpu_attention_token(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        return (p[f"cpu_attention_token.llama_cpp{'_flash' if work.flash else ''}"],)


def read_history() -> History:
    """Return what is known of its builds; no commit is.

    llama-bench got its options with pulls 12922 (-ot), 13096 (-d), 13386 (-nopo), 15952 (-ncmoe), 16039 (-dev) and
    21304 (-fitt, -fitc).
    """
    recorded = table_of("history.json", Recorded, __package__)
    return History(
        today=recorded.today,
        changes=recorded.changes,
        numbers=tuple(sorted(recorded.numbers)),
        commits={},
        options={"llama-server": recorded.options, "llama-bench": recorded.bench_options},
        defaults=BuildRules(
            flash_attn="auto",
            fit=True,
            auto_slots=4,
            finds_projector=True,
            finds_head=True,
            negating_variables=True,
            encoder="flash",
            gemma4_image_tokens=1120,
            fits_projector=True,
            fits_drafts=True,
        ),
    )


def _quantised_products(kind: GgmlType) -> bool:
    return kind.block > 1 and kind.name not in _NO_MMQ


SPEC = EngineSpec(
    name="llama.cpp",
    refuses_gaps=True,  # ggml/src/gguf.cpp:795; ik_llama.cpp's gguf_init_from_file takes offsets as they are
    repository="https://github.com/ggml-org/llama.cpp",
    programs={"server": "llama-server", "bench": "llama-bench"},
    history=read_history(),
    architectures=ARCHITECTURES,
    types=TypeSupport(
        loads=attrgetter("mainline"), gpu_kernels=attrgetter("cuda_mainline"), quantised_products=_quantised_products
    ),
    offload=OffloadPolicy(  # ggml-cuda.cu:5636
        least=32,
        by_experts=False,
        pins_overridden=False,
        has_options=False,
        switched_off="GGML_OP_OFFLOAD_MIN_BATCH={tokens} before the command",
    ),
    commands=LlamaCommands(),
    memory=LlamaMemory(),
    speed=LlamaSpeed(),
    logs=LogFormat(  # common/log.cpp:529-547
        lines=re.compile(r"^(?:\d[\d.]* [A-Z] )?(?:load_tensors|print_info):"), sizes_at="-lv 4"
    ),
    backends=frozenset({"cuda", "rocm", "vulkan", "sycl", "metal"}),
    metal_device="MTL0",  # since its device list was numbered
    fit_places=True,  # common/fit.cpp
    fit=fitted,
)
