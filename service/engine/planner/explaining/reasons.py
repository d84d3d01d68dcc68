"""A config explained: the reason for each choice, what limits its speed, notes, and how it compares with the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from msgspec.structs import replace

from service.engine.advice import AtOnce, Reason
from service.engine.config import Device, Flags
from service.engine.engines import engine_spec
from service.engine.estimate import Estimate
from service.engine.ggml_types import type_named
from service.engine.goal import Goal
from service.engine.hardware import Rig
from service.engine.memory.figures import Memory
from service.engine.memory.predict import predict_memory
from service.engine.model import Model
from service.engine.planner.pricing.blocks import blocks_of
from service.engine.planner.pricing.fit import Problem, slack
from service.engine.planner.pricing.support import only_nvidia, untested_cards
from service.engine.planner.ranking.rank import Contender, Squeeze, reaches, reaches_minimum
from service.engine.planner.ranking.utility import FOUR_BITS
from service.engine.purpose import notes_of_purpose, purpose_of
from service.engine.speed.interval import Phase
from service.engine.speed.predict import Limit, Resource, is_called, limit_of, predict_speed, versus
from service.engine.units import GIB

# Requests at once. LocalAI measured 128 on one GB10: 4.1 t/s each with llama.cpp, 5.9 with vLLM
# (DECODE_SERVING_SCOPE.md).
_MANY = 16
# What makers of large models serve them with on such machines (cards of DeepSeek-R1 and Kimi-K2: SGLang and vLLM): from
# four cards whose memory is faster than any desktop card's.
_SERVING_CARDS, _SERVING_GBS = 4, 1900.0
_WHAT: dict[Resource, str] = {
    "GPU": "GPU work",
    "RAM and CPU": "RAM and CPU work",
    "link": "copying weights from RAM to the GPU",
    "waiting": "launching kernels and waiting for other devices",
}
_FASTER: dict[Resource, str] = {"GPU": "faster GPUs", "RAM and CPU": "faster RAM and CPU", "link": "a faster link"}
_WORTH_FASTER = 1.03  # a gain below 3 % is not worth its words


def reasons(contender: Contender, model: Model, rig: Rig, *, first: bool) -> Iterator[Reason]:
    """Yield the reason for each choice of the config, most important first.

    `first`: it is the answer's first config, which is compared with the engine's own placement.
    """
    devices, flags, strategy = contender.problem.devices, contender.fitted.flags, contender.candidate.strategy
    yield _strategy(contender, model, devices)
    if strategy == "FFN in RAM":
        yield _critical_first(model)
        yield _together(contender)
    if flags.split_mode != "layer":
        text = f"-sm {flags.split_mode}: all GPUs work on every layer at once; with -sm layer they take turns"
        yield Reason("cards-together", text)
    yield from _micro_batch(contender, model)
    yield from _cache(flags, bool(devices))
    yield from _few_logits(contender)
    if flags.layers_in_ram:
        yield Reason("engine-fit", "--fit finds this placement at startup, from the memory that is free then")
    elif flags.tensor_split:
        text = "-ts is set: without it the split depends on the memory that is free at startup"
        yield Reason("explicit-split", text)
    if engine_spec(contender.engine).fit_places:
        than = _engines_own(contender) if first and strategy not in ("all on GPU", "experts from a drive") else ""
        text = f"-fit off keeps the placement computed here; -fit on would choose its own at startup{than}"
        yield Reason("fit-off", text)
    if flags.mmap is False and strategy == "all on GPU":
        text = "the file is read, not memory-mapped: with memory shared by GPU and CPU, that loads ten times slower"
        yield Reason("read-not-mapped", text)
    yield from _one_micro_batch(contender)
    yield from _first_card(contender, rig)
    yield from _makers(rig)
    if len(devices) < len(rig.cards):
        yield _fewer_cards(devices, rig)
    if contender.squeeze:
        yield _squeeze(contender.squeeze)
    if flags.numa == "numactl":
        text = "the weights fit in one socket's memory, so the engine is bound to that socket alone"
        if rig.numa_nodes is None:
            text += "; if the firmware divides it (NPS2, NPS4, SNC), -N and -m need all of its nodes (numactl -H)"
        yield Reason("numa-bound", text)
    elif flags.numa:
        text = "two sockets: weights are spread over both, to use the memory bandwidth of both"
        yield Reason("numa-interleave", text)


def _few_logits(contender: Contender) -> Iterator[Reason]:
    """Why the engine is told how many tokens' logits to keep, and what that saves."""
    flags = contender.fitted.flags
    if flags.n_logits is None:
        return
    whole = contender.problem.tried(replace(flags, n_logits=None)).memory
    pairs = zip(whole.devices, contender.fitted.memory.devices, strict=True)
    saved = max(before.compute - now.compute for before, now in pairs)
    text = f"-wgt {flags.n_logits} leaves room for the logits that a server needs, not for a whole micro-batch's"
    text += f": {saved / GIB:.1f} GiB less"
    yield Reason("few-logits", text)


