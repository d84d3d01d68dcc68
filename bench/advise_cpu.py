"""CPU time of whole advices and what the pruning leaves to place: `python -m bench.advise_cpu`.

Models are built afresh from their headers, and no graph is kept from one advice to the next, as in a worker that sees
a repo for the first time; header parsing is not counted. As in workers and the command line, no cycles are collected
meanwhile. Twenty variants, both engines, one to eight GPUs.
"""

from __future__ import annotations

import gc
import time

from bench.stamp import stamp
from service.engine.advise import VariantModel, advise
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Hardware
from service.engine.model import build_model
from service.engine.planner.explaining.commands import Files
from tests import rigs
from tests.models import build_header

MIXES = (
    *("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "q2_k", "iq3_xxs", "iq3_s", "q3_k_m", "iq4_xs", "iq4_nl", "q4_0"),
    *("q4_k_s", "q4_k_m", "q5_0", "q5_k_m", "q6_k", "q8_0", "bf16", "exps=q4_k,*=q8_0"),
)
CASES: tuple[tuple[str, str, Hardware, Preset], ...] = (
    ("DeepSeek-R1-0528", "2x5090 + 2x4090", rigs.TWO_5090_TWO_4090, "chat"),
    ("Qwen3-235B-A22B", "2x5090 + 2x4090", rigs.TWO_5090_TWO_4090, "agent"),
    ("Llama-3.3-70B", "2x5090 + 2x4090", rigs.TWO_5090_TWO_4090, "chat"),
    ("GLM-4.5-Air", "RTX 3090", rigs.ONE_3090_DESKTOP, "chat"),
    ("Qwen3-235B-A22B", "8x3090", rigs.EIGHT_3090, "agent"),
    ("Mistral-Large-123B", "8x3090", rigs.EIGHT_3090, "chat"),
    ("Llama-3.3-70B", "8x3090", rigs.EIGHT_3090, "chat"),
    ("DeepSeek-R1-0528", "8x3090", rigs.EIGHT_3090, "chat"),
)


def main() -> None:
    """Print one row a repo."""
    print(stamp())
    print(f"{'model, 20 variants, both engines':<36}{'rig':<18}{'goal':<7}{'considered':>11}{'placed':>8}{'CPU s':>8}")
    for model, name, hardware, preset in CASES:
        variants = [
            VariantModel(mix, Files("a/b", "0" * 40, ("a.gguf",)), build_model(build_header(model, mix)))
            for mix in MIXES
        ]
        gc.collect()
        gc.disable()
        started = time.process_time()
        body = advise(variants, hardware, GoalRequest(preset=preset), Constraints())
        taken = time.process_time() - started
        gc.enable()
        print(f"{model:<36}{name:<18}{preset:<7}{body.considered:>11,}{body.placed:>8}{taken:>8.1f}", flush=True)


if __name__ == "__main__":
    main()
