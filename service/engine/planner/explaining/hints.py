"""What would make the first config better: drafting with its next-token layers (MTP), a measurement, idle cards.

Drafting is never in a command: how many drafted tokens are accepted depends on the text. What others measured with one
request at a time is in tests/data/drafting.jsonl: dense models whole on GPUs, 53 pairs of runs by 37 owners, four of
five between `DENSE`; on Apple's GPUs two pairs. Mixtures: three pairs, and pulls 24868 and 26534 of llama.cpp with one
drafted token, between `_MIXTURE`. With weights in RAM: mixtures 0.6 to 0.9 times (ik_llama.cpp pull 1513), 1.0 to 1.1
(ik_llama.cpp pull 2250, llama.cpp pull 26534) and 1.15 to 1.3 times (llama.cpp pull 27917); a dense model 1.7 and 2.0
(one owner), and with the next-token layer itself in RAM 0.3 times (unsloth pull 8875). By four requests at once the
gain is gone (rule 5 of sudoingX/qwen38-mtp).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, Reason, SpeedPoint
from service.engine.commands import parse
from service.engine.engines import engine_spec
from service.engine.hardware import Rig
from service.engine.measured.nearby import Nearness, Observation, corrected
from service.engine.planner.ranking.rank import Contender
from service.engine.rules import case_of
from service.engine.units import GIB, MIB

_WIDE = 1.65  # highest over lowest TG, beyond that of cards that many published: from here on it is worth a measurement
_WORTH = 0.85  # of the interval, in logarithms: a smaller one than that has to be left
DENSE, _MIXTURE = (1.4, 2.2), (1.0, 1.4)  # times the tokens a second
_NOTICED = 0.05  # per cent of perplexity
_FEW = 3  # requests at once: with more, drafting gained nothing
_OUTPUT_SHARE = 0.25  # of a micro-batch: the tokens that llama-sweep-bench generates after each of its prompts


def with_hints(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], rig: Rig) -> list[AdvisedConfig]:
    """Return the configs, the first with what drafting, measuring it and its idle cards would give."""
    if not configs:
        return []
    hints = (_drafting(ranked[0], configs[0]), _worth_measuring(configs[0]), _idle_cards(configs, ranked, rig))
    return [replace(configs[0], reasons=[*configs[0].reasons, *filter(None, hints)]), *configs[1:]]


def _drafting(contender: Contender, config: AdvisedConfig) -> Reason | None:
    """What to do with next-token layers under a config; None where the file has none, or the engine no graph.

    What drafting takes is what `check` predicts of the config's command with its options.
    """
    model, engine, problem = contender.problem.model, contender.engine, contender.problem
    options = engine_spec(engine).commands.drafting.get(model.architecture)
    if not model.n_layer_nextn or options is None:
        return None
    if (why := _why_not(contender)) is not None:
        return Reason("drafting-left-out", f"the file's next-token layers (MTP) stay unused: {why}")
    command = f"{config.commands.server} {options}"
    build = problem.build.date if problem.build else None
    table = case_of(parse(command, engine, build=build), model, problem.rig, command, "cuda").table
    more = sum(row.total_high_mib - now.total_high_mib for row, now in zip(table[:-1], config.devices, strict=False))
    kept = [row.free_mib - one / MIB for row, one in zip(table, problem.limits.reserve, strict=False)]
    size = f"up to {more * MIB / GIB:.1f} GiB more on the GPU{'s' * (len(table) > 2)}"
    what = "the file's next-token layers (MTP)"
    if not all(row.fits for row in table) or min(kept, default=0) < 0:
        return Reason("drafting-left-out", f"drafting with {what} takes {size}: too much here")
    low, high = _MIXTURE if model.moe_layers else DENSE
    tg = contender.speed.tg.expected
    gains = f"published: {low:g} to {high:g} times the tokens a second, here {low * tg:.0f} to {high * tg:.0f} t/s"
    if not model.moe_layers and options.endswith("=1"):
        gains = f"published, with two drafted tokens or more: {low:g} to {high:g} times the tokens a second"
    return Reason("drafting", f"worth a try: {options} drafts with {what} and takes {size}; {gains}")


def _why_not(contender: Contender) -> str | None:
    """Why next-token layers are better not used with a config; None where published runs gained by them."""
    model, rig = contender.problem.model, contender.problem.rig
    if contender.candidate.strategy != "all on GPU":
        found = "0.6 to 1.3" if model.moe_layers else "0.3 to 2"
        return (
            f"with weights in RAM, published runs that drafted with them had {found} times the tokens a second, so "
            "measure before you add them"
        )
    if any(rig.cards[card].backend == "metal" for card in contender.candidate.cards):
        return "on Apple's GPUs, the two published pairs of runs gained 0 and 6 % by them"
    if contender.problem.goal.parallel > _FEW:
        return "they gain nothing by four requests at once"
    return None


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


def _idle_cards(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], rig: Rig) -> Reason | None:
    """What cards that the first config leaves idle are good for: the listed config of least loss that uses more.

    `rig`: with the cards of all makers; that of a contender may have one maker's alone.
    """
    first, now = ranked[0], configs[0].speed[-1].tg_tps
    used = Counter(first.problem.rig.cards[card].name for card in first.candidate.cards)
    idle = Counter(card.name for card in rig.cards) - used
    if not idle:
        return None
    names = f"{', '.join(idle)} {'is' if idle.total() == 1 else 'are'} idle"
    pairs = zip(configs, ranked, strict=True)
    more = [(other.loss, config) for config, other in pairs if len(other.candidate.cards) > used.total()]
    if not more:
        return Reason("idle-gpus", f"{names}: no config with more GPUs came out better, so run another model there")
    loss, config = min(more, key=lambda pair: (pair[0], pair[1].goal_seconds[1]))
    what = f"{config.speed[-1].tg_tps:.1f} instead of {now:.1f} t/s"
    if abs(loss - first.loss) > _NOTICED:
        what += f", about +{loss:.1f} instead of +{first.loss:.1f} % perplexity"
    return Reason("idle-gpus", f"{names}: #{config.rank} ({config.variant}) uses more GPUs, {what}")
