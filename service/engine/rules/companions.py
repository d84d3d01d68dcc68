"""Rules about what a command loads besides its model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from service.engine.commands.companions import (
    NAME_A_DRAFT,
    draft_kind,
    draft_of,
    drafts,
    finds_head,
    loads_draft,
    projector_of,
)
from service.engine.commands.tables import environment_options
from service.engine.memory.encoder import image_tokens, images_at_once, model_width
from service.engine.model import Model
from service.engine.rules.case import Case
from service.engine.rules.companion_headers import draft_elsewhere, images_of, larger_than_context
from service.engine.rules.rule import UNASKED, Found, rule
from service.engine.run.settings import drafts_next_tokens, loads_next_tokens, speculation_types
from service.engine.tensor_names import is_expert
from service.engine.units import GIB, MIB

_DOCS = "docs/check.md"
_TEXT_ALONE = "for text alone, --no-mmproj leaves it out"


@rule("not-counted", "warning", UNASKED, _DOCS, fix="name its file to the check (--draft, --mmproj)")
def not_counted(case: Case) -> Iterator[Found]:
    """A companion with an unknown header or a card of its own, an adapter, or a change of the model's metadata."""
    images, headers = projector_of(case.parsed), case.companion_headers
    unread = {
        "draft": draft_of(case.parsed) if headers.draft is None and loads_draft(case.parsed) else None,
        "mmproj": images.path if images is not None and headers.projector is None else None,
    }
    for field, path in unread.items():
        if path is not None:
            message = f"the memory of {path[-80:]} is not counted, because its header is not known here"
            yield Found(message, f"name its file to the check, too: in `{field}` (--{field})")
    if (
        headers.draft is not None
        and loads_draft(case.parsed)
        and (cards := draft_elsewhere(case.parsed, case.devices, case.rig))
    ):
        yield Found(f"the draft model also runs on {', '.join(cards)}: its memory there is not counted", "")
    if images is not None and images.path is None and headers.projector is None and not headers.repo_listed:
        message = "-hf also loads the projector of its repo, if there is one: its memory is not counted"
        yield Found(message, "name its file to the check: in `mmproj` (--mmproj); for text alone, --no-mmproj")
    if _may_find_head(case):
        message = "-hf also loads the next-token layers of its repo (mtp-*.gguf): their memory is not counted"
        yield Found(message, "name their file in the command (-md), and to the check: in `draft` (--draft)")
    for option, value in pairwise(case.parsed.words.options):
        if option == "--override-kv" and not value.startswith(("tokenizer.", "general.")):
            yield Found(f"--override-kv {value[:80]}: the figures use the metadata in the file", "")
    if {"--lora", "--lora-scaled"} & set(case.parsed.used):
        yield Found("the memory and time of the adapter (--lora) are not counted", "")


def _may_find_head(case: Case) -> bool:
    """Whether the model has no next-token layers, and `-hf` finds them in its repo, as far as is known."""
    lacks = not case.model.n_layer_nextn and case.companion_headers.head_in_repo is not False
    return lacks and finds_head(case.parsed)


@rule("projector-unasked", "info", UNASKED, "llama.cpp common/arg.cpp:400; pulls 12694 and 12898", fix=_TEXT_ALONE)
def projector_unasked(case: Case) -> Iterator[Found]:
    """`-hf` also loads the projector of its repo, for images or sound; its memory is counted."""
    images = projector_of(case.parsed)
    counted = next((one for one in case.companions if one.kind == "projector"), None)
    if images is not None and images.path is None and counted is not None:
        device = max(range(len(counted.weights)), key=counted.weights.__getitem__)
        mib = (counted.weights[device] + counted.compute[device].expected) / MIB
        where = "RAM" if device == case.cpu else case.device_name(device)
        yield Found(f"-hf also loads the repo's projector for images or sound: {mib:,.0f} MiB of {where}, counted here")