def _engines_own(contender: Contender) -> str:
    """What the engine's own placement would give with the same context, cache and micro-batch, where that loads: it
    may leave less free on a card than is left here.
    """
    problem, ours = contender.problem, contender.speed
    flags = problem.placed_by_engine(contender.fitted.flags)
    if flags is None:
        return ""
    run, why = problem.run(flags), ""
    memory = predict_memory(run)
    if min(slack(problem, memory)) < 0:
        if not _loads(problem, memory):
            return ""
        why = "; it leaves too little free for the reserve"
    theirs = predict_speed(run, problem.goal.depth)
    return (
        f" (TG {theirs.tg.expected:,.1f} and PP {theirs.pp.expected:,.0f} t/s, "
        f"against {ours.tg.expected:,.1f} and {ours.pp.expected:,.0f} here{why})"
    )


def _loads(problem: Problem, memory: Memory) -> bool:
    """Whether the server loads: what it takes fits, whatever is left."""
    there = [*(device.free for device in problem.devices), problem.limits.host]
    return all(memory.total(i).expected <= room for i, room in enumerate(there))


def _squeeze(squeeze: Squeeze) -> Reason:
    """What a longer command would gain, and its rules."""
    rules = " ".join(f"-ot '{rule.pattern}={rule.device}'" for rule in squeeze.flags.overrides)
    return Reason("squeeze", f"left out, because it is only {squeeze.gain * 100 - 100:.1f} % faster: {rules}")


def _strategy(contender: Contender, model: Model, devices: tuple[Device, ...]) -> Reason:
    strategy, flags = contender.candidate.strategy, contender.fitted.flags
    if strategy == "CPU only":
        return Reason("cpu-only", "no GPU is used: all weights and the cache are in RAM")
    if strategy == "experts from a drive" and not devices:
        return Reason("cpu-only", "no GPU is used: weights are memory-mapped, the cache is in RAM")
    where = _names(devices)
    if strategy == "all on GPU":
        if contender.problem.limits.one_pool:
            return Reason("all-on-gpu", f"{where} computes everything, in the memory that it shares with the CPU")
        return Reason("all-on-gpu", f"everything fits on {where}: generating a token reads no weights from RAM")
    if strategy == "layers in RAM":
        slots = model.n_layer + 1
        on_cards = slots - flags.layers_in_ram if flags.layers_in_ram else flags.n_gpu_layers
        text = f"{on_cards} of {slots} layers are on {where}, the rest and their cache in RAM"
        return Reason("layers-in-ram", text)
    return _ffn_in_ram(contender, model, where)


def _ffn_in_ram(contender: Contender, model: Model, where: str) -> Reason:
    placement = contender.fitted.placement
    what = "expert" if model.moe_layers else "FFN"
    blocks = [block for block in blocks_of(model, contender.engine) if block.pieces or block.ram_only]
    cpu = placement.n_devices
    placed = [
        [placement.tensors.get(name, cpu) < cpu for piece in (*block.pieces, *block.ram_only) for name in piece.names]
        for block in blocks
    ]
    whole = sum(all(on_gpus) for on_gpus in placed)
    parts = sum(any(on_gpus) for on_gpus in placed) - whole
    total = len(blocks)
    of_parts = f", and parts of {parts}" if parts else ""
    reads = "only the experts it uses" if model.moe_layers else "all of them"
    fit = f"{whole} of {total} {what} layers{of_parts} fit on {where}; the rest stay in RAM"
    if not whole + parts:
        fit = f"all {total} {what} layers stay in RAM"
    return Reason(f"{what.lower()}s-in-ram", f"{fit}, where each token reads {reads}")


def _critical_first(model: Model) -> Reason:
    shared = ", shared experts" if any("_shexp" in t.name for t in model.tensors) else ""
    n_layer = model.n_layer - model.n_layer_nextn
    return Reason(
        "critical-first",
        f"attention{shared}, norms and cache of all {n_layer} layers are on the GPU: every token reads all of them",
    )


