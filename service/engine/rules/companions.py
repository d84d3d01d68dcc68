"""Rules about what a command loads beside its model."""

from __future__ import annotations

from collections.abc import Iterator

from service.engine.commands import draft_of, projector_of
from service.engine.memory.spec import loads_next_tokens
from service.engine.rules.case import Case
from service.engine.rules.found import Found, error, info, warning

_DOCS = "docs/check.md"


def not_counted(case: Case) -> Iterator[Found]:
    """A companion whose header is not known: its memory is not in the figures."""
    named = projector_of(case.parsed)
    unread = {
        "draft": draft_of(case.parsed) if case.beside.draft is None else None,
        "mmproj": named.path if named is not None and case.beside.projector is None else None,
    }
    for field, path in unread.items():
        if path is not None:
            message = f"the memory of {path[-80:]!r} is not counted: its header is not known here"
            yield warning("not-counted", message, f"name its file in `{field}` (--{field})", _DOCS)


def remote_devices(case: Case) -> Iterator[Found]:
    """RPC servers are not supported: the engine would put layers on them first."""
    if any(option.startswith(("--rpc ", "-rpc ")) for option in case.flags.other):
        yield error(
            "rpc-not-supported",
            "RPC servers are not supported here: the figures are those of this machine alone, without --rpc",
            "leave out --rpc to see what this machine does alone",
            _DOCS,
        )


def next_token_layers(case: Case) -> Iterator[Found]:
    """Drafting with layers that the file lacks, or with more than one slot in ik_llama.cpp."""
    if not loads_next_tokens(case.flags):
        return
    if not case.model.n_layer_nextn and draft_of(case.parsed) is None:
        yield error(
            "no-next-token-layers",
            "--spec-type asks for next-token layers (MTP), and the file has none",
            "leave out --spec-type, or take a file with them",
            "ik_llama.cpp common/speculative.cpp:2010; llama.cpp src/llama-context.cpp:3881",
        )
    if case.ik and case.flags.n_parallel > 1:
        yield error(
            "speculation-with-slots",
            f"-np {case.flags.n_parallel}: ik_llama.cpp drafts with one slot only",
            "-np 1",
            "ik_llama.cpp examples/server/server-context.cpp:221",
        )


def speeds_without_draft(case: Case) -> Iterator[Found]:
    """Speculative decoding is in the memory, not in the speeds."""
    if loads_next_tokens(case.flags) or draft_of(case.parsed) is not None:
        yield info(
            "speed-without-draft",
            "the speeds are those without drafting: how many drafted tokens are accepted depends on the text",
            None,
            _DOCS,
        )
