"""Proposals beside a config: to draft with its next-token layers (MTP), or to keep experts in a cache on the cards.

Neither is ever the config itself, because the gain depends on the text. A proposal has its own complete command, its
memory as `check` predicts it, and the range of published gains.

Drafting (tests/data/drafting.jsonl, one request at a time): dense models whole on GPUs, four of five pairs of runs
between `DENSE`; with one drafted token one pair, 1.6 times, of which `ONE_TOKEN` goes down to no gain; mixtures, with
pulls 24868 and 26534 of llama.cpp, between `MIXTURE`. On Apple's GPUs two pairs gained 0 and 6 %. With weights in RAM:
mixtures 0.6 to 0.9 times (ik_llama.cpp pull 1513), 1.0 to 1.1 (ik_llama.cpp pull 2250, llama.cpp pull 26534) and 1.15
to 1.3 times (llama.cpp pull 27917); a dense model 1.7 and 2.0 (one owner), and with the next-token layer itself in RAM
0.3 times (unsloth pull 8875). By four requests at once the gain is gone (rule 5 of sudoingX/qwen38-mtp).

Expert cache (llama.cpp pull 29887): all experts in RAM, and those in use kept on the cards. It takes the place of the
layers of experts that lie there, and every expert that it lacks crosses the link for every token. Published, tokens a
second against a placement that fills the card as well: 1.76 times (RTX 5090, Qwen3.8-Flash-Next, a tenth of the experts
cached, 78 % hits; prompts 0.87 times; qvac-fabric-llm.cpp pull 237, from which llama.cpp's was ported), 1.35 (RTX 4080,
Qwen3-30B-A3B, a quarter cached; delfianto's tables of 2026-10, the placement with ik_llama.cpp), 0.99 (RTX 4060 Ti,
Qwen3.6-35B-A3B Q8_0, 10 GiB), and 0.03 to 0.2 over PCIe 3.0 x4 (8 GB card, Qwen3.6-35B-A3B). Pull 29887's own 1.57 to
2.2 times are against an empty card. No hit rates were published for other models, so `CACHE` is the range of the three.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from service.engine.advice import AdvisedConfig, DeviceMemory, Proposal, Reason
from service.engine.commands.parse import parse
from service.engine.commands.tables import newer_options
from service.engine.config import Flags
from service.engine.engines import engine_spec
from service.engine.gguf.header import Header
from service.engine.memory.report import report
from service.engine.planner.explaining.commands import Files, lines_of
from service.engine.planner.pricing.fit import Problem, slack
from service.engine.planner.ranking.rank import Contender
from service.engine.rules.case import case_of
from service.engine.rules.companion_headers import CompanionHeaders
from service.engine.tensor_names import is_expert
from service.engine.units import GIB, MIB

DENSE, ONE_TOKEN, MIXTURE, CACHE = (1.4, 2.2), (1.0, 1.6), (1.0, 1.4), (1.0, 1.8)  # times the tokens a second
_FEW = 3  # requests at once: with more, drafting gained nothing
_CACHE_OPTION = "--moe-cache-mib"
_SMALLER = (1024, 512)  # micro-batches
_LEAST = 0.1  # of the experts' bytes: what pull 29887 advises
_LEAST_LINK = 10.0  # GB/s: a PCIe 4.0 x8 link or a faster one, as the published gains had
_PROBE = 1024
_LAYERS = "the file's next-token layers (MTP)"
_NOT_HERE = "not measured on this machine: measure it before you keep it"


class Source(NamedTuple):
    """The files of a variant, the folder for models that was asked for, and the header of its projector, if any."""

    files: Files
    models_dir: str | None
    projector: Header | None = None


def with_proposals(
    configs: Sequence[AdvisedConfig], ranked: Sequence[Contender], sources: Sequence[Source]
) -> list[AdvisedConfig]:
    """Return the configs, the first with a proposal to draft, and the first that could have one with an expert cache.

    Where these do not fit, or made published runs slower, a reason of the config says so. `sources`: by variant.
    """
    found = list(configs)
    if found and (drafted := _drafting(ranked[0], found[0], sources[ranked[0].variant])) is not None:
        found[0] = _with(found[0], drafted)
    for i, contender in enumerate(ranked[: len(found)]):
        cached = None if found[i].is_mine else _expert_cache(contender, sources[contender.variant])
        if cached is not None:
            found[i] = _with(found[i], cached)
            break
    return found


def _with(config: AdvisedConfig, found: Proposal | Reason) -> AdvisedConfig:
    if isinstance(found, Reason):
        return replace(config, reasons=[*config.reasons, found])
    return replace(config, proposals=[*config.proposals, found])


def _drafting(contender: Contender, config: AdvisedConfig, source: Source) -> Proposal | Reason | None:
    """The proposal to draft, or the reason against it; None where file or engine has no such layers."""
    model, engine = contender.problem.model, contender.engine
    options = engine_spec(engine).commands.drafting.get(model.architecture)
    if not model.n_layer_nextn or options is None:
        return None
    if (why := _why_not(contender)) is not None:
        return Reason("drafting-left-out", f"{_LAYERS} are left unused: {why}")
    tried = [(lines, _table(lines[0], contender, source)) for lines in _drafted(contender, config, source, options)]
    fitting = next((one for one in tried if _fits(one[1], contender.problem)), None)
    if fitting is None:
        rows = zip(tried[-1][1], config.devices, strict=True)
        more = sum(row.total_high_mib - now.total_high_mib for row, now in rows) * MIB / GIB
        size = f": it takes up to {more:.1f} GiB more" if more > 0 else ""
        return Reason("drafting-left-out", f"drafting with {_LAYERS} does not fit here{size}")
    times, whose = DENSE, "four of five published pairs of runs of dense models, on their owners' cards"
    if model.moe_layers:
        times, whose = MIXTURE, "published runs of mixtures of experts, on their owners' cards"
    elif options.endswith("=1"):
        times, whose = ONE_TOKEN, "from no gain to the gain of the only published pair that drafted one token at a time"
    smaller = "" if fitting is tried[0] else "; its smaller -ub makes room for the drafts, but slows prompts down"
    return _proposal("drafting", *fitting, contender, times, f"{whose}{smaller}; {_NOT_HERE}")


def _drafted(contender: Contender, config: AdvisedConfig, source: Source, options: str) -> Iterator[tuple[str, str]]:
    """The config's command with these options for bash and PowerShell, then with smaller micro-batches."""
    yield f"{config.commands.server} {options}", f"{config.commands.powershell} {options}"
    flags, words = contender.fitted.flags, options.split()
    other = (*flags.other, *(f"{name} {value}" for name, value in zip(words[::2], words[1::2], strict=True)))
    for n_ubatch in () if config.is_mine else _SMALLER:
        if n_ubatch < flags.n_ubatch:
            smaller = replace(flags, n_ubatch=n_ubatch, n_batch=min(flags.n_batch, 2048), other=other)
            lines = lines_of(contender, smaller, source.files, source.models_dir, config.devices[-1])
            yield lines.server, lines.powershell


