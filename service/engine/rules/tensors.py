"""Tensors on the wrong device: up and gate apart, types without GPU kernels, experts where they need not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from service.engine.config import CPU
from service.engine.planner.support import architectures, runs_on_gpu, unsupported
from service.engine.rules.case import Case
from service.engine.rules.rule import WORTH_SAYING, Found, rule

_TINY = 100_000  # elements: norms, biases and scales cost nothing wherever they are
_TYPES = "types-and-devices"
_READ = "what-a-token-reads"
# ik ggml-cuda.cu:4913: what GET_ROWS reads on CUDA. llama.cpp's list (ggml-cuda.cu:5280) has k- and i-quants too.
_ROWS_IK = frozenset({"f16", "f32", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"})


@rule(
    "cannot-load", "error", _TYPES, "ggml/src/ggml.c (type_traits) and src/llama-arch.cpp of both engines",
    mend="the other engine, or another quantisation",
)  # fmt: skip
def cannot_load(case: Case) -> Iterator[Found]:
    """An architecture, tensor types or a make of cards that the engine cannot run."""
    reason = unsupported(case.engine, case.model, case.rig)
    if reason:
        row = architectures().get(case.model.architecture)
        other = row is not None and (row.mainline if case.ik else row.ik) and not (row.ik if case.ik else row.mainline)
        yield Found(reason, f"{'llama.cpp' if case.ik else 'ik_llama.cpp'}, which knows it" if other else "")


@rule(
    "up-gate-apart", "warning", "up-gate-and-down-together",
    "ik_llama.cpp issue 521 and pull request 520; discussion 613", only="ik_llama.cpp",
    mend="match both in one rule: ffn_(up|gate)_exps",
)  # fmt: skip
def up_gate_apart(case: Case) -> Iterator[Found]:
    """ik_llama.cpp runs up and gate of a layer as one operation: apart, one crosses to the other for every token."""
    tensors = case.placement.tensors
    apart = {}
    for name, device in tensors.items():
        gate = name.replace(".ffn_up", ".ffn_gate")
        if gate != name and name.endswith(".weight") and tensors.get(gate, device) != device:
            apart[gate] = device
    if not apart:
        return
    pp, tg = case.gain(placement=case.moved(apart))
    layers = ", ".join(name.split(".")[1] for name in list(apart)[:12])
    yield Found(
        f"up and gate are on different devices in {len(apart)} layers ({layers}): ik_llama.cpp fuses them, so one "
        f"crosses for every token; together TG would be about {tg:.1f} times as fast",
        pp=pp,
        tg=tg,
    )


@rule(
    "type-without-gpu-kernel", "warning", _TYPES, mend="send them to RAM with -ot",
    source="ik_llama.cpp ggml-cuda.cu:4848-4906, llama.cpp ggml-cuda.cu:5243-5269 (supports_op); discussion 491",
)  # fmt: skip
def type_without_gpu_kernel(case: Case) -> Iterator[Found]:
    """Row-interleaved and other CPU-only types on a GPU: the weights cross to the CPU for every token."""
    wrong = {}
    for name, device in case.placement.tensors.items():
        tensor = case.model.by_name.get(name)
        if tensor is None or device == case.cpu or len(tensor.dims) < 2 or tensor.nbytes < _TINY:
            continue
        if not runs_on_gpu(case.engine, tensor.type):
            wrong[name] = tensor.type
    if not wrong:
        return
    pp, tg = case.gain(placement=case.moved(dict.fromkeys(wrong, case.cpu)))
    types = ", ".join(f"{n} of {kind.upper()}" for kind, n in Counter(wrong.values()).most_common())
    yield Found(
        f"tensors that no GPU can multiply are on GPUs ({types}): they cross to the CPU for every token; in RAM TG "
        f"would be about {tg:.1f} times as fast",
        f"send them to RAM with -ot, such as {next(iter(wrong)).removesuffix('.weight')}=CPU",
        pp=pp,
        tg=tg,
    )


@rule(
    "embeddings-on-gpu", "warning", _READ, "ik_llama.cpp ggml-cuda.cu:4913 (supports_op, GET_ROWS)",
    only="ik_llama.cpp", mend="no rule for token_embd: it stays in RAM by itself",
)  # fmt: skip
def embeddings_on_gpu(case: Case) -> Iterator[Found]:
    """A rule puts `token_embd` on a GPU that cannot read rows of its type: all of it crosses for every token."""
    tensor = case.model.by_name.get("token_embd.weight")
    winner = next((one.written.device for one in case.rules if "token_embd.weight" in (one.names or ())), CPU)
    if tensor is not None and winner != CPU and tensor.type.lower() not in _ROWS_IK:
        yield Found(f"token_embd of {tensor.type.upper()} is on {winner}, which cannot read its rows")


@rule(
    "experts-left-on-gpu", "error", _READ, "ik_llama.cpp discussion 258; llama.cpp pull request 15077 (--cpu-moe)",
    mend="-ot exps=CPU at the end, after rules for the layers that stay on GPUs",
)  # fmt: skip
def experts_left_on_gpu(case: Case) -> Iterator[Found]:
    """A mixture of experts that does not fit its cards, and no rule that leaves experts in RAM."""
    small = [row.device for row in case.table[:-1] if not row.fits]
    if not small or not case.model.moe_layers or case.experts_in_ram or case.fit_places:
        return
    with_it = case.predict(msgspec.structs.replace(case.flags, cpu_moe=True))
    fits = all(row.fits for row in case.table_of(with_it))
    outcome = "with it, everything fits" if fits else "with it, more is still needed: see does-not-fit"
    yield Found(
        f"all experts are on {', '.join(small)}, which they do not fit; nothing sends them to RAM; {outcome}",
    )


@rule(
    "experts-in-ram-needlessly", "warning", _READ, "computed: memory and speed of this command without its rules",
    mend="leave out -ot, --cpu-moe and --n-cpu-moe",
)  # fmt: skip
def experts_in_ram_needlessly(case: Case) -> Iterator[Found]:
    """Experts in RAM although the whole model fits on the cards."""
    if not case.experts_in_ram or not case.devices or case.flags.n_gpu_layers <= case.model.n_layer:
        return
    whole = msgspec.structs.replace(case.flags, overrides=(), cpu_moe=False, n_cpu_moe=0)
    if case.model.n_bytes > sum(device.free for device in case.devices) or not case.fits(whole):
        return
    pp, tg = case.gain(flags=whole, placement=case.predict(whole).placement)
    if tg >= WORTH_SAYING:
        yield Found(
            f"the whole model fits on the GPUs with this context: without rules TG would be about {tg:.1f} times as "
            f"fast, PP {pp:.1f} times",
            pp=pp,
            tg=tg,
        )
