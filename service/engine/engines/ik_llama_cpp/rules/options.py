"""Findings about ik_llama.cpp's other options and how it was built."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from service.engine.commands.companions import (
    CONTEXT,
    DRAFT,
    NAME_A_DRAFT,
    PROJECTOR,
    loads_draft,
    projector_of,
)
from service.engine.commands.shell import OPTION
from service.engine.commands.tables import option_names
from service.engine.config import CPU
from service.engine.engines.ik_llama_cpp.memory import lacks_kv_b
from service.engine.rules.case import Case
from service.engine.rules.companion_headers import refuses_projector
from service.engine.rules.rule import BUILDING, UNASKED, Found, rule
from service.engine.run.settings import option_value, speculation_types
from service.engine.units import MIB

_WITH_A_MODEL = ("draft", "dflash", "dspark")
_WITHOUT_A_MODEL = ("ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod", "ngram_cache", "suffix")
_ONE_SLOT_FROM = "2026-06-12"  # 8a3802517, pull 1949


@rule(
    "latent-file-refused", "error", BUILDING, "ik_llama.cpp pull 394 (47fa8380c), which loads them first",
    until="2025-05-09", fix="a build of 2025-05-12 or later, or a file with attn_kv_b", refused="loading",
)  # fmt: skip
def latent_file_refused(case: Case) -> Iterator[Found]:
    """Builds of ik_llama.cpp that load latent attention (`deepseek2`) only from files with `attn_kv_b`."""
    if lacks_kv_b(case.model):
        yield Found("this file has no attn_kv_b tensors, which builds of that time require")


@rule(
    "latent-mode-forced", "warning", BUILDING, "ik_llama.cpp pulls 394 (47fa8380c) and 409 (2e585d450)",
    since="2025-05-09", until="2025-05-12", fix="a build of 2025-05-12 or later, or a file with attn_kv_b",
)  # fmt: skip
def latent_mode_forced(case: Case) -> Iterator[Found]:
    """Builds of ik_llama.cpp that run latent attention as `-mla 1` where the file has no `attn_kv_b`."""
    if lacks_kv_b(case.model) and case.flags.mla != 1:
        asked = "" if case.flags.mla is None else f" instead of -mla {case.flags.mla}"
        yield Found(f"this file has no attn_kv_b tensors: builds of that time run it as -mla 1{asked}")


@rule(
    "copies-of-ram", "warning", BUILDING, "ik_llama.cpp pulls 751 and 879, issues 437 and 500",
    until="2025-09-02", fix="build with -DGGML_SCHED_MAX_COPIES=1, the default since 2025-09-02",
)  # fmt: skip
def copies_of_ram(case: Case) -> Iterator[Found]:
    """Older builds of ik_llama.cpp with several GPUs: pipeline copies of what is in RAM."""
    flags, copies = case.flags, case.parsed.build.rules.memory.n_copies
    overridden = any(rule.device == CPU for rule in flags.overrides)
    if copies > 1 and case.cpu > 1 and overridden and flags.n_gpu_layers > case.model.n_layer:
        yield Found(
            f"builds of that time make {copies} pipeline copies with several GPUs, also of weights in RAM, which may "
            "fail to allocate; the figures are for a build with -DGGML_SCHED_MAX_COPIES=1"
        )


@rule(
    "speculation-refused", "error", UNASKED, "ik_llama.cpp pull 1789 (f4f4b3ff2), common/common.cpp:288-346",
    since="2026-05-15", fix="one kind of speculation, with what it needs", refused="options",
)  # fmt: skip
def speculation_refused(case: Case) -> Iterator[Found]:
    """Kinds of `--spec-type` that lack their draft model, or that do not go together."""
    kinds = [kind.partition(":")[0].replace("-", "_") for kind in speculation_types(case.flags)]
    why = _refused_because(kinds, has_draft=not {*NAME_A_DRAFT}.isdisjoint(case.parsed.used))
    if why and all(kind in case.spec.commands.speculations for kind in kinds):
        yield Found(f"--spec-type {','.join(kinds)}: {why}", "leave out --spec-type")


def _refused_because(kinds: Sequence[str], *, has_draft: bool) -> str:
    alone = next((kind for kind in kinds if kind in _WITH_A_MODEL and not has_draft), None)
    if alone is not None:
        return f"{alone} needs a draft model (-md)"
    if len(kinds) > 2:
        return "at most two kinds go together"
    if len(kinds) == 2 and (kinds[0] not in _WITHOUT_A_MODEL or kinds[1] not in ("mtp", "draft")):
        return "of two kinds the first must be one of the prompt's own text (ngram_…, suffix), and then mtp or draft"
    return ""


@rule(
    "speculation-with-slots", "error", UNASKED,
    "ik_llama.cpp pulls 1804 and 1949, common/speculative.cpp:2083, examples/server/server-context.cpp:220",
    since="2026-05-15", fix="-np 1", refused="loading",
)  # fmt: skip
def speculation_with_slots(case: Case) -> Iterator[Found]:
    """ik_llama.cpp drafts with one slot only: with more it leaves out next-token layers, and refuses other kinds."""
    flags, date = case.flags, case.parsed.build.date
    kinds = {kind.partition(":")[0] for kind in speculation_types(flags)} - {"none"}
    if flags.n_parallel <= 1 or not kinds or case.parsed.program != "llama-server":
        return
    if kinds == {"mtp"}:
        message = f"-np {flags.n_parallel}: with several slots ik_llama.cpp leaves out MTP, and drafts nothing"
        yield Found(message, severity="warning")
    elif date is None or date >= _ONE_SLOT_FROM:
        yield Found(f"-np {flags.n_parallel}: ik_llama.cpp drafts with one slot only")


@rule(
    "draft-with-projector", "error", UNASKED, "ik_llama.cpp pull 901, examples/server/server-context.cpp:251",
    since="2025-11-05", fix="leave out the draft model, or the projector", refused="loading",
)  # fmt: skip
def draft_with_projector(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's server refuses a draft model together with a projector."""
    parsed, used = case.parsed, {*case.parsed.used}
    if projector_of(parsed) is not None and loads_draft(parsed) and parsed.program == "llama-server":
        draft, image = (" and ".join(sorted(used & {*names})) for names in ((*DRAFT, "--spec-type"), PROJECTOR))
        message = "a draft model (-md) together with a projector (--mmproj): the server refuses that and exits"
        yield Found(message, f"leave out {draft}, or leave out {image}")