def _why_not(contender: Contender) -> str | None:
    """Why a config is better run without drafts; None where published runs gained by them."""
    model, rig = contender.problem.model, contender.problem.rig
    if contender.candidate.strategy != "all on GPU":
        found = "0.6 to 1.3" if model.moe_layers else "0.3 to 2"
        return (
            f"in published runs with weights in RAM, drafting with them gave {found} times the tokens per second, so "
            "measure before you add it"
        )
    if any(rig.cards[card].backend == "metal" for card in contender.candidate.cards):
        return "in the two published pairs of runs on Apple GPUs they gained 0 and 6 %"
    if contender.problem.goal.parallel > _FEW:
        return "with four or more concurrent requests they gain nothing"
    return None


def _expert_cache(contender: Contender, source: Source) -> Proposal | Reason | None:
    """The proposal with the largest expert cache that fits, or the reason against it; None where neither applies."""
    problem, model = contender.problem, contender.problem.model
    cards = [problem.rig.cards[card] for card in contender.candidate.cards]
    may = contender.candidate.strategy == "FFN in RAM" and model.moe_layers and _has_option(problem)
    if not may or any(card.backend != "cuda" for card in cards):
        return None
    if any(card.pcie_gbs < _LEAST_LINK for card in cards):
        text = f"no expert cache ({_CACHE_OPTION}): published runs over PCIe 3.0 x4 had 0.03 to 0.2 times the speed"
        return Reason("expert-cache-left-out", text)
    experts = sum(t.nbytes for t in model.tensors if is_expert(t.name))
    size = _largest(problem, contender.fitted.flags)
    if size * MIB < experts * _LEAST:
        return None
    flags = _cached(contender.fitted.flags, size)
    host = report(problem.tried(flags).memory, problem.devices, problem.limits.reserve, problem.rig.ram_bytes)[-1]
    lines = lines_of(contender, flags, source.files, source.models_dir, host)
    basis = (
        f"three owners' runs, compared with a placement that also fills the card; prompts were slower; here it has "
        f"room for {100 * size * MIB / experts:.0f} % of the experts; needs a build from 7 October 2026 or newer "
        f"(pull 29887); {_NOT_HERE}"
    )
    table = _table(lines.server, contender, source)
    return _proposal("expert-cache", (lines.server, lines.powershell), table, contender, CACHE, basis)


