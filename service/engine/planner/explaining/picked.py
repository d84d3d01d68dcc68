"""The picks in words: why each was picked, and what the next better variant would need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, NamedPick, Pick
from service.engine.planner.explaining.answer import more_ram
from service.engine.planner.pricing.fit import slack
from service.engine.planner.ranking.rank import Contender
from service.engine.planner.search.outcome import Outcome
from service.engine.units import GIB, longer

_BETTER = 0.1  # per cent of perplexity: by how much less a better variant has to lose


def with_picks(
    configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], picked: Mapping[Pick, Contender],
    outcomes: Sequence[Outcome],
) -> list[AdvisedConfig]:  # fmt: skip
    """Return the configs with `pick` filled in where they are one. `ranked`: their contenders.

    None is `balanced` where the command in use comes first.
    """
    names: dict[int, Pick] = {}
    for picked_as, contender in picked.items():
        names.setdefault(id(contender), picked_as)
    found = []
    for config, contender in zip(configs, ranked, strict=True):
        name = names.get(id(contender))
        pick = _pick(name, contender, picked["balanced"], outcomes) if name else None
        found.append(replace(config, pick=pick))
    if found and ranked[0].raises_limit:
        found[0] = _with_alternative(found, ranked)
    return found


def _with_alternative(configs: Sequence[AdvisedConfig], ranked: Sequence[Contender]) -> AdvisedConfig:
    """The first config, which needs a raised limit of GPU memory, with a note about what fits without that."""
    first = configs[0]
    fits = [c for c, contender in zip(configs, ranked, strict=True) if not contender.raises_limit]
    best = min(fits, key=lambda c: (c.strategy == "CPU only", c.loss_percent or (0.0, 0.0, 0.0)), default=None)
    where = " on the CPU" if best and best.strategy == "CPU only" else ""
    text = f"without it, #{best.rank} ({best.variant}) fits{where}" if best else "without it, nothing listed here fits"
    return replace(first, notes=[*first.notes[:1], text, *first.notes[1:]])


def _pick(name: Pick, contender: Contender, first: Contender, outcomes: Sequence[Outcome]) -> NamedPick:
    return NamedPick(name=name, why=_why(name, contender, first), next_better=_next_better(contender, outcomes))


def _why(name: Pick, contender: Contender, first: Contender) -> str:
    loss, times = f"about +{contender.loss:.1f} % perplexity", contender.seconds.expected / first.seconds.expected
    if name == "quality":
        return f"{loss} instead of +{first.loss:.1f} %; a request takes {longer(times)}"
    if name == "fast":
        return f"{1 / times:.1f} times as fast as #1, for {loss} instead of +{first.loss:.1f} %"
    if name == "simple":
        return f"a shorter command than #1; a request takes {longer(times)}, at {loss}"
    where = {
        "all on GPU": "entirely on the GPU",
        "FFN in RAM": "with attention and cache on the GPU",
        "layers in RAM": "with as many layers on the GPU as fit",
        "CPU only": "on the CPU",
        "experts from a drive": "with experts read from a drive",
    }[contender.candidate.strategy]
    return f"the best balance of time and quality here: {loss} at {contender.speed.tg.expected:,.1f} t/s, {where}"


def _next_better(contender: Contender, outcomes: Sequence[Outcome]) -> str | None:
    """What the variant with the next smaller loss would need to run in the same way; None if there is none to tell."""
    better = [o for o in outcomes if o.loss < contender.loss - _BETTER and o.refusal is None]
    if not better:
        return None
    nearest = max(o.loss for o in better)
    ways = [o for o in better if o.loss == nearest]
    outcome = min(ways, key=lambda o: (not o.contenders, o.shortfall.n_bytes if o.shortfall else 0))
    name, gain = outcome.case.name, f"+{nearest:.1f} % perplexity instead of +{contender.loss:.1f} %"
    if contender.candidate.strategy == "all on GPU":
        if any(one.candidate.strategy == "all on GPU" for way in ways for one in way.contenders):
            return None  # on more of the cards it fits as it is
        left = slack(contender.problem, contender.fitted.memory)[:-1]
        more = outcome.case.model.n_bytes - contender.problem.model.n_bytes - sum(max(n, 0) for n in left)
        kind = "memory for the GPU" if contender.problem.limits.shared else "VRAM"
        return f"{name} entirely on the GPU ({gain}) needs about {_gib(more)} GiB more {kind}" if more > 0 else None
    if not outcome.contenders and outcome.shortfall is not None:
        short = outcome.shortfall
        where = "RAM" if short.device == "RAM" else f"memory on {short.device}"
        more = more_ram(outcome.case.rig, short.n_bytes) if short.device == "RAM" else _gib(short.n_bytes)
        return f"{name} ({gain}) needs about {more} GiB more {where}"
    return None


def _gib(n_bytes: int) -> int:
    return -(-n_bytes // GIB)
