"""Models that do not continue a text: what a server has to be told, and how long their input may be."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands.tables import known_options
from service.engine.purpose import notes_of_purpose, reads_at_once, server_words, unserved
from service.engine.rules.case import Case
from service.engine.rules.rule import NO_TEXT, Found, rule


def _is_server(case: Case) -> bool:
    return case.parsed.program == case.spec.programs["server"]


def _answers(case: Case) -> bool:
    """Whether a server is told what the model is for."""
    return not {word.partition(" ")[0] for word in case.parsed.used}.isdisjoint(server_words(case.model))


@rule(
    "no-server-for-model", "error", NO_TEXT, "llama.cpp issue 17249 (diffusion); abetlen/llama-cpp-python issue 1587 "
    "(T5; neither server calls llama_encode)",
)  # fmt: skip
def no_server_for_model(case: Case) -> Iterator[Found]:
    """The server cannot answer with diffusion models, nor with models that have an encoder and a decoder."""
    reason = unserved(case.model)
    if reason and _is_server(case):
        yield Found(f"{case.engine} {reason}; every request fails")


@rule(
    "endpoint-not-enabled", "warning", NO_TEXT, "llama.cpp tools/server/server-context.cpp:5678, 6007: \"This server "
    "does not support embeddings. Start it with `--embeddings`\"", fix="--embedding, or --reranking for a reranker",
)  # fmt: skip
def endpoint_not_enabled(case: Case) -> Iterator[Found]:
    """Without --embedding or --reranking, a server refuses the requests that such a model is for."""
    words = server_words(case.model)
    if not words or not _is_server(case) or _answers(case):
        return
    word = words[0]
    what = "ranks texts" if word == "--reranking" else "returns embeddings"
    if word in known_options(case.engine, case.parsed.program):
        yield Found(f"the model {what}, and the server refuses to without {word}", word)
    else:
        yield Found(f"the model {what}, and {case.engine}'s server has no {word}", "")


@rule(
    "input-beyond-micro-batch", "warning", NO_TEXT, "llama.cpp tools/server/server-context.cpp:3543 (input is too "
    "large to process), issue 12836", fix="-b and -ub as large as the context of a request", optional=True,
)  # fmt: skip
def input_beyond_micro_batch(case: Case) -> Iterator[Found]:
    """Input for embeddings or ranking has to fit one micro-batch where tokens look at those after them."""
    longest = min(case.context_each, case.model.n_ctx_train)
    if _is_server(case) and _answers(case) and reads_at_once(case.model) and case.n_ubatch < longest:
        yield Found(
            f"input of more than {case.n_ubatch:,} tokens is refused, as it has to fit one micro-batch; the context "
            f"allows {longest:,}",
            f"-b {longest} -ub {longest}",
        )


@rule("writes-no-text", "info", NO_TEXT, "llama.cpp tools/server/README.md: POST /v1/embeddings, POST /v1/rerank")
def writes_no_text(case: Case) -> Iterator[Found]:
    """Of a model for embeddings or ranking, only the speed of reading counts."""
    notes = list(notes_of_purpose(case.model, case.n_ubatch))
    if notes and case.parsed.tool != "bench":
        yield Found(notes[0])