@rule(
    "projector-unknown", "error", UNASKED, "ik_llama.cpp 37d82c231 examples/mtmd/clip-impl.h:139 (its kinds)",
    fix="llama.cpp, or no projector", refused="loading",
)  # fmt: skip
def projector_unknown(case: Case) -> Iterator[Found]:
    """A projector of a kind that ik_llama.cpp has no code for: the server ends when it loads it."""
    header = case.companion_headers.projector
    why = refuses_projector(case.engine, header, case.parsed.build) if header and projector_of(case.parsed) else None
    if why and not case.parsed.build.date:
        yield Found(
            f"{why}: the server ends when it loads it",
            f"leave out {' and '.join(sorted({*case.parsed.used} & {*PROJECTOR}))}",
        )


@rule(
    "draft-context-unused", "warning", UNASKED, "ik_llama.cpp pull 2178 (f359df4bc), common/speculative.cpp:1978",
    since="2026-07-24", fix="leave out -cd",
)  # fmt: skip
def draft_context_unused(case: Case) -> Iterator[Found]:
    """`-cd` given together with `-c`: the draft model has the model's context all the same."""
    name = next((name for name in case.parsed.used if name in CONTEXT), None)
    if name and case.parsed.flags.n_ctx and loads_draft(case.parsed):
        message = f'{name} has no effect: the draft model has the context of the model; -draft "-c N" gives it another'
        yield Found(message, f"leave out {name}")


@rule(
    "variable-wins", "warning", UNASKED,
    "ik_llama.cpp examples/server/server.cpp:467, common/common.cpp gpt_params_parse_from_env",
    fix="one of the two",
)  # fmt: skip
def variable_wins(case: Case) -> Iterator[Found]:
    """A variable that the server reads after the command's own option, and which replaces it."""
    parsed, commands = case.parsed, case.spec.commands
    if parsed.program not in commands.variables_read_last:
        return
    typed = [*pairwise(parsed.words.options)]
    for variable, option in commands.options.environment.items():
        name, value = next((pair for pair in reversed(typed) if pair[0] in option_names(option)), ("", ""))
        if name and not OPTION.match(value) and parsed.env.get(variable, value) != value:
            other = f"{variable}={parsed.env[variable][:60]}"
            yield Found(f"{other} replaces {name} {value}: the server reads variables last", f"{name} {value}")


# ik_llama.cpp ggml-cuda.cu:5299-5391, ggml_backend_cuda_init: keys of `-cuda`.
_CUDA_KEYS = (
    "fusion", "offload-batch-size", "offload-batch-size-per-byte", "mmq-id-size", "enable-p2p", "fa-offset", "graphs",
)  # fmt: skip


