"""How fast llama.cpp is, and since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.engine.engines.speed import EngineSpeed, Milestone

if TYPE_CHECKING:
    from service.engine.calibration import Coefficients
    from service.engine.speed.work import Weights, Work


class LlamaSpeed(EngineSpeed):
    """llama.cpp's speed."""

    key = "llama_cpp"
    milestones = (
        Milestone("quantised_batches", "2024-08-02", "pull requests 7676 and 8062; builds of that day or before"),
        Milestone("expert_batches", "2025-04-30", "pull request 13199"),
        Milestone("flash_attention_kernels", "2025-05-15", "inferred from published runs"),
        Milestone("sliding_windows", "2025-05-21", "pull request 13194"),
        Milestone("expert_tiles", "2025-08-25", "pull request 15525"),
        Milestone("moe_graphs", "2025-08-10", "inferred from published runs"),
        Milestone("cpu_repack", "2025-10-01", "inferred from published runs"),
        Milestone("wmma_batches", "2025-12-05", "pull request 17576: matrix units of RDNA 3"),
        Milestone("native_fp4", "2025-12-24", "pull request 17906"),
        Milestone("vulkan_attention", "2026-02-01", "pull requests 18280 to 19290; inferred from published runs"),
        Milestone("wmma_attention", "2026-07-01", "pull request 24562: by then attention uses RDNA's matrix units"),
        Milestone("recurrent_kernels", "2026-03-12", "inferred: build b8255 of 9 March is without, b8322 is with them"),
        Milestone("recurrent_launches", "2026-04-01", "inferred from runs of builds b8396 and b8720 on one RTX 4090"),
    )

    def cpu_matmul(self, work: Work, weights: Weights, family: str, p: Coefficients) -> float:
        """Return the coefficient of a kind of quantised weights, or of floats."""
        kind = "f" if weights.quant == "f" else "llama_cpp_legacy" if weights.legacy else f"llama_cpp_{weights.quant}"
        multiple = p["cpu_matmul.llama_cpp"] * p.get(f"cpu_matmul.{kind}", p["cpu_matmul.llama_cpp_other"])
        multiple *= p.get(f"cpu_matmul.llama_cpp.{family}", 1.0)
        if "cpu_repack" in work.lacks and weights.quant == "k":
            multiple *= p["before.cpu_repack"]
        return multiple * (p["cpu_matmul.expert"] if weights.use == "expert" else 1.0)

    def cpu_attention(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        """Return the coefficient with or without flash attention."""
        return (p[f"cpu_attention.llama_cpp{'_flash' if work.flash else ''}"],)

    def cpu_attention_token(self, work: Work, p: Coefficients) -> tuple[float, ...]:
        """Return the coefficient with or without flash attention."""
        return (p[f"cpu_attention_token.llama_cpp{'_flash' if work.flash else ''}"],)
