"""Tensors on the wrong device: up and gate apart, types without GPU kernels, experts where they need not be."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from service.engine.commands.expert_rules import expert_override, number_pattern
from service.engine.config import CPU
from service.engine.engines import all_engines
from service.engine.planner.pricing.support import unsupported_backend, unsupported_cpu, unsupported_model
from service.engine.rules.case import Case
from service.engine.rules.rule import READ, WORTH_SAYING, Found, rule
from service.engine.run.weights import TINY
from service.engine.tensor_names import layer_of, role_of

_TYPES = "types-and-devices"
_OF_LAYER = re.compile(r"blk\.(?P<layer>\d+)\.(?P<kind>.+)")


@rule(
    "cannot-load", "error", _TYPES, "ggml/src/ggml.c (type_traits) and src/llama-arch.cpp of both engines",
    fix="the other engine, or another quantisation",
)  # fmt: skip
def cannot_load(case: Case) -> Iterator[Found]:
    """An architecture, tensor types, a vendor's cards or a CPU that the engine cannot run.

    A warning for cards that its source has an unmaintained back end for (ik_llama.cpp README.md), and for a CPU that
    only looks up embeddings.
    """
    cards = unsupported_backend(case.engine, case.rig)
    if cards:
        neglected = {card.backend for card in case.rig.cards} <= case.spec.backends | case.spec.neglected_backends
        also = "; its back end for them is not maintained" if neglected else ""
        yield Found(f"{cards}{also}", "", severity="warning" if neglected else None)
    cpu = unsupported_cpu(case.engine, case.rig)
    if cpu:
        computes = any(at == case.cpu for name, at in case.placement.tensors.items() if role_of(name) != "token_embd")
        yield Found(cpu, "", severity=None if computes else "warning")
    reason = unsupported_model(case.engine, case.model, case.run.build.date)
    if reason:
        name = case.model.architecture
        others = () if name in case.spec.architectures.known else all_engines()
        other = next((one.name for one in others if name in one.architectures.known), None)
        day = case.spec.architectures.learned_after(name, case.run.build.date)
        newer = f"a build of {case.engine} from {day} or newer" if day else ""
        yield Found(reason, f"{other}, which knows it" if other else newer)


@rule(
    "type-without-gpu-kernel", "warning", _TYPES, fix="send them to RAM with -ot",
    source="ik_llama.cpp ggml-cuda.cu:4848-4906, llama.cpp ggml-cuda.cu:5243-5269 (supports_op); discussion 491",
    about="speed",
)  # fmt: skip
def type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """Row-interleaved and other CPU-only types on a GPU: the weights are copied to the CPU for every token."""
    on_cards = (w for w in case.run.weights if w.stored != case.cpu and w.row.counts and w.row.n_elements > TINY)
    wrong = {w.row.name: w.type.name for w in on_cards if not case.run.treatment.has_gpu_kernel(w.type)}
    if wrong:
        types = ", ".join(f"{n} of {kind.upper()}" for kind, n in Counter(wrong.values()).most_common())
        yield Found(
            f"GPUs hold tensors they have no kernel for ({types}): these are copied to the CPU for every token",
            changes=lambda: iter([[rules_to_ram(wrong)]]),
        )


def rules_to_ram(names: Iterable[str]) -> str:
    """Return the change that sends some tensors to RAM: a rule for each kind of them."""
    layers: dict[str, list[int]] = {}
    for name in names:
        found = _OF_LAYER.fullmatch(name)
        layers.setdefault(found["kind"] if found else name, []).extend([int(found["layer"])] if found else [])
    rules = [
        rf"-ot '^blk\.{number_pattern(found)}\.{re.escape(kind)}$=CPU'" if found else rf"-ot '^{re.escape(kind)}$=CPU'"
        for kind, found in layers.items()
    ]
    return f"{' '.join(rules)} before the other rules"


@rule(
    "more-than-experts-in-ram", "warning", READ,
    "ik_llama.cpp pull request 232 (attention on the GPU: TG 1.58 times as "
    "fast), discussion 258; computed: memory and speed with a rule for the experts only", about="speed",
    fix="-ot exps=CPU instead: a token reads only a few of the experts, but all of the rest",
)  # fmt: skip
def more_than_experts_in_ram(case: Case) -> Iterator[Found]:
    """Rules that send attention, shared experts, dense layers or routers to RAM along with the experts, or alone."""
    if not case.model.moe_layers or not case.devices:
        return
    taken: set[str] = set()
    for one in case.rules:
        won = [name for name in one.names or () if name not in taken]
        taken.update(won)
        if one.written.device != CPU:
            continue
        stray = [name for name in won if "_exps." not in name and _belongs_on_gpu(case, name)]
        if stray:
            experts = {layer_of(name) for name in won if "_exps." in name} - {None}
            kinds = Counter(name.split(".")[-2] for name in stray)
            yield Found(
                f"-ot {one.written.pattern[:60]}={CPU} sends more than experts to RAM: "
                f"{', '.join(f'{n} {kind}' for kind, n in kinds.most_common(6))}; every token reads all of that",
                changes=functools.partial(_experts_only, case, one.written.pattern, sorted(filter(None, experts))),
            )


def _belongs_on_gpu(case: Case, name: str) -> bool:
    layer = layer_of(name)
    return (
        layer is not None and case.placement.tensors.get(name) == case.cpu and case.placement.layers[layer] < case.cpu
    )


def _experts_only(case: Case, pattern: str, layers: list[int]) -> Iterator[Sequence[str]]:
    without = f"leave out -ot {pattern}={CPU}"
    whole = set(layers) >= {layer_of(name) for name in case.model.by_name if "_exps.weight" in name}
    yield [f"{without}; -ot '{'exps' if whole else expert_override(layers)}={CPU}'"] if layers else [without]


@rule(
    "experts-left-on-gpu", "error", READ, "ik_llama.cpp discussion 258; llama.cpp pull request 15077 (--cpu-moe)",
    fix="-ot exps=CPU at the end, after rules for the layers that stay on GPUs",
)  # fmt: skip
def experts_left_on_gpu(case: Case) -> Iterator[Found]:
    """A mixture of experts that does not fit on its cards, and no rule that keeps experts in RAM.

    Not where its weights alone would fit: something else takes too much then, as `does-not-fit` says.
    """
    rows = case.table[:-1]
    full = [i for i, row in enumerate(rows) if case.surely_short(i) and row.weights_mib > row.capacity_mib]
    small = [case.table[i].device for i in full]
    if not small or not case.model.moe_layers or case.experts_in_ram or case.fit_places or case.lacks("-ot"):
        return
    if case.rig.one_pool:
        return
    fits = all(row.fits for row in case.table_with(msgspec.structs.replace(case.flags, cpu_moe=True)))
    outcome = "everything fits" if fits else "more is still needed: see does-not-fit"
    yield Found(
        f"all experts are on {', '.join(small)}, where they do not fit, and nothing sends them to RAM: with them "
        f"there, {outcome}",
        "-ot exps=CPU",
        severity="warning" if all(map(case.assumes_memory, full)) or case.pages_to_ram or case.has_remote else None,
    )


@rule(
    "experts-in-ram-needlessly", "warning", READ, "computed: memory and speed of this command without its rules",
    fix="leave out -ot, --cpu-moe and --n-cpu-moe", about="speed",
)  # fmt: skip
def experts_in_ram_needlessly(case: Case) -> Iterator[Found]:
    """Experts in RAM although the whole model fits on the cards."""
    if not case.experts_in_ram or not case.devices or case.flags.n_gpu_layers <= case.model.n_layer:
        return
    whole = msgspec.structs.replace(case.flags, overrides=(), cpu_moe=False, n_cpu_moe=0)
    if case.model.n_bytes > sum(device.free for device in case.devices) or not case.fits(whole):
        return
    pp, tg = case.gain(run=case.run_of(whole))
    if tg >= WORTH_SAYING:
        yield Found(
            f"the whole model fits on the GPUs with this context: without these rules TG would be about {tg:.1f} times "
            f"as fast, PP {pp:.1f} times",
            pp=pp,
            tg=tg,
        )
