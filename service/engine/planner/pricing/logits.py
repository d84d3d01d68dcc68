"""What logits take, and who keeps them: 1.2 GiB for a micro-batch of 2,048 tokens and a vocabulary of 150,000.

llama-server keeps a row a slot (llama.cpp pull 23861), llama-bench those of a whole micro-batch. So a config that fits
as a server may not fit as a benchmark. ik_llama.cpp keeps them all in both, unless `-wgt` says how many (pull 1560).
"""

from __future__ import annotations

from msgspec.structs import replace

from service.engine.advice import OF_BENCHMARK, Reason, SmallerBenchmark
from service.engine.builds import rule_since
from service.engine.config import Engine
from service.engine.engines import engine_spec
from service.engine.memory.predict import predict_memory
from service.engine.planner.pricing.fit import Fitted, Problem, fitting, slack
from service.engine.speed.predict import predict_speed, speed_point

_LEAST = 16  # tokens: below 32 no engine copies weights to a card, and what is left hardly shrinks any further


def with_all_logits(problem: Problem, config: Fitted) -> Fitted:
    """Return a config without `-wgt`, where it fits without; itself where not.

    ik_llama.cpp's `--fit` leaves more layers in RAM without `-wgt`, so both go together.
    """
    if config.flags.n_logits is None or config.flags.layers_in_ram:
        return config
    return fitting(problem, replace(config.flags, n_logits=None)) or config


def smaller_benchmark(problem: Problem, config: Fitted) -> SmallerBenchmark | None:
    """Return the largest halved micro-batch with which a config's benchmark fits, and its speeds; None if it fits as
    it is.

    What the config itself is short of, such as RAM for experts that are read from a drive, its benchmark may lack too.
    """
    if engine_spec(problem.engine).memory.tools_alike:
        return None
    lacks = [min(n_bytes, 0) for n_bytes in slack(problem, config.memory)]
    flags = replace(config.flags, n_parallel=1)
    while flags.n_ubatch > _LEAST:
        bench = replace(problem.run(flags), tool="bench")
        if all(left >= lack for left, lack in zip(slack(problem, predict_memory(bench)), lacks, strict=True)):
            break
        flags = replace(flags, n_ubatch=flags.n_ubatch // 2)
    if flags.n_ubatch == config.flags.n_ubatch:
        return None
    run, depth = problem.run(flags), problem.goal.depth
    speed = [speed_point(n_kv, predict_speed(run, n_kv)) for n_kv in sorted({0, depth // 2, depth})]
    return SmallerBenchmark(n_ubatch=flags.n_ubatch, speed=speed)


def benchmark_reason(engine: Engine, n_ubatch: int, smaller: SmallerBenchmark) -> Reason:
    """Return why a config's benchmark has a smaller micro-batch than its server's `n_ubatch`."""
    programs, since = engine_spec(engine).programs, rule_since(engine, "whole_logits")
    return Reason(
        OF_BENCHMARK,
        f"its benchmark has -ub {smaller.n_ubatch}: {programs['bench']} keeps the logits of a whole micro-batch, and "
        f"those of {n_ubatch:,} tokens do not fit; builds of {programs['server']} before {since} keep them too",
    )
