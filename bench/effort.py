"""What advices cost against what they are estimated to: `python -m bench.effort [--most SECONDS]`.

Each question is computed on models built afresh from their headers. One that takes longer than `--most` CPU seconds is
ended. The constants of `service/engine/effort.py` are fitted by hand to what this prints.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

from bench.advise_cpu import MIXES
from bench.stamp import stamp
from service.engine.advise import VariantModel, advise
from service.engine.effort import Effort, estimated_seconds
from service.engine.goal import Constraints, EngineChoice, GoalRequest
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.model import build_model
from service.engine.planner.explaining.commands import Files
from service.flows.advice.cpu_limit import CpuSpent, cpu_limit
from tests.models import build_header

MODEL = "Qwen3-235B-A22B"


class Question(NamedTuple):
    """How large a question is: cards by name, number of variants and of questions about other hardware."""

    cards: tuple[tuple[str, int], ...]
    variants: int = 8
    what_if: int = 0
    both: bool = True

    def hardware(self) -> Hardware:
        """Return the machine."""
        gpus = [Gpu(name=name, count=count) for name, count in self.cards]
        ram = Ram(total_gb=512, type="DDR4", channels=8, mts=3200)
        return Hardware(gpus=gpus, cpu=Cpu(model="EPYC 7713"), ram=ram)

    def effort(self) -> Effort:
        """Return what it is estimated by."""
        return Effort(
            variants=self.variants,
            cards=sum(count for _, count in self.cards),
            kinds=len(self.cards),
            engines=2 if self.both else 1,
            what_if=self.what_if,
        )


QUESTIONS = (
    Question(()),
    Question((("RTX 3090", 1),)),
    Question((("RTX 3090", 1),), what_if=4),
    Question((("RTX 3090", 2),)),
    Question((("RTX 5090", 1), ("RTX 4090", 1))),
    Question((("RTX 5090", 2), ("RTX 4090", 2)), variants=1),
    Question((("RTX 5090", 2), ("RTX 4090", 2))),
    Question((("RTX 5090", 2), ("RTX 4090", 2)), both=False),
    Question((("RTX 5090", 2), ("RTX 4090", 2)), variants=20),
    Question((("RTX 5090", 2), ("RTX 4090", 2)), what_if=8),
    Question((("RTX 3090", 8),)),
    Question((("RTX 3090", 16),)),
)


def measured(question: Question, most: float) -> float | None:
    """Return the CPU seconds that a question takes; None for more than `most`."""
    variants = [
        VariantModel(mix, Files("a/b", "0" * 40, ("a.gguf",)), build_model(build_header(MODEL, mix)))
        for mix in MIXES[-question.variants :]
    ]
    constraints = Constraints() if question.both else Constraints(engines=[EngineChoice(name="llama.cpp")])
    asked = [f"+{n + 1} RTX 4090" for n in range(question.what_if)]
    began = time.process_time()
    try:
        with cpu_limit(most):
            advise(variants, question.hardware(), GoalRequest(), constraints, asked)
    except CpuSpent:
        return None
    return time.process_time() - began


def main() -> None:
    """Print one row a question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=float, default=120.0, help="CPU seconds of one question")
    most = parser.parse_args().most
    print(stamp())
    print(f"{'cards':<28}{'variants':>9}{'engines':>9}{'what_if':>9}{'CPU s':>8}{'estimate':>10}")
    for question in QUESTIONS:
        effort, took = question.effort(), measured(question, most)
        cards = " + ".join(f"{count}x {name}" for name, count in question.cards) or "none"
        cpu = f"{took:.1f}" if took is not None else f"> {most:.0f}"
        sizes = f"{effort.variants:>9}{effort.engines:>9}{effort.what_if:>9}"
        print(f"{cards:<28}{sizes}{cpu:>8}{estimated_seconds(effort):>10.1f}", flush=True)


if __name__ == "__main__":
    main()
