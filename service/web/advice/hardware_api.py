"""`/v1/hardware`: the catalogue, and parsing of texts about hardware."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from litestar import Response, Router, get, post
from litestar.params import JSONBody, QueryParameter

from service.engine.catalogue import resolve
from service.engine.catalogue.rows import CpuRow, GpuRow, known_cpus, known_gpus
from service.engine.hardware_text import parse_hardware as parse_text
from service.engine.hardware_text.form import to_shorthand
from service.web.documentation.operations import answers
from service.web.http.conditional import conditional
from service.web.http.problems import BODY_PROBLEMS
from service.web.http.types import HttpRequest
from service.wire.advice.hardware import CpuRows, GpuRows, HardwareQuestion, ParsedHardware

_MAX_ROWS = 1_000
Search = Annotated[
    str, QueryParameter(name="q", max_length=100, description="Words in the name or an alias, in any order and case.")
]


@get(
    "/v1/hardware/gpus",
    summary="GPUs that the catalogue knows",
    responses=answers(200, GpuRows, "Those that match.", "invalid-request"),
)
async def list_gpus(request: HttpRequest, search: Search = "") -> Response[Any]:
    """Memory as the driver reports it, bandwidth, and throughput; null means unknown."""
    return _matching(request, known_gpus(), search)


@get(
    "/v1/hardware/cpus",
    summary="CPUs that the catalogue knows",
    responses=answers(200, CpuRows, "Those that match.", "invalid-request"),
)
async def list_cpus(request: HttpRequest, search: Search = "") -> Response[Any]:
    """Cores, memory channels, and memory speed of their platforms; null means unknown."""
    return _matching(request, known_cpus(), search)


@post(
    "/v1/hardware/parse",
    status_code=200,
    summary="How a description of hardware is understood",
    responses=answers(200, ParsedHardware, "Both forms.", *BODY_PROBLEMS, "unknown-hardware", "invalid-hardware"),
)
async def parse_hardware(data: JSONBody[HardwareQuestion]) -> ParsedHardware:
    """Takes shorthand, pasted tool output or a mixture, and lists what is assumed because it was not stated."""
    return await to_thread.run_sync(_parsed, data.text)


def _parsed(text: str) -> ParsedHardware:
    hardware = parse_text(text)
    return ParsedHardware(hardware, to_shorthand(hardware), list(resolve(hardware).assumed))


def _matching(request: HttpRequest, rows: Iterable[GpuRow | CpuRow], search: str) -> Response[Any]:
    words = search.lower().split()
    found = [row for row in rows if all(word in _names(row) or word in _run_together(row) for word in words)]
    body = msgspec.json.encode({"total": len(found), "rows": found[:_MAX_ROWS]})
    return conditional(request, body, "application/json")


def _names(row: GpuRow | CpuRow) -> str:
    return " ".join((row.name, *row.aliases)).lower()


def _run_together(row: GpuRow | CpuRow) -> str:
    """Return the names without the spaces that people leave out: `rtx5090`."""
    return "\n".join((row.name, *row.aliases)).lower().replace(" ", "")


router = Router("/", route_handlers=[list_gpus, list_cpus, parse_hardware], tags=["hardware"])
