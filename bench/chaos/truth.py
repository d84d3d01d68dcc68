"""What must hold after everything: the ledger of the clients held against the database, Redis, and the machine."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import msgspec
from redis import Redis
from sqlalchemy import Engine, select, text

from bench.chaos.ledger import Ledger
from bench.chaos.parts import HEARTBEAT_SECONDS, Stack
from service.flows.context import Database
from service.flows.results import trust
from service.store.engines import locked
from service.store.results import board
from service.store.results.board_tables import board as board_table
from service.store.results.board_tables import board_name, result_speed
from service.store.tables import abuse_report, advice, result, run, validation
from workers.run import TIDY_BEATS

FINAL_ADVICE, FINAL_RUN = ("ready", "failed"), ("succeeded", "failed", "cancelled")
_OF_THE_HUB = ("hub-unavailable", "hub-rate-limited", "hub-reply-refused")
_CHANGES_BY_SETTLING = ("id", "state", "state_reason", "tier")


def unfinished(engine: Engine) -> int:
    """Return how many advices and runs are not final."""
    with engine.connect() as connection:
        states = [*connection.scalars(select(advice.c.state)), *connection.scalars(select(run.c.state))]
    return sum(state not in (*FINAL_ADVICE, *FINAL_RUN) for state in states)


def counted(engine: Engine) -> dict[str, Counter[str]]:
    """Return how many rows there are of each kind and state."""
    with engine.connect() as connection:
        return {
            "advices": Counter(connection.scalars(select(advice.c.state))),
            "attempts at an advice": Counter(map(str, sorted(connection.scalars(select(advice.c.attempts))))),
            "runs": Counter(connection.scalars(select(run.c.state))),
            "leases of a run": Counter(map(str, sorted(connection.scalars(select(run.c.fence))))),
            "results sent": Counter(connection.scalars(select(result.c.state).where(result.c.origin == "submitted"))),
        }


def slowest(engine: Engine) -> list[tuple[float, str]]:
    """Return the seconds from asking to the end of the slowest five advices, each with its repo and attempts."""
    rows = [row for row in _rows(engine, advice) if row.state in FINAL_ADVICE]
    took = [
        ((row.updated_at - row.created_at).total_seconds(), f"{row.repo}, {row.attempts} attempts, {row.state}")
        for row in rows
    ]
    return sorted(took, reverse=True)[:5]


def wrong(stack: Stack, ledger: Ledger, engine: Engine) -> Iterator[str]:
    """Yield violated promises while the service still runs."""
    yield from ledger.wrong
    yield from _advices(ledger, engine)
    yield from _runs(engine)
    yield from _validations(ledger, engine)
    yield from _sent(ledger, engine)
    yield from _readable(stack, ledger)
    yield from _settled(engine)
    yield from _board(engine)
    yield from _tidied(stack)
    yield from _sessions(engine)


def left_behind(stack: Stack) -> Iterator[str]:
    """Yield leftovers after everything was stopped."""
    yield from (f"left running: {words}" for words in stack.left())
    for path in sorted((stack.folder / "tmp").iterdir()):
        yield f"left in the temporary folder: {path.name}"


def _rows(engine: Engine, table: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(table)))


def _advices(ledger: Ledger, engine: Engine) -> Iterator[str]:
    known = {row.id: row for row in _rows(engine, advice)}
    for row in known.values():
        if row.state not in FINAL_ADVICE:
            yield f"advice {row.id} is {row.state} after {row.attempts} attempts, since {row.updated_at}"
        slug = (row.problem or {}).get("problem") or (row.problem or {}).get("type", "")
        if row.state == "failed" and not any(word in str(slug) for word in _OF_THE_HUB):
            yield f"advice {row.id} failed: {row.problem}"
    for one, told in ledger.advices.items():
        if one not in known:
            yield f"advice {one} was promised and is gone"
        elif told and known[one].state != told:
            yield f"advice {one} was told to be {told} and is {known[one].state}"


def _runs(engine: Engine) -> Iterator[str]:
    rows = _rows(engine, run)
    kept = [row.id for row in _rows(engine, result) if row.origin == "agent"]
    for row in rows:
        if row.state not in FINAL_RUN:
            yield f"run {row.id} is {row.state}, held until {row.leased_until}"
        if row.state == "succeeded" and row.result_id not in kept:
            yield f"run {row.id} has no result"
        if row.state == "failed" and row.attempt < 3:
            yield f"run {row.id} failed after {row.attempt} attempts: {row.failure}"
        depths = [(r["n_kv"], r.get("n_prompt", 0)) for r in msgspec.to_builtins(row.rows)]
        if row.state == "succeeded" and len(set(depths)) != len(depths):
            yield f"run {row.id}: rows {depths}"
    named = Counter(row.result_id for row in rows if row.result_id)
    if sorted(named.elements()) != sorted(kept):
        yield f"{len(kept)} results of {named.total()} runs ({len(named)} different)"


def _validations(ledger: Ledger, engine: Engine) -> Iterator[str]:
    known = {row.id: row for row in _rows(engine, validation)}
    runs = _rows(engine, run)
    yield from (f"validation {one} was promised and is gone" for one in ledger.validations if one not in known)
    keys = Counter(ledger.validations.values())
    yield from (f"key {key} made {n} validations" for key, n in keys.items() if n > 1)
    for one in ledger.cancelled & known.keys():
        if known[one].cancelled_at is None or any(r.state not in FINAL_RUN for r in runs if r.validation_id == one):
            yield f"validation {one} was cancelled and goes on"


def _sent(ledger: Ledger, engine: Engine) -> Iterator[str]:
    rows = {row.id: row for row in _rows(engine, result) if row.origin == "submitted"}
    twice = Counter(row.rows_key for row in rows.values() if row.state != "deleted")
    yield from (f"{n} results with the same rows" for n in twice.values() if n > 1)
    if len(rows) != len(ledger.sent):
        yield f"{len(ledger.sent)} results were sent, and {len(rows)} are kept"
    for one in ledger.sent.values():
        row = rows.get(one.id)
        if row is None:
            yield f"result {one.id} was taken and is gone"
        elif one.state in ("deleted", "hidden") and row.state != one.state:
            yield f"result {one.id} was {one.state} and is {row.state}"
        elif one.remarks and one.state != "deleted" and row.remarks != one.remarks:
            yield f"result {one.id} was corrected to {one.remarks!r} and says {row.remarks!r}"
        elif one.state == "deleted" and (row.log, row.command, row.remarks) != (None, None, None):
            yield f"result {one.id} was deleted and something of it is kept"
    reports = {row.id for row in _rows(engine, abuse_report)}
    yield from (f"report {one} was taken and is gone" for one in ledger.reports - reports)


def _readable(stack: Stack, ledger: Ledger) -> Iterator[str]:
    """Yield promises that the public API does not keep; nothing may be refused any more."""
    paths = [f"/v1/advice/{one}" for one in ledger.advices]
    paths += [f"/v1/validations/{one}" for one in ledger.validations]
    paths += [f"/v1/results/{one.id}" for one in ledger.sent.values() if one.state in (None, "shown")]
    own = {"Authorization": f"Bearer {stack.token}"}  # what private hosts measure is for who asked
    with httpx.Client(base_url=stack.url, timeout=30, trust_env=False) as http:
        for path in paths:
            try:
                reply = http.get(path, headers=own if path.startswith("/v1/validations/") else {})
            except httpx.TransportError as error:
                yield f"{path}: {type(error).__name__}, with nothing going on"
                continue
            if reply.status_code != 200:
                yield f"{path}: {reply.status_code} {reply.text[:200]}"


def _settled(engine: Engine) -> Iterator[str]:
    """Yield results that were not settled: settling everything again must change nothing."""
    before = _verdicts(engine)
    context = Database(engine)
    for cell in sorted({row.cell for row in _rows(engine, result) if row.cell}):
        trust.settle(context, cell)
    for row in _verdicts(engine) - before:
        yield f"result was not settled: {row}"


def _verdicts(engine: Engine) -> set[tuple[Any, ...]]:
    return {tuple(getattr(row, name) for name in _CHANGES_BY_SETTLING) for row in _rows(engine, result)}


def _board(engine: Engine) -> Iterator[str]:
    tables = (board_table, board_name, result_speed)
    before = {table.name: {tuple(row) for row in _rows(engine, table)} for table in tables}
    with locked(engine) as connection:
        board.rebuild(connection)
    for table in tables:
        after = {tuple(row) for row in _rows(engine, table)}
        if after != before[table.name]:
            lost, extra = after - before[table.name], before[table.name] - after
            yield f"{table.name}: {len(lost)} rows lacked, {len(extra)} too many: {[*lost, *extra][:2]}"


def _tidied(stack: Stack) -> list[str]:
    """Return what is left in Redis once workers had time to tidy up after killed ones."""
    # RQ takes a job for abandoned a minute after its last heartbeat, and clears what lay between two queues a minute
    # after it was first seen there (rq 2.12: Worker.get_heartbeat_ttl, IntermediateQueue.should_be_cleaned_up).
    deadline = time.monotonic() + 120 + 4 * TIDY_BEATS * HEARTBEAT_SECONDS
    while found := list(_redis(stack)):
        if time.monotonic() > deadline:
            return found
        time.sleep(1)
    return []


def _redis(stack: Stack) -> Iterator[str]:
    """Yield anything queued or in progress; only workers, counters and failures that soon expire may be left."""
    with closing(Redis.from_url(stack.redis, decode_responses=True)) as redis:
        for key in redis.scan_iter("rq:*"):
            kind = redis.type(key)
            size = redis.llen(key) if kind == "list" else redis.zcard(key) if kind == "zset" else 0
            if key.startswith(("rq:queue:", "rq:wip:", "rq:intermediate")) and size:
                yield f"{key} has {size} jobs"
            if key.startswith("rq:job:") and redis.ttl(key) < 0:
                yield f"{key} is left for ever: {redis.hmget(key, 'status', 'enqueued_at', 'last_heartbeat')}"
        yield from (f"{key} is held" for key in redis.scan_iter("reading:*"))


def _sessions(engine: Engine) -> Iterator[str]:
    """Yield open transactions and advisory locks: clients that are gone must hold nothing."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        idle = connection.execute(
            text(  # a job of the schedule may be between two of its statements
                "SELECT pid, state, query FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
                "AND state_change < clock_timestamp() - interval '2 seconds'"
            )
        )
        yield from (f"a transaction is left open: {row.query[:200]}" for row in idle)
        held = connection.execute(text("SELECT pid FROM pg_locks WHERE locktype = 'advisory'"))
        yield from (f"process {row.pid} holds an advisory lock" for row in held)
