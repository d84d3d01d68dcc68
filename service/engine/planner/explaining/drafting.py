"""Whether to draft with the file's own next-token layers (MTP): what it takes, and what others gained or lost by it.

No speed is predicted: how many drafted tokens are accepted depends on the text. Published, tokens a second with and
without: dense models whole on GPUs 1.6 (llama.node pull 136) to more than 2 times (llama.cpp pull 22673); mixtures 1.0
to 1.3 times with one drafted token (pulls 24868, 26534), less with more; with weights in RAM 0.6 to 0.9 (ik_llama.cpp
pull 1513), 1.07 (llama.cpp pull 26534) and 1.15 to 1.3 times (pull 27917); with the next-token layer itself in RAM 0.6
times (unsloth pull 8875).
"""

from __future__ import annotations

from service.engine.advice import AdvisedConfig, Reason
from service.engine.commands import parse
from service.engine.engines import engine_spec
from service.engine.planner.ranking.rank import Contender
from service.engine.rules import case_of
from service.engine.units import GIB, MIB


def drafting(contender: Contender, config: AdvisedConfig) -> Reason | None:
    """Return what to do with next-token layers under a config; None where the file has none, or the engine no graph.

    What drafting takes is what `check` predicts of the config's command with its options.
    """
    model, engine, problem = contender.problem.model, contender.engine, contender.problem
    options = engine_spec(engine).commands.drafting.get(model.architecture)
    if not model.n_layer_nextn or options is None:
        return None
    if contender.candidate.strategy != "all on GPU":
        text = (
            "the file's next-token layers (MTP) stay unused: with weights in RAM, published runs that drafted with "
            "them had 0.6 to 1.3 times the tokens a second, so measure before you add them"
        )
        return Reason("drafting-left-out", text)
    command = f"{config.commands.server} {options}"
    build = problem.build.date if problem.build else None
    table = case_of(parse(command, engine, build=build), model, problem.rig, command, "cuda").table
    more = sum(row.total_high_mib - now.total_high_mib for row, now in zip(table[:-1], config.devices, strict=False))
    kept = [row.free_mib - one / MIB for row, one in zip(table, problem.limits.reserve, strict=False)]
    size = f"up to {more * MIB / GIB:.1f} GiB more on the GPU{'s' * (len(table) > 2)}"
    what = "the file's next-token layers (MTP)"
    if not all(row.fits for row in table) or min(kept, default=0) < 0:
        return Reason("drafting-left-out", f"drafting with {what} takes {size}: too much here")
    gains = "1 to 1.3 times the tokens a second, a mixture" if model.moe_layers else "1.6 times or more, a dense model"
    return Reason("drafting", f"worth a try: {options} drafts with {what} and takes {size}; published: {gains}")
