"""What would make the first config better: drafting with its own next-token layers (MTP), and one measurement of it.

No speed with drafting is predicted: how many drafted tokens are accepted depends on the text. Published, tokens a
second with and without: dense models whole on GPUs 1.6 (llama.node pull 136) to more than 2 times (llama.cpp pull
22673); mixtures 1.0 to 1.3 times with one drafted token (pulls 24868, 26534), less with more; with weights in RAM 0.6
to 0.9 (ik_llama.cpp pull 1513), 1.07 (llama.cpp pull 26534) and 1.15 to 1.3 times (pull 27917); with the next-token
layer itself in RAM 0.6 times (unsloth pull 8875).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, Reason, SpeedPoint
from service.engine.commands import parse
from service.engine.engines import engine_spec
from service.engine.measured.nearby import Nearness, Observation, corrected
from service.engine.planner.ranking.rank import Contender
from service.engine.rules import case_of
from service.engine.units import GIB, MIB

_WIDE = 1.6  # highest over lowest TG: from here on an answer is worth a measurement
_WORTH = 0.85  # of the interval, in logarithms: a smaller one than that has to be left
_OUTPUT_SHARE = 0.25  # of a micro-batch: the tokens that llama-sweep-bench generates after each of its prompts


def with_hints(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender]) -> list[AdvisedConfig]:
    """Return the configs, the first with what drafting with its file, and measuring it, would give."""
    if not configs:
        return []
    hints = (_drafting(ranked[0], configs[0]), _worth_measuring(configs[0]))
    return [replace(configs[0], reasons=[*configs[0].reasons, *filter(None, hints)]), *configs[1:]]


def _drafting(contender: Contender, config: AdvisedConfig) -> Reason | None:
    """What to do with next-token layers under a config; None where the file has none, or the engine no graph.

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


def _worth_measuring(config: AdvisedConfig) -> Reason | None:
    """What measuring the first config would give; None where its interval is narrow, or would stay as it is.

    No other measurement says more of this config, nor of the others of its variant, which share all of its errors but
    its own (`measured.nearby`; the figures are of another config of the variant on the same machine).
    """
    at = config.speed[-1]
    if not at.tg_low or at.tg_high / at.tg_low < _WIDE:
        return None
    near = Nearness(variant=True, engine=True)
    after = corrected(at, [Observation("the asker", near, {"tg": 0.0, "pp": 0.0})])
    if _width(after) > _width(at) ** _WORTH:
        return None
    text = (
        f"measure this one: its benchmark command takes about {_minutes(config)} once the file is there, and says its "
        f"speed; that of other configs of this variant, here {at.tg_low:.1f} to {at.tg_high:.1f} t/s, would be known "
        f"within {after.tg_low:.1f} to {after.tg_high:.1f} if it came out as expected"
    )
    return Reason("worth-measuring", text)


def _width(at: SpeedPoint) -> float:
    return at.tg_high / at.tg_low


def _minutes(config: AdvisedConfig) -> str:
    """The time of the context in prompts, with a quarter as many tokens of output, at the speeds of the middle."""
    n_ctx = config.flags.n_ctx // max(config.flags.n_parallel, 1)
    middle = min(config.speed + config.deeper, key=lambda at: abs(at.n_kv - n_ctx / 2))
    seconds = n_ctx / middle.pp_tps + _OUTPUT_SHARE * n_ctx / middle.tg_tps
    minutes = max(round(seconds / 60), 1)
    return f"{minutes} minute{'s' * (minutes > 1)}"
