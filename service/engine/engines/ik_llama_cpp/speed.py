"""How fast ik_llama.cpp is, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.engine.engines.speed import EngineSpeed, Milestone
from service.engine.speed.work import time_of_type

if TYPE_CHECKING:
    from service.engine.calibration import Coefficients
    from service.engine.speed.work import Weights, Work


class IkSpeed(EngineSpeed):
    """ik_llama.cpp's speed."""

    key = "ik_llama_cpp"
    milestones = (
        Milestone("flash_attention", "2025-05-05", "pull request 370: heads of a group share the cache"),
        Milestone("repack_on_the_fly", "2025-06-16", "pull requests 525 to 534"),
        Milestone("interleaved_batches", "2025-06-26", "pull request 559"),
        Milestone("zen5_batches", "2025-07-20", "pull request 612, inferred"),
        Milestone("moe_graphs", "2025-08-10", "pull request 689"),
        Milestone("odd_head_ratios", "2025-08-17", "pull request 700"),
        Milestone("batch_attention", "2025-08-20", "inferred from published runs"),
        Milestone("sliding_windows", "2025-09-04", "pull requests 754 and 757"),
        Milestone("expert_batches", "2025-08-21", "inferred: one kernel for all experts of a layer"),
    )

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
        """Return the coefficients of its kernels, and of attention without flash attention."""
        kernels = () if "repack_on_the_fly" in work.lacks else (p["cpu_attention.ik_llama_cpp"],)
        return kernels if work.flash else (*kernels, p["cpu_attention.no_flash"])

    def cpu_attention_token(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        """Return the coefficient of attention without flash attention."""
        return () if work.flash else (p["cpu_attention_token.no_flash"],)
