"""Requests of servers and chats as rows: what counts of them, and a word on what they can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from service.engine.errors import InvalidInput
from service.engine.hardware import Assumption
from service.engine.logs.requests import Program, Request, read_requests
from service.engine.measured import MeasuredRow
from service.engine.measured.doubts import LEAST_OUTPUT, LEAST_PROMPT

_OF_ONE = "one program's requests are one run: send each program's by themselves"
_MEANING = "a request's prompt counts as a whole, and its output behind it: they are no rows of a benchmark"
_WORDS: dict[Program, str] = {
    "llama-server": _MEANING,
    "llama-cli": f"{_MEANING}; of a chat, all turns together",
    "ollama": f"{_MEANING}; it chose layers and context itself, which the command must say",
    "koboldcpp": f"{_MEANING}; times are to hundredths of a second",
}


class RequestRows(NamedTuple):
    """What a paste's requests are as rows: a prompt's and an output's each. `dropped`: sentences about the others."""

    program: Program
    rows: tuple[MeasuredRow, ...]
    assumed: tuple[Assumption, ...]
    dropped: tuple[str, ...]


def request_rows(lines: Sequence[str]) -> RequestRows | None:
    """Return the rows of the requests in a paste, None where there are none.

    Raises InvalidInput (field `text`) where none of them measured anything, saying why, or where they are of several
    programs.
    """
    read = read_requests(lines)
    why = [_why_not(one) for one in read.found]
    taken = [one for one, reason in zip(read.found, why, strict=True) if reason is None]
    left = [f"{count} request{'s' * (count > 1)}: {reason}" for reason, count in Counter(filter(None, why)).items()]
    dropped = (*read.refused, *left)
    if not taken:
        if dropped:
            raise InvalidInput(dropped[0], field="text")
        return None
    if len({one.program for one in taken}) > 1:
        raise InvalidInput(_OF_ONE, field="text")
    program = taken[0].program
    rows = tuple(row for one in taken for row in _rows(one))
    return RequestRows(program, rows, tuple(_assumed(program, taken)), dropped)


def _why_not(one: Request) -> str | None:
    if one.flaw is not None:
        return one.flaw
    if one.n_prompt < LEAST_PROMPT or one.n_output < LEAST_OUTPUT:
        return f"fewer than {LEAST_PROMPT} tokens of prompt or {LEAST_OUTPUT} of output say little"
    try:
        _rows(one)
    except ValueError as error:
        return str(error)
    return None


def _rows(one: Request) -> tuple[MeasuredRow, MeasuredRow]:
    """Raises ValueError for times that nothing takes."""
    return (
        MeasuredRow(n_kv=one.n_cached or 0, n_prompt=one.n_prompt, pp_seconds=(one.prompt_seconds,)),
        MeasuredRow(n_kv=one.depth, n_gen=one.n_output, tg_seconds=(one.output_seconds,)),
    )


def _assumed(program: Program, taken: Sequence[Request]) -> list[Assumption]:
    n = len(taken)
    found = [
        Assumption("rows", f"{n} request{'s' * (n > 1)} of {program}", _WORDS[program], "what it is compared with")
    ]
    if any(one.n_cached is None for one in taken):
        what = "how much of the prompt was cached is not told: nothing of it is assumed to be"
        found.append(Assumption("depth", "0", what, "the depth of prompt and output"))
    return found