def _has_option(problem: Problem) -> bool:
    """Whether the asker said that the build is newer than those known here, and the engine's newer ones have it."""
    return bool(problem.build and problem.build.newer) and _CACHE_OPTION in newer_options(
        problem.engine, "llama-server"
    )


def _largest(problem: Problem, flags: Flags) -> int:
    """The largest cache, in MiB, for which the cards have room; 0 where RAM cannot hold all experts."""
    left = slack(problem, problem.tried(_cached(flags, 0)).memory)
    after = slack(problem, problem.tried(_cached(flags, _PROBE)).memory)
    sizes = [_PROBE * now // (now - then) for now, then in zip(left[:-1], after[:-1], strict=True) if now > then]
    return min(sizes, default=0) if left[-1] >= 0 else 0


def _cached(flags: Flags, size: int) -> Flags:
    """The flags with all experts in RAM and a cache of so many MiB."""
    other = (*flags.other, f"{_CACHE_OPTION} {size}") if size else flags.other
    return replace(flags, overrides=(), n_cpu_moe=0, cpu_moe=True, other=other)


def _table(server: str, contender: Contender, source: Source) -> list[DeviceMemory]:
    """The memory of a command, as `check` predicts it."""
    problem = contender.problem
    parsed = parse(server, contender.engine, build=problem.date)
    companions = CompanionHeaders(projector=source.projector)
    return case_of(parsed, problem.model, problem.rig, server, "cuda", companions).table


def _fits(table: Sequence[DeviceMemory], problem: Problem) -> bool:
    """Whether it fits, and every card keeps free what it has to."""
    left = [row.free_mib - one / MIB for row, one in zip(table, problem.limits.kept, strict=False)]
    return all(row.fits for row in table) and min(left, default=0) >= 0


def _proposal(
    name: Literal["drafting", "expert-cache"], lines: tuple[str, str], table: list[DeviceMemory], contender: Contender,
    times: tuple[float, float], basis: str,
) -> Proposal:  # fmt: skip
    tg = contender.speed.tg.expected
    low, high = (round(factor * tg, 1) for factor in times)
    return Proposal(
        name=name, server=lines[0], powershell=lines[1], devices=table, times=times, tg_tps=(low, high), basis=basis
    )