@rule(
    "projector-of-another-model", "error", UNASKED,
    "llama.cpp tools/mtmd/mtmd.cpp:604 (mismatch between text model and mmproj); ik_llama.cpp examples/mtmd/mtmd.cpp",
    fix="the projector of the model's own repo", refused="loading",
)  # fmt: skip
def projector_of_another_model(case: Case) -> Iterator[Found]:
    """A projector whose output has another size than the model's embeddings."""
    header = case.companion_headers.projector
    width = model_width(header) if header is not None and projector_of(case.parsed) is not None else None
    if width is not None and width != case.model.n_embd:
        yield Found(
            f"the projector is for another model: its output has {width:,} values a token, the model's embeddings have "
            f"{case.model.n_embd:,}"
        )


@rule(
    "image-beyond-context", "warning", UNASKED,
    "llama.cpp tools/mtmd/clip.cpp:1717 and others (set_limit_image_tokens); tools/server (exceeds the context size)",
    fix="fewer tokens for an image, or a larger -c",
)  # fmt: skip
def image_beyond_context(case: Case) -> Iterator[Found]:
    """An image may have as many tokens as a request has context: up to 4,096 of Qwen's models."""
    header, images = case.companion_headers.projector, images_of(case.parsed, case.flags)
    if header is None or projector_of(case.parsed) is None:
        return
    if told := larger_than_context(header, images, case.context_each):
        yield Found(*told)


@rule(
    "image-beyond-micro-batch", "warning", UNASKED,
    "llama.cpp 0c1e57098 tools/mtmd/mtmd.cpp:2178, src/llama-context.cpp (n_ubatch >= n_tokens), unsloth issue 10559; "
    "ik_llama.cpp src/llama.cpp:6161", fix="-ub as large as the tokens of an image",
)  # fmt: skip
def image_beyond_micro_batch(case: Case) -> Iterator[Found]:
    """An image that a model of Gemma's reads all at once, but that may have more tokens than a micro-batch."""
    header, images = case.companion_headers.projector, images_of(case.parsed, case.flags)
    if header is None or projector_of(case.parsed) is None or not images_at_once(header, images):
        return
    most, n_batch, n_ubatch = image_tokens(header, images), case.flags.n_batch, case.flags.n_ubatch
    if most <= n_ubatch:
        return
    larger = f"-b {most} -ub {most}" if n_batch < most else f"-ub {most}"
    what = "is cut into parts that do not see each other" if n_batch <= n_ubatch else "ends the program"
    yield Found(
        f"an image of more than {n_ubatch:,} tokens {what}, and large ones have {most:,}; llama.cpp of October 2026 "
        "scales them down instead, and loses detail",
        larger,
    )


@rule("environment-not-counted", "info", UNASKED, "ggml-cuda.cu of both engines (getenv)")
def environment_not_counted(case: Case) -> Iterator[Found]:
    """A variable that the engine reads, but whose effect is not in the figures; one that stands for an option which the
    build does not have, and so has no effect, without a word of the engine."""
    names = case.environment.ignored
    if names:
        yield Found(f"{', '.join(names)}: read by the engine, but the figures do not include its effect")
    stands_for = environment_options(case.engine, case.parsed.program)
    gone = [name for name in case.parsed.env if case.lacks(stands_for.get(name, ""))]
    if gone:
        loading = any(name.endswith(("_MLOCK", "_MMAP")) for name in gone) and not case.lacks("-lm")
        instead = "; LLAMA_ARG_LOAD_MODE (none, mmap, mlock, mmap+mlock) says how it loads the model" if loading else ""
        are = "variable" if len(gone) == 1 else "variables"
        message = f"{', '.join(gone)}: this build reads no such {are}, and says nothing of it{instead}"
        yield Found(message, severity="warning")


@rule("rpc-not-supported", "error", UNASKED, _DOCS, fix="leave out --rpc to see what this machine does alone")
def remote_devices(case: Case) -> Iterator[Found]:
    """RPC servers are not supported: the engine would put layers on them first."""
    if case.has_remote:
        yield Found("RPC servers are not supported here; the figures are for this machine alone, without --rpc")


