"""A service with something on every page, made without a Hub: names as usual, or all of them hostile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from msgspec.structs import replace
from redis import Redis

from service.engine.advice import AdviceBody
from service.engine.check.learning import Difference, Lesson, Subject
from service.engine.hardware import Assumption
from service.engine.measured.classify import Failure
from service.engine.measured.roofline import Prediction
from service.flows.accounts import hashed
from service.flows.context import Context
from service.queue.embedded import EmbeddedValkey
from service.settings import Settings
from service.store import accounts
from service.store.advice.advices import State, StoredAdvice
from service.store.results import comparisons
from service.wire.advice.advice import AdviceRequest
from service.wire.results.results import Published
from tests import rigs
from tests.databases import engine_with_tables
from tests.engine.planner.asking import ask
from tests.hosts import a_host, service
from tests.store.advice.test_advices import added
from tests.stored_results import a_result, keep, row

HOSTILE = "x\x1b[31m<script src=//evil.example></script>\"'@everyone```\u202egnp.exe\u200b{{7*7}}=cmd|' /C calc'!A0"
EDIT_KEY = "the-key-of-the-sender"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
READY, RUNNING, FAILED = "ready-advice-000000001", "running-advice-0000001", "failed-advice-00000001"
_SWEEP = [row(n_kv, 24 - n_kv / 4096, 520 - n_kv / 128) for n_kv in range(0, 32_768, 2048)]
_LOG = "llama_model_loader: loaded meta data\nllm_load_tensors: CUDA0 buffer size = 17,304 MiB\n" * 40


class Site(NamedTuple):
    """A running service, the addresses of its pages by name, and its database."""

    client: httpx.Client
    paths: dict[str, str]
    context: Context


@cache
def body() -> AdviceBody:
    """Return an advice with configs, assumptions and refusals."""
    return ask("Qwen3-8B", "q8_0", "q4_K_M", hardware=rigs.LAPTOP_6GB, what_if=["which single upgrade helps most"])


@contextmanager
def site(
    folder: Path, valkey: EmbeddedValkey, redis: Redis, name: str | None = None, hub: str = "http://127.0.0.1:1"
) -> Iterator[Site]:
    """Run the real app on a filled database. `name`: stands wherever a name from outside can stand; `hub`: its address,
    where one is needed."""
    url = f"sqlite:///{folder}/site.db"
    settings = Settings(database_url=url, redis_url=valkey.url, hf_endpoint=hub, requests_per_minute=100_000)
    with engine_with_tables(url) as engine, service(settings) as client:
        context = Context(settings, engine, redis, None, lambda: NOW)  # type: ignore[arg-type]
        yield Site(client, _filled(context, name), context)


def _filled(context: Context, name: str | None) -> dict[str, str]:
    _advices(context, name)
    host = a_host(context, visibility="public")
    found = replace(body(), configs=body().configs[:1]).configs[0]
    said = Prediction(devices=found.devices, speed=found.speed, most_tg=1e6, most_pp=1e6)
    named: dict[str, Any] = {} if name is None else {
        "model_name": name, "gpus": name, "variant": name, "cpu": name, "command": name, "remarks": name, "build": name,
        "repo": name[:100],
    }  # fmt: skip
    measured = {"account_id": host.account_id, "host_id": host.id, "origin": "agent", "tier": "agent-run"}
    measured |= {"command": "llama-sweep-bench -m Qwen3-8B-Q8_0.gguf -c 32768 -ngl 99", **named}
    of_agent = a_result(_SWEEP, prediction=said, confirmed=True, created_at=NOW, **measured)
    others = [
        a_result([row(0, 21.0, 480.0), row(4096, 19.0, 440.0)], engine="llama.cpp", created_at=NOW, **named),
        a_result(
            [row(0, 20.0)], model_slug="qwen3-8b", edit_key_hash=hashed(EDIT_KEY), **{"model_name": "Qwen3-8B", **named}
        ),
        a_result([row(0, 18.5)], tier="replicated", rig_slug="rtx-4090", gpus="RTX 4090", measured_at=NOW),
        a_result(
            [row(0, 16.0)],
            origin="published",
            published=Published(by=name or "somebody", url="https://example.com/t", date="2025-03-14"),
            **named,
        ),
        a_result([row(0, 900.0)], state="quarantined", state_reason=name or "far above its cell", **named),
        a_result([], failure=Failure(kind="out_of_memory", transient=False, text=name or "CUDA0 is full"), **named),
    ]
    keep(context.engine, of_agent, log=(name or "") + _LOG)
    keep(context.engine, *others)
    subject = Subject(engine="ik_llama.cpp", architecture=(name or "qwen3moe")[:64], era="2026-08-13", backend="CUDA")
    off = Difference(part="compute", place="card", way="above", measured=812.0, expected=716.5)
    comparisons.keep(context.engine, of_agent.id, 1, Lesson(subject=subject, agrees=("card kv",), difference=off))
    pseudonym = accounts.ensure(context.engine, "alice", ("anybody",), NOW).pseudonym
    ids = [of_agent.id, *(one.id for one in others)]
    return {
        "start": "/",
        "advice": f"/advice/{READY}",
        "running": f"/advice/{RUNNING}",
        "failed": f"/advice/{FAILED}",
        "leaderboard": "/leaderboard",
        "nothing found": "/leaderboard?q=zzz",
        "models": "/models",
        "rigs": "/hardware",
        "no model": "/models?q=zzz",
        "check": "/check",
        "add host": "/hosts/new",
        "model": f"/models/{of_agent.model_slug}",
        "hardware": f"/hardware/{of_agent.rig_slug}",
        "result": f"/results/{ids[0]}",
        "own": f"/results/{ids[2]}",
        "published": f"/results/{ids[4]}",
        "quarantined": f"/results/{ids[5]}",
        "compare": f"/compare?ids={','.join(ids[:4])}",
        "nothing to compare": "/compare",
        "accuracy": "/accuracy",
        "submit": "/submit",
        "hosts": "/hosts",
        "contributor": f"/contributors/{pseudonym}",
        "documentation": "/docs",
        "found": "/docs?q=cache",
        "guide": "/docs/speed",
        "api": "/docs/api/advice",
        "problems": "/docs/problems",
        "about": "/about",
        "privacy": "/privacy",
        "terms": "/terms",
        "removal": "/removal",
        "moderation": "/moderation",
    }


def _advices(context: Context, name: str | None) -> None:
    known, repo = body(), "someone/Qwen3-8B-GGUF"
    if name is not None:
        config = replace(known.configs[0], variant=name, notes=[name])
        refused = [replace(one, variant=name, reason=name) for one in known.refused]
        assumed = [Assumption(name, name, name, name)]
        known = replace(known, headline=name, configs=[config], refused=refused, assumed=assumed)
    request = AdviceRequest(repo=repo, hardware=rigs.LAPTOP_6GB)
    problem = {"type": "unsupported-model", "detail": name or "nobody knows this architecture"}
    states: tuple[tuple[str, State, AdviceBody | None], ...] = (
        (READY, "ready", known), (RUNNING, "running", None), (FAILED, "failed", None),
    )  # fmt: skip
    for advice_id, state, kept in states:
        stored = StoredAdvice(
            id=advice_id, request_key=advice_id, state=state, repo=repo, revision="0" * 40, request=request,
            body=kept, problem=problem if state == "failed" else None, progress=(name or "reading headers")[:200],
            attempts=1, delete_key_hash="0" * 64, created_at=NOW, updated_at=NOW,
        )  # fmt: skip
        assert added(context.engine, stored)
