"""What a measurement of a config is to be: which depths, and how many tokens of prompt and output at each."""

from __future__ import annotations

from service.engine.config import Engine
from service.engine.goal import Goal
from service.engine.run_flags import RunFlags
from service.wire.agent import RunFile, RunOutline

N_GEN = 64  # tokens of output at each depth: seconds at the slowest speeds that people bear


def outline_of(
    engine: Engine, flags: RunFlags, goal: Goal, repo: str, revision: str, files: tuple[RunFile, ...], minutes: int
) -> RunOutline:
    """Return the run that measures a config: at depths 0, the goal's and half of it, a micro-batch of prompt each.

    A depth is at most what the context leaves room for. `minutes`: of measuring, loading not counted.
    """
    n_prompt = min(flags.n_ubatch, flags.n_batch, flags.n_ctx)
    n_gen = min(N_GEN, flags.n_ctx)
    deepest = max(min(goal.depth, flags.n_ctx - max(n_prompt, n_gen)), 0)
    return RunOutline(
        engine=engine,
        repo=repo,
        revision=revision,
        files=files,
        flags=flags,
        depths=tuple(sorted({0, deepest // 2, deepest})),
        n_prompt=n_prompt,
        n_gen=n_gen,
        seconds=minutes * 60,
    )
