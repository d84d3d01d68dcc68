"""Memory of a process that answers 500 different advices, one after the other: `python -m bench.worker_memory`.

    python -m bench.worker_memory [--advices 500]

Models of the tests' shapes in two or three variants, on drawn hardware and for drawn goals, none twice. Prints the
resident set (RSS) after every fiftieth advice, and exits with 1 where it is above 1 GB. Nothing but the process itself
is kept from one advice to the next; a real worker of the queue forks for each job and gives back even that.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from random import Random
from typing import get_args

from bench.stamp import stamp
from service.engine.advise import VariantModel, advise
from service.engine.errors import AdvisorError
from service.engine.goal import Constraints, GoalRequest, Preset
from service.engine.hardware import Cpu, Gpu, Hardware, Ram
from service.engine.model import build_model
from service.engine.planner.explaining.commands import Files
from tests.models import build_header, model_names

CARDS = ("RTX 3060", "RTX 3090", "RTX 4090", "RTX 5090", "RTX A6000", "RTX PRO 6000", "A100 80GB", "H100")
MIXES = ("iq2_xs", "q3_k_m", "iq4_xs", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "exps=q4_k,*=q8_0")
LIMIT_MIB = 1000


def hardware(random: Random) -> Hardware:
    """A machine with up to four cards, some of them alike."""
    gpus = [Gpu(name=random.choice(CARDS), count=random.choice([1, 1, 2])) for _ in range(random.choice([0, 1, 1, 2]))]
    ram = Ram(total_gb=random.choice([32, 64, 128, 192, 256, 384, 512]), type="DDR5", channels=random.choice([2, 8]))
    return Hardware(gpus=gpus, cpu=Cpu(model=random.choice(["Ryzen 9 7950X", "EPYC 9355"])), ram=ram)


def resident_mib() -> float:
    """The process's resident set in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def answer(number: int) -> str:
    """Compute the advice of that number; return whether it was one, or why not."""
    random = Random(number)
    name = random.choice(model_names())
    variants = [
        VariantModel(mix, Files("a/b", "0" * 40, (f"{mix}.gguf",)), build_model(build_header(name, mix)))
        for mix in random.sample(MIXES, random.choice([2, 3]))
    ]
    goal = GoalRequest(preset=random.choice(get_args(Preset)))
    try:
        body = advise(variants, hardware(random), goal, Constraints())
    except AdvisorError as error:
        return type(error).__name__
    return "advised" if body.configs else "nothing fits"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--advices", type=int, default=500)
    options = parser.parse_args()
    print(stamp())
    print(f"{'advices':>8}{'RSS MiB':>10}{'CPU s':>8}   of which")
    print(f"{0:>8}{resident_mib():>10.0f}{time.process_time():>8.0f}", flush=True)
    counts: dict[str, int] = {}
    for number in range(1, options.advices + 1):
        said = answer(number)
        counts[said] = counts.get(said, 0) + 1
        if number % 50 == 0:
            parts = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
            print(f"{number:>8}{resident_mib():>10.0f}{time.process_time():>8.0f}   {parts}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"at most {peak:.0f} MiB (limit {LIMIT_MIB})")
    return 0 if peak < LIMIT_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