def _together(contender: Contender) -> Reason:
    if engine_spec(contender.engine).memory.fuses_up_and_gate:
        text = f"up and gate of a layer share a device: {contender.engine} fuses them, and splitting them cost up to 9x"
    else:
        text = "up and gate of a layer share a device: splitting them gains nothing"
    return Reason("up-gate-together", f"{text}; down may be elsewhere, as only activations cross")


def _one_micro_batch(contender: Contender) -> Iterator[Reason]:
    """Why a rule moves nothing, if that is so, and the rule is not the user's."""
    fitted, kept = contender.fitted, "overrides" in contender.candidate.user_fields
    if kept or len(contender.problem.devices) < 2 or len(fitted.flags.overrides) != 1:
        return
    if fitted.run.with_flags(replace(fitted.flags, overrides=())).placement != fitted.placement:
        return
    rule = fitted.flags.overrides[0]
    text = (
        f"-ot '{rule.pattern}={rule.device}' moves nothing, but as any -ot rule it makes the GPUs work on one "
        "micro-batch at a time: the copies that they need for several would not fit"
    )
    yield Reason("one-micro-batch", text)


def _first_card(contender: Contender, rig: Rig) -> Iterator[Reason]:
    """Why another card than the fastest comes first, if one does."""
    cards = contender.candidate.cards
    if len(cards) < 2 or cards == tuple(sorted(cards)):
        return
    first, fastest = rig.cards[cards[0]], rig.cards[min(cards)]
    link = first.pcie_gbs > fastest.pcie_gbs
    why = f"its link is the fastest ({first.pcie_gbs:.0f} GB/s)" if link else "it has the most free memory"
    text = f"{_short(first.name)} comes first: {why}, and weights copied from RAM go to the first device"
    yield Reason("first-card", text)


def _makers(rig: Rig) -> Iterator[Reason]:
    """Which build cards without a common back end of their makers take, and which it uses; none for others."""
    why = next((a.why for a in rig.assumed if a.field == "hardware.gpus.backend"), None)
    if why is None or not rig.cards:
        return
    backend = rig.cards[0].backend
    if backend == "vulkan":
        yield Reason("vulkan-for-all", f"{why} of llama.cpp")
    else:
        names = ", ".join(dict.fromkeys(_short(card.name) for card in rig.cards))
        yield Reason("one-maker", f"only {names}: a {backend.upper()} build does not see the others")


def _micro_batch(contender: Contender, model: Model) -> Iterator[Reason]:
    """From how many tokens on experts in RAM go to the GPU."""
    flags = contender.fitted.flags
    if contender.candidate.strategy in ("all on GPU", "CPU only") or not model.n_expert_used:
        return
    threshold = engine_spec(contender.engine).offload.expert_tokens(model.n_expert, model.n_expert_used)
    if not flags.op_offload:
        text = "the CPU computes the experts in RAM for prompts: copying them over this link would take longer"
    elif flags.n_ubatch >= threshold:
        text = (
            f"-ub {flags.n_ubatch}: from {threshold} tokens up, experts in RAM are copied to the first GPU once per "
            "micro-batch of a prompt and computed there; a larger -ub is faster but takes more of its memory"
        )
    else:
        text = f"-ub {flags.n_ubatch} is below {threshold}: the CPU computes the experts in RAM for prompts"
    yield Reason("ubatch-threshold" if flags.op_offload else "copying-loses", text)


def _cache(flags: Flags, on_cards: bool) -> Iterator[Reason]:
    if flags.mla is not None:
        text = "-mla 3 -amb 512: latent cache (576 values per token and layer for DeepSeek) with small buffers"
        yield Reason("mla", text)
    if flags.cache_type_k != "f16":
        kinds = (flags.cache_type_k, flags.cache_type_v if flags.cache_type_v != "f16" else flags.cache_type_k)
        types = kinds[0] if kinds[0] == kinds[1] else f"K {kinds[0]}, V {kinds[1]}"
        bits = [type_named(kind).bpw for kind in kinds]
        but = "; at long contexts, 4 bits lose some quality" if bits[0] <= FOUR_BITS else ""
        why = "more room for weights" if on_cards else "each token reads less"
        text = f"the cache is {types}, {sum(bits) / 32 * 100:.0f} % of the size of f16: {why}{but}"
        yield Reason("kv-type", text)