@rule(
    "no-next-token-layers", "error", UNASKED,
    "ik_llama.cpp common/speculative.cpp:2010; llama.cpp src/llama-context.cpp:3881",
    fix="leave out --spec-type, or use a file that has them", refused="loading",
)  # fmt: skip
def no_next_token_layers(case: Case) -> Iterator[Found]:
    """Drafting with next-token layers that the file lacks, where `-hf` cannot find them in another file of its repo."""
    lacks = loads_next_tokens(case.flags) and not case.model.n_layer_nextn and draft_of(case.parsed) is None
    if lacks and not _may_find_head(case):
        yield Found("--spec-type needs next-token layers (MTP), but the file has none")


@rule(
    "draft-unused", "warning", UNASKED,
    "llama.cpp pull 23988 and issue 25345, common/arg.cpp:568; ik_llama.cpp pull 1908, common/speculative.cpp:2089",
    fix="--spec-type draft-simple (ik_llama.cpp: draft)",
)  # fmt: skip
def draft_unused(case: Case) -> Iterator[Found]:
    """A draft model (`-md`) without the `--spec-type` that uses it: older builds did so unasked."""
    parsed, draft, commands = case.parsed, case.companion_headers.draft, case.spec.commands
    if draft_of(parsed) is None or drafts(parsed, draft):
        return
    option = next(name for name in parsed.used if name in NAME_A_DRAFT)
    change, _ = commands.drafting_today(parsed.words.options, draft_kind(parsed, draft))
    effect = "loaded, but never used" if commands.loads_idle_draft else "not even loaded"
    kind = "without --spec-type" if not speculation_types(case.flags) else "with another kind of --spec-type"
    yield Found(
        f"{option} {kind}: the draft model is {effect}",
        changes=lambda: iter([[change] if change else [], [f"leave out {option}"]]),
    )


@rule(
    "speculation-unknown", "error", UNASKED, "llama.cpp 0c1e57098 llama-server --help, --spec-type; ik_llama.cpp "
    "common/speculative.cpp:44", fix="a kind that the build has", refused="options",
)  # fmt: skip
def speculation_unknown(case: Case) -> Iterator[Found]:
    """`--spec-type mtp` in llama.cpp, `draft-mtp` in ik_llama.cpp, and other kinds that the engine does not know."""
    commands, asked = case.spec.commands, speculation_types(case.flags)
    wrong = next((kind for kind in asked if kind.partition(":")[0] not in commands.speculations), None)
    if wrong is None or case.parsed.build.date:
        return
    change, _ = commands.drafting_today(case.parsed.words.options, None)
    yield Found(
        f"--spec-type {wrong[:40]}: {case.engine} has no such kind of speculation", change or "leave out --spec-type"
    )


@rule(
    "draft-larger-than-model", "warning", UNASKED, "computed: every drafted token reads the draft model once",
    fix="a draft model of a tenth of the size, or none",
)  # fmt: skip
def draft_larger_than_model(case: Case) -> Iterator[Found]:
    """A draft model that reads as much for each token as the model itself."""
    draft = case.companion_headers.draft
    if draft is None or not drafts(case.parsed, draft):
        return
    own, other = read_by_a_token(case.model), read_by_a_token(draft)
    if other >= own:
        sizes = f"{other / GIB:,.1f} GiB a token, the model itself {own / GIB:,.1f}"
        yield Found(f"the draft model reads {sizes}: drafting with it is slower than not drafting")


def read_by_a_token(model: Model) -> float:
    """Return the bytes of weights that a token reads: of the routed experts, the used ones."""
    return sum(t.nbytes * (model.expert_share if is_expert(t.name) else 1.0) for t in model.tensors)


@rule("speed-without-draft", "info", UNASKED, _DOCS)
def speeds_without_draft(case: Case) -> Iterator[Found]:
    """Speculative decoding is included in the memory, but not in the speeds."""
    with_draft = loads_draft(case.parsed) and drafts(case.parsed, case.companion_headers.draft)
    if with_draft or drafts_next_tokens(case.engine, case.flags):
        yield Found("speeds are without drafting: how many drafted tokens are accepted depends on the text")
