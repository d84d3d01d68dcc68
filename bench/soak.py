"""Fuzz everything that reads foreign input, with a seed and a time: `python -m bench.soak --seconds 60 --seed 1`.

Each reader may refuse its input with an AdvisorError (or ask for more bytes); anything else, or more than one second
for one input, is a failure: the input is written to bench/results/found/ and the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bench.stamp import stamp
from service.engine.commands.parse import parse
from service.engine.errors import AdvisorError
from service.engine.gguf.parser import parse_header
from service.engine.gguf.window import NeedMore
from service.engine.hardware_text import parse_hardware
from service.engine.logs.read import read_log
from service.engine.model import build_model
from service.engine.overrides import matching
from service.engine.submission.reading import read_paste
from service.hub.references import parse_repo_reference
from tests.models import gguf_bytes

ROOT = Path(__file__).parent.parent
SLOW_SECONDS = 1.0
Reader = Callable[[bytes], object]


def _text(read: Callable[[str], object]) -> Reader:
    return lambda data: read(data.decode("utf-8", "replace"))


def read_header(data: bytes) -> None:
    """Parse a header as that of a file of unknown size, and build its model."""
    build_model(parse_header(data))


READERS: dict[str, Reader] = {
    "header": read_header,
    "hardware": _text(parse_hardware),
    "command": _text(lambda text: parse(text, "ik_llama.cpp")),
    "command of llama.cpp": _text(lambda text: parse(text, "llama.cpp")),
    "override": _text(lambda text: matching(text, ("blk.0.ffn_up.weight",))),
    "repo": _text(parse_repo_reference),
    "log": _text(read_log),
    "paste": _text(read_paste),
}


def seeds() -> dict[str, list[bytes]]:
    """Return valid inputs of every reader, from which the fuzzed ones are made."""
    pastes = [p.read_bytes() for p in sorted((ROOT / "tests/data/pastes").iterdir()) if p.is_file()]
    commands = (ROOT / "tests/data/published_commands.jsonl").read_bytes().splitlines()
    logs = [p.read_bytes()[:60_000] for p in sorted((ROOT / "tests/data/engine_logs").iterdir()) if p.is_file()]
    shorthand = [b"2x5090 + 2x4090, EPYC 9355, 512GB DDR5-4800 x8", b"no GPU, 5950X, 128GB DDR4"]
    return {
        "header": [
            gguf_bytes(name, "q4_K_M", small=True) for name in ("Qwen3-0.6B", "DeepSeek-V2-Lite", "gpt-oss-20b")
        ],
        "hardware": pastes + shorthand,
        "command": commands,
        "command of llama.cpp": commands,
        "override": [rb"blk\.(3[0-9]|7)\.ffn_(up|gate|down)_exps", b"exps", rb"(?!.*shexp)ffn_.*"],
        "repo": [b"ubergarm/DeepSeek-R1-0528-GGUF", b"https://hf.co/a/b/blob/main/c.gguf", b"hf.co/a/b:Q4_K_M"],
        "log": logs,
        "paste": [b"\n\n".join((command, log)) for command, log in zip(commands, logs, strict=False)],
    }


def mutated(rng: random.Random, pool: list[bytes]) -> bytes:
    """Return one input of the pool with some bytes flipped, cut, doubled or taken from another."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(data) + 1)
        kind = rng.randrange(5)
        if kind == 0 and data:
            data[place % len(data)] = rng.randrange(256)
        elif kind == 1:
            del data[place : place + rng.randint(1, 64)]
        elif kind == 2:
            data[place:place] = rng.randbytes(rng.randint(1, 16))
        elif kind == 3:
            other = rng.choice(pool)
            start = rng.randrange(len(other) + 1)
            data[place:place] = other[start : start + rng.randint(1, 256)]
        else:
            data[place : place + 8] = rng.choice((0, 1, 2**31, 2**63, 2**64 - 1)).to_bytes(8, "little")
    return bytes(data)


def run(seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Fuzz for `seconds`; return the number of inputs by reader and outcome, and the failures."""
    rng, pools = random.Random(seed), seeds()
    names, counts, failures = list(READERS), Counter[str](), list[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(failures) < 20:
        name = rng.choice(names)
        data = mutated(rng, pools[name])
        outcome = attempt(READERS[name], data)
        counts[f"{name}: {outcome.split(':')[0]}"] += 1
        if outcome.startswith("FAILED"):
            failures.append(f"{name} {outcome} ({keep(name, data)})")
    return counts, failures


def attempt(read: Reader, data: bytes) -> str:
    """Return `read`, `refused`, or what went wrong."""
    started = time.perf_counter()
    try:
        read(data)
        outcome = "read"
    except (AdvisorError, NeedMore):
        outcome = "refused"
    except Exception as error:  # the very thing that is looked for
        outcome = f"FAILED: {type(error).__name__}: {error}"
    took = time.perf_counter() - started
    return outcome if took < SLOW_SECONDS else f"FAILED: took {took:.1f} s"


def keep(name: str, data: bytes) -> Path:
    """Save an input that failed, so that it can become a test."""
    folder = ROOT / "bench/results/found"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{abs(hash(data)):x}.bin"
    path.write_bytes(data)
    return path


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    counts, failures = run(arguments.seconds, arguments.seed)
    print(stamp())
    print(f"seed {arguments.seed}, {arguments.seconds:g} s, {counts.total():,} inputs")
    for name, count in sorted(counts.items()):
        print(f"  {name:<20}{count:>10,}")
    for failure in failures:
        print(failure)
    print("no failure" if not failures else f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