def _fewer_cards(devices: tuple[Device, ...], rig: Rig) -> Reason:
    unused = Counter(card.name for i, card in enumerate(rig.cards) if i not in {d.gpu for d in devices})
    names = ", ".join(f"{n}x {name}" if n > 1 else name for name, n in unused.items())
    return Reason("fewer-gpus", f"not used and hidden from the engine: {names}")


def _names(devices: tuple[Device, ...]) -> str:
    joined = "and" if len(devices) == 2 else "to"
    return devices[0].name if len(devices) == 1 else f"{devices[0].name} {joined} {devices[-1].name}"


def what_limits(contender: Contender, depth: int) -> Iterator[Reason]:
    """Yield what limits generation and prompts of a config at a depth, and what faster hardware would gain at most."""
    speed, run = contender.speed, contender.fitted.run
    tokens = limit_of(run, speed.parts_tg, "tg", depth)
    yield Reason("limit-tokens", f"generation: {_limit_sentence(tokens, contender)}")
    prompts = limit_of(run, speed.parts_pp, "pp", depth)
    yield Reason("limit-prompts", f"prompts: {_limit_sentence(prompts, contender)}")


def _limit_sentence(limit: Limit, contender: Contender) -> str:
    between = limit.resource == "link" and contender.candidate.strategy == "all on GPU"
    what = "data transfer between the GPUs" if between else _WHAT[limit.resource]
    said = [f"{what} takes {limit.share * 100:.0f} % of the time"]
    for resource, faster in _FASTER.items():
        gain = limit.gains[resource]
        if resource != limit.resource and gain >= _WORTH_FASTER:
            said.append(f"{faster} would gain {gain * 100 - 100:.0f} % at most")
    if limit.ram >= _WORTH_FASTER:
        said.append(f"RAM a third faster would gain {limit.ram * 100 - 100:.0f} %")
    return "; ".join(said)


def notes_of(contender: Contender, rig: Rig, goal: Goal, together: AtOnce | None) -> Iterator[str]:
    """Yield what the user has to know or check before running the command. `together`: the speed of all requests."""
    engine, devices, flags = contender.engine, contender.problem.devices, contender.fitted.flags
    whole, several = contender.candidate.strategy == "all on GPU", len(devices) > 1
    cards = [rig.cards[device.gpu] for device in devices]
    if contender.raises_limit:
        usual, most = (
            f"{n_bytes / GIB:.1f}".removesuffix(".0") for n_bytes in (cards[0].usual_limit or 0, cards[0].total)
        )
        yield f"first raise the GPU's memory limit from {usual} to {most} GiB: {cards[0].raised_by}"
    yield from notes_of_purpose(contender.problem.model, flags.n_ubatch)
    yield from _beyond_training(contender, goal)
    if len({card.name for card in rig.cards}) > 1 and not (rig.order_known or rig.devices_known) and several:
        groups = [(name, len(list(same))) for name, same in groupby(_short(card.name) for card in cards)]
        order = ", then ".join(f"{n}x {name}" if n > 1 else name for name, n in groups)
        yield f"check in the engine's log that {_names(devices)} are {order}"
    if engine_spec(engine).offload.pins_overridden and devices and not whole:
        yield f"{engine} turns mmap off and pins the weights in RAM when tensors are sent to the CPU"
    if rig.unused:
        yield f"the GPU{'s are' if rig.unused[1:] else ' is'} not used: {only_nvidia(engine)}"
    if old := {_short(card.name) for card in untested_cards(engine, cards)}:
        yield f"{engine} is tested on NVIDIA cards from Turing on only, not on {', '.join(sorted(old))}"
    if contender.fitted.memory.basis == "approximate":
        unknown = "graph is not known here, so the most similar family's is used"
        split = f"buffers with -sm {flags.split_mode} are not known exactly"
        yield f"approximate: this architecture's {unknown if flags.split_mode == 'layer' else split}"
    if goal.parallel > 1:
        yield f"each of {goal.parallel} concurrent requests gets {goal.context_each:,} tokens of context"
    if together is not None and purpose_of(contender.problem.model) == "text":
        misses = reaches(contender.speed, goal) and not reaches_minimum(together.each, goal.min_tg)
        alone = f": the goal's {goal.min_tg:g} t/s are reached by one request at a time only" if misses else ""
        yield (
            f"{goal.parallel} concurrent requests: about {together.tps:,.0f} t/s in total ({together.low:,.0f} to "
            f"{together.high:,.0f}), {together.each:,.1f} each{alone}"
        )
        yield "other speeds are for one request at a time"
    elif goal.parallel > 1:
        yield "speeds are for one request at a time"
    if goal.parallel >= _MANY and whole and cards[0].backend in ("cuda", "rocm"):
        yield "for this many concurrent requests, compare with a server built for that, such as vLLM"
    elif whole and _serves(rig, devices):
        yield f"on {len(devices)} cards of this class many people use vLLM or SGLang: worth comparing"
    memory = engine_spec(engine).memory
    if flags.split_mode != "layer":
        yield f"few runs with -sm {flags.split_mode} have been published: its speed comes from a formula, so measure it"
    elif whole and several and memory.works_together(contender.problem.model, flags, len(devices)):
        switch = f"-sm {memory.together[0]}"
        yield f"{switch} lets the GPUs work at the same time and may be faster, mostly at deep contexts: measure it"


