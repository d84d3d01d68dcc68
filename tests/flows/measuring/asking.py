"""Hosts that have the model, advices on their hardware, and what the hosts report of these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from service.engine.goal import Constraints, EngineChoice
from service.engine.hardware import Hardware
from service.engine.measured.rows import MeasuredRow
from service.flows.accounts import Caller
from service.flows.advice import advise
from service.flows.advice.repos import list_repo
from service.flows.context import Context
from service.flows.measuring import runs
from service.flows.measuring.validate import request_validation
from service.hub.references import parse_reference
from service.store.measuring import runs as store_runs
from service.store.measuring.hosts import StoredHost
from service.wire.advice.advice import Advice, AdviceRequest
from service.wire.measuring.agent import Report
from service.wire.measuring.hosts import EngineBuild, ModelFile, Probe
from service.wire.measuring.runs import Validation, ValidationRequest
from tests.computed_once import advise_once
from tests.hosts import PROBE, RIG, a_host

QWEN = "Qwen/Qwen3-0.6B-GGUF"
MINE = "llama-server -m /models/Qwen3-0.6B-Q8_0.gguf -ngl 99 -c 16384 -fa on --temp 0.7 --jinja -np 2"
HELP = Path(__file__).parents[2] / "data" / "help"


def options(program: str) -> tuple[str, ...]:
    words = (HELP / program).read_text().replace(",", " ").split()
    return tuple(dict.fromkeys(word for word in words if word.startswith("-") and len(word) <= 64))[:1000]


def built(build: EngineBuild, program: str) -> EngineBuild:
    return msgspec.structs.replace(build, backends=("CUDA", "CPU"), options=options(program))


SWEEP, BENCH = (
    built(PROBE.engines[0], "ik_llama.cpp-8337e4cd3-llama-sweep-bench.txt"),
    built(PROBE.engines[1], "llama.cpp-0c1e57098-llama-bench.txt"),
)


WITHOUT_CUDA = (msgspec.structs.replace(SWEEP, backends=("CPU",)), msgspec.structs.replace(BENCH, backends=()))
OTHER_CONTENT = tuple(
    ModelFile(name=f"Qwen3-0.6B-{mix}.gguf", size=1, header_sha256="0" * 64, sha256="0" * 64)
    for mix in ("Q8_0", "Q4_K_M", "BF16")
)
BUSY_CARDS = msgspec.structs.replace(RIG, gpus=[msgspec.structs.replace(gpu, free_gib=1.0) for gpu in RIG.gpus])


def models_of(context: Context) -> tuple[ModelFile, ...]:
    listing = list_repo(context, parse_reference(QWEN, None))
    files = [file for variant in listing.variants for file in variant.files]
    return tuple(ModelFile(name=f.path, size=f.n_bytes or 1, header_sha256="0" * 64) for f in files)


def probe_of(context: Context, hardware: Hardware = RIG, **fields: Any) -> Probe:
    known = {"agent": "0.1.0", "engines": (SWEEP, BENCH), "models": models_of(context), **fields}
    return Probe(hardware=hardware, **known)


def host_of(context: Context, owner: str = "alice", hardware: Hardware = RIG, **fields: Any) -> StoredHost:
    visibility = fields.pop("visibility", "private")
    return a_host(context, owner, probe=probe_of(context, hardware, **fields), visibility=visibility)


def advised(
    context: Context, command: str | None = None, hardware: Hardware = RIG, engine: str | None = None
) -> Advice:
    engines = [EngineChoice(engine)] if engine else None  # type: ignore[arg-type]
    limits = Constraints(current_command=command, engines=engines)
    asked = AdviceRequest(repo=QWEN, hardware=hardware, constraints=limits)
    advice = advise.request_advice(context, asked).advice
    advise.compute_advice(context, advice.id, advise_once)
    return advise.read_advice(context, advice.id)


def validated(context: Context, by: Caller, advice: Advice, **asked: Any) -> Validation:
    return request_validation(context, by, advice.id, ValidationRequest(**asked)).validation


def measured_like(advice: Advice, config: str, faster: float = 1.0) -> tuple[MeasuredRow, ...]:
    """Rows as if a config ran `faster` than predicted."""
    (found,) = [one for one in advice.configs if one.id == config]
    return tuple(
        MeasuredRow(
            n_kv=p.n_kv,
            n_prompt=512,
            n_gen=64,
            pp_seconds=(512 / p.pp_tps / faster,),
            tg_seconds=(64 / p.tg_tps / faster,),
        )
        for p in found.speed
    )


def run_all(context: Context, host: StoredHost, advice: Advice, speeds: dict[str, float]) -> None:
    """Report each queued run of a host: configs in `speeds` that much faster, others as predicted."""
    while (leased := runs.lease(context, host)) is not None:
        run = store_runs.read(context.engine, leased.run)
        assert run is not None
        name = run.config_id or ""
        rows = measured_like(advice, name, speeds.get(name, 1.0))
        runs.report(context, host, leased.run, Report(fence=leased.fence, rows=rows, engine_commit="0c1e57098"))