@rule(
    "cuda-key-unknown", "warning", UNASKED,
    "ik_llama.cpp ggml-cuda.cu:5299-5391: a key that it does not know is ignored", fix="one of the keys that there are",
)  # fmt: skip
def cuda_key_unknown(case: Case) -> Iterator[Found]:
    """A key of `-cuda` that does not exist, such as `graph=0` for `graphs=0`: it does nothing."""
    pairs = (option_value(case.flags.other, ("-cuda", "--cuda-params")) or "").split(",")
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key.strip() in _CUDA_KEYS:
            continue
        near = difflib.get_close_matches(key.strip(), _CUDA_KEYS, 1)
        right = ",".join(f"{near[0]}={value}" if one == pair else one for one in pairs) if near else ""
        yield Found(
            f"-cuda {pair[:60]}: there is no key {key.strip()[:40]!r}; it is ignored. Keys are {', '.join(_CUDA_KEYS)}",
            f"-cuda {right}" if right else "leave out -cuda",
        )


_LEAST = 256 * MIB


@rule(
    "fit-with-overrides", "error", UNASKED, "ik_llama.cpp src/llama.cpp:4281-4289",
    fix="leave out --fit, or leave out -ot, -cmoe and -ncmoe", refused="loading",
)  # fmt: skip
def fit_with_overrides(case: Case) -> Iterator[Found]:
    """ik_llama.cpp's `--fit` throws an error when anything else places tensors."""
    flags = case.parsed.flags
    if case.parsed.fit and (flags.overrides or flags.cpu_moe or flags.n_cpu_moe):
        yield Found("--fit with -ot, -cmoe or -ncmoe; the engine throws an error and does not load the model")


@rule(
    "logits-of-every-token", "info", UNASKED, "ik_llama.cpp pull request 1560; n_vocab * n_ubatch logits",
    fix="-wgt 1",
)  # fmt: skip
def logits_of_every_token(case: Case) -> Iterator[Found]:
    """ik_llama.cpp reserves room for the logits of a whole micro-batch: reported where memory is short."""
    if case.parsed.program != "llama-server" or case.flags.n_logits is not None or case.parsed.build.date:
        return
    if all(row.fits for row in case.table[:-1]):
        return
    less = case.predict(msgspec.structs.replace(case.flags, n_logits=1))
    saved = [a.compute - b.compute for a, b in zip(case.memory.devices, less.devices, strict=True)][:-1]
    if saved and max(saved) >= _LEAST:
        name = case.devices[saved.index(max(saved))].name
        yield Found(
            f"logits are kept for every token of a micro-batch: -wgt 1 frees {max(saved) / MIB:,.0f} MiB on {name}"
        )


@rule(
    "fewer-experts", "warning", UNASKED, "ik_llama.cpp pull request 239; discussion 459 (-ser 4,1: TG 7.2 to 10.1)",
    fix="leave out -ser, or leave out --smart-expert-reduction", costs=True,
)  # fmt: skip
def fewer_experts(case: Case) -> Iterator[Found]:
    """`-ser` leaves out experts: faster, but the answers are no longer the model's own."""
    value = option_value(case.flags.other, ("-ser", "--smart-expert-reduction"))
    least = (value or "").split(",")[0]
    if not least.lstrip("-").isdigit():
        return
    if not case.model.moe_layers or int(least) >= case.model.n_expert_used:
        message = f"-ser {value[:20] if value else ''} does nothing: a token uses {case.model.n_expert_used} experts"
        yield Found(message, "leave out -ser, or leave out --smart-expert-reduction", severity="info")
    elif int(least) >= 0:
        used = case.model.n_expert_used
        yield Found(
            f"-ser {value[:20] if value else ''} uses as few as {least} of {used} experts: faster, but answers change"
        )


@rule(
    "grouped-routing-without-effect", "info", UNASKED, "ik_llama.cpp src/llama-build-context.cpp:1516",
    fix="leave it out",
)  # fmt: skip
def grouped_routing_without_effect(case: Case) -> Iterator[Found]:
    """`-ger` works only for Ling and Ring (bailingmoe2, bailingmoe3)."""
    asked = {"-ger", "--grouped-expert-routing"} & {option.split()[0] for option in case.flags.other}
    if asked and case.model.architecture not in case.spec.architectures.having("grouped_routing"):
        yield Found(
            f"{min(asked)} does nothing: {case.model.architecture} does not route by groups here",
            f"leave out {min(asked)}",
        )