def _beyond_training(contender: Contender, goal: Goal) -> Iterator[str]:
    """Yield what the server does with a context that is larger than the trained one, and the options for using it.

    They are not added: whether a model stands YaRN is in its card, not in its header.
    """
    model, commands, asked = contender.problem.model, engine_spec(contender.engine).commands, goal.context_each
    trained = model.n_ctx_train
    if asked <= trained:
        return
    server = f"{contender.engine}'s server"
    if commands.server_caps_context:
        yield (
            f"{server} uses {trained:,} of the {asked:,} tokens: the model was trained for no more. Speeds beyond that "
            "hold with YaRN only"
        )
    else:
        yield (
            f"{server} ends an answer at {trained:,} tokens unless the request sets max_tokens: the model was trained "
            "for no more"
        )
    older = ""
    if commands.yarn_lifts_cap_from:
        override = f"--override-kv {model.architecture}.context_length=int:{asked}"
        older = f" (builds before {commands.yarn_lifts_cap_from} also need {override})"
    yield (
        f"if the model card allows YaRN, add {_yarn(model, asked)}{older}; how good answers are beyond "
        f"{trained:,} tokens is unknown"
    )


def _yarn(model: Model, n_ctx: int) -> str:
    """The options that stretch the context to `n_ctx` tokens at least, from what the header's own YaRN began with."""
    scaling, original = f"{model.architecture}.rope.scaling.", model.n_ctx_train
    if model.metadata.get(f"{scaling}type") == "yarn":
        stated = model.metadata.get(f"{scaling}original_context_length")
        original = stated if isinstance(stated, int) and stated > 0 else original
    return f"--rope-scaling yarn --rope-scale {-(-n_ctx // original)} --yarn-orig-ctx {original}"


def _serves(rig: Rig, devices: Sequence[Device]) -> bool:
    """Whether the devices are so many data-centre cards that most would run a server made for these."""
    fast = [rig.cards[device.gpu].bandwidth_gbs >= _SERVING_GBS for device in devices]
    return len(fast) >= _SERVING_CARDS and all(fast)


def _short(name: str) -> str:
    return name.removeprefix("NVIDIA ").removeprefix("AMD ").removeprefix("GeForce ").removeprefix("Radeon ")


def difference(contender: Contender, other: Contender, variants: Sequence[str], rank: int) -> str:
    """Return how a contender compares with the next one (`rank`) in a sentence, with the error they do not share."""
    same_engine = contender.engine == other.engine
    phases: tuple[tuple[Phase, str], ...] = (("tg", "TG"), ("pp", "PP"))
    parts = [f"{name} {_ratio(versus(contender.speed, other.speed, phase, same_engine))}" for phase, name in phases]
    if abs(contender.bpw - other.bpw) > 0.005:
        parts.append(f"{contender.bpw:.2f} against {other.bpw:.2f} bpw")
    return f"compared with #{rank} ({variants[other.variant]}, {other.engine}): {', '.join(parts)}"


def _ratio(ratio: Estimate) -> str:
    if ratio.low >= 1:
        return f"{_percent(ratio.low)} to {_percent(ratio.high)} faster"
    if ratio.high <= 1:
        return f"{100 - ratio.high * 100:.0f} to {100 - ratio.low * 100:.0f} % slower"
    if is_called(ratio):
        word = "faster" if ratio.expected > 1 else "slower"
        return f"probably {word} ({ratio.low:.2f}x to {ratio.high:.2f}x)"
    return f"too close to call ({ratio.expected:.2f}x expected)"


def _percent(ratio: float) -> str:
    return f"{ratio:.1f}x" if ratio > 2 else f"{ratio * 100 - 100:.0f} %"
