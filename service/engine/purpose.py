"""What a model is for, where that is not to continue a text, and what a server needs to be told for it.

Sources: llama.cpp tools/server/server-context.cpp (can_split, need_logits, POST /v1/embeddings and /v1/rerank),
issue 12836 (input for embeddings has to fit one micro-batch), pull 28876 (causal rerankers read it in several), issue
17249 (diffusion models get no answer), and abetlen/llama-cpp-python issue 1587 (nor do T5 models; no server of either
engine calls llama_encode).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec.structs import replace

from service.engine.architectures import architecture
from service.engine.goal import GoalRequest
from service.engine.hardware import Assumption
from service.engine.model import Model

Purpose: TypeAlias = Literal["text", "embeddings", "ranking"]

_MEAN, _CLS, _RANK = 1, 2, 4  # llama.h, enum llama_pooling_type
_WORDS: dict[Purpose, tuple[str, ...]] = {
    "text": (),
    "embeddings": ("--embedding", "--embeddings"),
    "ranking": ("--reranking", "--rerank", "--embedding", "--embeddings"),
}
WITHOUT_TEXT = frozenset(_WORDS["ranking"])  # with any of them a server returns no text


def writes_text(options: Iterable[str]) -> bool:
    """Return whether a server with these options returns text."""
    return WITHOUT_TEXT.isdisjoint(options)


def purpose_of(model: Model) -> Purpose:
    """Return what a model is for: by how its header says that it pools, or by an architecture that only embeds."""
    pooling = _pooling(model)
    if pooling == _RANK:
        return "ranking"
    return "embeddings" if pooling or architecture(model.architecture).purpose == "embeddings" else "text"


def server_words(model: Model) -> tuple[str, ...]:
    """Return the options, the usual one first, without any of which a server refuses what the model is for.

    There are none for a model that writes text. A reranker may be used for embeddings too.
    """
    return _WORDS[purpose_of(model)]


def reads_at_once(model: Model) -> bool:
    """Return whether a server takes an input in one micro-batch only, because each token looks at those after it.

    Models that pool the last token, and rerankers with a cache, read one micro-batch after the other.
    """
    if purpose_of(model) == "text":
        return False
    bidirectional = architecture(model.architecture).purpose == "embeddings"
    return bidirectional or model.value("attention.causal") is False or _pooling(model) in (_MEAN, _CLS)


def unserved(model: Model) -> str | None:
    """Return why no server answers with a model, and what runs it instead; None for all others."""
    match architecture(model.architecture).purpose:
        case "diffusion":
            return "has no server for diffusion models: llama-diffusion-cli of llama.cpp runs them"
        case "encoder-decoder":
            runs = "llama-completion (ik_llama.cpp: llama-cli)"
            return f"has no server for models with an encoder and a decoder: {runs} runs them"
        case _:
            return None


def computes_logits(model: Model) -> bool:
    """Return whether a graph ends with the output head: not of architectures that do nothing but embed."""
    return architecture(model.architecture).purpose != "embeddings"


def goal_of_purpose(models: Sequence[Model], asked: GoalRequest) -> tuple[GoalRequest, list[Assumption]]:
    """Return the goal for models that write no text, where it does not say otherwise, and what was assumed for it."""
    if any(purpose_of(model) == "text" for model in models):
        return asked, []
    depth = 0 if asked.depth is None else asked.depth
    goal = replace(asked, output=asked.output or 1, depth=depth, min_tg=asked.min_tg or 0.0)
    why = "the model writes no text: it reads each input by itself"
    return goal, [] if asked.depth is not None else [Assumption("goal.depth", "0", why, "ranking and the speeds shown")]


def notes_of_purpose(model: Model, n_ubatch: int) -> Iterator[str]:
    """Yield what a user of a model that writes no text has to know."""
    match purpose_of(model):
        case "embeddings":
            yield "an embedding model: its answers are vectors (POST /v1/embeddings), so PP counts, and TG says nothing"
        case "ranking":
            yield "a reranking model: its answers are scores (POST /v1/rerank), so PP counts, and TG says nothing"
        case "text":
            return
    if reads_at_once(model):
        yield (
            f"an input has to fit one micro-batch: one of more than -ub's {n_ubatch:,} tokens is refused (input is too "
            "large to process)"
        )


def _pooling(model: Model) -> int:
    value = model.value("pooling_type")
    return value if isinstance(value, int) else 0
